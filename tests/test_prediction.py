from __future__ import annotations

from fair_tta import Prediction

FOUND = Prediction(
    label="<cat>",
    probabilities={"<cat>": 0.75, "dog": 0.25},
    zero_shot={"<cat>": 0.25, "dog": 0.75},
    sensitive={"place": {"in & out": 0.123456, "out": 0.876544}},
    sensitive_zero_shot={"place": {"in & out": 0.5, "out": 0.5}},
    entropy=0.8,
    entropy_zero_shot=0.8,
    sensitive_entropy={"place": 0.5},
    sensitive_entropy_zero_shot={"place": 1.0},
    distance=0.5,
    flip_margin=0.25,
    certified_unchanged=False,
    warnings=("a <step> was bounded",),
)


def test_repr_is_short() -> None:
    assert repr(FOUND) == "Prediction('<cat>', 0.750; zero-shot 'dog', 0.750)"


def test_html_has_bars_and_is_escaped() -> None:
    text = FOUND._repr_html_()
    assert "<cat>" not in text
    assert "&lt;cat&gt;</strong> (changed)" in text
    assert "in &amp; out" in text
    assert "0.123<" in text
    assert "0.1235" not in text
    assert "width:75px" in text
    assert "a &lt;step&gt; was bounded" in text


def test_the_best_scores() -> None:
    every = [{"score": 0.75, "label": "<cat>"}, {"score": 0.25, "label": "dog"}]
    assert FOUND.to_dict() == FOUND.to_dict(top_k=5) == every
    assert FOUND.to_dict(top_k=1) == every[:1]
