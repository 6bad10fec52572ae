"""What is not a column of one value per image is refused, and not read as something else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fair_tta import FairTTAError, audit, metrics

pd = pytest.importorskip("pandas")

LABELS = ["cat", "dog"] * 40
ANSWERS = ["cat"] * 80
PLACES = ["in"] * 40 + ["out"] * 40


def test_tables_and_sets_are_no_columns() -> None:
    labels = pd.DataFrame({"label": LABELS})
    answers = pd.DataFrame({"label": ANSWERS})
    doors: list[Callable[[], object]] = [
        lambda: metrics.accuracy(labels, answers),
        lambda: metrics.accuracy(LABELS, answers),
        lambda: audit(labels, answers, PLACES),
        lambda: audit(LABELS, ANSWERS, {"place": labels}),
        lambda: audit(LABELS, ANSWERS, PLACES, clusters=labels),
        lambda: metrics.MetricStream().update(labels, answers, ["in"]),
        lambda: metrics.harm_rate(answers, ["in"], ["label"]),
    ]
    for door in doors:
        with pytest.raises(
            FairTTAError, match=r"should be one column .* frame\['label'\]"
        ):
            door()
    with pytest.raises(
        FairTTAError, match="`y_true` should be a sequence, in the order"
    ):
        metrics.accuracy({"cat", "dog"}, ["cat", "dog"])
    assert metrics.accuracy(labels["label"], answers["label"]).value == 0.5


def test_attributes_of_one_name_are_refused() -> None:
    for names in ([1, "1"], ["a", "a"]):
        sensitive = pd.DataFrame([["x", "y"]] * 80, columns=names)
        with pytest.raises(
            FairTTAError, match="columns of `sensitive` should have distinct names"
        ):
            audit(LABELS, ANSWERS, sensitive)


@pytest.mark.parametrize("text", ["nan", "<NA>"])
def test_the_text_of_a_missing_value_is_missing(text: str) -> None:
    with pytest.raises(FairTTAError, match=r"no missing values \(row 3\)"):
        audit(LABELS, ANSWERS, [*PLACES[:3], text, *PLACES[4:]])
    with pytest.raises(FairTTAError, match=r"no missing values \(row 3\)"):
        metrics.accuracy([*LABELS[:3], text, *LABELS[4:]], ANSWERS)
    # an image without a person is a cluster of its own
    alone = [f"{i // 2}" for i in range(76)] + [text] * 4
    expected = [f"{i // 2}" for i in range(76)] + [None] * 4
    found = metrics.accuracy(LABELS, ANSWERS, clusters=alone)
    assert found == metrics.accuracy(LABELS, ANSWERS, clusters=expected)


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_none_and_a_dash_as_text_are_names() -> None:
    found = audit(LABELS, ANSWERS, ["-", "-", "None", "None"] * 20)
    assert found.document.data.sensitive == {"sensitive": ("-", "None")}
