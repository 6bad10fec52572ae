"""The folder of uploads, signals, and what is said when Gradio is missing or a port is taken."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from internals import (
    AppContext,
    UploadLimits,
    guess_columns,
    is_embedded_model,
    private_folder,
)
from internals import server_module as serving
from typer.testing import CliRunner

from fair_tta import FairTTAError
from fair_tta.lab.cli import app
from fair_tta.miniature import FOLDER


def test_the_folder_is_private_and_goes_with_all_that_is_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", "before")
    with private_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert os.environ["GRADIO_TEMP_DIR"] == str(folder / "uploads")
        (folder / "uploads" / "a.png").write_bytes(b"x")
    assert not folder.exists()
    assert os.environ["GRADIO_TEMP_DIR"] == "before"
    monkeypatch.delenv("GRADIO_TEMP_DIR")
    with pytest.raises(KeyboardInterrupt), private_folder() as folder:
        raise KeyboardInterrupt
    assert not folder.exists()
    assert "GRADIO_TEMP_DIR" not in os.environ


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_end_it_quietly_and_handlers_come_back(name: str) -> None:
    number = getattr(signal, name)
    before = signal.getsignal(number)
    with serving._stoppable() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(10)
    assert signal.getsignal(number) is before


def test_in_another_thread_signals_are_left_alone() -> None:
    states = []

    def run() -> None:
        with serving._stoppable() as stop:
            states.append(stop.is_set())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert states == [False]


class TakenPort:
    """Gradio's blocks where the port is taken."""

    def launch(self, **options: Any) -> None:
        self.options = options
        raise OSError("Cannot find empty port in range: 1-1.")


@pytest.mark.slow
def test_a_taken_port_is_told_and_nothing_is_opened_that_was_not_asked_for(
    tmp_path: Path,
) -> None:
    blocks = TakenPort()
    with pytest.raises(
        FairTTAError, match=r"`port` should be free \(got 1\): choose another"
    ):
        serving.launch(blocks, tmp_path, UploadLimits(file_bytes=7), port=1)
    options = blocks.options
    assert options["server_name"] == "127.0.0.1"
    assert options["allowed_paths"] == []
    assert options["max_file_size"] == 7
    for name in (
        "share",
        "inbrowser",
        "show_error",
        "enable_monitoring",
        "mcp_server",
        "ssr_mode",
    ):
        assert options[name] is False


