"""A model beside a model: modules of its own over the same numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from fair_tta.errors import TowerError

ImageCall = Callable[[Any, Tensor], Tensor]
"""``(model, pixels [images, 3, height, width]) -> features [images, dim]``"""


class _ImageModule(nn.Module):
    """`functional_call` needs a module whose forward is the image call."""

    def __init__(self, model: nn.Module, call: ImageCall) -> None:
        super().__init__()
        self.model = model
        self._call = call

    def forward(self, pixels: Tensor) -> Tensor:
        return self._call(self.model, pixels)


def image_twin(model: nn.Module, call: ImageCall) -> nn.Module:
    """A module from pixels to features, in eval mode, that nobody else runs.

    `torch.func.functional_call` puts other weights into modules while it lasts, which every thread
    that runs them would see. Those of a twin are nobody else's, so that the model is not touched
    at all; and since no number is copied, a twin takes next to no memory. It is made for one call:
    it does not notice when tensors of the model are exchanged for others.

    Args:
        model: the model.
        call: its own image features.

    Raises:
        TowerError: its modules cannot be copied.
    """
    shared: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    for weight in model.parameters():
        is_plain = type(weight) is nn.Parameter  # quantised ones are not
        shared[id(weight)] = nn.Parameter(weight.detach(), False) if is_plain else weight
    try:
        return _ImageModule(copy.deepcopy(model, shared), call).eval()
    except Exception as error:  # modules may hold anything
        reason = f"{type(error).__name__}: {error}"
        raise TowerError(f"its modules cannot be copied ({reason})") from error
