"""Units done on a Ray cluster: one model per actor, as many as there is work and room for."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from threading import Lock, local
from typing import Any

from fair_tta.errors import FairTTAError, check_count, require
from fair_tta.lab._runs.job import Job, WorkUnit
from fair_tta.lab._runs.runner import Pool
from fair_tta.lab._runs.worker import ImageRows, start_worker

_PATIENCE = 10.0  # seconds for a cluster to answer
_TRIES = 3  # so many deaths over the same unit are no accident


@dataclass(frozen=True)
class OnRay:
    """A Ray cluster.

    Actors are started as there is work, up to `workers`; those for which the cluster has no room
    yet begin when it has. An actor that dies is started again and its unit is done again. Images
    should be on a disk that all nodes see under the same paths, and so should the bank; if it is
    not, each node stores what it has encoded itself, and the rows are the same.

    Args:
        address: of the cluster; ``"auto"`` for the one that this machine belongs to; None for the
            one that this process is connected to already, or else a new one on this machine.
        workers: the most actors; None for one per GPU, or per so many cores if there are none.
        cores: for each actor, which makes views with them while its GPU works.
    """

    address: str | None = None
    workers: int | None = None
    cores: int = 1

    def __post_init__(self) -> None:
        check_count("workers", 1 if self.workers is None else self.workers)
        check_count("cores", self.cores)

    @property
    def facts(self) -> dict[str, Any]:
        """How the work is done; what it costs depends on that."""
        return {"engine": "ray", "workers": self.workers, "threads": self.cores}

    @contextmanager
    def open(self, job: Job) -> Iterator[Pool]:
        """Actors for a job; the cluster is not asked before there is work.

        Raises:
            FairTTAError: there is no cluster, no machine of it has so many cores, or an actor
                cannot use what it is given; the message is the one of `Local`.
        """
        require("ray", "ray")
        with closing(_Actors(self, job)) as actors:
            yield actors.pool


class _Actors:
    """Two threads for each actor, which wait for it: so units go to whoever is free, and an actor
    decodes the images of one unit while it processes another."""

    def __init__(self, engine: OnRay, job: Job) -> None:
        self.pool = Pool(self._submit, ahead=1)
        self._engine, self._job = engine, job
        self._ray: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self._actors: list[Any] = []
        self._numbers = count()  # of threads
        self._own = local()
        self._lock, self._is_over, self._is_ours = Lock(), False, False

    def close(self) -> None:
        with self._lock:
            self._is_over = True
            for actor in self._actors:
                self._ray.kill(actor)  # also those that nobody had room for
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
        if self._is_ours:
            self._ray.shutdown()

    def _submit(self, unit: WorkUnit) -> Callable[[], list[ImageRows]]:
        threads = self._threads or self._connect()
        return threads.submit(self._work, unit).result

    def _connect(self) -> ThreadPoolExecutor:
        ray = self._ray = require("ray", "ray")
        if not ray.is_initialized():
            self._is_ours = True
            _connect(ray, self._engine.address)
        cores, resources = self._engine.cores, ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        _check_cores(ray.nodes(), cores)
        most = max(1, self._engine.workers or gpus or int(resources.get("CPU", 1)) // cores)
        self._most, self.pool.ahead = most, 3 * most
        self._job_there = ray.put(self._job)
        self._device = "cuda" if gpus else None
        self._kind = ray.remote(
            num_cpus=cores,
            num_gpus=1 if gpus else 0,
            max_restarts=-1,
            max_task_retries=_TRIES - 1,
            max_concurrency=2,
        )(_Actor)
        self._threads = ThreadPoolExecutor(2 * most, "fair-tta-ray", self._start)
        return self._threads

    def _start(self) -> None:
        """A thread and its actor, of which later threads take their second turn; a thread takes no
        unit before there is room for the actor.

        Nothing is raised here: a pool whose threads fail to start may wait for ever when it ends.
        """
        self._own.failure = None
        with self._lock:
            if self._is_over:
                return
            number = next(self._numbers)
            if number < self._most:
                made = self._kind.remote(self._job_there, self._engine.cores, self._device)
                self._actors.append(made)
            self._own.actor = self._actors[number % self._most]
        try:
            self._ray.get(self._own.actor.ready.remote())
        except Exception as error:  # killed at the end, or on the way
            self._own.failure = error

    def _work(self, unit: WorkUnit) -> list[ImageRows]:
        if self._own.failure is not None:
            raise FairTTAError(f"an actor cannot start: {self._own.failure}")
        try:
            rows, error = self._ray.get(self._own.actor.work.remote(unit))
        except self._ray.exceptions.RayActorError as died:
            raise FairTTAError(
                f"an actor died {_TRIES} times over the same images (out of memory?). What is "
                "finished is on disk: the same command resumes from there; try fewer workers, or "
                f"fewer images at once. {died}"
            ) from died
        if error:
            raise FairTTAError(error)
        done: list[ImageRows] = rows
        return done


class _Actor:
    """A worker. Errors of the input are returned as text: raised, they would be wrapped by Ray."""

    def __init__(self, job: Job, threads: int, device: str | None) -> None:
        self._begin = start_worker(job, threads, device)
        self._turn = Lock()

    def ready(self) -> None:
        """Return when there is room."""

    def work(self, unit: WorkUnit) -> tuple[list[ImageRows], str]:
        """As `Worker`; images are decoded before it is the unit's turn."""
        try:
            finish = self._begin(unit)
            with self._turn:
                return finish(), ""
        except (FairTTAError, OSError) as error:
            return [], str(error)


def _connect(ray: Any, address: str | None) -> None:
    """Start a cluster here, or connect to the one at this address."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address is None:
            ray.init(include_dashboard=False, **quiet)
        else:
            _check_reachable(address)
            ray.init(address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise FairTTAError(
            f"there is no Ray cluster at {address!r}: start one with `ray start --head`, or leave "
            f"the address out to use this machine alone ({error})."
        ) from error


def _check_cores(nodes: Sequence[dict[str, Any]], cores: int) -> None:
    """Ray would wait for ever for a machine that is large enough."""
    most = max((node["Resources"].get("CPU", 0) for node in nodes if node["Alive"]), default=0)
    if cores > most:
        raise FairTTAError(
            f"`cores` should be at most {most:g}, which is what the largest machine of the cluster "
            f"has (got {cores})."
        )


def _check_reachable(address: str) -> None:
    """Raise `OSError` if nobody listens there: Ray would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
