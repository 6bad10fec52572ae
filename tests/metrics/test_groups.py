"""Values of metrics against fairlearn, scikit-learn and brute force over confusion matrices."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import (
    GroupByText,
    RateMetric,
    gap_between_groups,
    pseudo_odds,
    selection_rates,
)

from fair_tta import metrics
from fair_tta.errors import FairTTAError, SmallGroupWarning
from fair_tta.metrics import Bootstrap, Estimate

Case = tuple[list[str], list[str], list[str]]
CLASSES, VALUES = ["cat", "dog", "bird"], ["man", "woman", "other"]


@pytest.fixture(autouse=True)
def _small_groups_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        yield


def columns(classes: int, values: int) -> st.SearchStrategy[Case]:
    """Rows whose answers are among their labels; others have tests of their own."""
    row = st.tuples(
        st.sampled_from(CLASSES[:classes]),
        st.sampled_from(CLASSES[:classes]),
        st.sampled_from(VALUES[:values]),
    )
    rows = st.lists(row, min_size=1, max_size=40).filter(
        lambda some: (
            {answer for _, answer, _ in some} <= {label for label, _, _ in some}
        )
    )
    return rows.map(
        lambda some: tuple(map(list, zip(*some, strict=True)))  # type: ignore[arg-type,return-value]
    )


def brute_force_odds(case: Case, classes: list[str], values: list[str]) -> float:
    """The paper's formula on explicit confusion matrices, in loops."""
    y_true, y_pred, sensitive = case
    confusion = {
        s: [
            [
                sum(
                    (t, p, g) == (i, j, s)
                    for t, p, g in zip(y_true, y_pred, sensitive, strict=True)
                )
                for j in classes
            ]
            for i in classes
        ]
        for s in values
    }
    terms = []
    for i in range(len(classes)):
        tpr, fpr = [], []
        for m in confusion.values():
            row = sum(m[i])
            others = sum(sum(m[j]) for j in range(len(classes)) if j != i)
            if row:
                tpr.append(m[i][i] / row)
            if others:
                fpr.append(sum(m[j][i] for j in range(len(classes)) if j != i) / others)
        if len(tpr) >= 2 and len(fpr) >= 2:
            terms.append(max(max(tpr) - min(tpr), max(fpr) - min(fpr)))
    return sum(terms) / len(terms) if terms else math.nan


@settings(deadline=None)
@given(columns(3, 3))
def test_equalized_odds_is_the_papers_formula(case: Case) -> None:
    found = metrics.equalized_odds_difference(*case, targets=CLASSES, values=VALUES)
    expected = brute_force_odds(case, CLASSES, VALUES)
    assert float(found) == pytest.approx(expected, nan_ok=True)
    assert found.value is not None or found.reason is not None
    assert found.value is None or 0 <= found.value <= 1


@settings(max_examples=40, deadline=None)
@given(columns(2, 3))
def test_two_classes_equal_fairlearn(case: Case) -> None:
    fairlearn: Any = pytest.importorskip("fairlearn.metrics")
    sklearn: Any = pytest.importorskip("sklearn.metrics")
    y_true, y_pred, sensitive = case
    cells = {(t, s) for t, s in zip(y_true, sensitive, strict=True)}
    present = set(sensitive)
    if len(present) < 2 or len(cells) < 2 * len(present):
        return  # fairlearn says 0 for rates that do not exist
    one = [int(t == "dog") for t in y_true], [int(p == "dog") for p in y_pred]
    features = {"sensitive_features": sensitive}
    pairs = [
        (metrics.equalized_odds_difference(*case), fairlearn.equalized_odds_difference),
        (
            metrics.class_gaps(*case, targets=CLASSES)["dog"].true_positive_rate,
            fairlearn.equal_opportunity_difference,
        ),
        (
            metrics.class_gaps(*case, targets=CLASSES)["dog"].selection_rate,
            fairlearn.demographic_parity_difference,
        ),
    ]
    for ours, theirs in pairs:
        assert ours.value == pytest.approx(theirs(*one, **features))
    frame = fairlearn.MetricFrame(
        metrics={"accuracy": sklearn.accuracy_score, "n": fairlearn.count},
        y_true=y_true,
        y_pred=y_pred,
        **features,
    )
    for group, figure in metrics.group_accuracy(*case).items():
        assert figure.value == pytest.approx(frame.by_group["accuracy"][group])
        assert figure.n == frame.by_group["n"][group]
    assert metrics.worst_group_accuracy(*case, over="sensitive").value == pytest.approx(
        frame.group_min()["accuracy"]
    )


