"""The miniature world: drawn images of a target and of attributes that should not matter.

An image depends only on its task, split, seed and index, so the tenth image of a seed is the same
however many are drawn. The three splits never share an image.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args
from zlib import crc32

import numpy as np
import numpy.typing as npt
from PIL import Image

from fair_tta.errors import FairTTAError, check_count
from fair_tta.miniature import _drawing as drawing
from fair_tta.miniature._drawing import Random

_BLEND_PROBABILITY = 0.5  # of an attribute that is drawn with some of another value

Group: TypeAlias = tuple[str, ...]
"""A target, and a value of each attribute."""

Renderer: TypeAlias = Callable[[Random, int, tuple["Shade", ...]], Image.Image]
"""A function that draws the target with an index, and the shades of the attributes."""

WorldSplit = Literal["train", "validation", "test"]
"""Images to train on, to choose a recipe by, or to report."""

WORLD_SPLITS: tuple[WorldSplit, ...] = get_args(WorldSplit)


@dataclass(frozen=True)
class Shade:
    """A value of an attribute with a share of another one.

    Attributes:
        value: index of the value that prevails, which is the label.
        other: index of the value that is blended in.
        part: the share of the other value, below 1/2.
    """

    value: int
    other: int
    part: float


@dataclass(frozen=True)
class DrawnImage:
    """A drawn image with its labels.

    Attributes:
        image: 64 x 64 pixels.
        target: label of the target.
        sensitive: ``{attribute: label}``; the label of a blend is the value that prevails.
        shades: the values drawn, with their shares, for each attribute.
    """

    image: Image.Image
    target: str
    sensitive: dict[str, str]
    shades: tuple[Shade, ...]


@dataclass(frozen=True)
class MiniatureTask:
    """A target and one or more attributes that go along with it in training images only.

    `targets`, `sensitive` and `template` are what `FairTPTClassifier` takes.

    Attributes:
        name: the key in `TASKS`.
        targets: ``{label: phrase}``.
        sensitive: ``{attribute: {label: phrase}}``.
        template: the sentence of the prompts.
        render: draws an image.
        correlation: the share of training images in which an attribute has the value that goes
            with the target.
    """

    name: str
    targets: dict[str, str]
    sensitive: dict[str, dict[str, str]]
    template: str
    render: Renderer
    correlation: float

    @property
    def groups(self) -> list[Group]:
        """All combinations of a target and a value of each attribute."""
        return list(itertools.product(self.targets, *self.sensitive.values()))

    def draw(
        self,
        n: int,
        seed: int = 0,
        *,
        split: WorldSplit = "test",
        mix: Mapping[Group, float] | None = None,
    ) -> list[DrawnImage]:
        """Draw `n` images.

        Args:
            n: the number of images.
            seed: other seeds give other images.
            split: in ``"train"`` attributes and target are correlated; ``"validation"`` and
                ``"test"`` have groups of equal size.
            mix: ``{(target, value, ...): weight}`` to draw other shares of `groups`.
        """
        check_count("n", n, least=0)
        return list(itertools.islice(self.stream(seed, split=split, mix=mix), n))

    def stream(
        self,
        seed: int = 0,
        *,
        split: WorldSplit = "test",
        mix: Mapping[Group, float] | None = None,
    ) -> Iterator[DrawnImage]:
        """Yield the images of `draw` without an end."""
        check_count("seed", seed, least=0)
        if split not in WORLD_SPLITS:
            raise FairTTAError(
                f"`split` should be one of {', '.join(WORLD_SPLITS)} (got {split!r}).",
                argument="split",
            )
        shares = None if mix is None else self._shares(mix)

        # Each image has a generator of its own, so that it does not depend on those before it
        key = crc32(f"{self.name} {split}".encode())
        for index in itertools.count():
            random = np.random.default_rng([key, seed, index])
            if shares is not None:
                group = self.groups[int(random.choice(len(shares), p=shares))]
            elif split == "train":
                group = self._correlated_group(random)
            else:
                group = self.groups[index % len(self.groups)]
            yield self._draw_group(random, group)

    def _shares(self, mix: Mapping[Group, float]) -> npt.NDArray[np.float64]:
        """Return the share of each group, which add up to 1."""
        for group in mix:
            if group not in self.groups:
                raise FairTTAError(
                    f"`mix` should have keys such as {self.groups[0]!r} (got {group!r}).",
                    argument="mix",
                )
        # Groups that are not named have no images
        weights = np.array([mix.get(group, 0.0) for group in self.groups], float)
        total = weights.sum()
        if not (weights >= 0).all() or not 0 < total < np.inf:
            raise FairTTAError(
                "`mix` should have finite weights >= 0, at least one of them above 0 "
                f"(got {dict(mix)!r}).",
                argument="mix",
            )
        shares: npt.NDArray[np.float64] = weights / total
        return shares

    def _correlated_group(self, random: Random) -> Group:
        """Draw a target, and for each attribute mostly the value that goes with it."""
        target_index = int(random.integers(len(self.targets)))
        group = [list(self.targets)[target_index]]
        for names in self.sensitive.values():
            # The value at the position of the target goes with it
            index = target_index % len(names)
            if random.random() >= self.correlation:
                index = _other_index(random, index, len(names))
            group.append(list(names)[index])
        return tuple(group)

    def _draw_group(self, random: Random, group: Group) -> DrawnImage:
        """Draw an image of a group, whose attributes may be blends."""
        target, *labels = group
        shades = []
        for names, label in zip(self.sensitive.values(), labels, strict=True):
            index = list(names).index(label)
            other_index = _other_index(random, index, len(names))
            # Even an attribute that is not a blend has a trace of the other value
            if random.random() < _BLEND_PROBABILITY:
                share = random.uniform(0.1, 0.5)
            else:
                share = random.uniform(0, 0.1)
            shades.append(Shade(index, other_index, share))
        target_index = list(self.targets).index(target)
        image = self.render(random, target_index, tuple(shades))
        sensitive = dict(zip(self.sensitive, labels, strict=True))
        return DrawnImage(image, target, sensitive, tuple(shades))


def _other_index(random: Random, index: int, count: int) -> int:
    """Draw one of the other indices below `count`."""
    candidates = [candidate for candidate in range(count) if candidate != index]
    return int(random.choice(candidates))


def _birds(random: Random, target: int, shades: tuple[Shade, ...]) -> Image.Image:
    """Draw a water bird or a land bird on water, on land or at a shore."""
    (background,) = shades
    scenes = (drawing.water(random), drawing.land(random))
    scene = scenes[background.value]
    other_scene = scenes[background.other]
    image = drawing.side_by_side(scene, other_scene, background.part, random)
    image = drawing.haze(image, random.uniform(0, 0.5), random)
    draw_bird = (drawing.water_bird, drawing.land_bird)[target]
    draw_bird(image, random)
    return drawing.finish(image, random, noise=24)


_BADGE_COLOURS = ("#c44844", "#549854", "#4c68be")  # red, green, blue


def _badges(random: Random, target: int, shades: tuple[Shade, ...]) -> Image.Image:
    """Draw a shape of one colour, or of a mixture of two, on paper."""
    (tint,) = shades
    first = _BADGE_COLOURS[tint.value]
    second = _BADGE_COLOURS[tint.other]
    colour = drawing.varied_mix(random, first, second, tint.part)
    image = drawing.sheet(random)
    draw_shape = (drawing.circle, drawing.square, drawing.star)[target]
    drawing.badge(image, random, draw_shape(random), colour)
    return drawing.finish(image, random, noise=18)


def _scenes(random: Random, target: int, shades: tuple[Shade, ...]) -> Image.Image:
    """Draw a house or a tree between day and night, and between summer and winter."""
    time, season = shades
    night = _share_of_second_value(time)
    snow = _share_of_second_value(season)
    image = drawing.sky(random, night=night)
    drawing.ground(image, random, snow=snow, night=night)
    draw_target = (drawing.house, drawing.tree)[target]
    draw_target(image, random, night=night)
    return drawing.finish(image, random, noise=24)


def _share_of_second_value(shade: Shade) -> float:
    """Return the share of the second value, of an attribute with two."""
    return shade.part if shade.value == 0 else 1 - shade.part


BIRDS = MiniatureTask(
    "birds",
    {"water bird": "of a water bird", "land bird": "of a land bird"},
    {"background": {"water": "on water", "land": "on land"}},
    "This is a picture {target} {sensitive}.",
    _birds,
    correlation=0.9,
)
BADGES = MiniatureTask(
    "badges",
    {"circle": "circle", "square": "square", "star": "star"},
    {"colour": {"red": "red", "green": "green", "blue": "blue"}},
    "A drawing of a {sensitive} {target} on paper.",
    _badges,
    correlation=0.65,
)
SCENES = MiniatureTask(
    "scenes",
    {"house": "of a house", "tree": "of a tree"},
    {
        "time": {"day": "by day", "night": "at night"},
        "season": {"summer": "in summer", "winter": "in winter"},
    },
    "A small view {target} {sensitive}.",
    _scenes,
    correlation=0.85,
)
TASKS = {task.name: task for task in (BIRDS, BADGES, SCENES)}
"""All tasks by their names."""
