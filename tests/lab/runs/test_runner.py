"""Runner: answers in order, whoever makes them; what is kept is taken, what is missing is made."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
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
        self.asked: list[WorkUnit] = []

    @property
    def description(self) -> str:
        return "late, workers 3, threads of each 1"

    @contextmanager
    def open(self, job: Job) -> Iterator[Pool]:
        worker = Worker(job)
        begun: list[tuple[WorkUnit, list[list[ImageRows]]]] = []

        def submit(unit: WorkUnit) -> Callable[[], list[ImageRows]]:
            self.asked.append(unit)
            mine: list[list[ImageRows]] = []
            begun.append((unit, mine))

            def wait() -> list[ImageRows]:
                while begun:
                    other, made = begun.pop()
                    made.append(worker.begin(other)())
                return mine[0]

            return wait

        yield Pool(submit, self.ahead)


@pytest.fixture
def job(tiny_model: str) -> Job:
    clf = FairTPTClassifier(tiny_model, ["cat", "dog"], views=AugMix(3))
    return make_job(clf, [ZeroShot(), Zero(0.5)])


def asked(folder: Path, count: int) -> list[ImageSource]:
    for i in range(count):
        picture(i).save(folder / f"{i}.png")
    return [ImageSource(f"{i}.png", str(folder / f"{i}.png")) for i in range(count)]


def test_answers_come_in_order_and_are_kept(job: Job, tmp_path: Path) -> None:
    pictures: list[ImageSource | None] = [*asked(tmp_path, 9)]
    pictures.insert(4, None)  # a row without a picture
    pictures.insert(6, ImageSource("gone.png", str(tmp_path / "gone.png")))
    plain = list(Runner(job, Local()).stream(pictures, lambda p: p, size=2, seed=0))
    assert [item for item, _ in plain] == pictures
    assert plain[4][1] == []
    assert isinstance(plain[6][1], str)
    with Store(tmp_path / "rows") as store:
        late = Late()
        first = list(
            Runner(job, late, store).stream(pictures, lambda p: p, size=2, seed=0)
        )
        for (_, a), (_, b) in zip(plain, first, strict=True):
            assert isinstance(a, str) == isinstance(b, str)
            if not isinstance(a, str) and not isinstance(b, str):
                assert [x.prediction.label for x in a] == [
                    x.prediction.label for x in b
                ]
                assert [x.by for x in b] == [
                    "late, workers 3, threads of each 1"
                ] * len(b)
        late.asked.clear()
        again = list(
            Runner(job, late, store).stream(pictures, lambda p: p, size=2, seed=0)
        )
        assert again == first
        assert len(late.asked) == 1, "only the unit of the picture that is not there"
        other = list(
            Runner(job, late, store).stream(pictures, lambda p: p, size=2, seed=1)
        )
        assert [a[0].key.seed for _, a in other if a and not isinstance(a, str)] == [
            1
        ] * 9
        assert len([*store]) == 2 * 2 * 9


def test_a_picture_is_its_content(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, two, three) = asked(tmp_path, 3)
    unit = WorkUnit((one, two), 0, job.queries())
    with Store(tmp_path / "rows") as store:
        before = list(Runner(job, Local(), store).run([unit]))
    first, second = (Path(str(p.source)) for p in (one, two))
    first.touch()
    moved = ImageSource("moved", str(second.rename(tmp_path / "moved.png")))
    with Store(tmp_path / "rows") as store:
        late = Late()
        runner = Runner(job, late, store)
        again = WorkUnit((one, moved), 0, job.queries())
        ((_, found),) = runner.run([again])
        assert found == before[0][1], "touched and moved, and the same pictures"
        assert not late.asked
        # another picture of the same name, size and time of writing
        stat = first.stat()
        data = Path(str(three.source)).read_bytes()
        first.write_bytes(data)
        os.utime(first, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        list(runner.run([again]))
        assert late.asked[0].missing == (frozenset(job.queries()), frozenset())


def test_names_that_print_alike_are_two_pictures(job: Job, tmp_path: Path) -> None:
    names = ["a\nb.png", "a\\nb.png"]
    for i, name in enumerate(names):
        picture(i).save(tmp_path / name)
    pictures = tuple(ImageSource(name, str(tmp_path / name)) for name in names)
    unit = WorkUnit(pictures, 0, job.queries())
    for _ in range(2):
        with Store(tmp_path / "rows") as store:
            ((_, found),) = Runner(job, Local(), store).run([unit])
            a, b = ([x.key.content for x in answers] for answers in found)  # type: ignore[union-attr]
            assert a[0] != b[0]
            assert len([*store]) == 4


def test_a_picture_that_changes_under_our_hands_is_told(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, two) = asked(tmp_path, 2)
    some = WorkUnit((one,), 0, job.queries()[:1])
    unit = WorkUnit((one,), 0, job.queries())
    with Store(tmp_path / "rows") as store:
        runner = Runner(job, Local(), store)
        list(runner.run([some]))
        begin = Worker.begin

        def replaced(self: Worker, unit: WorkUnit) -> Any:
            Path(str(one.source)).write_bytes(Path(str(two.source)).read_bytes())
            return begin(self, unit)

        monkeypatch.setattr(Worker, "begin", replaced)
        ((_, (answer,)),) = runner.run([unit])
        assert "was changed while it was looked at" in answer
        monkeypatch.undo()
        ((_, (answers,)),) = runner.run([unit])
        assert len(answers) == 2


def test_a_lazy_stream_is_not_read_ahead(job: Job, tmp_path: Path) -> None:
    read = []

    def items() -> Iterator[ImageSource]:
        for one in asked(tmp_path, 6):
            read.append(one)
            yield one

    answers = Runner(job, Local()).stream(items(), lambda p: p, size=2, seed=0)
    next(answers)
    assert len(read) == 2
    answers.close()  # type: ignore[attr-defined]


def test_batches_hold_everything_in_order() -> None:
    for count in range(8):
        for size in range(1, 4):
            batches = list(batched(range(count), size))
            assert [item for batch in batches for item in batch] == list(range(count))
            assert all(len(batch) == size for batch in batches[:-1])


def test_the_next_unit_is_decoded_while_one_is_worked_on(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no more than that: memory holds two units."""
    decoded: list[str] = []
    at_work: list[list[str]] = []
    lock = threading.Lock()

    def load(clf: Any, one: ImageSource) -> Any:
        with lock:
            decoded.append(one.name)
        return load_source(clf, one)

    finish = Worker._finish
    begin, at_begin = Worker.begin, list[int]()

    def begun(self: Worker, unit: WorkUnit) -> Any:
        at_begin.append(len(unit.images))
        return begin(self, unit)

    def finished(self: Worker, unit: WorkUnit, loading: Any) -> list[ImageRows]:
        futures.wait([one.future for one in loading])
        while len(decoded) < sum(at_begin):  # other units that are begun
            time.sleep(0.01)
        at_work.append(sorted(decoded))
        return finish(self, unit, loading)

    monkeypatch.setattr("fair_tta.lab.runs._worker.load_source", load)
    monkeypatch.setattr(Worker, "begin", begun)
    monkeypatch.setattr(Worker, "_finish", finished)
    pictures = asked(tmp_path, 8)
    names = [one.name for one in pictures]
    runner = Runner(job, Local())
    read_ahead = list(
        runner.stream(pictures, lambda p: p, size=2, seed=0, read_ahead=True)
    )
    assert at_work == [names[:4], names[:6], names, names]
    for seen in (decoded, at_work, at_begin):
        seen.clear()
    in_turn = list(runner.stream(pictures, lambda p: p, size=2, seed=0))
    assert at_work == [names[:2], names[:4], names[:6], names]
    assert [one for one, _ in read_ahead] == [one for one, _ in in_turn] == pictures
    for (_, ours), (_, theirs) in zip(read_ahead, in_turn, strict=True):
        assert [a.prediction for a in ours] == [a.prediction for a in theirs]  # type: ignore[union-attr]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_threads_end_with_the_run(
    job: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    """What was finished before Ctrl-C is kept, and the same call goes on from there."""
    pictures = asked(tmp_path, 6)
    before = set(threading.enumerate())  # other tests may have left some
    calls = []
    finish = Worker._finish

    def stopped(self: Worker, unit: WorkUnit, loading: Any) -> list[ImageRows]:
        calls.append(unit)
        if len(calls) == 2:
            raise error
        return finish(self, unit, loading)

    monkeypatch.setattr(Worker, "_finish", stopped)
    with Store(tmp_path / "rows.sqlite") as store:
        runner = Runner(job, Local(), store)
        seen = []
        with pytest.raises(error):
            for one, _ in runner.stream(
                pictures, lambda p: p, size=2, seed=0, read_ahead=True
            ):
                seen.append(one)
        assert seen == pictures[:2]
        assert not {t for t in threading.enumerate() if "decode" in t.name} - before
        again = list(
            runner.stream(pictures, lambda p: p, size=2, seed=0, read_ahead=True)
        )
        assert [one for one, _ in again] == pictures
        assert len(calls) == 4, "the first unit was not worked on again"


def test_a_picture_that_cannot_be_read_stays_in_its_place(
    job: Job, tmp_path: Path
) -> None:
    pictures = asked(tmp_path, 5)
    Path(str(pictures[2].source)).write_bytes(b"no picture")
    found = list(
        Runner(job, Local()).stream(
            pictures, lambda p: p, size=2, seed=0, read_ahead=True
        )
    )
    assert [isinstance(answers, str) for _, answers in found] == [
        False,
        False,
        True,
        False,
        False,
    ]
