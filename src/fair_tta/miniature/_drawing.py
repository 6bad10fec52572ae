"""Drawing of the miniature images: shapes on a canvas of twice their final size.

Labels are unknown here: `fair_tta.miniature._world` decides what is drawn. The order in which a
function draws random numbers is part of the world: another order gives other images than those
that the embedded model was trained and measured on.

Coordinates are pixels of the canvas, with y pointing down. Those of a shape are relative to its
centre, until `_place_at_random` moves it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from PIL.ImageColor import getrgb

SIZE = 64  # pixels of a finished image
_CANVAS_SIZE = 2 * SIZE  # halved by `finish`, which smooths edges

Random: TypeAlias = np.random.Generator
Colour: TypeAlias = tuple[int, ...]  # red, green, blue from 0 to 255
Points: TypeAlias = Sequence[tuple[float, float]]

# Backgrounds


def water(random: Random) -> Image.Image:
    """Draw sky above waves."""
    sky_colour = _vary_colour(random, "#b0cee2")
    sea_colour = _vary_colour(random, "#3870a8")
    horizon = int(random.uniform(0.25, 0.5) * _CANVAS_SIZE)
    image = _sky_and_ground(sky_colour, sea_colour, horizon)

    # Crests of waves, one below the other
    pen = ImageDraw.Draw(image)
    crest_colour = _scale_brightness(sea_colour, random.uniform(1.15, 1.5))
    distance = int(random.integers(7, 12))
    for y in range(horizon + 4, _CANVAS_SIZE, distance):
        phase = random.uniform(0, 6.3)  # radians, a full turn
        length = random.uniform(7, 14)
        crest = []
        for x in range(0, _CANVAS_SIZE + 4, 4):
            height = 2.5 * math.sin(x / length + phase)
            crest.append((x, y + height))
        pen.line(crest, fill=crest_colour, width=2)
    return image


def land(random: Random) -> Image.Image:
    """Draw sky above a meadow with tree trunks."""
    sky_colour = _vary_colour(random, "#bed0ce")
    grass_colour = _vary_colour(random, "#60844a")
    horizon = int(random.uniform(0.25, 0.5) * _CANVAS_SIZE)
    image = _sky_and_ground(sky_colour, grass_colour, horizon)
    pen = ImageDraw.Draw(image)

    bark_colour = _vary_colour(random, "#5c4632")
    n_trunks = int(random.integers(3, 7))
    for _ in range(n_trunks):
        x = random.uniform(0, _CANVAS_SIZE)
        width = random.uniform(4, 10)
        foot = horizon + random.uniform(0.0, 0.35) * _CANVAS_SIZE
        pen.rectangle((x, 0, x + width, foot), fill=bark_colour)

    # Blades of grass: short strokes that lean to either side
    blade_colour = _scale_brightness(grass_colour, 0.8)
    lowest = (0, horizon, -3)
    highest = (_CANVAS_SIZE, _CANVAS_SIZE, 3)
    blades = random.uniform(lowest, highest, (40, 3)).tolist()
    for x, y, lean in blades:
        pen.line((x, y, x + lean, y - 6), fill=blade_colour, width=1)
    return image


def side_by_side(
    first: Image.Image, second: Image.Image, share: float, random: Random
) -> Image.Image:
    """Show a share of `second` beside `first`, with a soft edge as at a shore."""
    slope = random.uniform(-0.3, 0.3)
    edge = share * _CANVAS_SIZE  # at half the height
    tilt = slope * _CANVAS_SIZE / 2
    corners = [
        (-_CANVAS_SIZE, 0),
        (edge - tilt, 0),
        (edge + tilt, _CANVAS_SIZE),
        (-_CANVAS_SIZE, _CANVAS_SIZE),
    ]
    mask = Image.new("L", first.size)
    ImageDraw.Draw(mask).polygon(corners, fill=255)
    if random.random() < 0.5:
        mask = mask.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return Image.composite(second, first, mask.filter(ImageFilter.GaussianBlur(6)))


def haze(image: Image.Image, strength: float, random: Random) -> Image.Image:
    """Put a bright veil before the image: 0 leaves it unchanged, 1 hides it."""
    veil_colour = _vary_colour(random, "#c8cacc")
    veil = Image.new("RGB", image.size, veil_colour)
    return Image.blend(image, veil, strength)


def sheet(random: Random) -> Image.Image:
    """Draw paper with a few grey scribbles."""
    paper_colour = _vary_colour(random, "#d6d2ca")
    image = Image.new("RGB", (_CANVAS_SIZE, _CANVAS_SIZE), paper_colour)
    pen = ImageDraw.Draw(image)
    n_scribbles = int(random.integers(2, 6))
    for _ in range(n_scribbles):
        stroke = tuple(random.uniform(0, _CANVAS_SIZE, 4))
        colour = _vary_colour(random, "#969696")
        pen.line(stroke, fill=colour, width=2)
    return image


def sky(random: Random, *, night: float) -> Image.Image:
    """Draw a sky between day (0) and night (1), with sun or moon, and stars when it is dark."""
    day_colour = _vary_colour(random, "#aacce8")
    night_colour = _vary_colour(random, "#22284e")
    colour = _mix_colours(day_colour, night_colour, night)
    top_colour = _scale_brightness(colour, 0.9)
    image = _sky_and_ground(top_colour, top_colour, _CANVAS_SIZE)
    pen = ImageDraw.Draw(image)

    # Stars are drawn by day too, in the colour of the sky
    star_colour = _mix_colours(colour, getrgb("#ebebdc"), night)
    stars = random.uniform(0, 0.6 * _CANVAS_SIZE, (12, 2)).tolist()
    for x, y in stars:
        pen.ellipse((2 * x, y, 2 * x + 2, y + 2), fill=star_colour)

    # The sun becomes the moon, and at dusk neither is seen
    x = random.uniform(10, _CANVAS_SIZE - 10)
    y = random.uniform(8, 30)
    light_colour = _mix_colours(getrgb("#faf0aa"), getrgb("#ebebe1"), night)
    disc_colour = _mix_colours(colour, light_colour, abs(2 * night - 1))
    pen.ellipse((x - 9, y - 9, x + 9, y + 9), fill=disc_colour)
    return image


def ground(image: Image.Image, random: Random, *, snow: float, night: float) -> None:
    """Draw grass below a sky, with a share of it under snow, darker at night."""
    horizon = int(random.uniform(0.55, 0.7) * _CANVAS_SIZE)
    brightness = 1 - 0.55 * night
    grass_colour = _vary_colour(random, "#688a46")
    grass_colour = _scale_brightness(grass_colour, brightness)
    snow_colour = _vary_colour(random, "#e2e6ec")
    snow_colour = _scale_brightness(snow_colour, brightness)
    pen = ImageDraw.Draw(image)
    base_colour = _mix_colours(grass_colour, snow_colour, snow * 0.5)
    pen.rectangle((0, horizon, _CANVAS_SIZE, _CANVAS_SIZE), fill=base_colour)

    # Flat patches, each of grass or of snow
    lowest = (0, horizon, 4, 0)
    highest = (_CANVAS_SIZE, _CANVAS_SIZE, 10, 1)
    patches = random.uniform(lowest, highest, (60, 4)).tolist()
    for x, y, radius, rank in patches:
        top = max(horizon, y - radius / 2)
        colour = snow_colour if rank < snow else grass_colour
        pen.ellipse((x - radius, top, x + radius, y + radius / 2), fill=colour)


# Targets


def water_bird(image: Image.Image, random: Random) -> None:
    """Draw a long low body, a curved neck and a flat beak."""
    body = _ellipse(0, 6, 30, 12)
    tail = _polygon("-26,4 -38,-6 -24,12")
    neck = _polygon("16,4 20,-22 28,-22 28,8")
    head = _ellipse(27, -24, 9, 7)
    beak = _polygon("33,-26 47,-21 47,-17 33,-20")
    _draw_bird(image, random, [body, tail, neck, head], beak)


def land_bird(image: Image.Image, random: Random) -> None:
    """Draw an upright round body, a long tail, a pointed beak and legs."""
    body = _ellipse(0, 0, 18, 20)
    tail = _polygon("-10,8 -34,36 -24,40 2,18")
    head = _ellipse(10, -20, 13, 12)
    left_leg = _polygon("-2,18 -2,36 1,36 1,18")
    right_leg = _polygon("6,18 6,36 9,36 9,18")
    beak = _polygon("20,-26 37,-20 20,-15")
    _draw_bird(image, random, [body, tail, head, left_leg, right_leg], beak)


def circle(random: Random) -> Points:
    """Return a slightly flattened circle."""
    return _ellipse(0, 0, 27, 27 * random.uniform(0.85, 1.0))


def square(random: Random) -> Points:
    """Return a square whose corners are cut off a little."""
    side = 24  # from the centre
    cut = side - random.uniform(1, 6)
    return [
        (-side, -cut),
        (-cut, -side),
        (cut, -side),
        (side, -cut),
        (side, cut),
        (cut, side),
        (-cut, side),
        (-side, cut),
    ]


def star(random: Random) -> Points:
    """Return a star with six blunt points."""
    inner_radius = random.uniform(13, 19)
    corners = []
    for index in range(12):
        radius = inner_radius if index % 2 else 31
        angle = index * math.pi / 6
        corners.append((radius * math.sin(angle), -radius * math.cos(angle)))
    return corners


def badge(image: Image.Image, random: Random, shape: Points, colour: Colour) -> None:
    """Draw a filled shape with a pale rim."""
    outline = _place_at_random(shape, random, 0.5, (0.7, 1.3))
    rim_colour = _scale_brightness(colour, 1.25)
    ImageDraw.Draw(image).polygon(outline, fill=colour, outline=rim_colour)


def house(image: Image.Image, random: Random, *, night: float) -> None:
    """Draw a wall, a roof and a door."""
    wall_colour = _vary_colour(random, "#aa7860", 40)
    wall_colour = _scale_brightness(wall_colour, 1 - 0.5 * night)
    roof_colour = _scale_brightness(wall_colour, 0.7)
    door_colour = _scale_brightness(wall_colour, 0.5)
    wall = _polygon("-22,-4 22,-4 22,28 -22,28")
    roof = _polygon("-28,-4 0,-26 28,-4")
    door = _polygon("-5,10 5,10 5,28 -5,28")
    parts = [(wall, wall_colour), (roof, roof_colour), (door, door_colour)]
    _draw_parts(image, random, parts)


def tree(image: Image.Image, random: Random, *, night: float) -> None:
    """Draw a trunk, and a crown of three discs."""
    brightness = 1 - 0.5 * night
    trunk_colour = _vary_colour(random, "#644c38", 25)
    trunk_colour = _scale_brightness(trunk_colour, brightness)
    crown_colour = _vary_colour(random, "#787454", 40)
    crown_colour = _scale_brightness(crown_colour, brightness)
    trunk = _polygon("-4,0 4,0 5,28 -5,28")
    parts = [(trunk, trunk_colour)]
    for x, y in ((-10, -4), (10, -4), (0, -16)):
        parts.append((_ellipse(x, y, 14, 13), crown_colour))
    _draw_parts(image, random, parts)


def finish(image: Image.Image, random: Random, *, noise: float) -> Image.Image:
    """Halve the size, with a little blur and noise."""
    blurred = image.filter(ImageFilter.GaussianBlur(random.uniform(0.0, 2.2)))
    pixels = np.asarray(blurred.reduce(2), np.float32)
    deviation = random.uniform(0.3, 1.0) * noise
    grain = random.normal(0, deviation, pixels.shape)
    return Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8))


# Shapes


def _draw_bird(
    image: Image.Image, random: Random, body_parts: Sequence[Points], beak: Points
) -> None:
    body_colour = _vary_colour(random, "#6e6256", 45)
    beak_colour = _vary_colour(random, "#be8c46", 25)
    parts = [(part, body_colour) for part in body_parts]
    parts.append((beak, beak_colour))
    _draw_parts(image, random, parts, most_tilt=0.12)


def _draw_parts(
    image: Image.Image,
    random: Random,
    parts: Sequence[tuple[Points, Colour]],
    most_tilt: float = 0.04,
) -> None:
    """Draw parts that share their size, position, tilt and direction."""
    corners = [corner for part, _ in parts for corner in part]
    # All corners are moved together, and taken apart again
    placed = _place_at_random(corners, random, most_tilt, (0.75, 1.25))
    pen = ImageDraw.Draw(image)
    start = 0
    for part, colour in parts:
        end = start + len(part)
        pen.polygon(placed[start:end], fill=colour)
        start = end


def _place_at_random(
    points: Points, random: Random, most_tilt: float, scales: tuple[float, float]
) -> list[tuple[float, float]]:
    """Scale, turn, mirror and move points at random; `most_tilt` is in radians."""
    angle = random.uniform(-most_tilt, most_tilt)
    scale = random.uniform(*scales)
    cosine = math.cos(angle)
    sine = math.sin(angle)
    turn = np.array([[cosine, -sine], [sine, cosine]])
    if random.random() < 0.5:
        turn = turn @ np.diag([-1.0, 1.0])
    centre = random.uniform(0.4, 0.6, 2) * _CANVAS_SIZE
    moved = np.asarray(points) @ (scale * turn.T) + centre
    return [(float(x), float(y)) for x, y in moved]


def _polygon(corners: str) -> list[tuple[float, float]]:
    """Read corners as SVG writes them, ``"x,y x,y"``."""
    points = []
    for corner in corners.split():
        x, y = corner.split(",")
        points.append((float(x), float(y)))
    return points


def _ellipse(
    centre_x: float, centre_y: float, x_radius: float, y_radius: float
) -> list[tuple[float, float]]:
    points = []
    for angle in np.linspace(0, 2 * math.pi, 24, endpoint=False).tolist():
        x = centre_x + x_radius * math.cos(angle)
        y = centre_y + y_radius * math.sin(angle)
        points.append((x, y))
    return points


def _sky_and_ground(top: Colour, bottom: Colour, horizon: int) -> Image.Image:
    """Draw a sky that becomes lighter, and below the horizon a ground that becomes darker."""
    y = np.arange(_CANVAS_SIZE)[:, None]
    sky_rows = np.asarray(top) * (1 + 0.08 * y / _CANVAS_SIZE)
    ground_rows = np.asarray(bottom) * (1.1 - 0.25 * y / _CANVAS_SIZE)
    rows = np.where(y < horizon, sky_rows, ground_rows).clip(0, 255).astype(np.uint8)
    column = Image.fromarray(rows[:, None])
    return column.resize((_CANVAS_SIZE, _CANVAS_SIZE), Image.Resampling.NEAREST)


# Colours


def varied_mix(random: Random, first: str, second: str, share: float) -> Colour:
    """Return a colour near `first`, with a share of `second`."""
    varied_first = _vary_colour(random, first, 18)
    varied_second = _vary_colour(random, second, 18)
    return _mix_colours(varied_first, varied_second, share)


def _vary_colour(random: Random, colour: str, spread: float = 14) -> Colour:
    """Return a hexadecimal colour a little lighter or darker, in a slightly different hue."""
    brightness_change = random.normal(0, spread)
    channel_changes = random.normal(0, spread / 2, 3)
    varied = np.asarray(getrgb(colour)) + brightness_change + channel_changes
    return tuple(int(channel) for channel in varied.clip(0, 255))


def _scale_brightness(colour: Colour, factor: float) -> Colour:
    return tuple(int(min(255, channel * factor)) for channel in colour)


def _mix_colours(first: Colour, second: Colour, share: float) -> Colour:
    mixed = []
    for from_first, from_second in zip(first, second, strict=True):
        mixed.append(int((1 - share) * from_first + share * from_second))
    return tuple(mixed)
