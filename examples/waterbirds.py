"""Waterbirds in the paper's main table, from a local copy: our figures beside the paper's.

Bird type against background, on the test split.

    python examples/waterbirds.py DATA --model openai/clip-vit-large-patch14
"""

import argparse
import sys

from fair_tta.lab.bench import run_table

parser = argparse.ArgumentParser(description="Waterbirds in the paper's main table.")
parser.add_argument("data", help="folder of Waterbirds, or of several datasets")
parser.add_argument("--table", choices=["main-L14", "main-B32"], default="main-L14")
parser.add_argument("--model", default="openai/clip-vit-large-patch14")
parser.add_argument("--images", type=int, default=1000, help="for each seed")
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--views", type=int, default=64)
parser.add_argument("--out", default="bench/waterbirds")
options = vars(parser.parse_args())

print(run_table(datasets=["Waterbirds"], say=lambda text: print(text, file=sys.stderr), **options))
