"""CelebA in the paper's main table, from a local copy: our figures beside the paper's.

Hair color and smiling against gender, on the test split. *Dark* hair means not blond.

    python examples/celeba.py DATA --model openai/clip-vit-large-patch14
"""

import argparse
import sys

from fair_tta.lab.bench import run_table

parser = argparse.ArgumentParser(description="CelebA in the paper's main table.")
parser.add_argument("data", help="folder of CelebA, or of several datasets")
parser.add_argument("--table", choices=["main-L14", "main-B32"], default="main-L14")
parser.add_argument("--model", default="openai/clip-vit-large-patch14")
parser.add_argument("--images", type=int, default=1000, help="for each seed")
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--views", type=int, default=64)
parser.add_argument("--out", default="bench/celeba")
options = vars(parser.parse_args())

print(run_table(datasets=["CelebA"], say=lambda text: print(text, file=sys.stderr), **options))
