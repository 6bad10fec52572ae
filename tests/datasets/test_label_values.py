"""Label files of folders: values, repeated rows, what is wrong with them."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from cli_fixtures import write_labels
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import (
    Labels,
    LabelTable,
    Problem,
    ProblemKind,
    Problems,
    Record,
    collect_records,
    printable,
)

from fair_tta.errors import DatasetError

rows = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from("xy"), st.sampled_from("uv")),
    min_size=1,
)


@settings(max_examples=40, deadline=None)
@given(rows)
def test_repeated_rows_are_those_that_the_reader_finds(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("labels")
    write_labels(folder / "labels.csv", rows)
    labels = Labels(folder, folder / "labels.csv", "animal", ("place",))
    values = labels.scan()
    found = values.records(check_images=False)
    records, _ = collect_records(
        record for record, _ in values._read_records({}, False) if record is not None
    )
    assert {r.key: r for r in found if isinstance(r, Record)} == {
        r.key: r for r in records
    }
    assert len(found) == values.row_count == len(rows)
    assert values.value_counts["animal"] == Counter(row[1] for row in rows)
    assert values.labels_in("place") == sorted({row[2] for row in rows})


def test_merged_values_do_not_contradict_each_other(tmp_path: Path) -> None:
    write_labels(
        tmp_path / "labels.csv",
        [("a", "x", "sea"), ("a", "x", "lake"), ("b", "y", "sea")],
    )
    labels = Labels(
        tmp_path, tmp_path / "labels.csv", "animal", ("place",),
        rename={"place": {"sea": "water", "lake": "water"}},
    )  # fmt: skip
    values = labels.scan()
    kinds = [
        row.kind.name if isinstance(row, Problem) else row.sensitive["place"]
        for row in values.records(check_images=False)
    ]
    assert kinds == ["water", "DUPLICATE", "water"]
    assert values.labels_in("place") == ["water"]


def test_many_unknown_values_are_summarised(tmp_path: Path) -> None:
    write_labels(tmp_path / "labels.csv", [(f"{i}", f"x{i}", "sea") for i in range(30)])
    values = Labels(tmp_path, tmp_path / "labels.csv", "animal", ("place",)).scan()
    named = {"animal": ["x0"], "place": ["sea"]}
    with pytest.raises(DatasetError, match=r"animal 'x1' \(1 row\).* and 19 more"):
        values.allowed_values(named, skip_unknown=False)
    assert values.allowed_values(named, skip_unknown=True) == {
        "animal": {"x0"},
        "place": {"sea"},
    }


def test_problems_are_counted_and_the_first_are_examples() -> None:
    problems = Problems()
    assert not problems
    for i in range(30):
        problems = problems.add(Problem(ProblemKind.MISSING_IMAGE, f"{i}.png"))
    assert problems.headline() == "30 rows were left out"
    problems = problems.add(Problem(ProblemKind.DUPLICATE, "x"))
    problems = problems.add(Problem(ProblemKind.ENCODING, "labels.csv"))
    assert (problems.rows, problems.lost) == (31, 30)
    assert problems.headline() == (
        "31 rows were left out, 1 of them because the image is counted already"
    )
    assert problems.lines()[0] == "30 x image file is missing: 0.png; 1.png; 2.png; ..."
    found = problems.to_dict()["image file is missing"]
    assert found["count"] == 30
    assert found["examples"] == [f"{i}.png" for i in range(20)]


@given(st.text())
def test_shown_text_is_printable(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
    printable(text + "\udcff").encode()


@pytest.mark.skipif(sys.platform == "win32", reason="no such device")
def test_a_label_file_that_never_ends() -> None:
    with pytest.raises(
        DatasetError, match=r"cannot read '/dev/zero': not a regular file"
    ):
        LabelTable(Path("/dev/zero"), [])


def test_paths_that_are_too_long(tmp_path: Path) -> None:
    long = tmp_path / ("a" * 5000)
    with pytest.raises(DatasetError, match="`images` should be a folder"):
        Labels(long, long, "animal", ("place",)).scan()
    with pytest.raises(DatasetError, match="`labels_csv` should be a file"):
        Labels(tmp_path, long, "animal", ("place",)).scan()


def test_odd_names_do_not_stop_a_scan(tmp_path: Path) -> None:
    odd = ["d" * 5000, "..", "a\0b/c"]
    text = "file,animal,place\n" + "".join(f"{name},cat,sea\n" for name in odd)
    (tmp_path / "labels.csv").write_text(text)
    labels = Labels(tmp_path, tmp_path / "labels.csv", "animal", ("place",))
    for row, name in zip(labels.scan().records(), odd, strict=True):
        assert row == Problem(ProblemKind.MISSING_IMAGE, name)
