"""Your own images: a folder, a CSV file with labels, and the methods side by side.

    python examples/own_folder.py IMAGES LABELS.csv --model openai/clip-vit-base-patch32

The file has the columns path, animal and place. Change names and template to yours.
"""

import argparse
import sys

from fair_tta import FairTPT, FairTPTMO, Zero, ZeroShot
from fair_tta.lab.bench import Grid, Setting, Table, run_table
from fair_tta.lab.data import BenchmarkTask, Dataset, read_folder

TASK = BenchmarkTask(
    dataset="pets",
    target="animal",
    targets={"cat": "cat", "dog": "dog"},
    sensitive={"place": {"indoors": "in a house", "outdoors": "outdoors"}},
    template="a photo of a {target} {sensitive}.",
)
SETTINGS = (
    Setting("ZeroShot", ZeroShot()),
    Setting("Zero", Zero()),
    Setting("FairTPT", FairTPT()),
    Setting("MO", FairTPTMO()),
)

if __name__ == "__main__":  # worker processes, if there are any, load this file too
    parser = argparse.ArgumentParser(description="Methods side by side on your own images.")
    parser.add_argument("images", help="folder of images")
    parser.add_argument("labels", help="CSV file with the columns path, animal and place")
    parser.add_argument("--model", default="openai/clip-vit-base-patch32")
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--out", default="bench/own")
    options = parser.parse_args()

    def read(task: BenchmarkTask) -> Dataset:
        return read_folder(
            options.images,
            options.labels,
            target_column=task.target,
            sensitive_columns=[*task.sensitive],
            task=task,
        )

    found = run_table(
        Table(Grid("own", "", SETTINGS, (TASK,)), read),
        model=options.model,
        out=options.out,
        images=1_000_000,  # all of them
        seeds=1,
        views=options.views,
        say=lambda text: print(text, file=sys.stderr),
    )
    print(found)
    print(f"Rows, tables and a report are in {options.out}.")
