"""Write the golden file: ``OMP_NUM_THREADS=1 python tests/golden/write.py``.

It says what was answered before code moved, so it is written again only where an answer is to
change. Images are those whose answer is clear for every method.
"""

from __future__ import annotations

import json
from typing import Any

import golden_cases as cases
import torch

IMAGES, MARGIN = 4, 0.02


def clear_places(of: cases.World) -> list[int]:
    """The first images with two best classes apart for every method, and values for zero-shot."""
    places = range(len(of.images))
    clear = set(places)
    for name in cases.METHODS:
        for place, prediction in zip(places, of.predict(name, places), strict=True):
            for of_one in (prediction.probabilities, *prediction.sensitive_zero_shot.values()):
                second, best = sorted(of_one.values())[-2:]
                clear -= {place} if best - second < MARGIN else set()
    return sorted(clear)[:IMAGES]


def write_predictions() -> None:
    """Every method on every world."""
    golden: dict[str, Any] = {}
    for name in cases.WORLDS:
        of = cases.world(name)
        places = clear_places(of)
        assert len(places) == IMAGES, (name, places)
        answers = {m: [*map(cases.plain, of.predict(m, places))] for m in cases.METHODS}
        fitted = of.fitted(cases.METHODS["UMFC"])
        objective = cases.clustering_objective(of, fitted)
        golden[name] = {"places": places, "umfc_objective": objective, "methods": answers}
    text = json.dumps(golden, separators=(",", ":")).replace('"methods":{', '"methods":{\n')
    cases.PREDICTIONS.write_text(text.replace("]]],", "]]],\n") + "\n", "utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    write_predictions()
