"""Names of files, classes, columns and methods are anybody's: none reaches a terminal as it is."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checks import picture
from cli_fixtures import tiny_model as tiny_model
from typer.testing import CliRunner

from fair_tta.lab.cli import app

HOSTILE = "\x1b[31m\x1b]0;x\x07\x9b2J\u202e[red]"
PLACE, CAT, DOG = f"pl{HOSTILE}", f"cat{HOSTILE}", f"dog{HOSTILE}"
Arguments = Callable[[Path, str], list[list[str]]]

pytestmark = [
    pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning"),
    pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning"),
    pytest.mark.skipif(sys.platform == "win32", reason="no such names"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hostile in all that others may have written: files, folders, labels, tables, predictions."""
    monkeypatch.chdir(tmp_path)
    images = tmp_path / f"pics{HOSTILE}"
    images.mkdir()
    rows = []
    for i in range(12):
        name = f"{i}{HOSTILE}.png"
        picture(i).save(images / name)
        label = (CAT, DOG)[i % 2]
        answer = CAT if i % 3 == 0 else DOG
        rows.append([name, label, f"{'ab'[i // 2 % 2]}{HOSTILE}", answer])
    (images / f"broken{HOSTILE}.png").write_bytes(b"no image")
    rows += [
        [f"broken{HOSTILE}.png", CAT, f"a{HOSTILE}", CAT],
        [f"C:\\other\\gone{HOSTILE}.png", DOG, f"a{HOSTILE}", CAT],
        [f"C:\\other\\1{HOSTILE}.png", "", f"a{HOSTILE}", CAT],
    ]
    header = ["path", f"class{HOSTILE}", PLACE, "label"]
    for file in (f"labels{HOSTILE}.csv", f"other{HOSTILE}.csv"):
        with (tmp_path / file).open("w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows([header, *rows])
    (tmp_path / f"m{HOSTILE}.py").write_text("raise ValueError('\\x1b[2J')\n")
    return tmp_path


def labelled(folder: Path) -> list[str]:
    options = ["--labels", str(folder / f"labels{HOSTILE}.csv")]
    options += ["--sensitive-column", PLACE]
    return [*options, "--target-column", f"class{HOSTILE}"]


NAMES = ["--targets", "cat,dog", "--sensitive", "a,b"]
COMMANDS: dict[str, Arguments] = {
    "demo": lambda p, _: [["--out", str(p / f"none{HOSTILE}" / "x.html")]],
    "app": lambda p, _: [["--model", str(p / f"none{HOSTILE}"), "--no-open"]],
    "predict": lambda p, model: [
        [str(p / f"pics{HOSTILE}"), *NAMES, "--model", model, *options]
        for options in ([], ["--csv"], ["--json"], ["--adapter", f"m{HOSTILE}.py:x"])
    ],
    "examine": lambda p, model: [
        [str(p / f"pics{HOSTILE}"), *NAMES, "--model", model, *options]
        for options in (["--out", str(p / f"out{HOSTILE}")], ["--json"])
    ],
    "audit": lambda p, model: [
        ["--images", str(p / f"pics{HOSTILE}"), *labelled(p), "--model", model, *options]
        for options in (
            ["--out", str(p / f"out{HOSTILE}"), "--fail-if", "wga < 60", "--harmful",
             f"set{HOSTILE}: {CAT.replace(':', '')}x,thief"],
            ["--out", "folders", "--target-column", "none"],
            ["--out", "folders", "--targets", "cow,dog"],
        )
    ],
    "compare": lambda p, _: [
        [f"labels{HOSTILE}.csv", f"other{HOSTILE}.csv", *labelled(p), *options]
        for options in ([], ["--fail-on", "none", "--fail-if", "wga < 60"])
    ],
    "mitigate": lambda p, model: [
        [str(p / f"pics{HOSTILE}"), *labelled(p), "--model", model, "--out", f"ready{HOSTILE}"]
    ],
    "fit": lambda p, model: [
        ["--adapter", "logit-balance", "--images", str(p / f"pics{HOSTILE}"), *NAMES, "--model",
         model, "--out", f"fitted{HOSTILE}"]
    ],
    "report": lambda p, model: [[f"labels{HOSTILE}.csv"], [f"none{HOSTILE}.json"]],
}  # fmt: skip


def test_every_command_is_here() -> None:
    assert COMMANDS.keys() == {command.name for command in app.registered_commands}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_escape_reaches_the_terminal(
    command: str, folder: Path, tiny_model: str
) -> None:
    for arguments in COMMANDS[command](folder, tiny_model):
        done = CliRunner().invoke(app, [command, *arguments], env={"COLUMNS": "200"})
        assert done.exit_code in (0, 2, 3, 4, 5), (
            arguments,
            done.output,
            done.exception,
        )
        for text in (done.stdout, done.stderr):
            odd = {c for c in text if not c.isprintable()} - {"\n", "\xa0"}
            assert not odd, (arguments, text)
        if command == "audit" and done.exit_code == 4:
            assert r"cat\x1b[31m" in done.stdout


def test_names_of_a_whole_audit_are_escaped_once(folder: Path, tiny_model: str) -> None:
    arguments = COMMANDS["audit"](folder, tiny_model)[0]
    done = CliRunner().invoke(app, ["audit", *arguments], env={"COLUMNS": "400"})
    assert "\\\\x1b" not in done.stdout
    assert json.loads((folder / f"out{HOSTILE}" / "audit.json").read_text("utf-8"))
