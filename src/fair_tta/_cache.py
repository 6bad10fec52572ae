"""A byte-limited LRU cache that several classifiers can share."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from threading import RLock
from typing import Any, ClassVar

from torch import Tensor

from fair_tta.errors import check_count

# Features of 64 views of some four thousand images of a ViT-B/32, in float32.
CACHE_BYTES = 512 * 2**20
# About what Python needs for an entry besides its numbers.
_ENTRY_BYTES = 1024


def size_of(value: object) -> int:
    """Return the bytes of the tensors in a value: a tensor, a collection, or a dataclass."""
    if isinstance(value, Tensor):
        return value.nbytes
    parts: Iterable[object] = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif is_dataclass(value):
        parts = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, tuple | list):
        parts = value
    return sum(size_of(part) for part in parts)


class Cache:
    """The most recently used features of images and prompts, gradients and graphs.

    Each classifier has its own, unless several are given the same one, whose limit they share then.
    It is cleared when the weights of a model have changed. Threads may share it. A copy is empty,
    because autograd graphs can neither be copied nor sent to another process.

    Args:
        limit: in bytes. A larger value is not kept at all, and with 0 nothing is.

    Example:
        >>> cache = Cache(limit=2**28)
        >>> cache.bytes, len(cache)
        (0, 0)
    """

    # Held for moments only, never while a value is computed: one lock serves all caches.
    _lock: ClassVar[Any] = RLock()

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        check_count("limit", limit, least=0)
        self.limit = limit
        # A value whose computation began before the last clearing may be of older weights.
        self.times_cleared = 0
        self._bytes = 0
        # Least recently used first: {(owner, key): (value, its bytes)}.
        self._entries: OrderedDict[tuple[object, Hashable], tuple[Any, int]]
        self._entries = OrderedDict()

    def __reduce__(self) -> tuple[type[Cache], tuple[int]]:
        return Cache, (self.limit,)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Bytes that are kept."""
        return self._bytes

    def _find(self, owner: object, key: Hashable) -> Any:
        """Return what an owner keeps under a key, or None."""
        with self._lock:
            if (owner, key) not in self._entries:
                return None
            self._entries.move_to_end((owner, key))
            value, _ = self._entries[owner, key]
            return value

    def _keep(
        self,
        owner: object,
        key: Hashable,
        value: object,
        size: int,
        since: int | None = None,
    ) -> None:
        """Keep a value of `size` bytes; drop the least recently used ones to make room.

        `since` is `times_cleared` when the computation of the value began: nothing is kept if the
        cache has been cleared meanwhile.
        """
        size += _ENTRY_BYTES
        with self._lock:
            self._drop((owner, key))
            is_outdated = since not in (None, self.times_cleared)
            if size > self.limit or is_outdated:
                return
            self._entries[owner, key] = value, size
            self._bytes += size
            while self._bytes > self.limit:
                self._drop(next(iter(self._entries)))

    def clear(self, owner: object = None) -> None:
        """Drop everything, or what one owner keeps."""
        with self._lock:
            self.times_cleared += 1
            for entry in list(self._entries):
                if owner is None or entry[0] is owner:
                    self._drop(entry)

    def _drop(self, entry: tuple[object, Hashable]) -> None:
        _, size = self._entries.pop(entry, (None, 0))
        self._bytes -= size


# In a forked child the thread that holds the lock may not exist. Windows does not fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: setattr(Cache, "_lock", RLock()))
