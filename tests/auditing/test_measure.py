"""`audit`: its figures are those of the metric functions, and its document is always valid."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import GroupByText, schema
from msgspec import to_builtins

from fair_tta import FairTPT, metrics
from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.errors import FairTTAError, SmallGroupWarning, UnknownAnswerWarning
from fair_tta.lab.report import html
from fair_tta.metrics import Bootstrap
from fair_tta.prediction import Prediction

jsonschema: Any = pytest.importorskip("jsonschema")

N = 600
QUICK = Bootstrap(200)
generator = np.random.default_rng(0)
TRUTH = generator.choice(["cat", "dog", "bird"], N)
GENDER = generator.choice(["man", "woman"], N)
ANSWERS = np.where(generator.random(N) < 0.7, TRUTH, "cat")
PROBABILITIES = generator.dirichlet([1, 1, 1], N)
SENSITIVE_PROBABILITIES = {"gender": generator.dirichlet([1, 1], N)}


def measure(**options: Any) -> Audit:
    return audit(TRUTH, ANSWERS, {"gender": GENDER}, **{"interval": QUICK, **options})


def measure_with_scores() -> Audit:
    scores = Scores.from_probabilities(PROBABILITIES, SENSITIVE_PROBABILITIES)
    return measure(scores=scores, seconds=12.0, adapter=FairTPT())


def test_metrics_are_those_of_the_functions() -> None:
    measured = measure_with_scores()
    columns = TRUTH, ANSWERS, {"gender": GENDER}
    suffixes: dict[GroupByText, str] = {"target and sensitive": "", "sensitive": "_s"}
    for over, suffix in suffixes.items():
        worst = metrics.worst_group_accuracy(*columns, over=over)
        assert measured.estimate("worst_group_accuracy" + suffix) == worst
        assert measured.estimate("bias" + suffix) == metrics.bias(*columns, over=over)
    balanced = metrics.balanced_accuracy(*columns)
    assert measured.estimate("balanced_accuracy") == balanced
    for name in (
        "accuracy",
        "equalized_odds_difference",
        "equal_opportunity_difference",
        "demographic_parity_difference",
    ):
        estimate = getattr(metrics, name)(*columns, interval=QUICK)
        assert measured.estimate(name) == estimate
    confidence = metrics.average_target_confidence(probabilities=PROBABILITIES)
    assert measured.estimate("average_target_confidence") == confidence


def test_groups_are_those_of_the_functions() -> None:
    document = measure_with_scores().to_dict()
    targets = document["data"]["targets"]
    columns = TRUTH, ANSWERS, {"gender": GENDER}
    rates = metrics.group_rates(*columns)
    for group in document["runs"][0]["groups"]:
        value = group["sensitive"]["gender"]
        accuracy = metrics.group_accuracy(*columns)[value]
        assert group["accuracy"] == to_builtins(accuracy)
        assert group["correct"] / group["n"] == accuracy.value
        in_group = value == GENDER
        calibration = metrics.expected_calibration_error(
            TRUTH[in_group],
            ANSWERS[in_group],
            PROBABILITIES.max(1)[in_group],
            interval=QUICK,
        )
        assert group["calibration_error"] == to_builtins(calibration)
        confusion = np.array(group["confusion"])
        for row, target in enumerate(targets):
            for column, answer in enumerate(targets):
                cell_images = (target == TRUTH) & (answer == ANSWERS) & in_group
                assert confusion[row, column] == cell_images.sum()
            cell = group["classes"][row]
            assert cell["target"] == target
            assert cell["n"] == confusion[row].sum()
            assert cell["correct"] == confusion[row, row]
            for name, rate in vars(rates[(target, value)]).items():
                assert cell[name] == to_builtins(rate)


def test_the_rest_of_a_run_is_that_of_the_functions() -> None:
    measured = measure_with_scores()
    [run] = measured.to_dict()["runs"]
    columns = TRUTH, ANSWERS, {"gender": GENDER}
    gaps = metrics.class_gaps(*columns, interval=QUICK)
    for row in run["classes"]:
        assert row["fpr_gap"] == to_builtins(gaps[row["target"]].false_positive_rate)
    worst = run["worst_group"]["(y, s)"]
    rates = metrics.group_rates(*columns)
    lowest = rates[(worst["target"], worst["sensitive"]["gender"])].true_positive_rate
    assert lowest.value == measured.estimate("worst_group_accuracy").value
    assert run["worst_group"]["s"]["target"] is None
    indifference = metrics.average_sensitive_indifference(
        probabilities=SENSITIVE_PROBABILITIES["gender"]
    )
    assert run["sensitive_indifference"]["gender"] == to_builtins(indifference)
    assert run["cost"] == {"seconds": 12.0, "seconds_per_image": 0.02}
    assert run["adapter"]["name"] == "FairTPT"
    assert run["adapter"]["settings"]["lam"] == 100.0


def test_missing_scores_are_undefined_with_a_reason() -> None:
    confidence = measure().estimate("average_target_confidence")
    assert confidence.value is None
    assert confidence.reason == "not given: no scores were passed"
    [run] = measure().to_dict()["runs"]
    assert run["relative_steps"] is run["cost"] is run["adapter"] is None
    empty = Scores(zero_shot={}, sensitive_zero_shot={}, warnings=[])
    assert measure(scores=empty).document.runs[0].perceived is None
    assert measure(scores=empty).document.runs[0].warnings == {}


def prediction(step: float | None, *warned: str) -> Prediction:
    return Prediction(
        label="cat",
        probabilities={"cat": 0.75, "dog": 0.25},
        zero_shot={"cat": 0.5, "dog": 0.5},
        sensitive={"place": {"in": 0.5, "out": 0.5}},
        sensitive_zero_shot={"place": {"in": 1.0, "out": 0.0}},
        entropy=0.8,
        entropy_zero_shot=1.0,
        sensitive_entropy={"place": 1.0},
        sensitive_entropy_zero_shot={"place": 0.0},
        distance=0.25,
        flip_margin=0.0,
        certified_unchanged=False,
        relative_step=step,
        warnings=warned,
    )


def test_scores_of_predictions() -> None:
    tuned = [prediction(i / 40, "bounded") for i in range(41)]
    scores = Scores.from_predictions(tuned + [prediction(None)] * 39)
    measured = audit(["cat"] * 80, ["cat"] * 80, ["x", "y"] * 40, scores=scores)
    [run] = measured.to_dict()["runs"]
    assert run["relative_steps"]["n"] == 41
    assert run["relative_steps"]["quantiles"] == pytest.approx(
        {
            "0": 0,
            "0.1": 0.1,
            "0.25": 0.25,
            "0.5": 0.5,
            "0.75": 0.75,
            "0.9": 0.9,
            "1": 1,
        }
    )
    assert run["warnings"] == {"bounded": 41}
    assert run["metrics"]["average_target_confidence"]["value"] == pytest.approx(0.2)
    assert run["metrics"]["expected_calibration_error"]["value"] == pytest.approx(0.25)
    before = run["zero_shot_scores"]
    assert before["average_target_confidence"]["value"] == 0
    assert before["sensitive_indifference"]["place"]["value"] == 0
    assert run["sensitive_indifference"]["place"]["value"] == 1
    assert Scores.from_predictions([]).entropy is None


def test_small_groups_warn_where_audit_is_called() -> None:
    truth = ["a", "b"] * 40 + ["a"]
    groups = ["x", "y"] * 20 + ["y", "x"] * 20 + ["z"]
    with pytest.warns(SmallGroupWarning, match=r"a / z \(n = 1\)") as caught:
        measured = audit(truth, truth, groups, interval=QUICK)
    assert caught[0].filename == __file__
    assert measured.warnings == (
        "Fewer than 30 images, so figures are uncertain: a / x (n = 20), b / x (n = 20), "
        "a / y (n = 20), b / y (n = 20), a / z (n = 1).",
        "No images, so no figures: b / z.",
    )


def test_an_image_without_a_cluster_is_a_cluster_of_its_own() -> None:
    persons: list[Any] = ["anna", "ben", None, math.nan, "", "anna"] * (N // 6)
    measured = measure(clusters=persons)
    assert measured.document.data.clusters == 2 + 3 * N // 6
    assert measured.columns is not None
    assert measured.columns.clusters is not None
    assert measured.columns.clusters[:8].tolist() == [0, 1, 2, 3, 4, 0, 0, 1]
    in_array = measure(clusters=np.array(persons, object))
    assert in_array.document.data == measured.document.data
    assert measure().document.data.clusters is None


def test_provenance_may_be_anything() -> None:
    persons = [f"p{i // 2}" for i in range(N)]
    noted = measure(clusters=persons, provenance={"data": "a sentence"})
    assert f"of {N // 2} clusters" in html(noted)


def test_the_size_does_not_depend_on_the_images() -> None:
    large = audit(
        np.tile(TRUTH, 20),
        np.tile(ANSWERS, 20),
        np.tile(GENDER, 20),
        interval=QUICK,
    )
    assert len(large.to_json()) < 1.1 * len(measure().to_json())


def test_names_may_be_odd(tmp_path: Path) -> None:
    y_true = ["猫", 'a "cat"\n', "<b>"] * 80
    groups = ["é / ß", "\t"] * 120
    files = {"unreadable": ["caf\udce9.jpg"], "path": Path("x")}
    for provenance in ({}, files):
        measured = audit(y_true, y_true, groups, interval=QUICK, provenance=provenance)
        measured.save(tmp_path / "audit.json")
        assert Audit.load(tmp_path / "audit.json") == measured
        assert measured.to_dict()["data"]["targets"] == sorted(set(y_true))
    assert measured.to_dict()["provenance"]["path"] == "x"
    assert measured.to_dict()["provenance"]["unreadable"] == ["caf\udce9.jpg"]


rows = st.tuples(*[st.sampled_from("abc")] * 3, *[st.sampled_from("xyz")] * 2)


@settings(max_examples=12, deadline=None)
@given(st.lists(rows, min_size=1, max_size=30), st.booleans())
@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_the_document_of_any_data_is_valid(
    table: list[tuple[str, ...]], names_all_values: bool
) -> None:
    """Groups of one, empty groups, one class, one group, everything right or wrong."""
    y_true, before, after, *sensitive = map(list, zip(*table, strict=True))
    n = len(table)
    options: dict[str, Any] = {"targets": list("abc")}
    options["scores"] = Scores(
        confidence=[0.5] * n, sensitive_entropy={"first": [1.0] * n}
    )
    options["interval"] = Bootstrap(20)
    if names_all_values:
        options["values"] = {"first": list("xyz"), "second": list("wxyz")}
        options["interval"] = Bootstrap(20, strata="sensitive")
    columns = dict(zip(("first", "second"), sensitive, strict=True))
    compared = compare(
        [
            audit(y_true, before, columns, name="before", **options),
            audit(y_true, after, columns, name="after", **options),
        ]
    )
    jsonschema.validate(compared.to_dict(), schema())
    assert Audit.from_json(compared.to_json()) == compared
    for run in compared.to_dict()["runs"]:
        accuracies = [group["accuracy"] for group in run["groups"]]
        for estimate in [*run["metrics"].values(), *accuracies]:
            assert estimate["value"] is not None or estimate["reason"] is not None
            if estimate["low"] is not None:
                assert estimate["low"] <= estimate["value"] <= estimate["high"]
        assert sum(group["n"] for group in run["groups"]) == n


IS_HARD = (TRUTH == "cat") & (GENDER == "woman")
WRONG_ANSWERS = np.where(TRUTH == "cat", "dog", "cat")
MOSTLY_RIGHT = np.where(
    generator.random(N) < np.where(IS_HARD, 0.5, 0.95), TRUTH, WRONG_ANSWERS
)
UNSURE = np.where(np.arange(N) < 20, "I cannot tell", MOSTLY_RIGHT)


def measure_answers(answers: Any, **options: Any) -> tuple[Audit, list[str]]:
    """Return the audit and its warnings of unknown answers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        measured = audit(TRUTH, answers, GENDER, interval=QUICK, **options)
    of_answers = [w for w in caught if w.category is UnknownAnswerWarning]
    return measured, [str(warning.message) for warning in of_answers]


