"""The small commands, help, completion, exit codes; and what importing costs."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from cli_fixtures import call, flat
from internals import ADAPTERS, errors_as_exit_codes, log, parse_option, progress_bars
from internals import console_module as console
from typer.testing import CliRunner

import fair_tta
from fair_tta.errors import FairTTAError
from fair_tta.lab.cli import app

ROOT = Path(__file__).parents[3]
COMMANDS = ("", *(command.name or "" for command in app.registered_commands))


def test_ctrl_c_says_whether_finished_answers_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for command in ("predict", "examine"):
        monkeypatch.setattr(f"fair_tta.lab.cli._{command}.make_classifier", interrupted)
        names = [command, "a.png", "--targets", "cat,dog", "--sensitive", "x,y"]
        assert "resumes" not in call(*names, code=130).stderr
        kept = call(*names, "--out", str(tmp_path), code=130).stderr
        assert "The same command resumes from there." in flat(kept)


def test_a_file_that_cannot_be_replaced_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit), errors_as_exit_codes():
        raise PermissionError(13, "Access is denied", ".0a1b.part", None, "report.html")
    assert "cannot use 'report.html' (Access is denied)" in capsys.readouterr().err


def test_version_and_help() -> None:
    assert call("--version").stdout == f"fair-tta {fair_tta.__version__}\n"
    text = flat(call("--help").stdout)
    for command in COMMANDS[1:]:
        assert f" {command} " in text
        assert "Usage" in call(command, "--help").stdout
    assert "130 stopped by Ctrl-C" in text
    positions = [
        text.index(f" {group}: ") for group in ("Start", "Measure", "Improve", "Look")
    ]
    assert positions == sorted(positions)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal(command: str) -> None:
    """No line is longer than the terminal is wide, and no name or sentence is cut."""
    text = call(*command.split(), "--help", columns=80).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert not re.search(r"\w\.\.\.$", text, re.MULTILINE)


@pytest.mark.parametrize(
    "words",
    ["predict --adapter", "fit --adapter", "audit --adapters", "examine --adapters"],
)
def test_methods_are_listed_with_their_settings(words: str) -> None:
    flat = "".join(call(*words.split(), "help", columns=600).stdout.split())
    for name, method in ADAPTERS.items():
        assert name in flat
        assert "".join((method.__doc__ or "").split("\n")[0].split()) in flat
    assert "lam=100,loss=s,loss.joint=false,loss.separate=false,rate=elra" in flat
    assert (
        "--sensitive,reference.Settings:strength=1.5,keep_prior=1,reference=FILE"
        in flat
    )


def test_errors_become_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    for error, code, message in (
        (FairTTAError("[red]too[/red] much"), 3, "Error: [red]too[/red] much"),
        (FileNotFoundError(2, "No such file", "x"), 3, "No such file"),
        (
            OSError(28, "No space left"),
            3,
            "free some space and run the same command again",
        ),
        (ImportError("pip install y"), 3, "Error: pip install y"),
        (MemoryError(), 3, "out of memory"),
        (KeyboardInterrupt(), 130, "go on so"),
    ):
        with (
            pytest.raises(typer.Exit) as caught,
            errors_as_exit_codes(None, lambda: "go on so"),
        ):
            raise error
        assert caught.value.exit_code == code
        assert message in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError), errors_as_exit_codes():
        raise ZeroDivisionError  # a bug has a traceback
    with pytest.raises(BrokenPipeError), errors_as_exit_codes():
        raise BrokenPipeError


@pytest.mark.skipif(sys.platform == "win32", reason="no such pipes")
@pytest.mark.parametrize("words", ["fit --adapter help", "audit --help", "--version"])
def test_every_command_ends_quietly_where_the_reader_has_enough(words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `true` does
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "fair_tta", *words.split()],
            stdout=closed, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("error", "is_closed"),
    [(OSError(errno.EPIPE, "x"), True), (OSError(errno.EIO, "x"), False),
     (OSError(errno.EINVAL, "x"), sys.platform == "win32")],
)  # fmt: skip
def test_how_a_closed_pipe_is_told(error: OSError, is_closed: bool) -> None:
    """By Python, or by typer and rich, who make an exit of it. Other failures are as they are."""
    assert console.is_closed_pipe(error) == is_closed
    with pytest.raises(SystemExit) as caught:
        try:
            raise error
        except OSError:
            sys.exit(1)
    assert console.is_closed_pipe(caught.value) == is_closed
    assert not console.is_closed_pipe(SystemExit(1))


def test_windows_has_another_number_for_a_closed_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert console.is_closed_pipe(OSError(errno.EINVAL, "x"))
    assert not console.is_closed_pipe(OSError(errno.EINVAL, "x", "file"))
    assert not console.is_closed_pipe(OSError(errno.EIO, "x"))


def test_usage_names_the_option() -> None:
    def fails(text: str) -> None:
        raise FairTTAError(text)

    with pytest.raises(typer.BadParameter, match="wrong") as caught:
        parse_option("--option", fails, "wrong")
    assert caught.value.param_hint == "--option"


def test_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress_bars(None) as bars:
        update = bars("rows")
        update(5, 10)
    assert capsys.readouterr().err == ""
    clock = 100.0
    monkeypatch.setattr("fair_tta.lab._terminal.time.monotonic", lambda: clock)
    with progress_bars(True) as bars:
        update = bars("rows")
        update(0, 96)
        for done in range(16, 97, 16):
            clock += 8.0
            update(done, 96)
            clock += 1.0
            update(done, 96)  # too soon for another line
            clock -= 1.0
    assert capsys.readouterr().err.splitlines() == [
        "0 of 96 rows",
        "16 of 96 rows",
        "32 of 96 rows, 2.00 rows/s, 32 s left",
        "48 of 96 rows, 2.00 rows/s, 24 s left",
        "64 of 96 rows, 2.00 rows/s, 16 s left",
        "80 of 96 rows, 2.00 rows/s, 8 s left",
        "96 of 96 rows, 2.00 rows/s",
        "96 of 96 rows, 2.00 rows/s",
    ]


def test_rows_of_an_earlier_run_do_not_count_for_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 100.0
    monkeypatch.setattr("fair_tta.lab._terminal.time.monotonic", lambda: clock)
    with progress_bars(True) as bars:
        update = bars("rows")
        update(0, None)
        for done in range(100, 1001, 100):
            clock += 0.01
            update(done, None)
        for done in range(1016, 1400, 16):
            clock += 8.0
            update(done, None)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "0 rows"
    assert lines[-1] == "1384 rows, 2.00 rows/s"


def test_progress_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bars(None) as bars:
        update = bars("rows")
        update(5, 10)
        update(10, 10)
    with progress_bars(False) as bars:
        update = bars("rows")
        update(5, 10)
    log("done")
    assert "done" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (
            "fair-tta audit --adapters zero-shot,fair",
            ["zero-shot,fair-tpt", "zero-shot,fair-tpt-mo"],
        ),
        ("fair-tta predict --adapter ort", ["orthcali"]),
    ],
)
def test_shell_completion(words: str, offered: list[str]) -> None:
    shell = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    result = CliRunner().invoke(
        app, env={"_FAIR_TTA_COMPLETE": "complete_bash", **shell}, prog_name="fair-tta"
    )
    assert result.stdout.split() == offered, result.stderr


def test_shell_completion_after_help() -> None:
    shell = {"COMP_WORDS": "fair-tta predict --help ", "COMP_CWORD": "3"}
    result = CliRunner().invoke(
        app, env={"_FAIR_TTA_COMPLETE": "complete_bash", **shell}, prog_name="fair-tta"
    )
    assert "Usage" not in result.stdout + result.stderr


def test_what_needs_no_model_does_not_wait_for_one() -> None:
    code = (
        "import sys\n"
        "from fair_tta.lab.cli import app\n"
        "heavy = {'torch', 'transformers', 'PIL', 'cv2', 'matplotlib', 'rich', 'pydantic'}\n"
        "for words in ('audit --help', 'mitigate --help', '--help', '--version'):\n"
        "    app(words.split(), standalone_mode=False)\n"
        "    if words == 'mitigate --help':\n"
        "        assert not heavy & set(sys.modules)\n"
        "print([words, sorted(heavy & set(sys.modules) - {'pydantic'})])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert process.stdout.endswith("\n['--version', []]\n"), (
        process.stdout,
        process.stderr,
    )


def test_a_wrong_label_file_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("file,animal,place\na.png,cat,sea\n")
    code = (
        "import sys\n"
        "from fair_tta.lab.cli import app\n"
        "labels = ['--labels', 'labels.csv', '--sensitive-column', 'plaice', '--out', 'o']\n"
        "for words in (['audit', '--images', '.'], ['mitigate', '.']):\n"
        "    assert app([*words, *labels], standalone_mode=False) == 3\n"
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert process.stdout == "[]\n", (process.stdout, process.stderr)
    assert process.stderr.count("lacks ['class', 'plaice']") == 2


def test_what_is_said_is_no_escape_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    log("\x1b]0;name\x07 [red]\nanother line")
    assert capsys.readouterr().err == "\\x1b]0;name\\x07 [red]\nanother line\n"


@pytest.mark.parametrize(
    ("model", "suggestion"),
    [
        ("minature", "miniature"),
        ("./pisc", "pics"),
        ("open_clip:ViT-B32/openai", "ViT-B-32/openai"),
    ],
)
def test_a_model_that_cannot_be_loaded(
    model: str, suggestion: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pics").mkdir()
    error = call(*f"predict pics --targets a,b --model {model}".split(), code=3).stderr
    assert error.startswith("Error: ")
    assert f"'{model}'" in error
    assert f"Did you mean '{suggestion}'?" in flat(error)
