"""`Audit`: equality, files, printed forms, data frames and plots."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from fair_tta import audit, compare, metrics
from fair_tta.auditing import Audit
from fair_tta.metrics import Bootstrap

TRUTH = ["cat", "dog"] * 50
PLACE = ["in <b>", "in <b>", "out", "out"] * 25
BEFORE = ["cat"] * 100

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")


def compare_runs() -> Audit:
    answers = {"a_b & c": BEFORE, "<i>": TRUTH}
    runs = []
    for name, answers_of_run in answers.items():
        runs.append(audit(TRUTH, answers_of_run, PLACE, name=name, seconds=2.0))
    return compare(runs)


@pytest.fixture(scope="module")
def compared() -> Audit:
    return compare_runs()


@pytest.fixture(scope="module")
def loaded(compared: Audit, tmp_path_factory: pytest.TempPathFactory) -> Audit:
    path = tmp_path_factory.mktemp("audit") / "audit.json"
    compared.save(path)
    return Audit.load(path)


def test_it_round_trips(compared: Audit, loaded: Audit, tmp_path: Path) -> None:
    assert loaded == compared
    assert loaded.to_json() == compared.to_json()
    assert hash(loaded) == hash(compared)
    assert pickle.loads(pickle.dumps(compared)) == compared
    assert repr(loaded) == "Audit(runs=['a_b & c', '<i>'], n=100)"
    odds = loaded.estimate("equalized_odds_difference", "<i>")
    assert odds == compared.estimate("equalized_odds_difference", "<i>")
    loaded.save(tmp_path / "again.json")
    assert (
        json.loads((tmp_path / "again.json").read_text("utf-8")) == compared.to_dict()
    )


def test_equality_ignores_time_and_cost(compared: Audit) -> None:
    document = compared.to_dict()
    document["provenance"]["time"] = "2000-01-01T00:00:00+00:00"
    document["runs"][0]["cost"] = None
    assert Audit.from_dict(document) == compared == compare_runs()
    document["runs"][0]["groups"][0]["correct"] -= 1
    assert Audit.from_dict(document) != compared
    assert compared != "an audit"
    seeded = audit(TRUTH, BEFORE, PLACE, interval=Bootstrap(seed=1))
    assert seeded != audit(TRUTH, BEFORE, PLACE)


def test_the_document_cannot_be_changed(compared: Audit) -> None:
    before = copy.deepcopy(compared.to_dict())
    compared.to_dict()["runs"].clear()
    with pytest.raises(AttributeError):
        compared.document.runs = ()  # type: ignore[misc]
    assert compared.to_dict() == before


def test_it_prints_its_metrics(compared: Audit) -> None:
    text = str(compared)
    assert "100 images" in text
    assert "worst_group_accuracy" in text
    assert f"{compared.estimate('accuracy').value:.1%}" in text
    assert "a gap needs two groups" in str(audit(["a"], ["a"], ["s"]))


def test_frames_of_images() -> None:
    pytest.importorskip("fairlearn")
    compared = compare_runs()
    frame = compared.to_dataframe()
    columns = ["y_true", "sensitive: sensitive", "y_pred: a_b & c", "y_pred: <i>"]
    assert list(frame) == columns
    assert frame["y_pred: <i>"].tolist() == TRUTH
    by_group = compared.to_metric_frame().by_group
    for group, estimate in metrics.group_accuracy(TRUTH, BEFORE, PLACE).items():
        assert by_group["accuracy"][group] == pytest.approx(estimate.value)
        assert by_group["count"][group] == estimate.n
    cats: Any = {"cats": lambda _, answers: (answers == "cat").mean()}
    assert compared.to_metric_frame("<i>", cats).overall["cats"] == 0.5


def test_a_frame_has_every_figure_and_group(loaded: Audit) -> None:
    pytest.importorskip("pandas")
    frame = loaded.to_frame()
    names = ["run", "figure", "target", "sensitive: sensitive"]
    assert list(frame.columns) == [*names, "value", "low", "high", "n"]
    groups = frame[(frame.figure == "group_accuracy") & (frame.run == "a_b & c")]
    accuracies = {}
    for row in groups.itertuples(index=False):
        accuracies[row.target, row[3]] = row.value
    assert accuracies == {
        ("cat", "in <b>"): 1,
        ("cat", "out"): 1,
        ("dog", "in <b>"): 0,
        ("dog", "out"): 0,
    }
    accuracy = frame[(frame.figure == "accuracy") & (frame.run == "<i>")]
    assert accuracy.value.tolist() == [1.0]


@pytest.mark.parametrize("attribute", ["target", "n", "value", "run"])
def test_an_attribute_does_not_take_the_place_of_a_figure(attribute: str) -> None:
    pytest.importorskip("pandas")
    last = audit(TRUTH, TRUTH, {attribute: PLACE}).to_frame().iloc[-1]
    numbers = last[["run", "target", "value", "n"]].tolist()
    assert numbers == ["predictions", "dog", 1.0, 25]
    assert last[f"sensitive: {attribute}"] == "out"


def test_names_are_not_formulas(tmp_path: Path) -> None:
    odd = {"cat": "$a_$", "dog": r"$\foo$"}
    truth = [odd[name] for name in TRUTH]
    axes = audit(truth, truth, PLACE, name="$x^{$").plot()
    figure: Any = axes.get_figure()
    figure.savefig(tmp_path / "groups.png")


def test_a_plot_has_a_dot_for_each_group(loaded: Audit, tmp_path: Path) -> None:
    axes = loaded.plot()
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert sorted(names) == ["cat / in <b>", "cat / out", "dog / in <b>", "dog / out"]
    assert names[0].startswith("dog")
    assert loaded.plot("<i>", axes) is axes
    figure: Any = axes.get_figure()
    figure.savefig(tmp_path / "groups.png")
    assert (tmp_path / "groups.png").stat().st_size > 1000


def test_latex_is_escaped_and_has_differences(loaded: Audit) -> None:
    text = loaded.to_latex()
    assert r"a\_b \& c & 50.0 [" in text
    assert text.count(r"\\") == 5
    title, row, *_ = text.split(r"\midrule")[-1].strip().splitlines()
    below = r"Difference from a\_b \& c, on the same images"
    assert title == rf"\multicolumn{{6}}{{l}}{{{below}}} \\"
    (comparison,) = loaded.document.comparisons
    accuracy = comparison.adjusted.accuracy.to_text("+", "")
    assert row.startswith(f"{comparison.run} & {accuracy} & ")
    assert row.count("&") == 5


def test_html_is_escaped(loaded: Audit) -> None:
    text = loaded._repr_html_()
    assert "<i>" not in text
    assert "&lt;i&gt;" in text
    assert "100 images" in text
