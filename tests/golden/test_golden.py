"""Answers and figures are those that `write.py` wrote.

Labels are equal and probabilities agree to 1e-4 on any processor, those of methods with `ELRA` to
what a step that long amplifies; with ``FAIR_TTA_GOLDEN_EXACT=1``, on the machine that wrote the
files, all to 1e-6 and figures to the printed digit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import golden_cases as cases
import pytest

EXACT = bool(os.environ.get("FAIR_TTA_GOLDEN_EXACT"))
TOLERANCE = 1e-6 if EXACT else 1e-4
HAS_SAME_VIEWS = cv2.__version__ >= "5"  # older ones round warped pixels otherwise
needs_same_views = pytest.mark.skipif(
    not HAS_SAME_VIEWS, reason="views of OpenCV 5 are compared"
)
GOLDEN: dict[str, Any] = json.loads(cases.PREDICTIONS.read_text("utf-8"))
PROSE = {"notice", "reason", "repr", "warnings"}
OF_THE_DAY = {"cost", "fair_tta", "hash", "provenance", "schema", "sha256"}
UNBOUNDED_STEP = 2.0
"""Relative steps up to this are promised to 1e-4."""


@pytest.mark.parametrize("method", [m for m in cases.METHODS if m != "UMFC"])
@pytest.mark.parametrize("name", cases.WORLDS)
def test_predictions_are_the_golden_ones(name: str, method: str) -> None:
    needs = cases.METHODS[method].needs
    if not HAS_SAME_VIEWS and (needs.views or needs.pixels):
        pytest.skip("views of OpenCV 5 are compared")
    predictions = cases.world(name).predict(method, GOLDEN[name]["places"])
    for prediction, golden in zip(
        predictions, GOLDEN[name]["methods"][method], strict=True
    ):
        label, *numbers = cases.plain(prediction)
        assert label == golden[0]
        tolerance = TOLERANCE
        if not EXACT and (prediction.relative_step or 0.0) > UNBOUNDED_STEP:
            tolerance = 1e-2
        for shares, expected in zip(numbers, golden[1:], strict=True):
            assert shares == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("name", cases.WORLDS)
def test_clusters_of_umfc_are_no_worse(name: str) -> None:
    world = cases.world(name)
    objective = cases.clustering_objective(world, world.fitted(cases.METHODS["UMFC"]))
    assert objective <= GOLDEN[name]["umfc_objective"] * (1 + 1e-6)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = cases.run_all(tmp_path_factory.mktemp("golden"))
    return {path.parent.name: path for path in paths}


def differences(golden: Any, figures: Any, location: str = "") -> Iterator[str]:
    """Yield where figures are not the same; keys that golden files lack are not compared."""
    if isinstance(golden, dict) and isinstance(figures, dict):
        for key in golden.keys() - PROSE - OF_THE_DAY:
            yield from differences(golden[key], figures.get(key), f"{location}.{key}")
    elif (
        isinstance(golden, list)
        and isinstance(figures, list)
        and len(golden) == len(figures)
    ):
        for i, (expected, figure) in enumerate(zip(golden, figures, strict=True)):
            yield from differences(expected, figure, f"{location}[{i}]")
    elif not is_equal(golden, figures):
        yield f"{location}: {golden} in the golden file, now {figures}"


def is_equal(golden: Any, figure: Any) -> bool:
    are_numbers = all(
        isinstance(x, float | int) and not isinstance(x, bool) for x in (golden, figure)
    )
    if not are_numbers or (EXACT and isinstance(golden, int)):
        return bool(golden == figure)
    if EXACT and f"{100 * golden:.1f}" != f"{100 * figure:.1f}":
        return False
    # Numbers of images to label are rounded up; relative steps have no upper bound.
    relative = 1e-3 if isinstance(golden, int) else TOLERANCE
    return bool(figure == pytest.approx(golden, abs=TOLERANCE, rel=relative))


@needs_same_views
@pytest.mark.parametrize("run", ["audit", "examine", "mitigate"])
def test_figures_are_the_golden_ones(run: str, runs: dict[str, Path]) -> None:
    golden = json.loads((cases.RUNS / f"{run}.json").read_text("utf-8"))
    figures = json.loads(runs[run].read_text("utf-8"))
    assert not list(differences(golden, figures))
