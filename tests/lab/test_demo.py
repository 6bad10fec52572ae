"""The demo: every method on every task, the same digits each time, a page that needs nothing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from internals import (
    DEMO_METHODS,
    ONE_VIEW_METHODS,
    REFERENCE_IMAGES,
    TASKS,
    VIEW_METHODS,
    Episode,
    Job,
    audits_by_task,
    changed_answers,
    demo_page,
    demo_table,
    estimate_text,
    one_thread,
    run_episodes,
    terminal_table,
    times,
    undefined_estimate,
)
from report_samples import Page
from rich.console import Console
from typer.testing import CliRunner

from fair_tta import TPT, LogitBalance, Zero, ZeroShot
from fair_tta.auditing import Audit
from fair_tta.extend import Adapter, AugMix
from fair_tta.lab.cli import app
from fair_tta.metrics import Estimate

IMAGES = 8
"""For each seed: two of each group of birds."""


@pytest.fixture(scope="module", autouse=True)
def _few_views() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fair_tta.lab._demo.Job", partial(Job, views=AugMix(8)))
        yield


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    return list(run_episodes(TASKS.values(), seeds=range(2), images=IMAGES))


@pytest.fixture(scope="module")
def audits(episodes: list[Episode]) -> dict[str, Audit]:
    return audits_by_task(episodes)


def test_every_method_runs_on_every_task_and_seed(episodes: list[Episode]) -> None:
    actual = {(episode.task.name, episode.method, episode.seed) for episode in episodes}
    assert actual == set(itertools.product(TASKS, DEMO_METHODS, range(2)))


def test_a_second_run_gives_the_same_digits(episodes: list[Episode]) -> None:
    names = ("zero-shot", "fair-tpt", "association-correction")
    methods = {name: DEMO_METHODS[name] for name in names}
    by_key = {(e.task.name, e.seed, e.method): e for e in episodes}
    for repeated in run_episodes([TASKS["scenes"]], methods, seeds=[0], images=IMAGES):
        before = by_key["scenes", 0, repeated.method]
        assert repeated.predictions == before.predictions


def test_figures_are_those_of_the_predictions(
    episodes: list[Episode], audits: dict[str, Audit]
) -> None:
    """The images of all seeds count."""
    is_right: dict[tuple[str, str], dict[tuple[str, ...], list[bool]]] = {}
    for episode in episodes:
        groups = is_right.setdefault((episode.task.name, episode.method), {})
        for record, row in episode.rows:
            answers = groups.setdefault(record.group, [])
            answers.append(row.prediction.label == record.target)
    assert list(is_right) == list(itertools.product(audits, DEMO_METHODS))
    for (task, method), groups in is_right.items():
        accuracy = audits[task].estimate("accuracy", method)
        assert accuracy.n == 2 * IMAGES
        assert accuracy.value == pytest.approx(
            np.mean(np.concatenate([*groups.values()]))
        )
        worst = audits[task].estimate("worst_group_accuracy", method)
        assert worst.value == pytest.approx(min(map(np.mean, groups.values())))


def test_the_table_is_that_of_the_audits(
    episodes: list[Episode], audits: dict[str, Audit]
) -> None:
    """In the terminal and on the page, each figure beside that of the page's own table."""
    table = demo_table(audits.items())
    page = Page(demo_page(episodes, audits, {"birds": audits["birds"]}, table))
    rows = [[text for text, _ in row] for row in table.rows]
    assert page.tables["table 1"][1:] == rows
    remaining = iter(table.rows)
    for number, audit in enumerate(audits.values(), start=1):
        below = {
            row[0]: row[1:] for row in page.tables[f"audit-{number}-table-metrics"]
        }
        (title,) = (
            text for text in below if text.startswith("Worst-group accuracy (class")
        )
        changes = {c.run: c.adjusted.typical_gap for c in audit.document.comparisons}
        for run, cell_below in zip(audit.document.runs, below[title], strict=True):
            _, method, n, gap, change, balanced, accuracy, worst, cost = next(remaining)
            assert (method[0], n[0]) == (run.name, str(2 * IMAGES))
            metrics = run.metrics
            for (text, _), figure in (
                (gap, metrics.typical_gap),
                (balanced, metrics.balanced_accuracy),
                (accuracy, metrics.accuracy),
                (worst, metrics.worst_group_accuracy),
            ):
                assert figure.value is not None
                assert text.split()[0] == f"{100 * figure.value:.1f}"
            assert cell_below.startswith(worst[0].split()[0])
            if run.name not in changes:
                assert (change, cost[0]) == (("", 0), times(1.0))
                continue
            difference = changes[run.name]
            side = 0
            if difference.low is not None and difference.high is not None:
                side = int(difference.high < 0) - int(difference.low > 0)
            assert change == (estimate_text(difference, side, sign="+"), side)


