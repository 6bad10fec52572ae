"""What a run has found: its rows, joined with the true labels, and as a parquet file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fair_tta._extras import require
from fair_tta.benchmarks.data import Part
from fair_tta.benchmarks.grids import Setting
from fair_tta.benchmarks.runner import Run
from fair_tta.benchmarks.work import Chunk, Line, chunks
from fair_tta.errors import FairTTAError
from fair_tta.journal import Journal

Columns = dict[str, list[Any]]


@dataclass
class Answers:
    """The answers of one setting on the images of one task and seed, in columns.

    Attributes:
        images: the names of the images within their dataset.
        truth: the true targets.
        sensitive: ``{attribute: true values}``
        labels: the answers.
        confidence: the probability of the answer.
        entropy: normalised entropy of the targets.
        sensitive_entropy: ``{attribute: normalised entropy}``
        relative_step: how far the context moved, None where nothing was tuned.
        warnings: what the method had to say about each image.
        seconds: what answering from features took, all images together.
        vision_seconds: what making views and encoding them took, whenever it was done.
        unreadable: ``{path: reason}`` of images that were left out.
        by: how the work was done (`Engine.facts`), each way once: a run may be stopped and go on
            with another engine.
    """

    images: list[str] = field(default_factory=list)
    truth: list[str] = field(default_factory=list)
    sensitive: dict[str, list[str]] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    sensitive_entropy: dict[str, list[float]] = field(default_factory=dict)
    relative_step: list[float | None] = field(default_factory=list)
    warnings: list[tuple[str, ...]] = field(default_factory=list)
    seconds: float = 0.0
    vision_seconds: float = 0.0
    unreadable: dict[str, str] = field(default_factory=dict)
    by: list[dict[str, Any]] = field(default_factory=list)

    @property
    def indifference(self) -> list[float]:
        """The normalised entropy of the sensitive attributes, their mean if there are several."""
        columns = list(self.sensitive_entropy.values())
        return np.mean(columns, axis=0).tolist() if columns else []

    def add(self, chunk: Chunk, line: Line, targets: list[str]) -> None:
        """The rows of one more line."""
        self.seconds += line["seconds"]
        self.vision_seconds += line["vision_seconds"]
        self.unreadable |= line["unreadable"]
        if "by" in line and line["by"] not in self.by:  # older journals do not say
            self.by.append(line["by"])
        for place, record in _covered(chunk, line):
            self.images.append(record.key)
            self.truth.append(record.target)
            for attribute, value in record.sensitive.items():
                self.sensitive.setdefault(attribute, []).append(value)
            label = sys.intern(line["label"][place])
            self.labels.append(label)
            self.confidence.append(line["probabilities"][place][targets.index(label)])
            self.entropy.append(line["entropy"][place])
            for attribute, values in line["sensitive_entropy"].items():
                self.sensitive_entropy.setdefault(attribute, []).append(values[place])
            self.relative_step.append(line["relative_step"][place])
            self.warnings.append(tuple(map(sys.intern, line["warnings"][place])))


def read_answers(run: Run, journal: Journal, task: int) -> dict[int, dict[int, Answers]]:
    """``{setting: {seed: Answers}}`` of one task.

    Raises:
        FairTTAError: no picture of a seed can be read.
    """
    found: dict[int, dict[int, Answers]] = {i: {} for i in range(len(run.grid.settings))}
    targets = list(run.parts[task].task.targets)
    for chunk in chunks(run.grid, run.parts, run.batch):
        if chunk.task == task:
            for i, line in enumerate(journal.read(chunk.keys)):
                found[i].setdefault(chunk.seed, Answers()).add(chunk, line, targets)
    for seed, answers in found[0].items():
        if not answers.images:
            path, why = next(iter(answers.unreadable.items()))
            raise FairTTAError(
                f"{run.parts[task].task}: no picture of seed {seed} can be read ({path}: {why})."
            )
    return found


def write_parquet(run: Run, journal: Journal, path: str | os.PathLike[str]) -> None:
    """A row for each image, setting, seed and task; a row group for each chunk of images.

    The order of rows is that of the plan and there is nothing in it that a second run changes, so
    the same run always gives the same rows.
    """
    pyarrow = require("pyarrow", "bench")
    parquet = require("pyarrow.parquet", "bench")
    text, number, numbers = pyarrow.string(), pyarrow.float64(), pyarrow.list_(pyarrow.float64())
    kinds = {
        "dataset": text, "target": text, "sensitive": text, "seed": pyarrow.int64(),
        "setting": text, "adapter": text, "image": text, "truth": text, "group": text,
        "answer": text, "probabilities": numbers, "sensitive_probabilities": numbers,
        "entropy": number, "sensitive_entropy": number, "learning_rate": number,
        "relative_step": number, "warnings": text,
    }  # fmt: skip
    schema = pyarrow.schema(list(kinds.items()))
    part = Path(path).with_suffix(".part")
    with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        for chunk in chunks(run.grid, run.parts, run.batch):
            columns: Columns = {name: [] for name in kinds}
            pairs = zip(run.grid.settings, journal.read(chunk.keys), strict=True)
            for setting, line in pairs:
                for row in _rows(run.parts[chunk.task], chunk, setting, line):
                    for name, value in row.items():
                        columns[name].append(value)
            writer.write_table(pyarrow.table(columns, schema=schema))
    os.replace(part, path)


def _rows(part: Part, chunk: Chunk, setting: Setting, line: Line) -> Iterator[dict[str, Any]]:
    adapter = repr(setting.adapter)
    for place, record in _covered(chunk, line):
        entropies = [values[place] for values in line["sensitive_entropy"].values()]
        yield {
            "dataset": part.task.dataset,
            "target": part.task.target,
            "sensitive": " x ".join(part.task.sensitive),
            "seed": chunk.seed,
            "setting": setting.name,
            "adapter": adapter,
            "image": record.key,
            "truth": record.target,
            "group": " x ".join(record.sensitive.values()),
            "answer": line["label"][place],
            "probabilities": line["probabilities"][place],
            "sensitive_probabilities": [p for v in line["sensitive"].values() for p in v[place]],
            "entropy": line["entropy"][place],
            "sensitive_entropy": sum(entropies) / len(entropies) if entropies else None,
            "learning_rate": line["learning_rate"][place],
            "relative_step": line["relative_step"][place],
            "warnings": "; ".join(line["warnings"][place]),
        }


def _covered(chunk: Chunk, line: Line) -> Iterator[tuple[int, Any]]:
    """Places in the line's columns, and the records that they belong to."""
    return ((place, chunk.records[image]) for place, image in enumerate(line["images"]))
