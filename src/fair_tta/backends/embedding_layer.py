"""The layer of a text tower that turns token ids into vectors: find it, and answer in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fair_tta.backends.protocol import Tokens
from fair_tta.errors import TowerError

TextCall = Callable[[Tensor, Any], Tensor]
"""``(ids [prompts, length], mask [prompts, length] or None) -> features [prompts, dim]``"""


@torch.no_grad()
def find_embedding(root: nn.Module, call: TextCall, probe: Tokens) -> tuple[nn.Module | None, str]:
    """The layer that turns the ids, and nothing else, into ``[prompts, length, width]``."""
    found: list[nn.Module] = []

    def watch(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        takes_ids = (
            bool(args)
            and isinstance(args[0], Tensor)
            and args[0].shape == probe.ids.shape
            and not args[0].is_floating_point()
            and bool((args[0] == probe.ids).all())
        )
        gives_vectors = isinstance(output, Tensor) and output.shape[:-1] == probe.ids.shape
        if takes_ids and gives_vectors and output.is_floating_point():
            found.append(module)

    handles = [module.register_forward_hook(watch) for module in root.modules()]
    try:
        call(probe.ids, probe.mask)
    finally:
        for handle in handles:
            handle.remove()
    # NLLB's table of positions takes the ids too, and a wrapper (LoRA) contains the table it wraps.
    tables = [layer for layer in dict.fromkeys(found) if _ignores_position(layer, probe.ids)]
    outermost = [a for a in tables if not any(a is not b and a in b.modules() for b in tables)]
    if len(outermost) == 1:
        return outermost[0], ""
    return None, (
        "no layer turns its token ids into embeddings"
        if not outermost
        else f"{len(outermost)} layers turn its token ids into embeddings"
    )


def _ignores_position(layer: nn.Module, ids: Tensor) -> bool:
    """Whether a token has the same vector wherever it stands, as in a table of tokens."""
    here: Tensor = layer(ids)
    there: Tensor = layer(ids.flip(1))
    return agree(here, there.flip(1))


def agree(a: Tensor, b: Tensor) -> bool:
    """Equal up to the rounding of their dtype, relative to the size of the features."""
    tolerance = 1e-4 if a.dtype in (torch.float32, torch.float64) else 5e-2
    a, b = a.cpu().double(), b.cpu().double()
    return bool((a - b).norm() <= tolerance * b.norm())


@contextmanager
def output_replaced(layer: nn.Module, ids: Tensor, value: Tensor) -> Iterator[None]:
    """While it lasts, the layer turns these ids into this value; `TowerError` if nobody asked."""
    used = False

    def replace(_module: nn.Module, _args: Any, output: Tensor) -> Tensor | None:
        nonlocal used
        if output.shape[:-1] != ids.shape:
            return None
        used = True
        return value.to(output.dtype, copy=True)  # BLIP adds positions in place

    handle = layer.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()
    if not used:
        raise TowerError("the text tower did not ask its embedding layer for the prompts")