@pytest.mark.parametrize("targets", [None, ["bird", "cat", "dog"]])
@pytest.mark.parametrize(
    ("written", "is_translated"),
    [
        (str.title, True),
        ("a {}".format, True),
        ({"cat": "1", "dog": "0", "bird": "2"}.__getitem__, False),
        ({"cat": 1, "dog": 0, "bird": 2}.__getitem__, False),
    ],
)
def test_answers_in_other_words_are_an_error(
    targets: Any, written: Any, is_translated: bool
) -> None:
    with pytest.raises(FairTTAError) as error:
        audit(
            TRUTH, [written(name) for name in TRUTH.tolist()], GENDER, targets=targets
        )
    for label in ("cat", "dog", "bird"):
        translation = f"{written(label)!r}: {label!r}"
        assert (translation in str(error.value)) is is_translated


@pytest.mark.parametrize("targets", [None, ["bird", "cat", "dog"]])
def test_some_unknown_answers_are_wrong_and_counted(targets: Any) -> None:
    measured, warned = measure_answers(UNSURE, targets=targets, name="mine")
    [sentence] = warned
    assert "20 of 600" in sentence
    assert "'I cannot tell' (20)" in sentence
    assert sentence in measured.warnings
    assert measured.document.data.targets == ("bird", "cat", "dog")
    unknown = measured.document.runs[0].no_class
    assert unknown is not None
    assert dict(unknown.most_frequent) == {"I cannot tell": 20}
    # Each is as wrong as another class would be
    wrong, no_warning = measure_answers(
        np.where(np.arange(N) < 20, WRONG_ANSWERS, MOSTLY_RIGHT)
    )
    assert no_warning == []
    for metric in ("accuracy", "worst_group_accuracy", "typical_gap"):
        assert measured.estimate(metric) == wrong.estimate(metric)
    frame = measured.to_dataframe()
    assert frame["y_pred: mine"].value_counts()["(no class)"] == 20


