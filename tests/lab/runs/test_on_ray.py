"""Ray: the same rows as on one machine, and a worker that dies costs its unit only."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import bench_tiny
import pytest
from bench_tiny import finished, tiny_run
from cli_fixtures import call, count_rows

from fair_tta.errors import FairTTAError
from fair_tta.lab._runs import ray as on_ray
from fair_tta.lab._runs.job import WorkUnit, load_backend
from fair_tta.lab._runs.local import Local
from fair_tta.lab._runs.ray import OnRay
from fair_tta.lab._runs.store import StoredRow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # of Ray and of what it imports


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


def assert_same(one: list[list[StoredRow]], other: list[list[StoredRow]]) -> None:
    assert [len(part) for part in one] == [len(part) for part in other]
    for a, b in zip(chain(*one), chain(*other), strict=True):
        assert (a.key, a.image) == (b.key, b.image)
        assert a.prediction.label == b.prediction.label
        assert a.prediction.probabilities == pytest.approx(b.prediction.probabilities, abs=1e-4)
        assert a.prediction.entropy == pytest.approx(b.prediction.entropy, abs=1e-4)


def test_it_goes_on_where_the_local_engine_stopped_with_the_same_rows(
    cluster: Any, model: str, pets: Path, tmp_path: Path
) -> None:
    here = tiny_run(model, pets, tmp_path / "here")
    there = tiny_run(model, pets, tmp_path / "there", engine=OnRay(workers=2))
    here.run()
    with there.open() as store:
        list(replace(there, engine=Local())._runner(store).run(there.units()[:1]))
    told: list[int] = []
    there.run(progress=lambda done, total: told.append(done))
    assert_same(finished(here), finished(there))
    assert told[-1] == sum(map(len, finished(here)))
    assert len(told) > 2, "units should come back one by one"
    there.run()  # nothing is left to do
    assert_same(finished(here), finished(there))


def test_a_worker_that_dies_costs_its_unit_only(
    cluster: Any, model: str, pets: Path, tmp_path: Path
) -> None:
    cluster.cloudpickle.register_pickle_by_value(bench_tiny)
    backend = load_backend(model)
    here = tiny_run(backend, pets, tmp_path / "here", batch_size=2)
    here.run()
    mortal = bench_tiny.Mortal(backend, tmp_path)
    there = tiny_run(mortal, pets, tmp_path / "there", batch_size=2, engine=OnRay(workers=2))
    there.run()
    assert (tmp_path / "dead").exists()
    assert len(list(tmp_path.glob("worker-*"))) >= 2
    assert_same(finished(here), finished(there))


def test_what_a_worker_cannot_use_is_told_as_by_the_local_engine(
    cluster: Any, model: str, tmp_path: Path
) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets", 12)
    table = tiny_run(model, pets, tmp_path / "out")
    path = Path(str(table.units()[0].images[0].source))
    path.unlink()
    path.mkdir()  # whatever the disk says
    told = []
    for engine in (Local(), OnRay(workers=1)):
        other = replace(table, engine=engine)
        other.run()
        assert "it is a directory" in other.unreadable[str(path)]
        told.append(dict(other.unreadable))
    assert told[0] == told[1]
    errors = []
    for engine in (Local(workers=2), OnRay(workers=1)):
        missing = bench_tiny.with_workers_model(table, str(tmp_path / "none"))
        with pytest.raises(FairTTAError, match=r"a worker process cannot start: .*none") as caught:
            replace(missing, engine=engine).run()
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


class Deadly:
    """A model that ends the process that looks at a picture."""

    def __init__(self, backend: Any, deaths: Path) -> None:
        self.backend, self.home, self.deaths = backend, os.getpid(), deaths

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "backend":
            raise AttributeError(name)
        return getattr(self.backend, name)

    def encode_pixels(self, pixels: Any) -> Any:
        if os.getpid() != self.home:
            with self.deaths.open("a") as file:
                print("died", file=file)
            os._exit(1)
        return self.backend.encode_pixels(pixels)


def test_pictures_that_always_kill_an_actor_end_the_run(
    cluster: Any, model: str, pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "_TRIES", 2)  # an actor takes seconds to start
    cluster.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    deadly = Deadly(load_backend(model), tmp_path / "deaths")
    with pytest.raises(FairTTAError, match="an actor died 2 times over the same images"):
        tiny_run(deadly, pets, tmp_path / "out", engine=OnRay(workers=1)).run()
    assert (tmp_path / "deaths").read_text().count("died") == 2


def test_a_command_without_code(cluster: Any, model: str, pets: Path, tmp_path: Path) -> None:
    arguments = ["--model", model, "--targets", "cat,dog", "--sensitive", "house,land"]
    arguments += ["--views", "4", "--csv", "--batch-size", "4"]
    here = call("predict", str(pets / "images"), *arguments).stdout
    ray = ["--engine", "ray", "--workers", "2", "--out", str(tmp_path / "out")]
    there = call("predict", str(pets / "images"), *arguments, *ray).stdout
    for a, b in zip(here.splitlines(), there.splitlines(), strict=True):
        assert a.split(",")[:3] == b.split(",")[:3]
    assert count_rows(tmp_path / "out") == 24
    again = call("predict", str(pets / "images"), *arguments, *ray).stdout
    assert again == there


def test_errors() -> None:
    with pytest.raises(FairTTAError, match="`workers` should be a whole number from 1 on"):
        OnRay(workers=0)
    with pytest.raises(FairTTAError, match="`cores` should be a whole number from 1 on"):
        OnRay(cores=0)


def test_more_cores_than_a_machine_has_are_told(
    cluster: Any, model: str, pets: Path, tmp_path: Path
) -> None:
    with pytest.raises(FairTTAError, match=r"`cores` should be at most 2, .* \(got 3\)"):
        tiny_run(model, pets, tmp_path, engine=OnRay(cores=3)).run()
    assert cluster.is_initialized(), "it was there before"


@pytest.mark.parametrize("there", [False, True])
def test_nothing_is_left_behind(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ray(Narrow):
        connected = there

        def is_initialized(self) -> bool:
            return self.connected

        def init(self, **_: object) -> None:
            self.connected = True

        def shutdown(self) -> None:
            self.connected = False

    ray, job = Ray(), SimpleNamespace()
    monkeypatch.setattr(on_ray, "require", lambda *_: ray)
    with pytest.raises(KeyboardInterrupt), OnRay(workers=1).open(job) as pool:  # type: ignore[arg-type]
        assert pool.submit(WorkUnit((), 0, ()))() == []
        assert ray.connected
        raise KeyboardInterrupt
    assert ray.connected == there


class Call:
    def __init__(self, name: str, actor: Any) -> None:
        self.name, self.actor = name, actor

    def remote(self, *arguments: Any) -> Any:
        return self.name, self.actor, arguments


class Narrow:
    """A cluster with room for one actor: others wait until they are killed."""

    class exceptions:
        RayActorError = ConnectionError

    def __init__(self) -> None:
        self.actors: list[Any] = []
        self.waits = threading.Event()

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, int]:
        return {"CPU": 2}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 2}}]

    def put(self, job: Any) -> Any:
        return job

    def remote(self, **_: Any) -> Any:
        ray = self

        class Actor:
            def __init__(self) -> None:
                ray.actors.append(self)
                self.is_first = len(ray.actors) == 1
                self.killed = threading.Event()
                self.ready, self.work = Call("ready", self), Call("work", self)

        return lambda kind: SimpleNamespace(remote=lambda *_: Actor())

    def get(self, call: Any) -> Any:
        name, actor, _ = call
        if not actor.is_first:
            self.waits.set()
            actor.killed.wait()
            time.sleep(0.1)
            raise ConnectionError("killed")
        time.sleep(0.2 if name == "work" else 0.0)
        return None if name == "ready" else ([], "")

    def kill(self, actor: Any) -> None:
        actor.killed.set()


def test_an_actor_without_room_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor at the end, when it is killed while the other is still at work."""
    for wanted in (0, 3):
        ray = Narrow()
        monkeypatch.setattr(on_ray, "require", lambda *_, ray=ray: ray)
        with OnRay(workers=2).open(SimpleNamespace()) as pool:  # type: ignore[arg-type]
            units = [pool.submit(WorkUnit((), 0, ())) for _ in range(6)]
            assert ray.waits.wait(60)
            assert [wait() for wait in units[:wanted]] == [[]] * wanted
        assert all(actor.killed.is_set() for actor in ray.actors)


def test_an_actor_decodes_a_unit_while_it_processes_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []
    both_began, go_on = threading.Barrier(3), threading.Event()

    def begin(unit: str) -> Any:
        events.append("decodes")
        both_began.wait(60)

        def finish() -> list[str]:
            events.append("begins")
            go_on.wait(60)
            events.append("ends")
            return [unit]

        return finish

    monkeypatch.setattr(on_ray, "start_worker", lambda *_: begin)
    actor = on_ray._Actor(SimpleNamespace(), 1, None)  # type: ignore[arg-type]
    with ThreadPoolExecutor(2) as threads:
        found = threads.map(actor.work, ["a", "b"])
        both_began.wait(60)
        go_on.set()
        assert list(found) == [(["a"], ""), (["b"], "")]
    assert events == ["decodes", "decodes", "begins", "ends", "begins", "ends"]


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
    message = f"there is no Ray cluster at '{address}': start one"
    with pytest.raises(FairTTAError, match=message):
        on_ray._connect(Ray(), address)
    assert Ray.asked == [address]
