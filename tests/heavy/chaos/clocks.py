"""A clock of the wall that jumps; those that only count go on, as on a real machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, tzinfo
from random import Random
from typing import Any

_YEAR = 365 * 86400.0


def jumping_clock(random: Random, years: float) -> Callable[[], None]:
    """Installs, in a child, a clock that is up to so many years off, more or less at each look."""

    def install() -> None:
        real = time.time

        def shifted_time() -> float:
            return max(0.0, real() + _YEAR * years * random.random())

        class Jumping(datetime):
            @classmethod
            def shifted_time(cls, tz: tzinfo | None = None) -> Any:
                return datetime.fromtimestamp(shifted_time(), tz)

        from internals import identity_module as provenance

        time.time = shifted_time
        time.time_ns = lambda: int(1e9 * shifted_time())
        provenance.datetime = Jumping  # type: ignore[attr-defined]

    return install
