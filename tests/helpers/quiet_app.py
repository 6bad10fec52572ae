"""Run the command line, or a script, and tell of every connection to another machine.

python tests/quiet_app.py app --no-open
python tests/quiet_app.py examples/space/app.py
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

LOCAL = ("127.0.0.1", "0.0.0.0", "::1", "localhost", "", None)
OUTSIDE = "OUTSIDE"


def watch(event: str, args: tuple[Any, ...]) -> None:
    address = (
        args[1]
        if event == "socket.connect"
        else args
        if event == "socket.getaddrinfo"
        else ()
    )
    if isinstance(address, tuple) and address and address[0] not in LOCAL:
        print(f"{OUTSIDE} {event} {address!r}", flush=True)


if __name__ == "__main__":
    sys.addaudithook(watch)
    script = sys.argv[1]
    if script.endswith(".py"):
        sys.argv = [script]
        runpy.run_path(script, run_name="__main__")
    else:
        sys.argv[0] = "fair-tta"
        runpy.run_module("fair_tta", run_name="__main__")
