"""Does it help? Every method on the drawn world, with intervals, placebos and what it costs.

    python benchmarks/effect.py                          all parts; about half an hour on two cores
    python benchmarks/effect.py --part methods cost      some parts
    python benchmarks/effect.py --tasks birds --adapters zero-shot logit-balance "orthcali:lam=0"
    python benchmarks/effect.py --page                   tables, pages and their pictures, no runs

Parts: methods (every method on every question), verdicts (the typical gap, and how many images show
that it narrows), choice (strengths, on validation pictures),
placebos (a wrong attribute, random flips, a stranger's correction), reference (its size), skew (its
groups), tradeoff (a rare class), cost (next to plain zero-shot).

Figures go to docs/effect.json, step by step: what is there is not computed again, so the command
goes on where it stopped, and computes what is new when there is a new method. Features of pictures
are kept in `.effect/`, so that all settings cost one pass of the vision tower.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import torch
import transformers
from effect_cost import cost
from effect_page import write_pages
from effect_parts import (
    Run,
    choice,
    methods,
    placebos,
    reference,
    skew,
    tradeoff,
    verdicts,
)
from effect_pictures import QUESTIONS, REFERENCE, SEEDS, TEST, VALIDATION, Drawer
from rich.console import Console
from rich.progress import track

from fair_tta.errors import FairTTAError
from fair_tta.methods._registry import ADAPTERS, parse_adapters

ROOT = Path(__file__).parents[1]
PARTS = {
    "methods": methods,
    "verdicts": verdicts,
    "choice": choice,
    "placebos": placebos,
    "reference": reference,
    "skew": skew,
    "tradeoff": tradeoff,
    "cost": cost,
}
FURTHER = ("orthcali:lam=0", "fair-tpt+orthcali:lam=0")
"""Settings beside the defaults of every method that needs no setting."""


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--tasks", nargs="+", choices=QUESTIONS, default=[*QUESTIONS])
    method_names = [
        name
        for name, method_type in ADAPTERS.items()
        if not method_type().needs.setting
    ]
    parser.add_argument("--adapters", nargs="+", default=[*method_names, *FURTHER])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--pictures", type=int, default=720, help="of each seed")
    parser.add_argument(
        "--with-views", type=int, default=144, help="of them, with all views"
    )
    parser.add_argument(
        "--reference", type=int, default=1000, help="pictures to fit on"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "effect.json")
    parser.add_argument(
        "--bank", type=Path, default=ROOT / ".effect", help="of features"
    )
    parser.add_argument(
        "--again", action="store_true", help="compute what is there already too"
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="only write benchmarks/results and the pages",
    )
    return parser.parse_args()


def main() -> None:
    options = parsed()
    if not options.page:
        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(1)
        _run(options)
    if options.out.parent == ROOT / "docs":
        write_pages(json.loads(options.out.read_text()), options.out.parent)


def _run(options: argparse.Namespace) -> None:
    adapters = parse_adapters(options.adapters)
    run = Run(
        Drawer(options.bank),
        {name: QUESTIONS[name] for name in options.tasks},
        dict(sorted(adapters.items(), key=_effort)),  # cheap ones first
        options.seeds,
        options.pictures,
        options.with_views,
        options.reference,
    )
    sizes = {
        key: getattr(options, key)
        for key in ("seeds", "pictures", "with_views", "reference")
    }
    results: dict[str, Any] = {"about": sizes, "parts": {}}
    if options.out.exists() and not options.again:
        results = json.loads(options.out.read_text())
        if {key: results["about"][key] for key in sizes} != sizes:
            raise SystemExit(
                f"{options.out} has other numbers of pictures: use --again."
            )
    results["about"] |= {
        "first_seeds": {"test": TEST, "validation": VALIDATION, "reference": REFERENCE},
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    console = Console(stderr=True)
    for part in options.part:
        done = results["parts"].setdefault(part, {})
        steps = [
            (name, step)
            for name, step in PARTS[part](run)
            if options.again or not _is_done(done.get(name), run)
        ]
        for name, step in track(steps, part, console=console, disable=not steps):
            try:
                done[name] = _with_others(done.get(name), step())
            except FairTTAError as error:
                done[name] = {"problem": str(error)}
                console.print(f"{part}: {name}: {error}")
            _save(results, options.out)


def _with_others(before: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Costs are relative to a plain call that takes turns, so those of other methods stay."""
    if before is None or "times_plain" not in new:
        return new
    return {**before, "times_plain": {**before["times_plain"], **new["times_plain"]}}


def _is_done(entry: dict[str, Any] | None, run: Run) -> bool:
    if entry is None or "problem" in entry:
        return False
    if "times_plain" not in entry:
        return True
    return set(run.adapters) <= {*entry["times_plain"], *entry.get("left_out", ())}


def _effort(item: tuple[str, Any]) -> tuple[bool, bool]:
    return item[1].needs.pixels, item[1].needs.views


def _save(results: dict[str, Any], out: Path) -> None:
    """As a whole or not at all; one line for each step."""
    lines = ['{"about": ' + json.dumps(results["about"]) + ',\n"parts": {']
    parts = []
    for part, steps in results["parts"].items():
        inside = ",\n".join(
            f" {json.dumps(name)}: {json.dumps(step_result)}"
            for name, step_result in steps.items()
        )
        parts.append(f"{json.dumps(part)}: {{\n{inside}\n}}")
    partial_file = out.with_suffix(".part")
    partial_file.write_text("\n".join([*lines, ",\n".join(parts), "}}"]) + "\n")
    partial_file.replace(out)


if __name__ == "__main__":
    main()