@settings(max_examples=40, deadline=None)
@given(columns(3, 2))
def test_rates_equal_scikit_learn(case: Case) -> None:
    sklearn: Any = pytest.importorskip("sklearn.metrics")
    y_true, y_pred, sensitive = map(np.array, case)
    assert metrics.accuracy(
        y_true, y_pred, targets=CLASSES
    ).value == sklearn.accuracy_score(y_true, y_pred)
    table = metrics.group_rates(*case, targets=CLASSES, values=VALUES)
    for cell, rates in table.items():
        assert isinstance(cell, tuple)
        target, group = cell
        mask = sensitive == group
        if not mask.any():
            assert all(
                r.value is None and r.n == 0 and r.reason for r in vars(rates).values()
            )
            continue
        (true_negative, false_positive), (false_negative, true_positive) = (
            sklearn.confusion_matrix(
                y_true[mask] == target, y_pred[mask] == target, labels=[False, True]
            )
        )
        for figure, top, n in (
            (rates.true_positive_rate, true_positive, true_positive + false_negative),
            (rates.false_positive_rate, false_positive, false_positive + true_negative),
            (rates.selection_rate, true_positive + false_positive, mask.sum()),
        ):
            assert figure.n == n
            assert float(figure) == pytest.approx(
                top / n if n else math.nan, nan_ok=True
            )


def test_the_interval_of_bias_is_not_accuracy_minus_that_of_the_worst_group() -> None:
    """It is shorter, as both have noise in common; the two once differed from the docstring."""
    truth = ["cat"] * 200 + ["dog"] * 200
    groups = (["x"] * 100 + ["y"] * 100) * 2
    right = [74, 81, 81, 81]
    answers = [
        name if place < count else other
        for count, (name, other) in zip(
            right, [("cat", "dog")] * 2 + [("dog", "cat")] * 2, strict=True
        )
        for place in range(100)
    ]
    accuracy = metrics.accuracy(truth, answers)
    worst = metrics.worst_group_accuracy(truth, answers, groups)
    bias = metrics.bias(truth, answers, groups)
    assert float(bias) == pytest.approx(float(accuracy) - float(worst))
    assert bias.high is not None
    assert worst.low is not None
    assert float(bias) < bias.high < float(accuracy) - worst.low


@settings(deadline=None)
@given(columns(3, 2))
def test_worst_group_and_bias_by_hand(case: Case) -> None:
    y_true, y_pred, sensitive = map(np.array, case)
    right = y_true == y_pred
    groups: dict[GroupByText, Any] = {
        "sensitive": sensitive,
        "target and sensitive": np.char.add(y_true, sensitive),
    }
    for over, keys in groups.items():
        worst = min(right[keys == k].mean() for k in set(keys.tolist()))
        found = metrics.worst_group_accuracy(*case, over=over, targets=CLASSES)
        assert found.value == pytest.approx(worst)
        assert found.n in {int((keys == k).sum()) for k in set(keys.tolist())}
        bias = metrics.bias(*case, over=over, targets=CLASSES)
        assert bias.value == pytest.approx(right.mean() - worst, abs=1e-12)
        for figure in (found, bias):
            assert figure.low is not None
            assert figure.high is not None
            assert 0 <= figure.low <= float(figure) <= figure.high <= 1
    default = metrics.worst_group_accuracy(*case, targets=CLASSES)
    assert default == metrics.worst_group_accuracy(
        *case, over="target and sensitive", targets=CLASSES
    )


def everything(y_true: Any, y_pred: Any, sensitive: Any, **names: Any) -> list[float]:
    figures = [
        metrics.accuracy(y_true, y_pred, targets=CLASSES),
        *(
            f(y_true, y_pred, sensitive, **names)
            for f in (
                metrics.worst_group_accuracy,
                metrics.bias,
                metrics.equalized_odds_difference,
                metrics.equal_opportunity_difference,
                metrics.demographic_parity_difference,
            )
        ),
    ]
    return [float(figure) for figure in figures]


@settings(max_examples=40, deadline=None)
@given(columns(3, 3), st.permutations(VALUES), st.permutations(CLASSES))
def test_renaming_and_reordering_change_nothing(
    case: Case, other: list[str], classes: list[str]
) -> None:
    y_true, y_pred, sensitive = case
    renamed = [other[VALUES.index(s)] for s in sensitive]
    expected = pytest.approx(
        everything(*case, targets=CLASSES, values=VALUES), nan_ok=True
    )
    assert (
        everything(y_true, y_pred, renamed, targets=classes, values=other) == expected
    )
    order = np.random.default_rng(0).permutation(len(y_true))
    shuffled = (np.array(column)[order] for column in case)
    assert everything(*shuffled, targets=CLASSES, values=VALUES) == expected


