"""Write the golden files again, on one thread: ``OMP_NUM_THREADS=1 python tests/golden/write.py``.

Do so only for a change on purpose, after the literal oracles have passed, and name it in the
changelog. Images are those whose answer is clear for every method.
"""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any

import golden_cases as cases
import torch

IMAGES = 4
MARGIN = 0.02
"""By how much the two best classes are apart in every golden answer: no processor turns it."""


def clear_places(world: cases.World) -> list[int]:
    """Return the first images with a clear answer of every method, and clear values."""
    indices = range(len(world.images))
    clear = set(indices)
    for name in cases.METHODS:
        for index, prediction in zip(
            indices, world.predict(name, indices), strict=True
        ):
            for shares in (
                prediction.probabilities,
                *prediction.sensitive_zero_shot.values(),
            ):
                second, best = sorted(shares.values())[-2:]
                if best - second < MARGIN:
                    clear.discard(index)
    return sorted(clear)[:IMAGES]


def write_predictions() -> None:
    """Write the answers of every method on every world."""
    golden: dict[str, Any] = {}
    for name in cases.WORLDS:
        world = cases.world(name)
        indices = clear_places(world)
        assert len(indices) == IMAGES, (name, indices)
        answers = {
            m: [*map(cases.plain, world.predict(m, indices))] for m in cases.METHODS
        }
        clusters = world.fitted(cases.METHODS["UMFC"])
        objective = cases.clustering_objective(world, clusters)
        golden[name] = {
            "places": indices,
            "umfc_objective": objective,
            "methods": answers,
        }
    text = json.dumps(golden, separators=(",", ":")).replace(
        '"methods":{', '"methods":{\n'
    )
    cases.PREDICTIONS.write_text(text.replace("]]],", "]]],\n") + "\n", "utf-8")


def write_runs() -> None:
    """Write the figures of the fixed runs."""
    cases.RUNS.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        for path in cases.run_all(Path(folder)):
            copy(path, cases.RUNS / f"{path.parent.name}.json")


if __name__ == "__main__":
    torch.set_num_threads(1)
    write_predictions()
    write_runs()
