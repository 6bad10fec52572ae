"""Saved audits load; damaged and foreign ones are one clear error, not a crash."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_fixtures import call
from internals import schema

from fair_tta import TPT
from fair_tta.auditing import Audit, Examination, Scores, audit, compare
from fair_tta.errors import FairTTAError
from fair_tta.lab.report import html, markdown


def saved() -> str:
    """Two runs on two classes and four groups of two attributes, with all that runs report."""
    generator = np.random.default_rng(0)
    classes = ["land bird", "water bird"]
    truth = [classes[i % 2] for i in range(320)]
    values = {
        "place": [("land", "water")[i // 2 % 2] for i in range(320)],
        "light": [("day", "night")[i // 4 % 2] for i in range(320)],
    }
    runs = []
    for name, wrong in (("zero-shot", 80), ("tpt", 40)):
        answers = [classes[(i + (i % 320 < wrong)) % 2] for i in range(320)]
        entropies = {attribute: generator.uniform(size=320) for attribute in values}
        scores = Scores(
            confidence=generator.uniform(size=320),
            entropy=generator.uniform(size=320),
            entropy_zero_shot=generator.uniform(size=320),
            sensitive_entropy=entropies,
            sensitive_entropy_zero_shot=entropies,
            relative_step=generator.uniform(size=320),
        )
        run = audit(
            truth, answers, values, name=name, scores=scores, seconds=16.0, adapter=TPT(),
            harmful={"set": ["land bird"]},
        )  # fmt: skip
        runs.append(run)
    return compare(runs).to_json() + "\n"


TEXT = saved()
VALUES: tuple[Any, ...] = (
    *(
        None,
        "x",
        "",
        "\ud800",
        -1,
        0,
        1,
        7.5,
        1e308,
        10**299,
        10**400,
        True,
        [],
        {},
        [1],
        {"a": 1},
    ),
)


OPTIONAL = {"low", "high", "reason"}  # of an estimate: what is left out is read as null


def is_read(text: str | bytes, path: Path) -> bool:
    """Whether it loads, and then it has a report; all else but our own error is a failure."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        found = Audit.load(path)
    except FairTTAError:
        return False
    html(found).encode()
    markdown(found).encode()
    return True


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands; of the items of a list the first and the last."""
    if isinstance(value, dict):
        inside = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, list) else []
        inside = items[:1] + items[1:][-1:]
    for key, item in inside:
        yield (*at, key)
        yield from places(item, (*at, key))


def edited(place: tuple[Any, ...], *value: Any) -> str:
    """The saved audit with another value in a place, or without it."""
    document = inner = json.loads(TEXT)
    for key in place[:-1]:
        inner = inner[key]
    if value:
        inner[place[-1]] = value[0]
    else:
        del inner[place[-1]]
    return json.dumps(document)


def test_a_saved_audit_loads_as_it_was(tmp_path: Path) -> None:
    jsonschema: Any = pytest.importorskip("jsonschema")
    (tmp_path / "saved.json").write_text(TEXT, "utf-8")
    found = Audit.load(tmp_path / "saved.json")
    found.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text("utf-8") == TEXT
    assert found.to_dict() == json.loads(TEXT)
    jsonschema.validate(json.loads(TEXT), schema())
    assert found.document.runs[1].metrics.accuracy.value == 0.875
    assert is_read(TEXT, tmp_path / "audit.json")


def test_what_is_missing_or_of_another_kind(tmp_path: Path) -> None:
    """Nothing in every place, and in every third place values in turn."""
    path, everywhere = tmp_path / "audit.json", list(places(json.loads(TEXT)))
    gone = [
        is_read(edited(place), path)
        for place in everywhere
        if place[-1] not in OPTIONAL
    ]
    changed = [
        is_read(edited(place, VALUES[i % len(VALUES)]), path)
        for i, place in enumerate(everywhere[::3])
    ]
    assert len(gone) > 600
    assert 0 < sum(gone) < len(gone) / 4
    assert 0 < sum(changed) < len(changed) / 2


def test_truncated_and_flipped(tmp_path: Path) -> None:
    whole = TEXT.encode()
    for end in range(0, len(whole) - 2, len(whole) // 100):
        assert not is_read(whole[:end], tmp_path / "audit.json")
    chance = random.Random(0)
    for _ in range(100):
        flipped = bytearray(whole)
        flipped[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        is_read(bytes(flipped), tmp_path / "audit.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not JSON: Expecting value"),
        (TEXT[:5000], "this is not JSON: "),
        ("[" * 100_000, "this is not JSON: maximum recursion depth exceeded"),
        (TEXT.replace("0.875", "NaN", 1), "Expected `float` >= 0.0"),
        (
            edited(("data", "\ud800"), 1),
            "this is not an audit of schema 'fair-tta/audit/1': ",
        ),
        (edited(("data", "n"), 1.5), "Expected `int`, got `float` - at `$.data.n`"),
        (
            edited(("provenance", "views"), "v"),
            "in provenance: Expected `object | null`, got `str`",
        ),
        (
            edited(("runs", 1, "groups", 1)),
            "the groups of 'tpt' are not those of the first run",
        ),
        (
            edited(("data", "targets", 1)),
            "the classes of 'zero-shot' are not those of the data",
        ),
        (
            edited(("runs", 0, "groups", 0, "classes", 0, "correct"), 4000),
            "'zero-shot' has more right answers than images",
        ),
        ("3", "Expected `object`, got `int`"),
        (
            '{"schema": ["fair-tta/audit/1"]}',
            "this audit has the schema ['fair-tta/audit/1']",
        ),
    ],
)
def test_the_command_says_what_is_wrong(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    path = tmp_path / "audit.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    out = call("report", str(path), code=3)
    assert message in out.stderr
    assert "was not written by an audit: this" in out.stderr
    assert not path.with_suffix(".html").exists()


def test_a_folder_is_no_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".", str(tmp_path)):
        assert "check the path" in call("report", folder, code=3).stderr


@pytest.mark.parametrize("kind", [Audit, Examination])
def test_files_that_never_end_or_are_too_large(kind: Any, tmp_path: Path) -> None:
    if sys.platform != "win32":
        with pytest.raises(OSError, match="not a regular file"):
            kind.load("/dev/zero")
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(
        FairTTAError, match=r"large.json' has more than 268435456 bytes"
    ):
        kind.load(tmp_path / "large.json")
