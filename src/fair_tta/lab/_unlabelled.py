"""Images without labels: their predictions and what can be seen in them, kept row by row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from shutil import rmtree
from typing import Any

from fair_tta._io import Unlisted, printable
from fair_tta.auditing import Examination
from fair_tta.auditing._examine import examine_answers
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.images._stored import ImageSource
from fair_tta.lab.runs._job import make_job
from fair_tta.lab.runs._local import Local
from fair_tta.lab.runs._reference import FittedAdapters, OpenEndedProgress, fit_adapters
from fair_tta.lab.runs._runner import Engine, Runner
from fair_tta.lab.runs._store import ROWS_FILE, Store
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.metrics.intervals._bootstrap import DEFAULT, Bootstrap
from fair_tta.prediction import Prediction

NO_IMAGE_FOUND = (
    "no image was found: name files, folders with files such as .jpg or .png, or - to read paths "
    "from stdin."
)

EXAMINATION_FILE, EXAMINATION_PAGE = "examine.json", "examine.html"
FITS_FOLDER = "fits"
"""A folder of features to fit on, removed when all images are answered."""

_MAX_LISTED_PROBLEMS = 5  # images that could not be used

ImageEntry = str | Unlisted | ImageSource
"""An image by its path, a folder that cannot be listed, or features of an image."""


def predict_images(
    classifier: FairTPTClassifier,
    adapters: Iterable[Adapter],
    images: Iterable[ImageEntry],
    out: str | os.PathLike[str] | None = None,
    *,
    engine: Engine | None = None,
    model: Any = None,
    restart: bool = False,
    read_ahead: bool = True,
) -> Iterator[tuple[str, list[Prediction] | str]]:
    """Predictions of several adapters for each image, or the reason why it cannot be used.

    Arguments are those of `examine_folder`; without `out` finished rows are not kept.
    """
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
    with (
        nullcontext()
        if out is None
        else Store(Path(out) / ROWS_FILE, restart=restart) as store
    ):
        job = make_job(classifier, adapters, model, stores_rows=out is not None)
        answered = Runner(job, engine or Local(), store).stream(
            images,
            _source_of_path,
            size=classifier._batch_size,
            seed=classifier._vision.seed,
            read_ahead=read_ahead,
        )
        for item, answers in answered:
            if isinstance(item, Unlisted):
                yield (
                    item.path,
                    f"cannot look into the folder {item.path!r}: {item.reason}",
                )
                continue
            name = item.name if isinstance(item, ImageSource) else item
            if isinstance(answers, str):
                yield name, answers.replace(repr(os.path.abspath(name)), repr(name))
            else:
                yield name, [row.prediction for row in answers]


def examine_folder(
    classifier: FairTPTClassifier,
    adapters: Mapping[str, Adapter],
    images: Callable[[], Iterable[ImageEntry]],
    out: str | os.PathLike[str] | None = None,
    *,
    interval: Bootstrap = DEFAULT,
    engine: Engine | None = None,
    model: Any = None,
    restart: bool = False,
    read_ahead: bool = True,
    embed_images: bool = False,
    reference: str | os.PathLike[str] | None = None,
    reference_is_data: bool = False,
    notes: Sequence[str] = (),
    fitted: Callable[[FittedAdapters], None] = lambda _: None,
    problem: Callable[[str], None] = lambda _: None,
    progress: OpenEndedProgress = lambda *_: None,
    fitting: OpenEndedProgress = lambda *_: None,
) -> tuple[Examination, int]:
    """Examine images without labels; returns the examination and how many could not be used.

    Args:
        classifier: with sensitive names.
        adapters: methods to compare with zero-shot, by name; zero-shot itself is left out.
        images: paths, folders that could not be listed, or stored features, each time it is called.
        out: a folder for ``examine.json``, ``examine.html`` and finished rows; None writes none.
        interval: how intervals are made.
        engine: who does the work, see `audit_folder`.
        model: how other processes load the model, see `audit_folder`.
        restart: delete rows that are there.
        read_ahead: whether images may be read before the predictions of others are taken.
        embed_images: show a few images whose answer changes in the page, and why others could not
            be used.
        reference: a folder of images on which methods that need a reference are fitted first; if
            it is None they are cross-fitted on the images.
        reference_is_data: allow the reference to have examined images.
        notes: sentences with which the warnings begin.
        fitted: is called with the methods after they were fitted.
        problem: is called with the reason why an image cannot be used.
        progress: is called first, and after each batch, with how many images are finished.
        fitting: is called after each image of the reference.
    """
    methods = fit_adapters(
        classifier,
        {name: one for name, one in adapters.items() if not isinstance(one, ZeroShot)},
        reference,
        lambda: image_sources(images()),
        reference_is_data=reference_is_data,
        kept=None if out is None else Path(out) / FITS_FOLDER,
        progress=fitting,
    )
    fitted(methods)
    origin = {"reference": methods.provenance} if methods.provenance else {}
    warnings, reasons = [*notes, *methods.notes], list[str]()

    def answers() -> Iterator[tuple[str, str, list[Prediction]]]:
        found = predict_images(
            classifier,
            [ZeroShot(), *methods.adapters.values()],
            images(),
            out,
            engine=engine,
            model=model,
            restart=restart,
            read_ahead=read_ahead,
        )
        done = 0
        progress(done, None)
        for done, (path, predictions) in enumerate(found, start=1):
            name = printable(str(Path(*Path(path).parts[-2:])))
            if isinstance(predictions, str):
                problem(predictions)
                reasons.append(predictions.replace(repr(path), repr(name)))
            else:
                yield name, path, predictions
            if done % classifier._batch_size == 0:
                progress(done, None)
        progress(done, None)
        if not done:
            raise FairTTAError(NO_IMAGE_FOUND)
        if len(reasons) == done:
            raise FairTTAError(f"no image could be used: {reasons[0]}")
        if reasons:
            warnings.append(f"{len(reasons)} of {done} images could not be used.")
            warnings.extend(reasons[:_MAX_LISTED_PROBLEMS] if embed_images else [])
            if embed_images and len(reasons) > _MAX_LISTED_PROBLEMS:
                warnings.append(f"and {len(reasons) - _MAX_LISTED_PROBLEMS} more.")

    examination = examine_answers(
        classifier,
        methods.adapters,
        answers(),
        interval=interval,
        provenance=origin,
        notes=warnings,
        images=embed_images and out is not None,
        seed=classifier._vision.seed,
    )
    if out is not None:
        rmtree(Path(out) / FITS_FOLDER, ignore_errors=True)
        examination.save(Path(out) / EXAMINATION_FILE)
        examination.save_html(Path(out) / EXAMINATION_PAGE, images=embed_images)
    return examination, len(reasons)


def image_sources(images: Iterable[ImageEntry]) -> Iterator[ImageSource]:
    """The images among them, for the runner."""
    return (asked for one in images if (asked := _source_of_path(one)) is not None)


def _source_of_path(found: ImageEntry) -> ImageSource | None:
    if isinstance(found, str):
        return ImageSource(found, os.path.abspath(found))
    return found if isinstance(found, ImageSource) else None
