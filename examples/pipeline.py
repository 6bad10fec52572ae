"""Swap a transformers zero-shot pipeline for fair-tta in place: the same call, the same result.

The embedded model stands in for yours; any model of `pipeline` will do.
"""

from collections.abc import Callable
from typing import Any

from transformers import pipeline

from fair_tta import FairPipeline
from fair_tta.miniature import BIRDS, FOLDER

LABELS = ["of a water bird", "of a land bird"]


def report(classify: Callable[..., Any], images: list[Any]) -> list[Any]:
    """Code that exists already and stays as it is."""
    answers: list[Any] = classify(
        images, candidate_labels=LABELS, hypothesis_template="This is a picture {}."
    )
    for answer in answers:
        print(
            "  ",
            ", ".join(f"{entry['label']} {entry['score']:.3f}" for entry in answer),
        )
    return answers


classify = pipeline("zero-shot-image-classification", model=str(FOLDER))
drawn = BIRDS.draw(4, seed=3)
images = [p.image for p in drawn]

print("pipeline")
before = report(classify, images)
print("fair-tta, in its place")
after = report(FairPipeline(classify, ["on water", "on land"]), images)
print("truth")
for p in drawn:
    print("  ", p.target, "on", p.sensitive["background"])
