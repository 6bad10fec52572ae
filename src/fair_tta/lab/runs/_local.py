"""Units done on this machine: in this process, or in several."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread, current_thread, main_thread
from typing import Any

import torch

from fair_tta.errors import FairTTAError, check_count
from fair_tta.lab.runs._job import Job, WorkUnit
from fair_tta.lab.runs._runner import Pool
from fair_tta.lab.runs._worker import ImageRows, Worker, start_worker


@dataclass(frozen=True)
class Local:
    """This machine.

    Args:
        workers: 1 for this process, which uses all cores; more for as many processes, which share
            the cores and load the model each.
    """

    workers: int = 1

    def __post_init__(self) -> None:
        check_count("workers", self.workers)

    @property
    def facts(self) -> dict[str, Any]:
        """How the work is done; what it costs depends on that."""
        return {"engine": "local", "workers": self.workers, "threads": self._threads}

    @property
    def _threads(self) -> int:
        """Of torch, for each process."""
        if self.workers == 1:
            return torch.get_num_threads()
        cores = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count()
        )
        return max(1, (cores or 1) // self.workers)

    @contextmanager
    def open(self, job: Job) -> Iterator[Pool]:
        """Workers for a job."""
        if self.workers > 1:
            start = _start, (job, self._threads)
            pool = ProcessPoolExecutor(self.workers, get_context("spawn"), *start)
            try:
                yield Pool(partial(_submit, pool), 3 * self.workers)
            except (
                BaseException
            ):  # nobody waits for what they are doing, which may take long
                for process in [*pool._processes.values()]:
                    process.kill()
                raise
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        else:
            worker = Worker(job)
            try:
                yield Pool(worker.begin)  # a unit is processed when it is waited for
            finally:
                worker.close()


def _submit(pool: ProcessPoolExecutor, unit: WorkUnit) -> Callable[[], list[ImageRows]]:
    with _no_ctrl_c(), _alive():
        return _alive()(pool.submit(_work, unit).result)


@contextmanager
def _alive() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise FairTTAError(
            "a worker process died (out of memory?). What is finished is on disk: the same command "
            "resumes from there; try fewer workers. In a script, put the call below "
            '`if __name__ == "__main__":`, as worker processes load the script too.'
        ) from error


@contextmanager
def _no_ctrl_c() -> Iterator[None]:
    """Processes that are started now leave Ctrl-C to us."""
    if current_thread() is not main_thread():
        yield  # only the main thread may set it
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_worker: Any  # of a worker process


def _start(job: Job, threads: int) -> None:
    global _worker
    from transformers.utils import logging

    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Windows does not hand `_no_ctrl_c` on
    logging.disable_progress_bar()  # of loading weights, in each of us
    Thread(target=_end_with_parent, daemon=True).start()
    _worker = start_worker(job, threads)


def _end_with_parent() -> None:
    """A killed driver cannot end its workers."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work(unit: WorkUnit) -> list[ImageRows]:
    rows: list[ImageRows] = _worker(unit)()
    return rows