def test_logit_balance_is_fitted_for_each_task_and_not_on_what_is_asked(
    episodes: list[Episode],
) -> None:
    fitted = {e.task.name: e.adapter for e in episodes if e.method == "logit-balance"}
    assert set(fitted) == set(TASKS)
    for adapter in fitted.values():
        assert isinstance(adapter, LogitBalance)
        assert adapter.reference is not None
        assert adapter.reference.images == REFERENCE_IMAGES
    assert len({hash(adapter) for adapter in fitted.values()}) == len(TASKS)


def test_views_are_part_of_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time of this process alone: a busy machine may take longer for anything."""
    monkeypatch.setattr(
        "fair_tta.lab.runs._worker.time.perf_counter", time.process_time
    )
    methods: dict[str, Adapter] = {"one": ZeroShot(), "many": Zero()}
    zero_shot, zero = run_episodes([TASKS["badges"]], methods, seeds=[0], images=4)
    assert sum(row.seconds for row in zero.answers) > sum(
        row.seconds for row in zero_shot.answers
    )


def test_the_table_fits_a_narrow_terminal(audits: dict[str, Audit]) -> None:
    console = Console(width=80, record=True, file=StringIO())
    console.print(terminal_table(demo_table(audits.items())))
    text = console.export_text()
    assert "…" not in text
    assert text.count("method") == 1 + text.startswith("Every method"), (
        "one table, not two"
    )
    for method in DEMO_METHODS:
        assert all(part in text for part in method.split("-"))


def test_methods_with_views_come_afterwards() -> None:
    assert set(ONE_VIEW_METHODS) | set(VIEW_METHODS) == set(DEMO_METHODS)
    assert set(ONE_VIEW_METHODS) & set(VIEW_METHODS) == {"zero-shot"}


def test_threads_are_as_they_were() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_cells_as_text() -> None:
    assert estimate_text(Estimate(0.53, 9, 0.4, 0.6), 1) == "53.0 [40.0, 60.0] +"
    assert estimate_text(Estimate(0.53, 9, 0.4, 0.6), -1) == "53.0 [40.0, 60.0] -"
    assert estimate_text(Estimate(0.53, 9)) == "53.0"
    assert estimate_text(undefined_estimate("no images")) == "n/a"


def test_the_page_is_that_of_audits_with_changed_images(
    episodes: list[Episode], audits: dict[str, Audit]
) -> None:
    first = {"birds": audits["birds"]}
    page = demo_page(episodes, audits, first, demo_table(audits.items()))
    assert page.startswith("<!DOCTYPE html>")
    assert f"birds: methods with views, {2 * IMAGES} images" in page
    assert page.count("data:image/png") == sum(
        len(changed_answers(episodes, task)) for task in TASKS
    )


def test_other_methods_can_be_compared() -> None:
    (zero_shot, tpt) = run_episodes(
        [TASKS["badges"]], {"a": ZeroShot(), "b": TPT()}, seeds=[7], images=2
    )
    assert (zero_shot.method, tpt.method, tpt.seed) == ("a", "b", 7)
    assert all(p.learning_rate is None for p in zero_shot.predictions)
    assert all(p.learning_rate is not None for p in tpt.predictions)
    assert Zero in {type(adapter) for adapter in DEMO_METHODS.values()}


@pytest.mark.slow
def test_the_command_writes_the_report(tmp_path: Path) -> None:
    out = tmp_path / "demo.html"
    first = ["demo", "--out", str(out), "--one-view", "18"]
    result = CliRunner().invoke(app, [*first, "--seeds", "1", "--pictures", "4"])
    assert result.exit_code == 0, result.output
    assert "fair-tpt-mo" in result.stdout
    assert result.stdout.index("logit-balance") < result.stdout.index("What to do")
    assert out.read_text("utf-8").startswith("<!DOCTYPE html>")