@settings(max_examples=30, deadline=None)
@given(columns(3, 2))
def test_an_absent_group_is_reported_and_changes_no_other(case: Case) -> None:
    named: Any = {"targets": CLASSES, "values": VALUES}
    plain, listed = everything(*case, targets=CLASSES), everything(*case, **named)
    assert listed == pytest.approx(plain, nan_ok=True)
    absent = metrics.group_accuracy(*case, **named)["other"]
    assert absent.value is None
    assert absent.n == 0
    assert absent.reason == "no images: other"
    assert list(metrics.group_accuracy(*case, **named)) == VALUES
    worst = metrics.worst_group_accuracy(*case, **named, over="sensitive")
    assert worst.reason is not None
    assert "other" in worst.reason


def test_equal_groups_have_no_gap() -> None:
    y_true, y_pred = ["cat", "dog", "bird"] * 40, ["cat", "dog", "dog"] * 40
    twice = y_true * 2, y_pred * 2, ["man"] * 120 + ["woman"] * 120
    assert metrics.equalized_odds_difference(*twice).value == 0
    assert metrics.demographic_parity_difference(*twice).value == 0
    for gaps in metrics.class_gaps(*twice).values():
        assert [figure.value for figure in vars(gaps).values()] == [0, 0, 0]
    assert metrics.bias(*twice, over="sensitive").value == 0


def test_gaps_of_classes_are_differences_of_rates() -> None:
    generator = np.random.default_rng(3)
    case = [
        generator.choice(names, 600).tolist() for names in (CLASSES, CLASSES, VALUES)
    ]
    rates = metrics.group_rates(*case)
    gaps = metrics.class_gaps(*case)
    for target in CLASSES:
        for kind in ("true_positive_rate", "false_positive_rate", "selection_rate"):
            some = [getattr(rates[(target, s)], kind).value for s in VALUES]
            assert getattr(gaps[target], kind).value == pytest.approx(
                max(some) - min(some)
            )
    odds = [
        max(float(g.true_positive_rate), float(g.false_positive_rate))
        for g in gaps.values()
    ]
    assert float(metrics.equalized_odds_difference(*case)) == pytest.approx(
        np.mean(odds)
    )
    parity = [float(g.selection_rate) for g in gaps.values()]
    assert float(metrics.demographic_parity_difference(*case)) == pytest.approx(
        np.mean(parity)
    )
    opportunity = [float(g.true_positive_rate) for g in gaps.values()]
    assert float(metrics.equal_opportunity_difference(*case)) == pytest.approx(
        np.mean(opportunity)
    )


def test_several_attributes_make_intersections() -> None:
    y_true, y_pred = ["cat"] * 120, ["cat"] * 90 + ["dog"] * 30
    both = {"sex": ["man", "woman"] * 60, "age": ["old"] * 60 + ["young"] * 60}
    found = metrics.group_accuracy(y_true, y_pred, both, targets=["cat", "dog"])
    assert {group: figure.value for group, figure in found.items()} == {
        ("man", "old"): 1,
        ("man", "young"): 0.5,
        ("woman", "old"): 1,
        ("woman", "young"): 0.5,
    }
    assert found[("man", "old")].n == 30
    cells = metrics.group_accuracy(
        y_true, y_pred, both, over="target and sensitive", targets=["cat", "dog"]
    )
    assert cells[("cat", "man", "young")].value == 0.5
    assert cells[("dog", "man", "young")].reason == "no images: dog / man / young"


def test_all_kinds_of_columns_agree() -> None:
    pandas = pytest.importorskip("pandas")
    truth, answers, groups = [0, 1, 1, 0] * 30, [0, 1, 0, 0] * 30, [0, 0, 1, 1] * 30
    expected = metrics.equalized_odds_difference(truth, answers, groups)
    kinds: list[Any] = [
        np.array,
        torch.tensor,
        tuple,
        pandas.Series,
        lambda c: map(np.int64, c),
    ]
    kinds += [
        lambda c: torch.tensor(c, dtype=torch.float16),
        lambda c: list(torch.tensor(c)),
    ]
    for kind in kinds:
        same = metrics.equalized_odds_difference(
            kind(truth), kind(answers), kind(groups)
        )
        assert same == expected
    frame = pandas.DataFrame({"a": groups, "b": truth})
    assert list(metrics.group_accuracy(truth, answers, frame)) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


