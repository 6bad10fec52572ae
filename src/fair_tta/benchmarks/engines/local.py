"""Units done on this machine: in this process, or in several."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import torch

from fair_tta.backends import Backend
from fair_tta.benchmarks.work import Job, Line, Started, Unit, Worker
from fair_tta.errors import FairTTAError


@dataclass(frozen=True)
class Local:
    """This machine.

    Args:
        workers: 1 for this process, which uses all cores; more for as many processes, which share
            the cores and load the model each.
    """

    workers: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.workers, int) or self.workers < 1:
            raise FairTTAError(f"`workers` should be at least 1 (got {self.workers!r}).")

    @property
    def facts(self) -> dict[str, Any]:
        """How the work is done; what it costs depends on that."""
        return {"engine": "local", "workers": self.workers, "threads": self._threads}

    @property
    def _threads(self) -> int:
        """Of torch, for each process."""
        if self.workers == 1:
            return torch.get_num_threads()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return max(1, (cores or 1) // self.workers)

    def run(
        self, job: Job, units: Sequence[Unit], backend: Backend
    ) -> Generator[list[Line], None, None]:
        """Do all units; they come as they are finished."""
        if self.workers == 1:
            return _here(job, units, backend)
        return self._in_processes(replace(job, threads=job.threads or self._threads), units)

    def _in_processes(self, job: Job, units: Sequence[Unit]) -> Generator[list[Line], None, None]:
        rest = iter(units)
        pool = ProcessPoolExecutor(self.workers, get_context("spawn"), _start, (job,))
        try:
            waiting: set[Future[list[Line]]] = set()
            for unit in rest:
                waiting.add(pool.submit(_work, unit))
                if len(waiting) >= 2 * self.workers:  # so that nobody waits and nothing piles up
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        except BrokenProcessPool as error:
            raise FairTTAError(
                "a worker process died (out of memory?). What is finished is on disk: the same "
                "command goes on from there; try fewer workers. In a script of your own, put the "
                'call below `if __name__ == "__main__":`, as worker processes load the script too.'
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _here(job: Job, units: Sequence[Unit], backend: Backend) -> Generator[list[Line], None, None]:
    before = torch.get_num_threads()
    torch.set_num_threads(job.threads or before)
    try:
        yield from map(Worker(job, backend), units)
    finally:
        torch.set_num_threads(before)


_worker: Started  # of a worker process


def _start(job: Job) -> None:
    global _worker
    _worker = Started(job)


def _work(unit: Unit) -> list[Line]:
    return _worker(unit)
