"""UTKFace from a local copy: methods of the paper side by side, group by group.

Age and gender against race. The paper does not say who is old: the cut is an option.

    python examples/utkface.py DATA --model openai/clip-vit-base-patch32

`benchmarks/paper` has the paper's tables, with its figures beside ours.
"""

import argparse

from fair_tta import (
    FairTPT,
    FairTPTClassifier,
    Features,
    OrthCali,
    Zero,
    ZeroShot,
    audit,
    compare,
)
from fair_tta.datasets import BenchmarkTask, read_dataset
from fair_tta.extend import AugMix

parser = argparse.ArgumentParser(description="Methods of the paper on UTKFace.")
parser.add_argument("data", help="folder of UTKFace, or of several datasets")
parser.add_argument("--model", default="openai/clip-vit-base-patch32")
parser.add_argument("--images", type=int, default=1000)
parser.add_argument("--views", type=int, default=64)
parser.add_argument("--young-below", type=int, default=40)
options = parser.parse_args()

for target, attribute in (("age", "race"), ("gender", "race")):
    task = BenchmarkTask.find("UTKFace", target, attribute)
    faces = read_dataset(task, options.data, young_below=options.young_below)
    images = faces.sample(options.images)
    clf = FairTPTClassifier(
        options.model, **task.arguments(), views=AugMix(options.views)
    )
    features = clf.encode([record.path for record in images])  # once for all methods
    audits = []
    for adapter in (ZeroShot(), Zero(), OrthCali(), FairTPT()):
        answers = clf.with_adapter(adapter).predict(Features(features))
        measured = audit(
            [record.target for record in images],
            answers,
            {attribute: [record.sensitive[attribute] for record in images]},
            name=type(adapter).__name__,
        )
        audits.append(measured)
    print(task, compare(audits), sep="\n")
