"""From the fields of the page to a classifier, and errors in terms of the page."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from html import escape
from threading import Lock
from typing import NamedTuple, TypeVar

from fair_tta._cache import Cache
from fair_tta.classifier import FairTPTClassifier
from fair_tta.datasets._label_values import LabelValues
from fair_tta.errors import FairTTAError
from fair_tta.images._views import AugMix
from fair_tta.lab.app._server import UploadLimits
from fair_tta.lab.cli._names import (
    column_names,
    parse_column_attributes,
    parse_sensitive_texts,
    parse_target_texts,
)
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.methods._registry import ADAPTERS
from fair_tta.models import Backend
from fair_tta.models._loading import load
from fair_tta.prompts._templates import Templates, default_template

T = TypeVar("T")

FIELDS = {
    "targets": "Classes",
    "sensitive": "What should not matter",
    "template": "Sentence",
    "labels_csv": "CSV file",
    "path_column": "Column of paths",
    "images": "Images",
    "images_dir": "Images",
    "reference": "Reference images",
}
"""What arguments are called on the page."""

MOST_CLASSIFIERS = 8  # kept at a time; the least recently used goes first

_INTERNAL = (
    "Internal error in fair-tta; the terminal that runs the app shows the details."
)


def sandboxed(page: str, title: str) -> str:
    """A report as a frame without scripts, forms or links out of it; `title` is for screen readers.

    The policy of the page itself forbids scripts too.
    """
    return (
        f'<iframe class="fair-tta-report" sandbox="" referrerpolicy="no-referrer" '
        f'title="{escape(title)}" srcdoc="{escape(page)}"></iframe>'
    )


def note(text: str) -> str:
    """A message as HTML, for people and for screen readers."""
    return f'<div class="fair-tta-note" role="alert">{escape(text)}</div>'


def without_folders(text: str, *folders: str) -> str:
    """A message without the folders of this machine.

    Example:
        >>> without_folders("cannot read '/home/me/12ab/a.jpg'", "/home/me")
        "cannot read 'a.jpg'"
    """
    for folder in folders:
        for shown in (
            folder,
            repr(folder)[1:-1],
        ):  # where messages have two backslashes for one
            text = re.sub(rf"{re.escape(shown)}[/\\]+(?:[^'\"/\\]+[/\\]+)*", "", text)
    return text


def guarded(act: Callable[[], T], failed: Callable[[str], T], *folders: str) -> T:
    """Do something; an error becomes a message in HTML that names no `folders`, no traceback."""
    try:
        return act()
    except FairTTAError as error:
        text = error._named(FIELDS)
    except OSError as error:
        text = f"a file cannot be used: {error.strerror or 'reading failed'}."
    except Exception:
        logging.getLogger("fair_tta.lab.app").exception("internal error")
        text = _INTERNAL
    return failed(note(without_folders(text, *folders)))


class Fields(NamedTuple):
    """What a visitor has written.

    Attributes:
        targets: classes, one ``name`` or ``name = phrase`` in each line, or ``name, name``.
        sensitive: what should not matter, likewise; ``attribute: name`` with several attributes.
        template: the sentence; empty for the usual one.
    """

    targets: str
    sensitive: str = ""
    template: str = ""


class Classifiers:
    """The classifiers of one model; arguments are those of `fair_tta.lab.serve`."""

    def __init__(
        self,
        model: object = "miniature",
        *,
        views: int = 64,
        device: str | None = None,
        dtype: str | None = None,
        limits: UploadLimits = UploadLimits(),
    ) -> None:
        self.backend: Backend = load(model, None, device=device, dtype=dtype)
        self.limits = limits
        self._views, self._cache, self._lock = AugMix(views), Cache(), Lock()
        self._made = lru_cache(MOST_CLASSIFIERS)(self._make)

    def of(
        self, fields: Fields, values: LabelValues | None = None
    ) -> FairTPTClassifier:
        """The classifier of these fields, made if there is none; its adapter is `ZeroShot`.

        Names that were not written are those of the columns of labels.
        """
        for argument, text in fields._asdict().items():
            self.limits.check(FIELDS[argument], characters=len(text))
        classes = fields.targets.splitlines()
        lines = [line for line in fields.sensitive.splitlines() if line.strip()]
        if values is None:
            targets, sensitive = (
                parse_target_texts(classes),
                parse_sensitive_texts(lines, "sensitive"),
            )
        else:
            target, *columns = values.labels.columns
            is_written = bool(fields.targets.strip())
            targets = (
                parse_target_texts(classes)
                if is_written
                else column_names(values, target)
            )
            written = parse_column_attributes(lines, columns)
            sensitive = {c: written.get(c) or column_names(values, c) for c in columns}
        self.limits.check(FIELDS["targets"], names=len(targets))
        self.limits.check(FIELDS["sensitive"], names=sum(map(len, sensitive.values())))
        with self._lock:  # or two visitors would make the same one
            return self._made(json.dumps([targets, sensitive, fields.template.strip()]))

    def _make(self, asked: str) -> FairTPTClassifier:
        targets, sensitive, sentence = json.loads(asked)
        return FairTPTClassifier(
            self.backend,
            targets,
            sensitive or None,
            Templates.from_sentence(sentence)
            if sentence
            else default_template(bool(sensitive)),
            adapter=ZeroShot(),
            views=self._views,
            cache=self._cache,
        )


def why_not(name: str, has_labels: bool = False) -> str:
    """Why a method cannot be used here; empty if it can. The images of an audit have labels."""
    needs = ADAPTERS[name]().needs
    if needs.reference_sensitive:
        return "its reference images need attribute values: fit it in Python"
    if needs.setting:
        return "it needs a setting: use the command line"
    return (
        "it needs class labels: use Audit"
        if needs.reference_labels and not has_labels
        else ""
    )


def chosen_methods(names: list[str], has_labels: bool = False) -> dict[str, Adapter]:
    """Methods by name only: no settings, no files, no code."""
    for name in names:
        if name not in ADAPTERS:
            raise FairTTAError(
                f"choose methods from {', '.join(ADAPTERS)} (got {name!r})."
            )
        if reason := why_not(name, has_labels):
            raise FairTTAError(f"{name} cannot be used here: {reason}.")
    return {name: ADAPTERS[name]() for name in dict.fromkeys(names)}


def need_reference(methods: Mapping[str, Adapter]) -> bool:
    """Whether some of them are still to be fitted."""
    return not all(method.is_fitted for method in methods.values())
