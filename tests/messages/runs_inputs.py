"""References on which methods cannot be fitted, and stores that are not ours."""

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from checks import picture
from internals import (
    ROWS_FILE,
    Adapter,
    ImageSource,
    Needs,
    Store,
    fit_adapters,
    fit_on_folder,
)
from store_rows import row

from fair_tta import FairTPTClassifier, LogitBalance, ZeroShot
from fair_tta.extend import FittedMethod, Reference

Case = Callable[[Path], object]


@dataclass(frozen=True)
class NeedsValues(FittedMethod):
    """A method that needs attribute values of its reference."""

    reference: Reference | None = None
    needs = Needs(sensitive=True, reference=True, reference_sensitive=True)
    _learn: Any = None
    adapt: Any = None


@dataclass(frozen=True)
class NotAFittedMethod(Adapter):
    """A method that needs a reference, without the base class of fitted methods."""

    needs = Needs(sensitive=True, reference=True)
    adapt: Any = None


@cache
def classifier() -> FairTPTClassifier:
    return FairTPTClassifier("miniature", ["cat", "dog"], ["day", "night"])


def on_images(method: Any, folder: Path, has_folder: bool = True) -> object:
    """Fit on a folder of one image, or on the images themselves."""
    picture(0).save(folder / "0.png")
    reference = folder if has_folder else None
    return fit_adapters(classifier(), {"m": method}, reference, list)


def shared(folder: Path) -> object:
    reference = folder / "reference"
    reference.mkdir()
    picture(0).save(reference / "0.png")
    source = ImageSource("0.png", str(reference / "0.png"))
    return fit_on_folder(classifier(), {"m": LogitBalance()}, reference, [source])


def open_file(folder: Path, content: bytes) -> object:
    (folder / ROWS_FILE).write_bytes(content)
    return Store(folder / ROWS_FILE)


def open_database(folder: Path) -> object:
    with sqlite3.connect(folder / ROWS_FILE) as db:
        db.execute("CREATE TABLE mine (a)")
    db.close()
    return Store(folder / ROWS_FILE)


def open_later_format(folder: Path) -> object:
    Store(folder / ROWS_FILE).close()
    with sqlite3.connect(folder / ROWS_FILE) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    return Store(folder / ROWS_FILE)


def open_twice(folder: Path) -> object:
    with Store(folder / ROWS_FILE):
        return Store(folder / ROWS_FILE)


def delete_during_the_run(folder: Path) -> object:
    with Store(folder / ROWS_FILE) as store:
        (folder / ROWS_FILE).unlink()
        store.append([row()])
    return None


CASES: Mapping[str, Case] = {
    "a method that needs attribute values, on a folder": lambda folder: on_images(
        NeedsValues(), folder
    ),
    "a method that needs attribute values, without a folder": lambda folder: on_images(
        NeedsValues(), folder, has_folder=False
    ),
    "a method without the base class": lambda folder: on_images(
        NotAFittedMethod(), folder
    ),
    "a reference without a method to fit": lambda folder: on_images(ZeroShot(), folder),
    "a reference that is not there": lambda folder: fit_on_folder(
        classifier(), {"m": LogitBalance()}, folder / "gone"
    ),
    "a reference without images": lambda folder: fit_on_folder(
        classifier(), {"m": LogitBalance()}, folder
    ),
    "a reference with images to be classified": shared,
    "rows in a folder": lambda folder: Store(folder),
    "rows in a file of text": lambda folder: open_file(folder, b"path,label\n"),
    "rows in another database": open_database,
    "rows of a later version": open_later_format,
    "rows in use": open_twice,
    "rows that were deleted during the run": delete_during_the_run,
}
