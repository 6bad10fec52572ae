"""What each method does to the typical gap, to the worst group and to accuracy, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fair_tta.auditing import _document as doc
from fair_tta.auditing._judge import Verdict, recommended_comparison, verdict_on
from fair_tta.lab.report._numbers import (
    ARROW,
    NONE,
    SPACE,
    count,
    images,
    in_words,
    interval,
    number_of_times,
    p_value,
    percent,
    shown,
    times,
)
from fair_tta.metrics._estimates import Estimate

NamedAudit = tuple[str, doc.AuditDocument]
"""What a task is called, and its audit."""

_NAMED = 2  # groups that a verdict names; of more it has the number
_SHARED = 0.9  # times the cost of zero-shot: less means that work was shared, not that it is cheap


@dataclass(frozen=True)
class MethodRow:
    """What a method does to the typical gap, to the worst group and to accuracy.

    Each is stated only if the interval of its change shows it, allowing for all methods compared.

    Attributes:
        comparison: with the reference, on the same images.
        judgement: what is shown of it.
        balanced: balanced accuracy of the reference and of the method; audits of earlier versions
            lack it.
        before: the typical gap of the reference.
        after: that of the method.
        gap: its change.
        level: of intervals.
        compared: how many comparisons intervals allow for, 0 if they are not corrected.
        cost: as a multiple of plain zero-shot, None if that was not run.
    """

    comparison: doc.Comparison
    judgement: Verdict
    balanced: tuple[Estimate | None, Estimate | None]
    before: Estimate
    after: Estimate
    gap: Estimate
    level: float
    compared: int
    cost: float | None

    @property
    def name(self) -> str:
        return self.comparison.run

    @property
    def worst(self) -> Estimate:
        return self.comparison.adjusted.worst_group_accuracy

    @property
    def accuracy(self) -> Estimate:
        return self.comparison.adjusted.accuracy

    @property
    def changed(self) -> float:
        """The share of answers that changed."""
        return self.comparison.changes.changed / max(1, self.comparison.changes.n)

    @property
    def narrows(self) -> bool:
        return self.judgement.typical_gap < 0

    @property
    def helps(self) -> bool:
        """Whether the worst group is shown to gain, and nothing speaks against saying so."""
        is_measured = self.judgement.is_above_chance and not self.judgement.small_groups
        return self.judgement.worst_group > 0 and is_measured and not self.harms

    @property
    def harms(self) -> bool:
        """Whether the gap is shown to widen, or an accuracy to fall."""
        return self.judgement.is_harmful

    @property
    def verdicts(self) -> tuple[str, ...]:
        """On the gap, the worst group, both accuracies, single groups; empty what is not shown."""
        judgement = self.judgement
        # Where both accuracies move alike one of them is named, and single groups if neither is.
        balanced = judgement.balanced_accuracy * (
            judgement.balanced_accuracy != judgement.accuracy
        )
        return (
            self._on_gap,
            ("", "helps the worst group", "hurts the worst group")[
                judgement.worst_group
            ],
            ("", "raises balanced accuracy", "costs balanced accuracy")[balanced],
            ("", "raises accuracy", "costs accuracy")[judgement.accuracy],
            "" if self.narrows else self._on_groups,
        )

    @property
    def _on_gap(self) -> str:
        """The verdict on the gap, a verb; empty if no change is shown."""
        judgement = self.judgement
        if not self.narrows:
            return "widens the gap" if judgement.typical_gap else ""
        if self._on_groups:
            return f"narrows the gap, but {self._on_groups}"
        if self.harms:
            return "narrows the gap by serving the better groups worse"
        if not judgement.is_above_chance:
            return "narrows the gap, but is not shown to answer better than chance"
        return (
            "makes the gap look smaller"
            if judgement.small_groups
            else "narrows the gap"
        )

    @property
    def _on_groups(self) -> str:
        """The groups that fall, if no figure of all of them does."""
        groups = self.judgement.falling_groups
        if self.judgement.costs != list(groups) or not groups:
            return ""
        return (
            f"costs {_and(groups)}"
            if len(groups) <= _NAMED
            else f"costs {len(groups)} groups"
        )

    @property
    def verdict(self) -> str:
        reason = (
            f"no verdict on the gap: {self.gap.reason}" if self.gap.low is None else ""
        )
        return ", ".join(filter(None, [*self.verdicts, reason])) or "not shown"

    @property
    def tone(self) -> str:
        """A class of the style sheet; none if it does good and harm, or is not sure."""
        if self.judgement.is_shown:
            return "good"
        return "bad" if self.harms and not self.narrows else ""

    @property
    def values(self) -> str:
        """The typical gap before and after: ``21.7 → 13.9``."""
        return f"{percent(shown(self.before))} {ARROW} {percent(shown(self.after))}"

    @property
    def balanced_values(self) -> str:
        """Balanced accuracy before and after, without which no gap is shown: ``72.5 → 87.5``."""
        before, after = map(shown, self.balanced)
        return f"{percent(before)} {ARROW} {percent(after)}"


@dataclass(frozen=True)
class MethodOnTasks:
    """What a method does, task by task: None and a name where it was not run."""

    name: str
    rows: tuple[MethodRow | None, ...]
    not_run: tuple[str, ...]

    @property
    def known(self) -> list[MethodRow]:
        return [row for row in self.rows if row is not None]

    @property
    def narrows(self) -> int:
        return sum(row.narrows for row in self.known)

    @property
    def shown(self) -> int:
        """Tasks on which it is shown to narrow the gap without harm."""
        return sum(row.judgement.is_shown for row in self.known)

    @property
    def harms(self) -> int:
        """Tasks on which the gap is shown to widen, or an accuracy to fall."""
        return sum(row.harms for row in self.known)

    @property
    def verdict(self) -> str:
        found = Counter(part for row in self.known for part in row.verdicts if part)
        parts = [f"{what} in {n}" for what, n in found.items()]
        return f"{', '.join(parts)} of {len(self.known)}" if parts else "not shown"

    @property
    def tone(self) -> str:
        if self.harms:
            return "" if self.narrows else "bad"
        return "good" if self.shown else ""

    @property
    def values(self) -> str:
        """The typical gap before and after, means over tasks."""
        before = _mean([shown(row.before) for row in self.known])
        after = _mean([shown(row.after) for row in self.known])
        return f"{percent(before)} {ARROW} {percent(after)}"

    @property
    def balanced_values(self) -> str:
        """Balanced accuracy before and after, means over tasks."""
        before = _mean([shown(row.balanced[0]) for row in self.known])
        after = _mean([shown(row.balanced[1]) for row in self.known])
        return f"{percent(before)} {ARROW} {percent(after)}"

    @property
    def cost(self) -> float | None:
        """As a multiple of plain zero-shot, the mean over tasks; None if it is not known."""
        return _mean([row.cost for row in self.known])


def method_rows(document: doc.AuditDocument) -> list[MethodRow]:
    """A row for each run that is compared with the first, by the change of the typical gap."""
    plain = next(
        (r for r in document.runs if r.adapter and r.adapter.name == "ZeroShot"), None
    )
    by_name = {run.name: run for run in document.runs}
    before, level = typical_gap(document.runs[0]), document.settings.level
    rows = []
    for c in (c for c in document.comparisons if c.run in by_name):
        run = by_name[c.run]
        row = MethodRow(
            comparison=c,
            judgement=verdict_on(document, c),
            balanced=(
                document.runs[0].metrics.balanced_accuracy,
                run.metrics.balanced_accuracy,
            ),
            before=before,
            after=typical_gap(run),
            gap=c.adjusted.typical_gap,
            level=level,
            compared=document.compared,
            cost=_multiple(run, plain),
        )
        rows.append(row)
    return sorted(
        rows, key=lambda row: row.gap.value if row.gap.value is not None else 2.0
    )


def featured(document: doc.AuditDocument) -> MethodRow | None:
    """The method that a page speaks of: the recommended one; else one that makes the gap look
    smaller; else one that helps the worst group without harm; else one that narrows the gap; else
    that with the lowest gap.
    """
    chosen = recommended_comparison(document)

    def rank(row: MethodRow) -> int:
        if row.comparison is chosen:
            return 0
        if row.judgement.looks_smaller:
            return 1
        return 2 if row.helps else 3 if row.narrows else 4

    return min(method_rows(document), key=rank, default=None)


def methods_on(tasks: Sequence[NamedAudit]) -> list[MethodOnTasks]:
    """A row for each method, those first that narrow the gap most often and do the least harm."""
    by_task = [
        {row.name: row for row in method_rows(document)} for _, document in tasks
    ]
    names = dict.fromkeys(c.run for _, document in tasks for c in document.comparisons)
    found = []
    for name in names:
        rows = tuple(of.get(name) for of in by_task)
        missing = [
            task for (task, _), row in zip(tasks, rows, strict=True) if row is None
        ]
        found.append(MethodOnTasks(name, rows, tuple(missing)))

    def rank(method: MethodOnTasks) -> tuple[int, int, float]:
        change = sum(row.gap.value or 0.0 for row in method.known)
        return method.harms - method.shown, method.harms, change

    return sorted(found, key=rank)


def typical_gap(run: doc.RunFigures) -> Estimate:
    """That of a run."""
    return run.metrics.typical_gap


def _mean(figures: Sequence[float | None]) -> float | None:
    known = [x for x in figures if x is not None]
    return sum(known) / len(known) if known else None


def cost_sentence(document: doc.AuditDocument) -> str:
    """What each method costs against plain zero-shot, the cheapest first; empty if not known."""
    known = sorted(
        (row.cost, row.name) for row in method_rows(document) if row.cost is not None
    )
    if not known:
        return ""
    listed = [f"{number_of_times(cost)} with {name}" for cost, name in known]
    return f"Cost in zero-shot calls: {', '.join(listed)}."


def _multiple(run: doc.RunFigures, plain: doc.RunFigures | None) -> float | None:
    if (
        plain is None
        or not run.cost
        or not plain.cost
        or plain.cost.seconds_per_image <= 0
    ):
        return None
    multiple = run.cost.seconds_per_image / plain.cost.seconds_per_image
    return multiple if multiple > _SHARED else None


def gap_sentences(row: MethodRow) -> tuple[str, str]:
    """What a method does to the typical gap, or why that is not shown, and how sure that is."""
    gap, name = row.gap, row.name
    if gap.value is None:
        return (
            f"{name}: the change of the typical gap is not defined ({gap.reason}).",
            "",
        )
    if gap.low is None:
        return f"{name}: no verdict on the gap, {gap.reason}.", ""
    ci, ends = f"{100 * row.level:g}{SPACE}% CI", interval(gap, signed=True, words=True)
    ends += f", corrected for {row.compared} methods" * bool(row.compared)
    at = f"at balanced accuracy {percent(shown(row.balanced[1]))}, "
    at += f"before {percent(shown(row.balanced[0]))}"
    if not row.verdicts[0]:
        n, change = images(row.comparison.changes.n), percent(gap.value, signed=True)
        text = f"{name}: these {n} cannot tell whether the gap changes ({change}, {ci} {ends}), "
        return f"{text}{at}.", rests_on(row)
    before, after = percent(shown(row.before)), f"{percent(shown(row.after))} points"
    if shown(row.after) is None:  # the change has an interval, the run has none
        after = NONE
    elif not row.after.value:  # not called a gap that is closed
        before, after = f"{before} points", "no more than chance explains"
    differ = (
        f"two groups of a class typically differ by {after}, before by {before}, {at}"
    )
    text = f"{name} {row.verdicts[0]}: {differ}."
    if row.judgement.looks_smaller:
        text += f" {row.judgement.more_images} would show it."
    return text, f"{ci} of the change {ends}. {rests_on(row)}"


def rests_on(row: MethodRow) -> str:
    """Which figures show that a method helps, and what the others can tell; empty if none does."""
    better = {
        "the typical gap": -row.judgement.typical_gap,
        "the worst group": row.judgement.worst_group,
        "EOD": -row.judgement.odds,
    }
    favour = [name for name, direction in better.items() if direction > 0]
    if not favour:
        return ""
    seen = "Seen" if row.judgement.small_groups else "Shown"
    sentence = f"{seen} on {_and(favour)}"
    for words, sign in (("cannot tell", 0), ("worse", -1)):
        others = [name.removeprefix("the ") for name, x in better.items() if x == sign]
        sentence += f"; {_and(others)}: {words}" if others else ""
    return f"{sentence}."


def _and(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def beside_gap(row: MethodRow) -> str:
    """What a method does to the worst group and to accuracy, and its cost."""
    figures = (
        ("worst group", row.worst, row.verdicts[1]),
        (
            "balanced accuracy",
            row.comparison.adjusted.by_name().get("balanced_accuracy"),
            "",
        ),
        ("accuracy", row.accuracy, row.verdicts[3]),
    )
    parts = [
        f"{verdict or name} {in_words(change, ' points', signed=True)}"
        for name, change, verdict in figures
        if change is not None and not change.is_withheld
    ]
    parts += [f"cost {times(row.cost)}"] if row.cost is not None else []
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def changes(document: doc.AuditDocument) -> list[str]:
    """For each run that is compared with the first its verdict and how many answers changed."""
    found = []
    for row in method_rows(document):
        n = row.comparison.changes
        test = "" if n.mcnemar_p is None else f" (exact McNemar {p_text(n.mcnemar_p)})"
        found.append(
            f"{' '.join(filter(None, [*gap_sentences(row), beside_gap(row)]))} "
            f"{count(n.changed)} of {count(n.n)} answers changed: {count(n.wrong_to_right)} from "
            f"wrong to right, {count(n.right_to_wrong)} from right to wrong, "
            f"{count(n.wrong_to_wrong)} from wrong to wrong{test}."
        )
    return found


def p_text(p: float | None) -> str:
    """``p = 0.008``."""
    text = p_value(p)
    return f"p{SPACE}{text}" if text.startswith("<") else f"p{SPACE}={SPACE}{text}"