def test_without_gradio_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    result = CliRunner().invoke(app, ["app", "--no-open"])
    assert result.exit_code == 3
    assert "pip install 'fair-tta[app]'" in result.output
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_nothing_imports_gradio_before_the_app_is_built() -> None:
    code = (
        "import sys, fair_tta, fair_tta.lab.app, fair_tta.lab.app._page, fair_tta.lab.cli\n"
        "print('gradio' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


class QuietBlocks:
    """Gradio's blocks that serve nothing."""

    def close(self, verbose: bool) -> None:
        pass


def test_it_ends_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting has an end: one without cannot be interrupted on Windows."""
    waits: list[float | None] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            return len(waits) == 3

    @contextmanager
    def stoppable() -> Iterator[threading.Event]:
        yield Stop()

    monkeypatch.setattr(serving, "_stoppable", stoppable)
    monkeypatch.setattr(serving, "require", lambda *_: None)
    monkeypatch.setattr(serving, "launch", lambda *_: "http://here")
    monkeypatch.setattr(
        "fair_tta.lab.app._page.build_interface", lambda *_, **__: QuietBlocks()
    )
    addresses: list[str] = []
    serving.serve(views=2, ready=addresses.append)
    assert addresses == ["http://here"]
    assert len(waits) == 3


CLEANING = """
import sys
from pathlib import Path
import gradio
from gradio.route_utils import delete_files_created_by_app
from fair_tta.lab.app._page import build_interface
from fair_tta.lab.app._questions import Classifiers
from fair_tta.lab.app._server import private_folder

with private_folder() as folder:
    blocks = build_interface(Classifiers(views=2), folder, embedded=True)
    assert blocks.delete_cache == (60, 3600)
    assert blocks._queue.max_size == 20
    inputs = {block._id: block for event in blocks.fns.values() for block in event.inputs}
    with_files = [b for b in inputs.values() if getattr(b, "data_model", None)]
    assert len(with_files) == 9, with_files
    for block in with_files:
        try:
            block.preprocess(gradio.FileData(path="/etc/passwd", is_stream=True))
        except gradio.Error as error:
            assert "not uploaded" in str(error)
        else:
            raise AssertionError(block)
    uploads = folder / "uploads"
    of_page = [path for path in uploads.rglob("*") if path.is_file()]
    assert of_page
    upload = uploads / "ab" / "mine.png"
    upload.parent.mkdir()
    upload.write_bytes(b"x")
    blocks.upload_file_set.add(str(upload))  # as Gradio's upload route does
    (folder / "report.html").write_text("x")
    box = next(block for block in blocks.blocks.values() if isinstance(block, gradio.File))
    result = Path(box.move_resource_to_block_cache(str(folder / "report.html")))
    assert result.is_relative_to(uploads)
    delete_files_created_by_app(blocks, 3600)
    assert upload.exists() and result.exists()
    delete_files_created_by_app(blocks, -1)
    assert not upload.exists() and not result.exists()
    assert all(path.exists() for path in of_page)
print("clean")
"""


@pytest.mark.slow
def test_gradio_deletes_uploads_and_results_after_an_hour() -> None:
    """`delete_cache` covers uploads and copies of results; not the images of the page."""
    code = [sys.executable, "-c", CLEANING]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert done.stdout == "clean\n", done.stderr


FETCHING = """
import asyncio
from gradio import processing_utils
from gradio.state_holder import SessionState
from fair_tta.lab.app._page import build_interface
from fair_tta.lab.app._questions import Classifiers
from fair_tta.lab.app._server import private_folder

asked, refused = [], 0
file = {"path": "http://elsewhere.example/a.png", "meta": {"_type": "gradio.FileData"}}

async def get(url, **options):
    asked.append(url)
    raise OSError("no network here")

async def main(blocks):
    global refused
    for event in [event for event in blocks.fns.values() if event.inputs]:
        for is_updated in (False, True):  # an event that updates a component makes a new one
            state = SessionState(blocks)
            if is_updated:
                (take,) = [event for event in blocks.fns.values() if event.name == "take"][-1:]
                await blocks.process_api(take, [], state=state)
            for place in range(len(event.inputs)):
                values = [None] * len(event.inputs)
                values[place] = [{"deeper": file}] if place else file
                try:
                    await blocks.preprocess_data(event, values, state)
                except Exception as error:
                    refused += "not uploaded" in str(error)

processing_utils.sh.get = get
with private_folder() as folder:
    asyncio.run(main(build_interface(Classifiers(views=2), folder, embedded=True)))
print(len(asked), refused > 20)
"""


@pytest.mark.slow
def test_an_address_in_place_of_an_upload_is_not_fetched() -> None:
    """Gradio fetches it, of any size, before a component sees it; also for a field of text."""
    code = [sys.executable, "-c", FETCHING]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert done.stdout == "0 True\n", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("localhost", True), ("LocalHost", True), ("::1", True), ("[::1]", True),
     ("127.0.0.2", True), ("0.0.0.0", False), ("::", False), ("192.168.0.1", False),
     ("localhost.example", False), ("", False)],
)  # fmt: skip
def test_names_of_this_machine_are_local(
    host: str, is_local: bool, tmp_path: Path
) -> None:
    blocks = TakenPort()
    with pytest.raises(FairTTAError, match="`port` should be free"):
        serving.launch(blocks, tmp_path, UploadLimits(), host)
    (gate,) = blocks.options["app_kwargs"]["middleware"]
    assert (gate.kwargs["hosts"] is not None) == is_local
    assert gate.kwargs["frames"] != is_local
    with pytest.raises(FairTTAError, match="`port` should be free"):
        serving.launch(blocks, tmp_path, UploadLimits(), host, share=True)
    (gate,) = blocks.options["app_kwargs"]["middleware"]
    assert gate.kwargs["hosts"] is None


def test_files_are_read_as_gradio_hands_them_over(tmp_path: Path) -> None:
    class Refused(Exception):
        def __init__(self, text: str, print_exception: bool) -> None:
            super().__init__(text)

    gradio: Any = SimpleNamespace(Error=Refused)
    nothing: Any = None
    context = AppContext(gradio, nothing, tmp_path, is_embedded=True)
    folder = tmp_path / "uploads" / "12ab"
    folder.mkdir(parents=True)
    (folder / "link.png").symlink_to("/etc/passwd")
    named = SimpleNamespace(path=str(folder / "a_b.png"), orig_name="a&b.png")
    bare = SimpleNamespace(path=str(folder / "c.png"), orig_name=None)
    assert context.uploaded(None) == []
    assert context.uploaded(named) == [(named.path, "a&b.png")]
    assert context.uploaded(SimpleNamespace(root=[named, bare]))[1].name == "c.png"
    for path in (
        "/etc/passwd",
        f"{folder}/../../x.png",
        f"{folder}/link.png",
        "http://x/a.png",
    ):
        evil = SimpleNamespace(path=path, orig_name="a.png")
        with pytest.raises(Refused, match="This was not uploaded"):
            context.uploaded(SimpleNamespace(root=[named, evil]))


@pytest.mark.parametrize(
    ("columns", "guess"),
    [
        (["file", "class", "place"], ("file", "class", ["place"])),
        (["place", "Label", "path"], ("path", "Label", ["place"])),
        (["file", "answer"], ("file", "answer", [])),
        (["file", "class", "place", "time"], ("file", "class", [])),
        (["file", "a", "b"], ("file", None, [])),
        ([], (None, None, [])),
    ],
)
def test_columns_are_guessed_where_one_is_left(
    columns: list[str], guess: object
) -> None:
    assert guess_columns(columns) == guess


def test_the_embedded_model_is_known_by_its_name() -> None:
    assert is_embedded_model("miniature")
    assert is_embedded_model(FOLDER)
    assert not is_embedded_model("openai/clip-vit-base-patch32")
