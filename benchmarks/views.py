"""Time to make 64 views of a 500 x 375 picture at 224 pixels, beside the one-by-one PIL reference.

    python benchmarks/views.py [repeats]

The contenders take turns, so that a busy moment of the machine hits all of them; medians are
printed, of the time that passed and of the processor's, which other programs disturb less. The
small views are of 32 pixels, of a picture of 64 x 48. The number of threads is torch's own (set
OMP_NUM_THREADS to change it); the reference has one, as in a worker of a data loader, where the
public code runs.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import PIL
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "oracles"))

from augmix_reference import reference_views

from fair_tta.images._views import AugMix, content_generator

SIZE = (224, 224)


def photo(seed: int = 0) -> Image.Image:
    """A picture with coarse and fine structure, in place of a photograph."""
    rng = np.random.default_rng(seed)
    total = np.zeros((375, 500, 3))
    for cells in (4, 16, 64, 256):
        noise = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        total += (
            np.asarray(noise.resize((500, 375), Image.Resampling.BICUBIC), float)
            / cells**0.5
        )
    return Image.fromarray((255 * total / total.max()).astype(np.uint8))


def contenders(image: Image.Image) -> dict[str, Callable[[], object]]:
    threads, small = torch.get_num_threads(), image.resize((64, 48))

    def reference() -> None:
        torch.set_num_threads(1)
        reference_views(image, 64, SIZE, np.random.default_rng(0))
        torch.set_num_threads(threads)

    return {
        "reference AugMix": reference,
        "AugMix(64)": lambda: AugMix(64)(image, SIZE, content_generator(image, 0)),
        "AugMix(64), small": lambda: AugMix(64)(
            small, (32, 32), content_generator(small, 0)
        ),
    }


def interleaved(
    runs: dict[str, Callable[[], object]], repeats: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each run in turn, by the clock and of the processor."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter(), time.process_time()
            run()
            times[name].append(
                (time.perf_counter() - start[0], time.process_time() - start[1])
            )
    return {
        name: values[1:] for name, values in times.items()
    }  # the first round warms up


def main(repeats: int = 15) -> None:
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, "
        f"Python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__}, "
        f"Pillow {PIL.__version__}, OpenCV {cv2.__version__}; medians of {repeats} interleaved runs"
    )
    times = interleaved(contenders(photo()), repeats)
    slow = times["reference AugMix"]
    for name, values in times.items():
        print(f"{name:18}", end="")
        for which, label in enumerate(("by the clock", "of the processor")):
            seconds = statistics.median(value[which] for value in values)
            ratios = (a[which] / b[which] for a, b in zip(slow, values, strict=True))
            ratio = statistics.median(ratios)
            print(f"{1e3 * seconds:8.1f} ms {label} ({ratio:4.1f} x as fast)", end="")
        print()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
