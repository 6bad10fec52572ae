"""Runs: the bank is used, kills lose nothing, adding a setting costs no vision pass."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import torch

import bench_tiny
from bench_tiny import GRID, tiny_run
from checks import picture
from fair_tta.adapters import TPT
from fair_tta.benchmarks.engines.local import Local
from fair_tta.benchmarks.engines.on_ray import OnRay
from fair_tta.benchmarks.grids import Setting
from fair_tta.benchmarks.output import publish
from fair_tta.benchmarks.runner import Run, run
from fair_tta.benchmarks.work import Line, load_backend
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.journal import JournalError

TIMES = ("seconds", "vision_seconds", "by")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bench_tiny.save_model(tmp_path_factory.mktemp("model") / "clip")


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bench_tiny.save_pets(tmp_path_factory.mktemp("pets"))


def finished(prepared: Run) -> list[Line]:
    """All lines in the order of the plan, without times."""
    keys = [q.key for unit in prepared.units for q in unit.questions]
    with prepared.journal() as journal:
        assert len(journal) == len(keys)
        lines = list(journal.read(keys))
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]


class Counted:
    """A model that counts the pictures its vision tower sees."""

    def __init__(self, model: str) -> None:
        self.backend: Any = load_backend(model)
        self.views = 0

    def __getattr__(self, name: str) -> Any:
        if name == "encode_pixels":
            return self._encode
        return getattr(self.backend, name)

    def _encode(self, pixels: Any) -> Any:
        self.views += len(pixels)
        return self.backend.encode_pixels(pixels)


def test_answers_are_those_of_predict(model: str, pets: Path, tmp_path: Path) -> None:
    prepared = tiny_run(model, pets, tmp_path)
    run(prepared)
    lines = {line["key"]: line for line in finished(prepared)}
    for task, part in enumerate(prepared.parts):
        arguments: Any = part.task.arguments()
        for unit in prepared.units:
            for q in (q for q in unit.questions if q.task == task):
                clf = FairTPTClassifier(
                    prepared.backend,
                    **arguments,
                    adapter=GRID.settings[q.setting].adapter,
                    views=prepared.job.views,
                    seed=unit.seed,
                )
                expected = clf.predict(list(unit.paths))
                for i, p in enumerate(expected):
                    found = lines[q.key]["probabilities"][i]
                    # the bank rounds features to float16
                    assert found == pytest.approx(list(p.probabilities.values()), abs=0.02)


def test_a_second_run_and_a_new_setting_do_not_touch_the_vision_tower(
    model: str, pets: Path, tmp_path: Path
) -> None:
    counted = Counted(model)
    prepared = tiny_run(counted, pets, tmp_path)
    before = counted.views
    run(prepared)
    images = sum(len(unit.paths) for unit in prepared.units)
    assert images == 20  # both tasks ask about the same pictures
    assert counted.views - before == 6 * images
    first = finished(prepared)

    more = replace(GRID, settings=(*GRID.settings, Setting("TPT", TPT(rho=0.5))))
    prepared = tiny_run(counted, pets, tmp_path, more)
    before = counted.views
    run(prepared)
    assert counted.views == before
    again = finished(prepared)
    assert len(again) == len(first) * 5 / 4
    assert [line for line in again if line in first] == first


def test_killed_at_any_moment_it_goes_on_and_ends_the_same(
    model: str, pets: Path, tmp_path: Path
) -> None:
    whole = tiny_run(model, pets, tmp_path / "whole")
    run(whole)
    command = [sys.executable, bench_tiny.__file__, model, str(pets)]
    moments = random.Random(0)
    kills, folders = 0, 1
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        end = None
        while kills < 20 or end != 0:
            patience = moments.uniform(0.02, 0.5) if kills < 20 else 60
            print(tmp_path / f"killed{folders}", patience, file=server.stdin, flush=True)
            end = int(server.stdout.readline())
            assert end in (0, -signal.SIGKILL), "it should not fail by itself"
            kills += end != 0
            folders += end == 0 and kills < 20  # done: once more from the beginning
        server.stdin.close()
    for i in range(1, folders + 1):
        killed = tiny_run(whole.backend, pets, tmp_path / f"killed{i}")
        assert finished(killed) == finished(whole)
        rows = (tmp_path / f"killed{i}" / "rows.jsonl").read_bytes()
        assert len(rows.splitlines()) == len(finished(whole)) + 1


def test_two_processes_give_the_rows_of_one(model: str, pets: Path, tmp_path: Path) -> None:
    one, two = (tiny_run(model, pets, tmp_path / name) for name in ("one", "two"))
    run(one)
    told: list[tuple[int, int]] = []
    run(two, Local(workers=2), progress=lambda done, total: told.append((done, total)))
    assert finished(one) == finished(two)
    assert told[0] == (0, one.answers)
    assert told[-1] == (one.answers, one.answers)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_unreadable_pictures_are_named_and_left_out(model: str, tmp_path: Path) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets")
    broken = sorted((pets / "images").iterdir())
    for path in broken[:-3]:
        path.write_bytes(b"not a picture")
    prepared = tiny_run(model, pets, tmp_path / "out")
    run(prepared)
    paths = [p for unit in prepared.units for p in unit.paths]
    named = {path for line in finished(prepared) for path in line["unreadable"]}
    assert named == {str(p) for p in broken[:-3]} & set(paths)
    for unit, line in ((u, line) for u in prepared.units for line in finished(prepared)):
        if line["key"] == unit.questions[0].key:
            good = [i for i, p in enumerate(unit.paths) if p not in named]
            assert line["images"] == good
            assert len(line.get("label", [])) == len(good)


def test_other_pictures_under_the_same_names_are_answered_anew(model: str, tmp_path: Path) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets", 12)
    backend = load_backend(model)
    grid = replace(GRID, settings=GRID.settings[:1])
    before = tiny_run(backend, pets, tmp_path / "out", grid)
    run(before)
    for i, path in enumerate(sorted((pets / "images").iterdir())):
        picture(100 + i).save(path)
    after = tiny_run(backend, pets, tmp_path / "out", grid)
    with after.journal() as journal:
        assert after.left(journal) == list(after.units)
    run(after)
    fresh = tiny_run(backend, pets, tmp_path / "fresh", grid)
    run(fresh)
    keys = [q.key for unit in fresh.units for q in unit.questions]
    with after.journal() as journal:
        lines = list(journal.read(keys))
    assert [x["probabilities"] for x in lines] == [x["probabilities"] for x in finished(fresh)]


def test_what_the_disk_does_not_give_is_asked_for_again(model: str, tmp_path: Path) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets", 12)
    backend = load_backend(model)
    prepared = tiny_run(backend, pets, tmp_path / "out")
    path = Path(prepared.units[0].paths[0])
    content = path.read_bytes()
    path.unlink()
    path.mkdir()  # any error but a missing file
    with pytest.raises(FairTTAError, match=r"cannot read '.*png': Is a directory\. What is"):
        run(prepared)
    path.rmdir()
    with pytest.raises(FairTTAError, match=r"png' was changed while the table was run"):
        run(prepared)
    path.write_bytes(content)
    run(prepared)
    assert not any(line["unreadable"] for line in finished(prepared))


def test_a_missing_picture_is_left_out_until_it_is_there(model: str, tmp_path: Path) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets", 12)
    backend = load_backend(model)
    (path, *_) = sorted((pets / "images").iterdir())
    content = path.read_bytes()
    path.unlink()
    prepared = tiny_run(backend, pets, tmp_path / "out", check_images=False)
    run(prepared)
    named = {p: why for line in finished(prepared) for p, why in line["unreadable"].items()}
    assert named == {str(path): "there is no such file"}
    path.write_bytes(content)
    again = tiny_run(backend, pets, tmp_path / "out")
    run(again)
    keys = [q.key for unit in again.units for q in unit.questions]
    with again.journal() as journal:
        assert not any(line["unreadable"] for line in journal.read(keys))


def test_other_models_and_views_are_refused(model: str, pets: Path, tmp_path: Path) -> None:
    run(tiny_run(model, pets, tmp_path))
    from fair_tta.views import AugMix

    with pytest.raises(JournalError, match=r"views.settings.n was 6 and is 8"):
        run(tiny_run(model, pets, tmp_path, views=AugMix(8)))
    run(tiny_run(model, pets, tmp_path, views=AugMix(8)), restart=True)


def test_a_table_of_costs_keeps_to_itself(model: str, pets: Path, tmp_path: Path) -> None:
    counted = Counted(model)
    grid = replace(GRID, settings=GRID.settings[:1])
    shared = tiny_run(counted, pets, tmp_path / "sweep", grid, bank=tmp_path / "bank")
    run(shared)
    alone = replace(grid, alone=True)
    with pytest.raises(JournalError, match="alone was null and is true"):
        run(tiny_run(counted, pets, tmp_path / "sweep", alone, bank=tmp_path / "bank"))
    costs = tiny_run(counted, pets, tmp_path / "costs", alone, bank=tmp_path / "bank")
    before = counted.views
    run(costs)
    assert counted.views - before == 6 * 20, "what others have encoded is not taken"
    with pytest.raises(JournalError, match="batch was 4 and is 5"):
        run(tiny_run(counted, pets, tmp_path / "costs", alone, batch=5))
    with pytest.raises(JournalError, match="threads was"):
        run(tiny_run(counted, pets, tmp_path / "costs", alone, threads=77))
    with pytest.raises(JournalError, match="workers was 1 and is 2"):
        run(tiny_run(counted, pets, tmp_path / "costs", alone, engine=Local(workers=2)))
    with pytest.raises(JournalError, match='engine was "local" and is "ray"'):
        run(tiny_run(counted, pets, tmp_path / "costs", alone, engine=OnRay()))


def test_who_did_the_work_is_written_down(model: str, pets: Path, tmp_path: Path) -> None:
    prepared = tiny_run(model, pets, tmp_path, threads=1)
    with prepared.journal() as journal:
        replace(prepared, units=prepared.units[:1]).go(Local(), journal)
        prepared.go(Local(workers=2), journal)
        publish(prepared, journal)
        ways = [line["by"] for line in journal]
    one, two = ({"engine": "local", "workers": n, "threads": 1} for n in (1, 2))
    assert [way for i, way in enumerate(ways) if way not in ways[:i]] == [one, two]
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "local, workers 1, threads of each 1; local, workers 2, threads of each 1" in page


def test_threads_are_given_back(model: str, pets: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = []
        run(
            tiny_run(model, pets, tmp_path, threads=1),
            progress=lambda *_: seen.append(torch.get_num_threads()),
        )
        assert seen[-1] == 1
        assert torch.get_num_threads() == 2

        def stop(done: int, total: int) -> None:
            if done:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(tiny_run(model, pets, tmp_path / "stopped", threads=1), progress=stop)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_disk_is_asked_for_what_is_missing_where_it_is_missing(
    model: str, pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = load_backend(model)
    grid = replace(GRID, settings=GRID.settings[:1])
    prepared = tiny_run(backend, pets, tmp_path / "out", grid, bank=tmp_path / "bank")
    with prepared.journal() as journal:
        assert prepared.disk(journal) == (20 * (2 * 6 * 16 + 128), 2 * 20 * 400)
        prepared.go(Local(), journal)
        assert prepared.disk(journal) == (0, 0)
    more = tiny_run(backend, pets, tmp_path / "out", bank=tmp_path / "bank")
    with more.journal() as journal:
        assert more.disk(journal) == (0, 3 * 2 * 20 * 400)

    class Free:
        def __init__(self, path: Path) -> None:
            self.free = 10 if path == tmp_path / "out" else 10**12

    monkeypatch.setattr("shutil.disk_usage", Free)
    with pytest.raises(FairTTAError, match=r"out' has 0.0 GB free: choose another `out`"):
        run(more)


def test_errors(model: str, pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FairTTAError, match=r"`batch` should be at least 1 \(got 0\)"):
        tiny_run(model, pets, tmp_path, batch=0)
    with pytest.raises(FairTTAError, match=r"`workers` should be at least 1 \(got 0\)"):
        Local(workers=0)
    with pytest.raises(FairTTAError, match="`device` 'nowhere' cannot be used"):
        tiny_run(model, pets, tmp_path, device="nowhere")
    prepared = tiny_run(model, pets, tmp_path)
    wrong = replace(prepared.job, facts={**prepared.job.facts, "weights": "other"})
    from fair_tta.benchmarks.work import Worker

    with pytest.raises(FairTTAError, match="loaded another model than the driver"):
        Worker(wrong)
    with prepared.journal() as journal, pytest.raises(FairTTAError, match="is not finished"):
        list(journal.read(["x"]))

    class Small:
        free = 10

    monkeypatch.setattr("shutil.disk_usage", lambda path: Small)
    with pytest.raises(FairTTAError, match=r"may be needed, but .* GB free: choose another"):
        run(prepared)


class Deadly:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (1,)


def test_a_dead_worker_is_told(model: str, pets: Path, tmp_path: Path) -> None:
    prepared = tiny_run(model, pets, tmp_path)
    missing = replace(prepared, job=replace(prepared.job, model=str(tmp_path / "none")))
    with pytest.raises(FairTTAError, match=r"a worker process cannot start: .*none"):
        run(missing, Local(workers=2))
    deadly = replace(prepared, job=replace(prepared.job, model=Deadly()))
    with pytest.raises(FairTTAError, match=r"a worker process died .* `if __name__ == \"__main__"):
        run(deadly, Local(workers=2))
