"""Units computed on this machine: in this process, or in several."""

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

import torch

from fair_tta.errors import FairTTAError, check_count
from fair_tta.lab.runs._job import Job, WorkUnit
from fair_tta.lab.runs._runner import Pool, WaitForRows
from fair_tta.lab.runs._worker import ImageRows, Worker, start_worker

# Units of each worker that are begun before the first unit is waited for.
_UNITS_AHEAD = 3


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
    def description(self) -> str:
        """Name, workers and threads, which the cost of a row depends on."""
        return f"local, workers {self.workers}, threads of each {self._threads}"

    @property
    def _threads(self) -> int:
        """Threads of torch in each process."""
        if self.workers == 1:
            return torch.get_num_threads()
        if hasattr(os, "sched_getaffinity"):  # the cores that this process may use
            cores = len(os.sched_getaffinity(0))
        else:
            cores = os.cpu_count() or 1
        return max(1, cores // self.workers)

    @contextmanager
    def open(self, job: Job) -> Iterator[Pool]:
        """Start workers for a job."""
        if self.workers == 1:
            worker = Worker(job)
            try:
                yield Pool(worker.begin)  # a unit is processed when it is waited for
            finally:
                worker.close()
            return
        # Forked processes would inherit locks that threads of torch may hold.
        pool = ProcessPoolExecutor(
            self.workers,
            get_context("spawn"),
            initializer=_start,
            initargs=(job, self._threads),
        )
        try:
            yield Pool(partial(_submit, pool), _UNITS_AHEAD * self.workers)
        except BaseException:
            # Units in progress may take long, and their rows are not needed any more.
            for process in list(pool._processes.values()):
                process.kill()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, unit: WorkUnit) -> WaitForRows:
    # Processes start here, the first time. They may die then, or while their rows are waited for.
    with _ignore_ctrl_c(), _explain_dead_worker():
        return _explain_dead_worker()(pool.submit(_work, unit).result)


@contextmanager
def _explain_dead_worker() -> Iterator[None]:
    """Raise an error that advises what to do when a worker process died."""
    try:
        yield
    except BrokenProcessPool as error:
        raise FairTTAError(
            "a worker process died (out of memory?). What is finished is on disk: the same command "
            "resumes from there; try fewer workers. In a script, put the call below "
            '`if __name__ == "__main__":`, as worker processes load the script too.'
        ) from error


@contextmanager
def _ignore_ctrl_c() -> Iterator[None]:
    """Let processes that start now ignore Ctrl-C, which the driver handles."""
    if current_thread() is not main_thread():
        yield  # only the main thread may set a signal handler
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_begin: Callable[[WorkUnit], WaitForRows]
"""The begin method of the `Worker`, in a worker process."""


def _start(job: Job, threads: int) -> None:
    """Prepare a worker process."""
    global _begin
    from transformers.utils import logging

    # On Windows processes do not inherit `_ignore_ctrl_c`.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable_progress_bar()  # each worker would print one while loading weights
    Thread(target=_end_with_parent, daemon=True).start()
    _begin = start_worker(job, threads)


def _end_with_parent() -> None:
    """End this process when the driver is killed, which cannot end it then."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work(unit: WorkUnit) -> list[ImageRows]:
    wait_for_rows = _begin(unit)
    return wait_for_rows()
