"""Prompts that begin alike share the work on what they have in common.

In a causal text tower a token sees only those before it, so the hidden states of "a photo of a"
are the same in every prompt that begins so, as long as the context is the same. Prompts are laid
out as a tree, each distinct beginning once, and the tower's blocks run on the nodes of the tree
with a mask that lets a node see the nodes above it. Positions are added before the blocks and the
prompt is read off after them, by the model itself, on ordinary prompts.

Which layers are the blocks is found out by looking at a call, and whether the result is right by
comparing features. A tower that does not play along runs as always.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fair_tta.models._backend import Tokens

_MASKS = {"attn_mask": (), "attention_mask": (1, 1)}
"""What blocks call their mask, and the dimensions it has before ``[length, length]``."""
_CAUSAL = "causal_attention_mask"
"""A second mask, which blocks of transformers 4 add to theirs."""


def _states(output: Any) -> Any:
    """The hidden states that a block gives: by themselves, or as the first of several things."""
    return output[0] if isinstance(output, tuple) and output else output


@dataclass(frozen=True)
class PromptTree:
    """Prompts as ways from the root of a tree, a node for each distinct beginning.

    Attributes:
        paths: ``[prompts, length]``, the node of each token; padding has that of the last token.
        first: ``[nodes]``, the first token of each node, counted row by row.
        mask: ``[nodes, nodes]``, 0 where the second is on the way to the first, else -infinity.
    """

    paths: Tensor
    first: Tensor
    mask: Tensor

    @classmethod
    def from_tokens(cls, tokens: Tokens, slots: Tensor) -> PromptTree:
        """The tree of prompts in which equal ids in equal slots stand for equal vectors."""
        nodes: dict[tuple[int, int, int], int] = {}
        first: list[int] = []
        ways: list[list[int]] = []
        paths = []
        length = tokens.ids.shape[1]
        rows = zip(
            tokens.ids.tolist(), slots.tolist(), tokens.mask.tolist(), strict=True
        )
        for row, columns in enumerate(rows):
            path: list[int] = []
            for column, (token, slot, is_real) in enumerate(zip(*columns, strict=True)):
                last = path[-1] if path else -1
                node = (
                    nodes.setdefault((last, token, slot), len(nodes))
                    if is_real
                    else last
                )
                path.append(node)
                if node == len(first):
                    first.append(row * length + column)
                    ways.append(path.copy())
            paths.append(path)
        mask = torch.full((len(first), len(first)), -torch.inf, device="cpu")
        for node, way in enumerate(ways):
            mask[node, way] = 0
        device = tokens.ids.device
        return cls(
            torch.tensor(paths, device=device),
            torch.tensor(first, device=device),
            mask.to(device),
        )


class Sharing:
    """The blocks of a text tower, to be run on trees of prompts.

    Blocks are layers that `caller` calls one after another with hidden states and a mask, which
    they call `mask`; they are looked at anew each time, as some may be exchanged.
    """

    def __init__(self, blocks: nn.ModuleList, mask: str, caller: nn.Module) -> None:
        self._blocks = blocks
        self._caller = caller
        self._mask = mask
        self._names = [*inspect.signature(blocks[0].forward).parameters]

    @property
    def is_recomputed(self) -> bool:
        """Whether blocks run once more on the way back, where they would not know of the tree.

        So open_clip's `set_grad_checkpointing` asks for it; transformers does so in training only.
        """
        return bool(getattr(self._caller, "grad_checkpointing", False))

    @contextmanager
    def on(self, tree: PromptTree) -> Iterator[None]:
        """While it lasts, the tower takes the prompts of the tree, all of them once or more."""
        mask = tree.mask.reshape(*_MASKS[self._mask], *tree.mask.shape)
        blocks = list(self._blocks)

        def enter(block: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
            given = {**dict(zip(self._names, args, strict=False)), **kwargs}
            states = given.pop(self._names[0])
            if block is blocks[0]:
                states = states.reshape(-1, tree.paths.numel(), states.shape[-1])
                states = states.index_select(1, tree.first)
            given |= {
                name: None for name in given if name == _CAUSAL
            }  # ours says it already
            return (states,), {**given, self._mask: mask.to(states)}

        def leave(_block: nn.Module, _args: Any, output: Any) -> Any:
            states = _states(output)
            along = states.index_select(1, tree.paths.flatten())
            along = along.reshape(-1, tree.paths.shape[1], states.shape[-1])
            return along if isinstance(output, Tensor) else (along, *output[1:])

        with ExitStack() as hooks:
            for block in blocks:
                hooks.enter_context(
                    block.register_forward_pre_hook(enter, with_kwargs=True)
                )
            hooks.enter_context(blocks[-1].register_forward_hook(leave))
            yield


def find_sharing(
    root: nn.Module, call: Callable[[], object], shape: torch.Size
) -> Sharing | None:
    """The blocks among the layers of a model; `call` runs its text tower on prompts of `shape`."""
    order: list[nn.Module] = []

    def watch(module: nn.Module, args: Any, output: Any) -> None:
        states = args[0] if args else None
        if all(
            isinstance(x, Tensor) and x.shape[:-1] == shape
            for x in (states, _states(output))
        ):
            order.append(module)

    lists = [module for module in root.modules() if isinstance(module, nn.ModuleList)]
    with ExitStack() as hooks:
        for layer in {layer for one in lists for layer in one}:
            hooks.enter_context(layer.register_forward_hook(watch))
        call()
    for one in lists:
        blocks = list(one)
        if blocks and [layer for layer in order if layer in set(blocks)] == blocks:
            names = inspect.signature(blocks[0].forward).parameters
            mask = next((name for name in _MASKS if name in names), None)
            caller = next((m for m in root.modules() if one in m.children()), root)
            return None if mask is None else Sharing(one, mask, caller)
    return None
