"""The whole suite as other machines would run it: `make test-hard`.

    python tests/heavy/hard.py                 # every run
    python tests/heavy/hard.py avx2 busy       # some
    python tests/heavy/hard.py --seeds 1 2     # with the hypothesis seeds of an earlier call

One line per run; a failure does not stop the others. PYTEST_ADDOPTS reaches pytest as ever.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / ".hard"


@dataclass(frozen=True)
class Machine:
    """What is set in a run.

    Args:
        settings: environment variables.
        processes: of pytest (`-n`).
        seed: which of the two random hypothesis seeds.
        needs: the instructions that the processor must have.
        busy: how many other processes never rest.
        options: of pytest.
    """

    settings: dict[str, str] = field(default_factory=dict)
    processes: int = 4
    seed: int = 0
    needs: str = ""
    busy: int = 0
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        settings = [f"{name}={value}" for name, value in self.settings.items()]
        settings += [f"-n {self.processes}"]
        settings += self.options
        settings += [f"{self.busy} busy processes"] if self.busy else []
        return " ".join(settings)


def threads(number: int, **settings: str) -> dict[str, str]:
    return {**settings, "OMP_NUM_THREADS": str(number)}


# ATEN_CPU_CAPABILITY chooses the kernels of torch, MKL_CBWR those of MKL, ONEDNN_MAX_CPU_ISA those
# of oneDNN: three libraries that round differently from processor to processor.
OLD = {"MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
# They compare with rows of other processes, which know nothing of the imitation.
NOT_IMITATED = ["--ignore=tests/lab/runs/test_runner.py", "--ignore=tests/heavy/kills"]
MACHINES = {
    "default": Machine(threads(1, ATEN_CPU_CAPABILITY="default", **OLD)),
    "avx2": Machine(threads(4, ATEN_CPU_CAPABILITY="avx2"), seed=1, needs="avx2"),
    "avx512": Machine(threads(1, ATEN_CPU_CAPABILITY="avx512"), needs="avx512"),
    "alone": Machine(threads(4), processes=0, seed=1),
    "busy": Machine(threads(1), busy=3),
    "imitated": Machine(
        threads(1), seed=1, options=("-p", "other_processor", *NOT_IMITATED)
    ),
}


def main() -> int:
    """Run what was asked for; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="run", help=f"of {', '.join(MACHINES)}"
    )
    parser.add_argument(
        "--seeds", nargs=2, type=int, default=random.sample(range(10**6), 2)
    )
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in MACHINES]:
        parser.error(
            f"there is no run {unknown[0]!r}: choose from {', '.join(MACHINES)}"
        )
    LOGS.mkdir(exist_ok=True)
    print(
        f"hypothesis seeds: {options.seeds[0]} {options.seeds[1]}, logs in {LOGS.name}/",
        flush=True,
    )
    has, failed = instructions(), 0
    for name in options.names or MACHINES:
        machine = MACHINES[name]
        if machine.needs and machine.needs not in has:
            print(f"skipped  {name}: this processor has no {machine.needs}", flush=True)
        else:
            failed += not run(name, machine, options.seeds[machine.seed])
    return int(failed > 0)


def run(name: str, machine: Machine, seed: int) -> bool:
    """One run of the suite, told in one line; whether it passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(machine.processes)]
    command += [f"--hypothesis-seed={seed}", *machine.options]
    path = os.pathsep.join(
        filter(None, [str(ROOT / "tests/heavy"), os.environ.get("PYTHONPATH")])
    )
    environment = {
        **os.environ,
        **machine.settings,
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": path,
    }
    log, start = LOGS / f"{name}.log", time.monotonic()
    with log.open("w") as file, busy(machine.busy):
        code = subprocess.call(
            command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
    took = time.monotonic() - start
    last = (log.read_text(errors="replace").splitlines() or ["no output"])[-1].strip(
        "= "
    )
    word = "FAILED" if code else "passed"
    print(f"{word}   {name}: {machine}, seed {seed}: {last} ({took:.0f} s)", flush=True)
    return code == 0


def instructions() -> tuple[str, ...]:
    """What this processor has of avx2 and avx512 (torch would believe the variable, and crash)."""
    environment = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"}
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    output = subprocess.check_output(
        [sys.executable, "-c", code], env=environment, text=True
    )
    return {"AVX512": ("avx2", "avx512"), "AVX2": ("avx2",)}.get(output.strip(), ())


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Processes that never rest."""
    busy_processes = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(number)
    ]
    try:
        yield
    finally:
        for process in busy_processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
