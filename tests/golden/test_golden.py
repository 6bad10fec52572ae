"""Answers are those that `write.py` wrote.

Probabilities agree to 1e-4 on any processor; with ``FAIR_TTA_GOLDEN_EXACT=1``, on the machine that
wrote the file, to 1e-6.
"""

from __future__ import annotations

import json
import os
from typing import Any

import cv2
import golden_cases as cases
import pytest

EXACT = bool(os.environ.get("FAIR_TTA_GOLDEN_EXACT"))
TOLERANCE = 1e-6 if EXACT else 1e-4
SAME_VIEWS = cv2.__version__ >= "5"  # older ones round warped pixels otherwise
GOLDEN: dict[str, Any] = json.loads(cases.PREDICTIONS.read_text("utf-8"))


def check(name: str, method: str, predictions: list[Any]) -> None:
    needs = cases.METHODS[method].needs
    if not SAME_VIEWS and (needs.views or needs.pixels):
        pytest.skip("views of OpenCV 5 are compared")
    for found, golden in zip(predictions, GOLDEN[name]["methods"][method], strict=True):
        label, *numbers = cases.plain(found)
        assert label == golden[0]
        for some, expected in zip(numbers, golden[1:], strict=True):
            assert some == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("method", [m for m in cases.METHODS if m != "UMFC"])
@pytest.mark.parametrize("name", cases.WORLDS)
def test_predictions_are_those_on_record(name: str, method: str) -> None:
    check(name, method, cases.world(name).predict(method, GOLDEN[name]["places"]))


@pytest.mark.parametrize("name", cases.WORLDS)
def test_clusters_of_umfc_are_no_worse(name: str) -> None:
    of = cases.world(name)
    found = cases.clustering_objective(of, of.fitted(cases.METHODS["UMFC"]))
    assert found <= GOLDEN[name]["umfc_objective"] * (1 + 1e-6)
