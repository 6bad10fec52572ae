"""Units done on a Ray cluster: one model per actor, as many actors as there is room for."""

from __future__ import annotations

import json
import logging
import pickle
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fair_tta._extras import require
from fair_tta.backends import Backend
from fair_tta.benchmarks.work import Job, Line, Started, Unit
from fair_tta.errors import FairTTAError

_MOST_BLOCKS = 20_000  # Ray keeps a record of each
_PATIENCE = 10.0  # seconds for a cluster to answer


@dataclass(frozen=True)
class OnRay:
    """A Ray cluster, by way of Ray Data.

    Actors come and go between 1 and `workers`, as there is work and room. An actor that dies is
    started again and its unit is done again. The bank should be on a disk that all nodes share;
    if it is not, each node keeps what it has encoded itself, and the answers are the same.

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
        for name, value in (("workers", self.workers), ("cores", self.cores)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise FairTTAError(f"`{name}` should be at least 1 (got {value!r}).")

    @property
    def facts(self) -> dict[str, Any]:
        """How the work is done; what it costs depends on that."""
        return {"engine": "ray", "workers": self.workers, "threads": self.cores}

    def run(
        self, job: Job, units: Sequence[Unit], backend: Backend
    ) -> Generator[list[Line], None, None]:
        """Do all units; they come as they are finished.

        Raises:
            FairTTAError: there is no cluster, no machine of it has so many cores, or an actor
                cannot use what it is given; the message is the one of `Local`.
        """
        ray = require("ray", "ray")
        data = require("ray.data", "ray")
        with _connected(ray, data, self.address):
            yield from self._run(ray, data, job, units)

    def _run(self, ray: Any, data: Any, job: Job, units: Sequence[Unit]) -> Iterator[list[Line]]:
        gpus = int(ray.cluster_resources().get("GPU", 0))
        _check_cores(ray.nodes(), self.cores)
        room = gpus or int(ray.cluster_resources().get("CPU", 1)) // self.cores
        job = replace(
            job,
            device=job.device or ("cuda" if gpus else None),
            threads=job.threads or self.cores,
        )
        rows = [{"unit": pickle.dumps(unit)} for unit in units]
        answered = data.from_items(rows, override_num_blocks=min(len(rows), _MOST_BLOCKS)).map(
            _Actor,
            fn_constructor_args=(job,),
            compute=data.ActorPoolStrategy(min_size=1, max_size=max(1, self.workers or room)),
            num_gpus=1 if gpus else None,
            num_cpus=self.cores,
        )
        for batch in answered.iter_batches(
            batch_size=None, prefetch_batches=0, batch_format="numpy"
        ):
            for text, error in zip(batch["lines"], batch["error"], strict=True):
                if error:
                    raise FairTTAError(error)
                lines: list[Line] = json.loads(text)
                yield lines


class _Actor:
    """A worker that takes and gives what Ray Data can carry.

    Errors of the input are given as text: raised, they would arrive inside one of Ray's.
    """

    def __init__(self, job: Job) -> None:
        self._worker = Started(job)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"lines": json.dumps(self._worker(pickle.loads(row["unit"]))), "error": ""}
        except (FairTTAError, OSError) as error:
            return {"lines": "", "error": str(error)}


@contextmanager
def _connected(ray: Any, data: Any, address: str | None) -> Iterator[None]:
    """A quiet cluster. Afterwards all is as it was, and a cluster that we started is shut down."""
    logger, context = logging.getLogger("ray.data"), data.DataContext.get_current()
    level, bars, ours = logger.level, context.enable_progress_bars, not ray.is_initialized()
    try:
        logger.setLevel(logging.WARNING)
        context.enable_progress_bars = False  # we have our own
        if ours:
            _connect(ray, address)
        yield
    finally:
        logger.setLevel(level)
        context.enable_progress_bars = bars
        if ours:
            ray.shutdown()


def _check_cores(nodes: Sequence[dict[str, Any]], cores: int) -> None:
    """Ray would wait for ever for a machine that is large enough."""
    most = max((node["Resources"].get("CPU", 0) for node in nodes if node["Alive"]), default=0)
    if cores > most:
        raise FairTTAError(
            f"`cores` should be at most {most:g}, which is what the largest machine of the cluster "
            f"has (got {cores})."
        )


def _connect(ray: Any, address: str | None) -> None:
    try:
        if address is None:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        else:
            _knock(address)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise FairTTAError(
            f"there is no Ray cluster at {address!r}: start one with `ray start --head`, or leave "
            f"the address out to use this machine alone ({error})."
        ) from error


def _knock(address: str) -> None:
    """Raise `OSError` if nobody listens there: Ray would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
