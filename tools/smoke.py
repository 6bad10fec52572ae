"""What an installation must do by itself: import, predict, examine, audit, demo.

Run it with the Python of the installation, in any folder. It draws its pictures, asks the embedded
model, and uses no network.

    python tools/smoke.py [--without pandas --without pyarrow ...]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

PICTURES = 12


def check_absent(names: list[str]) -> None:
    """Exit unless none of these packages is there."""
    installed = [name for name in names if importlib.util.find_spec(name)]
    if installed:
        sys.exit(f"error: {', '.join(installed)} should not be installed here")


def import_all() -> int:
    """Import every module of the package; how many there are."""
    import fair_tta

    modules = [
        info.name for info in pkgutil.walk_packages(fair_tta.__path__, "fair_tta.")
    ]
    for name in modules:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    print(
        f"{fair_tta.__file__} {fair_tta.__version__}: {len(modules)} modules imported"
    )
    return len(modules)


def draw(folder: Path) -> list[str]:
    """Pictures in folders named by their labels; the options of the command line that fit them."""
    from fair_tta.miniature._world import TASKS

    task = TASKS["birds"]
    ((attribute, values),) = task.sensitive.items()
    for i, drawn in enumerate(task.draw(PICTURES)):
        group_folder = folder / drawn.target / drawn.sensitive[attribute]
        group_folder.mkdir(parents=True, exist_ok=True)
        drawn.image.save(group_folder / f"{i}.png")
    options = ["--template", task.template, "--views", "8"]
    for option, names in (("--targets", task.targets), ("--sensitive", values)):
        for label, phrase in names.items():
            options += [option, f"{label}={phrase}"]
    return options


def run(*arguments: str) -> str:
    """The command in a process of its own; what it said, or the end if it failed."""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "fair_tta", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8"},
    )
    if done.returncode:
        sys.exit(
            f"error: fair-tta {arguments[0]} ended with {done.returncode}\n{done.stderr}"
        )
    print(f"fair-tta {arguments[0]}: {time.monotonic() - start:.0f} s")
    return done.stdout


def main(without: list[str]) -> None:
    """Do it all."""
    check_absent(without)
    import_all()
    with TemporaryDirectory() as folder:
        home = Path(folder)
        options = draw(home / "pictures")
        pictures = str(home / "pictures")
        predicted = run("predict", pictures, *options, "--json")
        rows = [json.loads(line) for line in predicted.splitlines()]
        if len(rows) != PICTURES or any(row["error"] for row in rows):
            sys.exit(f"error: predict answered {len(rows)} of {PICTURES} pictures")
        predictions, audited, demo = (
            str(home / name) for name in ("seen", "audit", "demo.html")
        )
        run(
            "examine",
            pictures,
            *options,
            "--adapters",
            "fair-tpt",
            "--out",
            predictions,
        )
        columns = "--target-column bird --sensitive-column place".split()
        run("audit", "--images", pictures, *columns, *options, "--out", audited)
        run("demo", *"--seeds 1 --pictures 8 --one-view 8 --out".split(), demo)
        for written in (
            "seen/examine.json",
            "audit/audit.json",
            "audit/report.html",
            "demo.html",
        ):
            if not (home / written).stat().st_size:
                sys.exit(f"error: {written} is empty")
    print("smoke: all there")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="append", default=[], metavar="PACKAGE")
    main(parser.parse_args().without)
