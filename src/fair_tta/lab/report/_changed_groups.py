"""Each class in each group: how often answers are right, and the changes by a method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fair_tta.auditing import _document as doc
from fair_tta.lab.report._numbers import (
    ARROW,
    count,
    group_name,
    p_equals,
    p_value,
    rounded_percent,
)
from fair_tta.metrics._estimates import Estimate, direction

# Groups that gained most, and as many that lost most, have a sentence
_MAX_SENTENCES = 2


def cells_of(run: doc.RunFigures) -> list[tuple[str, doc.ClassInGroup]]:
    """Return each class in each group that has images, the worst first; of equals the larger."""
    cells = []
    for group in run.groups:
        for cell in group.classes:
            if cell.n:
                cells.append((group_name(group.sensitive, cell.target), cell))
    return sorted(cells, key=lambda named: (named[1].correct / named[1].n, -named[1].n))


def most_frequent_class(run: doc.RunFigures) -> tuple[str, float]:
    """Return a class and its share: what always answering it would get right."""
    # The same in every run, as it counts labels
    n_images: Counter[str] = Counter()
    for group in run.groups:
        for cell in group.classes:
            n_images[cell.target] += cell.n
    target, n = n_images.most_common(1)[0]
    return target, n / n_images.total()


@dataclass(frozen=True)
class ChangedGroup:
    """A class in a group before and after a method.

    Attributes:
        name: ``blond / man``.
        before: share of right answers of the reference.
        after: share of right answers of the method.
        difference: with an interval that allows for all groups.
        changes: how many answers changed.
        p: of McNemar's test, corrected for all groups (Holm).
    """

    name: str
    before: float
    after: float
    difference: Estimate
    changes: doc.AnswerChanges
    p: float

    @property
    def direction(self) -> int:
        """The direction that the interval shows."""
        return direction(self.difference.low, self.difference.high)


def changed_groups(
    document: doc.AuditDocument, comparison: doc.Comparison
) -> list[ChangedGroup]:
    """Return each class in each group that has images, the worst before first."""
    n_right: dict[tuple[str | None, ...], int] = {}
    for group in document.runs[0].groups:
        for cell in group.classes:
            n_right[cell.target, *group.sensitive.values()] = cell.correct
    # A group without a class, of all its classes together, is not among them
    compared = {}
    for compared_group in comparison.groups:
        key = (compared_group.target, *compared_group.sensitive.values())
        if key in n_right and compared_group.changes.n:
            compared[key] = compared_group

    def p_of(item: tuple[object, doc.ComparedGroup]) -> float:
        return item[1].changes.mcnemar_p or 0.0

    # Holm: the smallest p-value counts for all groups, the next for one less, and none is
    # smaller than the one before
    groups = []
    corrected_p = 0.0
    for n_before, (key, compared_group) in enumerate(
        sorted(compared.items(), key=p_of)
    ):
        changes = compared_group.changes
        p = (len(compared) - n_before) * (changes.mcnemar_p or 0.0)
        corrected_p = max(corrected_p, p)
        right_after = n_right[key] + changes.wrong_to_right - changes.right_to_wrong
        changed_group = ChangedGroup(
            name=group_name(compared_group.sensitive, compared_group.target),
            before=n_right[key] / changes.n,
            after=right_after / changes.n,
            difference=compared_group.judged,
            changes=changes,
            p=min(1.0, corrected_p),
        )
        groups.append(changed_group)
    return sorted(groups, key=lambda group: (group.before, -group.changes.n))


def group_sentences(groups: Sequence[ChangedGroup]) -> list[str]:
    """Return a sentence for each of the groups that gained and that lost most."""
    # The largest gains first; reversed, the largest losses
    by_gain = sorted(groups, key=lambda group: group.before - group.after)
    gained = [group for group in by_gain[:_MAX_SENTENCES] if group.after > group.before]
    by_gain.reverse()
    lost = [group for group in by_gain[:_MAX_SENTENCES] if group.after < group.before]
    sentences = []
    for group in gained + lost:
        changes = group.changes
        text = (
            f"{count(changes.wrong_to_right)} became right, "
            f"{count(changes.right_to_wrong)} wrong"
        )
        # McNemar's test does not hold where images are clustered
        if changes.mcnemar_p is not None:
            corrected = f"{p_value(group.p)} after correction for {len(groups)} groups"
            text += f"; {p_equals(changes.mcnemar_p)}, {corrected}"
        sentences.append(f"{group.name}: {before_after(group)} of 100 ({text})")
    return sentences


def before_after(group: ChangedGroup) -> str:
    """Return right answers of 100 before and after: ``20 → 80``."""
    return f"{rounded_percent(group.before)} {ARROW} {rounded_percent(group.after)}"
