"""A cache that counts bytes, and that whoever made it can hold, hand on and clear."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from threading import RLock
from typing import Any, ClassVar

from torch import Tensor

from fair_tta.errors import check_count

CACHE_BYTES = 512 * 2**20
"""What the cache of a classifier may hold by default."""

_ENTRY_BYTES = 1024  # what Python needs for an entry besides its numbers


def size_of(value: object) -> int:
    """Bytes of the tensors in a value: one, a collection of them, or a dataclass."""
    if isinstance(value, Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if is_dataclass(value):
        return sum(size_of(getattr(value, field.name)) for field in fields(value))
    return sum(map(size_of, value)) if isinstance(value, tuple | list) else 0


class Cache:
    """The most recently used features of images and prompts, gradients and graphs.

    Each classifier has its own; one that several share is their common limit. It is cleared when
    the weights of a model have changed. A copy is empty, because graphs of autograd cannot be
    copied or sent. Threads may share it.

    Args:
        limit: in bytes; a larger value is not kept at all, and with 0 nothing is.

    Example:
        >>> cache = Cache(limit=2**28)
        >>> cache.bytes, len(cache)
        (0, 0)
    """

    _lock: ClassVar[Any] = (
        RLock()
    )  # held for moments, and never while something is made

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        check_count("limit", limit, least=0)
        self.limit = limit
        self.cleared = (
            0  # how often; a value that was begun before may be of older weights
        )
        self._bytes = 0
        self._kept: OrderedDict[tuple[object, Hashable], tuple[Any, int]] = (
            OrderedDict()
        )

    def __reduce__(self) -> tuple[type[Cache], tuple[int]]:
        return Cache, (self.limit,)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """How much is kept."""
        return self._bytes

    def _find(self, owner: object, key: Hashable) -> Any:
        """Return what an owner keeps under a key, or None."""
        with self._lock:
            if (owner, key) not in self._kept:
                return None
            self._kept.move_to_end((owner, key))
            return self._kept[owner, key][0]

    def _keep(
        self,
        owner: object,
        key: Hashable,
        value: object,
        size: int,
        since: int | None = None,
    ) -> None:
        """Keep a value of `size` bytes; drop the least recently used ones to make room.

        Nothing is kept that was begun when `cleared` was `since` if it is not so any more.
        """
        size += _ENTRY_BYTES
        with self._lock:
            self._bytes -= self._kept.pop((owner, key), (None, 0))[1]
            if size > self.limit or since not in (None, self.cleared):
                return
            self._kept[owner, key] = value, size
            self._bytes += size
            while self._bytes > self.limit:
                self._bytes -= self._kept.popitem(last=False)[1][1]

    def clear(self, owner: object = None) -> None:
        """Drop everything, or what one owner keeps."""
        with self._lock:
            self.cleared += 1
            for entry in [e for e in self._kept if owner is None or e[0] is owner]:
                self._bytes -= self._kept.pop(entry)[1]


if hasattr(
    os, "register_at_fork"
):  # the thread that holds the lock may not be in the child
    os.register_at_fork(after_in_child=lambda: setattr(Cache, "_lock", RLock()))
