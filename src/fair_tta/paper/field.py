"""Tables that are not the paper's: every method of the library, and the CLIP paper's experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fair_tta.adapters import Adapter, ZeroShot
from fair_tta.adapters.contract import needs_pixels
from fair_tta.adapters.text_form import ADAPTERS
from fair_tta.data.clip_bias import clip_bias_tasks
from fair_tta.data.tasks import BenchmarkTask
from fair_tta.errors import FairTTAError
from fair_tta.paper.printed import OTHER_TABLES
from fair_tta.runs.samples import miniature_tasks
from fair_tta.runs.settings import Grid, Setting

FIELD, CLIP_BIAS = OTHER_TABLES


_ONE_VIEW, _VIEWS, _PICTURES = "One view", "Views", "The pictures themselves"
_REFERENCE, _LABELS = "A reference without labels", "A reference with labels"
_SECTIONS = (_ONE_VIEW, _VIEWS, _PICTURES, _REFERENCE, _LABELS)


def every_method(adapters: Mapping[str, Adapter] | None = None) -> tuple[Setting, ...]:
    """A row for each method, zero-shot first; sections say what methods need.

    Args:
        adapters: by their names; every method of the library with its defaults if None, but for
            those that have to know true values, which no answer that is kept depends on.
    """
    if adapters is None:
        every = [kind() for kind in ADAPTERS.values() if not getattr(kind, "needs_values", False)]
        adapters = {type(adapter).__name__: adapter for adapter in every}
    others = [
        Setting(name, adapter, _section(adapter))
        for name, adapter in adapters.items()
        if adapter != ZeroShot()
    ]
    order = [*_SECTIONS, *(setting.section for setting in others)]
    others.sort(key=lambda setting: order.index(setting.section))
    return Setting("ZeroShot", ZeroShot()), *others


def field_grid(adapters: Mapping[str, Adapter] | None = None) -> Grid:
    """Every method on the paper's six main pairs."""
    return Grid(FIELD, "", every_method(adapters))


def clip_bias_grid(
    adapters: Mapping[str, Adapter] | None = None,
    harmful: Mapping[str, Mapping[str, str]] | None = None,
) -> Grid:
    """Every method that needs no labels on the experiment of `fair_tta.data.clip_bias`.

    Args:
        adapters: by their names.
        harmful: sets of your own, ``{name: {class: phrase}}``.
    """
    settings = every_method(adapters)
    if adapters is None:
        settings = tuple(s for s in settings if not getattr(s.adapter, "needs_labels", False))
    return Grid(CLIP_BIAS, "", settings, clip_bias_tasks(harmful))


def drawn_sets(grid: Grid, harmful: Mapping[str, Mapping[str, str]] | None) -> Grid:
    """The same on drawn pictures, to try it offline.

    The made-up set is the last class of each task; sets of your own are added to the classes.
    """

    def task_of(task: BenchmarkTask) -> BenchmarkTask:
        if harmful is None:
            return replace(task, harmful={"made-up": (list(task.targets)[-1],)})
        bad = {name: phrase for classes in harmful.values() for name, phrase in classes.items()}
        names = {name: tuple(classes) for name, classes in harmful.items()}
        return replace(task, targets={**bad, **task.targets}, harmful=names)

    return replace(grid, tasks=tuple(map(task_of, miniature_tasks())))


def _section(adapter: Any) -> str:
    if getattr(adapter, "needs_labels", False):
        return _LABELS
    if getattr(adapter, "needs_reference", False):
        return _REFERENCE
    if needs_pixels(adapter):
        return _PICTURES
    return _VIEWS if adapter.needs_views else _ONE_VIEW


def own_settings(
    name: str,
    adapters: Mapping[str, Adapter] | None,
    harmful: Mapping[str, Mapping[str, str]] | None,
) -> Grid | None:
    """The table of this name, None if it is not one of these.

    Raises:
        FairTTAError: methods or sets are given for a table that has its own.
    """
    if name == FIELD and not harmful:
        return field_grid(adapters)
    if name == CLIP_BIAS:
        return clip_bias_grid(adapters, harmful)
    if harmful:
        raise FairTTAError(f"`harmful` is for the table {CLIP_BIAS!r} (got {name!r}).")
    if adapters is not None:
        raise FairTTAError(
            f"`adapters` is for the tables {FIELD!r} and {CLIP_BIAS!r} (got {name!r}); settings of "
            "your own go into a file for --table."
        )
    return None
