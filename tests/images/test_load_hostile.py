"""Images that would take all memory or minutes are refused, by every way in."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any, cast

import families
import pytest
import torch
import transformers
from checks import picture
from cli_fixtures import call, write_labels
from internals import (
    FORMATS,
    MAX_ENLARGED_PIXELS,
    LimitedFile,
    check_enlarged,
    load_image,
)
from PIL import Image

from fair_tta.errors import ImageError


def line(width: int, height: int) -> bytes:
    """A black PNG of one bit per pixel."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    data = zlib.compress(bytes(((width + 7) // 8 + 1) * height), 9)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", data)
        + chunk(b"IEND", b"")
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
        rows.append(
            (f"{i}.png", "cat" if i % 2 else "dog", "land" if i % 4 < 2 else "water")
        )
    (tmp_path / "pics" / "wide.png").write_bytes(line(12_000, 1))
    write_labels(tmp_path / "labels.csv", [*rows, ("wide.png", "cat", "land")])
    (tmp_path / "wide.png").write_bytes(line(12_000, 1))
    (tmp_path / "high.png").write_bytes(line(1, 60_000))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (65_000, 1)).save(tmp_path / "turned.jpg", exif=exif)
    assert (tmp_path / "wide.png").stat().st_size < 120
    return tmp_path


def test_a_line_is_refused_and_the_others_are_answered(folder: Path) -> None:
    options = [
        "--targets",
        "cat,dog",
        "--model",
        str(folder / "model"),
        "--adapter",
        "zero-shot",
    ]
    out = call("predict", str(folder / "pics"), "--json", *options, code=4)
    errors = [json.loads(line)["error"] for line in out.stdout.splitlines()]
    assert errors[:-1] == [None] * 8
    assert "too long and narrow" in errors[-1]


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="bounds and measures memory as Linux does"
)
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
    longest = MAX_ENLARGED_PIXELS // 224**2
    check_enlarged(Image.new("RGB", (longest, 1)), 224, "a")
    check_enlarged(Image.new("RGB", (2, 2 * longest)), 224, "a")
    check_enlarged(Image.new("RGB", (10_000, 32)), 32, "a")  # it is not enlarged
    with pytest.raises(ImageError, match="too long and narrow"):
        check_enlarged(Image.new("RGB", (longest + 1, 1)), 224, "a")


def tiled(width: int, type_number: int = 4) -> bytes:
    """A TIFF file of 10 x 10 pixels in one tile that is said to be larger."""
    data = zlib.compress(bytes(100))
    tags = [(256, 4, 10), (257, 4, 10), (258, 3, 8), (259, 3, 8), (262, 3, 1), (277, 3, 1),
            (322, type_number, width), (323, 4, 65_520), (324, 4, 134),
            (325, 4, len(data))]  # fmt: skip
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return (
        head
        + b"".join(struct.pack("<HHII", t, k, 1, v) for t, k, v in tags)
        + bytes(4)
        + data
    )


def test_tiles_larger_than_the_picture_count() -> None:
    with pytest.raises(ImageError, match="65520 x 65520 pixels exceed the limit of"):
        load_image(tiled(65_520))
    with pytest.raises(ImageError, match="cannot read"):
        load_image(tiled(65_520, type_number=2))  # a text: 65520 times it is long


def saved(file_format: str, **options: Any) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(content, file_format, **options)
    return content.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n",
        b"SIMPLE  =                    T",
        saved("PCX"), saved("TGA"), saved("ICO"), saved("IM"), saved("SGI"),
    ],
)  # fmt: skip
def test_other_formats_are_never_parsed(data: bytes) -> None:
    with pytest.raises(
        ImageError, match="not one of JPEG, PNG, WEBP, GIF, BMP, TIFF, AVIF, JPEG2"
    ):
        load_image(data)


