"""load_image: every kind of picture comes out as PIL would show it, or as an ImageError."""

from __future__ import annotations

import copy
import gc
import io
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import is_single_image, load_image
from PIL import Image, ImageOps

from fair_tta.errors import ImageError

FORMATS = ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"]
PLAIN_MODES = ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK"]
PLAIN_MODES += ["YCbCr", "LAB", "HSV"]
DEEP_MODES = ["I", "I;16", "I;16B", "I;16L", "F"]
light = settings(max_examples=40, deadline=None, database=None)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def picture(mode: str, width: int = 7, height: int = 5) -> Image.Image:
    """A picture of any mode, with as much noise in it as the mode can hold."""
    rgba = Image.fromarray(noise(height, width, 4))
    if mode.startswith("I;16"):
        file_format = ">u2" if mode == "I;16B" else "<u2"
        values = noise(height, width).astype(np.uint16) * 257
        return Image.frombytes(
            mode, (width, height), values.astype(file_format).tobytes()
        )
    if mode == "La":
        return rgba.convert("LA").convert("La")
    if mode == "PA":
        return rgba.convert("RGB").convert("P").convert("PA")
    return (
        rgba.convert("RGB").convert(mode)
        if mode in ("LAB", "HSV")
        else rgba.convert(mode)
    )


def encoded(image: Image.Image, file_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def png_claiming(width: int, height: int) -> bytes:
    """The start of a PNG of that size, with hardly any pixels behind it."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data))
            + name
            + data
            + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 100))
        + chunk(b"IEND", b"")
    )


def is_same_image(loaded: Image.Image, expected: Image.Image) -> bool:
    return (
        loaded.mode == "RGB"
        and loaded.size == expected.size
        and loaded.tobytes() == expected.tobytes()
    )


def refusal(image: Any) -> str:
    """The text with which load_image refuses the image."""
    with pytest.raises(ImageError) as caught:
        load_image(image)
    return str(caught.value)


def attempt(image: Any) -> Image.Image | ImageError:
    """The picture or the refusal: nothing else may come of it."""
    try:
        return load_image(image)
    except ImageError as error:
        return error


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No warning and no changed filter or PIL setting, whatever a test has loaded."""
    limit = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        filters = list(warnings.filters)
        yield
        assert list(warnings.filters) == filters
    assert [str(w.message) for w in caught] == []
    assert limit == Image.MAX_IMAGE_PIXELS


# PIL images


@pytest.mark.parametrize("mode", PLAIN_MODES)
def test_eight_bit_mode_equals_convert(mode: str) -> None:
    image = picture(mode)
    assert is_same_image(load_image(image), image.convert("RGB"))


def test_premultiplied_grey_equals_the_grey_it_was_made_from() -> None:
    image = picture("La")
    assert is_same_image(load_image(image), image.convert("LA").convert("RGB"))


@pytest.mark.parametrize("transparency", [0, 3, bytes(range(256)), b"\x00\x80", None])
def test_palette_colours_do_not_depend_on_transparency(
    transparency: int | bytes | None,
) -> None:
    opaque = picture("P")
    image = opaque.copy()
    if transparency is not None:
        image.info["transparency"] = transparency
    assert is_same_image(load_image(image), opaque.convert("RGB"))
    if transparency is not None:
        data = encoded(opaque, "PNG", transparency=transparency)
        assert is_same_image(load_image(data), opaque.convert("RGB"))


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_transparent_colour_is_ignored(mode: str) -> None:
    image = picture(mode)
    colour = image.getpixel((0, 0))
    assert is_same_image(
        load_image(encoded(image, "PNG", transparency=colour)), image.convert("RGB")
    )


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "I;16L"])
def test_sixteen_bits_are_scaled_not_clipped(mode: str) -> None:
    assert is_same_image(
        load_image(picture(mode)), Image.fromarray(noise(5, 7)).convert("RGB")
    )


@given(st.integers(0, 65535))
@light
def test_sixteen_bits_are_rounded_to_the_nearest_level(value: int) -> None:
    level = round(value / 257)
    for image in (
        Image.new("I;16", (1, 1), value),
        np.full((1, 1), value, np.uint16),
        np.full((1, 1), value, ">u2"),
        torch.full((1, 1), value, dtype=torch.int32).to(torch.uint16),
    ):
        assert load_image(image).getpixel((0, 0)) == (level,) * 3


