"""Pictures of drawn pictures: the world, views of one of them, what the library does to one."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from fair_tta import FairTPTClassifier, ZeroShot, miniature
from fair_tta.extend import AugMix
from fair_tta.images._draw import render_views
from fair_tta.images._draw_batch import render_batch
from fair_tta.images._views import content_generator
from fair_tta.miniature._world import TASKS, MiniatureTask
from fair_tta.prediction import Prediction
from picture_canvas import INK, MUTED, RED, TEAL, Canvas

_GREY = "#7b8794"


def classifier(task: MiniatureTask) -> FairTPTClassifier:
    """The embedded model, asked about a task as the model itself would answer."""
    return FairTPTClassifier(
        "miniature", task.targets, task.sensitive, task.template, adapter=ZeroShot()
    )


@lru_cache
def balanced(name: str) -> FairTPTClassifier:
    """The same with a correction learnt of 300 other pictures without labels."""
    task = TASKS[name]
    clf = classifier(task)
    reference = task.draw(300, split="validation")
    return clf.with_adapter("logit-balance").fit([drawn.image for drawn in reference])


def what_it_does(path: Path, effect: Path) -> None:
    """One image, its answer before and after, and the typical gap on many of every task."""
    image, prediction = changed(miniature.BIRDS)
    verdicts = json.loads(effect.read_text("utf-8"))["parts"]["verdicts"]
    names = {"birds": "birds", "badges": "badges", "scenes-both": "scenes"}
    gaps = {name: verdicts[key]["gap"]["logit-balance"] for key, name in names.items()}
    n = verdicts["birds"]["n"]
    figures = ", ".join(
        f"{k} from {g['before']:.1f} to {g['after']:.1f}" for k, g in gaps.items()
    )
    title = (
        "A drawn land bird on water. The model's own answer is water bird, with LogitBalance it "
        f"is land bird. On {n:,} images of each task the typical gap between two groups falls: "
        f"{figures} points."
    )
    canvas = Canvas(600, 520, title)
    canvas.text(20, 32, "one image, and its answer", font_weight=600, font_size=17)
    canvas.pixels(20, 48, 176, image)
    canvas.text(20, 248, "a land bird, on water", fill=MUTED)
    canvas.arrow(208, 236, 136)
    _answer(canvas, 252, 40, "the model's own", prediction.zero_shot, RED)
    _answer(canvas, 252, 146, "with LogitBalance", prediction.probabilities, TEAL)
    canvas.line(20, 268, 580, 268)
    canvas.text(20, 300, f"typical gap between two groups, {n:,} images each",
                font_weight=600, font_size=17)  # fmt: skip
    for k, (name, gap) in enumerate(gaps.items()):
        top = 318 + 58 * k
        canvas.text(20, top + 29, name)
        for row, (value, colour) in enumerate(
            ((gap["before"], _GREY), (gap["after"], TEAL))
        ):
            canvas.rect(90, top + 24 * row, 6.6 * value, 20, fill=colour, rx=3)
            canvas.text(
                98 + 6.6 * value, top + 15 + 24 * row, f"{value:.1f}", font_weight=600
            )
        canvas.text(390, top + 28, _signed(gap))
    canvas.text(20, 506, "grey: the model's own; green: LogitBalance; right: change, 95 % CI",
                fill=MUTED)  # fmt: skip
    canvas.save(path)


def _signed(figure: dict[str, float]) -> str:
    minus = "\N{MINUS SIGN}"
    middle, low, high = (
        f"{figure[key]:+.1f}".replace("-", minus) for key in ("change", "low", "high")
    )
    return f"{middle} [{low}, {high}]"


def _answer(
    canvas: Canvas,
    x: float,
    y: float,
    title: str,
    shares: dict[str, float],
    leading: str,
) -> None:
    canvas.text(x, y + 16, title, fill=MUTED)
    best = max(shares, key=shares.__getitem__)
    for k, (name, share) in enumerate(shares.items()):
        top = y + 28 + 31 * k
        canvas.text(x, top + 17, name, font_weight=600 if name == best else 400)
        canvas.rect(x + 96, top, 180, 24, fill="#eef1f4", rx=3)
        bar = {"fill": leading if name == best else _GREY, "rx": 3}
        canvas.rect(x + 96, top, max(3, 180 * share), 24, **bar)
        canvas.text(x + 286, top + 17, f"{100 * share:.0f} %")


def changed(task: MiniatureTask) -> tuple[Image.Image, Prediction]:
    """The first test picture of a land bird on water whose answer becomes right."""
    mix: dict[tuple[str, ...], float] = {("land bird", "water"): 1.0}
    clf = balanced(task.name)
    for drawn in islice(task.stream(0, mix=mix), 500):
        prediction = clf.predict(drawn.image)
        if prediction.flipped and prediction.label == drawn.target:
            return drawn.image, prediction
    raise SystemExit("no answer of 500 becomes right")


def world(path: Path) -> None:
    """A few pictures of every group of every task."""
    blocks = [_block(TASKS[name]) for name in ("birds", "badges", "scenes")]
    gap = 18
    height = sum(block.height for block in blocks) + gap * (len(blocks) - 1)
    sheet = Image.new("RGB", (max(block.width for block in blocks), height), "white")
    top = 0
    for block in blocks:
        sheet.paste(block, (0, top))
        top += block.height + gap
    save_png(sheet, path, 200)


def _block(task: MiniatureTask, per_group: int = 2) -> Image.Image:
    """Targets down, values across."""
    side, edge, head, names = 64, 4, 46, 100
    values = [
        group[1:] for group in task.groups if group[0] == next(iter(task.targets))
    ]
    column = per_group * (side + edge) + 14
    sheet = Image.new(
        "RGB",
        (names + column * len(values), head + 8 + (side + edge) * len(task.targets)),
        "white",
    )
    pen, font, bold = ImageDraw.Draw(sheet), _font(16), _font(18)
    pen.text((2, 0), task.name, fill=INK, font=bold)
    for k, group in enumerate(values):
        pen.text((names + column * k, 24), ", ".join(group), fill=MUTED, font=font)
        for r, target in enumerate(task.targets):
            pen.text((2, head + 26 + (side + edge) * r), target, fill=MUTED, font=font)
            drawn = task.draw(per_group, seed=1, mix={(target, *group): 1.0})
            for i, picture in enumerate(drawn):
                at = (
                    names + column * k + (side + edge) * i,
                    head + 4 + (side + edge) * r,
                )
                sheet.paste(picture.image, at)
    return sheet


def views(path: Path) -> None:
    """A picture and what AugMix makes of it."""
    drawn = miniature.SCENES.draw(1, seed=4)[0].image
    tiles = [drawn.resize((96, 96), Image.Resampling.BILINEAR), *_views(drawn, 16)]
    save_png(_tiled(tiles, 8), path, 200)


def renderers(path: Path) -> None:
    """The same views drawn in two ways, and how far they are apart."""
    drawn = miniature.SCENES.draw(1, seed=4)[0].image
    first, second = _views(drawn, 9), _views(drawn, 9, as_tensors=True)
    differences = [
        np.abs(np.asarray(a, float) - np.asarray(b, float))
        for a, b in zip(first, second, strict=True)
    ]
    third = [
        Image.fromarray((16 * x).clip(0, 255).astype(np.uint8)) for x in differences
    ]
    rows = {"OpenCV": first, "tensors": second, "difference x 16": third}
    sheet = Image.new("RGB", (130 + 100 * 8, 100 * 3), "white")
    pen = ImageDraw.Draw(sheet)
    for r, (name, pictures) in enumerate(rows.items()):
        pen.text((2, 100 * r + 40), name, fill=INK, font=_font(14))
        sheet.paste(_tiled(pictures, 8), (130, 100 * r))
    save_png(sheet, path, 64)


def _views(
    image: Image.Image, n: int, *, as_tensors: bool = False
) -> list[Image.Image]:
    size, views = (96, 96), AugMix(n)
    recipes = views._draw_recipes(image, size, content_generator(image, seed=0))
    if as_tensors:
        batch = render_batch([image], size, [recipes], torch.device("cpu"))
        arrays = batch[0].permute(0, 2, 3, 1).numpy()
    else:
        arrays = render_views(image, size, recipes)
    return [Image.fromarray(x.round().clip(0, 255).astype(np.uint8)) for x in arrays]


def _tiled(pictures: list[Image.Image], across: int, edge: int = 4) -> Image.Image:
    side = pictures[0].width + edge
    sheet = Image.new(
        "RGB",
        (across * side - edge, -(-len(pictures) // across) * side - edge),
        "white",
    )
    for k, picture in enumerate(pictures):
        sheet.paste(picture, (k % across * side, k // across * side))
    return sheet


def save_png(image: Image.Image, path: Path, colours: int) -> None:
    """With a palette, which makes it small."""
    reduced = image.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    reduced.save(path, optimize=True)


def _font(size: int) -> Any:
    from matplotlib import font_manager

    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), size)
