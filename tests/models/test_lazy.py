"""Values that are made once, by several threads too."""

from __future__ import annotations

from threading import Barrier, Thread

from internals import computed_once


class Made:
    def __init__(self, barrier: Barrier | None = None) -> None:
        self.count = 0
        self.barrier = barrier

    @property
    @computed_once
    def value(self) -> object:
        """What it is."""
        self.count += 1
        if self.barrier is not None:
            self.barrier.wait(10)
        return object()


def test_it_is_made_once_for_each_instance() -> None:
    one, other = Made(), Made()
    assert one.value is one.value
    assert one.count == 1
    assert other.value is not one.value
    assert Made.value.__doc__ == "What it is."


def test_threads_that_make_it_at_once_get_the_same() -> None:
    made, got = Made(Barrier(2)), list[object]()
    threads = [
        Thread(target=lambda: got.append(made.value), daemon=True) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert made.count == 2
    assert len(got) == 2
    assert got[0] is got[1]