def test_a_gap_needs_two_groups() -> None:
    found = metrics.equalized_odds_difference(["a", "b"], ["a", "a"], ["man", "man"])
    assert found.value is None
    assert found.reason == "a gap needs two groups with images"
    listed = metrics.equalized_odds_difference(
        ["a", "b"], ["a", "a"], ["man", "man"], values=["man", "woman"]
    )
    assert listed.reason == (
        "a gap needs two groups with images; left out, no images: a / woman, b / woman; "
        "classes left out, as fewer than two groups have them: a, b"
    )


@pytest.mark.parametrize(
    ("arguments", "names", "message"),
    [
        (([], [], []), {}, "`y_true` should have at least one row (got none)."),
        (
            ("ab", ["a"], ["s"]),
            {},
            "`y_true` should be a sequence with a value per image.",
        ),
        (
            (3, ["a"], ["s"]),
            {},
            "`y_true` should be a sequence with a value per image.",
        ),
        (
            (np.array(3), ["a"], ["s"]),
            {},
            "`y_true` should be a sequence with a value per image.",
        ),
        (
            ([["a"]], ["a"], ["s"]),
            {},
            "`y_true` should have one dimension (row 0 is a list).",
        ),
        (
            (["a"], ["a", "b"], ["s"]),
            {},
            "`y_pred` should be as long as `y_true`, 1 (got 2).",
        ),
        (
            (["a"], ["a"], {"sex": []}),
            {},
            "`sensitive['sex']` should be as long as `y_true`, 1 (got 0).",
        ),
        (
            (["a", None], ["a", "b"], ["s", "s"]),
            {},
            "`y_true` should have no missing values (row 1): "
            "give them a name of their own, such as 'unknown'.",
        ),
        (
            (["a"], ["a"], [math.nan]),
            {},
            "`sensitive['sensitive']` should have no missing values (row 0): "
            "give them a name of their own, such as 'unknown'.",
        ),
        (
            (["a"], ["a"], {}),
            {},
            "`sensitive` should have at least one attribute (got {}).",
        ),
        (
            (["a"], ["a"], {1: ["s"]}),
            {},
            "attributes of `sensitive` should be strings (got 1).",
        ),
        (
            (["a"], ["b"], ["s"]),
            {"targets": ["a", "c"]},
            "`y_pred` holds 'b', which is not in `targets`: ['a', 'c'].",
        ),
        (
            (["a"], ["a"], ["s"]),
            {"values": ["t"]},
            "`sensitive` (sensitive) holds 's', which is not in `values`: ['t'].",
        ),
        (
            (["a"], ["a"], ["s"]),
            {"targets": ["a", "a"]},
            "`targets` should list distinct names (got ['a', 'a']).",
        ),
        (
            (["a"], ["a"], {"x": ["s"], "y": ["s"]}),
            {"values": ["s"]},
            "`values` should be {attribute: names} as there is not one attribute.",
        ),
        (
            (["a"], ["a"], {"x": ["s"]}),
            {"values": {"z": ["s"]}},
            "`values` should have the attributes of `sensitive`, ['x'] (got ['z']).",
        ),
    ],
)
def test_errors_say_what_to_do(arguments: Any, names: Any, message: str) -> None:
    with pytest.raises(FairTTAError) as error:
        metrics.bias(*arguments, **names)
    assert str(error.value) == message


def test_a_reason_says_what_is_missing() -> None:
    of_one, halves = ["a"] * 80, ["x"] * 40 + ["y"] * 40
    needs = (
        "a gap needs two groups with images of one class, and two with images of others"
    )
    assert metrics.equalized_odds_difference(of_one, of_one, halves).reason == needs
    mostly = ["a"] * 40 + ["a", "b"] * 20
    found = metrics.equalized_odds_difference(mostly, mostly, halves)
    assert found.reason is not None
    assert found.reason.startswith(f"{needs}; left out, no images: b / x")
    apart = ["a"] * 40 + ["b"] * 40
    found = metrics.equal_opportunity_difference(apart, apart, halves)
    assert found.reason is not None
    assert found.reason.startswith(
        "a gap needs two groups with images of one class; left out"
    )


