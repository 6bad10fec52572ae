"""`compare`: differences are those of the metric functions, on the same images only."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from fair_tta import FairTPTClassifier, FairTTAError, Features, metrics, miniature
from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.metrics import Bootstrap

N = 600
QUICK = Bootstrap(200)
generator = np.random.default_rng(0)
TRUTH = generator.choice(["cat", "dog", "bird"], N)
GENDER = generator.choice(["man", "woman"], N)
BEFORE = np.where(generator.random(N) < 0.7, TRUTH, "cat")
AFTER = np.where(generator.random(N) < 0.2, TRUTH, BEFORE)
OTHER_IMAGES = (
    "should be of the same images in the same order, "
    "but the images of 'a' and 'b' differ"
)


def measure(answers: Any = BEFORE, name: str = "before", **options: Any) -> Audit:
    return audit(
        TRUTH, answers, {"gender": GENDER}, name=name, **{"interval": QUICK, **options}
    )


@pytest.fixture(scope="module")
def compared() -> Audit:
    scores = Scores(sensitive_entropy={"gender": np.full(N, 0.5)})
    audits = {"before": measure(scores=scores)}
    audits["after"] = measure(AFTER, "after", scores=scores)
    return compare(audits.values())


def test_differences_are_those_of_the_functions(compared: Audit) -> None:
    assert compared.runs == ("before", "after")
    [comparison] = compared.to_dict()["comparisons"]
    assert (comparison["reference"], comparison["run"]) == ("before", "after")
    for metric in (
        metrics.definitions.BALANCED_ACCURACY,
        metrics.definitions.BIAS,
        metrics.definitions.EQUALIZED_ODDS,
    ):
        difference = metrics.paired_difference(
            metric, TRUTH, BEFORE, AFTER, {"gender": GENDER}, interval=QUICK
        )
        assert compared.difference(metric.name, "after") == difference
    for name, estimate in comparison["differences"].items():
        if estimate["value"] is not None:
            before = float(compared.estimate(name, "before"))
            after = float(compared.estimate(name, "after"))
            assert estimate["value"] == pytest.approx(after - before, abs=1e-12), name
    assert comparison["sensitive_indifference"]["gender"]["value"] == 0


def test_changes_are_counted_overall_and_by_group(compared: Audit) -> None:
    was_right = BEFORE == TRUTH
    is_right = AFTER == TRUTH
    [comparison] = compared.to_dict()["comparisons"]
    changes = comparison["changes"]
    won = int((~was_right & is_right).sum())
    assert changes["changed"] == (BEFORE != AFTER).sum()
    assert changes["right_to_wrong"] == (was_right & ~is_right).sum() == 0
    assert changes["wrong_to_right"] == won
    assert changes["mcnemar_p"] == metrics.mcnemar(0, won) < 0.01
    assert changes["images_needed"] < N
    assert len(comparison["groups"]) == 2 + 6
    for group in comparison["groups"]:
        mask = group["sensitive"]["gender"] == GENDER
        if group["target"] is not None:
            mask &= group["target"] == TRUTH
        assert group["changes"]["n"] == mask.sum()
        difference = is_right[mask].mean() - was_right[mask].mean()
        assert group["difference"]["value"] == pytest.approx(difference)


def test_target_confidence_is_corrected_as_the_other_metrics_are() -> None:
    random = np.random.default_rng(1)
    first = random.uniform(0.2, 0.5, N)
    entropies = [first]
    for _ in range(2):
        entropies.append(np.clip(first + random.normal(0, 0.1, N), 0, 1))
    entropies.append(first + 0.3)
    runs = []
    for index, entropy in enumerate(entropies):
        runs.append(measure(name=f"run {index}", scores=Scores(entropy=entropy)))

    # Holm: the clear change leaves at a third of the error, the with_other_digests share it
    errors = (0.05 / 2, 0.05 / 2, 0.05 / 3)
    comparisons = compare(runs).document.comparisons
    for comparison, entropy, error in zip(
        comparisons, entropies[1:], errors, strict=True
    ):
        estimate = comparison.adjusted.average_target_confidence
        # One image is added at either end
        change = np.append(first - entropy, [-1.0, 1.0])
        quantile = NormalDist().inv_cdf(1 - error / 2)
        half_width = quantile * change.std(ddof=1) / math.sqrt(N + 2)
        assert estimate.low == pytest.approx(change.mean() - half_width)
        assert estimate.high == pytest.approx(change.mean() + half_width)
        assert comparison.compared == 3
    assert compare(runs[:2]).document.comparisons[0].compared is None


def test_scores_of_one_run_only_give_no_difference() -> None:
    entropy = np.full(N, 0.5)
    scores = Scores(entropy=entropy, sensitive_entropy={"x": entropy})
    mixed = compare([measure(), measure(AFTER, "after", scores=scores)])
    [comparison] = mixed.document.comparisons
    assert comparison.differences.average_target_confidence.value is None
    assert comparison.sensitive_indifference["x"].value is None


def test_runs_that_agree_everywhere_do_not_look_certain() -> None:
    truth = ["a", "b"] * 80
    groups = ["x"] * 80 + ["y"] * 80
    runs = [audit(truth, ["a"] * 160, groups, name=name) for name in ("a", "b")]
    (comparison,) = compare(runs).to_dict()["comparisons"]
    names = ("accuracy", "worst_group_accuracy", "bias", "equalized_odds_difference")
    for name in names:
        estimate = comparison["differences"][name]
        assert estimate["low"] < 0 == estimate["value"] < estimate["high"]


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_several_runs_where_no_two_groups_share_a_class() -> None:
    answers = {"a": ["cat", "dog"], "b": ["cat", "cat"], "c": ["dog", "dog"]}
    audits = []
    for name, answers_of_run in answers.items():
        columns = (["cat", "dog"], answers_of_run, ["in", "out"])
        audits.append(audit(*columns, name=name))
    for comparison in compare(audits).document.comparisons:
        assert comparison.adjusted.equalized_odds_difference.value is None
        assert comparison.adjusted.typical_gap.low is None


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_warnings_of_small_groups_are_kept_and_not_repeated() -> None:
    truth = ["a", "b"] * 40 + ["a"]
    groups = ["x", "y"] * 20 + ["y", "x"] * 20 + ["z"]
    first = audit(truth, truth, groups, interval=QUICK)
    second = audit(truth, truth[::-1], groups, interval=QUICK, name="other")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compared = compare([first, second])
    assert compared.warnings == first.warnings
    changes = compared.document.comparisons[0].groups
    [empty] = [group for group in changes if group.changes.n == 0]
    assert empty.difference.reason == "no images: b / z"
    assert empty.changes.mcnemar_p is None


def test_runs_of_other_models_keep_their_origin() -> None:
    first = {"model": {"name": "A"}, "seed": 0}
    second = {"model": {"name": "B"}, "seed": 0, "command": "x"}
    compared = compare(
        [measure(provenance=first), measure(AFTER, "after", provenance=second)]
    )
    assert compared.document.provenance["model"] == {"name": "A"}
    three = compare([compared, measure(name="third", provenance=second)])
    origins = [run.provenance for run in three.document.runs]
    assert origins[0] is None
    for origin in origins[1:]:
        assert origin is not None
        assert origin.model == {"name": "B"}


@pytest.mark.parametrize("order", [("known", "unknown"), ("unknown", "known")])
def test_unknown_answers_are_compared_with_known_ones(order: tuple[str, str]) -> None:
    answers = {"known": BEFORE, "unknown": BEFORE.copy()}
    answers["unknown"][:20] = "?"
    with pytest.warns(UserWarning, match="20 of 600"):
        audits = {name: measure(answers[name], name) for name in answers}
    compared = compare([audits[name] for name in order])
    first, second = order
    change = (answers[second] == TRUTH).mean() - (answers[first] == TRUTH).mean()
    difference = compared.difference("accuracy", second)
    assert difference.value == pytest.approx(change)
    assert sum("unknown: 20 of 600" in sentence for sentence in compared.warnings) == 1
    assert compared.document.data.targets == ("bird", "cat", "dog")
    targets = {group.target for group in compared.document.comparisons[0].groups}
    assert targets == {None, "bird", "cat", "dog"}


def with_digests(name: str, digests: Sequence[object] | None) -> Audit:
    truth = ["cat", "dog"] * 40
    sensitive = ["in"] * 40 + ["out"] * 40
    return audit(truth, truth, sensitive, name=name, digests=digests, interval=QUICK)


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
@pytest.mark.parametrize(
    "other_digests",
    [
        [f"other {i}" for i in range(80)],
        [f"image {i}" for i in reversed(range(80))],
        [f"image {(i + 1) // 2}" for i in range(80)],
    ],
)
def test_other_digests_are_other_images(other_digests: list[str]) -> None:
    digests = [f"image {i}" for i in range(80)]
    first = with_digests("a", digests)
    with_other_digests = with_digests("b", other_digests)
    with pytest.raises(FairTTAError, match=OTHER_IMAGES):
        compare([first, with_other_digests])
    compared = compare([first, with_digests("c", None)])
    with pytest.raises(FairTTAError, match=OTHER_IMAGES):
        compare([compared, with_other_digests])
    assert compare([compared, with_digests("d", digests)]).runs == ("a", "c", "d")


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_a_classifier_knows_other_images_and_another_order() -> None:
    task = miniature.BADGES
    classifier = FairTPTClassifier(
        "miniature", task.targets, task.sensitive, task.template, adapter="zero-shot"
    )
    rows = task.draw(60, seed=3)
    images = [row.image for row in rows]
    labels = [row.target for row in rows]
    sensitive = {name: [row.sensitive[name] for row in rows] for name in task.sensitive}
    features = np.asarray(classifier.encode(images, with_views=False))[:, 0]

    def measured(name: str, images: object) -> Audit:
        return classifier.audit(images, labels, sensitive, name=name, interval=QUICK)

    # Images of one group change sensitive, so that labels and groups stay as they are
    group = (rows[0].target, rows[0].sensitive)
    in_group = []
    for index, row in enumerate(rows):
        if (row.target, row.sensitive) == group:
            in_group.append(index)
    order = np.arange(60)
    order[in_group] = np.roll(in_group, -1)
    by_features = measured("a", Features(features))
    by_images = measured("a", images)
    with pytest.raises(FairTTAError, match=OTHER_IMAGES):
        compare([by_features, measured("b", Features(features[order]))])
    with pytest.raises(FairTTAError, match=OTHER_IMAGES):
        compare([by_images, measured("b", [images[i] for i in order])])
    again = compare([by_features, measured("b", Features(features))])
    assert again.document.comparisons[0].changes.right_to_wrong == 0

    # Digests of features and of images cannot be compared, nor those in another precision
    half = measured("c", Features(features.astype(np.float16)))
    assert compare([by_features, half, measured("d", images)]).runs == ("a", "c", "d")
