"""Values that are made when they are first asked for, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Owner = TypeVar("Owner")
Value = TypeVar("Value")


def made_once(make: Callable[[Owner], Value]) -> Callable[[Owner], Value]:
    """For use under `property`: the value is kept in the instance.

    `functools.cached_property` of Python 3.10 and 3.11 holds a lock, the same for all instances,
    while it makes a value. If that takes the lock of a model, and another thread holds the model
    and asks for such a value, both wait for ever. Here two threads may both make the value, and
    get the one that was done first.
    """
    name = make.__name__

    @wraps(make)
    def get(instance: Owner) -> Value:
        kept = vars(instance)
        if name not in kept:
            kept.setdefault(name, make(instance))
        value: Value = kept[name]
        return value

    return get
