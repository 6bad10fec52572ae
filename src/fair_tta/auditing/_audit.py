"""The audit as an object: it prints its document, draws it and returns it as data frames."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fair_tta._io import write_atomically
from fair_tta.auditing import _document as doc
from fair_tta.auditing._json_document import JsonDocument
from fair_tta.auditing._judge import label_cautions
from fair_tta.errors import FairTTAError, require
from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import Estimate, group_label, list_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The metrics that fit into a narrow table, with their headings.
_TABLE_METRICS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "worst_group_accuracy": "worst group",
    "typical_gap": "typical gap",
    "equalized_odds_difference": "EOD",
}

_LATEX_OF_SIGN = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{MINUS SIGN}": "$-$",
}


@dataclass(frozen=True, eq=False, repr=False)
class Audit(JsonDocument):
    """Group-wise figures of one or more runs on the same images.

    Made by `audit` and `compare`. It holds a document of constant size, whatever the number of
    images; one that was just made also holds the columns, for `compare` and for data frames. Two
    audits are equal if their documents are, apart from time and cost.

    Args:
        document: all figures; its fields are those of `audit.json`.
        columns: the images as numbers, None after `load`.
    """

    document: doc.AuditDocument
    columns: AnswerTable | None = None

    _document_type = doc.AuditDocument

    @property
    def runs(self) -> tuple[str, ...]:
        """Names of the runs; the others are compared with the first."""
        return tuple(run.name for run in self.document.runs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that a reader of the figures must know."""
        return self.document.warnings

    def estimate(self, metric: str, run: str | None = None) -> Estimate:
        """Return a figure of a run (the first if None), such as ``"worst_group_accuracy"``."""
        figures = self.document.runs[self._index_of(run)].metrics
        return _estimate_of(figures, metric)

    def difference(self, metric: str, run: str) -> Estimate:
        """Return how a figure of a run differs from that of the first, with its paired interval.

        The interval is of this comparison alone, at the audit's level. Of several runs, reports
        show wider ones that allow for their number: ``document.comparisons[i].corrected``.
        """
        return _estimate_of(self._comparison(run).differences, metric)

    def compared_group(
        self, run: str, sensitive: Mapping[str, str], target: str | None = None
    ) -> doc.ComparedGroup:
        """Return how a group, chosen before looking, fares with a run beside the first.

        Its ``difference`` has the interval of this group alone, and ``changes.mcnemar_p`` is the
        exact test on it: where one small group carries an effect it shows what worst-group accuracy
        cannot, which has to allow for all groups. Anyone who looks first and then picks the group
        should take ``corrected``, which allows for every class in every group.

        Args:
            run: the run that is compared with the first.
            sensitive: ``{attribute: value}`` with every attribute of the audit.
            target: the class, all classes if None.

        Example:
            >>> from fair_tta import audit, compare
            >>> truth, places = ["cat", "dog"] * 100, ["in"] * 100 + ["out"] * 100
            >>> before = audit(truth, ["cat"] * 200, places, name="before")
            >>> both = compare([before, audit(truth, truth, places, name="after")])
            >>> both.compared_group("after", {"sensitive": "out"}, "dog").difference.value
            1.0
        """
        groups = self._comparison(run).groups
        for group in groups:
            if group.target == target and group.sensitive == dict(sensitive):
                return group
        # No such group: the error names the known ones
        names = []
        for group in groups:
            target_name = () if group.target is None else (group.target,)
            names.append(group_label(*target_name, *group.sensitive.values()))
        raise FairTTAError(
            f"`sensitive` and `target` should be those of a group, such as {list_names(names)} "
            f"(got {dict(sensitive)} and {target!r}).",
            argument="sensitive",
        )

    def save_html(
        self, path: str | PathLike[str], *, title: str | None = None, full: bool = False
    ) -> None:
        """Write the report: one HTML page that needs no other file.

        The same audit gives the same bytes.

        Args:
            path: the file to write.
            title: the name of the task; the verdict follows it.
            full: open all sections that are folded otherwise.
        """
        # A convenience: the core imports the lab only here, when it is called
        from fair_tta.lab.report import html

        write_atomically(path, html(self, title=title, full=full).encode())

    def to_markdown(self, *, title: str | None = None) -> str:
        """Return a block for a model card.

        Args:
            title: its heading; the verdict follows it.
        """
        from fair_tta.lab.report import markdown  # see `save_html`

        return markdown(self, title=title)

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON Schema of ``audit.json``."""
        return doc.schema()

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each figure and group, also if loaded."""
        return require("pandas", "fairlearn").DataFrame(list(self._frame_rows()))

    def _frame_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the metrics of each run, then the accuracy of each class in each group."""
        # All rows have the same columns: those of groups are empty for metrics
        no_group: dict[str, str | None] = {"target": None}
        for attribute in self.document.data.sensitive:
            no_group[_column(attribute)] = None

        for run in self.document.runs:
            for metric, estimate in run.metrics.by_name().items():
                names = {"run": run.name, "figure": metric, **no_group}
                yield names | _numbers(estimate)
            for group in run.groups:
                names = {"run": run.name, "figure": "group_accuracy"}
                for attribute, value in group.sensitive.items():
                    names[_column(attribute)] = value
                for cell in group.classes:
                    names["target"] = cell.target
                    yield names | _numbers(cell.true_positive_rate)

    def plot(self, run: str | None = None, axes: Axes | None = None) -> Axes:
        """Draw the accuracy of each group with its interval on matplotlib axes, also if loaded.

        The worst is at the bottom; groups with few images are hollow.

        Args:
            run: its name, the first if None.
            axes: where to draw, new ones if None; ``axes.figure.savefig(path)`` saves these.
        """
        # Groups without images have no accuracy and no line
        figures_of_run = self.document.runs[self._index_of(run)]
        accuracies: list[tuple[str, float, Estimate]] = []
        for group in figures_of_run.groups:
            for cell in group.classes:
                accuracy = cell.true_positive_rate
                if accuracy.value is not None:
                    name = group_label(cell.target, *group.sensitive.values())
                    accuracies.append((name, accuracy.value, accuracy))
        accuracies.sort(key=lambda row: row[1])

        figure_module = require("matplotlib.figure", "plot")
        if axes is None:
            # Inches: one line of text for each group, and one for the axis below
            size = (6.4, 1 + 0.3 * len(accuracies))
            figure = figure_module.Figure(figsize=size, layout="constrained")
            axes = figure.add_subplot()
        for y, (_, value, accuracy) in enumerate(accuracies):
            interval = [100 * (accuracy.low or 0.0), 100 * (accuracy.high or 0.0)]
            axes.plot(interval, [y, y], color="tab:gray", linewidth=1.5, zorder=1)
            is_small = accuracy.n < self.document.settings.small
            axes.plot(
                [100 * value],
                [y],
                "o",
                color="tab:blue",
                markerfacecolor="white" if is_small else "tab:blue",
                zorder=2,
            )

        # The accuracy of all images, to compare the groups with
        overall = figures_of_run.metrics.accuracy.value
        if overall is not None:
            axes.axvline(100 * overall, color="tab:orange", label="accuracy of all")
            axes.legend(loc="best", frameon=False)

        # Names are the user's: a dollar sign in them does not begin a formula
        names = [name for name, _, _ in accuracies]
        axes.set_yticks(range(len(names)), names, parse_math=False)
        axes.set_xlabel("right answers, percent")
        axes.set_title(figures_of_run.name, parse_math=False)
        return axes

    def _table(self) -> list[list[str]]:
        """Return the headings, then a row for each run: percent with intervals."""
        rows = [["", *_TABLE_METRICS.values()]]
        for run in self.document.runs:
            rows.append([run.name, *_table_cells(run.metrics)])
        return rows

    def to_latex(self) -> str:
        """Return a table for LaTeX (package booktabs), with intervals.

        The runs, and how they differ from the first; the intervals of differences allow for the
        number of runs.
        """
        headings, *rows = self._table()
        lines = [
            rf"\begin{{tabular}}{{l{'r' * len(_TABLE_METRICS)}}}",
            r"\toprule",
            _latex_row(headings),
            r"\midrule",
        ]
        lines += [_latex_row(row) for row in rows]
        # Below the runs, their differences from the first under a title of their own
        if self.document.comparisons:
            title = f"Difference from {self.runs[0]}, on the same images"
            columns = len(headings)
            lines.append(r"\midrule")
            lines.append(rf"\multicolumn{{{columns}}}{{l}}{{{_latex_text(title)}}} \\")
        for comparison in self.document.comparisons:
            cells = _table_cells(comparison.adjusted, sign="+")
            lines.append(_latex_row([comparison.run, *cells]))
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def _repr_html_(self) -> str:
        """Return the table of the runs for notebooks, with cautions and warnings."""
        headings, *rows = self._table()
        table = _html_row("th", headings)
        for row in rows:
            table += _html_row("td", row)
        level = f"{100 * self.document.settings.level:g}"
        return (
            _html_paragraphs(label_cautions(self.document))
            + f"<p>{self.document.data.n} images; percent with {level} % intervals</p>"
            + f"<table>{table}</table>"
            + _html_paragraphs(self.warnings)
        )

    def to_dataframe(self) -> Any:
        """Return a pandas DataFrame with a row per image: label, values, answers of each run."""
        columns = self._need_columns("to_dataframe")
        pandas = require("pandas", "fairlearn")
        table = {"y_true": columns.names(columns.truth)}
        for attribute, values in columns.sensitive.items():
            table[_column(attribute)] = values
        for run, answers in zip(self.runs, columns.answers, strict=True):
            table[f"y_pred: {run}"] = columns.names(answers)
        return pandas.DataFrame(table)

    def to_metric_frame(
        self, run: str | None = None, metrics: Mapping[str, Any] | None = None
    ) -> Any:
        """Return a `fairlearn.metrics.MetricFrame` of a run (the first if None).

        Args:
            run: its name.
            metrics: functions of y_true and y_pred; accuracy and count if None.
        """
        columns = self._need_columns("to_metric_frame")
        pandas = require("pandas", "fairlearn")
        fairlearn = require("fairlearn.metrics", "fairlearn")
        if metrics is None:
            metrics = {
                "accuracy": lambda y_true, y_pred: float((y_true == y_pred).mean()),
                "count": fairlearn.count,
            }
        return fairlearn.MetricFrame(
            metrics=dict(metrics),
            y_true=columns.names(columns.truth),
            y_pred=columns.names(columns.answers[self._index_of(run)]),
            sensitive_features=pandas.DataFrame(columns.sensitive),
        )

    def _need_columns(self, caller: str) -> AnswerTable:
        """Return the columns, or raise an error that explains why `caller` is not possible."""
        if self.columns is None:
            raise FairTTAError(
                f"`{caller}` needs the images, which a saved audit does not hold: use the audit as "
                "`audit` made it.",
                argument=caller,
            )
        return self.columns

    def _index_of(self, run: str | None) -> int:
        """Return the position of a run, 0 if None."""
        if run is None:
            return 0
        _check_among("run", run, self.runs)
        return self.runs.index(run)

    def _comparison(self, run: str) -> doc.Comparison:
        """Return the comparison of a run with the first."""
        comparisons = {each.run: each for each in self.document.comparisons}
        _check_among("run", run, comparisons)
        return comparisons[run]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Audit):
            return NotImplemented
        return _timeless(self.document) == _timeless(other.document)

    def __hash__(self) -> int:
        return hash((self.document.data.hash, self.runs))

    def __repr__(self) -> str:
        return f"Audit(runs={list(self.runs)}, n={self.document.data.n})"

    def __str__(self) -> str:
        # Cautions come first: they say which figures mean nothing
        lines = [*label_cautions(self.document), f"{self.document.data.n} images"]
        for run in self.document.runs:
            lines.append(run.name)
            figures = run.metrics.by_name()
            for metric in _TABLE_METRICS:
                estimate = figures[metric]
                lines.append(f"  {metric:27}{estimate.to_text()}  n = {estimate.n}")
        return "\n".join([*lines, *self.warnings])


def _check_among(argument: str, name: str, allowed: Iterable[str]) -> None:
    if name not in allowed:
        raise FairTTAError(
            f"`{argument}` should be one of {list(allowed)} (got {name!r}).",
            argument=argument,
        )


def _estimate_of(figures: doc.Figures, metric: str) -> Estimate:
    estimates = figures.by_name()
    _check_among("metric", metric, estimates)
    return estimates[metric]


def _timeless(document: doc.AuditDocument) -> doc.AuditDocument:
    """Return the document without what differs each time the same audit is made."""
    runs = tuple(replace(run, cost=None) for run in document.runs)
    return replace(document, provenance={**document.provenance, "time": ""}, runs=runs)


def _column(attribute: str) -> str:
    """Return the column of an attribute in data frames; a prefix keeps it apart from figures."""
    return f"sensitive: {attribute}"


def _numbers(estimate: Estimate) -> dict[str, float | int | None]:
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.n,
    }


def _table_cells(figures: doc.Figures, sign: str = "") -> list[str]:
    """Return the metrics of the table in percent, with intervals."""
    estimates = figures.by_name()
    cells = []
    for metric in _TABLE_METRICS:
        estimate = estimates[metric]
        is_missing = estimate.is_withheld
        cells.append("n/a" if is_missing else estimate.to_text(sign, unit=""))
    return cells


def _html_row(tag: str, cells: Sequence[str]) -> str:
    """Return a row of a table, which begins with a heading."""
    heading, *others = cells
    html = f"<th>{escape(heading)}</th>"
    for cell in others:
        html += f"<{tag}>{escape(cell)}</{tag}>"
    return f"<tr>{html}</tr>"


def _html_paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(map(_latex_text, cells)) + r" \\"


def _latex_text(text: str) -> str:
    """Return text on one line, with the signs escaped that LaTeX would interpret."""
    signs = "".join(map(re.escape, _LATEX_OF_SIGN))
    one_line = " ".join(text.split())
    return re.sub(f"[{signs}]", lambda sign: _LATEX_OF_SIGN[sign.group()], one_line)
