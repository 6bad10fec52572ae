"""UTKFace in the paper's main table, from a local copy: our figures beside the paper's.

Age and gender against race. The paper does not say who is old: the cut is an option.

    python examples/utkface.py DATA --model openai/clip-vit-large-patch14
"""

import argparse
import sys

from fair_tta.lab.bench import run_table
from fair_tta.lab.data import AgeCut

parser = argparse.ArgumentParser(description="UTKFace in the paper's main table.")
parser.add_argument("data", help="folder of UTKFace, or of several datasets")
parser.add_argument("--table", choices=["main-L14", "main-B32"], default="main-L14")
parser.add_argument("--model", default="openai/clip-vit-large-patch14")
parser.add_argument("--images", type=int, default=1000, help="for each seed")
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--views", type=int, default=64)
parser.add_argument("--young-below", type=int, default=40)
parser.add_argument("--out", default="bench/utkface")
options = vars(parser.parse_args())
options["ages"] = AgeCut(options.pop("young_below"))

print(run_table(datasets=["UTKFace"], say=lambda text: print(text, file=sys.stderr), **options))
