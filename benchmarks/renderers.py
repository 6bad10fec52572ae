"""Cost of drawing 64 views by OpenCV and by tensor operations, beside encoding them.

    OMP_NUM_THREADS=1 python benchmarks/renderers.py [repeats]

The processor time of one thread for a 500 x 375 image and views of 224 pixels, interleaved, and
its medians. Encoding is one pass of a vision tower of ViT-B/32 size with random weights.
``tensors in chunks`` is what tensor operations could cost on a CPU if they were written again for
it: crops by `interpolate`, all operations on a few views at a time, so that they stay in the cache.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection
from views import SIZE, photo

from fair_tta.images._draw import Recipe, render_views, to_rgb
from fair_tta.images._draw_batch import mix_chains, render_batch
from fair_tta.images._views import AugMix, content_generator

CHUNK = 4  # views of 224 pixels whose chains fit into the cache of one core


def tensors_in_chunks(pixels: Tensor, recipes: list[Recipe]) -> Tensor:
    """Draw the views a few at a time: ``[1, 3, height, width] -> [views, 3, *SIZE]``."""
    chunks = []
    for start in range(0, len(recipes), CHUNK):
        chunk = recipes[start : start + CHUNK]
        crops = [_crop(pixels, recipe) for recipe in chunk]
        chunks.append(mix_chains(torch.cat(crops), chunk))
    return torch.cat(chunks)


def _crop(pixels: Tensor, recipe: Recipe) -> Tensor:
    top, x, height, width = recipe.box
    box = pixels[..., top : top + height, x : x + width]
    crop = interpolate(box, SIZE, mode="bilinear", antialias=True)
    return crop.flip(-1) if recipe.flip else crop


def main(repeats: int = 7) -> None:
    image = to_rgb(photo())
    pixels = torch.tensor(list(image.tobytes()), dtype=torch.uint8)
    pixels = pixels.view(1, image.height, image.width, 3).permute(0, 3, 1, 2)
    config = CLIPVisionConfig(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
        image_size=224, patch_size=32, projection_dim=512,
    )  # fmt: skip
    tower = CLIPVisionModelWithProjection(config).eval()
    views = torch.rand(64, 3, *SIZE)

    def recipes() -> list[Recipe]:
        return AugMix(64)._draw_recipes(image, SIZE, content_generator(image, 0))

    contenders: dict[str, Callable[[], object]] = {
        "OpenCV": lambda: render_views(image, SIZE, recipes()),
        "tensors": lambda: render_batch(
            [image], SIZE, [recipes()], torch.device("cpu")
        ),
        "tensors in chunks": lambda: tensors_in_chunks(pixels, recipes()),
        "encoding": lambda: tower(pixel_values=views),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    with torch.inference_mode():
        for _ in range(repeats + 1):
            for name, draw_or_encode in contenders.items():
                start = time.process_time()
                draw_or_encode()
                seconds[name].append(time.process_time() - start)
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    today = medians["OpenCV"] + medians["encoding"]
    for name, median in medians.items():
        line = f"{name:18}{median:7.3f} CPU s"
        if name != "encoding":
            change = (median + medians["encoding"]) / today - 1
            line += f", with encoding {100 * change:+5.1f} % against OpenCV"
        print(line)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
