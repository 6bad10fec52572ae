"""Options of the audit and of the examination of a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._run import HarmSets
from fair_tta.lab.runs._reference import FittedAdapters, OpenEndedProgress
from fair_tta.lab.runs._runner import Engine, Progress
from fair_tta.metrics.intervals._bootstrap import DEFAULT, Bootstrap


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """Options of every run on a folder.

    Attributes:
        interval: settings of the intervals.
        engine: processes that do the work, such as `Local(workers=2)`; None for this one.
        model: how other processes load the model, such as the string that the classifier
            was made of; if None it is sent to them.
        restart: delete finished answers.
        embed_images: show a few images in the page; otherwise neither images nor their
            names are in it.
        reference: a folder of images on which methods that need a reference are fitted
            first. Without one they are cross-fitted on the images of the run.
        reference_is_data: allow the reference to contain images of the run.
        notes: sentences that the warnings begin with.
        fitting: receives how many images of the reference are finished.
    """

    interval: Bootstrap = DEFAULT
    engine: Engine | None = None
    model: Any = None
    restart: bool = False
    embed_images: bool = False
    reference: str | os.PathLike[str] | None = None
    reference_is_data: bool = False
    notes: Sequence[str] = ()
    fitting: OpenEndedProgress = lambda *_: None


@dataclass(frozen=True, kw_only=True)
class FolderAuditOptions(FolderOptions):
    """Options of `audit_folder`.

    Attributes:
        skip_unknown: leave out rows with values that were not named, instead of raising.
        limit: the number of rows to use, from the first.
        sample: the number of images to use: of each group its share and at least one;
            the classifier's seed chooses them.
        harmful: classes that should not be answered, see `fair_tta.audit`.
        fail_if: thresholds such as ``"typical_gap > 10"``, in points. A threshold fails
            if the whole interval lies beyond it.
        fail_on: the name of the adapter that the thresholds are about.
        conclude: receives the figures and returns what is added to the provenance.
        progress: receives first, and after each batch, how many rows are finished, and
            how many there are.
    """

    skip_unknown: bool = False
    limit: int | None = None
    sample: int | None = None
    harmful: HarmSets | None = None
    fail_if: Sequence[str] = ()
    fail_on: str = "zero-shot"
    conclude: Callable[[AuditDocument], Mapping[str, Any]] = lambda _: {}
    progress: Progress = lambda *_: None


@dataclass(frozen=True, kw_only=True)
class FolderExaminationOptions(FolderOptions):
    """Options of `examine_folder`.

    Attributes:
        read_ahead: read images before the predictions of earlier ones are taken.
        fitted: receives the methods after they were fitted.
        problem: receives the reason why an image cannot be used.
        progress: receives first, and after each batch, how many images are finished.
    """

    read_ahead: bool = True
    fitted: Callable[[FittedAdapters], None] = lambda _: None
    problem: Callable[[str], None] = lambda _: None
    progress: OpenEndedProgress = lambda *_: None
