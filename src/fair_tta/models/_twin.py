"""Copies of a tower that can run with other weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from fair_tta.errors import TowerError

TowerCall = Callable[[Any, Tensor], Tensor]


class CallModule(nn.Module):
    """A module whose forward is the call of a tower, as `functional_call` needs."""

    def __init__(self, model: nn.Module, call: TowerCall) -> None:
        super().__init__()
        self.model = model
        self._call = call

    def forward(self, inputs: Tensor) -> Tensor:
        return self._call(self.model, inputs)


def image_twin(model: nn.Module, call: TowerCall) -> nn.Module:
    """Return a private module from pixels to features, in eval mode.

    `torch.func.functional_call` puts other weights into modules while it runs, which other threads
    would see. A twin has its own modules, and shares the memory of the weights, so it takes next
    to none. Make one per call: it does not notice when the model gets other tensors.
    """
    # `deepcopy` takes what its memo has under an object's id instead of copying the object.
    memo: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    for weight in model.parameters():
        is_plain = type(weight) is nn.Parameter  # quantised ones are not
        memo[id(weight)] = (
            nn.Parameter(weight.detach(), requires_grad=False) if is_plain else weight
        )
    # Modules of foreign code may hold anything, such as locks.
    try:
        return CallModule(copy.deepcopy(model, memo), call).eval()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise TowerError(f"its modules cannot be copied ({reason})") from error
