"""Write the golden files from version 0.2: ``python tests/golden/write.py``.

They are not to be written again: they say what version 0.2 answered. Commit a542875 wrote them on
one thread (OMP_NUM_THREADS=1). Images are those whose answer is clear for every method.
"""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any

import golden_cases as cases
import torch
from fits import save

import fair_tta

IMAGES, MARGIN, ROWS = 4, 0.02, 24
NOT_METHODS = {"Adapter", "AdaptsPixels", "Chained"}


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
    """Every method on every world, and fitted methods of some."""
    golden: dict[str, Any] = {}
    cases.FITTED.mkdir(exist_ok=True)
    for name in cases.WORLDS:
        of = cases.world(name)
        places = clear_places(of)
        assert len(places) == IMAGES, (name, places)
        answers = {m: [*map(cases.plain, of.predict(m, places))] for m in cases.METHODS}
        fitted = cases.fit_all(of)
        objective = cases.clustering_objective(of, fitted["UMFC"])
        golden[name] = {"places": places, "umfc_objective": objective, "methods": answers}
        if name in cases.FITTED_WORLDS:
            for method, one in fitted.items():
                save(one, cases.saved(name, method))
    text = json.dumps(golden, separators=(",", ":")).replace('"methods":{', '"methods":{\n')
    cases.PREDICTIONS.write_text(text.replace("]]],", "]]],\n") + "\n", "utf-8")


def write_runs() -> None:
    """The figures of the fixed runs, and rows as a run that was stopped leaves them."""
    cases.RUN.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        for path in cases.run_all(Path(folder)):
            copy(path, cases.RUN / path.name)
        rows = (Path(folder) / "audit" / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (cases.RUN / "rows.jsonl").write_bytes(b"".join(rows[:ROWS]))


if __name__ == "__main__":
    assert fair_tta.__version__ == "0.2.0", "golden files are those of version 0.2"
    methods = {n for n in fair_tta.__all__ if hasattr(getattr(fair_tta, n), "adapt")}
    assert methods - NOT_METHODS == {type(m).__name__ for m in cases.METHODS.values()} - NOT_METHODS
    torch.set_num_threads(1)
    write_predictions()
    write_runs()
