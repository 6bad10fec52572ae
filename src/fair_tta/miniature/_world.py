"""The miniature world: drawn images of a target and of attributes that should not matter.

Every image is made from numbers that depend on its task, split, seed and place alone, so the
tenth image of a seed is the same however many are drawn. The three splits never share an image.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from zlib import crc32

import numpy as np
import numpy.typing as npt
from PIL import Image

from fair_tta.errors import FairTTAError, check_count
from fair_tta.miniature import _drawing as drawing
from fair_tta.miniature._drawing import Colour, Random

BLEND_PROBABILITY = 0.5  # how often an attribute is a blend

Renderer = Callable[[Random, int, tuple["Shade", ...]], Image.Image]


WorldSplit = Literal["train", "validation", "test"]
"""Which images: those to train on, to choose a recipe by, or to report."""

WORLD_SPLITS: tuple[WorldSplit, ...] = get_args(WorldSplit)


@dataclass(frozen=True)
class Shade:
    """A value of an attribute with a share of another one.

    Attributes:
        value: index of the value that prevails, which is the label.
        other: index of the value that is blended in.
        part: its share, below 1/2.
    """

    value: int
    other: int
    part: float


@dataclass(frozen=True)
class DrawnImage:
    """A drawn image and what is on it.

    Attributes:
        image: 64 x 64 pixels.
        target: label of the target.
        sensitive: ``{attribute: label}``; of a blend the label that prevails.
        shades: how much of which value is drawn, an entry for each attribute.
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
        name: its key in `TASKS`.
        targets: ``{label: phrase}``
        sensitive: ``{attribute: {label: phrase}}``
        template: the sentence.
        render: how it is drawn.
        correlation: how often an attribute goes with the target in training images.
    """

    name: str
    targets: dict[str, str]
    sensitive: dict[str, dict[str, str]]
    template: str
    render: Renderer
    correlation: float

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """All combinations of a target and a value of each attribute."""
        return list(itertools.product(self.targets, *self.sensitive.values()))

    def draw(
        self,
        n: int,
        seed: int = 0,
        *,
        split: WorldSplit = "test",
        mix: Mapping[tuple[str, ...], float] | None = None,
    ) -> list[DrawnImage]:
        """Draw `n` images.

        Args:
            n: how many.
            seed: other seeds give other images.
            split: ``"train"`` is correlated, ``"validation"`` and ``"test"`` have groups of equal
                size.
            mix: ``{(target, value, ...): weight}`` of `groups` to draw other shares of groups.
        """
        check_count("n", n, least=0)
        return list(itertools.islice(self.stream(seed, split=split, mix=mix), n))

    def stream(
        self,
        seed: int = 0,
        *,
        split: WorldSplit = "test",
        mix: Mapping[tuple[str, ...], float] | None = None,
    ) -> Iterator[DrawnImage]:
        """The images of `draw` without an end."""
        check_count("seed", seed, least=0)
        if split not in WORLD_SPLITS:
            raise FairTTAError(
                f"`split` should be one of {', '.join(WORLD_SPLITS)} (got {split!r}).",
                argument="split",
            )
        shares = None if mix is None else self._shares(mix)
        key = crc32(f"{self.name} {split}".encode())
        for place in itertools.count():
            random = np.random.default_rng([key, seed, place])
            if shares is not None:
                group = self.groups[int(random.choice(len(shares), p=shares))]
            elif split == "train":
                group = self._correlated(random)
            else:
                group = self.groups[place % len(self.groups)]
            yield self._draw(random, group)

    def _shares(self, mix: Mapping[tuple[str, ...], float]) -> npt.NDArray[np.float64]:
        unknown = [group for group in mix if group not in self.groups]
        if unknown:
            raise FairTTAError(
                f"`mix` should have keys such as {self.groups[0]!r} (got {unknown[0]!r}).",
                argument="mix",
            )
        weights = np.array([mix.get(group, 0.0) for group in self.groups], float)
        if not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
            raise FairTTAError(
                f"`mix` should have weights above 0 (got {dict(mix)!r}).",
                argument="mix",
            )
        shares: npt.NDArray[np.float64] = weights / weights.sum()
        return shares

    def _correlated(self, random: Random) -> tuple[str, ...]:
        """A target of any kind, and each attribute mostly the one that goes with it."""
        target = int(random.integers(len(self.targets)))
        group = [list(self.targets)[target]]
        for values in self.sensitive.values():
            usual = target % len(values)
            others = [value for value in range(len(values)) if value != usual]
            chosen = (
                usual
                if random.random() < self.correlation
                else int(random.choice(others))
            )
            group.append(list(values)[chosen])
        return tuple(group)

    def _draw(self, random: Random, group: tuple[str, ...]) -> DrawnImage:
        target, values = group[0], group[1:]
        shades = []
        for names, value in zip(self.sensitive.values(), values, strict=True):
            index = list(names).index(value)
            other = int(random.choice([k for k in range(len(names)) if k != index]))
            is_blend = random.random() < BLEND_PROBABILITY
            part = random.uniform(0.1, 0.5) if is_blend else random.uniform(0, 0.1)
            shades.append(Shade(index, other, part))
        image = self.render(random, list(self.targets).index(target), tuple(shades))
        labels = dict(zip(self.sensitive, values, strict=True))
        return DrawnImage(image, target, labels, tuple(shades))


def _birds(random: Random, target: int, shades: tuple[Shade, ...]) -> Image.Image:
    (place,) = shades
    both = (drawing.water(random), drawing.land(random))
    image = drawing.side_by_side(
        both[place.value], both[place.other], place.part, random
    )
    image = drawing.haze(image, random.uniform(0, 0.5), random)
    (drawing.water_bird, drawing.land_bird)[target](image, random)
    return drawing.finish(image, random, noise=24)


_COLOURS: tuple[Colour, ...] = ((196, 72, 68), (84, 152, 84), (76, 104, 190))


def _badges(random: Random, target: int, shades: tuple[Shade, ...]) -> Image.Image:
    (tint,) = shades
    colour = drawing.varied_mix(
        random, _COLOURS[tint.value], _COLOURS[tint.other], tint.part
    )
    image = drawing.sheet(random)
    shape = (drawing.circle, drawing.square, drawing.star)[target](random)
    drawing.badge(image, random, shape, colour)
    return drawing.finish(image, random, noise=18)


def _scenes(random: Random, target: int, shades: tuple[Shade, ...]) -> Image.Image:
    night, snow = (s.part if s.value == 0 else 1 - s.part for s in shades)
    image = drawing.sky(random, night=night)
    drawing.ground(image, random, snow=snow, night=night)
    (drawing.house, drawing.tree)[target](image, random, night=night)
    return drawing.finish(image, random, noise=24)


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
"""Every task by its name."""
