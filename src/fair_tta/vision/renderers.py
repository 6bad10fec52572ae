"""Who draws views from recipes: OpenCV on the CPU, or tensor operations where the model is."""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from PIL import Image

from fair_tta.errors import FairTTAError
from fair_tta.vision.rendering import Recipe


class Renderer(Enum):
    """Who draws views. The recipes are the same, so views differ by rounding only.

    Attributes:
        AUTO: `OPENCV` for a model on the CPU, `TENSORS` for one elsewhere.
        OPENCV: one by one on the CPU, with as many threads as torch uses.
        TENSORS: all views of several images at once where the model is. Slow on a CPU.
    """

    AUTO = "auto"
    OPENCV = "opencv"
    TENSORS = "tensors"


@runtime_checkable
class DrawsRecipes(Protocol):
    """Views that can say what they will do before they do it."""

    @property
    def render(self) -> Renderer:
        """Who is to draw them."""
        ...

    def draw(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> list[Recipe]:
        """What to do for each view."""
        ...


def uses_tensors(views: Any, device: torch.device) -> bool:
    """Whether these views are to be drawn as tensors, for a model on this device."""
    if not isinstance(views, DrawsRecipes) or views.render is Renderer.OPENCV:
        return False
    return views.render is Renderer.TENSORS or device.type != "cpu"


def check_renderer(render: Any) -> None:
    """Raise unless this is a `Renderer`."""
    if not isinstance(render, Renderer):
        names = ", ".join(map(str, Renderer))
        raise FairTTAError(f"`render` should be one of {names} (got {render!r}).")
