"""From the fields of the page to a classifier, and errors in terms of the page."""

from __future__ import annotations

import json
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from threading import Lock
from typing import TypeVar

from fair_tta._cache import Cache
from fair_tta._images.views import AugMix
from fair_tta._models import Backend
from fair_tta._models.load import load
from fair_tta._prompts.templates import Templates, default_template
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.lab._cli.names import sensitive_option, targets_option
from fair_tta.lab.app._server import UploadLimits
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.methods._registry import ADAPTERS


def sandboxed(page: str, title: str) -> str:
    """A report as a frame without scripts, forms or links out of it.

    Args:
        page: a whole HTML page; its own policy forbids scripts too.
        title: for screen readers.
    """
    return (
        f'<iframe class="fair-tta-report" sandbox="" referrerpolicy="no-referrer" '
        f'title="{escape(title)}" srcdoc="{escape(page)}"></iframe>'
    )


FIELDS = {
    "--targets": "Classes",
    "targets": "Classes",
    "--sensitive": "What should not matter",
    "sensitive": "What should not matter",
    "template": "Sentence",
    "labels_csv": "CSV file",
    "path_column": "Column of paths",
    "images": "Images",
    "images_dir": "Images",
}
"""What arguments are called on the page."""

_INTERNAL = "Internal error in fair-tta; the terminal that runs the app shows the details."

T = TypeVar("T")


def note(text: str) -> str:
    """A message as HTML, for people and for screen readers."""
    return f'<div class="fair-tta-note" role="alert">{escape(text)}</div>'


def in_fields(text: str) -> str:
    """An error of the library with the names that the page uses.

    Example:
        >>> in_fields("`--targets` should name at least two values (got []).")
        '`Classes` should name at least two values (got []).'
    """
    for name, field in FIELDS.items():
        text = text.replace(f"`{name}`", f"`{field}`")
    return text


def without_folders(text: str, *folders: str) -> str:
    """A message without the folders of this machine.

    Example:
        >>> without_folders("cannot read '/home/me/12ab/a.jpg'", "/home/me")
        "cannot read 'a.jpg'"
    """
    for folder in folders:
        for shown in (folder, repr(folder)[1:-1]):  # where messages have two backslashes for one
            text = re.sub(rf"{re.escape(shown)}[/\\]+(?:[^'\"/\\]+[/\\]+)*", "", text)
    return text


def guarded(act: Callable[[], T], failed: Callable[[str], T], *folders: str) -> T:
    """Do something; an error becomes a message, never a traceback.

    Args:
        act: what to do.
        failed: makes the result from a message in HTML.
        folders: not to be named.
    """
    try:
        return act()
    except (FairTTAError, OSError) as error:
        return failed(note(without_folders(in_fields(_text(error)), *folders)))
    except Exception:
        logging.getLogger("fair_tta.lab.app").exception("internal error")
        return failed(note(_INTERNAL))


def _text(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"a file cannot be used: {error.strerror or 'reading failed'}."
    return str(error)


MOST_CLASSIFIERS = 8
"""Kept at a time; the least recently used goes first."""

METHODS = tuple(name for name, kind in ADAPTERS.items() if kind().is_fitted)
"""What can be chosen: methods that need no reference images, with their defaults."""

Attributes = Mapping[str, Mapping[str, str]]
"""``{attribute: {label: phrase}}``"""


@dataclass(frozen=True)
class Fields:
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
    """The classifiers of one model.

    Args:
        model: a string as for `FairTPTClassifier`, or an object.
        views: how many of each image.
        device: for a model of a string.
        dtype: likewise.
        limits: of names.
    """

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
        self._views, self._cache = AugMix(views), Cache()
        self._kept: OrderedDict[str, FairTPTClassifier] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, fields: Fields) -> FairTPTClassifier:
        """The classifier of these fields."""
        return self.named(
            read_targets(fields, self.limits), read_sensitive(fields, self.limits), fields.template
        )

    def named(
        self, targets: Mapping[str, str], sensitive: Attributes, template: str
    ) -> FairTPTClassifier:
        """The classifier of these names, made if there is none; its adapter is `ZeroShot`."""
        self.limits.check_text("Sentence", template)
        self.limits.check_names("Classes", len(targets))
        self.limits.check_names("What should not matter", sum(map(len, sensitive.values())))
        sentence = template.strip()
        key = json.dumps(
            [[*targets.items()], [[a, [*v.items()]] for a, v in sensitive.items()], sentence]
        )
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._made(targets, sensitive, sentence)
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_CLASSIFIERS:
                self._kept.popitem(last=False)
            return self._kept[key]

    def _made(
        self, targets: Mapping[str, str], sensitive: Attributes, sentence: str
    ) -> FairTPTClassifier:
        usual = default_template(bool(sensitive))
        return FairTPTClassifier(
            self.backend,
            dict(targets),
            {attribute: dict(names) for attribute, names in sensitive.items()} or None,
            Templates.from_sentence(sentence) if sentence else usual,
            adapter=ZeroShot(),
            views=self._views,
            cache=self._cache,
        )


def read_targets(fields: Fields, limits: UploadLimits) -> dict[str, str]:
    """Classes as ``{label: phrase}``."""
    limits.check_text("Classes", fields.targets)
    return targets_option(fields.targets.splitlines())


def read_sensitive(
    fields: Fields, limits: UploadLimits, attribute: str = "sensitive"
) -> dict[str, dict[str, str]]:
    """What should not matter.

    Args:
        fields: what was written.
        limits: of what is written.
        attribute: the name of the attribute where none is written.
    """
    limits.check_text("What should not matter", fields.sensitive)
    lines = [line for line in fields.sensitive.splitlines() if line.strip()]
    return sensitive_option(lines, attribute)


def chosen_methods(names: list[str]) -> dict[str, Adapter]:
    """Methods by name only: no settings, no files, no code."""
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise FairTTAError(f"choose methods from {', '.join(METHODS)} (got {unknown[0]!r}).")
    return {name: ADAPTERS[name]() for name in dict.fromkeys(names)}
