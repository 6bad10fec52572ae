"""FairFace in the paper's main table, from a local copy: our figures beside the paper's.

Gender against race, on the validation split: the test split is not public.

    python examples/fairface.py DATA --model openai/clip-vit-large-patch14
"""

import argparse
import sys
from dataclasses import replace

from fair_tta import AugMix
from fair_tta.lab.bench._grids import GRIDS
from fair_tta.lab.bench._samples import paper_reader
from fair_tta.lab.bench._tables import bench, legend, tables_by_task

parser = argparse.ArgumentParser(description="FairFace in the paper's main table.")
parser.add_argument("data", help="folder of FairFace, or of several datasets")
parser.add_argument("--table", choices=["main-L14", "main-B32"], default="main-L14")
parser.add_argument("--model", default="openai/clip-vit-large-patch14")
parser.add_argument("--images", type=int, default=1000, help="for each seed")
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--views", type=int, default=64)
parser.add_argument("--out", default="bench/fairface")
options = parser.parse_args()

whole = GRIDS[options.table]
grid = replace(whole, tasks=tuple(task for task in whole.tasks if task.dataset == "FairFace"))
found = bench(
    grid,
    paper_reader(options.data),
    options.model,
    out=options.out,
    images=options.images,
    seeds=options.seeds,
    views=AugMix(options.views),
    say=lambda text: print(text, file=sys.stderr),
)
for table in tables_by_task(found.figures):
    print(f"\n{table.title}")
    for row in (table.header, *table.rows):
        print(" | ".join(row))
print(f"\n{legend(found.figures)}")
