"""Ray: the same rows as on one machine, and a worker that dies costs its unit only."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

import bench_tiny
from bench_tiny import tiny_run
from fair_tta.benchmarks.engines import on_ray
from fair_tta.benchmarks.engines.local import Local
from fair_tta.benchmarks.engines.on_ray import OnRay
from fair_tta.benchmarks.runner import Run, run
from fair_tta.benchmarks.work import Line, load_backend
from fair_tta.errors import FairTTAError

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray and of what it imports


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bench_tiny.save_model(tmp_path_factory.mktemp("model") / "clip")


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bench_tiny.save_pets(tmp_path_factory.mktemp("pets"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two cores and a small object store on this machine."""
    ray = import_module("ray")
    ray.init(
        num_cpus=2,
        object_store_memory=100 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield ray
    ray.shutdown()


def finished(prepared: Run) -> list[Line]:
    keys = [q.key for unit in prepared.units for q in unit.questions]
    with prepared.journal() as journal:
        assert len(journal) == len(keys)
        return list(journal.read(keys))


def assert_same(one: list[Line], other: list[Line]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert a["key"] == b["key"]
        assert a["images"] == b["images"]
        assert a["label"] == b["label"]
        for p, q in zip(a["probabilities"], b["probabilities"], strict=True):
            assert p == pytest.approx(q, abs=1e-4)
        assert a["entropy"] == pytest.approx(b["entropy"], abs=1e-4)


def test_it_goes_on_where_the_local_engine_stopped_with_the_same_rows(
    cluster: Any, model: str, pets: Path, tmp_path: Path
) -> None:
    here, there = (tiny_run(model, pets, tmp_path / name) for name in ("here", "there"))
    run(here)
    with there.journal() as journal:
        replace(there, units=there.units[:1]).go(Local(), journal)
    told: list[int] = []
    run(there, OnRay(workers=2), progress=lambda done, total: told.append(done))
    assert_same(finished(here), finished(there))
    assert told[-1] == there.answers
    assert len(told) > 2, "units should come back one by one"
    run(there, OnRay(workers=2))  # nothing is left to do
    assert_same(finished(here), finished(there))


def test_a_worker_that_dies_costs_its_unit_only(
    cluster: Any, model: str, pets: Path, tmp_path: Path
) -> None:
    cluster.cloudpickle.register_pickle_by_value(bench_tiny)
    backend = load_backend(model)
    here = tiny_run(backend, pets, tmp_path / "here", batch=2)
    run(here)
    mortal = bench_tiny.Mortal(backend, tmp_path)
    there = tiny_run(mortal, pets, tmp_path / "there", batch=2)
    run(there, OnRay(workers=2))
    assert (tmp_path / "dead").exists()
    assert len(list(tmp_path.glob("worker-*"))) >= 2
    assert_same(finished(here), finished(there))


def test_what_a_worker_cannot_use_is_told_as_by_the_local_engine(
    cluster: Any, model: str, tmp_path: Path
) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets", 12)
    prepared = tiny_run(model, pets, tmp_path / "out")
    path = Path(prepared.units[0].paths[0])
    path.unlink()
    path.mkdir()  # any error but a missing file
    told = []
    for engine in (Local(), OnRay(workers=1)):
        with pytest.raises(FairTTAError, match=r"cannot read '.*png': Is a directory") as caught:
            run(prepared, engine)
        told.append((type(caught.value), str(caught.value)))
    assert told[0] == told[1]
    missing = replace(prepared, job=replace(prepared.job, model=str(tmp_path / "none")))
    told = []
    for engine in (Local(workers=2), OnRay(workers=1)):
        with pytest.raises(FairTTAError, match=r"a worker process cannot start: .*none") as caught:
            run(missing, engine)
        told.append((type(caught.value), str(caught.value)))
    assert told[0] == told[1]


def test_the_page_on_scaling(cluster: Any, model: str, pets: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "scaling.md").read_text("utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    pictures = sorted((pets / "images").iterdir())[:3]
    (tmp_path / "paths.csv").write_text("\n".join(["path", *map(str, pictures)]) + "\n")
    for old, new in (
        ("openai/clip-vit-base-patch32", model),
        ("paths.csv", str(tmp_path / "paths.csv")),
        ("answers", str(tmp_path / "answers")),
    ):
        assert f'"{old}"' in code
        code = code.replace(f'"{old}"', repr(new))
    exec(code, {"__name__": "__main__"})
    table = import_module("pyarrow.parquet").read_table(tmp_path / "answers")
    assert sorted(table["path"].to_pylist()) == [str(path) for path in pictures]
    assert set(table["label"].to_pylist()) <= {"water bird", "land bird"}


def test_errors() -> None:
    with pytest.raises(FairTTAError, match=r"`workers` should be at least 1 \(got 0\)"):
        OnRay(workers=0)
    with pytest.raises(FairTTAError, match=r"`cores` should be at least 1 \(got 0\)"):
        OnRay(cores=0)


def test_more_cores_than_a_machine_has_are_told(
    cluster: Any, model: str, pets: Path, tmp_path: Path
) -> None:
    prepared = tiny_run(model, pets, tmp_path)
    with pytest.raises(FairTTAError, match=r"`cores` should be at most 2, .* \(got 3\)"):
        run(prepared, OnRay(cores=3))
    assert cluster.is_initialized(), "it was there before"


@pytest.mark.parametrize("there", [False, True])
def test_nothing_is_left_behind(there: bool) -> None:
    class Ray:
        connected = there

        def is_initialized(self) -> bool:
            return self.connected

        def init(self, **_: object) -> None:
            self.connected = True

        def shutdown(self) -> None:
            self.connected = False

    class Data:
        class DataContext:
            enable_progress_bars = True

            @classmethod
            def get_current(cls) -> Any:
                return cls

    ray, logger = Ray(), logging.getLogger("ray.data")
    level = logger.level
    with pytest.raises(KeyboardInterrupt), on_ray._connected(ray, Data, None):
        assert ray.connected
        assert not Data.DataContext.enable_progress_bars
        assert logger.level == logging.WARNING
        raise KeyboardInterrupt
    assert (ray.connected, Data.DataContext.enable_progress_bars) == (there, True)
    assert logger.level == level


def test_no_cluster_is_told() -> None:
    class Ray:
        def init(self, *_: object, **__: object) -> None:
            raise ConnectionError("nobody there")

    with pytest.raises(FairTTAError, match=r"there is no Ray cluster at 'auto': start one"):
        on_ray._connect(Ray(), "auto")


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://localhost:{}"])
def test_where_nobody_listens_ray_is_not_asked(address: str) -> None:
    """It would try again and again, for minutes."""

    class Ray:
        asked: ClassVar[list[object]] = []

        def init(self, *address: object, **_: object) -> None:
            self.asked.extend(address)

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = address.format(server.getsockname()[1])
        on_ray._connect(Ray(), address)
    assert Ray.asked == [address]
    with pytest.raises(FairTTAError, match=f"there is no Ray cluster at '{address}': start one"):
        on_ray._connect(Ray(), address)
    assert Ray.asked == [address]
