from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fair_tta import Prediction
from fair_tta.prediction import Predictions

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
    scores = [{"score": 0.75, "label": "<cat>"}, {"score": 0.25, "label": "dog"}]
    assert FOUND.to_dict() == FOUND.to_dict(top_k=5) == scores
    assert FOUND.to_dict(top_k=1) == scores[:1]


OTHER = replace(FOUND, label="dog", probabilities={"dog": 0.875, "<cat>": 0.125})


def test_predictions_are_a_sequence_that_does_not_change() -> None:
    predictions = Predictions([FOUND, OTHER, FOUND])
    assert len(predictions) == 3
    assert list(predictions) == [FOUND, OTHER, FOUND] == predictions
    assert predictions[1] is predictions[-2] is OTHER
    assert isinstance(predictions[1:], Predictions)
    assert predictions[1:] == predictions[-2:] == [OTHER, FOUND] != predictions
    assert OTHER in predictions
    assert predictions.index(OTHER) == 1
    assert predictions == pickle.loads(pickle.dumps(predictions))
    assert predictions != "text"
    changing: Any = predictions
    with pytest.raises(TypeError, match="does not support item assignment"):
        changing[0] = OTHER
    with pytest.raises(AttributeError):
        changing.labels = []
    assert repr(predictions[:1]) == f"Predictions([{FOUND!r}])"
    assert repr(Predictions([FOUND] * 20)).endswith("... 15 more])")


def test_labels_and_probabilities_are_in_the_order_of_targets() -> None:
    predictions = Predictions([FOUND, OTHER])
    assert predictions.labels == ["<cat>", "dog"]
    assert predictions.probabilities.tolist() == [[0.75, 0.25], [0.125, 0.875]]
    named = Predictions([FOUND, OTHER], ["dog", "<cat>"])
    assert named[1:].probabilities.tolist() == [[0.875, 0.125]]
    assert Predictions([], ["dog", "<cat>"]).probabilities.shape == (0, 2)
    assert Predictions([]).labels == []


def test_an_image_that_could_not_be_read_keeps_its_place() -> None:
    rows: Any = [None, FOUND]
    predictions = Predictions(rows)
    assert predictions.labels == [None, "<cat>"]
    assert np.isnan(predictions.probabilities[0]).all()
    assert predictions.probabilities[1].tolist() == [0.75, 0.25]
    pytest.importorskip("pandas")
    frame = predictions.to_dataframe()
    assert frame["label"].isna().tolist() == [True, False]
    assert frame["probabilities: dog"][1] == 0.25
