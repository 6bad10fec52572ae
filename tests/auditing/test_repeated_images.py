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

IMAGES, TIMES = 240, 5


def answers(seed: int = 0) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return labels, groups, and answers before and after, which narrow the gap a bit."""
    generator = np.random.default_rng(seed)
    cell = np.arange(IMAGES) % 4
    right_before = np.array([0.9, 0.6, 0.65, 0.9])[cell]
    right_after = np.array([0.85, 0.7, 0.7, 0.85])[cell]
    luck = generator.random(IMAGES)
    names = np.array(["cat", "dog"])
    truth = cell % 2
    before = np.where(luck < right_before, truth, 1 - truth)
    after = np.where(luck < right_after, truth, 1 - truth)
    places = np.array(["indoors", "outdoors"])[cell // 2]
    return (
        names[truth].tolist(),
        places.tolist(),
        names[before].tolist(),
        names[after].tolist(),
    )


def compared(times: int, digests: bool = True, **options: Any) -> Audit:
    """Return two runs on images each of which comes so many times."""
    truth, places, before, after = (column * times for column in answers())
    contents = [f"image {i % IMAGES}" for i in range(len(truth))] if digests else None
    runs = (("before", before), ("after", after))
    return compare(
        audit(truth, run, places, name=name, digests=contents, **options)
        for name, run in runs
    )


def width_of(estimate: Estimate) -> float:
    """Return the width of the interval."""
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low


def width(measured: Audit, metric: str) -> float:
    """Return the width of the interval of the change."""
    return width_of(measured.difference(metric, "after"))


@pytest.mark.parametrize("metric", [metric.name for metric in COMPARED_METRICS[:10]])
def test_repeating_images_makes_no_interval_narrower(metric: str) -> None:
    once, often = compared(1), compared(TIMES)
    assert once.difference(metric, "after").value == pytest.approx(
        often.difference(metric, "after").value, abs=0.03
    )
    assert width(often, metric) > 0.93 * width(once, metric)
    blind = compared(TIMES, digests=False)
    assert width(blind, metric) < 0.7 * width(often, metric)


def test_repeating_images_makes_no_interval_of_a_group_narrower() -> None:
    groups = compared(1).document.comparisons[0].groups
    repeated_groups = compared(TIMES).document.comparisons[0].groups
    for group, repeated in zip(groups, repeated_groups, strict=True):
        assert width_of(repeated.difference) > 0.99 * width_of(group.difference)
        assert repeated.changes.mcnemar_p is None
        if group.changes.images_needed is not None:
            assert repeated.changes.images_needed == pytest.approx(
                group.changes.images_needed, rel=0.1
            )


def test_repeating_images_makes_no_interval_of_scores_narrower() -> None:
    generator = np.random.default_rng(1)
    entropy, confidence = generator.uniform(0.1, 0.9, (2, IMAGES))
    belief = generator.uniform(0.2, 0.8, IMAGES)
    beliefs = {"cat": belief, "dog": 1 - belief}
    values = generator.uniform(0.2, 0.8, IMAGES)

    def measured(times: int) -> Audit:
        truth, places, before, _ = (column * times for column in answers())
        scores = Scores(
            confidence=np.tile(confidence, times),
            entropy=np.tile(entropy, times),
            sensitive_entropy={"place": np.tile(entropy, times)},
            zero_shot={
                name: np.tile(column, times) for name, column in beliefs.items()
            },
            sensitive_zero_shot={
                "place": np.tile(np.stack([values, 1 - values], 1), (times, 1))
            },
        )
        contents = [i % IMAGES for i in range(len(truth))]
        return audit(truth, before, {"place": places}, scores=scores, digests=contents)

    def widths(measured: Audit) -> list[float]:
        run = measured.document.runs[0]
        assert run.perceived is not None
        figures = [
            run.metrics.average_target_confidence,
            run.metrics.expected_calibration_error,
            run.sensitive_indifference["place"],
            run.perceived["place"].pseudo_eod,
            *(group.calibration_error for group in run.groups),
        ]
        return [width_of(figure) for figure in figures]

    once, often = widths(measured(1)), widths(measured(TIMES))
    assert often == pytest.approx(once, rel=0.15)


def test_the_audit_states_how_many_images_differ() -> None:
    measured = compared(TIMES)
    assert measured.document.data.n == IMAGES * TIMES
    assert measured.document.data.different_images == IMAGES
    assert measured.document.data.clusters == IMAGES
    sentence = "1,200 rows are 240 different images"
    assert any(sentence in warning for warning in measured.warnings)
    assert sentence in html(measured)
    assert "240 different images" in markdown(measured)
    assert Audit.from_json(measured.to_json()) == measured


def test_of_different_images_nothing_changes() -> None:
    known, unknown = compared(1), compared(1, digests=False)
    assert known.document.data.different_images == IMAGES
    assert unknown.document.data.different_images is None
    assert known.document.data.clusters is None
    assert known.document.runs == unknown.document.runs
    assert known.document.comparisons == unknown.document.comparisons
    assert known.warnings == unknown.warnings
    assert known.document.data.hash == unknown.document.data.hash


def test_small_groups_are_those_of_few_different_images() -> None:
    truth, places, before, _ = (column[:40] * TIMES for column in answers())
    contents = [f"image {i % 40}" for i in range(len(truth))]
    with pytest.warns(match=r"Fewer than 30 images.*cat / indoors \(n = 10\)"):
        audit(truth, before, places, digests=contents)


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_few_different_images_have_figures_without_intervals() -> None:
    truth, places, before, after = (column[:8] * 20 for column in answers())
    contents = [f"image {i % 8}" for i in range(len(truth))]
    runs = (("before", before), ("after", after))
    measured = compare(
        audit(truth, run, places, name=name, digests=contents) for name, run in runs
    )
    assert any("8 different images" in warning for warning in measured.warnings)
    accuracy = measured.estimate("accuracy", "after")
    assert 0 < float(accuracy) < 1
    assert accuracy.low is None
    assert "only 8 different images" in str(accuracy.reason)
    for metric in COMPARED_METRICS[:10]:
        assert measured.difference(metric.name, "after").low is None
    assert "8 different images" in html(measured)


def test_named_clusters_and_images_are_joined() -> None:
    persons = np.array([0, 0, 1, 2, 3])
    contents = np.array(
        [0, 1, 2, 2, 3]
    )  # the third and the fourth row are the same image
    assert join_clusters(persons, contents).tolist() == [0, 0, 1, 1, 2]  # type: ignore[union-attr]
    assert join_clusters(None, np.arange(5)) is None
    persons_of_rows = [i // 2 for i in range(IMAGES)] * TIMES
    measured = compared(TIMES, clusters=persons_of_rows)
    assert measured.document.data.clusters == IMAGES // 2
    assert measured.document.data.different_images == IMAGES


def test_answers_alone_follow_a_run_that_knows_its_images() -> None:
    truth, places, before, after = (column * TIMES for column in answers())
    contents = [f"image {i % IMAGES}" for i in range(len(truth))]
    known = audit(truth, after, places, name="after", digests=contents)
    alone = audit(truth, before, places, name="before")
    both = compare([alone, known]).document
    assert both.data.clusters == IMAGES
    first = audit(truth, before, places, name="before", digests=contents).document
    assert both.runs == (*first.runs, *known.document.runs)


def vectors(
    seed: int = 0,
) -> tuple[FairTPTClassifier, np.ndarray[Any, Any], list[str], list[str]]:
    """Sixty vectors of two classes in two groups, and a classifier of such vectors."""
    generator = np.random.default_rng(seed)
    axes = np.eye(8, dtype=np.float32)
    prompts = {"a cat": axes[0], "a dog": axes[1], "a man": axes[2], "a woman": axes[3]}
    clf = FairTPTClassifier.from_features(
        prompts,
        targets=["cat", "dog"],
        sensitive=["man", "woman"],
        template="a {target}{sensitive}",
    )
    truth = np.arange(60) % 2
    group = np.arange(60) // 2 % 2
    noise = generator.standard_normal((60, 8), np.float32)
    rows = axes[truth] + 0.5 * axes[2 + group] + 0.7 * noise
    labels = np.array(["cat", "dog"])[truth].tolist()
    return clf, rows, labels, np.array(["man", "woman"])[group].tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("as_list", [False, True])
def test_a_classifier_knows_repeated_features(as_list: bool) -> None:
    clf, rows, labels, groups = vectors()
    repeated = Features(np.tile(rows, (20, 1)))
    images: Sequence[Any] = list(repeated) if as_list else repeated
    measured = clf.audit(images, labels * 20, groups * 20)
    assert measured.document.data.different_images == 60
    once = clf.audit(Features(rows), labels, groups)
    for metric in ("accuracy", "worst_group_accuracy", "typical_gap"):
        width_once = width_of(once.estimate(metric))
        assert width_of(measured.estimate(metric)) > 0.85 * width_once


@pytest.mark.filterwarnings("ignore")
def test_a_classifier_that_is_told_persons_joins_both() -> None:
    clf, rows, labels, groups = vectors()
    persons = [i // 3 for i in range(60)] * 2
    measured = clf.audit(
        Features(np.tile(rows, (2, 1))), labels * 2, groups * 2, clusters=persons
    )
    assert measured.document.data.clusters == 20
    assert measured.document.data.different_images == 60