@pytest.mark.parametrize(
    ("mode", "values", "levels"),
    [
        ("I", [0, 7, 255], [0, 7, 255]),
        ("I", [0, 257, 65535], [0, 1, 255]),
        ("F", [0.0, 0.2, 1.0], [0, 51, 255]),
        ("F", [-0.0005, 0.5, 1.0005], [0, 128, 255]),
        ("F", [0.0, 1.6, 255.0], [0, 2, 255]),
    ],
)
def test_range_of_deep_grey_is_told_by_its_values(
    mode: str, values: list[float], levels: list[int]
) -> None:
    image = Image.new(mode, (3, 1))
    for x, value in enumerate(values):
        image.putpixel((x, 0), value)
    assert [load_image(image).getpixel((x, 0)) for x in range(3)] == [
        (k,) * 3 for k in levels
    ]


@pytest.mark.parametrize("mode", [*PLAIN_MODES, "La", *DEEP_MODES])
def test_input_is_not_modified_and_not_shared(mode: str) -> None:
    image = picture(mode)
    image.info["transparency"] = 1
    image.getexif()[0x0112] = 6
    before = (
        image.mode,
        image.size,
        image.tobytes(),
        dict(image.info),
        dict(image.getexif()),
    )
    loaded = load_image(image)
    loaded.paste((1, 2, 3), (0, 0, *loaded.size))
    assert loaded is not image
    assert before == (
        image.mode,
        image.size,
        image.tobytes(),
        dict(image.info),
        dict(image.getexif()),
    )


# EXIF


def oriented(orientation: int, file_format: str) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(picture("RGB", 9, 6), file_format, exif=exif)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_once(
    file_format: str, orientation: int, tmp_path: Path
) -> None:
    data = oriented(orientation, file_format)
    path = tmp_path / "turned"
    path.write_bytes(data)
    with Image.open(io.BytesIO(data)) as image:
        expected = ImageOps.exif_transpose(image)
    assert expected.size == ((6, 9) if orientation > 4 else (9, 6))
    assert is_same_image(load_image(data), expected)
    assert is_same_image(load_image(path), expected)
    with Image.open(path) as image:
        assert is_same_image(load_image(image), expected)
        assert is_same_image(load_image(image), expected)
    assert is_same_image(load_image(load_image(data)), expected)
    assert is_same_image(ImageOps.exif_transpose(load_image(data)), expected)


