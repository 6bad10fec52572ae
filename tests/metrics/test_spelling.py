"""Names that read alike, and the labels that answers in other words can only mean."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from internals import canonical_spelling, escape_invisible, guess_labels, lookalikes

from fair_tta import FairTTAError, audit, metrics


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("circle", "CIRCLE"),
        ("caf\u00e9", "cafe\u0301"),
        ("stra\u00dfe", "STRASSE"),
        ("land", "land\u200b"),
        ("land", "\u202eland"),
        ("East Asian", "East\u00a0Asian "),
    ],
)
def test_two_spellings_of_one_name(name: str, other: str) -> None:
    assert canonical_spelling(name) == canonical_spelling(other)
    assert escape_invisible(name) != escape_invisible(other)


@pytest.mark.parametrize(
    ("name", "other"), [("-1", "1"), ("US", "UK"), ("a b", "ab"), ("i", "l")]
)
def test_different_names(name: str, other: str) -> None:
    assert canonical_spelling(name) != canonical_spelling(other)


TWINS = [
    ("man", "man\u200b"),
    ("man", "\u2068man\u2069"),
    ("man", "ma\u00adn"),
    ("East Asian", "East\u00a0Asian"),
    ("caf\u00e9", "cafe\u0301"),
    ("man", "man\x7f"),
    ("man", "m\x00an"),
    ("man", "man\x1b"),
    ("man", "man\ufe0f"),
    ("man", "man\U000e0100"),
    ("man", "m\u034fan"),
    ("man", "man\u3164"),
    ("a man", "a\u2800man"),
    ("man", "man\u180b"),
    ("man", "man\u17b4"),
]


@pytest.mark.parametrize("twins", TWINS)
def test_twins_are_an_error_at_every_door_that_names_both(
    twins: tuple[str, str],
) -> None:
    truth, answers = ["cat", "dog"] * 40, ["cat", "cat"] * 40
    group = [*twins] * 40
    stream = metrics.MetricStream()
    doors: list[Callable[[], object]] = [
        lambda: audit(truth, answers, group),
        lambda: audit(truth, answers, {"a": ["x"] * 80, "b": group}),
        lambda: audit(truth, answers, ["x"] * 80, values=[*twins, "x"]),
        lambda: audit(group, group, truth),
        lambda: audit(truth, answers, group[:1] * 80, targets=["cat", "dog", *twins]),
        lambda: metrics.worst_group_accuracy(truth, answers, group),
        lambda: metrics.accuracy(truth, ["cat", *group[1:]]),
        lambda: metrics.harm_rate(answers, group, ["cat"]),
        lambda: metrics.MetricStream().update(truth, answers, group),
    ]
    stream.update(truth, answers, [twins[0]] * 80)
    doors.append(lambda: stream.update(truth, answers, [twins[1]] * 80))
    assert lookalikes([*twins, "other"]) == [[*twins]]
    assert escape_invisible(twins[0]) != escape_invisible(twins[1])
    for door in doors:
        with pytest.raises(
            FairTTAError, match="should differ in what can be seen"
        ) as refused:
            door()
        assert all(
            f"'{escape_invisible(name)}'" in str(refused.value) for name in twins
        )


def test_names_that_differ_visibly_are_two_groups() -> None:
    assert lookalikes(["man", "Man", "men", "ma n"]) == []
    assert (
        lookalikes(["\u0e01", "\u0e01\u0e34", "\ud55c\uae00", "\u2764", "\u2605"]) == []
    )


@pytest.mark.parametrize("twins", [(1, "1"), (True, "True"), (1.0, "1.0")])
def test_a_number_and_its_text_are_not_two_names(twins: tuple[object, str]) -> None:
    truth, answers = ["cat", "dog"] * 40, ["cat", "cat"] * 40
    group = [*twins] * 40
    doors: list[Callable[[], object]] = [
        lambda: audit(truth, answers, group),
        lambda: audit(truth, answers, ["x"] * 80, values=[*twins, "x"]),
        lambda: audit(group, group, truth),
        lambda: audit([twins[0], 0] * 40, group, truth),
        lambda: audit(truth, answers, truth, clusters=[*group[:40], *range(40)]),
        lambda: metrics.accuracy(group, group),
        lambda: metrics.accuracy([twins[0], 0] * 40, [twins[0], *group[1:]]),
        lambda: metrics.worst_group_accuracy(truth, answers, group),
        lambda: metrics.harm_rate(group, truth, [1]),
        lambda: metrics.MetricStream().update(truth, answers, group),
    ]
    stream = metrics.MetricStream()
    stream.update(truth, answers, [twins[0]] * 80)
    doors.append(lambda: stream.update(truth, answers, [twins[1]] * 80))
    for door in doors:
        with pytest.raises(FairTTAError, match="all as text or all as numbers"):
            door()


@pytest.mark.parametrize("twins", TWINS)
def test_clusters_that_look_alike_are_refused(twins: tuple[str, str]) -> None:
    persons = [*twins, *(f"person {i // 2}" for i in range(78))]
    truth = ["cat", "dog"] * 40
    with pytest.raises(
        FairTTAError, match="names of clusters should differ in what can be seen"
    ):
        metrics.accuracy(truth, truth, clusters=persons)
    with pytest.raises(
        FairTTAError, match="names of clusters should differ in what can be seen"
    ):
        audit(truth, truth, truth, clusters=persons)


@pytest.mark.parametrize(
    ("answers", "labels", "meant"),
    [
        (["Cat", "Dog"], ["cat", "dog"], {"Cat": "cat", "Dog": "dog"}),
        (["A photo of a cat."], ["cat", "dog"], {"A photo of a cat.": "cat"}),
        (["water_bird"], ["bird", "water bird"], {"water_bird": "water bird"}),
        (["a water bird"], ["bird", "water bird"], {"a water bird": "water bird"}),
        (["1", "0"], ["cat", "dog"], {}),
        (["male"], ["female", "man"], {}),
        # two answers for one label: at most one of them can mean it
        (["no smile, smiling", "so smiling"], ["smiling", "serious"], {}),
        (["Smiling", "not smiling"], ["smiling", "serious"], {"Smiling": "smiling"}),
        # two labels for one answer
        (["a b"], ["a_b", "a b"], {}),
        (["-1", "1"], ["1", "0"], {"1": "1"}),
    ],
)
def test_likely_labels(
    answers: list[str], labels: list[str], meant: dict[str, str]
) -> None:
    assert guess_labels(answers, labels) == meant
