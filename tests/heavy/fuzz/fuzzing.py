"""Odd inputs by the thousand: each is answered, refused with a FairTTAError, or has a reason.

    python tests/heavy/fuzz/fuzzing.py --inputs 12000          # `make fuzz`
    python tests/heavy/fuzz/fuzzing.py --door images --only 77  # one again, with its traceback

No input may take longer than `SECONDS` of CPU time, or more memory than `MEMORY` above what the
process had.
"""

from __future__ import annotations

import argparse
import faulthandler
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random

# A script of its own, for which no pytest sets the path.
sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))

# isort: split
from doors import DOORS

from fair_tta import FairTPTClassifier, miniature
from fair_tta.errors import FairTTAError

SECONDS = 30.0
WAITING = 600.0  # seconds of the clock, in which a busy machine gives an input those of the CPU
MEMORY = 2**31
REFUSED, FAILED = "FairTTAError", "FAILED"


def limit_memory() -> None:
    """From now on more than `MEMORY` is a MemoryError (Linux only)."""
    if sys.platform != "linux":
        return
    import resource

    status = Path("/proc/self/status").read_text()
    used = next(
        int(line.split()[1])
        for line in status.splitlines()
        if line.startswith("VmData")
    )
    resource.setrlimit(
        resource.RLIMIT_DATA, (1024 * used + MEMORY, resource.RLIM_INFINITY)
    )


def outcome(door: str, number: int, folder: Path) -> str:
    """What comes of one input; raises if that is anything but an answer or a refusal.

    An input that does not end ends the process, with a traceback of where it was.
    """
    faulthandler.dump_traceback_later(WAITING, exit=True)
    if hasattr(signal, "SIGPROF"):  # Windows has no such clock
        faulthandler.register(signal.SIGPROF, chain=True)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
    home = Path(tempfile.mkdtemp(dir=folder))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged rows, small groups, odd names
            return DOORS[door](Random(f"{door} {number}"), home)
    except FairTTAError as error:
        assert str(error).strip(), "an error without a message"
        return REFUSED
    finally:
        faulthandler.cancel_dump_traceback_later()
        if hasattr(signal, "SIGPROF"):
            signal.setitimer(signal.ITIMER_PROF, 0)
        shutil.rmtree(home)


def main() -> int:
    """Run many inputs of all doors in turn, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=12_000, help="in all")
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first input"
    )
    parser.add_argument("--door", choices=DOORS, help="this one only")
    parser.add_argument("--only", type=int, help="this input only, and its traceback")
    chosen = parser.parse_args()
    # imports of torch and transformers are on no input's clock: on a busy machine they take long
    FairTPTClassifier("miniature", ["cat", "dog"]).predict(
        miniature.BIRDS.draw(1)[0].image
    )
    doors = [chosen.door] if chosen.door else list(DOORS)
    counts: dict[str, Counter[str]] = {door: Counter() for door in doors}
    failures: dict[str, str] = {}
    slowest = (0.0, "")
    first, inputs_per_door = chosen.first, max(1, chosen.inputs // len(doors))
    numbers = (
        range(first, first + inputs_per_door) if chosen.only is None else [chosen.only]
    )
    limited = False
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            for door in doors:
                if sys.stderr.isatty():
                    print(
                        f"{door} {number}".ljust(40),
                        end="\r",
                        file=sys.stderr,
                        flush=True,
                    )
                start = time.process_time()
                try:
                    result_name = outcome(door, number, Path(folder))
                except Exception as error:
                    result_name = FAILED
                    frame = traceback.extract_tb(error.__traceback__)[-1]
                    location = f"{Path(frame.filename).name}:{frame.lineno}"
                    failure = f"{door}: {type(error).__name__} at {location}"
                    failures.setdefault(failure, f"--only {number}: {str(error)[:150]}")
                    if chosen.only is not None:
                        traceback.print_exc()
                counts[door][result_name] += 1
                slowest = max(
                    slowest, (time.process_time() - start, f"{door} {number}")
                )
            if not limited:  # the first round has made models and samples
                limit_memory()
                limited = True
    for door, counted in counts.items():
        print(
            f"{door:22}",
            ", ".join(f"{n} x {failure}" for failure, n in sorted(counted.items())),
        )
    total = sum(sum(counted.values()) for counted in counts.values())
    print(f"{total} inputs; slowest {slowest[0]:.1f} s of CPU ({slowest[1]})")
    for failure, example in failures.items():
        print(
            f"FAILED {failure} ({example})".encode("ascii", "backslashreplace").decode()
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
