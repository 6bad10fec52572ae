"""Tables as work: the bank is used, kills lose nothing, adding a setting costs no vision pass."""

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

import bench_tiny
import pytest
import torch
from bench_tiny import GRID, finished, tiny_run
from checks import picture
from cli_fixtures import count_rows

from fair_tta import TPT
from fair_tta._images.views import AugMix
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.lab._runs.job import load_backend
from fair_tta.lab._runs.local import Local
from fair_tta.lab.bench._grids import Setting
from fair_tta.lab.bench._run import Remaining
from fair_tta.lab.bench._tables import publish


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bench_tiny.save_pets(tmp_path_factory.mktemp("pets"))


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
    table = tiny_run(model, pets, tmp_path)
    table.run()
    with table.open() as store:
        for chunk, by_setting in table.rows(store):
            arguments: Any = table.parts[chunk.task].task.arguments()
            for setting, rows in zip(GRID.settings, by_setting, strict=True):
                clf = FairTPTClassifier(
                    table.job.backend,
                    **arguments,
                    adapter=setting.adapter,
                    views=table.job.views,
                    seed=chunk.seed,
                )
                expected = clf.predict([record.path for record, _ in rows])
                for p, (_, answer) in zip(expected, rows, strict=True):
                    # the bank rounds features to float16
                    wanted = list(p.probabilities.values())
                    assert list(answer.prediction.probabilities.values()) == pytest.approx(
                        wanted, abs=0.02
                    )


def test_a_second_run_and_a_new_setting_do_not_touch_the_vision_tower(
    model: str, pets: Path, tmp_path: Path
) -> None:
    counted = Counted(model)
    prepared = tiny_run(counted, pets, tmp_path)
    before = counted.views
    prepared.run()
    images = sum(len(unit.images) for unit in prepared.units())
    assert images == 20  # both tasks ask about the same pictures
    assert counted.views - before == 6 * images
    first = finished(prepared)

    more = replace(GRID, settings=(*GRID.settings, Setting("TPT", TPT(rho=0.5))))
    prepared = tiny_run(counted, pets, tmp_path, more)
    before = counted.views
    prepared.run()
    assert counted.views == before
    again = finished(prepared)
    assert [answers[: len(old)] for answers, old in zip(again, first, strict=True)] == first
    assert {len(answers) / len(old) for answers, old in zip(again, first, strict=True)} == {5 / 4}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="does not fork")
def test_killed_at_any_moment_it_goes_on_and_ends_the_same(
    model: str, pets: Path, tmp_path: Path
) -> None:
    whole = tiny_run(model, pets, tmp_path / "whole")
    whole.run()
    command = [sys.executable, bench_tiny.__file__, model, str(pets)]
    moments = random.Random(0)
    kills, folders = 0, 1
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        end = None
        while kills < 10 or end != 0:
            patience = moments.uniform(0.02, 0.5) if kills < 10 else 600
            print(tmp_path / f"killed{folders}", patience, file=server.stdin, flush=True)
            end = int(server.stdout.readline())
            assert end in (0, -signal.SIGKILL), "it should not fail by itself"
            kills += end != 0
            folders += end == 0 and kills < 10  # done: once more from the beginning
        server.stdin.close()
    for i in range(1, folders + 1):
        killed = tiny_run(whole.job.backend, pets, tmp_path / f"killed{i}")
        assert finished(killed) == finished(whole)
        assert count_rows(killed.out) == count_rows(whole.out) == sum(map(len, finished(whole)))


@pytest.mark.slow
def test_two_processes_give_the_rows_of_one(model: str, pets: Path, tmp_path: Path) -> None:
    one = tiny_run(model, pets, tmp_path / "one")
    two = tiny_run(model, pets, tmp_path / "two", engine=Local(workers=2))
    one.run()
    told: list[tuple[int, int]] = []
    two.run(progress=lambda done, total: told.append((done, total)))
    assert finished(one) == finished(two)
    total = sum(map(len, finished(one)))
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_unreadable_pictures_are_named_and_left_out(model: str, tmp_path: Path) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets")
    broken = sorted((pets / "images").iterdir())[:-3]
    for path in broken:
        path.write_bytes(b"not a picture")
    table = tiny_run(model, pets, tmp_path / "out")
    table.run()
    paths = {picture.source for unit in table.units() for picture in unit.images}
    assert table.unreadable.keys() == {str(p) for p in broken} & paths
    with table.open() as store:
        for chunk, by_setting in table.rows(store):
            usable = [r for r in chunk.records if r.path not in broken]
            assert all([r for r, _ in rows] == usable for rows in by_setting)


def test_other_pictures_under_the_same_names_are_answered_anew(model: str, tmp_path: Path) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets", 12)
    backend = load_backend(model)
    grid = replace(GRID, settings=GRID.settings[:1])
    before = tiny_run(backend, pets, tmp_path / "out", grid)
    before.run()
    for i, path in enumerate(sorted((pets / "images").iterdir())):
        picture(100 + i).save(path)
    after = tiny_run(backend, pets, tmp_path / "out", grid)
    with after.open() as store:
        assert after.left(store).images == sum(len(unit.images) for unit in after.units())
    after.run()
    fresh = tiny_run(backend, pets, tmp_path / "fresh", grid)
    fresh.run()
    assert finished(after) == finished(fresh)


