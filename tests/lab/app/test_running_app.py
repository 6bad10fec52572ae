"""The running app: what it refuses without a browser, and what Chromium sees of it.

One process of the app serves the module (one for each process of pytest). Every connection of it to
another machine is told in its log, and every address that the browser asks for is looked at.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import families
import pytest
from internals import draw_folder
from PIL import Image
from quiet_app import OUTSIDE
from transformers import CLIPProcessor

from app_browser import PATIENCE, AppPage, free_port, running_app, waited
from fair_tta.miniature import BIRDS
from headless import browser, missing

ROOT = Path(__file__).parents[3]


class RunningApp(NamedTuple):
    url: str
    process: subprocess.Popen[str]
    log: Path
    disk: Path
    """Its folder for temporary files."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    disk, log = tmp_path_factory.mktemp("disk"), tmp_path_factory.mktemp("log") / "log"
    command = [
        str(ROOT / "tests" / "helpers" / "quiet_app.py"),
        "app",
        "--no-open",
        "--views",
        "8",
    ]
    command += ["--port", str(free_port())]
    environment = {"TMPDIR": str(disk), "HF_HUB_OFFLINE": "1"}
    with running_app(command, log, environment) as (url, process):
        yield RunningApp(url, process, log, disk)


def answer(url: str, data: bytes | None = None, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(
        url, data, {name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, response.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode("utf-8", "replace")


def upload(url: str, *files: tuple[str, bytes]) -> tuple[int, str]:
    parts = [
        b'--cut\r\nContent-Disposition: form-data; name="files"; filename="%s"\r\n\r\n%s\r\n'
        % (name.encode(), data)
        for name, data in files
    ]
    body = b"".join(parts) + b"--cut--\r\n"
    content_type = "multipart/form-data; boundary=cut"
    return answer(f"{url}gradio_api/upload", body, Content_Type=content_type)


def posted(url: str, path: str, length: int) -> socket.socket:
    """The beginning of a request that promises so many bytes."""
    address = urllib.parse.urlsplit(url)
    connection = socket.create_connection(
        (address.hostname or "", address.port or 0), PATIENCE
    )
    lines = [
        f"POST /gradio_api/{path} HTTP/1.1", f"Host: {address.netloc}", f"Content-Length: {length}",
        "Content-Type: multipart/form-data; boundary=c",
    ]  # fmt: skip
    connection.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
    return connection


def png_header(width: int, height: int) -> bytes:
    """A PNG file that promises more than it has."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + check

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"0" * 99))
    )


def answer_events(url: str, path: str, methods: list[str], **fields: object) -> str:
    """Return the events that follow *Answer*, with data that a page would not send."""
    picture = {"path": path, "meta": {"_type": "gradio.FileData"}, **fields}
    config = json.loads(answer(f"{url}config")[1])
    event = next(d["id"] for d in config["dependencies"] if len(d["inputs"]) == 6)
    data = [picture, "cat, dog", "", "", methods, None]
    body = json.dumps(
        {"data": data, "fn_index": event, "session_hash": "evil"}
    ).encode()
    status, text = answer(
        f"{url}gradio_api/queue/join", body, Content_Type="application/json"
    )
    if status != 200:
        return text
    return answer(f"{url}gradio_api/queue/data?session_hash=evil")[1]


@pytest.mark.slow
def test_attacks_get_nothing(running: RunningApp, tmp_path: Path) -> None:
    url = running.url
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret of this disk")
    inside = next(running.disk.glob("fair-tta-app-*/examples/*.png"))

    # Files: only what the page shows, nothing by its path, no other host.
    up = os.path.join("..", *[".."] * 20)
    for path in (
        *(str(secret), f"{up}{secret}", str(ROOT / "pyproject.toml"), "pyproject.toml"),
        *("/etc/passwd", "/proc/self/environ", str(inside), str(running.disk), url),
    ):
        status, text = answer(f"{url}gradio_api/file={urllib.parse.quote(path)}")
        assert status in (403, 404), path
        assert "the secret" not in text
    for path in (
        "docs",
        "openapi.json",
        "monitoring",
        "gradio_api/info/x",
        "gradio_api/vibe-code",
    ):
        assert answer(f"{url}{path}")[0] == 404, path
    assert answer(url, Host="evil.example")[0] == 421
    assert (
        answer(f"{url}gradio_api/upload", b"", Origin="http://evil.example")[0] == 403
    )

    # Uploads: names lead nowhere, large and many are refused.
    status, text = upload(url, ("../../../../evil.png", b"x"), ("<b>.png", b"y"))
    assert status == 200
    (uploads,) = running.disk.glob("fair-tta-app-*/uploads")
    assert all(
        Path(path).resolve().is_relative_to(uploads) for path in json.loads(text)
    )
    assert upload(url, ("large.png", b"x" * (20 * 2**20 + 1)))[0] == 413
    assert upload(url, *[(f"{i}.png", b"x") for i in range(10_000)])[0] == 400

    # One that is cut off leaves nothing, and nothing else may be long.
    with posted(url, "upload", 3_000_000) as connection:
        head = '--c\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
        connection.sendall(head.encode() + b"x" * 2_000_000)
        waited(
            lambda: any(path.is_file() for path in uploads.iterdir()) or None,
            "it comes",
        )
    waited(
        lambda: not any(path.is_file() for path in uploads.iterdir()) or None, "it goes"
    )
    with posted(url, "queue/join", 150 * 2**20) as connection:
        assert connection.recv(12) == b"HTTP/1.1 413"

    # What is uploaded never becomes a page of this host, and no picture takes the memory.
    page, bomb = json.loads(
        upload(
            url,
            ("x.html", b"<script>1</script>"),
            ("x.png", png_header(60_000, 60_000)),
        )[1]
    )
    with urllib.request.urlopen(
        f"{url}gradio_api/file={page}", timeout=PATIENCE
    ) as response:
        assert response.headers["content-type"] == "application/octet-stream"
        assert response.headers["content-disposition"].startswith("attachment")
    assert "exceeds limit of 178956970 pixels" in answer_events(url, bomb, ["zero"])

    # Calls: a path is not a picture, a file of methods is not run, and no traceback comes back.
    for path, methods, fields in (
        (str(secret), ["zero"], {}),
        (str(secret), ["zero"], {"is_stream": True}),
        (f"http://x/{up}{secret}", ["zero"], {"is_stream": True}),
        (json.loads(text)[0], [f"{secret}:Method"], {}),
    ):
        events = answer_events(url, path, methods, **fields)
        assert '"success":false' in events.replace(" ", "")
        assert "the secret" not in events
        assert "Traceback" not in events
        assert "site-packages" not in events
    assert OUTSIDE not in running.log.read_text()


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}")
def test_a_visit(running: RunningApp, tmp_path: Path) -> None:
    paths, labels = draw_folder(tmp_path / "birds", BIRDS, 12)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"nonsense")
    before = len(running.log.read_text())  # what an attack has left
    with browser(logs=True) as driver:
        page = AppPage(driver, running.url)
        page.open()
        _try(page, Path(paths[0]), broken)
        _examine(page, [Path(path) for path in paths], broken)
        _audit(page, [Path(path) for path in paths], Path(labels))
        page.open(400)
        assert (
            driver.execute_script("return document.documentElement.scrollWidth") <= 400
        )
        strange = [
            requested
            for requested in page.requests()
            if not requested.startswith(
                (running.url, "data:", "blob:", "chrome:", "about:")
            )
        ]
        assert strange == []
    _ended(running)
    assert "Traceback" not in running.log.read_text()[before:]


_REMOVE = ".fair-tta-image button[aria-label='Remove Image']"


def _try(page: AppPage, picture: Path, broken: Path) -> None:
    page.find(".fair-tta-image img")
    page.press(".fair-tta-run")
    text = page.result("[data-method=association-correction]").text
    assert "The answer changed from square to circle" in text
    page.press(_REMOVE)
    page.press(".fair-tta-run")
    assert "there is no image yet" in page.result("[role=alert]").text
    page.upload(".fair-tta-image", picture)
    page.find(".fair-tta-image img")
    page.press(".fair-tta-run")
    text = page.result("[data-method=association-correction]").text
    for words in ("before", "after", "perceived: colour", "a change takes at least"):
        assert words in text
    page.choose(".fair-tta-methods", "logit-balance")
    page.upload(".fair-tta-reference", picture)
    page.uploaded(".fair-tta-reference")
    page.press(".fair-tta-run")
    page.result("[data-method=logit-balance]")
    page.choose(".fair-tta-methods", "fair-tpt")
    page.press(".fair-tta-run")
    assert "6 of 8 views were kept" in page.result("[data-method=fair-tpt]").text
    page.choose(".fair-tta-methods", "orthcali")
    page.press(".fair-tta-run")
    assert "a change takes at least" in page.result("[data-method=orthcali]").text

    page.write(".fair-tta-classes", "<script>alert(1)</script>\n<b>dog</b>")
    page.press(".fair-tta-run")
    page.until(
        lambda: "<b>dog</b>" in page.find(".fair-tta-result").text, "names as they are"
    )
    assert (
        page.driver.execute_script(
            "return document.querySelectorAll('.fair-tta-answers b').length"
        )
        == 0
    )

    page.open()
    page.press(_REMOVE)
    page.upload(".fair-tta-image", broken)
    page.find(".fair-tta-image img")
    page.press(".fair-tta-run")
    text = page.result("[role=alert]").text
    assert text.startswith("cannot read 'broken.png': not one of JPEG, PNG")


def _examine(page: AppPage, pictures: list[Path], broken: Path) -> None:
    page.tab("Examine")
    page.upload(".fair-tta-images", *pictures, broken)
    page.uploaded(".fair-tta-images")
    page.press(".fair-tta-run")
    text = page.inside(page.result("iframe"))
    assert "on 12 images without labels" in text
    assert "1 of 13 images could not be used." in text
    downloads = page.find(".fair-tta-downloads").text.replace("\n", "")
    assert "examine.json" in downloads
    assert "problems.csv" in downloads


def _audit(page: AppPage, pictures: list[Path], labels: Path) -> None:
    page.tab("Audit")
    page.upload(".fair-tta-images", *pictures)
    page.uploaded(".fair-tta-images")
    page.press(".fair-tta-run")
    assert "there is no CSV file yet" in page.result("[role=alert]").text
    page.upload(".fair-tta-csv", labels)
    page.until(
        lambda: page.find(".fair-tta-target input").get_attribute("value") == "class",
        "it",
    )
    assert (
        "background" in page.find(".fair-tta-attributes").text
    )  # the only one that is left
    page.press(".fair-tta-run")
    text = page.inside(page.result("iframe"))
    assert "12 images" in text
    assert "water bird / land" in text
    downloads = page.find(".fair-tta-downloads").text.replace("\n", "")
    assert all(
        name in downloads
        for name in ("report.html", "audit.json", "card.md", "predictions.csv")
    )
    assert "problems.csv" not in downloads
    page.choose(".fair-tta-methods", "bend-vlm")
    page.press(".fair-tta-run")
    assert "bend-vlm cannot be used here" in page.result("[role=alert]").text


def _ended(running: RunningApp) -> None:
    """After Ctrl-C nothing is left, and it was quiet all the time."""
    assert list(running.disk.glob("fair-tta-app-*/uploads/*"))
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(PATIENCE) == 0
    assert list(running.disk.glob("fair-tta-app-*")) == []
    assert OUTSIDE not in running.log.read_text()


@pytest.mark.slow
def test_the_space_starts_with_a_model_of_its_own(tmp_path: Path) -> None:
    model, images, tokenizer = families.seeded(families.clip)
    model.save_pretrained(tmp_path / "tiny-clip")
    CLIPProcessor(images, tokenizer).save_pretrained(tmp_path / "tiny-clip")
    space = ROOT / "examples" / "space"
    front = (space / "README.md").read_text("utf-8").split("---")[1]
    assert "sdk: gradio" in front
    assert "app_file: app.py" in front
    assert (space / "requirements.txt").read_text() == "fair-tta[app]\n"
    environment = {
        "TMPDIR": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "GRADIO_SERVER_PORT": str(free_port()),
        "FAIR_TTA_MODEL": str(tmp_path / "tiny-clip"),
    }
    command = [str(ROOT / "tests" / "helpers" / "quiet_app.py"), str(space / "app.py")]
    log = tmp_path / "log"
    with running_app(command, log, environment) as (url, process):
        status, text = answer(
            url.replace("0.0.0.0", "127.0.0.1"), Host="me-fair-tta.hf.space"
        )
        assert status == 200
        assert "at most 200, 5 MB each" in text
        assert "tiny-clip" in text
        assert "miniature" not in text
        assert "Images go to the machine that runs this app" in text
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert list(tmp_path.glob("fair-tta-app-*")) == []
    assert OUTSIDE not in log.read_text()


def test_pictures_of_the_documentation_are_small() -> None:
    for name in ("try", "examine", "audit"):
        path = ROOT / "docs" / f"app-{name}.png"
        assert path.stat().st_size < 150_000
        with Image.open(path) as image:
            assert image.width == 1280
