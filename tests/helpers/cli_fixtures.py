"""A tiny model on disk, a folder of pictures with labels, and a way to call the command."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import families
import numpy as np
import pytest
import transformers
from checks import picture
from internals import ROWS_FILE, Store, StoredRow
from typer.testing import CliRunner

from fair_tta import FairTPTClassifier
from fair_tta.auditing import Audit
from fair_tta.lab.cli import app

NAMES = [
    *("--targets", "cat=of a cat", "--targets", "dog=of a dog, black"),
    *("--sensitive", "water=on water", "--sensitive", "land=on land"),
    *("--template", "a photo {target} {sensitive}."),
]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny random CLIP."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    model, images, tokenizer = families.seeded(families.clip)
    model.save_pretrained(folder)
    transformers.CLIPProcessor(images, tokenizer).save_pretrained(folder)
    return str(folder)


def write_labels(path: Path, rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("file", "animal", "place"), *rows])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eleven pictures with a group of one, odd names, and everything that can be wrong."""
    (tmp_path / "pics" / "sub").mkdir(parents=True)
    rows = []
    for i in range(11):
        name = f"sub/[red] ünï, {i}.png" if i % 3 == 0 else f"{i}.png"
        picture(i).save(tmp_path / "pics" / name)
        background = "water" if i in (1, 3, 5, 7, 8) else "land"
        rows.append((name, "cat" if i < 8 else "dog", background))
    assert [row[1:] for row in rows].count(("dog", "water")) == 1
    (tmp_path / "pics" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n nonsense")
    (tmp_path / "pics" / "empty.png").touch()
    wrong = [
        ("broken.png", "cat", "land"), ("empty.png", "cat", "land"), ("missing.png", "dog", "land"),
        rows[4], ("2.png", "dog", "land"), ("5.png", "", "land"),
    ]  # fmt: skip
    write_labels(tmp_path / "labels.csv", [*rows[:6], *wrong, *rows[6:]])
    return tmp_path


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    (tmp_path / "pics").mkdir()
    rows = []
    for i in range(24):
        picture(i).save(tmp_path / "pics" / f"{i}.png")
        rows.append(
            (f"{i}.png", "cat" if i % 3 else "dog", "water" if i % 2 else "land")
        )
    write_labels(tmp_path / "labels.csv", rows)
    return tmp_path


USABLE = [0, 1, 3, 4, 5, 6, 7, 8, 9, 10]
"""Which of the eleven count: number 2 comes again with another label."""


def audit_arguments(
    folder: Path, model: str, out: str = "out", adapters: str | None = None
) -> list[str]:
    arguments = "audit --target-column animal --sensitive-column place".split()
    arguments += ["--images", str(folder / "pics")]
    arguments += ["--labels", str(folder / "labels.csv")]
    arguments += ["--out", str(folder / out), "--model", model]
    arguments += "--views 4 --batch-size 4".split()
    if adapters is not None:
        arguments += ["--adapters", adapters]
    return [*arguments, *NAMES]


def load_audit(folder: Path, out: str = "out") -> Audit:
    return Audit.load(folder / out / "audit.json")


def flat(text: str) -> str:
    """Return a text without the ends of lines that a terminal needs."""
    return " ".join(text.split())


def call(
    *arguments: str, stdin: bytes | None = None, code: int = 0, columns: int = 120
) -> Any:
    """Run the command in this process; the result has stdout and stderr."""
    result = CliRunner().invoke(
        app, list(arguments), input=stdin, env={"COLUMNS": str(columns)}
    )
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    return result


def rows_of(out: Path) -> list[StoredRow]:
    """Finished rows without the time that they took and the times of their files."""
    with Store(out / ROWS_FILE) as store:
        rows = list(store)
    assert all(row.seconds > 0 for row in rows)
    return [replace(row, seconds=0.0, file="") for row in rows]


def count_rows(out: Path) -> int:
    """Finished rows, also while somebody writes them."""
    if not (out / ROWS_FILE).exists():
        return 0
    with closing(sqlite3.connect(out / ROWS_FILE)) as db:
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return (
            int(db.execute("SELECT count(*) FROM rows").fetchone()[0]) if tables else 0
        )


def store_prompts(path: Path, clf: FairTPTClassifier, **more: object) -> None:
    """Write the prompts of a classifier with their features, for --text-features."""
    task = clf._task
    sets = [task.target_prompts, *task.sensitive_prompts.values()]
    prompts = [text for prompt_set in sets for text in prompt_set.texts]
    tables = [task.target_features, *task.sensitive_features.values()]
    features = np.concatenate([table.numpy(force=True) for table in tables])
    np.savez(path, prompts=prompts, features=features, **more)  # type: ignore[arg-type]