@pytest.mark.parametrize(
    ("truth", "said"), [([1, 0], ["1", "0"]), (["1", "0"], [1.0, 0.0])]
)
def test_labels_that_cannot_meet_are_an_error(truth: Any, said: Any) -> None:
    with pytest.raises(FairTTAError) as error:
        metrics.accuracy(truth, said)
    assert str(error.value) == (
        f"`y_true` and `y_pred` should both be text, or neither (got {truth[0]!r} and {said[0]!r})."
    )
    assert metrics.accuracy([True, False], [1, 0]).value == 1
    assert metrics.accuracy([1, "none"], [1, 1]).value == 0.5


def test_a_metric_and_its_interval_are_asked_for_by_type() -> None:
    case = ["a", "b"], ["a", "b"], ["a", "b"], ["x", "y"]
    with pytest.raises(FairTTAError) as error:
        metrics.paired_difference("accuracy", *case)  # type: ignore[arg-type]
    assert str(error.value) == (
        "`metric` should be a definition, such as definitions.WORST_GROUP_ACCURACY "
        "(got 'accuracy')."
    )
    gaps = RateMetric("selection_rate_gaps", selection_rates, gap_between_groups)
    with pytest.raises(FairTTAError) as error:
        metrics.paired_difference(gaps, *case)
    assert str(error.value) == (
        "`metric` should return one number (got 'selection_rate_gaps', which returns 2)."
    )
    with pytest.raises(FairTTAError) as error:
        metrics.paired_difference(metrics.definitions.ACCURACY, *case, interval=None)  # type: ignore[arg-type]
    assert (
        str(error.value)
        == "`interval` should be a Bootstrap or a level such as 0.95 (got None)."
    )


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_an_interval_is_a_bootstrap_or_a_level_in_every_function() -> None:
    truth, answers, values = (
        ["a", "b"] * 30,
        ["a", "b", "b"] * 20,
        ["x"] * 30 + ["y"] * 30,
    )
    sure, beliefs = [0.5] * 60, [[0.9, 0.1], [0.2, 0.8]] * 30
    case = truth, answers, values
    measures: list[Callable[..., Any]] = [
        partial(metrics.accuracy, *case),
        partial(metrics.balanced_accuracy, *case),
        partial(metrics.worst_group_accuracy, *case),
        partial(metrics.bias, *case, over="sensitive"),
        partial(metrics.equalized_odds_difference, *case),
        partial(metrics.equal_opportunity_difference, *case),
        partial(metrics.demographic_parity_difference, *case),
        partial(metrics.class_gaps, *case),
        partial(metrics.group_accuracy, *case),
        partial(metrics.group_rates, *case),
        partial(metrics.expected_calibration_error, truth, answers, sure),
        partial(metrics.average_target_confidence, entropies=sure),
        partial(metrics.average_sensitive_indifference, entropies=sure),
        partial(metrics.harm_rate, answers, values, ["a"]),
        partial(metrics.harm_rate_change, truth, answers, values, ["a"]),
        partial(pseudo_odds, [[0, 1] * 30], beliefs, beliefs),
    ]
    for measure in measures:
        assert measure(interval=0.9) == measure(interval=Bootstrap(level=0.9)), measure
        assert measure(interval=0.9) != measure(interval=0.99), measure
        with pytest.raises(
            FairTTAError, match="`interval` should be a Bootstrap or a level"
        ):
            measure(interval="0.9")
        with pytest.raises(FairTTAError, match="`level` should lie between 0 and 1"):
            measure(interval=2)
    for measure in measures[:-1]:
        figure = measure(interval=None)
        while not isinstance(figure, Estimate):
            figure = next(
                iter((figure if isinstance(figure, dict) else vars(figure)).values())
            )
        assert figure.low is None, measure


def test_missing_values_of_pandas_are_missing() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(FairTTAError, match="no missing values \\(row 1\\)"):
        metrics.accuracy(pandas.array(["a", None], dtype="string"), ["a", "b"])


def test_a_string_is_not_a_choice() -> None:
    for metric in (metrics.bias, metrics.worst_group_accuracy, metrics.group_accuracy):
        with pytest.raises(FairTTAError) as error:
            metric(["a"], ["a"], ["s"], over="s")  # type: ignore[arg-type]
        assert (
            str(error.value)
            == "`over` should be 'target and sensitive' or 'sensitive' (got 's')."
        )


def test_names_and_numbers_may_mix() -> None:
    assert list(metrics.group_accuracy(["a"] * 2, ["a"] * 2, ["x", 1])) == [1, "x"]
