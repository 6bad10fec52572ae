from __future__ import annotations

from pathlib import Path

import pytest

from fair_tta import audit, compare
from fair_tta.auditing import Audit

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
TRUTH, PLACE = ["cat", "dog"] * 50, ["in <b>", "in <b>", "out", "out"] * 25


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    path = tmp_path_factory.mktemp("audit") / "audit.json"
    answers = {"a_b & c": ["cat"] * 100, "<i>": TRUTH}
    runs = [audit(TRUTH, said, PLACE, name=name) for name, said in answers.items()]
    compare(runs).save(path)
    return Audit.load(path)


def test_a_frame_has_every_figure_and_group(loaded: Audit) -> None:
    pytest.importorskip("pandas")
    frame = loaded.to_frame()
    assert list(frame.columns) == [
        "run",
        "figure",
        "target",
        "sensitive: sensitive",
        "value",
        "low",
        "high",
        "n",
    ]
    groups = frame[(frame.figure == "group_accuracy") & (frame.run == "a_b & c")]
    found = {(row[2], row[3]): row[4] for row in groups.itertuples(index=False)}
    assert found == {
        ("cat", "in <b>"): 1, ("cat", "out"): 1, ("dog", "in <b>"): 0, ("dog", "out"): 0,
    }  # fmt: skip
    accuracy = frame[(frame.figure == "accuracy") & (frame.run == "<i>")]
    assert accuracy.value.tolist() == [1.0]


@pytest.mark.parametrize("attribute", ["target", "n", "value", "run"])
def test_an_attribute_does_not_take_the_place_of_a_figure(attribute: str) -> None:
    pytest.importorskip("pandas")
    frame = audit(TRUTH, TRUTH, {attribute: PLACE}).to_frame()
    last = frame.iloc[-1]
    assert last[["run", "target", "value", "n"]].tolist() == [
        "predictions",
        "dog",
        1.0,
        25,
    ]
    assert last[f"sensitive: {attribute}"] == "out"


def test_names_are_not_formulas(tmp_path: Path) -> None:
    odd = {"cat": "$a_$", "dog": r"$\foo$"}
    truth = [odd[name] for name in TRUTH]
    axes = audit(truth, truth, PLACE, name="$x^{$").plot()
    figure = axes.get_figure()
    assert figure is not None
    figure.savefig(tmp_path / "groups.png")  # type: ignore[union-attr]


def test_a_picture_has_a_dot_for_each_group(loaded: Audit, tmp_path: Path) -> None:
    axes = loaded.plot()
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert sorted(names) == ["cat / in <b>", "cat / out", "dog / in <b>", "dog / out"]
    assert names[0].startswith("dog")
    assert loaded.plot("<i>", axes) is axes
    figure = axes.get_figure()
    assert figure is not None
    figure.savefig(tmp_path / "groups.png")  # type: ignore[union-attr]
    assert (tmp_path / "groups.png").stat().st_size > 1000


def test_latex_is_escaped(loaded: Audit) -> None:
    text = loaded.to_latex()
    assert r"a\_b \& c & 50.0 [" in text
    assert text.count(r"\\") == 5


def test_latex_has_differences(loaded: Audit) -> None:
    *_, below = loaded.to_latex().split(r"\midrule")
    (comparison,) = loaded.document.comparisons
    title, row, *_ = below.strip().splitlines()
    assert (
        title == r"\multicolumn{6}{l}{Difference from a\_b \& c, on the same images} \\"
    )
    shown = comparison.adjusted.accuracy.to_text("+").replace("%", "")
    assert row.startswith(f"{comparison.run} & {shown} & ")
    assert row.count("&") == 5


def test_html_is_escaped(loaded: Audit) -> None:
    text = loaded._repr_html_()
    assert "<i>" not in text
    assert "&lt;i&gt;" in text
    assert "100 images" in text
