"""The audit as an object: a document, kept as JSON, shown, and as data frames."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, ClassVar, Self

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from fair_tta._io import open_file, write_atomically
from fair_tta.auditing._document import AuditDocument, ComparedGroup, schema
from fair_tta.auditing._judge import label_cautions
from fair_tta.errors import FairTTAError, require
from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import Estimate, group_label, list_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEADS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "worst_group_accuracy": "worst group",
    "typical_gap": "typical gap",
    "equalized_odds_difference": "EOD",
}  # the figures that fit into a narrow table

_MOST_BYTES = 2**28  # of a file that is read

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
_LATEX |= {"\N{MULTIPLICATION SIGN}": r"$\times$", "\N{MINUS SIGN}": "$-$"}


@dataclass(frozen=True, eq=False)
class JsonDocument:
    """What holds a document and is kept as JSON; its schema is called after the class."""

    document: Any

    _kind: ClassVar[type[Struct]]

    def to_json(self) -> str:
        """The document as JSON, floats in full."""
        plain = to_builtins(self.document)
        text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
        try:
            text.encode()
        except UnicodeEncodeError:  # a file name that is not Unicode
            text = json.dumps(plain, indent=1, allow_nan=False)
        return text

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read and check what `to_json` wrote.

        Raises:
            FairTTAError: it is not such a document, and where it fails.
        """
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FairTTAError(f"this is not JSON: {error}.") from error
        return cls.from_dict(plain)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read and check what `to_dict` gave."""
        what = cls.__name__.lower()
        schema_id, is_mapping = f"fair-tta/{what}/1", isinstance(document, Mapping)
        found = document.get("schema", schema_id) if is_mapping else schema_id
        if found != schema_id:
            raise FairTTAError(
                f"this {what} has the schema {found!r:.60}, but this version of fair-tta reads "
                f"{schema_id!r}."
            )
        try:
            return cls(convert(dict(document) if is_mapping else document, cls._kind))
        except (
            ValidationError,
            UnicodeError,
        ) as error:  # the latter for an unknown odd name
            raise FairTTAError(
                f"this is not an {what} of schema {schema_id!r}: {error}."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """The document as plain dictionaries and lists."""
        plain: dict[str, Any] = json.loads(self.to_json())
        return plain

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document to a file."""
        write_atomically(path, f"{self.to_json()}\n".encode())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read and check a file that `save` wrote, of at most 256 MiB."""
        with open_file(path) as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise FairTTAError(f"{fspath(path)!r} has more than {_MOST_BYTES} bytes.")
        return cls.from_json(content)


@dataclass(frozen=True, eq=False, repr=False)
class Audit(JsonDocument):
    """Group-wise figures of one or more runs on the same images.

    `audit` and `compare` make it. It holds a document of constant size, whatever the number of
    images; one that was just made also holds the columns, for `compare` and for data frames. Two
    audits are equal if their documents are, apart from time and cost.

    Args:
        document: all figures; its fields are those of `audit.json`.
        columns: the images as numbers, None after `load`.
    """

    document: AuditDocument
    columns: AnswerTable | None = None

    _kind = AuditDocument

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
            raise FairTTAError(
                f"`metric` should be one of {list(metrics)} (got {metric!r}).",
                argument="metric",
            )
        return metrics[metric]

    def difference(self, metric: str, run: str) -> Estimate:
        """How a figure of a run differs from that of the first, with its paired interval.

        The interval is of this comparison alone, at the level asked for. Of several runs, reports
        show wider ones that allow for their number: ``document.comparisons[i].corrected``.
        """
        others = {c.run: c.differences.by_name() for c in self.document.comparisons}
        if run not in others:
            raise FairTTAError(
                f"`run` should be one of {list(others)} (got {run!r}).", argument="run"
            )
        if metric not in others[run]:
            raise FairTTAError(
                f"`metric` should be one of {list(others[run])} (got {metric!r}).",
                argument="metric",
            )
        return others[run][metric]

    def compared_group(
        self, run: str, sensitive: Mapping[str, str], target: str | None = None
    ) -> ComparedGroup:
        """How a group that was named before looking fares with a run, beside the first.

        Its ``difference`` has the interval of this group alone, and ``changes.mcnemar_p`` is the
        exact test on it: where one small group carries an effect it shows what worst-group accuracy
        cannot, which has to allow for all groups. Whoever looks first and then picks the group
        should take ``corrected``, which allows for every class in every group.

        Args:
            run: which is compared with the first.
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
        compared = {c.run: c.groups for c in self.document.comparisons}
        if run not in compared:
            raise FairTTAError(
                f"`run` should be one of {list(compared)} (got {run!r}).",
                argument="run",
            )
        for group in compared[run]:
            if group.target == target and group.sensitive == dict(sensitive):
                return group
        names = [
            group_label(*filter(None, (g.target, *g.sensitive.values())))
            for g in compared[run]
        ]
        raise FairTTAError(
            f"`sensitive` and `target` should be those of a group, such as {list_names(names)} "
            f"(got {dict(sensitive)} and {target!r}).",
            argument="sensitive",
        )

    def save_html(
        self, path: str | PathLike[str], *, title: str | None = None, full: bool = False
    ) -> None:
        """Write the report: one HTML page that needs nothing else.

        The same audit gives the same bytes.

        Args:
            path: where to.
            title: what to call the task; the verdict follows it.
            full: open all sections that are folded otherwise.
        """
        from fair_tta.lab.report import html  # a convenience: the lab when called

        write_atomically(path, html(self, title=title, full=full).encode())

    def to_markdown(self, *, title: str | None = None) -> str:
        """Return a block for a model card.

        Args:
            title: its heading; the verdict follows it.
        """
        from fair_tta.lab.report import markdown  # a convenience: the lab when called

        return markdown(self, title=title)

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON Schema of ``audit.json``."""
        return schema()

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each figure and group, also of a loaded audit."""
        return require("pandas", "fairlearn").DataFrame(list(self._figures()))

    def _figures(self) -> Iterator[dict[str, Any]]:
        empty = dict.fromkeys(["target", *map(_column, self.document.data.sensitive)])
        for run in self.document.runs:
            for name, figure in run.metrics.by_name().items():
                yield {"run": run.name, "figure": name, **empty, **_numbers(figure)}
            for group in run.groups:
                names = {
                    _column(attribute): value
                    for attribute, value in group.sensitive.items()
                }
                for cell in group.classes:
                    about = {
                        "run": run.name,
                        "figure": "group_accuracy",
                        "target": cell.target,
                    }
                    yield {**about, **names, **_numbers(cell.true_positive_rate)}

    def plot(self, run: str | None = None, axes: Axes | None = None) -> Axes:
        """Accuracy of each group with its interval: matplotlib axes, also of a loaded audit.

        The worst is at the bottom; groups with few images are hollow.

        Args:
            run: its name, the first if None.
            axes: where to draw, new ones if None; ``axes.figure.savefig(path)`` saves these.
        """
        chosen = self.document.runs[self._position(run)]
        figures = require("matplotlib.figure", "plot")
        cells = [
            (
                group_label(cell.target, *group.sensitive.values()),
                cell.true_positive_rate,
            )
            for group in chosen.groups
            for cell in group.classes
            if cell.true_positive_rate.value is not None
        ]
        cells.sort(key=lambda cell: cell[1].value or 0.0)
        if axes is None:
            size = (6.4, 1 + 0.3 * len(cells))
            axes = figures.Figure(figsize=size, layout="constrained").add_subplot()
        for y, (_, figure) in enumerate(cells):
            value, low, high = (
                100 * (x or 0.0) for x in (figure.value, figure.low, figure.high)
            )
            axes.plot([low, high], [y, y], color="tab:gray", linewidth=1.5, zorder=1)
            face = "white" if figure.n < self.document.settings.small else "tab:blue"
            axes.plot(
                [value], [y], "o", color="tab:blue", markerfacecolor=face, zorder=2
            )
        overall = chosen.metrics.accuracy.value
        if overall is not None:
            axes.axvline(100 * overall, color="tab:orange", label="accuracy of all")
            axes.legend(loc="best", frameon=False)
        axes.set_yticks(
            range(len(cells)), [name for name, _ in cells], parse_math=False
        )
        axes.set_xlabel("right answers, percent")
        axes.set_title(chosen.name, parse_math=False)
        return axes

    def _table(self) -> list[list[str]]:
        """The heads, then each run: percent with intervals."""
        figures = [(run.name, run.metrics.by_name()) for run in self.document.runs]
        rows = [
            [name, *(_percent(found.get(key)) for key in _HEADS)]
            for name, found in figures
        ]
        return [["", *_HEADS.values()], *rows]

    def to_latex(self) -> str:
        """A table for LaTeX (package booktabs): the runs, and how they differ from the first, with
        intervals; those of differences allow for the number of runs."""
        head, *rows = self._table()
        others = [(c.run, c.adjusted.by_name()) for c in self.document.comparisons]
        changes = [
            [name, *(_percent(of.get(key), "+") for key in _HEADS)]
            for name, of in others
        ]
        title = f"Difference from {self.runs[0]}, on the same images"
        return latex_table(head, rows, *([(title, changes)] if changes else []))

    def _repr_html_(self) -> str:
        head, *rows = self._table()
        heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        body = "".join(
            f"<tr><th>{escape(name)}</th>"
            + "".join(f"<td>{cell}</td>" for cell in row)
            + "</tr>"
            for name, *row in rows
        )
        signs, notes = (
            "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
            for sentences in (label_cautions(self.document), self.warnings)
        )
        level = f"{100 * self.document.settings.level:g}"
        caption = (
            f"<p>{self.document.data.n} images; percent with {level} % intervals</p>"
        )
        return f"{signs}{caption}<table><tr>{heads}</tr>{body}</table>{notes}"

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per image: label, sensitive values, answers of each run."""
        columns, pandas = (
            self._need_columns("to_dataframe"),
            require("pandas", "fairlearn"),
        )
        table = {"y_true": columns.names(columns.truth)}
        table |= {_column(a): column for a, column in columns.sensitive.items()}
        answers = zip(self.runs, columns.answers, strict=True)
        table |= {f"y_pred: {run}": columns.names(codes) for run, codes in answers}
        return pandas.DataFrame(table)

    def to_metric_frame(
        self, run: str | None = None, metrics: Mapping[str, Any] | None = None
    ) -> Any:
        """A `fairlearn.metrics.MetricFrame` of a run (the first if None).

        Args:
            run: its name.
            metrics: functions of y_true and y_pred; accuracy and count if None.
        """
        columns, pandas = (
            self._need_columns("to_metric_frame"),
            require("pandas", "fairlearn"),
        )
        fairlearn = require("fairlearn.metrics", "fairlearn")
        if metrics is None:
            metrics = {
                "accuracy": lambda y, p: float((y == p).mean()),
                "count": fairlearn.count,
            }
        return fairlearn.MetricFrame(
            metrics=dict(metrics),
            y_true=columns.names(columns.truth),
            y_pred=columns.names(columns.answers[self._position(run)]),
            sensitive_features=pandas.DataFrame(columns.sensitive),
        )

    def _need_columns(self, what: str) -> AnswerTable:
        """The columns, or an error that explains why `what` is not possible."""
        if self.columns is None:
            raise FairTTAError(
                f"`{what}` needs the images, which a saved audit does not hold: use the audit as "
                "`audit` made it.",
                argument=what,
            )
        return self.columns

    def _position(self, run: str | None) -> int:
        if run is None:
            return 0
        if run not in self.runs:
            raise FairTTAError(
                f"`run` should be one of {list(self.runs)} (got {run!r}).",
                argument="run",
            )
        return self.runs.index(run)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Audit):
            return NotImplemented
        return _timeless(self.document) == _timeless(other.document)

    def __hash__(self) -> int:
        return hash((self.document.data.hash, self.runs))

    def __repr__(self) -> str:
        return f"Audit(runs={list(self.runs)}, n={self.document.data.n})"

    def __str__(self) -> str:
        lines = [*label_cautions(self.document), f"{self.document.data.n} images"]
        for run in self.document.runs:
            lines.append(run.name)
            for metric, figure in run.metrics.by_name().items():
                if metric in _HEADS:
                    lines.append(f"  {metric:27}{figure.to_text()}  n = {figure.n}")
        return "\n".join([*lines, *self.warnings])


def _timeless(document: AuditDocument) -> AuditDocument:
    runs = tuple(replace(run, cost=None) for run in document.runs)
    return replace(document, provenance={**document.provenance, "time": ""}, runs=runs)


def _column(attribute: str) -> str:
    """In data frames: no attribute takes the place of a figure."""
    return f"sensitive: {attribute}"


def _numbers(figure: Estimate) -> dict[str, float | int | None]:
    return {
        "value": figure.value,
        "low": figure.low,
        "high": figure.high,
        "n": figure.n,
    }


def _percent(figure: Estimate | None, sign: str = "") -> str:
    return "n/a" if figure is None or figure.is_withheld else figure.to_text(sign, "")


def latex_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *more: tuple[str, Iterable[Sequence[str]]],
) -> str:
    """A table for LaTeX (package booktabs), and `more` rows below titles of their own."""

    def line(cells: Iterable[str]) -> str:
        return " & ".join(map(_escaped, cells)) + r" \\"

    lines = [
        rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
        r"\toprule",
        line(head),
        r"\midrule",
    ]
    lines += map(line, rows)
    for title, others in more:
        wide = rf"\multicolumn{{{len(head)}}}{{l}}{{{_escaped(title)}}} \\"
        lines += [r"\midrule", wide, *map(line, others)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _escaped(text: str) -> str:
    signs = "".join(map(re.escape, _LATEX))
    return re.sub(
        f"[{signs}]", lambda sign: _LATEX[sign.group()], " ".join(text.split())
    )
