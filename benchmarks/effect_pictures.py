"""What `effect.py` asks: drawn pictures, their features on disk, and what is true of them.

Three kinds of pictures that never meet: *test* pictures to report, *validation* pictures to choose
by, and *reference* pictures to fit on, which are drawn from the validation split with seeds of
their own. All seeds were fixed before anything was run on them.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from fair_tta import FairTPTClassifier, ZeroShot
from fair_tta.miniature._world import TASKS, DrawnImage, MiniatureTask, WorldSplit
from fair_tta.models import resolve

SEEDS = 10
TEST, VALIDATION, REFERENCE = 2000, 0, 3000
"""First seeds. The demo reports 0 to 4 of the test split, the paper's claims 1000 to 1009."""

Mix = Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class Question:
    """A task and which of its attributes are named."""

    name: str
    task: MiniatureTask
    attributes: tuple[str, ...]

    @property
    def sensitive(self) -> dict[str, dict[str, str]]:
        return {name: self.task.sensitive[name] for name in self.attributes}

    def classifier(self, sensitive: Mapping[str, Mapping[str, str]] | None = None):
        named = self.sensitive if sensitive is None else sensitive
        return FairTPTClassifier(
            _backend(), self.task.targets, named, self.task.template, adapter=ZeroShot()
        )


QUESTIONS = {
    name: Question(name, TASKS[task], attributes)
    for name, task, attributes in (
        ("birds", "birds", ("background",)),
        ("badges", "badges", ("colour",)),
        ("scenes-time", "scenes", ("time",)),
        ("scenes-season", "scenes", ("season",)),
        ("scenes-both", "scenes", ("time", "season")),
    )
}
ALONE = ("birds", "badges", "scenes-time", "scenes-season")  # one attribute at a time


@dataclass(frozen=True, eq=False)
class Pictures:
    """Features and labels of some pictures: ``features [n, views, dim]``."""

    features: Tensor
    truth: list[str]
    sensitive: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.truth)

    def save(self, path: Path) -> None:
        labels = json.dumps({"truth": self.truth, "sensitive": self.sensitive})
        save_file({"features": self.features}, path, {"labels": labels})

    @classmethod
    def load(cls, path: Path) -> Pictures:
        with safe_open(path, "pt") as file:
            return cls(
                file.get_tensor("features"), **json.loads(file.metadata()["labels"])
            )

    def at(self, indices: Sequence[int]) -> Pictures:
        columns = {
            name: [column[i] for i in indices]
            for name, column in self.sensitive.items()
        }
        return Pictures(
            self.features[indices], [self.truth[i] for i in indices], columns
        )

    def first(self, n: int) -> Pictures:
        return self.at(list(range(n)))

    def mixed(self, mix: Mix, n: int) -> Pictures:
        """The first so many pictures of each group that the groups have the shares of `mix`."""
        groups = defaultdict(list)
        for index, group in enumerate(
            zip(self.truth, *self.sensitive.values(), strict=True)
        ):
            groups[group].append(index)
        total_weight = sum(mix.values())
        chosen = [
            groups[g][: round(n * share / total_weight)] for g, share in mix.items()
        ]
        return self.at(sorted(index for indices in chosen for index in indices))


def together(parts: Sequence[Pictures]) -> Pictures:
    """The pictures of several seeds."""
    sensitive = {
        name: [value for part in parts for value in part.sensitive[name]]
        for name in parts[0].sensitive
    }
    features = torch.cat([part.features for part in parts])
    return Pictures(features, [y for part in parts for y in part.truth], sensitive)


@dataclass(frozen=True)
class Drawer:
    """Draws pictures, encodes them once and keeps the features in a folder."""

    folder: Path
    drawn: dict[str, Pictures] = field(default_factory=dict)

    def pictures(
        self,
        task: MiniatureTask,
        split: WorldSplit,
        seed: int,
        n: int,
        *,
        views: bool = False,
    ) -> Pictures:
        name = f"{task.name}-{split}-{seed}-{n}-{'views' if views else 'alone'}-{_weights()}"
        if name in self.drawn:
            return self.drawn[name]
        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            _encode(task, task.draw(n, seed, split=split), views).save(part)
            part.replace(path)
        pictures = Pictures.load(path)
        if not views:  # those are large
            self.drawn[name] = pictures
        return pictures


def _encode(task: MiniatureTask, drawn: list[DrawnImage], views: bool) -> Pictures:
    clf = FairTPTClassifier(_backend(), task.targets)
    parts = []
    for at in range(0, len(drawn), 24):
        parts.append(
            clf.encode([p.image for p in drawn[at : at + 24]], with_views=views)
        )
        clf._cache.clear()
    sensitive = {a: [p.sensitive[a] for p in drawn] for a in task.sensitive}
    return Pictures(torch.cat(parts), [p.target for p in drawn], sensitive)


_kept: dict[str, object] = {}


def _backend():
    if "backend" not in _kept:
        _kept["backend"] = resolve("miniature")
    return _kept["backend"]


def _weights() -> str:
    if "weights" not in _kept:
        state = _backend().model.state_dict()
        weight_bytes = b"".join(np.asarray(x.float()).tobytes() for x in state.values())
        _kept["weights"] = hashlib.sha256(weight_bytes).hexdigest()[:12]
    return _kept["weights"]
