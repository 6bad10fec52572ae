"""Rows of the same image are one cluster: repeating images adds no certainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from internals import COMPARED_METRICS, Estimate, join_clusters

from fair_tta import FairTPTClassifier, Features
from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.lab.report import html, markdown

IMAGES = 240
TIMES = 5

# Four groups of one class in one place; answers after narrow the gap a bit
CELL = np.arange(IMAGES) % 4
LUCK = np.random.default_rng(0).random(IMAGES)
IS_RIGHT_BEFORE = np.array([0.9, 0.6, 0.65, 0.9])[CELL] > LUCK
IS_RIGHT_AFTER = np.array([0.85, 0.7, 0.7, 0.85])[CELL] > LUCK
CODES = CELL % 2
NAMES = np.array(["cat", "dog"])
TRUTH = NAMES[CODES]
PLACES = np.array(["indoors", "outdoors"])[CELL // 2]
BEFORE = NAMES[np.where(IS_RIGHT_BEFORE, CODES, 1 - CODES)]
AFTER = NAMES[np.where(IS_RIGHT_AFTER, CODES, 1 - CODES)]


def measure(
    answers: Any, name: str, times: int, *, images: int = IMAGES, **options: Any
) -> Audit:
    """Measure the first images, each of which comes so many times."""
    if options.pop("with_digests", True):
        options["digests"] = np.tile(np.arange(images), times)
    columns = (np.tile(c[:images], times) for c in (TRUTH, answers, PLACES))
    return audit(*columns, name=name, **options)


def compare_runs(times: int, **options: Any) -> Audit:
    before = measure(BEFORE, "before", times, **options)
    return compare([before, measure(AFTER, "after", times, **options)])


def width(estimate: Estimate) -> float:
    """Return the width of the interval."""
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low


@pytest.mark.parametrize("metric", [metric.name for metric in COMPARED_METRICS[:10]])
def test_repeating_images_makes_no_interval_narrower(metric: str) -> None:
    unique = compare_runs(1).difference(metric, "after")
    repeated = compare_runs(TIMES).difference(metric, "after")
    assert unique.value == pytest.approx(repeated.value, abs=0.03)
    assert width(repeated) > 0.93 * width(unique)
    without_digests = compare_runs(TIMES, with_digests=False)
    too_narrow = without_digests.difference(metric, "after")
    assert width(too_narrow) < 0.7 * width(repeated)


def test_repeating_images_makes_no_interval_of_a_group_narrower() -> None:
    groups = compare_runs(1).document.comparisons[0].groups
    repeated_groups = compare_runs(TIMES).document.comparisons[0].groups
    for group, repeated in zip(groups, repeated_groups, strict=True):
        assert width(repeated.difference) > 0.99 * width(group.difference)
        assert repeated.changes.mcnemar_p is None
        needed = group.changes.images_needed
        if needed is not None:
            assert repeated.changes.images_needed == pytest.approx(needed, rel=0.1)


def widths_of_scores(times: int) -> list[float]:
    """Return the widths of intervals of scores and beliefs, which repeat with the images."""
    generator = np.random.default_rng(1)
    entropy, confidence = np.tile(generator.uniform(0.1, 0.9, (2, IMAGES)), times)
    belief, value = np.tile(generator.uniform(0.2, 0.8, (2, IMAGES)), times)
    scores = Scores(
        confidence=confidence,
        entropy=entropy,
        sensitive_entropy={"sensitive": entropy},
        zero_shot={"cat": belief, "dog": 1 - belief},
        sensitive_zero_shot={"sensitive": np.stack([value, 1 - value], 1)},
    )
    [run] = measure(BEFORE, "before", times, scores=scores).document.runs
    assert run.perceived is not None
    estimates = [
        run.metrics.average_target_confidence,
        run.metrics.expected_calibration_error,
        run.sensitive_indifference["sensitive"],
        run.perceived["sensitive"].pseudo_eod,
    ]
    estimates += [group.calibration_error for group in run.groups]
    return [width(estimate) for estimate in estimates]


def test_repeating_images_makes_no_interval_of_scores_narrower() -> None:
    assert widths_of_scores(TIMES) == pytest.approx(widths_of_scores(1), rel=0.15)


def test_the_audit_states_how_many_images_differ() -> None:
    compared = compare_runs(TIMES)
    assert compared.document.data.n == IMAGES * TIMES
    assert compared.document.data.different_images == IMAGES
    assert compared.document.data.clusters == IMAGES
    sentence = "1,200 rows are 240 different images"
    assert any(sentence in warning for warning in compared.warnings)
    assert sentence in html(compared)
    assert "240 different images" in markdown(compared)
    assert Audit.from_json(compared.to_json()) == compared


def test_digests_of_different_images_change_nothing() -> None:
    compared = compare_runs(1)
    without_digests = compare_runs(1, with_digests=False)
    assert compared.document.data.different_images == IMAGES
    assert without_digests.document.data.different_images is None
    assert compared.document.data.clusters is None
    assert compared.document.runs == without_digests.document.runs
    assert compared.document.comparisons == without_digests.document.comparisons
    assert compared.warnings == without_digests.warnings
    assert compared.document.data.hash == without_digests.document.data.hash


def test_small_groups_are_those_of_few_different_images() -> None:
    with pytest.warns(match=r"Fewer than 30 images.*cat / indoors \(n = 10\)"):
        measure(BEFORE, "before", TIMES, images=40)


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_few_different_images_have_figures_without_intervals() -> None:
    compared = compare_runs(20, images=8)
    assert any("8 different images" in warning for warning in compared.warnings)
    accuracy = compared.estimate("accuracy", "after")
    assert 0 < float(accuracy) < 1
    assert accuracy.low is None
    assert "only 8 different images" in str(accuracy.reason)
    for metric in COMPARED_METRICS[:10]:
        assert compared.difference(metric.name, "after").low is None
    assert "8 different images" in html(compared)


def test_clusters_and_images_are_joined() -> None:
    persons = np.array([0, 0, 1, 2, 3])
    # The third and the fourth row are the same image
    contents = np.array([0, 1, 2, 2, 3])
    joined: Any = join_clusters(persons, contents)
    assert joined.tolist() == [0, 0, 1, 1, 2]
    assert join_clusters(None, np.arange(5)) is None
    persons_of_rows = np.tile(np.arange(IMAGES) // 2, TIMES)
    data = compare_runs(TIMES, clusters=persons_of_rows).document.data
    assert (data.clusters, data.different_images) == (IMAGES // 2, IMAGES)


def test_answers_without_digests_follow_a_run_with_them() -> None:
    without_digests = measure(BEFORE, "before", TIMES, with_digests=False)
    second = measure(AFTER, "after", TIMES)
    compared = compare([without_digests, second]).document
    assert compared.data.clusters == IMAGES
    first = measure(BEFORE, "before", TIMES)
    assert compared.runs == (*first.document.runs, *second.document.runs)


N_VECTORS = 60
VECTOR_CODES = np.arange(N_VECTORS) % 2
VECTOR_GROUPS = np.arange(N_VECTORS) // 2 % 2
LABELS = NAMES[VECTOR_CODES].tolist()
GENDERS = np.array(["man", "woman"])[VECTOR_GROUPS].tolist()


def classifier_of_vectors() -> tuple[FairTPTClassifier, Any]:
    """Return a classifier and vectors of two classes in two groups."""
    axes = np.eye(8, dtype=np.float32)
    prompts = {"a cat": axes[0], "a dog": axes[1], "a man": axes[2], "a woman": axes[3]}
    clf = FairTPTClassifier.from_features(
        prompts,
        targets=["cat", "dog"],
        sensitive=["man", "woman"],
        template="a {target}{sensitive}",
    )
    noise = np.random.default_rng(0).standard_normal((N_VECTORS, 8), np.float32)
    class_part = axes[VECTOR_CODES]
    group_part = 0.5 * axes[2 + VECTOR_GROUPS]
    return clf, class_part + group_part + 0.7 * noise


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("as_list", [False, True])
def test_a_classifier_knows_repeated_features(as_list: bool) -> None:
    clf, vectors = classifier_of_vectors()
    features = Features(np.tile(vectors, (20, 1)))
    images: Sequence[Any] = list(features) if as_list else features
    repeated = clf.audit(images, LABELS * 20, GENDERS * 20)
    assert repeated.document.data.different_images == N_VECTORS
    unique = clf.audit(Features(vectors), LABELS, GENDERS)
    for metric in ("accuracy", "worst_group_accuracy", "typical_gap"):
        estimate = repeated.estimate(metric)
        assert width(estimate) > 0.85 * width(unique.estimate(metric))


@pytest.mark.filterwarnings("ignore")
def test_a_classifier_joins_persons_and_repeated_features() -> None:
    clf, vectors = classifier_of_vectors()
    persons = [i // 3 for i in range(N_VECTORS)] * 2
    images = Features(np.tile(vectors, (2, 1)))
    data = clf.audit(images, LABELS * 2, GENDERS * 2, clusters=persons).document.data
    assert (data.clusters, data.different_images) == (20, N_VECTORS)
