"""The CSV files that an audit hands over: names of others stay text."""

from __future__ import annotations

import csv
from pathlib import Path

from fair_tta.lab.data._records import Problem, ProblemKind
from fair_tta.lab.folder import ProblemsFile


def test_names_of_others_stay_text(tmp_path: Path) -> None:
    file = ProblemsFile(tmp_path / "problems.csv")
    for row, name in enumerate(["=1+1.png", "caf\udce9.png", "\x1b[2J.png"]):
        file.add(row, Problem(ProblemKind.MISSING_IMAGE, name))
    file.close()
    with (tmp_path / "problems.csv").open(encoding="utf-8", newline="") as written:
        rows = list(csv.DictReader(written))
    assert [row["what"] for row in rows] == ["'=1+1.png", r"caf\udce9.png", r"\x1b[2J.png"]
