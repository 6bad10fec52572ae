"""Documents: saved ones load unchanged; damaged and foreign ones are one clear error."""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_fixtures import call
from internals import schema

from fair_tta import TPT
from fair_tta.auditing import Audit, Examination, Scores, audit, compare
from fair_tta.errors import FairTTAError, SmallGroupWarning
from fair_tta.lab.report import html, markdown

jsonschema: Any = pytest.importorskip("jsonschema")


def saved_audit() -> str:
    """Two runs on two classes and four groups of two attributes, with all that runs report."""
    n = 320
    generator = np.random.default_rng(0)
    classes = ["land bird", "water bird"]
    truth = [classes[i % 2] for i in range(n)]
    values = {
        "place": [("land", "water")[i // 2 % 2] for i in range(n)],
        "light": [("day", "night")[i // 4 % 2] for i in range(n)],
    }
    runs = []
    for name, wrong in (("zero-shot", 80), ("tpt", 40)):
        answers = [classes[(i + (i < wrong)) % 2] for i in range(n)]
        entropies = {attribute: generator.uniform(size=n) for attribute in values}
        scores = Scores(
            confidence=generator.uniform(size=n),
            entropy=generator.uniform(size=n),
            entropy_zero_shot=generator.uniform(size=n),
            sensitive_entropy=entropies,
            sensitive_entropy_zero_shot=entropies,
            relative_step=generator.uniform(size=n),
        )
        options: dict[str, Any] = {"seconds": 16.0, "adapter": TPT(), "scores": scores}
        options["harmful"] = {"set": ["land bird"]}
        runs.append(audit(truth, answers, values, name=name, **options))
    return compare(runs).to_json() + "\n"


TEXT = saved_audit()
VALUES: tuple[Any, ...] = (
    None, "x", "", "\ud800", -1, 0, 1, 7.5, 1e308, 10**299, 10**400, True, [], {}, [1], {"a": 1},
)  # fmt: skip
OPTIONAL = {"low", "high", "reason"}  # of an estimate: read as null if left out


def is_read(text: str | bytes, path: Path) -> bool:
    """Return True if it loads and has a report, False for an error of ours."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        loaded = Audit.load(path)
    except FairTTAError:
        return False
    html(loaded).encode()
    markdown(loaded).encode()
    return True


def keys_of(part: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each part; of the entries of a list the first and the last."""
    if isinstance(part, dict):
        entries = list(part.items())
    elif isinstance(part, list):
        entries = list(enumerate(part))
        entries = entries[:1] + entries[1:][-1:]
    else:
        return
    for key, inner in entries:
        yield (*keys, key)
        yield from keys_of(inner, (*keys, key))


def edited(keys: tuple[Any, ...], *value: Any) -> str:
    """Return the saved audit with another value in a place, or without it."""
    document = json.loads(TEXT)
    part = document
    for key in keys[:-1]:
        part = part[key]
    if value:
        part[keys[-1]] = value[0]
    else:
        del part[keys[-1]]
    return json.dumps(document)


def test_a_saved_audit_loads_unchanged(tmp_path: Path) -> None:
    (tmp_path / "saved.json").write_text(TEXT, "utf-8")
    loaded = Audit.load(tmp_path / "saved.json")
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text("utf-8") == TEXT
    assert loaded.to_dict() == json.loads(TEXT)
    assert loaded.document.runs[1].metrics.accuracy.value == 0.875
    assert is_read(TEXT, tmp_path / "audit.json")


def test_documents_validate() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        one_image = audit(
            ["a"],
            ["b"],
            {"x": ["u"], "y": ["v"]},
            targets=["a", "b"],
            values={"x": ["u", "w"]},
        )
    truth_values: Any = {"values": [True, False], "targets": [1, 2]}
    numbers = audit([1, 2] * 40, [2, 2] * 40, [True, False] * 40, **truth_values)
    for measured in (Audit.from_json(TEXT), one_image, numbers, compare([numbers])):
        jsonschema.validate(measured.to_dict(), schema())
        assert "NaN" not in measured.to_json()


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("data", "n"), ["600"]),
        (("runs", 1, "name"), []),
        (("runs", 0, "extra"), [1]),
        (("runs", 0, "metrics", "bias", "value"), [7.5]),
        (("comparisons", 0, "groups", 3, "changes", "n"), [-1]),
        (("provenance", "time"), [None]),
        (("runs",), [[]]),
    ],
)
def test_the_schema_refuses_what_is_not_loaded(
    keys: tuple[Any, ...], value: list[Any]
) -> None:
    document = json.loads(edited(keys, *value))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema())
    with pytest.raises(FairTTAError, match="this is not an audit of schema"):
        Audit.from_dict(document)


def test_missing_and_changed_values(tmp_path: Path) -> None:
    """Each part is deleted, and each third one replaced by values in turn."""
    path = tmp_path / "audit.json"
    all_keys = list(keys_of(json.loads(TEXT)))
    without = []
    for keys in all_keys:
        if keys[-1] not in OPTIONAL:
            without.append(is_read(edited(keys), path))
    changed = []
    for index, keys in enumerate(all_keys[::3]):
        changed.append(is_read(edited(keys, VALUES[index % len(VALUES)]), path))
    assert len(without) > 600
    assert 0 < sum(without) < len(without) / 4
    assert 0 < sum(changed) < len(changed) / 2


def test_truncated_and_flipped(tmp_path: Path) -> None:
    content = TEXT.encode()
    for end in range(0, len(content) - 2, len(content) // 100):
        assert not is_read(content[:end], tmp_path / "audit.json")
    generator = random.Random(0)
    for _ in range(100):
        flipped = bytearray(content)
        flipped[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        is_read(bytes(flipped), tmp_path / "audit.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "this is not JSON: maximum recursion depth exceeded"),
        (TEXT.replace("0.875", "NaN", 1), "Expected `float` >= 0.0"),
        (edited(("data", "\ud800"), 1), "this is not an audit of schema"),
        ('{"schema": ["x"]}', "this audit has the schema ['x']"),
    ],
)
def test_the_command_says_what_is_wrong(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "audit.json"
    path.write_text(text, "utf-8")
    out = call("report", str(path), code=3)
    assert message in out.stderr
    assert "was not written by an audit: this" in out.stderr
    assert not path.with_suffix(".html").exists()


def test_a_folder_is_no_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".", str(tmp_path)):
        assert "check the path" in call("report", folder, code=3).stderr


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such file")
@pytest.mark.parametrize("document", [Audit, Examination])
def test_a_file_that_never_ends(document: Any) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        document.load("/dev/zero")
