"""Methods that look at one view are quick: on more pictures their effect shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.text import Text

from fair_tta.auditing import Audit
from fair_tta.metrics import Estimate
from fair_tta.miniature.world import TASKS
from fair_tta.paper.cells import COLUMNS, mark
from fair_tta.paper.episodes import METHODS, Episode, run_episodes
from fair_tta.report import Overview
from fair_tta.report.terminal import Fitted, columns

ONE_VIEW = {name: adapter for name, adapter in METHODS.items() if not adapter.needs_views}
SHOWN = tuple(c for c in COLUMNS if c.title in ("Acc", "WGA", "EOD"))

_EFFECT_STYLES = {1: "green", -1: "red", 0: ""}


def play_one_view(
    *,
    seeds: int = 5,
    pictures: int = 400,
    limit: int | None = None,
    sample: int | None = None,
    progress: Callable[[Iterable[Any], int], Iterable[Any]] = lambda work, total: work,
) -> list[Episode]:
    """Run `ONE_VIEW` on every task; the arguments are those of `play`."""
    work = run_episodes(
        TASKS.values(), ONE_VIEW, seeds=range(seeds), pictures=pictures, limit=limit, sample=sample
    )
    return list(progress(work, len(TASKS) * seeds * len(ONE_VIEW)))


def effect_overview(audits: Mapping[str, Audit]) -> Overview:
    """What each method changes from zero-shot on each task, for the report.

    Args:
        audits: by task, of `play_one_view`.
    """
    rows = []
    for name, audit in audits.items():
        for comparison in audit.document.comparisons:
            found = comparison.told.by_name()
            changes = [found[column.key].estimate for column in SHOWN]
            cells = [
                (effect(change), mark(column, change))
                for column, change in zip(SHOWN, changes, strict=True)
            ]
            rows.append([(name, 0), (comparison.run, 0), *cells])
    n = next(iter(audits.values())).document.data.n
    return Overview(
        f"One view, {n:,} pictures of each task: change from zero-shot in points, with its "
        "paired 95 % interval",
        ["task", "method", *(column.title for column in SHOWN)],
        rows,
    )


def effect_table(audits: Mapping[str, Audit]) -> Fitted:
    """The same for the terminal; + better and - worse, as in the other tables."""
    overview = effect_overview(audits)
    rows = [
        [Text(text + ("", " +", " -")[side], _EFFECT_STYLES[side]) for text, side in row]
        for row in overview.rows
    ]
    return Fitted(columns(overview.header, rows, texts=(0, 1)), rows, overview.title)


def effect(change: Estimate) -> str:
    """In points: ``-5.3 [-7.9, -2.8]``."""
    if change.low is None or change.high is None:
        return "n/a"
    return f"{100 * change.value:+.1f} [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