@pytest.mark.parametrize("mode", ["P", "L", "I;16", "RGBA"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turning_and_converting_commute(mode: str, orientation: int) -> None:
    image = picture(mode)
    image.getexif()[0x0112] = orientation
    assert is_same_image(load_image(image), load_image(ImageOps.exif_transpose(image)))


@pytest.mark.parametrize("orientation", [0, 9, 255])
def test_meaningless_orientation_is_ignored(orientation: int) -> None:
    with Image.open(io.BytesIO(oriented(orientation, "PNG"))) as image:
        assert is_same_image(
            load_image(oriented(orientation, "PNG")), image.convert("RGB")
        )


@given(st.binary(max_size=60))
@light
def test_broken_exif_does_not_cost_the_picture(junk: bytes) -> None:
    image = picture("RGB")
    for exif in (junk, b"Exif\0\0" + junk, b"Exif\0\0MM\0*\0\0\0\x08" + junk):
        loaded = load_image(encoded(image, "PNG", exif=exif))
        assert sorted(loaded.size) == sorted(image.size)


def test_only_running_out_of_memory_passes_when_exif_is_read() -> None:
    image = picture("RGB")
    with mock.patch.object(Image.Image, "getexif", side_effect=SyntaxError):
        assert is_same_image(load_image(image), image)
    with (
        mock.patch.object(Image.Image, "getexif", side_effect=MemoryError),
        pytest.raises(MemoryError),
    ):
        load_image(image)


# Files and bytes


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_way_to_a_file_gives_the_same_picture(
    file_format: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{file_format.lower()}"
    path.write_bytes(data := encoded(picture("RGB"), file_format))
    with Image.open(path) as image:
        expected = image.convert("RGB")
        assert is_same_image(load_image(image), expected)
    buffer = io.BytesIO(data)
    buffer.seek(0, os.SEEK_END)
    with path.open("rb") as file, os.scandir(os.fsencode(tmp_path)) as entries:
        sources: list[Any] = [
            str(path),
            path,
            next(entries),
            data,
            bytearray(data),
            memoryview(data),
        ]
        sources += [file, buffer, Stream(data)]
        for source in sources:
            assert is_single_image(source)
            assert is_same_image(load_image(source), expected)


class Stream:
    """A file object that cannot seek, such as the body of a download."""

    def __init__(self, data: Any = b"", error: BaseException | None = None) -> None:
        self.data, self.error = data, error

    def read(self, size: int = -1) -> Any:
        if self.error is not None:
            raise self.error
        return self.data


def test_strided_bytes_are_read() -> None:
    data = encoded(picture("RGB"), "PNG")
    doubled = bytes(byte for byte in data for _ in range(2))
    assert is_same_image(load_image(memoryview(doubled)[::2]), picture("RGB"))


@pytest.mark.parametrize("file_format", ["GIF", "TIFF", "PNG", "WEBP"])
def test_first_frame_of_a_file_and_current_frame_of_a_picture(file_format: str) -> None:
    red = Image.new("RGB", (6, 4), "red")
    blue = Image.new("RGB", (6, 4), "blue")
    options = {"lossless": True} if file_format == "WEBP" else {}
    data = encoded(red, file_format, save_all=True, append_images=[blue], **options)
    assert is_same_image(load_image(data), red)
    with Image.open(io.BytesIO(data)) as image:
        image.seek(1)
        assert is_same_image(load_image(image), blue)
        assert image.tell() == 1


@pytest.mark.parametrize("file_format", FORMATS)
@given(st.data())
@light
def test_truncated_bytes_decode_or_are_refused(
    file_format: str, data: st.DataObject
) -> None:
    complete = encoded(picture("RGB", 40, 30), file_format)
    cut = complete[: data.draw(st.integers(0, len(complete)))]
    loaded = attempt(cut)
    if isinstance(loaded, ImageError):
        assert f"bytes of length {len(cut)}" in str(loaded)
        assert loaded.__cause__ is not None
    else:
        assert (loaded.mode, loaded.size) == ("RGB", (40, 30))


@pytest.mark.parametrize("file_format", FORMATS)
@given(st.data())
@light
def test_damaged_bytes_decode_or_are_refused(
    file_format: str, data: st.DataObject
) -> None:
    damaged = bytearray(encoded(picture("RGB", 12, 9), file_format))
    spots = st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255))
    for index, value in data.draw(st.lists(spots, min_size=1, max_size=8)):
        damaged[index] = value
    with mock.patch.object(Image, "MAX_IMAGE_PIXELS", 10_000):
        loaded = attempt(damaged)
    if isinstance(loaded, ImageError):
        assert f"bytes of length {len(damaged)}" in str(loaded)
    else:
        assert loaded.mode == "RGB"


@pytest.mark.parametrize("file_format", FORMATS)
def test_no_file_is_left_open(file_format: str, tmp_path: Path) -> None:
    complete, cut = tmp_path / "whole", tmp_path / "cut"
    complete.write_bytes(data := encoded(picture("RGB", 40, 30), file_format))
    cut.write_bytes(data[: len(data) // 2])
    load_image(complete)
    refusal(cut)
    refusal(png_claiming(60_000, 60_000))
    gc.collect()  # a file still open would warn here, and the fixture would see it


def test_truncated_lazy_picture_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lazy.png"
    data = encoded(picture("RGB", 40, 30), "PNG")
    path.write_bytes(data[: len(data) // 2])
    for name in (str(path), path):
        with Image.open(name) as image:
            text = refusal(image)
            assert f"PIL image {str(path)!r}" in text
            assert "damaged or cut short" in text


def test_closed_picture_is_refused() -> None:
    image = picture("RGB")
    image.close()
    assert "cannot read PIL image of mode RGB" in refusal(image)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs Unix file permissions")
def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "secret.png"
    path.write_bytes(encoded(picture("RGB"), "PNG"))
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may read everything
    try:
        text = refusal(path)
    finally:
        os.seteuid(user)
    assert repr(str(path)) in text
    assert "permission denied. Make it a file" in text


@pytest.mark.parametrize("path", ["a\0b.png", "a" * 5000, ""])
def test_impossible_path(path: str) -> None:
    text = refusal(path)
    assert text.startswith("cannot read '")
    assert len(text) < 800


@pytest.mark.parametrize(
    "width", [60_000, 10_000]
)  # above PIL's error and its warning level
def test_huge_file_is_refused_before_it_is_decoded(width: int, tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    path.write_bytes(png_claiming(width, width))
    for image in (path, path.read_bytes(), io.BytesIO(path.read_bytes())):
        text = refusal(image)
        assert "limit" in text
        assert "raise PIL.Image.MAX_IMAGE_PIXELS if you trust it" in text
    assert repr(str(path)) in refusal(path)


@pytest.mark.parametrize(
    ("limit", "loads"), [(35, True), (34, False), (17, False), (None, True)]
)
def test_limit_is_the_one_set_in_pil(limit: int | None, loads: bool) -> None:
    image = picture("RGB", 7, 5)
    with mock.patch.object(Image, "MAX_IMAGE_PIXELS", limit):
        assert is_same_image(load_image(image), image)  # the user has opened it
        if loads:
            assert is_same_image(load_image(encoded(image, "PNG")), image)
        else:
            assert "limit" in refusal(encoded(image, "PNG"))


@pytest.mark.parametrize(
    "error_class",
    [OSError, SyntaxError, struct.error, zlib.error, IndexError, TypeError, AssertionError,
     RecursionError, Image.DecompressionBombError, UserWarning],
)  # fmt: skip
def test_whatever_breaks_is_an_image_error_with_its_cause(
    error_class: type[Exception],
) -> None:
    error = error_class("why")
    with pytest.raises(ImageError, match=r"cannot read Stream: '?why") as caught:
        load_image(cast("Any", Stream(error=error)))
    assert caught.value.__cause__ is error
    image = picture("RGB")
    with mock.patch.object(Image.Image, "load", side_effect=error):
        text = refusal(image)
    assert text.startswith("cannot read PIL image of mode RGB: ")
    assert "why" in text


@pytest.mark.parametrize("error_class", [KeyboardInterrupt, MemoryError, SystemExit])
def test_what_is_not_the_images_fault_passes(error_class: type[BaseException]) -> None:
    with pytest.raises(error_class):
        load_image(cast("Any", Stream(error=error_class())))


# Arrays and tensors

sizes = st.integers(5, 9)  # more than the channels, so that no axis is in doubt


@given(sizes, sizes, st.sampled_from([None, 1, 2, 3, 4]), st.integers(0, 99))
@light
def test_layouts_and_types_agree_bit_for_bit(
    height: int, width: int, channels: int | None, seed: int
) -> None:
    shape = (height, width) if channels is None else (height, width, channels)
    hwc = noise(*shape, seed=seed)
    grey = channels in (None, 1, 2)
    colours = (
        np.repeat(hwc.reshape(height, width, -1)[..., :1], 3, 2)
        if grey
        else hwc[..., :3]
    )
    expected = Image.fromarray(np.ascontiguousarray(colours))
    chw = hwc if channels is None else hwc.transpose(2, 0, 1)
    for array in (hwc, chw):
        units = array / 255
        tensor = torch.from_numpy(array.copy())
        for image in (
            *(
                array,
                array.astype(np.int64),
                array.astype(np.uint32),
                array.astype(np.int16),
            ),
            *(array.astype(np.uint16) * 257, np.asfortranarray(array)),
            *(
                units,
                units.astype(np.float32),
                units.astype(np.float16),
                units.astype(">f4"),
            ),
            *(tensor, tensor.long(), tensor.int().mul(257).to(torch.uint16)),
            *(tensor / 255, tensor.double() / 255, (tensor / 255).half()),
            (tensor / 255).requires_grad_(),
        ):
            assert is_single_image(image)
            assert is_same_image(load_image(image), expected)


@given(st.integers(0, 255))
@light
def test_bfloat16_is_within_a_level(level: int) -> None:
    grey = torch.full((3, 5, 5), level / 255, dtype=torch.bfloat16)
    loaded: Any = load_image(grey).getpixel((0, 0))
    assert all(abs(value - level) <= 1 for value in loaded)
    assert level not in (0, 255) or loaded == (level,) * 3


@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
def test_bool_is_black_and_white(make: Callable[..., Any]) -> None:
    mask = noise(5, 6) > 100
    assert is_same_image(load_image(make(mask)), Image.fromarray(mask).convert("RGB"))


@pytest.mark.parametrize(
    "shape", [(3, 5, 3), (3, 3, 3), (1, 5, 4), (4, 2, 1), (2, 2, 2)]
)
def test_doubtful_layout_follows_the_library(shape: tuple[int, int, int]) -> None:
    array = noise(*shape)
    assert load_image(array).size == (shape[1], shape[0])
    assert load_image(torch.from_numpy(array)).size == (shape[2], shape[1])
    moved = np.ascontiguousarray(array.transpose(2, 0, 1))
    assert is_same_image(load_image(torch.from_numpy(moved)), load_image(array))


@pytest.mark.parametrize(
    "shape", [(1, 1), (5, 1), (1, 5), (5, 1, 3), (3, 1, 5), (1, 5, 5)]
)
def test_an_axis_of_one_is_no_obstacle(shape: tuple[int, ...]) -> None:
    known: dict[Any, Any] = {(5, 1, 3): (1, 5), (3, 1, 5): (5, 1), (1, 5, 5): (5, 5)}
    expected = known.get(shape, shape[1::-1])
    assert load_image(noise(*shape)).size == expected


def test_views_are_read_and_inputs_left_alone() -> None:
    base = noise(8, 9, 3)
    base.setflags(write=False)
    for view in (base[::-1], base[:, ::2], base[2:, 3:], base[..., ::-1]):
        assert is_same_image(
            load_image(view), Image.fromarray(np.ascontiguousarray(view))
        )
    for dtype in (np.uint8, np.float32, np.bool_, np.uint16):
        for array in (np.ones((5, 6, 3), dtype), np.ones((5, 6), dtype)):
            before, loaded = copy.deepcopy(array), load_image(array)
            kept = loaded.tobytes()
            assert (array == before).all()
            assert array.dtype == before.dtype
            array[:] = 0
            assert loaded.tobytes() == kept
    tensor = torch.rand(3, 5, 6, requires_grad=True)
    before_tensor = tensor.detach().clone()
    load_image(tensor)
    assert tensor.requires_grad
    assert torch.equal(tensor, before_tensor)


def test_slight_overshoot_of_floats_is_clipped() -> None:
    array = np.array([[-0.0009, 0.5, 1.0009]])
    loaded = load_image(array)
    levels = [loaded.getpixel((x, 0)) for x in range(3)]
    assert levels == [(0, 0, 0), (128, 128, 128), (255, 255, 255)]


@given(st.floats(width=32) | st.integers(-5, 1005).map(lambda k: k / 1000))
@light
def test_a_float_is_a_level_or_refused(value: float) -> None:
    loaded = attempt(np.full((5, 5), value, np.float32))
    if isinstance(loaded, ImageError):
        assert not -0.00099 <= value <= 1.00099
    else:
        assert -0.00101 <= value <= 1.00101
        level: Any = loaded.getpixel((0, 0))
        assert abs(level[0] - min(max(value, 0.0), 1.0) * 255) < 0.501


def test_tensors_without_values_are_refused() -> None:
    assert "pass a dense tensor" in refusal(torch.empty(3, 5, 5, device="meta"))
    assert "pass a dense tensor" in refusal(torch.eye(5).to_sparse())


# is_single_image


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_arrays_of_up_to_three_axes_are_single(make: Callable[..., Any]) -> None:
    assert is_single_image(make((5, 5)))
    assert is_single_image(make((5, 5, 3)))
    assert not is_single_image(make((1, 3, 5, 5)))


@pytest.mark.parametrize("images", [None, 5, [b"x"], ("a.png",), {}, iter("a")])
def test_collections_and_other_things_are_not_single(images: Any) -> None:
    assert not is_single_image(images)
