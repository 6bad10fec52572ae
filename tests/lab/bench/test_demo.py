"""The demo: every method on every task, the same digits each time, a page that needs nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from report_samples import Page
from rich.console import Console
from typer.testing import CliRunner

from fair_tta import TPT, AugMix, LogitBalance, Zero, ZeroShot
from fair_tta.auditing import Audit
from fair_tta.extend import Adapter
from fair_tta.lab._cli import app
from fair_tta.lab._runs.job import Job
from fair_tta.lab.bench._demo import (
    METHODS,
    REFERENCE_IMAGES,
    SHOWN_COLUMNS,
    Episode,
    demo_tables,
    effect_table,
    gallery,
    run_episodes,
    to_audits,
    to_html,
)
from fair_tta.lab.bench._figures import COLUMNS, cell, shown_figure
from fair_tta.lab.bench._tables import to_rich
from fair_tta.lab.report._numbers import times
from fair_tta.metrics import Estimate
from fair_tta.metrics._estimate import undefined
from fair_tta.miniature import TASKS

IMAGES = 8
"""Of each seed: two of each group of birds."""


@pytest.fixture(scope="module", autouse=True)
def _few_views() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fair_tta.lab.bench._demo.Job", partial(Job, views=AugMix(8)))
        yield


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    return list(run_episodes(TASKS.values(), seeds=range(2), images=IMAGES))


@pytest.fixture(scope="module")
def audits(episodes: list[Episode]) -> dict[str, Audit]:
    return to_audits(episodes)


def test_every_method_runs_on_every_task_and_seed(episodes: list[Episode]) -> None:
    found = {(e.task.name, e.method, e.seed) for e in episodes}
    assert found == {(t, m, s) for t in TASKS for m in METHODS for s in range(2)}


def test_a_second_run_gives_the_same_digits(episodes: list[Episode]) -> None:
    names = ("ZeroShot", "FairTPT", "Association")
    methods = {name: METHODS[name] for name in names}
    again = run_episodes([TASKS["scenes"]], methods, seeds=[0], images=IMAGES)
    before = [e for e in episodes if (e.task.name, e.seed) == ("scenes", 0) and e.method in methods]
    assert [e.predictions for e in again] == [e.predictions for e in before]


def test_figures_are_those_of_the_predictions(
    episodes: list[Episode], audits: dict[str, Audit]
) -> None:
    for task, audit in audits.items():
        for method in METHODS:
            mine = [e for e in episodes if e.task.name == task and e.method == method]
            rows = [row for e in mine for row in e.rows]
            right = [row.prediction.label == record.target for record, row in rows]
            assert audit.estimate("accuracy", method).value == pytest.approx(np.mean(right))
            groups: dict[tuple[str, ...], list[bool]] = {}
            for (record, _), is_right in zip(rows, right, strict=True):
                groups.setdefault(record.group, []).append(is_right)
            lowest = min(np.mean(group) for group in groups.values())
            found = audit.estimate("worst_group_accuracy", method).value
            assert found == pytest.approx(lowest)


def test_one_worst_group_one_number(episodes: list[Episode], audits: dict[str, Audit]) -> None:
    """The terminal, the overview, and the pages below it tell the same."""
    page = Page(to_html(episodes, audits))
    tables = demo_tables(episodes, audits, digits=0)
    for number, (task, table) in enumerate(zip(TASKS, tables, strict=True), start=1):
        overview = page.tables[f"table {number}"]
        below = page.tables[f"audit-{number}-table-metrics"]
        (wga,) = (row for row in below if row[0].startswith("Worst-group accuracy (class / group)"))
        console = Console(width=200, record=True, file=StringIO())
        console.print(to_rich(table))
        terminal = console.export_text()
        for row, cell_below in zip(overview[1:], wga[1:], strict=True):
            value = 100 * audits[task].estimate("worst_group_accuracy", row[0]).value
            shown = row[2].partition("]")[0] + "]"
            assert shown.startswith(f"{value:.1f} [")
            assert cell_below.startswith(shown)
            (line,) = (x for x in terminal.splitlines() if x.startswith(f"{row[0]} "))
            assert f" {value:.1f} [" in line


def test_logit_balance_is_fitted_for_each_task_and_not_on_what_is_asked(
    episodes: list[Episode],
) -> None:
    fitted = {e.task.name: e.adapter for e in episodes if e.method == "LogitBalance"}
    assert set(fitted) == set(TASKS)
    for adapter in fitted.values():
        assert isinstance(adapter, LogitBalance)
        assert adapter.reference is not None
        assert adapter.reference.images == REFERENCE_IMAGES
    assert len({hash(adapter) for adapter in fitted.values()}) == len(TASKS)


def test_cost_is_told_against_zero_shot(episodes: list[Episode], audits: dict[str, Audit]) -> None:
    for table in demo_tables(episodes, audits):
        assert table.rows[0][-1][0] == times(1.0)
    assert [times(cost)[:-2] for cost in (1.0, 1.14, 47.6)] == ["1.0", "1.1", "48"]


def test_views_are_part_of_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time of this process alone: a busy machine may take longer for anything."""
    monkeypatch.setattr("fair_tta.lab._runs.worker.time.perf_counter", time.process_time)
    methods: dict[str, Adapter] = {"one": ZeroShot(), "many": Zero()}
    one, many = run_episodes([TASKS["badges"]], methods, seeds=[0], images=4)
    assert many.seconds > one.seconds


