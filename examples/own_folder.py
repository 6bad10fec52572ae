"""Your own images: a folder, a CSV file with labels, and the methods side by side.

    python examples/own_folder.py IMAGES LABELS.csv --model openai/clip-vit-base-patch32

The file has the columns path, animal and place. Change names and template to yours.
"""

import argparse

from fair_tta import (
    FairTPT,
    FairTPTClassifier,
    FairTPTMO,
    Features,
    Zero,
    ZeroShot,
    audit,
    compare,
)
from fair_tta.datasets import read_folder
from fair_tta.extend import AugMix

TARGETS = {"cat": "cat", "dog": "dog"}
PLACES = {"indoors": "in a house", "outdoors": "outdoors"}
TEMPLATE = "a photo of a {target} {sensitive}."

parser = argparse.ArgumentParser(description="Methods side by side on your own images.")
parser.add_argument("images", help="folder of images")
parser.add_argument("labels", help="CSV file with the columns path, animal and place")
parser.add_argument("--model", default="openai/clip-vit-base-patch32")
parser.add_argument("--views", type=int, default=64)
options = parser.parse_args()

images = read_folder(
    options.images, options.labels, target_column="animal", sensitive_columns=["place"]
)
clf = FairTPTClassifier(
    options.model, TARGETS, {"place": PLACES}, TEMPLATE, views=AugMix(options.views)
)
features = clf.encode([record.path for record in images])  # once for all methods
audits = []
for adapter in (ZeroShot(), Zero(), FairTPT(), FairTPTMO()):
    answers = clf.with_adapter(adapter).predict(Features(features))
    measured = audit(
        [record.target for record in images],
        answers,
        {"place": [record.sensitive["place"] for record in images]},
        name=type(adapter).__name__,
    )
    audits.append(measured)
print(images.problems, compare(audits), sep="\n")
