"""The audit: its JSON validates, round-trips and holds what the pure functions say."""

from __future__ import annotations

import copy
import json
import math
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import GroupByText, schema
from msgspec import to_builtins

from fair_tta import FairTPT, metrics
from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.errors import FairTTAError, SmallGroupWarning
from fair_tta.lab.report import html
from fair_tta.metrics import Bootstrap
from fair_tta.prediction import Prediction

jsonschema: Any = pytest.importorskip("jsonschema")

N = 600
QUICK = Bootstrap(200)
generator = np.random.default_rng(0)
TRUTH = generator.choice(["cat", "dog", "bird"], N)
GENDER = generator.choice(["man", "woman"], N)
BEFORE = np.where(generator.random(N) < 0.7, TRUTH, "cat")
AFTER = np.where(generator.random(N) < 0.2, TRUTH, BEFORE)
PROBABILITIES = generator.dirichlet([1, 1, 1], N)
SENSITIVE_PROBABILITIES = {"gender": generator.dirichlet([1, 1], N)}


def make(answers: Any = BEFORE, name: str = "before", **more: Any) -> Audit:
    return audit(
        TRUTH, answers, {"gender": GENDER}, name=name, **{"interval": QUICK, **more}
    )


def full(answers: Any = BEFORE, name: str = "before", **more: Any) -> Audit:
    scores = Scores.from_probabilities(PROBABILITIES, SENSITIVE_PROBABILITIES)
    return make(answers, name, scores=scores, seconds=12.0, adapter=FairTPT(), **more)


@pytest.fixture(scope="module")
def both() -> Audit:
    return compare([full(), full(AFTER, "after")])


def test_holds_what_the_functions_say() -> None:
    found = full()
    case = TRUTH, BEFORE, {"gender": GENDER}
    suffixes: dict[GroupByText, str] = {"target and sensitive": "", "sensitive": "_s"}
    for over, suffix in suffixes.items():
        expected = metrics.worst_group_accuracy(*case, over=over)
        assert found.estimate("worst_group_accuracy" + suffix) == expected
        assert found.estimate("bias" + suffix) == metrics.bias(*case, over=over)
    assert found.estimate("balanced_accuracy") == metrics.balanced_accuracy(*case)
    for name in (
        "accuracy",
        "equalized_odds_difference",
        "equal_opportunity_difference",
        "demographic_parity_difference",
    ):
        assert found.estimate(name) == getattr(metrics, name)(*case, interval=QUICK)
    [run] = found.to_dict()["runs"]
    sure = PROBABILITIES.max(1)
    rates = metrics.group_rates(*case)
    for group in run["groups"]:
        value = group["sensitive"]["gender"]
        accuracy = metrics.group_accuracy(*case)[value]
        assert group["accuracy"] == to_builtins(accuracy)
        assert group["correct"] / group["n"] == accuracy.value
        here = np.array(GENDER) == value
        rows = np.array(TRUTH)[here], np.array(BEFORE)[here], sure[here]
        calibration = metrics.expected_calibration_error(*rows, interval=QUICK)
        assert group["calibration_error"] == to_builtins(calibration)
        confusion = np.array(group["confusion"])
        for i, target in enumerate(found.to_dict()["data"]["targets"]):
            for j, answer in enumerate(found.to_dict()["data"]["targets"]):
                expected_count = (
                    (target == TRUTH) & (answer == BEFORE) & (value == GENDER)
                )
                assert confusion[i, j] == expected_count.sum()
            cell = group["classes"][i]
            assert cell["target"] == target
            assert (cell["n"], cell["correct"]) == (confusion[i].sum(), confusion[i, i])
            for kind, figure in vars(rates[(target, value)]).items():
                assert cell[kind] == to_builtins(figure)
    gaps = metrics.class_gaps(*case, interval=QUICK)
    for item in run["classes"]:
        assert item["fpr_gap"] == to_builtins(gaps[item["target"]].false_positive_rate)
    worst = run["worst_group"]["(y, s)"]
    lowest = rates[(worst["target"], worst["sensitive"]["gender"])].true_positive_rate
    assert lowest.value == found.estimate("worst_group_accuracy").value
    assert run["worst_group"]["s"]["target"] is None
    asi = metrics.average_sensitive_indifference(
        probabilities=SENSITIVE_PROBABILITIES["gender"]
    )
    assert run["sensitive_indifference"]["gender"] == to_builtins(asi)
    atc = metrics.average_target_confidence(probabilities=PROBABILITIES)
    assert found.estimate("average_target_confidence") == atc
    assert run["cost"] == {"seconds": 12.0, "seconds_per_image": 0.02}
    assert run["adapter"]["name"] == "FairTPT"
    assert run["adapter"]["settings"]["lam"] == 100.0


