"""The ways into the library for what others made: a function for each, with one odd input.

Each returns a word for what came of it, or raises. All is drawn from the given random numbers, so
an input can be had again by its number.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import openpyxl
import pyarrow
import pyarrow.parquet
import torch
from internals import (
    ADAPTERS,
    ROWS_FILE,
    AugMix,
    Labels,
    Problem,
    RowKey,
    Store,
    StoredRow,
    _reference_digest,
    parse_adapter,
)
from mutations import mutated, mutated_json, mutated_text, with_true_checksums
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from fair_tta import FairTPTClassifier, LogitBalance, Prediction, ZeroShot, miniature
from fair_tta.auditing import Audit, Examination, audit
from fair_tta.lab.report import examination_html, html, markdown
from fair_tta.methods import load_adapter
from fair_tta.metrics import Bootstrap
from fair_tta.models import Backend, resolve

ANSWER, REASON = "answer", "row with a reason"
SQLITE_HEADER = 100
"""Bytes: of the format of the file, and its version."""
Door = Callable[[Random, Path], str]

_LABELS = (
    'file,animal,place\n"a.png",cat,land\nb.png,dog,sea\nc.png,cat,"se\na"\nd.png,,land\n'
    * 20
)
_SETTINGS = (
    "fair-tpt:lam=10,rate.beta=0.05,loss.joint=true", "tpt:rate.lr=0.005,rho=0.1,steps=2",
    "fair-tpt+orthcali:lam=0", "zero:rho=0.5", "fair-tpt-mo:lam=1", "roboshot:strength=1",
    "association-correction:strength=0.5", "tpt:rate.lr=1e38", "tpt:rate.optimizer=sgd",
    "logit-balance:reference=b.safetensors", "soft_vote.py:SoftVote:factor=3", *ADAPTERS,
)  # fmt: skip


_NUMBERS = (
    0,
    -0.0,
    1e-30,
    0.05,
    0.5,
    1,
    1.5,
    3,
    100,
    1e6,
    1e30,
    1e38,
    1e300,
    -1,
    math.nan,
    math.inf,
)


@cache
def backend() -> Backend:
    return resolve("miniature")


@cache
def classifier() -> FairTPTClassifier:
    task = miniature.BIRDS
    return FairTPTClassifier(
        backend(), task.targets, task.sensitive, task.template, adapter=ZeroShot(),
        views=AugMix(4),
    )  # fmt: skip


@cache
def drawn() -> Image.Image:
    return miniature.BIRDS.draw(1, seed=3)[0].image


@cache
def files() -> list[tuple[str, bytes]]:
    """The same picture in every format that PIL writes here."""
    images = []
    modes = ("RGB", "L", "P", "RGBA", "1", "CMYK", "I;16", "F")
    Image.init()
    for name in sorted(set(Image.SAVE) - {"PDF", "EPS", "XBM"}):
        for mode in modes:
            content = io.BytesIO()
            try:
                drawn().convert("L" if mode in ("I;16", "F") else mode).convert(
                    mode
                ).save(content, name)
            except (OSError, ValueError, KeyError):
                continue
            images.append((name, content.getvalue()))
    turned, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    drawn().save(turned, "JPEG", exif=exif, progressive=True)
    return [*images, ("JPEG", turned.getvalue())]


def images(random: Random, folder: Path) -> str:
    """A file of a picture, damaged: as bytes, as a path, or opened with PIL first."""
    file_format, data = random.choice(files())
    data = mutated(random, data, [content for _, content in files()])
    data = (
        with_true_checksums(data)
        if file_format == "PNG" and random.random() < 0.7
        else data
    )
    if random.random() < 0.5:
        classifier().predict(data)
    else:
        path = folder / f"picture.{file_format.lower()}"
        path.write_bytes(data)
        classifier().predict(path)
    return ANSWER


def arrays(random: Random, folder: Path) -> str:
    """Arrays and tensors of any shape, kind and range: as an image, in a list, as views."""
    numbers = np.random.default_rng(random.getrandbits(32))
    shape = tuple(
        random.choice((0, 1, 2, 3, 4, 7, 64, 500)) for _ in range(random.randint(0, 5))
    )
    shape = shape if np.prod(shape, dtype=np.float64) < 1e6 else shape[:2]
    dtype = random.choice(
        ("?", "u1", "u2", "u4", "i1", "i8", "f2", "f4", "f8", "c8", "O", "U2", "M8[s]")
    )
    low, high = sorted(random.choice((0, 1, 255, 65535, -1, 1e30)) for _ in range(2))
    plain: Any = numbers.uniform(low, high, shape)
    with np.errstate(all="ignore"):
        plain = (
            plain.astype("i8").astype(dtype)
            if dtype == "M8[s]"
            else plain.astype(dtype)
        )
    if random.random() < 0.2 and plain.dtype.kind == "f" and plain.size:
        plain.flat[0] = random.choice((np.nan, np.inf, -np.inf))
    if random.random() < 0.3 and plain.ndim:
        plain = random.choice(
            (plain[::-1], plain.T, np.ma.masked_array(plain), plain[..., ::2])
        )
    array: Any = plain
    if random.random() < 0.5 and plain.dtype.kind in "biufc":
        array = torch.from_numpy(np.array(plain, order="C"))
        change = random.choice(
            (
                "",
                "bfloat16",
                "meta",
                "sparse",
                "grad",
                "nested",
                "quantised",
                "inference",
            )
        )
        with torch.inference_mode(change == "inference"):
            array = _odd(array, change)
    if random.random() < 0.3:
        array = [array, drawn()]
    if random.random() < 0.3:
        clf = classifier().with_views(array).with_adapter(parse_adapter("zero"))
        clf.predict(drawn())
        return ANSWER
    answers = classifier().predict(array)
    for prediction in [answers] if isinstance(answers, Prediction) else answers:
        assert abs(sum(prediction.probabilities.values()) - 1) < 1e-3
    return ANSWER


def _odd(tensor: torch.Tensor, change: str) -> Any:
    if change == "bfloat16" and not tensor.is_complex():
        return tensor.bfloat16()
    if change == "meta":
        return tensor.to("meta")
    if (
        change == "sparse"
        and tensor.ndim
        and tensor.dtype in (torch.float32, torch.float64)
    ):
        return tensor.to_sparse()
    if change == "grad" and tensor.is_floating_point():
        return tensor.requires_grad_()
    if (
        change == "nested"
        and tensor.ndim
        and tensor.dtype in (torch.float32, torch.uint8)
    ):
        return torch.nested.nested_tensor([tensor, tensor])
    if change == "quantised" and tensor.dtype == torch.float32:
        return torch.quantize_per_tensor(tensor, 0.1, 0, torch.quint8)
    return tensor.clone()


def names(random: Random, folder: Path) -> str:
    """Names and templates that are odd, of odd types, too long or too many."""

    def name() -> Any:
        if random.random() < 0.1:
            return random.choice((None, 3, 2.5, b"x", (), ["x"], object()))
        if random.random() < 0.7:
            return f"cat {random.randrange(10_000)}"
        return mutated_text(
            random, random.choice(("cat", "water bird", "a person, smiling", "x"))
        )

    def several() -> Any:
        names = [name() for _ in range(random.choice((0, 1, 2, 2, 2, 3, 30)))]
        if random.random() < 0.3:
            return {str(i): value for i, value in enumerate(names)}
        return (
            random.choice((names, tuple(names), iter(names), name()))
            if random.random() < 0.3
            else names
        )

    sensitive = random.choice((None, several(), {str(name()): several()}))
    template = random.choice(
        ("a photo of a {target} {sensitive}.", "{}", "a {target}.", None)
    )
    if template is not None and random.random() < 0.7:
        template = mutated_text(random, template)
    clf = FairTPTClassifier(
        backend(), several(), sensitive, template, adapter=ZeroShot(), views=AugMix(1)
    )
    prediction = clf.predict(drawn())
    str(prediction), repr(clf), clf._repr_html_(), prediction.to_dict()
    return ANSWER


def adapters(random: Random, folder: Path) -> str:
    """The text form of methods, changed; what can be made answers once."""
    text = random.choice(_SETTINGS)
    if random.random() < 0.5:
        text = mutated_text(random, text)
    else:
        text = re.sub(r"[\d.]+", lambda _: f"{random.choice(_NUMBERS):g}", text)
    adapter = parse_adapter(text, folder)
    is_quick = all(getattr(part, "steps", 0) < 20 for part in adapter.parts)
    if adapter.is_fitted and is_quick:
        classifier().with_adapter(adapter).predict(drawn())
    return ANSWER


@cache
def other_label_files() -> list[bytes]:
    """Excel, parquet and JSON lines."""
    rows = [{"file": f"{i}.png", "animal": "dog", "place": "sea"} for i in range(40)]
    book, excel, arrow = openpyxl.Workbook(), io.BytesIO(), io.BytesIO()
    for cells in (list(rows[0]), *(list(row.values()) for row in rows)):
        book.active.append(cells)
    book.save(excel)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), arrow)
    return [
        excel.getvalue(),
        arrow.getvalue(),
        "\n".join(map(json.dumps, rows)).encode(),
    ]


def labels(random: Random, folder: Path) -> str:
    """A label file, changed; each row is a record or has a reason."""
    encoding = random.choice(("utf-8", "utf-8", "utf-16", "cp1252", "utf-8-sig"))
    text = mutated_text(random, _LABELS) if random.random() < 0.5 else _LABELS
    text = text.replace(",", random.choice(",;\t|")) if random.random() < 0.3 else text
    data = text.encode(encoding, "replace")
    data = mutated(random, data, [_LABELS.encode()]) if random.random() < 0.7 else data
    if random.random() < 0.3:
        data = mutated(random, random.choice(other_label_files()), other_label_files())
    (folder / "labels.csv").write_bytes(data)
    drawn().save(folder / "a.png")
    labels = Labels(folder, folder / "labels.csv", "animal", ("place",))
    rows = labels.scan().records()
    return REASON if any(isinstance(row, Problem) for row in rows) else ANSWER


@cache
def documents() -> list[tuple[Any, str]]:
    """An audit with two runs and harmful sets, and an examination."""
    random = Random(0)
    truth, groups = ([random.choice(pair) for _ in range(80)] for pair in ("ab", "xy"))
    document = audit(
        truth,
        truth[::-1],
        {"s": groups},
        harmful={"set": ["a"]},
        interval=Bootstrap(resamples=100),
    )
    pictures = [p.image for p in miniature.BIRDS.draw(20, seed=1)]
    examined = classifier().examine(pictures, [parse_adapter("orthcali")])
    return [(Audit, document.to_json()), (Examination, examined.to_json())]


def documents_of_others(random: Random, folder: Path) -> str:
    """An audit or an examination in JSON, changed, and the pages that are made of it."""
    document_class, text = random.choice(documents())
    if random.random() < 0.7:
        text = json.dumps(mutated_json(random, json.loads(text)))
    if random.random() < 0.4:
        text = mutated(random, text.encode(), [text.encode()]).decode(
            "utf-8", "replace"
        )
    document = document_class.from_json(text)
    if document_class is Audit:
        markdown(document).encode()
    if random.random() < 0.1:
        page = html(document) if document_class is Audit else examination_html(document)
        assert "<script>x" not in page
        page.encode()
    return ANSWER


@cache
def rows() -> bytes:
    """A file of six rows."""
    from tempfile import TemporaryDirectory

    predictions = classifier().predict(
        [p.image for p in miniature.BIRDS.draw(6, seed=1)]
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / ROWS_FILE
        with Store(path) as store:
            store.append([_row(i, p) for i, p in enumerate(predictions)])
        return path.read_bytes()


def _row(number: int, prediction: Any) -> StoredRow:
    key = RowKey(f"{number:032x}", "01" * 16, "02" * 6, "03" * 6, 0)
    return StoredRow(key, f"{number}.png", "04" * 16, prediction, 0.1)


def stores(random: Random, folder: Path) -> str:
    """A file of rows, damaged: what is still there is as it was, and it can be written to."""
    path = folder / ROWS_FILE
    data = mutated(random, rows(), [rows()])
    if random.random() < 0.7:  # a damaged header is refused before any row is read
        data = rows()[:SQLITE_HEADER] + data[SQLITE_HEADER:]
    path.write_bytes(data)
    with Store(path) as store:
        stored_images = {row.image for row in store}
        assert stored_images <= {f"{i}.png" for i in range(6)}
        store.append([_row(9, classifier().predict(drawn()))])
        assert "9.png" in {row.image for row in store}
    return ANSWER if len(stored_images) == 6 else REASON


@cache
def fitted() -> bytes:
    """A file of a fitted method."""
    from tempfile import TemporaryDirectory

    images = [drawn.image for drawn in miniature.BIRDS.draw(8, seed=1)]
    balanced = classifier().with_adapter(LogitBalance()).fit(images)
    with TemporaryDirectory() as folder:
        balanced.save(Path(folder) / "fitted.safetensors")
        return (Path(folder) / "fitted.safetensors").read_bytes()


def fitted_files(random: Random, folder: Path) -> str:
    """A file of a fitted method, damaged; what is read answers once."""
    path = folder / "fitted.safetensors"
    path.write_bytes(fitted())
    if random.random() < 0.3:
        path.write_bytes(mutated(random, fitted(), [fitted()]))
    else:
        with safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["about"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        del about["sha256"]
        if random.random() < 0.8:
            about = mutated_json(random, about)
        if random.random() < 0.4:
            name = random.choice(list(tensors))
            tensors[name] = random.choice(
                (tensors[name][:1], tensors[name].half(), -tensors[name])
            )
        about["sha256"] = _reference_digest(
            about, tensors
        )  # else nothing further would be looked at
        save_file(tensors, path, metadata={"about": json.dumps(about)})
    classifier().with_adapter(load_adapter(path)).predict(drawn())
    return ANSWER


DOORS: dict[str, Door] = {
    door.__name__: door
    for door in (
        images, arrays, names, adapters, labels, documents_of_others, stores,
        fitted_files,
    )
}  # fmt: skip