def test_listed_formats_are_read() -> None:
    for file_format in FORMATS:
        assert load_image(saved(file_format)).size == (8, 8)
    several = saved("MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))])
    assert load_image(several).size == (8, 8)  # as phones write


def inserted(data: bytes, index: int, part: bytes, times: int) -> bytes:
    return data[:index] + part * times + data[index:]


def chunk(name: bytes, data: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(data))
        + name
        + data
        + struct.pack(">I", zlib.crc32(name + data))
    )


def tagged(type_number: int, count: int, tag: int, size: int) -> bytes:
    """A TIFF file of 9000 x 9000 pixels with one tag of so many values."""
    tags = [(256, 4, 1, 9000), (257, 4, 1, 9000), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1),
            (273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, 1), (279, 4, 1, 64)]  # fmt: skip
    tags = sorted([t for t in tags if t[0] != tag] + [(tag, type_number, count, 500)])
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return (head + b"".join(struct.pack("<HHII", *t) for t in tags)).ljust(
        500 + size, b"\1"
    )


def scans(times: int) -> bytes:
    """A JPEG whose last scan comes again and again: each goes over all pixels."""
    content = io.BytesIO()
    Image.new("L", (4000, 4000)).save(content, "JPEG", progressive=True)
    data = content.getvalue()
    return inserted(data, len(data) - 2, data[data.rindex(b"\xff\xda") : -2], times)


JPEG, PNG, GIF = saved("JPEG"), saved("PNG"), saved("GIF")
LONG = b"\xff\xe1\xff\xffExif\0\0" + bytes(65527)
SLOW = {
    "comments of a GIF": lambda: inserted(GIF, GIF.index(b",", 13), b"!\xfe\1a\0", 800_000),
    "comments of a JPEG": lambda: inserted(JPEG, 2, b"\xff\xfe\0\2", 5 * 2**20),
    "fill bytes of a JPEG": lambda: inserted(JPEG, 2, b"\xff", 20 * 2**20),
    "EXIF of a JPEG": lambda: inserted(JPEG, 2, b"\xff\xe1\0\x09Exif\0\0a", 2**20),
    "long EXIF of a JPEG": lambda: inserted(JPEG, 2, LONG, 300),
    "scans of a JPEG": lambda: scans(2000),
    "text of a PNG": lambda: inserted(PNG, PNG.index(b"IDAT") - 4, chunk(b"tEXt", b"a\0b"), 2**20),
    "end of a PNG": lambda: inserted(PNG, PNG.index(b"IEND") - 4, chunk(b"zzZz"), 2**20),
    "header of a PPM": lambda: b"P6\n" + b"#\n" * 2**20 + b"8 8 255\n" + bytes(192),
    "values of a TIFF": lambda: tagged(5, 2**22, 282, 2**25),
    "strips of a TIFF": lambda: tagged(3, 2**23, 273, 2**24),
}  # fmt: skip
"""Each takes PIL 4 s to hours, and is refused within a fraction of that."""


@pytest.mark.parametrize("name", SLOW)
def test_what_would_take_minutes_is_refused(name: str) -> None:
    with pytest.raises(
        ImageError, match="would take too long to read, as it has more metadata"
    ):
        load_image(SLOW[name]())


def test_comments_in_plain_text() -> None:
    with pytest.raises(
        ImageError, match="is a PPM file in plain text: convert it to PNG"
    ):
        load_image(b"P3 8 8 255\n" + b"#\n" * 2**19 + b"0 " * 192)


def test_metadata_of_real_files_may_be_large() -> None:
    """Profiles, previews and depth maps have some megabytes."""
    profile = saved("JPEG", icc_profile=bytes(4 * 2**20))
    assert load_image(profile).size == (8, 8)
    assert load_image(saved("PNG", icc_profile=os.urandom(2**20))).size == (8, 8)


def sparse(path: Path, head: bytes, size: int) -> Path:
    path.write_bytes(head)
    os.truncate(path, size)
    return path