def test_comparisons_hold_what_the_functions_say(both: Audit) -> None:
    [comparison] = both.to_dict()["comparisons"]
    assert (comparison["reference"], comparison["run"]) == ("before", "after")
    for metric in (
        metrics.definitions.BALANCED_ACCURACY,
        metrics.definitions.BIAS,
        metrics.definitions.EQUALIZED_ODDS,
    ):
        expected = metrics.paired_difference(
            metric, TRUTH, BEFORE, AFTER, {"gender": GENDER}, interval=QUICK
        )
        assert comparison["differences"][metric.name] == to_builtins(expected)
        assert both.difference(metric.name, "after") == expected
    for name, figure in comparison["differences"].items():
        ours = float(both.estimate(name, "after")) - float(
            both.estimate(name, "before")
        )
        assert figure["value"] == pytest.approx(ours, abs=1e-12), name
    was, now = BEFORE == TRUTH, AFTER == TRUTH
    changes = comparison["changes"]
    assert changes["changed"] == (BEFORE != AFTER).sum()
    assert changes["right_to_wrong"] == (was & ~now).sum() == 0
    assert changes["wrong_to_right"] == (~was & now).sum()
    assert changes["mcnemar_p"] == metrics.mcnemar(0, int((~was & now).sum())) < 0.01
    assert changes["images_needed"] < N
    assert len(comparison["groups"]) == 2 + 6
    for group in comparison["groups"]:
        mask = group["sensitive"]["gender"] == GENDER
        if group["target"] is not None:
            mask &= group["target"] == TRUTH
        assert group["changes"]["n"] == mask.sum()
        difference = now[mask].mean() - was[mask].mean()
        assert group["difference"]["value"] == pytest.approx(difference)
    assert comparison["sensitive_indifference"]["gender"]["value"] == 0


def test_target_confidence_is_corrected_as_the_other_metrics_are() -> None:
    random = np.random.default_rng(1)
    first = random.uniform(0.2, 0.5, N)
    moved = [first + random.normal(0, 0.1, N) for _ in range(2)] + [first + 0.3]
    entropies = [first, *(np.clip(e, 0, 1) for e in moved)]
    runs = [
        make(name=f"run {i}", scores=Scores(entropy=entropy))
        for i, entropy in enumerate(entropies)
    ]
    comparisons = compare(runs).document.comparisons
    for comparison, entropy, error in zip(
        comparisons, entropies[1:], (0.05 / 2, 0.05 / 2, 0.05 / 3), strict=True
    ):
        told = comparison.adjusted.average_target_confidence
        change = np.append(
            first - entropy, [-1.0, 1.0]
        )  # one image added at either end
        half = (
            NormalDist().inv_cdf(1 - error / 2) * change.std(ddof=1) / math.sqrt(N + 2)
        )
        assert told.low == pytest.approx(change.mean() - half)
        assert told.high == pytest.approx(change.mean() + half)
        assert comparison.compared == 3
    assert compare(runs[:2]).document.comparisons[0].compared is None


