"""The methods of one audit, or of several tasks: their figures and a verdict in a few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fair_tta.auditing import _document as doc
from fair_tta.auditing._judge import Verdict, recommended_comparison, verdict_on
from fair_tta.lab.report._numbers import ARROW, percent, shown_value
from fair_tta.metrics._estimates import Estimate

NamedAudit = tuple[str, doc.AuditDocument]
"""The name of a task, and its audit."""

# A verdict has room for the names of two groups; of more it says how many there are
_MAX_NAMED_GROUPS = 2

# Times the cost of zero-shot: less means that work was shared with another method, not that the
# method is cheap
_MIN_COST = 0.9


@dataclass(frozen=True)
class MethodRow:
    """A method beside the reference of its audit.

    A change is stated only if its interval, which allows for all methods compared, shows it.

    Attributes:
        document: the audit.
        comparison: with the reference, on the same images.
        run: the figures of the method.
        judgement: what the comparison shows.
        cost: as a multiple of plain zero-shot, None if that was not run.
    """

    document: doc.AuditDocument
    comparison: doc.Comparison
    run: doc.RunFigures
    judgement: Verdict
    cost: float | None

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def before(self) -> doc.RunMetrics:
        """The figures of the reference."""
        return self.document.runs[0].metrics

    @property
    def after(self) -> doc.RunMetrics:
        """The figures of the method."""
        return self.run.metrics

    @property
    def gap_change(self) -> Estimate:
        return self.comparison.adjusted.typical_gap

    @property
    def changed(self) -> float:
        """The share of answers that changed."""
        return self.comparison.changes.changed / max(1, self.comparison.changes.n)

    @property
    def narrows(self) -> bool:
        return self.judgement.typical_gap < 0

    @property
    def helps(self) -> bool:
        """True if the worst group is shown to gain, and nothing speaks against saying so."""
        is_measured = self.judgement.is_above_chance and not self.judgement.small_groups
        return self.judgement.worst_group > 0 and is_measured and not self.harms

    @property
    def harms(self) -> bool:
        """True if the gap is shown to widen, or an accuracy to fall."""
        return self.judgement.is_harmful

    @property
    def gap_verdict(self) -> str:
        """The verdict on the gap, empty if no change is shown."""
        judgement = self.judgement
        # A gap that narrows at a cost, or by chance, is never only said to narrow
        if not self.narrows:
            return "widens the gap" if judgement.typical_gap else ""
        if self._group_costs:
            return f"narrows the gap, but {self._group_costs}"
        if self.harms:
            return "narrows the gap by serving the better groups worse"
        if not judgement.is_above_chance:
            return "narrows the gap, but is not shown to answer better than chance"
        if judgement.small_groups:
            return "makes the gap look smaller"
        return "narrows the gap"

    @property
    def worst_group_verdict(self) -> str:
        return _verb(
            self.judgement.worst_group,
            "helps the worst group",
            "hurts the worst group",
        )

    @property
    def accuracy_verdict(self) -> str:
        return _verb(self.judgement.accuracy, "raises accuracy", "costs accuracy")

    @property
    def verdicts(self) -> list[str]:
        """Verdicts on the gap, the worst group, both accuracies and single groups, if shown."""
        judgement = self.judgement
        balanced_verdict = ""
        # Where both accuracies move alike, one is named
        if judgement.balanced_accuracy != judgement.accuracy:
            balanced_verdict = _verb(
                judgement.balanced_accuracy,
                "raises balanced accuracy",
                "costs balanced accuracy",
            )
        verdicts = [
            self.gap_verdict,
            self.worst_group_verdict,
            balanced_verdict,
            self.accuracy_verdict,
        ]
        # The verdict on a gap that narrows names these groups already
        if not self.narrows:
            verdicts.append(self._group_costs)
        return [verdict for verdict in verdicts if verdict]

    @property
    def _group_costs(self) -> str:
        """The groups that fall, if no figure of all groups does."""
        groups = self.judgement.falling_groups
        if self.judgement.costs != list(groups) or not groups:
            return ""
        if len(groups) > _MAX_NAMED_GROUPS:
            return f"costs {len(groups)} groups"
        return f"costs {joined_names(groups)}"

    @property
    def verdict(self) -> str:
        verdicts = self.verdicts
        if self.gap_change.low is None:
            verdicts.append(f"no verdict on the gap: {self.gap_change.reason}")
        return ", ".join(verdicts) or "not shown"

    @property
    def tone(self) -> str:
        """A class of the style sheet; empty if it does good and harm, or is not sure."""
        if self.judgement.is_shown:
            return "good"
        return "bad" if self.harms and not self.narrows else ""

    @property
    def gap_values(self) -> str:
        """The typical gap before and after: ``21.7 → 13.9``."""
        return _before_after([self], "typical_gap")

    @property
    def balanced_values(self) -> str:
        """Balanced accuracy before and after, without which no gap is shown."""
        return _before_after([self], "balanced_accuracy")


@dataclass(frozen=True)
class MethodOnTasks:
    """A method on several tasks.

    Attributes:
        name: of the method.
        rows: one for each task, None where it was not run.
        not_run: the tasks on which it was not run.
    """

    name: str
    rows: tuple[MethodRow | None, ...]
    not_run: tuple[str, ...]

    @property
    def measured(self) -> list[MethodRow]:
        """The rows of tasks on which it was run."""
        return [row for row in self.rows if row is not None]

    @property
    def n_narrowed(self) -> int:
        return sum(row.narrows for row in self.measured)

    @property
    def n_shown(self) -> int:
        """Tasks on which it is shown to narrow the gap without harm."""
        return sum(row.judgement.is_shown for row in self.measured)

    @property
    def n_harmed(self) -> int:
        """Tasks on which the gap is shown to widen, or an accuracy to fall."""
        return sum(row.harms for row in self.measured)

    @property
    def verdict(self) -> str:
        n_tasks: Counter[str] = Counter()
        for row in self.measured:
            n_tasks.update(row.verdicts)
        if not n_tasks:
            return "not shown"
        parts = [f"{verdict} in {n}" for verdict, n in n_tasks.items()]
        return f"{', '.join(parts)} of {len(self.measured)}"

    @property
    def tone(self) -> str:
        if self.n_harmed:
            return "" if self.n_narrowed else "bad"
        return "good" if self.n_shown else ""

    @property
    def gap_values(self) -> str:
        """The typical gap before and after, means over tasks."""
        return _before_after(self.measured, "typical_gap")

    @property
    def balanced_values(self) -> str:
        """Balanced accuracy before and after, means over tasks."""
        return _before_after(self.measured, "balanced_accuracy")

    @property
    def cost(self) -> float | None:
        """The mean multiple of plain zero-shot, None if it is not known."""
        return _mean([row.cost for row in self.measured])


def method_rows(document: doc.AuditDocument) -> list[MethodRow]:
    """Return a row for each run compared with the reference, by the change of the typical gap."""
    # Costs are multiples of plain zero-shot, which need not be the reference
    zero_shot = None
    for run in document.runs:
        if run.adapter and run.adapter.name == "ZeroShot":
            zero_shot = run
            break

    # A document that was not written here may compare runs that it does not hold
    runs = {run.name: run for run in document.runs}
    rows = []
    for comparison in document.comparisons:
        compared_run = runs.get(comparison.run)
        if compared_run is not None:
            judgement = verdict_on(document, comparison)
            cost = _cost_multiple(compared_run, zero_shot)
            rows.append(MethodRow(document, comparison, compared_run, judgement, cost))

    def gap_change(row: MethodRow) -> float:
        # Undefined changes come last; no change is larger than 1
        return 2.0 if row.gap_change.value is None else row.gap_change.value

    return sorted(rows, key=gap_change)


def featured_method(document: doc.AuditDocument) -> MethodRow | None:
    """Return the method that titles and cards speak of.

    The recommended one; else one that makes the gap look smaller; else one that helps the worst
    group without harm; else one that narrows the gap; else that with the lowest gap.
    """
    recommended = recommended_comparison(document)

    def rank(row: MethodRow) -> int:
        preferences = (
            row.comparison is recommended,
            row.judgement.looks_smaller,
            row.helps,
            row.narrows,
            True,
        )
        return preferences.index(True)

    return min(method_rows(document), key=rank, default=None)


def methods_on_tasks(tasks: Sequence[NamedAudit]) -> list[MethodOnTasks]:
    """Return each method, those first that narrow the gap most often and do the least harm."""
    rows_by_task = []
    names: list[str] = []
    for _, document in tasks:
        rows_by_task.append({row.name: row for row in method_rows(document)})
        names += [comparison.run for comparison in document.comparisons]

    methods = []
    for name in dict.fromkeys(names):
        rows = tuple(rows.get(name) for rows in rows_by_task)
        not_run = [
            task for (task, _), row in zip(tasks, rows, strict=True) if row is None
        ]
        methods.append(MethodOnTasks(name, rows, tuple(not_run)))

    # A task that is harmed weighs as much as one that is helped
    def rank(method: MethodOnTasks) -> tuple[int, int, float]:
        change = sum(row.gap_change.value or 0.0 for row in method.measured)
        return method.n_harmed - method.n_shown, method.n_harmed, change

    return sorted(methods, key=rank)


def joined_names(names: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(direction: int, rising: str, falling: str) -> str:
    """Return the phrase for the direction of a change, empty if none is shown."""
    if direction == 0:
        return ""
    return rising if direction > 0 else falling


def _before_after(rows: Sequence[MethodRow], metric: str) -> str:
    """Return the means of a metric before and after: ``21.7 → 13.9``."""
    before = _mean([shown_value(row.before.by_name()[metric]) for row in rows])
    after = _mean([shown_value(row.after.by_name()[metric]) for row in rows])
    return f"{percent(before)} {ARROW} {percent(after)}"


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _cost_multiple(
    run: doc.RunFigures, zero_shot: doc.RunFigures | None
) -> float | None:
    """Return the cost of a run as a multiple of zero-shot's, None if it was not measured alone."""
    if zero_shot is None or not run.cost or not zero_shot.cost:
        return None
    if zero_shot.cost.seconds_per_image <= 0:
        return None
    multiple = run.cost.seconds_per_image / zero_shot.cost.seconds_per_image
    return multiple if multiple > _MIN_COST else None
