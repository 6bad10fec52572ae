"""Runner: rows in order on any engine; stored rows are reused, and missing ones computed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from checks import picture
from cli_fixtures import tiny_model as tiny_model
from internals import (
    ImageRows,
    ImageSource,
    Job,
    Local,
    Pool,
    Runner,
    Store,
    Worker,
    WorkUnit,
    batched,
    load_source,
    make_job,
)

from fair_tta import FairTPTClassifier, Zero, ZeroShot
from fair_tta.extend import AugMix


class Late:
    """An engine that begins many units at once and does the last first."""

    def __init__(self, ahead: int = 4) -> None:
        self.ahead = ahead
        self.submitted: list[WorkUnit] = []

    @property
    def description(self) -> str:
        return "late, workers 3, threads of each 1"

    @contextmanager
    def open(self, job: Job) -> Iterator[Pool]:
        worker = Worker(job)
        waiting: list[tuple[WorkUnit, list[list[ImageRows]]]] = []

        def submit(unit: WorkUnit) -> Callable[[], list[ImageRows]]:
            self.submitted.append(unit)
            results: list[list[ImageRows]] = []
            waiting.append((unit, results))

            def wait() -> list[ImageRows]:
                while waiting:
                    last_unit, last_results = waiting.pop()
                    last_results.append(worker.begin(last_unit)())
                return results[0]

            return wait

        yield Pool(submit, self.ahead)


@pytest.fixture
def job(tiny_model: str) -> Job:
    clf = FairTPTClassifier(tiny_model, ["cat", "dog"], views=AugMix(3))
    return make_job(clf, [ZeroShot(), Zero(0.5)])


def write_images(folder: Path, count: int) -> list[ImageSource]:
    sources = []
    for i in range(count):
        path = folder / f"{i}.png"
        picture(i).save(path)
        sources.append(ImageSource(path.name, str(path)))
    return sources


def stream(
    runner: Runner,
    sources: Sequence[ImageSource | None],
    seed: int = 0,
    read_ahead: bool = False,
) -> list[tuple[ImageSource | None, Any]]:
    """Two images at a time."""
    return list(
        runner.stream(
            sources, lambda source: source, size=2, seed=seed, read_ahead=read_ahead
        )
    )


def test_rows_come_in_order_and_are_stored(job: Job, tmp_path: Path) -> None:
    sources: list[ImageSource | None] = [*write_images(tmp_path, 9)]
    sources.insert(4, None)  # an item without an image
    sources.insert(6, ImageSource("gone.png", str(tmp_path / "gone.png")))
    plain = stream(Runner(job, Local()), sources)
    assert [source for source, _ in plain] == sources
    assert plain[4][1] == []
    assert isinstance(plain[6][1], str)
    late = Late()
    with Store(tmp_path / "rows") as store:
        runner = Runner(job, late, store)
        first = stream(runner, sources)
        for (_, plain_rows), (_, rows) in zip(plain, first, strict=True):
            if isinstance(plain_rows, str) or isinstance(rows, str):
                assert plain_rows == rows
                continue
            for plain_row, row in zip(plain_rows, rows, strict=True):
                assert plain_row.prediction.label == row.prediction.label
                assert row.by == "late, workers 3, threads of each 1"
        late.submitted.clear()
        assert stream(runner, sources) == first
        assert len(late.submitted) == 1, "only the unit of the image that is missing"
        of_other_seed = stream(runner, sources, seed=1)
        seeds = [
            rows[0].key.seed
            for _, rows in of_other_seed
            if rows and not isinstance(rows, str)
        ]
        assert seeds == [1] * 9
        assert len(list(store)) == 2 * 2 * 9


def test_an_image_is_its_content(job: Job, tmp_path: Path) -> None:
    touched, moved, unlike = write_images(tmp_path, 3)
    with Store(tmp_path / "rows") as store:
        unit = WorkUnit((touched, moved), 0, job.queries())
        ((_, first),) = Runner(job, Local(), store).run([unit])
    touched_path, moved_path = Path(str(touched.source)), Path(str(moved.source))
    touched_path.touch()
    renamed = ImageSource("moved", str(moved_path.rename(tmp_path / "moved.png")))
    late = Late()
    with Store(tmp_path / "rows") as store:
        runner = Runner(job, late, store)
        unit = WorkUnit((touched, renamed), 0, job.queries())
        ((_, rows),) = runner.run([unit])
        assert rows == first
        assert not late.submitted
        # another image of the same name, size and time of writing
        stat = touched_path.stat()
        touched_path.write_bytes(Path(str(unlike.source)).read_bytes())
        os.utime(touched_path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        list(runner.run([unit]))
        assert late.submitted[0].missing == (frozenset(job.queries()), frozenset())


def test_names_that_print_alike_are_two_images(job: Job, tmp_path: Path) -> None:
    sources = []
    for i, name in enumerate(["a\nb.png", "a\\nb.png"]):
        picture(i).save(tmp_path / name)
        sources.append(ImageSource(name, str(tmp_path / name)))
    unit = WorkUnit(tuple(sources), 0, job.queries())
    for _ in range(2):
        with Store(tmp_path / "rows") as store:
            ((_, (first, second)),) = Runner(job, Local(), store).run([unit])
            assert first[0].key.content != second[0].key.content  # type: ignore[union-attr]
            assert len(list(store)) == 4


def test_an_image_that_changes_during_the_run_is_reported(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed, unlike = write_images(tmp_path, 2)
    begin = Worker.begin

    def change(self: Worker, unit: WorkUnit) -> Any:
        Path(str(changed.source)).write_bytes(Path(str(unlike.source)).read_bytes())
        return begin(self, unit)

    unit = WorkUnit((changed,), 0, job.queries())
    with Store(tmp_path / "rows") as store:
        runner = Runner(job, Local(), store)
        list(runner.run([WorkUnit((changed,), 0, job.queries()[:1])]))
        with monkeypatch.context() as patch:
            patch.setattr(Worker, "begin", change)
            ((_, (reason,)),) = runner.run([unit])
        assert "was changed while it was looked at" in reason
        ((_, (rows,)),) = runner.run([unit])
        assert len(rows) == 2


def test_a_lazy_stream_is_not_read_ahead(job: Job, tmp_path: Path) -> None:
    requested = []

    def sources() -> Iterator[ImageSource]:
        for source in write_images(tmp_path, 6):
            requested.append(source)
            yield source

    answers = Runner(job, Local()).stream(sources(), lambda s: s, size=2, seed=0)
    next(answers)
    assert len(requested) == 2
    answers.close()  # type: ignore[attr-defined]


def test_batches_hold_everything_in_order() -> None:
    for count in range(8):
        for size in range(1, 4):
            batches = list(batched(range(count), size))
            assert [item for batch in batches for item in batch] == list(range(count))
            assert all(len(batch) == size for batch in batches[:-1])


def test_the_next_unit_is_decoded_while_one_is_processed(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no more than that: memory holds two units."""
    decoded: list[str] = []
    decoded_at_work: list[list[str]] = []
    begun_sizes: list[int] = []
    lock = threading.Lock()
    begin, finish = Worker.begin, Worker._finish

    def load(clf: Any, source: ImageSource) -> Any:
        with lock:
            decoded.append(source.name)
        return load_source(clf, source)

    def count_begun(self: Worker, unit: WorkUnit) -> Any:
        begun_sizes.append(len(unit.images))
        return begin(self, unit)

    def wait_for_decoding(
        self: Worker, unit: WorkUnit, upcoming: Any
    ) -> list[ImageRows]:
        futures.wait([decoding.future for decoding in upcoming])
        while len(decoded) < sum(begun_sizes):  # of other units
            time.sleep(0.01)
        decoded_at_work.append(sorted(decoded))
        return finish(self, unit, upcoming)

    monkeypatch.setattr("fair_tta.lab.runs._worker.load_source", load)
    monkeypatch.setattr(Worker, "begin", count_begun)
    monkeypatch.setattr(Worker, "_finish", wait_for_decoding)
    sources = write_images(tmp_path, 8)
    names = [source.name for source in sources]
    runner = Runner(job, Local())
    ahead = stream(runner, sources, read_ahead=True)
    assert decoded_at_work == [names[:4], names[:6], names, names]
    for record in (decoded, decoded_at_work, begun_sizes):
        record.clear()
    in_turn = stream(runner, sources)
    assert decoded_at_work == [names[:2], names[:4], names[:6], names]
    assert (
        [source for source, _ in ahead] == [source for source, _ in in_turn] == sources
    )
    for (_, rows), (_, same_rows) in zip(ahead, in_turn, strict=True):
        for row, same_row in zip(rows, same_rows, strict=True):
            assert row.prediction == same_row.prediction


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_threads_end_with_the_run(
    job: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    """Rows finished before Ctrl-C are stored, and the same call continues from there."""
    sources = write_images(tmp_path, 6)
    threads_before = set(threading.enumerate())  # other tests may have left some
    units = []
    finish = Worker._finish

    def stop(self: Worker, unit: WorkUnit, upcoming: Any) -> list[ImageRows]:
        units.append(unit)
        if len(units) == 2:
            raise error
        return finish(self, unit, upcoming)

    monkeypatch.setattr(Worker, "_finish", stop)
    with Store(tmp_path / "rows.sqlite") as store:
        runner = Runner(job, Local(), store)
        answered = []
        with pytest.raises(error):
            for source, _ in runner.stream(
                sources, lambda source: source, size=2, seed=0, read_ahead=True
            ):
                answered.append(source)
        assert answered == sources[:2]
        threads = set(threading.enumerate()) - threads_before
        assert not [thread for thread in threads if "decode" in thread.name]
        again = stream(runner, sources, read_ahead=True)
        assert [source for source, _ in again] == sources
        assert len(units) == 4, "the first unit was not computed again"


def test_an_image_that_cannot_be_read_stays_in_its_place(
    job: Job, tmp_path: Path
) -> None:
    sources = write_images(tmp_path, 5)
    Path(str(sources[2].source)).write_bytes(b"no image")
    answers = stream(Runner(job, Local()), sources, read_ahead=True)
    has_failed = [isinstance(rows, str) for _, rows in answers]
    assert has_failed == [False, False, True, False, False]