def test_the_json_validates(both: Audit) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    empty = audit(
        [1, 2] * 40,
        [2, 2] * 40,
        [True, False] * 40,
        values=[True, False],
        targets=[1, 2],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        lone = audit(
            ["a"],
            ["b"],
            {"x": ["u"], "y": ["v"]},
            targets=["a", "b"],
            values={"x": ["u", "w"]},
        )
    for some in (both, full(), make(), empty, lone, compare([make()])):
        jsonschema.validate(some.to_dict(), schema())
        assert "NaN" not in some.to_json()


def test_it_round_trips(both: Audit, tmp_path: Path) -> None:
    both.save(tmp_path / "audit.json")
    loaded = Audit.load(tmp_path / "audit.json")
    assert loaded == both
    assert loaded.to_json() == both.to_json()
    assert hash(loaded) == hash(both)
    assert pickle.loads(pickle.dumps(both)) == both
    assert repr(loaded) == "Audit(runs=['before', 'after'], n=600)"
    odds = loaded.estimate("equalized_odds_difference", "after")
    assert odds == both.estimate("equalized_odds_difference", "after")
    assert json.loads((tmp_path / "audit.json").read_text("utf-8")) == both.to_dict()


def test_equal_but_for_time(both: Audit) -> None:
    document = both.to_dict()
    document["provenance"]["time"] = "2000-01-01T00:00:00+00:00"
    document["runs"][0]["cost"] = None
    assert Audit.from_json(json.dumps(document)) == both
    document["runs"][0]["groups"][0]["correct"] -= 1
    assert Audit.from_json(json.dumps(document)) != both
    assert both != "an audit"
    assert full() == full()
    assert make() != make(interval=Bootstrap(200, seed=1))


def test_the_size_does_not_depend_on_the_images() -> None:
    large = audit(
        np.tile(TRUTH, 20), np.tile(BEFORE, 20), np.tile(GENDER, 20), interval=QUICK
    )
    assert len(large.to_json()) < 1.1 * len(make().to_json())


def test_what_was_not_given_has_a_reason() -> None:
    plain = make()
    atc = plain.estimate("average_target_confidence")
    assert atc.value is None
    assert atc.reason == "not given: no scores were passed"
    [run] = plain.to_dict()["runs"]
    assert run["metrics"]["average_target_confidence"]["value"] is None
    assert run["relative_steps"] is run["cost"] is run["adapter"] is None
    mixed = compare([make(), full(AFTER, "after")]).to_dict()["comparisons"][0]
    assert mixed["differences"]["average_target_confidence"]["value"] is None
    assert mixed["sensitive_indifference"]["gender"]["value"] is None


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
    predictions = [prediction(i / 40, "bounded") for i in range(41)] + [
        prediction(None)
    ] * 39
    scores = Scores.from_predictions(predictions)
    found = audit(["cat"] * 80, ["cat"] * 80, ["x", "y"] * 40, scores=scores)
    [run] = found.to_dict()["runs"]
    assert run["relative_steps"]["n"] == 41
    assert run["relative_steps"]["quantiles"] == pytest.approx(
        {"0": 0, "0.1": 0.1, "0.25": 0.25, "0.5": 0.5, "0.75": 0.75, "0.9": 0.9, "1": 1}
    )
    assert run["warnings"] == {"bounded": 41}
    assert run["metrics"]["average_target_confidence"]["value"] == pytest.approx(0.2)
    assert run["metrics"]["expected_calibration_error"]["value"] == pytest.approx(0.25)
    before = run["zero_shot_scores"]
    assert before["average_target_confidence"]["value"] == 0
    assert before["sensitive_indifference"]["place"]["value"] == 0
    assert run["sensitive_indifference"]["place"]["value"] == 1
    assert Scores.from_predictions([]).entropy is None


def test_scores_that_are_empty_are_left_out() -> None:
    found = make(scores=Scores(zero_shot={}, sensitive_zero_shot={}, warnings=[]))
    assert found.document.runs[0].perceived is None
    assert found.document.runs[0].warnings == {}


def test_small_groups_warn_and_the_audit_keeps_the_warning() -> None:
    truth, groups = ["a", "b"] * 40 + ["a"], ["x", "y"] * 20 + ["y", "x"] * 20 + ["z"]
    with pytest.warns(SmallGroupWarning, match=r"a / z \(n = 1\)") as seen:
        found = audit(truth, truth, groups, interval=QUICK)
    assert seen[0].filename == __file__
    assert found.warnings == (
        "Fewer than 30 images, so figures are uncertain: a / x (n = 20), b / x (n = 20), "
        "a / y (n = 20), b / y (n = 20), a / z (n = 1).",
        "No images, so no figures: b / z.",
    )
    with pytest.warns(SmallGroupWarning):
        other = audit(truth, truth[::-1], groups, interval=QUICK, name="other")
    with warnings.catch_warnings():  # said once
        warnings.simplefilter("error")
        together = compare([found, other])
    assert together.warnings == found.warnings
    empty = [
        g
        for g in together.to_dict()["comparisons"][0]["groups"]
        if g["changes"]["n"] == 0
    ]
    assert [g["difference"]["reason"] for g in empty] == ["no images: b / z"]
    assert empty[0]["changes"]["mcnemar_p"] is None


def test_it_can_be_read(both: Audit) -> None:
    text = str(both)
    assert "600 images" in text
    assert "worst_group_accuracy" in text
    assert f"{both.estimate('accuracy').value:.1%}" in text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        assert "a gap needs two groups" in str(audit(["a"], ["a"], ["s"]))


def test_frames(both: Audit) -> None:
    pytest.importorskip("fairlearn")
    frame = both.to_dataframe()
    assert list(frame) == [
        "y_true",
        "sensitive: gender",
        "y_pred: before",
        "y_pred: after",
    ]
    assert frame["y_pred: after"].tolist() == AFTER.tolist()
    by_group = both.to_metric_frame("after").by_group
    for group, figure in metrics.group_accuracy(TRUTH, AFTER, GENDER).items():
        assert by_group["accuracy"][group] == pytest.approx(figure.value)
        assert by_group["count"][group] == figure.n
    own = both.to_metric_frame(
        metrics={"cats": lambda _, answers: (answers == "cat").mean()}
    )
    assert own.overall["cats"] == pytest.approx((BEFORE == "cat").mean())
    with pytest.raises(FairTTAError) as error:
        Audit.from_json(both.to_json()).to_metric_frame()
    assert str(error.value) == (
        "`to_metric_frame` needs the images, which a saved audit does not hold: use the audit as "
        "`audit` made it."
    )


def test_runs_of_other_models_say_so() -> None:
    a, b = (
        {"model": {"name": "A"}, "seed": 0},
        {"model": {"name": "B"}, "seed": 0, "command": "x"},
    )
    both = compare([make(provenance=a), make(AFTER, "after", provenance=b)])
    first, second = both.to_dict()["runs"]
    assert first["provenance"] is None
    assert second["provenance"]["model"] == {"name": "B"}
    assert both.to_dict()["provenance"]["model"] == {"name": "A"}
    three = compare([both, make(BEFORE, "third", provenance=b)])
    assert [
        run["provenance"] and run["provenance"]["model"]
        for run in three.to_dict()["runs"]
    ] == [
        None,
        {"name": "B"},
        {"name": "B"},
    ]
    assert make(provenance=b).to_dict()["provenance"]["command"] == "x"


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_several_runs_where_no_two_groups_share_a_class() -> None:
    answers = {"a": ["cat", "dog"], "b": ["cat", "cat"], "c": ["dog", "dog"]}
    found = compare(
        [audit(["cat", "dog"], a, ["in", "out"], name=n) for n, a in answers.items()]
    )
    for comparison in found.document.comparisons:
        assert comparison.adjusted.equalized_odds_difference.value is None
        assert comparison.adjusted.typical_gap.low is None


def test_an_image_without_a_cluster_is_a_cluster_of_its_own() -> None:
    persons: list[Any] = ["anna", "ben", None, math.nan, "", "anna"] * (N // 6)
    found = make(clusters=persons)
    assert found.document.data.clusters == 2 + 3 * N // 6
    assert found.columns is not None
    assert found.columns.clusters is not None
    assert found.columns.clusters[:8].tolist() == [0, 1, 2, 3, 4, 0, 0, 1]
    together = compare(
        [found, make(AFTER, "after", clusters=np.array(persons, object))]
    )
    assert together.columns is not None
    assert together.columns.clusters is not None
    assert Audit.from_json(together.to_json()).document == together.document
    assert make().document.data.clusters is None


def test_audits_of_any_iterable_are_compared() -> None:
    audits = {"before": make(), "after": make(AFTER, "after")}
    assert compare(audits.values()).runs == ("before", "after")


def test_what_users_write_down_may_be_anything() -> None:
    persons = [f"p{i // 2}" for i in range(len(TRUTH))]
    noted = make(clusters=persons, provenance={"data": "a sentence"})
    assert f"of {len(TRUTH) // 2} clusters" in html(noted)


def other_rows() -> Audit:
    return audit(TRUTH, AFTER, {"gender": GENDER[::-1]}, name="after", interval=QUICK)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare([]), "`audits` should be a list of audits (got none)."),
        (
            lambda: compare([make(), make()]),
            "runs should have distinct names (['before'] came twice): pass `name`.",
        ),
        (
            lambda: compare([make(), other_rows()]),
            "`audits` should agree in data, but hash differ: audit the same images in the same "
            "way.",
        ),
        (
            lambda: compare(
                [make(), make(AFTER, "after", clusters=[i // 2 for i in range(N)])]
            ),
            "`audits` should agree in data, but hash, clusters differ: audit the same images in "
            "the same way.",
        ),
        (
            lambda: make(clusters=["anna"] * 3),
            "`clusters` should be as long as `y_true`, 600 (got 3).",
        ),
        (
            lambda: compare([make(), make(AFTER, "after", interval=Bootstrap(100))]),
            "`audits` should agree in settings, but resamples differ: pass the same `interval`.",
        ),
        (
            lambda: compare([make(), Audit.from_json(make(AFTER, "after").to_json())]),
            "`compare` needs the images, which a saved audit does not hold: use the audit as "
            "`audit` made it.",
        ),
        (
            lambda: make().estimate("fairness"),
            "`metric` should be one of ['accuracy', 'balanced_accuracy', 'worst_group_accuracy', "
            "'worst_group_accuracy_s', 'bias', 'bias_s', 'typical_gap', "
            "'equalized_odds_difference', 'equal_opportunity_difference', "
            "'demographic_parity_difference', 'average_target_confidence', "
            "'expected_calibration_error'] (got 'fairness').",
        ),
        (
            lambda: make().estimate("bias", "TPT"),
            "`run` should be one of ['before'] (got 'TPT').",
        ),
        (
            lambda: compare([make(), make(AFTER, "after")]).difference(
                "bias", "before"
            ),
            "`run` should be one of ['after'] (got 'before').",
        ),
        (
            lambda: compare([make(), make(AFTER, "after")]).difference("luck", "after"),
            "`metric` should be one of ['accuracy', 'balanced_accuracy', 'worst_group_accuracy', "
            "'worst_group_accuracy_s', 'bias', 'bias_s', 'typical_gap', "
            "'equalized_odds_difference', 'equal_opportunity_difference', "
            "'demographic_parity_difference', 'average_target_confidence'] (got 'luck').",
        ),
        (
            lambda: make(scores=Scores(entropy=[0.5])),
            "`entropy` should be as long as `y_true`, 600 (got 1).",
        ),
        (
            lambda: make(scores=Scores(relative_step=[0.5])),
            "`relative_step` should be as long as `y_true`, 600 (got 1).",
        ),
        (
            lambda: make(scores=Scores(relative_step=0.1)),
            "`relative_step` should have one dimension (got 0).",
        ),
        (
            lambda: make(scores=Scores(relative_step=["x"] * N)),
            "`relative_step` should be numbers.",
        ),
        (
            lambda: make(scores=Scores(warnings=["bad"] * N)),
            "`warnings` should be a list of texts per image.",
        ),
        (
            lambda: make(scores=Scores(warnings=[None] * N)),  # type: ignore[list-item]
            "`warnings` should be a list of texts per image.",
        ),
        (
            lambda: make(scores=Scores(warnings="bad")),
            "`warnings` should be a list of texts per image.",
        ),
        (
            lambda: make(scores=Scores(warnings=[["bad"]] * 700)),
            "`warnings` should be as long as `y_true`, 600 (got 700).",
        ),
        (
            lambda: make(scores=Scores(zero_shot={"cat": [0.5] * N, "dog": [0.5]})),
            "`zero_shot['dog']` should be as long as `y_true`, 600 (got 1).",
        ),
        (
            lambda: make(scores=Scores(zero_shot={"cat": ["x"] * N, "dog": [0.5] * N})),
            "`zero_shot['cat']` should be numbers.",
        ),
        (
            lambda: make(scores=Scores(sensitive_zero_shot=[[0.5, 0.5]] * N)),  # type: ignore[arg-type]
            "`sensitive_zero_shot` should be {name: numbers} (got list).",
        ),
        (
            lambda: make(scores=Scores(sensitive_zero_shot={"gender": [[0.5, 0.5]]})),
            "`sensitive_zero_shot['gender']` should be as long as `y_true`, 600 (got 1).",
        ),
        (
            lambda: make(interval=None),
            "`interval` should be a Bootstrap or a level such as 0.95 (got None).",
        ),
        (
            lambda: make(harmful=5),
            "`harmful` should be a list of classes, or {name: classes} (got 5).",
        ),
        (
            lambda: audit(TRUTH, BEFORE, None),
            "`sensitive` should have a value per image, or be {attribute: values} (got None).",
        ),
        (
            lambda: Audit.from_json("{"),
            "this is not JSON: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1).",
        ),
        (
            lambda: Audit.from_json('{"schema": "fair-tta/audit/9"}'),
            "this audit has the schema 'fair-tta/audit/9', but this version of fair-tta reads "
            "'fair-tta/audit/1'.",
        ),
        (
            lambda: Audit.from_json("[]"),
            "this is not an audit of schema 'fair-tta/audit/1': Expected `object`, got `array`.",
        ),
    ],
)
def test_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(FairTTAError) as error:
        call()
    assert str(error.value) == message


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    document = compare([full(), full(AFTER, "after")]).to_dict()
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["data", "n"], "600", "Expected `int`, got `str` - at `$.data.n`"),
        (["data", "n"], True, "Expected `int`, got `bool` - at `$.data.n`"),
        (
            ["runs", 1, "name"],
            KeyError,
            "Object missing required field `name` - at `$.runs[1]`",
        ),
        (
            ["runs", 0, "extra"],
            1,
            "Object contains unknown field `extra` - at `$.runs[0]`",
        ),
        (
            ["runs", 0, "metrics", "bias", "value"],
            7.5,
            "Expected `float` <= 1.0 - at `$.runs[0].metrics.bias.value`",
        ),
        (
            ["runs", 0, "metrics", "bias", "value"],
            "high",
            "Expected `float | null`, got `str` - at `$.runs[0].metrics.bias.value`",
        ),
        (
            ["comparisons", 0, "groups", 3, "changes", "n"],
            -1,
            "Expected `int` >= 0 - at `$.comparisons[0].groups[3].changes.n`",
        ),
        (
            ["provenance", "time"],
            None,
            "in provenance: Expected `str`, got `null` - at `$.time`",
        ),
        (["schema"], KeyError, "Object missing required field `schema`"),
        (["runs"], [], "Expected `array` of length >= 1 - at `$.runs`"),
    ],
)
def test_broken_documents_are_refused_as_jsonschema_does(
    path: list[Any], value: Any, problem: str
) -> None:
    document = changed(path, value)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema())
    with pytest.raises(FairTTAError) as error:
        Audit.from_dict(document)
    assert (
        str(error.value)
        == f"this is not an audit of schema 'fair-tta/audit/1': {problem}."
    )


