"""The audit as an object: a document, read and written, and the rows while they last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fair_tta.auditing import frames, shown
from fair_tta.auditing.document import AuditDocument
from fair_tta.auditing.json_form import dump_document, parse_document, read_file
from fair_tta.auditing.scores import Scores
from fair_tta.errors import FairTTAError
from fair_tta.files.whole_files import write_whole
from fair_tta.metrics.estimate import Estimate
from fair_tta.metrics.rows import Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = (
    "accuracy",
    "balanced_accuracy",
    "worst_group_accuracy",
    "bias",
    "equalized_odds_difference",
)


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """Group-wise figures of one or more runs on the same images.

    `audit` and `compare` make it. It holds a document of constant size, whatever the number of
    images; one that was just made also holds the rows, for `compare` and for data frames. Two
    audits are equal if their documents are, apart from time and cost.

    Args:
        document: all figures; its fields are those of `audit.json`.
        rows: the images as numbers, None after `load`.
        scores: what each run says besides its answers.
    """

    document: AuditDocument
    rows: Rows | None = None
    scores: tuple[Scores, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        """Names of the runs; the first is what others are compared with."""
        return tuple(run.name for run in self.document.runs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the figures must know."""
        return self.document.warnings

    def estimate(self, metric: str, run: str | None = None) -> Estimate:
        """A figure of a run (the first if None), such as ``"worst_group_accuracy"``."""
        metrics = self.document.runs[self._position(run)].metrics.by_name()
        if metric not in metrics:
            raise FairTTAError(f"`metric` should be one of {list(metrics)} (got {metric!r}).")
        return metrics[metric].estimate

    def difference(self, metric: str, run: str) -> Estimate:
        """How a figure of a run differs from that of the first, with its paired interval.

        The interval is of this comparison alone, at the level asked for. Of several runs, reports
        show wider ones that allow for their number: ``document.comparisons[i].corrected``.
        """
        others = {c.run: c.differences.by_name() for c in self.document.comparisons}
        if run not in others:
            raise FairTTAError(f"`run` should be one of {list(others)} (got {run!r}).")
        if metric not in others[run]:
            raise FairTTAError(f"`metric` should be one of {list(others[run])} (got {metric!r}).")
        return others[run][metric].estimate

    def to_json(self) -> str:
        """The document as JSON."""
        return dump_document(self.document)

    @classmethod
    def from_json(cls, text: str) -> Audit:
        """Read and check what `to_json` wrote."""
        return cls(parse_document(text))

    def to_dict(self) -> dict[str, Any]:
        """The document as plain dictionaries and lists."""
        plain: dict[str, Any] = json.loads(self.to_json())
        return plain

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Audit:
        """Read and check what `to_dict` gave."""
        try:
            text = json.dumps(dict(document))
        except (TypeError, ValueError, RecursionError) as error:
            raise FairTTAError(f"this is not what JSON can hold: {error}.") from error
        return cls.from_json(text)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document to a file."""
        write_whole(path, f"{self.to_json()}\n".encode())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Audit:
        """Read and check a file that `save` wrote."""
        return cls(parse_document(read_file(path)))

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each figure and group, also of a loaded audit."""
        return shown.document_frame(self.document)

    def plot(self, run: str | None = None, axes: Axes | None = None) -> Axes:
        """Accuracy of each group with its interval: matplotlib axes, also of a loaded audit.

        Args:
            run: its name, the first if None.
            axes: where to draw, new ones if None; ``axes.figure.savefig(path)`` saves these.
        """
        chosen = self.document.runs[self._position(run)]
        return shown.plot_groups(chosen, self.document.settings.small, axes)

    def to_latex(self) -> str:
        """A table of the runs for LaTeX, with intervals (package booktabs)."""
        return shown.to_latex(self.document)

    def _repr_html_(self) -> str:
        return shown.to_html_table(self.document)

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per image: label, sensitive values, answers of each run."""
        return frames.rows_to_dataframe(self.need_rows("to_dataframe"), self.runs)

    def to_metric_frame(
        self, run: str | None = None, metrics: Mapping[str, Any] | None = None
    ) -> Any:
        """A `fairlearn.metrics.MetricFrame` of a run (the first if None).

        Args:
            run: its name.
            metrics: functions of y_true and y_pred; accuracy and count if None.
        """
        rows = self.need_rows("to_metric_frame")
        return frames.metric_frame(rows, self._position(run), metrics)

    def need_rows(self, what: str) -> Rows:
        """The rows, or an error that says why `what` cannot be had."""
        if self.rows is None:
            raise FairTTAError(
                f"`{what}` needs the rows, which a saved audit does not hold: use the audit as "
                "`audit` made it."
            )
        return self.rows

    def _position(self, run: str | None) -> int:
        if run is None:
            return 0
        if run not in self.runs:
            raise FairTTAError(f"`run` should be one of {list(self.runs)} (got {run!r}).")
        return self.runs.index(run)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Audit):
            return NotImplemented
        return _timeless(self.document) == _timeless(other.document)

    def __hash__(self) -> int:
        return hash(dump_document(_timeless(self.document)))

    def __repr__(self) -> str:
        return f"Audit(runs={list(self.runs)}, n={self.document.data.n})"

    def __str__(self) -> str:
        lines = [f"{self.document.data.n} images"]
        for run in self.document.runs:
            figures = run.metrics.by_name()  # older audits lack some
            lines.append(run.name)
            lines += [f"  {m:27}{_show(figures[m].estimate)}" for m in _SHOWN if m in figures]
        return "\n".join([*lines, *self.warnings])


def _timeless(document: AuditDocument) -> AuditDocument:
    runs = tuple(replace(run, cost=None) for run in document.runs)
    return replace(document, provenance={**document.provenance, "time": ""}, runs=runs)


def _show(figure: Estimate) -> str:
    if figure.low is None or figure.high is None:
        return f"{figure.reason}" if figure.value != figure.value else f"{figure.value:.1%}"
    return f"{figure.value:6.1%}  [{figure.low:.1%}, {figure.high:.1%}]  n = {figure.n}"
