"""Values that are computed once, also by several threads."""

from __future__ import annotations

from threading import Barrier, Thread

from internals import computed_once


class Owner:
    def __init__(self, barrier: Barrier | None = None) -> None:
        self.count = 0
        self.barrier = barrier

    @property
    @computed_once
    def value(self) -> object:
        """An object."""
        self.count += 1
        if self.barrier is not None:
            self.barrier.wait(10)
        return object()


def test_it_is_computed_once_for_each_instance() -> None:
    owner = Owner()
    assert owner.value is owner.value
    assert owner.count == 1
    assert Owner().value is not owner.value
    assert Owner.value.__doc__ == "An object."


def test_threads_that_compute_it_at_the_same_time_get_one_value() -> None:
    owner = Owner(Barrier(2))
    values: list[object] = []

    def read() -> None:
        values.append(owner.value)

    threads = [Thread(target=read, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert owner.count == 2
    assert len(values) == 2
    assert values[0] is values[1]
