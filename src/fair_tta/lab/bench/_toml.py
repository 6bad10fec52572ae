"""A table of one's own, as a TOML file.

    pairs = ["CelebA hair color x gender"]     # of the paper's datasets, and ...

    [[folder]]                                 # ... or folders of one's own
    name = "pets"
    images = "images"                          # relative to this file
    labels = "labels.csv"
    target_column = "animal"
    template = "a photo of a {target} {sensitive}."
    targets = { cat = "cat", dog = "dog" }     # or ["cat", "dog"]
    sensitive.place = { indoors = "in a house", outdoors = "outdoors" }

    [[setting]]
    name = "strong"                            # its adapter, if left out
    adapter = "fair-tpt:lam=5000"              # as for `fair-tta audit`

    [[setting]]
    adapter = "my_file.py:SoftVote"            # relative to this file; it is run

    [[setting]]
    adapter = "logit-balance:reference=b.safetensors"  # of `fair-tta fit`, for these names

Zero-shot is added in front: it is what the others are compared with.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fair_tta._io import open_file
from fair_tta._prompts.templates import parse_names
from fair_tta.errors import FairTTAError, require
from fair_tta.lab.bench._grids import Grid, Setting
from fair_tta.lab.bench._samples import Reader
from fair_tta.lab.data import PAPER_TASKS, BenchmarkTask, Dataset, read_folder
from fair_tta.methods import ZeroShot
from fair_tta.methods._checks import is_ready
from fair_tta.methods._registry import parse_adapter, short_name

_MOST_BYTES = 2**20
_MOST_PARTS = 100  # of a key such as a.b.c: reading it takes the square of them in memory
_FOLDER = ("name", "images", "labels", "target_column", "template", "targets", "sensitive")


@dataclass(frozen=True)
class OwnTable:
    """What a file says.

    Attributes:
        grid: settings and tasks.
        folders: how to read the tasks that are folders.
    """

    grid: Grid
    folders: Mapping[str, Mapping[str, Any]]

    @property
    def needs_data(self) -> bool:
        """Whether some of the paper's datasets are in it."""
        return len(self.folders) < len(self.grid.tasks)

    def reader(self, others: Reader | None) -> Reader:
        """Reads folders, and leaves other tasks to another reader."""

        def read(task: BenchmarkTask) -> Dataset:
            if str(task) not in self.folders:
                if others is None:
                    raise FairTTAError(f"`data` should be given: {task} is one of the paper's.")
                return others(task)
            entry = self.folders[str(task)]
            return read_folder(
                entry["images"],
                entry["labels"],
                target_column=entry["target_column"],
                sensitive_columns=list(task.sensitive),
                path_column=entry.get("path_column"),
                task=task,
            )

        return read


def read_table(path: str | os.PathLike[str]) -> OwnTable:
    """Read a table of one's own."""
    toml = require("tomllib" if sys.version_info >= (3, 11) else "tomli", "bench")
    file = Path(path)
    try:
        with open_file(file) as source:
            text = source.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        words = text.decode("utf-8-sig")
        if any(_parts(piece) > _MOST_PARTS for piece in re.split(r"[=\n]", words)):
            raise ValueError(f"a key in it has more than {_MOST_PARTS} parts")
        content = toml.loads(words)
    except (OSError, ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise FairTTAError(f"cannot read the table {str(file)!r}: {why}.") from error
    _check_keys("a table", content, ("setting",), ("pairs", "folder"))
    folders = {}
    pairs = content.get("pairs", [])
    if not isinstance(pairs, list):
        raise FairTTAError(f"`pairs` should be a list of pairs (got {pairs!r}).")
    tasks = [_pair(name) for name in pairs]
    for entry in _entries(content, "folder"):
        task = _folder(entry)
        tasks.append(task)
        places = {key: str(file.parent / entry[key]) for key in ("images", "labels")}
        folders[str(task)] = {**entry, **places}
    settings = [_setting(entry, file.parent) for entry in _entries(content, "setting")]
    for shown in (*map(str, tasks), *(setting.name for setting in settings)):
        if not shown.isprintable():  # in a terminal it may be a command
            raise FairTTAError(f"names in a table should be printable text (got {shown!r}).")
    first = Setting("ZeroShot", ZeroShot())
    others = [s for s in settings if s.adapter != first.adapter]
    return OwnTable(Grid(file.stem, "", (first, *others), tuple(tasks)), folders)


def _parts(piece: str) -> int:
    return sum(bool(part.strip()) for part in piece.split("."))


def _setting(entry: Mapping[str, Any], folder: Path) -> Setting:
    _check_keys("a setting", entry, ("adapter",), ("name",))
    _check_texts("a setting", entry, ("adapter", "name"))
    text = entry["adapter"]
    adapter = parse_adapter(text, folder)
    if not is_ready(adapter):
        raise FairTTAError(
            f"the adapter {text!r} has to be fitted: write "
            f"'{text.partition(':')[0]}:reference=FILE' with a file of `fair-tta fit`."
        )
    return Setting(entry.get("name", short_name(text)), adapter)


def _pair(name: Any) -> BenchmarkTask:
    for task in PAPER_TASKS:
        if str(task) == name:
            return task
    known = "; ".join(map(str, PAPER_TASKS))
    raise FairTTAError(f"`pairs` should be of the paper's pairs: {known} (got {name!r}).")


def _folder(entry: Mapping[str, Any]) -> BenchmarkTask:
    _check_keys("a folder", entry, _FOLDER, ("path_column",))
    texts = ("name", "images", "labels", "target_column", "template", "path_column")
    _check_texts("a folder", entry, texts)
    sensitive = entry["sensitive"]
    if not isinstance(sensitive, Mapping) or not sensitive:
        raise FairTTAError(
            "`sensitive` of a folder should have names for each attribute, such as "
            f'`sensitive.place = ["indoors", "outdoors"]` (got {sensitive!r}).'
        )
    return BenchmarkTask(
        entry["name"],
        entry["target_column"],
        parse_names("targets", entry["targets"]),
        {a: parse_names(f"sensitive.{a}", names) for a, names in sensitive.items()},
        entry["template"],
    )


def _entries(content: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = content.get(name, [])
    if not isinstance(found, list) or not all(isinstance(entry, Mapping) for entry in found):
        raise FairTTAError(f"`{name}` should be written [[{name}]] (got {found!r}).")
    return found


def _check_texts(what: str, entry: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if not isinstance(entry.get(name, ""), str):
            raise FairTTAError(f"`{name}` of {what} should be a string (got {entry[name]!r}).")


def _check_keys(
    what: str, entry: Mapping[str, Any], needed: Sequence[str], allowed: Sequence[str]
) -> None:
    missing = [key for key in needed if key not in entry]
    unknown = [key for key in entry if key not in (*needed, *allowed)]
    if missing or unknown:
        raise FairTTAError(
            f"{what} should have {', '.join(needed)} and may have {', '.join(allowed)} "
            f"(missing: {missing}, unknown: {unknown})."
        )