def test_unknown_answers_change_no_mean_over_classes() -> None:
    """Another class without a gap would make the gaps of the classes look smaller."""
    one_unknown, _ = measure_answers(np.where(np.arange(N) < 1, "?", MOSTLY_RIGHT))
    none_unknown, _ = measure_answers(MOSTLY_RIGHT)
    for metric in ("equalized_odds_difference", "equal_opportunity_difference"):
        assert one_unknown.estimate(metric).value == pytest.approx(
            none_unknown.estimate(metric).value, abs=0.02
        )
    parity = one_unknown.estimate("demographic_parity_difference")
    assert parity.value is None
    assert "no class" in str(parity.reason)


def test_unknown_answers_are_a_column_of_the_confusion() -> None:
    measured, _ = measure_answers(UNSURE)
    jsonschema.validate(measured.to_dict(), schema())
    assert Audit.from_json(measured.to_json()) == measured
    for group in measured.document.runs[0].groups:
        assert [len(row) for row in group.confusion] == [4, 4, 4]
        assert sum(sum(row) for row in group.confusion) == group.n
    assert ">no class</th>" in html(measured)


def test_only_the_most_frequent_unknown_answers_are_named() -> None:
    answers = MOSTLY_RIGHT.astype(object)
    answers[:50] = [f"text {i}" for i in range(50)]
    measured, [sentence] = measure_answers(answers)
    unknown = measured.document.runs[0].no_class
    assert unknown is not None
    assert (unknown.n, len(unknown.most_frequent)) == (50, 20)
    assert "50 of 600" in sentence


def test_a_class_without_images_is_named_by_targets() -> None:
    answers = np.where(np.arange(N) < 20, "cow", MOSTLY_RIGHT)
    measured, warned = measure_answers(answers, targets=["cow", "bird", "cat", "dog"])
    assert warned == []
    assert measured.document.data.targets == ("cow", "bird", "cat", "dog")