rows = st.tuples(*[st.sampled_from("abc")] * 3, *[st.sampled_from("xyz")] * 2)


@settings(max_examples=12, deadline=None)
@given(st.lists(rows, min_size=1, max_size=30), st.booleans())
def test_whatever_comes_in_the_json_is_valid(
    some: list[tuple[str, ...]], fill: bool
) -> None:
    """Groups of one, empty groups, one class, one group, everything right or wrong."""
    y_true, before, after, *sensitive = map(list, zip(*some, strict=True))
    names: dict[str, Any] = {"targets": list("abc")}
    if fill:
        names["values"] = {"one": list("xyz"), "two": list("wxyz")}
    scores = Scores(
        confidence=[0.5] * len(some), sensitive_entropy={"one": [1.0] * len(some)}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        runs = [
            audit(
                y_true,
                answers,
                dict(zip(("one", "two"), sensitive, strict=True)),
                name=name,
                interval=Bootstrap(
                    20, strata="sensitive" if fill else "target and sensitive"
                ),
                scores=scores,
                **names,
            )
            for name, answers in (("before", before), ("after", after))
        ]
    both = compare(runs)
    jsonschema.validate(both.to_dict(), schema())
    assert Audit.from_json(both.to_json()) == both
    for run in both.to_dict()["runs"]:
        figures = [*run["metrics"].values(), *(g["accuracy"] for g in run["groups"])]
        for figure in figures:
            assert (figure["value"] is None) <= (figure["reason"] is not None)
            if figure["low"] is not None:
                assert figure["low"] <= figure["value"] <= figure["high"]
        assert sum(group["n"] for group in run["groups"]) == len(some)


def test_names_may_be_odd(tmp_path: Path) -> None:
    y_true = ["猫", 'a "cat"\n', "<b>"] * 80
    groups = ["é / ß", "\t"] * 120
    files = {"unreadable": ["caf\udce9.jpg"], "path": Path("x")}
    for provenance in ({}, files):
        found = audit(y_true, y_true, groups, interval=QUICK, provenance=provenance)
        found.save(tmp_path / "audit.json")
        assert Audit.load(tmp_path / "audit.json") == found
        assert found.to_dict()["data"]["targets"] == sorted(set(y_true))
    assert found.to_dict()["provenance"]["path"] == "x"
    assert found.to_dict()["provenance"]["unreadable"] == ["caf\udce9.jpg"]


def test_the_document_cannot_be_changed(both: Audit) -> None:
    before = copy.deepcopy(both.to_dict())
    both.to_dict()["runs"].clear()
    with pytest.raises(AttributeError):
        both.document.runs = ()  # type: ignore[misc]
    assert both.to_dict() == before
    assert Audit.from_dict(before) == both


def test_runs_that_agree_everywhere_do_not_look_certain() -> None:
    truth, groups = ["a", "b"] * 80, ["x"] * 80 + ["y"] * 80
    runs = [audit(truth, ["a"] * 160, groups, name=name) for name in ("one", "two")]
    (comparison,) = compare(runs).to_dict()["comparisons"]
    for name in (
        "accuracy",
        "worst_group_accuracy",
        "bias",
        "equalized_odds_difference",
    ):
        figure = comparison["differences"][name]
        assert figure["low"] < 0 == figure["value"] < figure["high"]