def test_a_missing_picture_is_left_out_until_it_is_there(model: str, tmp_path: Path) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets", 12)
    backend = load_backend(model)
    (path, *_) = sorted((pets / "images").iterdir())
    content = path.read_bytes()
    for stand_in in (path.unlink, path.mkdir):  # whatever the disk says
        stand_in()
        table = tiny_run(backend, pets, tmp_path / "out", check_images=False)
        table.run()
        assert table.unreadable.keys() == {str(path)}
    path.rmdir()
    path.write_bytes(content)
    table.run()
    assert not table.unreadable
    assert sum(map(len, finished(table))) == count_rows(table.out)


def test_nothing_blocks_another_run_in_the_same_folder(
    model: str, pets: Path, tmp_path: Path
) -> None:
    first = tiny_run(model, pets, tmp_path)
    first.run()
    before = finished(first)
    other = tiny_run(model, pets, tmp_path, views=AugMix(8))
    other.run()
    assert count_rows(first.out) == 2 * sum(map(len, before))
    assert finished(first) == before
    assert finished(other) != before
    first.run(restart=True)
    assert finished(first) == before
    assert count_rows(first.out) == sum(map(len, before))


def test_a_table_of_costs_keeps_to_itself(model: str, pets: Path, tmp_path: Path) -> None:
    counted = Counted(model)
    grid = replace(GRID, settings=GRID.settings[:1])
    tiny_run(counted, pets, tmp_path / "out", grid, bank=tmp_path / "bank").run()
    alone = replace(grid, alone=True)
    costs = tiny_run(counted, pets, tmp_path / "out", alone, bank=tmp_path / "bank")
    before = counted.views
    costs.run()
    assert counted.views - before == 6 * 20, "what others have encoded is not taken"
    for circumstances in (
        {"batch_size": 5},
        {"threads": 77},
        {"engine": Local(workers=2)},
    ):
        other = tiny_run(counted, pets, tmp_path / "out", alone, **circumstances)
        with other.open() as store:
            assert other.left(store).images == 20, "costs of another kind"


@pytest.mark.slow
def test_who_did_the_work_is_written_down(model: str, pets: Path, tmp_path: Path) -> None:
    one = tiny_run(model, pets, tmp_path, threads=1)
    two = replace(one, engine=Local(workers=2))
    with one.open() as store:
        list(one._runner(store).run(one.units()[:1]))
        two.go(store)
        publish(two, store)
        ways = list(dict.fromkeys(answer.by for answer in store))
    assert ways == [f"local, workers {n}, threads of each 1" for n in (1, 2)]
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "local, workers 1, threads of each 1; local, workers 2, threads of each 1" in page


def test_threads_are_given_back(model: str, pets: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = []
        tiny_run(model, pets, tmp_path, threads=1).run(
            progress=lambda *_: seen.append(torch.get_num_threads())
        )
        assert seen[-1] == 1
        assert torch.get_num_threads() == 2

        def stop(done: int, total: int) -> None:
            if done:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tiny_run(model, pets, tmp_path / "stopped", threads=1).run(progress=stop)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_disk_is_asked_for_what_is_missing_where_it_is_missing(
    model: str, pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = load_backend(model)
    grid = replace(GRID, settings=GRID.settings[:1])
    prepared = tiny_run(backend, pets, tmp_path / "out", grid, bank=tmp_path / "bank")
    with prepared.open() as store:
        assert prepared.left(store) == Remaining(20, 20 * (2 * 6 * 16 + 128), 2 * 20 * 1000)
        prepared.go(store)
        assert prepared.left(store) == Remaining()
    more = tiny_run(backend, pets, tmp_path / "out", bank=tmp_path / "bank")
    with more.open() as store:
        assert more.left(store) == Remaining(20, 0, 3 * 2 * 20 * 1000)

    class Free:
        def __init__(self, path: Path) -> None:
            self.free = 10 if path == tmp_path / "out" else 10**12

    monkeypatch.setattr("shutil.disk_usage", Free)
    with pytest.raises(
        FairTTAError,
        match=r"up to 0.1 MB may be needed, but '.*out' has 0.0 MB free: choose another `out`",
    ):
        more.run()


def test_errors(model: str, pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FairTTAError, match="`workers` should be a whole number from 1 on"):
        Local(workers=0)
    with pytest.raises(FairTTAError, match="`device` 'nowhere' cannot be used"):
        tiny_run(model, pets, tmp_path, device="nowhere")
    prepared = tiny_run(model, pets, tmp_path)
    prepared.job.facts["weights"] = "other"
    with pytest.raises(FairTTAError, match="loaded another model than the driver"):
        prepared.job.load_here()
    with prepared.open() as store, pytest.raises(FairTTAError, match="is not finished"):
        list(prepared.rows(store))

    class Small:
        free = 10

    monkeypatch.setattr("shutil.disk_usage", lambda path: Small)
    with pytest.raises(FairTTAError, match=r"may be needed, but .* MB free: choose another"):
        prepared.run()


class Deadly:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (1,)


@pytest.mark.slow
def test_a_dead_worker_is_told(model: str, pets: Path, tmp_path: Path) -> None:
    table = tiny_run(model, pets, tmp_path, engine=Local(workers=2))
    with pytest.raises(FairTTAError, match=r"a worker process cannot start: .*none"):
        bench_tiny.with_workers_model(table, str(tmp_path / "none")).run()
    with pytest.raises(FairTTAError, match=r"a worker process died .* `if __name__ == \"__main__"):
        bench_tiny.with_workers_model(table, Deadly()).run()
