"""How the images of the miniature world are drawn: at twice their size, then made smaller.

Every function takes its randomness from the generator it is given. Nothing here knows of labels;
`fair_tta.miniature._world` says what is drawn where.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIZE = 64  # of a finished image, in pixels
_CANVAS_SIZE = 2 * SIZE

Random: TypeAlias = np.random.Generator
Colour: TypeAlias = tuple[int, ...]  # red, green, blue
Points: TypeAlias = Sequence[tuple[float, float]]


def water(random: Random) -> Image.Image:
    """Sky above, waves below."""
    sky, sea = (
        _vary_colour(random, (176, 206, 226)),
        _vary_colour(random, (56, 112, 168)),
    )
    horizon = int(random.uniform(0.25, 0.5) * _CANVAS_SIZE)
    image = _sky_and_ground(sky, sea, horizon)
    pen = ImageDraw.Draw(image)
    crest = _scale_brightness(sea, random.uniform(1.15, 1.5))
    for y in range(horizon + 4, _CANVAS_SIZE, int(random.integers(7, 12))):
        phase, length = random.uniform(0, 6.3), random.uniform(7, 14)
        wave = [
            (x, y + 2.5 * math.sin(x / length + phase))
            for x in range(0, _CANVAS_SIZE + 4, 4)
        ]
        pen.line(wave, fill=crest, width=2)
    return image


def land(random: Random) -> Image.Image:
    """Sky above, a meadow with trunks below."""
    sky, grass = (
        _vary_colour(random, (190, 208, 206)),
        _vary_colour(random, (96, 132, 74)),
    )
    horizon = int(random.uniform(0.25, 0.5) * _CANVAS_SIZE)
    image = _sky_and_ground(sky, grass, horizon)
    pen = ImageDraw.Draw(image)
    bark = _vary_colour(random, (92, 70, 50))
    for _ in range(int(random.integers(3, 7))):
        x, width = random.uniform(0, _CANVAS_SIZE), random.uniform(4, 10)
        foot = horizon + random.uniform(0.0, 0.35) * _CANVAS_SIZE
        pen.rectangle((x, 0, x + width, foot), fill=bark)
    blade = _scale_brightness(grass, 0.8)
    for x, y, lean in random.uniform(
        (0, horizon, -3), (_CANVAS_SIZE, _CANVAS_SIZE, 3), (40, 3)
    ).tolist():
        pen.line((x, y, x + lean, y - 6), fill=blade, width=1)
    return image


def side_by_side(
    first: Image.Image, second: Image.Image, part: float, random: Random
) -> Image.Image:
    """`first` with a share `part` of `second` at one side, as at a shore."""
    mask = Image.new("L", first.size)
    slope = random.uniform(-0.3, 0.3)
    edge = [
        (part * _CANVAS_SIZE + slope * (y - _CANVAS_SIZE / 2), y)
        for y in (0, _CANVAS_SIZE)
    ]
    ImageDraw.Draw(mask).polygon(
        [(-_CANVAS_SIZE, 0), edge[0], edge[1], (-_CANVAS_SIZE, _CANVAS_SIZE)], fill=255
    )
    if random.random() < 0.5:
        mask = mask.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return Image.composite(second, first, mask.filter(ImageFilter.GaussianBlur(6)))


def haze(image: Image.Image, strength: float, random: Random) -> Image.Image:
    """The image behind a bright veil: 0 leaves it, 1 hides it."""
    veil = Image.new("RGB", image.size, _vary_colour(random, (200, 202, 204)))
    return Image.blend(image, veil, strength)


def water_bird(image: Image.Image, random: Random) -> None:
    """A long low body, a curved neck and a flat beak."""
    bird: list[Points] = [
        _ellipse(0, 6, 30, 12),
        [(-26, 4), (-38, -6), (-24, 12)],  # tail
        [(16, 4), (20, -22), (28, -22), (28, 8)],  # neck
        _ellipse(27, -24, 9, 7),  # head
    ]
    beak = [(33, -26), (47, -21), (47, -17), (33, -20)]
    _stamp(image, random, bird, beak)


def land_bird(image: Image.Image, random: Random) -> None:
    """An upright round body, a long tail, a pointed beak and legs."""
    bird: list[Points] = [
        _ellipse(0, 0, 18, 20),
        [(-10, 8), (-34, 36), (-24, 40), (2, 18)],  # tail
        _ellipse(10, -20, 13, 12),  # head
        [(-2, 18), (-2, 36), (1, 36), (1, 18)],  # legs
        [(6, 18), (6, 36), (9, 36), (9, 18)],
    ]
    beak = [(20, -26), (37, -20), (20, -15)]
    _stamp(image, random, bird, beak)


def sheet(random: Random) -> Image.Image:
    """Paper with a few grey scribbles."""
    image = Image.new(
        "RGB", (_CANVAS_SIZE, _CANVAS_SIZE), _vary_colour(random, (214, 210, 202))
    )
    pen = ImageDraw.Draw(image)
    for _ in range(int(random.integers(2, 6))):
        corners = random.uniform(0, _CANVAS_SIZE, 4)
        pen.line(tuple(corners), fill=_vary_colour(random, (150, 150, 150)), width=2)
    return image


def circle(random: Random) -> Points:
    """A slightly flattened circle."""
    return _ellipse(0, 0, 27, 27 * random.uniform(0.85, 1.0))


def square(random: Random) -> Points:
    """A square with the corners cut off a little."""
    a, cut = 24, random.uniform(1, 6)
    return [
        (-a, -a + cut), (-a + cut, -a), (a - cut, -a), (a, -a + cut),
        (a, a - cut), (a - cut, a), (-a + cut, a), (-a, a - cut),
    ]  # fmt: skip


def star(random: Random) -> Points:
    """A star of six blunt points."""
    inner = random.uniform(13, 19)
    return [
        (r * math.sin(k * math.pi / 6), -r * math.cos(k * math.pi / 6))
        for k in range(12)
        for r in [inner if k % 2 else 31]
    ]


def badge(image: Image.Image, random: Random, shape: Points, colour: Colour) -> None:
    """A filled shape with a pale rim."""
    outline = _place_shape(shape, random, random.uniform(-0.5, 0.5), (0.7, 1.3))
    pen = ImageDraw.Draw(image)
    pen.polygon(outline, fill=colour, outline=_scale_brightness(colour, 1.25))


def sky(random: Random, *, night: float) -> Image.Image:
    """A sky between day (0) and night (1), with the moon and stars as far as it is dark."""
    day, dark = (
        _vary_colour(random, (170, 204, 232)),
        _vary_colour(random, (34, 40, 78)),
    )
    colour = _mix_colours(day, dark, night)
    image = _sky_and_ground(
        _scale_brightness(colour, 0.9), _scale_brightness(colour, 1.1), _CANVAS_SIZE
    )
    pen = ImageDraw.Draw(image)
    for x, y in random.uniform(0, 0.6 * _CANVAS_SIZE, (12, 2)).tolist():
        pen.ellipse(
            (2 * x, y, 2 * x + 2, y + 2),
            fill=_mix_colours(colour, (235, 235, 220), night),
        )
    x, y = random.uniform(10, _CANVAS_SIZE - 10), random.uniform(8, 30)
    lamp = _mix_colours((250, 240, 170), (235, 235, 225), night)
    pen.ellipse(
        (x - 9, y - 9, x + 9, y + 9),
        fill=_mix_colours(colour, lamp, abs(2 * night - 1)),
    )
    return image


def ground(image: Image.Image, random: Random, *, snow: float, night: float) -> None:
    """Grass, covered with snow as far as `snow` says, and darker at night."""
    horizon = int(random.uniform(0.55, 0.7) * _CANVAS_SIZE)
    dim = 1 - 0.55 * night
    grass = _scale_brightness(_vary_colour(random, (104, 138, 70)), dim)
    white = _scale_brightness(_vary_colour(random, (226, 230, 236)), dim)
    pen = ImageDraw.Draw(image)
    pen.rectangle(
        (0, horizon, _CANVAS_SIZE, _CANVAS_SIZE),
        fill=_mix_colours(grass, white, snow * 0.5),
    )
    ranges = (0, horizon, 4, 0), (_CANVAS_SIZE, _CANVAS_SIZE, 10, 1)
    for x, y, r, part in random.uniform(*ranges, (60, 4)).tolist():
        patch = white if part < snow else grass
        pen.ellipse((x - r, max(horizon, y - r / 2), x + r, y + r / 2), fill=patch)


def house(image: Image.Image, random: Random, *, night: float) -> None:
    """A wall, a roof, a door."""
    wall = _scale_brightness(_vary_colour(random, (170, 120, 96), 40), 1 - 0.5 * night)
    body = [(-22, -4), (22, -4), (22, 28), (-22, 28)]
    roof = [(-28, -4), (0, -26), (28, -4)]
    door = [(-5, 10), (5, 10), (5, 28), (-5, 28)]
    _stack(
        image,
        random,
        [
            (body, wall),
            (roof, _scale_brightness(wall, 0.7)),
            (door, _scale_brightness(wall, 0.5)),
        ],
    )


def tree(image: Image.Image, random: Random, *, night: float) -> None:
    """A trunk and a crown."""
    dim = 1 - 0.5 * night
    trunk = _scale_brightness(_vary_colour(random, (100, 76, 56), 25), dim)
    crown = _scale_brightness(_vary_colour(random, (120, 116, 84), 40), dim)
    parts: list[tuple[Points, Colour]] = [([(-4, 0), (4, 0), (5, 28), (-5, 28)], trunk)]
    for x, y in ((-10, -4), (10, -4), (0, -16)):
        parts.append((_ellipse(x, y, 14, 13), crown))
    _stack(image, random, parts)


def finish(image: Image.Image, random: Random, *, noise: float) -> Image.Image:
    """Half the size, a little blurred, with noise."""
    blurred = image.filter(ImageFilter.GaussianBlur(random.uniform(0.0, 2.2)))
    small = np.asarray(blurred.reduce(2), np.float32)
    grain = random.normal(0, random.uniform(0.3, 1.0) * noise, small.shape)
    return Image.fromarray((small + grain).clip(0, 255).astype(np.uint8))


def _stamp(
    image: Image.Image, random: Random, body: Sequence[Points], beak: Points
) -> None:
    colour = _vary_colour(random, (110, 98, 86), 45)
    parts = [(part, colour) for part in body]
    _stack(
        image,
        random,
        [*parts, (beak, _vary_colour(random, (190, 140, 70), 25))],
        tilt=0.12,
    )


def _stack(
    image: Image.Image,
    random: Random,
    parts: Sequence[tuple[Points, Colour]],
    tilt: float = 0.04,
) -> None:
    """Draw the parts with one common size, place, tilt and direction."""
    corners = [point for part, _ in parts for point in part]
    placed = _place_shape(corners, random, random.uniform(-tilt, tilt), (0.75, 1.25))
    pen = ImageDraw.Draw(image)
    for part, colour in parts:
        pen.polygon(placed[: len(part)], fill=colour)
        placed = placed[len(part) :]


def _place_shape(
    points: Points, random: Random, angle: float, scales: tuple[float, float]
) -> list[tuple[float, float]]:
    scale = random.uniform(*scales)
    turn = np.array(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    )
    if random.random() < 0.5:
        turn = turn @ np.diag([-1.0, 1.0])
    centre = random.uniform(0.4, 0.6, 2) * _CANVAS_SIZE
    moved = np.asarray(points) @ (scale * turn.T) + centre
    return [(float(x), float(y)) for x, y in moved]


def _ellipse(x: float, y: float, rx: float, ry: float) -> list[tuple[float, float]]:
    angles = np.linspace(0, 2 * math.pi, 24, endpoint=False).tolist()
    return [(x + rx * math.cos(a), y + ry * math.sin(a)) for a in angles]


def _sky_and_ground(top: Colour, bottom: Colour, horizon: int) -> Image.Image:
    """From `top` to a lighter shade at the horizon; below it `bottom`, darker downwards."""
    y = np.arange(_CANVAS_SIZE)[:, None]
    above = np.asarray(top) * (1 + 0.08 * y / _CANVAS_SIZE)
    below = np.asarray(bottom) * (1.1 - 0.25 * y / _CANVAS_SIZE)
    rows = np.where(y < horizon, above, below).clip(0, 255).astype(np.uint8)
    return Image.fromarray(rows[:, None]).resize(
        (_CANVAS_SIZE, _CANVAS_SIZE), Image.Resampling.NEAREST
    )


def _vary_colour(random: Random, colour: Colour, spread: float = 14) -> Colour:
    common, own = random.normal(0, spread), random.normal(0, spread / 2, 3)
    return tuple(int(c) for c in (np.asarray(colour) + common + own).clip(0, 255))


def _scale_brightness(colour: Colour, factor: float) -> Colour:
    return tuple(int(min(255, c * factor)) for c in colour)


def _mix_colours(first: Colour, second: Colour, part: float) -> Colour:
    return tuple(
        int((1 - part) * a + part * b) for a, b in zip(first, second, strict=True)
    )


def varied_mix(random: Random, first: Colour, second: Colour, part: float) -> Colour:
    """A colour near `first`, with a share `part` of `second`."""
    return _mix_colours(
        _vary_colour(random, first, 18), _vary_colour(random, second, 18), part
    )
