"""What an audit says in ten seconds: what is wrong, how sure that is, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fair_tta.auditing.document import (
    AuditDocument,
    Comparison,
    Difference,
    Measured,
    RunFigures,
)
from fair_tta.metrics.estimate import direction
from fair_tta.metrics.exact import images_for_half_width
from fair_tta.report.examination_sentences import Card
from fair_tta.report.numbers import (
    SPACE,
    count,
    group_name,
    interval,
    number_of_times,
    percent,
)

_DRAWS = 2000  # of groups, to tell which may be the worst
_SURE = 0.95  # of the draws name the same group
_WORTH_NAMING = 0.05  # of the draws name another
_SHARED = 0.9  # times the cost of zero-shot: less means that work was shared, not that it is cheap
_LISTED = 3  # classes that a title lists
_HALF_WIDTH = 0.05  # a group is known if its accuracy is known up to so much


@dataclass(frozen=True)
class CellOfGroup:
    """A class in a group, with its right answers and the interval of their share."""

    name: str
    n: int
    correct: int
    figure: Measured

    @property
    def rate(self) -> float:
        """The share of right answers."""
        return self.correct / self.n


@dataclass(frozen=True)
class MethodRow:
    """What a method does to the gap, beside the reference.

    Attributes:
        name: of the run.
        gap: its change, with an interval that allows for all comparisons made.
        accuracy: its change, with an interval of its own.
        changed: the share of answers that changed.
        cost: as a multiple of plain zero-shot, None if that was not run.
        says: one word of verdict.
        tone: a class of the style sheet.
    """

    name: str
    gap: Difference
    accuracy: Difference
    changed: float
    cost: float | None
    says: str
    tone: str


def cells_of(run: RunFigures) -> list[CellOfGroup]:
    """Each class in each group that has images, the worst first; of equal ones the larger."""
    found = [
        CellOfGroup(
            group_name(group.sensitive, cell.target), cell.n, cell.correct, cell.true_positive_rate
        )
        for group in run.groups
        for cell in group.classes
        if cell.n
    ]
    return sorted(found, key=lambda cell: (cell.rate, -cell.n))


def worst_shares(cells: Sequence[CellOfGroup], seed: int = 0) -> list[tuple[str, float]]:
    """How often each group is the worst if images are drawn anew, the most frequent first.

    Right answers of each group are drawn from a binomial distribution; ties are shared.
    """
    generator = np.random.default_rng(seed)
    n = np.array([cell.n for cell in cells])
    rates = np.array([cell.rate for cell in cells])
    drawn = generator.binomial(n, rates, (_DRAWS, len(cells))) / n
    lowest = drawn == drawn.min(1, keepdims=True)
    shares = (lowest / lowest.sum(1, keepdims=True)).mean(0)
    order = np.argsort(-shares, kind="stable")
    return [(cells[i].name, float(shares[i])) for i in order]


def commonest(run: RunFigures) -> tuple[str, float] | None:
    """The most frequent class and its share: what always answering it would get right."""
    counts: dict[str, int] = {}
    for group in run.groups:
        for cell in group.classes:
            counts[cell.target] = counts.get(cell.target, 0) + cell.n
    total = sum(counts.values())
    if not total:
        return None
    name = max(counts, key=counts.__getitem__)
    return name, counts[name] / total


def headline(document: AuditDocument) -> str:
    """Task, attribute, model and number of pictures."""
    targets, model = document.data.targets, document.origin.model
    task = " or ".join(targets) if len(targets) <= _LISTED else f"{len(targets)} classes"
    name = model.name if model is not None and model.name else "answers"
    attributes = " and ".join(document.data.sensitive)
    return f"{task}, by {attributes}: {name} on {pictures(document.data.n)}"


def in_short(document: AuditDocument) -> str:
    """Right answers of all and of the worst group, for a line that can be unfolded."""
    run = document.runs[0]
    cells = cells_of(run)
    if not cells or run.metrics.accuracy.value is None:
        return ""
    overall = of_hundred(run.metrics.accuracy.value)
    return f"right in {overall}, in {of_hundred(cells[0].rate)} of {cells[0].name}"


def audit_cards(document: AuditDocument) -> list[Card]:
    """What is wrong, how sure, what to do."""
    run = document.runs[0]
    cells = cells_of(run)
    if not cells or run.metrics.accuracy.value is None:
        return [Card("What is wrong", "Nothing can be said: no group has images.", "")]
    return [_wrong(run, cells), _sure(run, cells), _advice(document, cells)]


def _wrong(run: RunFigures, cells: Sequence[CellOfGroup]) -> Card:
    worst, overall = cells[0], run.metrics.accuracy.value or 0.0
    text = (
        f"Right in {of_hundred(overall)} pictures overall, but in {of_hundred(worst.rate)} of "
        f"{worst.name}."
    )
    return Card("What is wrong", text, f"Answers of {run.name}.", "bad")


def _sure(run: RunFigures, cells: Sequence[CellOfGroup]) -> Card:
    gap = run.metrics.bias
    ends = f"{interval(gap, words=True)} points"
    exists = gap.low is not None and gap.low > 0
    text = f"A gap exists: {ends}." if exists else f"A gap is not shown: {ends}."
    shares, worst = dict(worst_shares(cells)), cells[0]
    share = shares.pop(worst.name)
    if share >= _SURE:
        return Card("How sure", text, f"{worst.name} is the worst group ({pictures(worst.n)}).")
    more = f"{pictures(worst.n)}; {worst.name} is the worst in {whole_percent(share)} of resamples"
    other = next(iter(shares), None)
    if other is not None and shares[other] >= _WORTH_NAMING:
        more += f", {other} in {whole_percent(shares[other])}"
    return Card("How sure", f"{text} Which group is worst is not sure.", f"{more}.")


def _advice(document: AuditDocument, cells: Sequence[CellOfGroup]) -> Card:
    heading, worst = "What to do", cells[0]
    rate = min(max(worst.rate, _HALF_WIDTH), 1 - _HALF_WIDTH)
    needed = images_for_half_width(rate, _HALF_WIDTH, document.settings.level) - worst.n
    label = (
        f"Label about {count(needed)} more pictures of {worst.name} to know its accuracy to "
        f"{whole_percent(_HALF_WIDTH)}."
        if needed > 0
        else ""
    )
    rows = method_rows(document)
    narrows = [row for row in rows if row.tone == "good"]
    if narrows:
        best = min(narrows, key=lambda row: row.gap.value or 0.0)
        text = (
            f"Switch to {best.name}: gap {percent(best.gap.value, signed=True)} points "
            f"{interval(best.gap, signed=True)}, accuracy {_change(best.accuracy)}."
        )
        return Card(heading, text, "Confirm it on pictures that took no part.", "good")
    if rows:
        tried = "The method tried" if len(rows) == 1 else f"None of {len(rows)} methods tried"
        is_not = "is not shown" if len(rows) == 1 else "is shown"
        return Card(heading, f"{tried} {is_not} to narrow the gap.", label)
    return Card(heading, "Try methods on the same pictures: `--adapters`.", label)


def method_rows(document: AuditDocument) -> list[MethodRow]:
    """A row for each run that is compared with the first, by the change of the gap."""
    plain = next((r for r in document.runs if r.adapter and r.adapter.name == "ZeroShot"), None)
    by_name = {run.name: run for run in document.runs}
    rows = []
    for c in document.comparisons:
        gap = c.told.bias
        says, tone = _says(c, gap)
        changed = c.changes.changed / c.changes.n if c.changes.n else 0.0
        cost = _multiple(by_name.get(c.run), plain)
        rows.append(MethodRow(c.run, gap, c.differences.accuracy, changed, cost, says, tone))
    return sorted(rows, key=lambda row: row.gap.value if row.gap.value is not None else 2.0)


def _says(comparison: Comparison, gap: Difference) -> tuple[str, str]:
    accuracy = comparison.differences.accuracy
    if direction(accuracy.low, accuracy.high) < 0:
        return "costs accuracy", "bad"
    moved = direction(gap.low, gap.high)
    if moved:
        return ("widens the gap", "bad") if moved > 0 else ("narrows the gap", "good")
    return "not shown", ""


def _multiple(run: RunFigures | None, plain: RunFigures | None) -> float | None:
    if run is None or plain is None or run.cost is None or plain.cost is None:
        return None
    if plain.cost.seconds_per_image <= 0:
        return None
    multiple = run.cost.seconds_per_image / plain.cost.seconds_per_image
    return multiple if multiple > _SHARED else None


def cost_sentence(document: AuditDocument) -> str:
    """What each method costs against plain zero-shot, the cheapest first; empty if not known."""
    known = sorted((row.cost, row.name) for row in method_rows(document) if row.cost is not None)
    if not known:
        return ""
    listed = [f"{number_of_times(cost)} times with {name}" for cost, name in known]
    return f"Cost of a zero-shot call: {', '.join(listed)}."


def _change(figure: Difference) -> str:
    if direction(figure.low, figure.high) == 0:
        return "not shown to change"
    return f"{percent(figure.value, signed=True)} points"


def of_hundred(share: float) -> str:
    """``73 of 100``."""
    return f"{100 * share:.0f} of 100"


def whole_percent(share: float) -> str:
    """``71 %``, without digits that nobody needs."""
    return f"{100 * share:.0f}{SPACE}%"


def pictures(n: int) -> str:
    """``1 picture``, ``300 pictures``."""
    return f"{count(n)} picture{'' if n == 1 else 's'}"
