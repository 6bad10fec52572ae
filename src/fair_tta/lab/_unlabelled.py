"""Predictions and examinations of images without labels, kept row by row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeAlias

from fair_tta._io import UnlistedFolder, printable
from fair_tta.auditing import Examination
from fair_tta.auditing._examine import examine_answers
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.images._stored import ImageSource
from fair_tta.lab._folder_options import FolderExaminationOptions
from fair_tta.lab.runs._job import make_job
from fair_tta.lab.runs._local import Local
from fair_tta.lab.runs._reference import fit_adapters
from fair_tta.lab.runs._runner import Engine, Runner
from fair_tta.lab.runs._store import ROWS_FILE, Store
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.prediction import Prediction

NO_IMAGE_FOUND = (
    "no image was found: name image files, folders that contain them (such as .jpg or .png), or - "
    "to read paths from stdin."
)

EXAMINATION_FILE = "examine.json"
EXAMINATION_PAGE = "examine.html"
FITS_FOLDER = "fits"
"""A folder of features to fit on, deleted when all images are answered."""

# A page lists the first reasons why images could not be used: one reason repeats often
_MAX_LISTED_PROBLEMS = 5

ImageEntry: TypeAlias = "str | UnlistedFolder | ImageSource"
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
    """Yield the predictions of several adapters for each image, or why it cannot be used.

    Arguments are those of `FolderExaminationOptions`; without `out` finished rows are not
    kept.
    """
    keeping: AbstractContextManager[Store | None] = nullcontext()
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        keeping = Store(Path(out) / ROWS_FILE, restart=restart)
    with keeping as store:
        # Rows are stored only if there is a folder for them
        job = make_job(classifier, adapters, model, stores_rows=out is not None)
        answered = Runner(job, engine or Local(), store).stream(
            images,
            _source_of_entry,
            size=classifier._batch_size,
            seed=classifier._vision.seed,
            read_ahead=read_ahead,
        )
        for entry, answers in answered:
            if isinstance(entry, UnlistedFolder):
                reason = f"cannot look into the folder {entry.path!r}: {entry.reason}"
                yield entry.path, reason
                continue
            name = entry.name if isinstance(entry, ImageSource) else entry
            if isinstance(answers, str):
                # Users know the path that they wrote, not the absolute one
                yield name, answers.replace(repr(os.path.abspath(name)), repr(name))
            else:
                yield name, [row.prediction for row in answers]


def examine_folder(
    classifier: FairTPTClassifier,
    adapters: Mapping[str, Adapter],
    images: Callable[[], Iterable[ImageEntry]],
    out: str | os.PathLike[str] | None = None,
    options: FolderExaminationOptions = FolderExaminationOptions(),  # noqa: B008
) -> tuple[Examination, int]:
    """Examine images without labels.

    Args:
        classifier: with attribute values.
        adapters: methods to compare with zero-shot, by name; zero-shot itself is left out.
        images: paths, folders that could not be listed, or stored features, at each call.
        out: a folder for ``examine.json``, ``examine.html`` and finished rows; None writes
            none.
        options: settings of the run.

    Returns:
        The examination, and how many images could not be used.
    """
    # Every method is compared with zero-shot, which is always predicted
    compared = {
        name: adapter
        for name, adapter in adapters.items()
        if not isinstance(adapter, ZeroShot)
    }
    fitted = fit_adapters(
        classifier,
        compared,
        options.reference,
        lambda: image_sources(images()),
        reference_is_data=options.reference_is_data,
        kept=None if out is None else Path(out) / FITS_FOLDER,
        progress=options.fitting,
    )
    options.fitted(fitted)

    # Answers pass by one at a time, and are collected by the examination
    answers = predict_images(
        classifier,
        [ZeroShot(), *fitted.adapters.values()],
        images(),
        out,
        engine=options.engine,
        model=options.model,
        restart=options.restart,
        read_ahead=options.read_ahead,
    )
    usable = _UsableAnswers(answers, classifier._batch_size, options)
    usable.warnings += fitted.notes
    provenance = {"reference": fitted.provenance} if fitted.provenance else {}
    examination = examine_answers(
        classifier,
        fitted.adapters,
        usable,
        interval=options.interval,
        provenance=provenance,
        notes=usable.warnings,
        images=options.embed_images and out is not None,
        seed=classifier._vision.seed,
    )
    # Features to fit on are kept until everything is answered, so that a killed run resumes
    if out is not None:
        rmtree(Path(out) / FITS_FOLDER, ignore_errors=True)
        examination.save(Path(out) / EXAMINATION_FILE)
        page = Path(out) / EXAMINATION_PAGE
        examination.save_html(page, images=options.embed_images)
    return examination, len(usable.problems)


class _UsableAnswers:
    """Iterates over answers once; images that cannot be used are reported and counted.

    Attributes:
        problems: reasons why images could not be used.
        warnings: of the examination; complete after the last answer.
    """

    def __init__(
        self,
        answers: Iterable[tuple[str, list[Prediction] | str]],
        batch_size: int,
        options: FolderExaminationOptions,
    ) -> None:
        self.problems: list[str] = []
        self.warnings: list[str] = [*options.notes]
        self._answers = answers
        self._batch_size = batch_size
        self._options = options

    def __iter__(self) -> Iterator[tuple[str, str, list[Prediction]]]:
        """Yield the short name of each image, its path and its predictions."""
        options = self._options
        n_finished = 0
        options.progress(n_finished, None)
        for n_finished, (path, predictions) in enumerate(self._answers, start=1):
            # Folders above the last say more about the user than about the image
            name = printable(str(Path(*Path(path).parts[-2:])))
            if isinstance(predictions, str):
                options.problem(predictions)
                self.problems.append(predictions.replace(repr(path), repr(name)))
            else:
                yield name, path, predictions
            if n_finished % self._batch_size == 0:
                options.progress(n_finished, None)
        options.progress(n_finished, None)
        self._warn_of_problems(n_finished)

    def _warn_of_problems(self, n_images: int) -> None:
        """Add the problems to the warnings.

        Raises:
            FairTTAError: there are no answers.
        """
        n_problems = len(self.problems)
        if not n_images:
            raise FairTTAError(NO_IMAGE_FOUND)
        if n_problems == n_images:
            raise FairTTAError(f"no image could be used: {self.problems[0]}")
        if not n_problems:
            return
        self.warnings.append(f"{n_problems} of {n_images} images could not be used.")
        if not self._options.embed_images:
            return  # reasons name images, which are not in the page either
        self.warnings += self.problems[:_MAX_LISTED_PROBLEMS]
        if n_problems > _MAX_LISTED_PROBLEMS:
            self.warnings.append(f"and {n_problems - _MAX_LISTED_PROBLEMS} more.")


def image_sources(images: Iterable[ImageEntry]) -> Iterator[ImageSource]:
    """Return the images among the entries, as the runner takes them."""
    return filter(None, map(_source_of_entry, images))


def _source_of_entry(entry: ImageEntry) -> ImageSource | None:
    if isinstance(entry, str):
        return ImageSource(entry, os.path.abspath(entry))
    return entry if isinstance(entry, ImageSource) else None
