"""Sentences on what a method does: to the gap, to the worst group, to accuracy, and its cost."""

from __future__ import annotations

from fair_tta.auditing._document import AuditDocument
from fair_tta.lab.report._method_rows import MethodRow, joined_names, method_rows
from fair_tta.lab.report._numbers import (
    NO_BREAK_SPACE,
    NOT_AVAILABLE,
    count,
    figure_in_words,
    image_count,
    interval,
    number_of_times,
    p_equals,
    percent,
    shown_value,
    times,
)


def gap_sentences(row: MethodRow) -> tuple[str, str]:
    """Return what a method does to the typical gap, or why that is not shown; and how sure it is.

    The second sentence is empty if there is no interval.
    """
    change = row.gap_change
    name = row.name
    if change.value is None:
        undefined = "the change of the typical gap is not defined"
        return f"{name}: {undefined} ({change.reason}).", ""
    if change.low is None:
        return f"{name}: no verdict on the gap, {change.reason}.", ""

    level = ci_label(row.document)
    bounds = interval(change, signed=True, in_words=True)
    if row.document.compared:
        bounds += f", corrected for {row.document.compared} methods"
    # No gap without balanced accuracy: a model that guesses has the smallest gap
    balanced = (
        f"at balanced accuracy {percent(shown_value(row.after.balanced_accuracy))}, "
        f"before {percent(shown_value(row.before.balanced_accuracy))}"
    )
    if not row.gap_verdict:
        n_images = image_count(row.comparison.changes.n)
        points = percent(change.value, signed=True)
        return (
            f"{name}: these {n_images} cannot tell whether the gap changes "
            f"({points}, {level} {bounds}), {balanced}.",
            evidence_sentence(row),
        )

    gap_before = percent(shown_value(row.before.typical_gap))
    gap_after = f"{percent(shown_value(row.after.typical_gap))} points"
    # The change may have an interval where the run has none
    if shown_value(row.after.typical_gap) is None:
        gap_after = NOT_AVAILABLE
    # A gap of 0 is not called closed
    elif not row.after.typical_gap.value:
        gap_after = "no more than chance explains"
        gap_before += " points"
    text = (
        f"{name} {row.gap_verdict}: two groups of a class typically differ by {gap_after}, "
        f"before by {gap_before}, {balanced}."
    )
    if row.judgement.looks_smaller:
        text += f" {row.judgement.more_images} would show it."
    return text, f"{level} of the change {bounds}. {evidence_sentence(row)}".rstrip()


def ci_label(document: AuditDocument) -> str:
    """Return ``95 % CI``."""
    return f"{100 * document.settings.level:g}{NO_BREAK_SPACE}% CI"


def evidence_sentence(row: MethodRow) -> str:
    """Return which figures show that a method helps, and what the others show."""
    # Gaps improve where they fall: 1 is better, 0 not shown, -1 worse
    improvements = {
        "the typical gap": -row.judgement.typical_gap,
        "the worst group": row.judgement.worst_group,
        "EOD": -row.judgement.odds,
    }

    def names_with(direction: int) -> str:
        return joined_names(
            [name for name, d in improvements.items() if d == direction]
        )

    better = names_with(1)
    if not better:
        return ""
    sentence = f"{'Seen' if row.judgement.small_groups else 'Shown'} on {better}"
    unclear = names_with(0).replace("the ", "")
    if unclear:
        sentence += f"; {unclear}: cannot tell"
    worse = names_with(-1).replace("the ", "")
    if worse:
        sentence += f"; {worse}: worse"
    return f"{sentence}."


def side_effects(row: MethodRow) -> str:
    """Return what a method does to the worst group and to both accuracies, and its cost."""
    adjusted = row.comparison.adjusted
    changes = {
        row.worst_group_verdict or "worst group": adjusted.worst_group_accuracy,
        "balanced accuracy": adjusted.balanced_accuracy,
        row.accuracy_verdict or "accuracy": adjusted.accuracy,
    }
    # The verdict stands in the place of the name where a change is shown
    parts = []
    for name, change in changes.items():
        if not change.is_withheld:
            parts.append(f"{name} {figure_in_words(change, ' points', signed=True)}")
    if row.cost is not None:
        parts.append(f"cost {times(row.cost)}")
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def change_sentences(document: AuditDocument) -> list[str]:
    """Return for each compared run its verdict and how many answers changed."""
    sentences = []
    for row in method_rows(document):
        changes = row.comparison.changes
        test = ""
        if changes.mcnemar_p is not None:
            test = f" (exact McNemar {p_equals(changes.mcnemar_p)})"
        answers = (
            f"{count(changes.changed)} of {count(changes.n)} answers changed: "
            f"{count(changes.wrong_to_right)} from wrong to right, "
            f"{count(changes.right_to_wrong)} from right to wrong, "
            f"{count(changes.wrong_to_wrong)} from wrong to wrong{test}."
        )
        parts = [*gap_sentences(row), side_effects(row), answers]
        sentences.append(" ".join(part for part in parts if part))
    return sentences


def cost_sentence(document: AuditDocument) -> str:
    """Return the cost of each method in zero-shot calls, the cheapest first; empty if unknown."""
    costs = []
    for row in method_rows(document):
        if row.cost is not None:
            costs.append((row.cost, row.name))
    if not costs:
        return ""
    parts = [f"{number_of_times(cost)} with {name}" for cost, name in sorted(costs)]
    return f"Cost in zero-shot calls: {', '.join(parts)}."