def test_tables_fit_a_narrow_terminal(episodes: list[Episode], audits: dict[str, Audit]) -> None:
    for table in demo_tables(episodes, audits, digits=0):
        console = Console(width=80, record=True, file=StringIO())
        console.print(to_rich(table))
        text = console.export_text()
        assert "…" not in text
        assert text.count("method") == 1, "one table, not two"
        assert all(method in text for method in METHODS)
        assert all(column.title in text for column in COLUMNS if column.key != "bias")


def test_cells_are_marked_as_the_paired_interval_of_the_audit_says(
    episodes: list[Episode], audits: dict[str, Audit]
) -> None:
    for table, audit in zip(demo_tables(episodes, audits), audits.values(), strict=True):
        assert all(side == 0 for _, side in table.rows[0])
        found = {c.run: c.adjusted.by_name() for c in audit.document.comparisons}
        for (method, _), *cells in table.rows[1:]:
            for column, (text, side) in zip(SHOWN_COLUMNS[:3], cells, strict=False):
                change = found[method][column.key]
                assert change.low is not None
                assert change.high is not None
                up = 1 if change.low > 0 else -1 if change.high < 0 else 0
                assert side == column.better * up
                assert text.endswith(("]", " +", " -")[side])


def test_effects_have_their_intervals_and_fit(audits: dict[str, Audit]) -> None:
    overview = effect_table(audits)
    assert f"{2 * IMAGES} images of each task" in overview.title
    assert len(overview.rows) == len(TASKS) * (len(METHODS) - 1)
    console = Console(width=80, record=True, file=StringIO())
    console.print(to_rich(overview))
    text = console.export_text()
    for task, method, *cells in overview.rows:
        comparisons = {c.run: c for c in audits[task[0]].document.comparisons}
        change = comparisons[method[0]].adjusted.equalized_odds_difference.estimate
        assert change.low is not None
        assert change.high is not None
        side = -(change.low > 0) or int(change.high < 0)
        assert cells[-1] == (shown_figure(change, side, sign="+"), side)
        assert method[0].partition(">>")[0] in text
    change = Estimate(-0.053, 9, -0.079, 0.028)
    assert shown_figure(change, sign="+") == "-5.3 [-7.9, +2.8]"


def test_cells_as_text() -> None:
    assert str(cell([50.0, 56.0])) == "53.0 ±3.0"
    assert shown_figure(Estimate(0.53, 9, 0.4, 0.6), 1) == "53.0 [40.0, 60.0] +"
    assert shown_figure(Estimate(0.53, 9, 0.4, 0.6), -1, digits=0) == "53.0 [40, 60] -"
    assert shown_figure(Estimate(0.53, 9)) == "53.0"
    assert shown_figure(undefined("no images")) == "n/a"
    assert str(cell([50.0])) == "50.0"
    assert str(cell([0.0, 100.0])) == "50.0 ±50"
    assert str(cell([float("nan")])) == "n/a"


def test_the_audit_pools_the_seeds(audits: dict[str, Audit]) -> None:
    audit = audits["birds"]
    assert list(audit.runs) == list(METHODS)
    assert audit.document.data.n == 2 * IMAGES


def test_the_page_shows_tables_and_changed_pictures(
    episodes: list[Episode], audits: dict[str, Audit]
) -> None:
    page = to_html(episodes, audits)
    assert page.startswith("<!DOCTYPE html>")
    for table in demo_tables(episodes, audits):
        assert all(text.partition(" ")[0] in page for row in table.rows for text, _ in row[1:])
    changed = sum(len(gallery(episodes, task)) for task in TASKS.values())
    assert page.count("data:image/png") == changed


def test_other_methods_can_be_compared() -> None:
    (zero_shot, tpt) = run_episodes(
        [TASKS["badges"]], {"a": ZeroShot(), "b": TPT()}, seeds=[7], images=2
    )
    assert (zero_shot.method, tpt.method, tpt.seed) == ("a", "b", 7)
    assert all(p.learning_rate is None for p in zero_shot.predictions)
    assert all(p.learning_rate is not None for p in tpt.predictions)
    assert Zero in {type(adapter) for adapter in METHODS.values()}


@pytest.mark.slow
def test_the_command_writes_the_report(tmp_path: Path) -> None:
    out = tmp_path / "demo.html"
    few = ["demo", "--out", str(out), "--one-view", "9"]
    result = CliRunner().invoke(app, [*few, "--seeds", "1", "--pictures", "4"])
    assert result.exit_code == 0, result.output
    assert "FairTPT-MO" in result.stdout
    assert "One view, 9 images of each task" in result.stdout.replace("\n", " ")
    assert out.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_folder_that_is_not_there_is_noticed_before_the_work(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "no" / "demo.html")])
    assert result.exit_code == 3
    assert "`--out` should be in a folder that exists" in result.stderr
