"""Predictions on stdout as they come: JSON lines, CSV, or a table for people."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from typing import Protocol

from rich.console import Console
from rich.text import Text

from fair_tta.data.csv_rows import CsvRows
from fair_tta.data.csv_rows import printable
from fair_tta.errors import ImageError
from fair_tta.prediction import Prediction
from fair_tta.report.terminal import Fitted, TableColumn

UNREADABLE_PICTURE = "unreadable"


class Output(Protocol):
    """A way to show predictions."""

    def __init__(self, targets: tuple[str, ...], attributes: tuple[str, ...]) -> None: ...

    def add(self, path: str, answer: Prediction | ImageError) -> None:
        """One more picture."""

    def flush(self) -> None:
        """Show what was added."""


class JsonLines:
    """An object per line: ``image``, ``error`` (or null) and the fields of `Prediction`."""

    def __init__(self, targets: tuple[str, ...], attributes: tuple[str, ...]) -> None:
        self._lines: list[str] = []

    def add(self, path: str, answer: Prediction | ImageError) -> None:
        """See `Output.add`."""
        row: dict[str, object] = {"image": path, "error": None}
        if isinstance(answer, ImageError):
            row["error"] = str(answer)
        else:
            row |= dataclasses.asdict(answer)
        self._lines.append(json.dumps(row, allow_nan=False) + "\n")

    def flush(self) -> None:
        """See `Output.flush`."""
        _write("".join(self._lines))
        self._lines.clear()


class Csv:
    """A row per picture, with a column for the probability of each target."""

    def __init__(self, targets: tuple[str, ...], attributes: tuple[str, ...]) -> None:
        self._text = io.StringIO(newline="")
        self._rows = CsvRows(self._text)
        self._targets, self._attributes = targets, attributes
        self._rows.add(
            ["image", "label", "zero-shot label", *(f"p: {target}" for target in targets)]
            + [f"sensitive entropy: {attribute}" for attribute in attributes]
            + ["certified unchanged", "warnings", "error"]
        )

    def add(self, path: str, answer: Prediction | ImageError) -> None:
        """See `Output.add`."""
        if isinstance(answer, ImageError):
            blank = [""] * (len(self._targets) + len(self._attributes) + 4)
            self._rows.add([path, *blank, str(answer)])
            return
        self._rows.add(
            [path, answer.label, _zero_shot(answer)]
            + [answer.probabilities[target] for target in self._targets]
            + [answer.sensitive_entropy[attribute] for attribute in self._attributes]
            + [str(answer.certified_unchanged).lower(), "; ".join(answer.warnings), ""]
        )

    def flush(self) -> None:
        """See `Output.flush`."""
        _write(self._text.getvalue())
        self._text.seek(0)
        self._text.truncate()


class PredictionTable:
    """Columns whose width does not depend on the rows, which are shown before all are known."""

    def __init__(self, targets: tuple[str, ...], attributes: tuple[str, ...]) -> None:
        self._console = Console()
        if not self._console.is_terminal:
            self._console.width = max(self._console.width, 160)  # a file has room
        self._wide = min(24, max(len(UNREADABLE_PICTURE), *(len(printable(t)) for t in targets)))
        self._attributes = attributes
        self._is_first = True
        self._rows: list[list[Text]] = []

    def add(self, path: str, answer: Prediction | ImageError) -> None:
        """See `Output.add`."""
        if isinstance(answer, ImageError):
            cells = [UNREADABLE_PICTURE, "", "", *("" for _ in self._attributes), ""]
            self._rows.append([Text(printable(path)), *(Text(c, style="red") for c in cells)])
            return
        entropies = [
            f"{answer.sensitive_entropy_zero_shot[a]:.2f} -> {answer.sensitive_entropy[a]:.2f}"
            for a in self._attributes
        ]
        cells = [
            printable(answer.label), f"{answer.probabilities[answer.label]:.3f}",
            printable(_zero_shot(answer)), *entropies, "changed" if answer.flipped else "",
        ]  # fmt: skip
        self._rows.append([Text(printable(path)), *map(Text, cells)])

    def flush(self) -> None:
        """See `Output.flush`."""
        columns = [
            TableColumn("picture", 12, self._console.width, is_text=True, is_left=True),
            TableColumn("answer", min(10, self._wide), self._wide, is_text=True, is_left=True),
            TableColumn("p", 5, 5),
            TableColumn("zero-shot", min(10, self._wide), self._wide, is_text=True, is_left=True),
            *(TableColumn(f"entropy of {printable(a)}", 7, 12) for a in self._attributes),
            TableColumn("", 7, 7, is_text=True, is_left=True),
        ]
        self._console.print(Fitted(columns, self._rows, has_head=self._is_first))
        self._rows.clear()
        self._is_first = False


def _zero_shot(answer: Prediction) -> str:
    return max(answer.zero_shot, key=answer.zero_shot.__getitem__)


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
