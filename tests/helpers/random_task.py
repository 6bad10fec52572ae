"""Tasks whose features are random numbers, and a classifier that only hands features over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import strategies as st
from internals import unit_features
from torch import Tensor

from fair_tta import Templates, ZeroShot
from fair_tta.extend import Cache, Task

DIM = 24


def random_units(seed: int, *shape: int) -> Tensor:
    """Unit vectors in float64, half of each common to all: image and text features are cones."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(shape[-1], generator=generator, dtype=torch.float64)
    return unit_features(
        common + torch.randn(shape, generator=generator, dtype=torch.float64)
    )


def softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of one row, for computations that are independent of torch."""
    powers = np.exp(logits - logits.max())
    exact: npt.NDArray[np.float64] = powers / powers.sum()
    return exact


class _Backend:
    """What a task asks of a model besides its prompts' features."""

    name = "random numbers"
    dtype = torch.float64

    def encode_images(self, images: Sequence[Any]) -> Tensor:
        return random_units(0, len(images), DIM)


def joint_of(target: Tensor, values: Tensor) -> Tensor:
    """Features of joint prompts, target by target, that follow from those of their parts."""
    y, s = target.unsqueeze(1), values.unsqueeze(0)
    return unit_features(y + s + 4 * y * s).flatten(0, 1)


def task_of(
    target: Tensor,
    sensitive: dict[str, Tensor],
    scale: float = 20.0,
    sentences: Mapping[str, Tensor] | None = None,
) -> Task:
    """A task with these features of its prompts, and of free sentences."""
    task = Task.__new__(Task)
    joint = {a: joint_of(target, z) for a, z in sensitive.items()}

    def own_features(prompts: Any) -> Tensor:
        if isinstance(prompts, str):
            return joint[prompts]
        return torch.stack([(sentences or {})[text] for text in prompts])

    names = {
        a: {f"{a} {i}": f"{a} {i}" for i in range(len(z))} for a, z in sensitive.items()
    }
    vars(task).update(
        backend=_Backend(),
        targets={f"target {i}": f"target {i}" for i in range(len(target))},
        sensitive=names,
        templates=Templates.from_sentence("a {sensitive} {target}."),
        cache=Cache(),
        target_features=target,
        sensitive_features=sensitive,
        scale=scale,
        joint_prompts=lambda attribute: attribute,
        sentence_prompts=list,
        own_features=own_features,
        _owner=object(),
    )
    return task


@dataclass
class EncodedClassifier:
    """Its images are their features."""

    _task: Task
    _batch_size: int = 7

    def encode(self, images: Any, *, with_views: bool = True) -> Tensor:
        assert not with_views
        return torch.stack(list(images)) if len(images) else torch.empty(0, 1, DIM)


@dataclass(frozen=True)
class Drawn:
    """A random task and images: `features` is ``[images, views, dim]``."""

    target: Tensor
    sensitive: dict[str, Tensor]
    features: Tensor
    scale: float = 20.0
    sentences: dict[str, Tensor] = field(default_factory=dict)

    @property
    def task(self) -> Task:
        return task_of(self.target, self.sensitive, self.scale, self.sentences)

    @property
    def zero_shot(self) -> Tensor:
        """The answer without a method."""
        return ZeroShot().adapt(self.task, self.features).probabilities

    @property
    def renamed(self) -> Drawn:
        """Classes, attributes and values in another order."""
        sensitive = {a: z.flip(0) for a, z in reversed(self.sensitive.items())}
        return replace(self, target=self.target.flip(0), sensitive=sensitive)

    @property
    def in_float32(self) -> Drawn:
        """With features as a model gives them."""
        return replace(
            self,
            target=self.target.float(),
            sensitive={a: z.float() for a, z in self.sensitive.items()},
            features=self.features.float(),
            sentences={text: z.float() for text, z in self.sentences.items()},
        )


@st.composite
def drawn(draw: st.DrawFn, views: int = 1) -> Drawn:
    """Two to four classes, one or two attributes of two to four values."""
    seed = draw(st.integers(0, 2**32))
    attributes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    target = random_units(seed, draw(st.integers(2, 4)), DIM)
    sensitive = {
        f"s{i}": random_units(seed + 1 + i, k, DIM) for i, k in enumerate(attributes)
    }
    images = random_units(seed + 9, 6, 1, DIM)
    return Drawn(
        target,
        sensitive,
        unit_features(images + 0.4 * random_units(seed + 8, 6, views, DIM)),
    )


@st.composite
def unrelated(draw: st.DrawFn, views: int = 1) -> Drawn:
    """Prompts do not associate the attributes with the classes, and images do not show them."""
    plain = draw(drawn(views))
    third = DIM // 3
    targets, subject = torch.zeros(DIM), torch.zeros(DIM)
    targets[:third] = 1
    subject[: 2 * third] = 1
    hidden = {a: unit_features(z * (1 - subject)) for a, z in plain.sensitive.items()}
    return Drawn(
        unit_features(plain.target * targets),
        hidden,
        unit_features(plain.features * subject),
    )
