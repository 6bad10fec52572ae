"""Values of a column that read alike: what is said, and that the renames in it can be pasted."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from internals import (
    Labels,
    LabelValues,
    Record,
    parse_renames,
    rename_option,
    rename_values,
)

from fair_tta.errors import DatasetError

TEXT = st.text(st.characters(codec="utf-8"), min_size=1).map(str.strip).filter(bool)


def labels_of(
    folder: Path, values: list[str], column: str = "shape", **more: Any
) -> LabelValues:
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        rows = [(f"{i}.png", value, "in") for i, value in enumerate(values)]
        csv.writer(file).writerows([("path", column, "place"), *rows])
    return Labels(folder, folder / "labels.csv", column, ("place",), **more).scan()


def pasted(message: str) -> dict[str, dict[str, str]]:
    """The renames in the last line of a message."""
    return parse_renames(shlex.split(message.splitlines()[-1])[1::2])


@pytest.mark.parametrize(
    ("values", "label"),
    [
        (["circle", "circle", "CIRCLE", "square"], "circle"),
        (["caf\u00e9", "cafe\u0301", "cafe\u0301", "bar"], "caf\u00e9"),
        (["land", "land\u200b", "\u202eland", "sea"], "land"),
        (["stra\u00dfe", "STRASSE", "STRASSE", "weg"], "STRASSE"),
        (["1", "1.0", "1", "01", "2"], "1"),
        (["0", "0", "0.0", "00", "-0", "1"], "0"),
        (["True", "1", "1", "true", "2"], "1"),
        (["0", "False", "False", "1.5"], "0"),  # the shortest, whatever is frequent
        (["1e1", "10", "10", "9"], "10"),
    ],
)
def test_values_that_read_alike(values: list[str], label: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as error:
        labels_of(tmp_path, values).labels_in("shape")
    message = str(error.value)
    assert "column 'shape' of 'labels.csv' holds values that read alike: " in message
    assert "--rename" in message
    renamed = labels_of(tmp_path, values, rename=pasted(message))
    assert renamed.labels_in("shape") == sorted([label, values[-1]])
    assert len(renamed.records(check_images=False)) == len(values)


def test_a_value_that_reads_like_a_name(tmp_path: Path) -> None:
    values = labels_of(tmp_path, ["circle", "CIRCLE", "square"])
    named = {"shape": ["circle", "square"], "place": ["in"]}
    with pytest.raises(DatasetError) as error:
        values.allowed_values(named, skip_unknown=False)
    assert str(error.value).endswith("--rename 'shape: CIRCLE=circle'")


def test_different_values_stay(tmp_path: Path) -> None:
    names = [
        "-1",
        "1",
        "US",
        "us citizen",
        "1.5",
        "1-2",
        "false",
        "1e9999999999",
        "1.x",
    ]
    assert labels_of(tmp_path, names).labels_in("shape") == sorted(names)


def test_a_value_that_is_the_same_number_as_a_name(tmp_path: Path) -> None:
    values = labels_of(tmp_path, ["1", "1.0", "0"])
    with pytest.raises(DatasetError) as error:
        values.allowed_values(
            {"shape": ["1", "0"], "place": ["in"]}, skip_unknown=False
        )
    assert str(error.value).endswith("--rename 'shape: 1.0=1'")


def clusters_of(folder: Path, cells: list[str]) -> list[str | None]:
    rows = [f"{i}.png,cat,in,{cell}" for i, cell in enumerate(cells)]
    file = folder / "labels.csv"
    file.write_text("\n".join(["path,animal,place,person", *rows]), encoding="utf-8")
    labels = Labels(folder, file, "animal", ("place",), cluster="person")
    records = labels.scan().records(check_images=False)
    return [row.cluster for row in records if isinstance(row, Record)]


@pytest.mark.parametrize(
    "cells",
    [
        ["person 1", "Person 1 ", "person 2"],
        ["1", "1.0", "2"],
        ["person 1", "person  1", "None"],
        ["x", "x\u200b", "y"],
    ],
)
def test_clusters_that_read_alike(cells: list[str], tmp_path: Path) -> None:
    """The images of one person were two persons."""
    with pytest.raises(
        DatasetError, match=r"'person' of 'labels[.]csv' holds clusters that"
    ):
        clusters_of(tmp_path, cells)


def test_clusters_that_are_missing(tmp_path: Path) -> None:
    """All images without a person were of one person called None."""
    cells = ["None", "none", "NA", "", "<NA>", "null", "a", "b"]
    assert clusters_of(tmp_path, cells) == ["", "", "", "", "", "", "a", "b"]


@given(st.lists(TEXT, min_size=3, max_size=3, unique=True))
def test_what_is_printed_is_found(
    tmp_path_factory: pytest.TempPathFactory, names: Any
) -> None:
    column, value, label = names
    folder = tmp_path_factory.mktemp("labels")
    labels = Labels(folder, folder / "labels.csv", column, ())
    values = LabelValues(labels, {column: {value: 1, label: 1}}, 2, [], [])
    option, text = shlex.split(rename_option(column, value, label))
    assert option == "--rename"
    (renamed,) = rename_values([values], parse_renames([text]))
    assert renamed.labels.rename == {column: {value: label}}
