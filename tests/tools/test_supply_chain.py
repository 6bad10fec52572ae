"""What runs others' code on the way to a release: actions, the build, the audit, the browser."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import headless
import pin_actions
import versions

WORKFLOWS = sorted(pin_actions.WORKFLOWS.glob("*.yml"))
TAGS = {
    "v5": "5" * 40,
    "v5.2.1": "a" * 40,
    "v5.10.0": "b" * 40,
    "v6": "6" * 40,
    "main": "c" * 40,
}


def jobs(name: str) -> dict[str, str]:
    """The text of each job."""
    text = (
        (pin_actions.WORKFLOWS / f"{name}.yml")
        .read_text("utf-8")
        .partition("\njobs:\n")[2]
    )
    parts = re.split(r"^  (\w+):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_no_action_comes_from_a_branch() -> None:
    unpinned = [
        use
        for path in WORKFLOWS
        for use in pin_actions.USES.finditer(path.read_text("utf-8"))
    ]
    assert len(unpinned) > 20
    for use in unpinned:
        is_pinned = pin_actions.PINNED.fullmatch(use["ref"])
        version = use["tag"] if is_pinned else use["ref"]
        assert pin_actions.TAG.fullmatch(version), use[0]


def test_actions_are_pinned_to_the_newest_commit_of_their_version() -> None:
    text = "  - uses: a/b@v5\n  - uses: a/b/c@v5.2.1\n    with: {}\n"
    pinned = pin_actions.pinned(text, lambda _: TAGS)
    pin = f"{'b' * 40} # v5.10.0"
    assert pinned == f"  - uses: a/b@{pin}\n  - uses: a/b/c@{pin}\n    with: {{}}\n"
    assert pin_actions.pinned(pinned, lambda _: TAGS) == pinned
    assert pin_actions.unpinned(text) == ["uses: a/b@v5", "uses: a/b/c@v5.2.1"]
    assert not pin_actions.unpinned(pinned)
    for wrong in ("main", "release/v1", "d" * 40):
        with pytest.raises(SystemExit, match="names neither a version nor a commit"):
            pin_actions.pinned(f"uses: a/b@{wrong}\n", lambda _: TAGS)
    with pytest.raises(SystemExit, match="a/b has no tag like v7"):
        pin_actions.pinned("uses: a/b@v7\n", lambda _: TAGS)


def test_workflows_are_written_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ci.yml").write_text("- uses: a/b@v5\n")
    monkeypatch.setattr(sys, "argv", ["pin_actions.py", "--check"])
    assert pin_actions.main(tmp_path) == 1
    assert capsys.readouterr().out == "uses: a/b@v5\n1 actions are not pinned\n"
    monkeypatch.setattr(sys, "argv", ["pin_actions.py"])
    assert pin_actions.main(tmp_path, lambda _: TAGS) == 0
    monkeypatch.setattr(sys, "argv", ["pin_actions.py", "--check"])
    assert pin_actions.main(tmp_path) == 0


def test_commits_of_annotated_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    refs = "1\trefs/tags/v1\n2\trefs/tags/v2\n3\trefs/tags/v2^{}\n"

    def answer(*_: Any, **__: Any) -> Any:
        return type("Answer", (), {"stdout": refs})

    monkeypatch.setattr("subprocess.run", answer)
    assert pin_actions.ask_github("a/b") == {"v1": "1", "v2": "3"}


def test_what_is_published_is_built_where_nothing_else_is_installed() -> None:
    release = jobs("release")
    commands = re.findall(r"run: (.+)", release["build"])
    assert [line for line in commands if "readme_links" not in line] == [
        "python -m pip install build", "python -m build",
    ]  # fmt: skip
    assert "name: dist" in release["build"]
    assert all("name: dist" not in release[name] for name in ("check", "attach"))
    assert "pin_actions.py --check" in release["check"]
    assert "needs: check" in release["build"]
    assert "sbom.cdx.json" in release["attach"]


def test_the_lowest_and_the_newest_are_audited_every_week(tmp_path: Path) -> None:
    assert "python tools/versions.py audit" in jobs("weekly")["audit"]
    planned = [
        " ".join(map(str, command)) for _, command in versions.audits(tmp_path, "3.11")
    ]
    assert len(planned) == 4
    for resolution, compiled, audited in zip(
        ("lowest-direct", "highest"), planned[::2], planned[1::2], strict=True
    ):
        listed = tmp_path / f"{resolution}.txt"
        assert (
            f"uv pip compile --quiet --resolution {resolution} pyproject.toml"
            in compiled
        )
        assert all(f"--extra={extra}" in compiled for extra in versions.FOR_USERS)
        assert compiled.endswith(f"--python 3.11 --output-file {listed}")
        assert "-m pip_audit --no-deps --disable-pip" in audited
        assert audited.endswith(f"--requirement {listed}")


def test_one_audit_that_finds_something_does_not_stop_the_other(tmp_path: Path) -> None:
    assert (
        versions.run(tmp_path, [sys.executable, "-c", "raise SystemExit(1)"], False)
        == 1
    )


def test_selenium_asks_nobody() -> None:
    assert headless.FLAGS
    assert os.environ["SE_OFFLINE"] == os.environ["SE_AVOID_STATS"] == "true"


@pytest.mark.skipif(
    importlib.util.find_spec("selenium") is None, reason="needs selenium"
)
def test_drivers_are_never_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path for the driver is enough for Selenium; its manager would go to the network."""
    from selenium.webdriver import ChromeOptions, ChromeService
    from selenium.webdriver.common import driver_finder

    def call_home(*_: object, **__: object) -> Any:
        raise AssertionError("the manager was asked")

    monkeypatch.setattr(
        f"{driver_finder.__name__}.SeleniumManager.binary_paths", call_home
    )
    finder = driver_finder.DriverFinder(ChromeService(sys.executable), ChromeOptions())
    assert finder.get_driver_path() == sys.executable
