"""`fair-tta verify`: images, labels and settings of an audit are hashed again."""

from __future__ import annotations

import json
import sys
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import pytest
from cli_fixtures import audit_arguments, call
from cli_fixtures import many as many
from cli_fixtures import tiny_model as tiny_model

from fair_tta.lab.folder import _digest_line, _read_digest_line, verify_folder
from fair_tta.lab.report import html

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")


def changed(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_what_differs_is_named(many: Path, tiny_model: str) -> None:
    call(*audit_arguments(many, tiny_model), "--adapters", "zero-shot")
    out, images, labels = (str(many / name) for name in ("out", "pics", "labels.csv"))
    asked = ("verify", out, "--images", images)
    found = call(*asked)
    assert (
        found.stdout == f"Images and settings are those of {str(many / 'out' / 'audit.json')!r}.\n"
    )
    assert "The label file was not compared" in found.stderr
    assert call(*asked, "--labels", labels).stderr == ""

    (many / "pics" / "3.png").write_bytes(b"another")
    (many / "pics" / "5.png").unlink()
    assert verify_folder(out, images) == ["3.png", "5.png"]
    found = call(*asked, code=3)
    assert found.stdout == "differs: 3.png\ndiffers: 5.png\n"
    assert "Error: 2 inputs or settings of" in found.stderr

    changed(many / "labels.csv", "cat", "bat")
    changed(many / "out" / "audit.json", "a photo {target}.", "a drawing {target}.")
    changed(many / "out" / "images.b2", "  7.png", "  8.png")
    names = ["prompts", "images", labels, "3.png", "5.png", "8.png"]
    assert verify_folder(out, images, labels) == names


def test_images_beside_the_label_file(many: Path, tiny_model: str) -> None:
    (many / "beside").mkdir()
    (many / "pics" / "7.png").rename(many / "beside" / "7.png")
    changed(many / "labels.csv", "\n7.png,", "\nbeside/7.png,")
    call(*audit_arguments(many, tiny_model), "--adapters", "zero-shot")
    assert verify_folder(many / "out", many / "pics", many / "labels.csv") == []


def test_the_hashes_are_those_of_other_programs(many: Path, tiny_model: str) -> None:
    call(*audit_arguments(many, tiny_model), "--adapters", "zero-shot", "--no-pictures")
    lines = (many / "out" / "images.b2").read_bytes()
    assert lines.decode().splitlines() == [
        f"{blake2b((many / 'pics' / f'{i}.png').read_bytes(), digest_size=16).hexdigest()}  {i}.png"
        for i in range(24)
    ]
    document: dict[str, Any] = json.loads((many / "out" / "audit.json").read_text("utf-8"))
    hashes = document["provenance"]["inputs_sha256"]
    origin = document["provenance"]
    parts = {name: origin.get(name) for name in ("model", "prompts", "views", "seed", "data")}
    parts |= {"reference": None, "labels": document["data"], "intervals": document["settings"]}
    parts["methods"] = {run["name"]: run["adapter"] for run in document["runs"]}
    wanted = {
        name: sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()
        for name, of in parts.items()
    }
    wanted["images"] = sha256(lines).hexdigest()
    wanted["all"] = sha256("".join(wanted.values()).encode()).hexdigest()
    assert hashes == wanted
    assert hashes["all"] in html(document)


def test_an_audit_without_hashes(many: Path, tiny_model: str) -> None:
    call(*audit_arguments(many, tiny_model), "--adapters", "zero-shot")
    changed(many / "out" / "audit.json", '"inputs_sha256"', '"other"')
    found = call("verify", str(many / "out"), "--images", str(many / "pics"), code=3)
    assert "has no inputs_sha256: audit the folder again." in found.stderr
    call("verify", str(many / "none"), "--images", str(many / "pics"), code=3)


@pytest.mark.skipif(sys.platform == "win32", reason="no such names")
@pytest.mark.parametrize("name", ["a.png", "back\\slash\n.png", "\r", "caf\udce9.png", "ü  b"])
def test_any_name_comes_back(name: str) -> None:
    line = _digest_line("0f", name)
    assert line.count(b"\n") == 1
    assert _read_digest_line(line) == ("0f", name)
