"""Run Python with these arguments and print the CPU seconds it took, its children included."""

from __future__ import annotations

import os
import subprocess
import sys

if __name__ == "__main__":
    code = subprocess.call([sys.executable, *sys.argv[1:]])
    times = os.times()
    print(
        f"{times.children_user + times.children_system:.0f} CPU seconds, children included"
    )
    sys.exit(code)
