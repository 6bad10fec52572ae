"""A finished table as CSV and as Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence

from fair_tta.auditing import Audit
from paper.figures import SECONDS, TITLES, Figure
from paper.printed import AVERAGE
from paper.tables import Table

LEGEND = (
    "Percent, of the images of all seeds together, each once with its first seed; 95 % intervals "
    "in brackets. + better, - worse than zero-shot: the paired interval of the difference excludes "
    "0, at a level that allows for all settings of the table (Holm); averages have none. Acc: "
    "accuracy; WGA: accuracy of the worst group of class and attribute; Bias: Acc - WGA, the gap; "
    "EOD: equalized-odds difference; ASI: indifference to the attribute; ATC: confidence in the "
    "target; s: seconds per image, views included. paper: the paper's figure, a mean over seeds; "
    "ours as means over seeds, with standard errors and minus the paper's, come last. A question "
    "mark: it contradicts its own row in the paper and is most likely a slip."
)

COLUMNS = (
    "table,section,row,setting,adapter,dataset,target,sensitive,metric,images,seeds,mean,"
    "standard_error,pooled,pooled_low,pooled_high,mark,difference,low,high,paper,minus_paper,"
    "suspect"
).split(",")

HARM_COLUMNS = (
    "extra_class,by,set,group,setting,n,rate,low,high,change,change_low,change_high"
).split(",")


def to_csv(table: Table, figures: Sequence[Figure]) -> str:
    """Return a line for each cell, numbers in full."""
    rows = []
    for figure in figures:
        setting = figure.setting
        row: dict[str, object] = {
            "table": table.name,
            "section": setting.section,
            "row": setting.row,
            "setting": setting.name,
            "adapter": repr(setting.adapter),
            "dataset": AVERAGE,
            "metric": figure.metric,
            "images": figure.images,
            "seeds": figure.seeds,
            "mean": figure.mean,
            "mark": figure.mark,
        }
        if not math.isnan(figure.standard_error):
            row["standard_error"] = figure.standard_error
        if figure.task is not None:
            row["dataset"] = figure.task.dataset
            row["target"] = figure.task.target
            row["sensitive"] = " x ".join(figure.task.sensitive)
        if figure.pooled is not None:
            row["pooled"] = figure.pooled.value
            row["pooled_low"] = figure.pooled.low
            row["pooled_high"] = figure.pooled.high
        if figure.change is not None:
            row["difference"] = figure.change.value
            row["low"] = figure.change.low
            row["high"] = figure.change.high
        if figure.printed is not None:
            row["paper"] = f"{figure.printed.value:g}"
            row["minus_paper"] = figure.minus_paper
            row["suspect"] = str(figure.printed.suspect).lower()
        rows.append(row)
    return _csv(COLUMNS, rows)


def harm_to_csv(audits: Iterable[Audit]) -> str:
    """Return a line for each set of harmful classes, group and setting, numbers in full."""
    rows = []
    for audit in audits:
        document = audit.document
        changes = {
            (comparison.run, harm.classes, *harm.sensitive.values()): harm.difference
            for comparison in document.comparisons
            for harm in comparison.harm
        }
        for run in document.runs:
            for harm in run.harm:
                row: dict[str, object] = {
                    "extra_class": "child" if "child" in document.data.targets else "",
                    "by": " x ".join(document.data.sensitive),
                    "set": harm.classes,
                    "group": " / ".join(harm.sensitive.values()) or "everybody",
                    "setting": run.name,
                    "n": harm.rate.n,
                    "rate": harm.rate.value,
                    "low": harm.rate.low,
                    "high": harm.rate.high,
                }
                change = changes.get((run.name, harm.classes, *harm.sensitive.values()))
                if change is not None:
                    row["change"] = change.value
                    row["change_low"] = change.low
                    row["change_high"] = change.high
                rows.append(row)
    return _csv(HARM_COLUMNS, rows)


def _csv(columns: Sequence[str], rows: Iterable[dict[str, object]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_markdown(table: Table, figures: Sequence[Figure]) -> str:
    """Return a table for each task and for the average, and means over seeds beside the paper's."""
    parts = [f"# {table.name}", "", LEGEND, ""]
    if table.model:
        parts += [f"The paper's model is {table.model}.", ""]
    by_task: dict[str, list[Figure]] = {}
    for figure in figures:
        by_task.setdefault(_task_name(figure), []).append(figure)
    for name, task_figures in by_task.items():
        parts += [f"## {name}", "", *_task_table(task_figures), ""]
    over_seeds = [
        _seeds_row(figure) for figure in figures if figure.printed is not None
    ]
    if over_seeds:
        header = [
            "task",
            "setting",
            "metric",
            "mean over seeds",
            "paper",
            "ours minus paper",
        ]
        parts += [
            "## Means over seeds, beside the paper's",
            "",
            "With their standard errors.",
            "",
        ]
        parts += [*_markdown_table(header, over_seeds), ""]
    return "\n".join(parts)


def _task_name(figure: Figure) -> str:
    return AVERAGE if figure.task is None else str(figure.task)


def _task_table(figures: Sequence[Figure]) -> Iterable[str]:
    """Return a line for each setting; figures of the paper have columns of their own."""
    header = ["setting"]
    columns = [list(dict.fromkeys(figure.setting.name for figure in figures))]
    for metric, title in {**TITLES, SECONDS: "s"}.items():
        metric_figures = [figure for figure in figures if figure.metric == metric]
        if metric_figures:
            header.append(title)
            columns.append([shown(figure) for figure in metric_figures])
        if any(figure.printed is not None for figure in metric_figures):
            header.append(f"{title}, paper")
            columns.append([str(figure.printed or "") for figure in metric_figures])
    return _markdown_table(header, zip(*columns, strict=True))


def shown(figure: Figure) -> str:
    """Return our figure as text, such as ``62.5 [48.1, 75.0] +``."""
    if figure.pooled is None:
        return f"{figure.mean:.3g}"
    if math.isnan(figure.pooled.value):
        return "n/a"
    text = f"{figure.pooled.value:.1f}"
    if figure.pooled.low is not None and figure.pooled.high is not None:
        text += f" [{figure.pooled.low:.1f}, {figure.pooled.high:.1f}]"
    return text + {0: "", 1: " +", -1: " -"}[figure.mark]


def _seeds_row(figure: Figure) -> list[str]:
    digits = 2 if figure.metric == SECONDS else 1
    mean = "n/a" if math.isnan(figure.mean) else f"{figure.mean:.{digits}f}"
    if not math.isnan(figure.standard_error):
        mean += f" ±{figure.standard_error:.{digits}f}"
    minus = figure.minus_paper
    difference = "" if minus is None or math.isnan(minus) else f"{minus:+.{digits}f}"
    title = {**TITLES, SECONDS: "s"}[figure.metric]
    name = figure.setting.name
    return [_task_name(figure), name, title, mean, str(figure.printed), difference]


def _markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]]
) -> Iterable[str]:
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    for row in rows:
        cells = [cell.replace("|", r"\|") for cell in row]
        yield f"| {' | '.join(cells)} |"