@pytest.mark.skipif(
    sys.platform != "linux", reason="disks elsewhere may not keep holes"
)
def test_files_with_holes_end_as_rows_with_a_reason(tmp_path: Path) -> None:
    huge = sparse(tmp_path / "a.webp", b"RIFF\xff\xff\xff\xffWEBPVP8 ", 60 * 2**30)
    text = r"has 64424509440 bytes, more than 512 MiB: make it smaller"
    with pytest.raises(ImageError, match=text):
        load_image(huge)
    with huge.open("rb") as file, pytest.raises(ImageError, match=text):
        load_image(file)
    sparse(tmp_path / "b.jpg", JPEG[:2], 2**29)
    (tmp_path / "c.gif").write_bytes(SLOW["comments of a GIF"]())
    (tmp_path / "d.png").write_bytes(PNG)
    out = call("predict", str(tmp_path), "--json", "--targets", "cat,dog", "--adapter", "zero-shot",
               "--model", "miniature", code=4)  # fmt: skip
    errors = [json.loads(row)["error"] for row in out.stdout.splitlines()]
    assert [bool(error) for error in errors] == [True, True, True, False]


def test_memory_is_taken_for_what_is_there_only() -> None:
    with LimitedFile(cast(io.RawIOBase, io.BytesIO(b"abcdef"))) as file:
        assert file.read(2) == b"ab"
        assert file.read(2**62) == b"cdef"
        assert file.read(2**62) == b""


def test_tensors_without_a_shape() -> None:
    parts = torch.zeros(3, 8, 8), torch.zeros(3, 4, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a prototype
        nested = torch.nested.nested_tensor(list(parts))
    with pytest.raises(ImageError, match=r"^(cannot read )?nested tensor"):
        load_image(nested)


def overlapping(tags: int, size: int) -> bytes:
    """EXIF whose tags all have the same bytes for their value: PIL copies them for each."""
    start = 14 + 12 * tags
    entries = b"".join(
        struct.pack("<HHII", 1000 + i, 7, size, start) for i in range(tags)
    )
    return b"II*\0" + struct.pack("<IH", 8, tags) + entries + bytes(4 + size)


EXIF = {
    "PNG": lambda exif: inserted(PNG, PNG.index(b"IDAT") - 4, chunk(b"eXIf", exif), 1),
    "PNG, at the end": lambda exif: inserted(PNG, PNG.index(b"IEND") - 4, chunk(b"eXIf", exif), 1),
    "PNG, as text": lambda exif: inserted(
        PNG, PNG.index(b"IDAT") - 4,
        chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(
            b"\nexif\n%8d\n" % len(exif) + exif.hex().encode() + b"\n"
        )), 1,
    ),
    "WEBP": lambda exif: saved("WEBP", exif=b"Exif\0\0" + exif),
    "AVIF": lambda exif: saved("AVIF", exif=exif),
    "JPEG": lambda exif: (
        JPEG[:2]
        + b"".join(
            b"\xff\xe1" + struct.pack(">H", len(exif[i : i + 65000]) + 8) + b"Exif\0\0"
            + exif[i : i + 65000]
            for i in range(0, len(exif), 65000)
        )
        + JPEG[2:]
    ),
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")
def test_exif_takes_no_more_memory_than_its_file(tmp_path: Path) -> None:
    """1 MB with 400 tags of 1 MB each; with 65,535 tags of 7 MB it would be 450 GB."""
    paths = [tmp_path / name for name in EXIF]
    for path in paths:
        path.write_bytes(EXIF[path.name](overlapping(400, 2**20)))
    code = (
        "import re, sys\n"
        "from fair_tta.errors import ImageError\n"
        "from fair_tta.images._load import load_image\n"
        "def peak():\n"
        "    with open('/proc/self/status') as file:\n"
        "        return int(re.search(r'VmHWM:\\s*(\\d+)', file.read())[1])\n"
        "before = peak()\n"
        "for path in sys.argv[1:]:\n"
        "    try: load_image(path)\n"
        "    except ImageError: pass\n"
        "    print((peak() - before) >> 10)\n"
    )
    command = [sys.executable, "-c", code, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    megabytes = dict(zip(EXIF, map(int, done.stdout.split()), strict=True))
    assert max(megabytes.values()) < 100, megabytes
