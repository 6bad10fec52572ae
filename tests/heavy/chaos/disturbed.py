"""The commands that are disturbed, on a drawn world of a few pictures, and what they leave."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from children import Ended

PICTURES, VIEWS, BATCH = 20, 4, 4


@dataclass(frozen=True)
class World:
    """A folder with pictures and labels.

    Attributes:
        home: all of it.
    """

    home: Path

    @property
    def pictures(self) -> Path:
        """Their folder."""
        return self.home / "pictures"


def make_world(home: Path) -> World:
    """Draw the pictures, and write what goes with them."""
    from fair_tta.miniature import BIRDS

    world = World(home)
    world.pictures.mkdir(parents=True)
    rows = [("file", "bird", "background")]
    for index, drawn in enumerate(BIRDS.draw(PICTURES, seed=7)):
        drawn.image.save(world.pictures / f"{index:02}.png")
        rows.append((f"{index:02}.png", drawn.target, drawn.sensitive["background"]))
    with (home / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return world


def _names() -> list[str]:
    from fair_tta.miniature import BIRDS

    names = ["--template", BIRDS.template, "--model", "miniature"]
    for label, phrase in BIRDS.targets.items():
        names += ["--targets", f"{label}={phrase}"]
    for label, phrase in BIRDS.sensitive["background"].items():
        names += ["--sensitive", f"{label}={phrase}"]
    return names


_SIZES = ["--views", str(VIEWS), "--batch-size", str(BATCH)]


def _predict(world: World, out: Path) -> list[str]:
    return [
        "predict",
        str(world.pictures),
        "--csv",
        "--out",
        str(out),
        *_names(),
        *_SIZES,
    ]


def _audit(world: World, out: Path) -> list[str]:
    return [
        *(
            "audit",
            "--images",
            str(world.pictures),
            "--labels",
            str(world.home / "labels.csv"),
        ),
        *(
            "--target-column",
            "bird",
            "--sensitive-column",
            "background",
            "--out",
            str(out),
        ),
        *("--adapters", "zero-shot,fair-tpt", *_names(), *_SIZES),
    ]


def _fit(world: World, out: Path) -> list[str]:
    return [
        *(
            "fit",
            "--adapter",
            "logit-balance",
            "--images",
            str(world.pictures),
            *_names(),
        ),
        *("--batch-size", str(BATCH), "--out", str(out / "fitted.safetensors")),
    ]


def rows_of(out: Path) -> dict[tuple[object, ...], Any]:
    """Finished rows by their keys, without what depends on clock and disk."""
    from internals import ROWS_FILE, Store

    rows = {}
    if (out / ROWS_FILE).exists():
        with Store(out / ROWS_FILE) as store:
            for row in store:
                rows[tuple(row.key)] = replace(row, seconds=0.0, file="")
    return rows


def _predict_results(out: Path, ended: Ended) -> dict[str, Any]:
    return {"rows": rows_of(out), "stdout": ended.output}


def _audit_results(out: Path, ended: Ended) -> dict[str, Any]:
    from fair_tta.auditing import Audit

    files = [(out / name).read_text() for name in ("predictions.csv", "problems.csv")]
    assert (out / "report.html").read_text().endswith("</html>\n")
    return {
        "rows": rows_of(out),
        "audit": Audit.load(out / "audit.json"),
        "files": files,
    }


def _fit_results(out: Path, ended: Ended) -> dict[str, Any]:
    return {"file": (out / "fitted.safetensors").read_bytes()}


@dataclass(frozen=True)
class Disturbed:
    """A command, and what it leaves when it is done.

    Attributes:
        name: of the command.
        arguments: for a world and a folder for results.
        results: what has to be the same whatever has happened.
    """

    name: str
    arguments: Callable[[World, Path], list[str]]
    results: Callable[[Path, Ended], dict[str, Any]]

    def line(self, world: World, out: Path) -> list[str]:
        """The whole command line; the folder is made."""
        out.mkdir(parents=True, exist_ok=True)
        return self.arguments(world, out)


COMMANDS = (
    Disturbed("predict", _predict, _predict_results),
    Disturbed("audit", _audit, _audit_results),
    Disturbed("fit", _fit, _fit_results),
)
