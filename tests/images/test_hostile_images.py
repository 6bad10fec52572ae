"""Images that would take all memory are refused, by every way in."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import families
import pytest
import transformers
from checks import picture
from cli_fixtures import call, write_labels
from PIL import Image

from fair_tta import ImageError
from fair_tta._images.load import MOST_ENLARGED, check_enlarged, load_image

TABLE = """
[[folder]]
name = "pets"
images = "pics"
labels = "labels.csv"
target_column = "animal"
template = "a photo of a {target} {sensitive}."
targets = ["cat", "dog"]
sensitive.place = ["land", "water"]
[[setting]]
adapter = "zero-shot"
"""


def line(width: int, height: int) -> bytes:
    """A black PNG of one bit per pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    data = zlib.compress(bytes(((width + 7) // 8 + 1) * height), 9)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that takes 224 pixels, eight good pictures, and one of a hundred bytes."""
    monkeypatch.setattr(families, "SIZE", 224)
    model, images, tokenizer = families.seeded(families.clip)
    model.save_pretrained(tmp_path / "model")
    transformers.CLIPProcessor(images, tokenizer).save_pretrained(tmp_path / "model")
    (tmp_path / "pics").mkdir()
    rows = []
    for i in range(8):
        picture(i).save(tmp_path / "pics" / f"{i}.png")
        rows.append((f"{i}.png", "cat" if i % 2 else "dog", "land" if i % 4 < 2 else "water"))
    (tmp_path / "pics" / "wide.png").write_bytes(line(12_000, 1))
    write_labels(tmp_path / "labels.csv", [*rows, ("wide.png", "cat", "land")])
    (tmp_path / "table.toml").write_text(TABLE, "utf-8")
    (tmp_path / "wide.png").write_bytes(line(12_000, 1))
    (tmp_path / "high.png").write_bytes(line(1, 60_000))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (65_000, 1)).save(tmp_path / "turned.jpg", exif=exif)
    assert (tmp_path / "wide.png").stat().st_size < 120
    return tmp_path


def test_a_line_is_refused_and_the_others_are_answered(folder: Path) -> None:
    options = ["--targets", "cat,dog", "--model", str(folder / "model"), "--adapter", "zero-shot"]
    out = call("predict", str(folder / "pics"), "--json", *options, code=4)
    errors = [json.loads(line)["error"] for line in out.stdout.splitlines()]
    assert errors[:-1] == [None] * 8
    assert "too long and narrow" in errors[-1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="bounds and measures memory as Linux does")
def test_a_hundred_bytes_do_not_take_gigabytes(folder: Path) -> None:
    script = Path(__file__).parents[1] / "helpers" / "hostile_run.py"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True, text=True, env=environment, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) < 400  # megabytes


def test_the_bound_is_on_what_preprocessing_makes() -> None:
    longest = MOST_ENLARGED // 224**2
    check_enlarged(Image.new("RGB", (longest, 1)), 224, "a")
    check_enlarged(Image.new("RGB", (2, 2 * longest)), 224, "a")
    check_enlarged(Image.new("RGB", (10_000, 32)), 32, "a")  # it is not enlarged
    text = (
        rf"^cannot use 'a': {longest + 1} x 1 pixels are too long and narrow\. Enlarging the short "
        r"edge to 224, as the model's preprocessing may do, would give 224 x "
        rf"{224 * (longest + 1)} pixels, more than {MOST_ENLARGED}\. Cut out the part that matters$"
    )
    with pytest.raises(ImageError, match=text):
        check_enlarged(Image.new("RGB", (longest + 1, 1)), 224, "a")


def tiled(width: int, kind: int = 4) -> bytes:
    """A TIFF file of 10 x 10 pixels in one tile that is said to be larger."""
    data = zlib.compress(bytes(100))
    tags = [(256, 4, 10), (257, 4, 10), (258, 3, 8), (259, 3, 8), (262, 3, 1), (277, 3, 1),
            (322, kind, width), (323, 4, 65_520), (324, 4, 134), (325, 4, len(data))]  # fmt: skip
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return head + b"".join(struct.pack("<HHII", t, k, 1, v) for t, k, v in tags) + bytes(4) + data


def test_tiles_larger_than_the_picture_count() -> None:
    with pytest.raises(ImageError, match="65520 x 65520 pixels exceed the limit of"):
        load_image(tiled(65_520))
    with pytest.raises(ImageError, match="cannot read"):
        load_image(tiled(65_520, kind=2))  # a text: 65520 times it is long


def test_programs_are_no_pictures() -> None:
    data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    with pytest.raises(ImageError, match="is an EPS file, which is a program: convert it to PNG"):
        load_image(data)
