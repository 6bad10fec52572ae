"""A table of the paper on a Ray cluster; without a cluster, on all cores of this machine.

    ray start --head                                       # on the first machine
    ray start --address=FIRST:6379                         # on every other one
    python examples/on_ray.py main-L14 DATA --address auto

--out and --bank should be on a disk that all machines share. The same command goes on after a stop.
"""

import argparse
import sys
from pathlib import Path

from fair_tta.lab.bench import OnRay, paper_tables, run_table


def progress(done: int, total: int) -> None:
    print(f"\r{done} of {total} answers", end="", file=sys.stderr, flush=True)


parser = argparse.ArgumentParser(description="A table of the paper on a Ray cluster.")
parser.add_argument("table", choices=paper_tables())
parser.add_argument("data", help="folder of the datasets")
parser.add_argument("--address", help="of the cluster; 'auto' finds the one this machine is in")
parser.add_argument("--workers", type=int, help="at most so many actors")
parser.add_argument("--model", default="openai/clip-vit-large-patch14")
parser.add_argument("--images", type=int, default=1000, help="for each seed")
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--views", type=int, default=64)
parser.add_argument("--out", default="bench/ray")
parser.add_argument("--bank", help="folder of features")
options = vars(parser.parse_args())

cluster = OnRay(options.pop("address"), options.pop("workers"))
run_table(
    engine=cluster, progress=progress, say=lambda text: print(text, file=sys.stderr), **options
)
print((Path(options["out"]) / "table.md").read_text("utf-8"))
