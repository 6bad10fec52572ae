"""The task of a classifier for the weights that its model has now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fair_tta.backends.guard import borrowed
from fair_tta.backends.weights import fingerprint
from fair_tta.text.task import Task


class CurrentTask:
    """A task, exchanged for a new one when the weights have changed.

    Classifiers that are made of one another hold the same one.

    Args:
        task: the first.

    Attributes:
        task: the latest.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        with borrowed(task.backend) as model:
            self._weights = fingerprint(model)

    @contextmanager
    def borrow(self) -> Iterator[Task]:
        """The model is ours for a while; nothing of the task or its cache is older than it."""
        with borrowed(self.task.backend) as model:
            weights = fingerprint(model)
            if weights != self._weights:
                self.renew()
                self._weights = weights
            yield self.task

    def renew(self) -> None:
        """Exchange the task, and let go of all that is kept.

        A thread that is at work would keep what it makes afterwards, so it is waited for.
        """
        with borrowed(self.task.backend):
            self.task.cache.clear()
            self.task = self.task.anew()
