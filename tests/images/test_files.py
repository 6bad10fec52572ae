"""Pipes, devices, closed folders and loops: a reason for each, and the others go on."""

from __future__ import annotations

import csv
import errno
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dataset_fixtures as made
import pytest
from checks import picture
from cli_fixtures import NAMES, audit_arguments, call, write_labels
from cli_fixtures import tiny_model as tiny_model
from internals import ProblemKind, UnlistedFolder, load_image, read_utkface, walk_files

from fair_tta import FairTPTClassifier
from fair_tta.datasets import BenchmarkTask
from fair_tta.errors import ImageError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs pipes and links")
PATIENCE = 30.0  # seconds, for what should take none
PLAIN = ("--adapters", "zero-shot,fair-tpt")


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Path]:
    """A folder of a pipe, a socket, a device, loops of links, and one picture."""
    home = tmp_path / "odd"
    home.mkdir()
    os.mkfifo(home / "pipe.jpg")
    (home / "zero.png").symlink_to("/dev/zero")
    (home / "round.png").symlink_to(home / "round.png")
    (home / "back").symlink_to(home, target_is_directory=True)
    (home / "back.png").symlink_to(home, target_is_directory=True)
    picture().save(home / "good.png")
    here = os.getcwd()
    os.chdir(home)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.jpg")
        os.chdir(here)
        yield home


def in_time(ask: Callable[[], Any]) -> Any:
    """The answer, if it comes at all; a call that hangs would stop the tests otherwise."""
    answers: list[Any] = []

    def work() -> None:
        try:
            answers.append(ask())
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


@pytest.mark.parametrize("name", ["pipe.jpg", "socket.jpg", "zero.png"])
@pytest.mark.parametrize("kind", [str, Path])
def test_python_raises_at_once(
    odd: Path, name: str, kind: Any, tiny_model: str
) -> None:
    text = "cannot read .* it is a pipe, a socket or a device. Save the image to a file first$"
    with pytest.raises(ImageError, match=text):
        in_time(lambda: load_image(kind(odd / name)))
    clf = FairTPTClassifier(tiny_model, ["cat", "dog"])
    with pytest.raises(ImageError, match=text):
        in_time(lambda: clf.predict(kind(odd / name)))


def test_links_that_lead_nowhere(odd: Path) -> None:
    with pytest.raises(ImageError, match="Too many levels of symbolic links"):
        load_image(odd / "round.png")


def test_predict_gives_each_a_reason(odd: Path, tiny_model: str) -> None:
    arguments = [
        "predict",
        str(odd),
        "--model",
        tiny_model,
        "--views",
        "4",
        *NAMES,
        "--json",
    ]
    out = in_time(lambda: call(*arguments, code=4))
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    rows = {Path(line["image"]).name: line["error"] for line in lines}
    assert set(rows) == {"good.png", "pipe.jpg", "round.png", "socket.jpg", "zero.png"}
    assert [name for name, error in rows.items() if error is None] == ["good.png"]
    assert "it is a pipe" in rows["pipe.jpg"]


def test_audit_gives_each_a_reason(odd: Path, tiny_model: str) -> None:
    rows = [
        (f"{i}.png", ("cat", "dog")[i % 2], ("land", "water")[i // 2 % 2])
        for i in range(8)
    ]
    for i in range(8):
        picture(i).save(odd / f"{i}.png")
    (odd.parent / "pics").symlink_to(odd)
    wrong = [
        (name, "cat", "land")
        for name in ("pipe.jpg", "zero.png", "round.png", "socket.jpg")
    ]
    write_labels(odd.parent / "labels.csv", [*rows, *wrong])
    in_time(lambda: call(*audit_arguments(odd.parent, tiny_model), *PLAIN, code=4))
    with (odd.parent / "out" / "problems.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        problems = {row["what"]: row["problem"] for row in csv.DictReader(file)}
    other = "images without a row: 1 ('good.png'); rows without an image: 1"
    assert problems == {
        other: "images and rows do not all belong together (others are kept)",
        "round.png": "image file is missing",
        **dict.fromkeys(
            ("pipe.jpg", "zero.png", "socket.jpg"),
            "image is a pipe, a socket or a device, not a file",
        ),
    }


def close(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """What permissions do to a folder, also for root, whom they do not bind."""
    scan, stat = os.scandir, os.stat

    def scandir(path: Any) -> Any:
        if Path(path) == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    def look(path: Any, **more: Any) -> Any:
        if not isinstance(path, int) and folder in Path(os.fsdecode(path)).parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **more)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "stat", look)
    folder.chmod(0)


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that may not be looked into, between two that may."""
    for name in ("a", "closed", "z"):
        (tmp_path / "pics" / name).mkdir(parents=True)
        for i in range(4):
            picture(i).save(tmp_path / "pics" / name / f"{i}.png")
    folder = tmp_path / "pics" / "closed"
    close(monkeypatch, folder)
    yield folder
    folder.chmod(0o700)


def test_predict_goes_on_after_a_closed_folder(closed: Path, tiny_model: str) -> None:
    arguments = [str(closed.parent), "--model", tiny_model, "--views", "4", *NAMES]
    out = call("predict", *arguments, "--json", code=4)
    rows = [json.loads(line) for line in out.stdout.splitlines()]
    errors = {row["image"]: row["error"] for row in rows if row["error"]}
    text = f"cannot look into the folder {str(closed)!r}: Permission denied"
    assert errors == {str(closed): text}
    assert len(rows) == 9
    out = call("predict", *arguments, code=4)
    assert out.stdout.count("unreadable") == 1
    assert text in out.stderr
    assert "1 of 9 images could not be used." in out.stderr


def test_audit_goes_on_after_a_closed_folder(closed: Path, tiny_model: str) -> None:
    names = [f"{folder}/{i}.png" for folder in ("a", "closed", "z") for i in range(4)]
    rows = [
        (n, ("cat", "dog")[i % 2], ("land", "water")[i // 2 % 2])
        for i, n in enumerate(names)
    ]
    write_labels(closed.parents[1] / "labels.csv", rows)
    call(*audit_arguments(closed.parents[1], tiny_model), *PLAIN, code=4)
    listed = (closed.parents[1] / "out" / "problems.csv").read_text("utf-8")
    assert listed.count("image file may not be read (permission denied),closed/") == 4


def test_utkface_tells_closed_folders_and_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.utkface(tmp_path / "part1")
    (tmp_path / "part2").mkdir()
    for i in range(3):  # two would double the work at each of forty levels
        (tmp_path / f"again{i}").symlink_to(tmp_path, target_is_directory=True)
    close(monkeypatch, tmp_path / "part2")
    task = BenchmarkTask.find("UTKFace", "age", "race")
    dataset = in_time(lambda: read_utkface(tmp_path, task))
    (tmp_path / "part2").chmod(0o700)
    assert len(dataset) == 48
    what = f"{tmp_path / 'part2'} (Permission denied)"
    assert dataset.problems.examples[ProblemKind.CLOSED_FOLDER] == (what,)


def test_a_folder_that_the_disk_does_not_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: object) -> Any:
        raise OSError(errno.EIO, "Input/output error", str(tmp_path))

    monkeypatch.setattr(os, "scandir", failing)
    assert list(walk_files(tmp_path)) == [
        UnlistedFolder(str(tmp_path), "Input/output error")
    ]
