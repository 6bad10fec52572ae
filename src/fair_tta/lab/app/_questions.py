"""Classifiers for the fields of the page, and errors in terms of the page."""

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

FIELD_NAMES = {
    "targets": "Classes",
    "sensitive": "What should not matter",
    "template": "Sentence",
    "labels_csv": "CSV file",
    "path_column": "Column of paths",
    "images": "Images",
    "images_dir": "Images",
    "reference": "Reference images",
}
"""Names of arguments on the page."""

MAX_CLASSIFIERS = 8
"""Kept at a time; the least recently used goes first."""

_INTERNAL_ERROR = (
    "Internal error in fair-tta; the terminal that runs the app shows the details."
)


def sandboxed(page: str, title: str) -> str:
    """Return a report as a frame without scripts, forms or links out of it.

    The policy of the page itself forbids scripts too.

    Args:
        page: a whole HTML page.
        title: for screen readers.
    """
    return (
        f'<iframe class="fair-tta-report" sandbox="" referrerpolicy="no-referrer" '
        f'title="{escape(title)}" srcdoc="{escape(page)}"></iframe>'
    )


def alert_html(text: str) -> str:
    """Return a message as HTML, for people and for screen readers."""
    return f'<div class="fair-tta-note" role="alert">{escape(text)}</div>'


def without_folders(text: str, *folders: str) -> str:
    """Return a message without the folders of this machine.

    Example:
        >>> without_folders("cannot read '/home/me/12ab/a.jpg'", "/home/me")
        "cannot read 'a.jpg'"
    """
    for folder in folders:
        # Messages that quote a path of Windows have two backslashes for one
        for spelling in (folder, repr(folder)[1:-1]):
            path = rf"{re.escape(spelling)}[/\\]+(?:[^'\"/\\]+[/\\]+)*"
            text = re.sub(path, "", text)
    return text


def guarded(act: Callable[[], T], failed: Callable[[str], T], *folders: str) -> T:
    """Return the result of `act`, or of `failed` with a message in HTML if it raises.

    The message names no `folders` and has no traceback.
    """
    try:
        return act()
    except FairTTAError as error:
        text = error._named(FIELD_NAMES)
    except OSError as error:
        text = f"a file cannot be used: {error.strerror or 'reading failed'}."
    except Exception:
        logging.getLogger("fair_tta.lab.app").exception("internal error")
        text = _INTERNAL_ERROR
    return failed(alert_html(without_folders(text, *folders)))


class FormFields(NamedTuple):
    """The fields of the page as a visitor has written them.

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
        self._views = AugMix(views)
        self._cache = Cache()
        self._lock = Lock()
        self._cached = lru_cache(MAX_CLASSIFIERS)(self._make)

    def get(
        self, fields: FormFields, values: LabelValues | None = None
    ) -> FairTPTClassifier:
        """Return the classifier of these fields; its adapter is `ZeroShot`.

        Args:
            fields: what a visitor has written.
            values: columns of labels, whose values are the names that were not written.
        """
        # Before parsing: a text without an end would take time
        for argument, text in fields._asdict().items():
            self.limits.check(FIELD_NAMES[argument], characters=len(text))
        target_lines = fields.targets.splitlines()
        lines = [line for line in fields.sensitive.splitlines() if line.strip()]
        if values is None:
            targets = parse_target_texts(target_lines)
            sensitive = parse_sensitive_texts(lines, "sensitive")
        else:
            target_column, *columns = values.labels.columns
            if fields.targets.strip():
                targets = parse_target_texts(target_lines)
            else:
                targets = column_names(values, target_column)
            sensitive = {}
            written = parse_column_attributes(lines, columns)
            for column in columns:
                names = written.get(column) or column_names(values, column)
                sensitive[column] = names
        # Each name is a prompt to encode
        self.limits.check(FIELD_NAMES["targets"], names=len(targets))
        n_values = sum(map(len, sensitive.values()))
        self.limits.check(FIELD_NAMES["sensitive"], names=n_values)
        question = json.dumps([targets, sensitive, fields.template.strip()])
        # Without the lock two visitors would make the same classifier
        with self._lock:
            return self._cached(question)

    def _make(self, question: str) -> FairTPTClassifier:
        targets, sensitive, sentence = json.loads(question)
        template = default_template(bool(sensitive))
        if sentence:
            template = Templates.from_sentence(sentence)
        return FairTPTClassifier(
            self.backend,
            targets,
            sensitive or None,
            template,
            adapter=ZeroShot(),
            views=self._views,
            cache=self._cache,
        )


def why_unusable(name: str, has_labels: bool = False) -> str:
    """Return why a method cannot be used here, empty if it can.

    Args:
        name: of the method.
        has_labels: True in an audit, whose images have labels.
    """
    needs = ADAPTERS[name]().needs
    if needs.reference_sensitive:
        return "its reference images need attribute values: fit it in Python"
    if needs.setting:
        return "it needs a setting: use the command line"
    if needs.reference_labels and not has_labels:
        return "it needs class labels: use Audit"
    return ""


def chosen_methods(names: list[str], has_labels: bool = False) -> dict[str, Adapter]:
    """Return methods by name only: no settings, no files, no code."""
    methods = {}
    for name in names:
        if name not in ADAPTERS:
            raise FairTTAError(
                f"choose methods from {', '.join(ADAPTERS)} (got {name!r})."
            )
        reason = why_unusable(name, has_labels)
        if reason:
            raise FairTTAError(f"{name} cannot be used here: {reason}.")
        methods[name] = ADAPTERS[name]()
    return methods


def need_reference(methods: Mapping[str, Adapter]) -> bool:
    """Return True if any of them must still be fitted."""
    return not all(method.is_fitted for method in methods.values())
