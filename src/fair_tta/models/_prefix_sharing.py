"""Shared work on the common beginnings of prompts.

In a causal text tower a token sees only those before it, so the hidden states of "a photo of a"
are the same in every prompt that begins so, as long as the context is the same. Prompts are laid
out as a tree, each distinct beginning once, and the tower's blocks run on the nodes of the tree
with a mask that lets a node see the nodes above it. Before the blocks the model itself adds
positions to ordinary prompts, and after them it reads features off ordinary prompts.

Which layers are the blocks is found by watching a call, and whether the result is right by
comparing features. A tower for which this fails runs as always.
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

# Names of the mask of a block, with the dimensions that it has before [length, length].
_MASK_DIMENSIONS = {"attn_mask": (), "attention_mask": (1, 1)}
# A second mask, which blocks of transformers 4 add to theirs.
_CAUSAL_MASK = "causal_attention_mask"


def _states(output: Any) -> Any:
    """Return the hidden states in the output of a block, which may be the first of a tuple."""
    return output[0] if isinstance(output, tuple) and output else output


@dataclass(frozen=True)
class PromptTree:
    """Prompts as paths from the root of a tree, which has a node for each distinct beginning.

    Attributes:
        paths: ``[prompts, length]``, the node of each token; padding has that of the last token.
        first: ``[nodes]``, the first token of each node, as an index into the flattened prompts.
        mask: ``[nodes, nodes]``, 0 where the second is on the path to the first, else -infinity.
    """

    paths: Tensor
    first: Tensor
    mask: Tensor

    @classmethod
    def from_tokens(cls, tokens: Tokens, slots: Tensor) -> PromptTree:
        """Return the tree of prompts in which equal ids in equal slots stand for equal vectors."""
        length = tokens.ids.shape[1]
        nodes: dict[tuple[int, int, int], int] = {}  # by parent, token and slot
        first: list[int] = []
        paths: list[list[int]] = []
        paths_to_nodes: list[list[int]] = []
        prompts = zip(
            tokens.ids.tolist(), slots.tolist(), tokens.mask.tolist(), strict=True
        )
        for row, prompt in enumerate(prompts):
            path: list[int] = []
            for column, (token, slot, is_real) in enumerate(zip(*prompt, strict=True)):
                node = path[-1] if path else -1
                if is_real:
                    node = nodes.setdefault((node, token, slot), len(nodes))
                path.append(node)
                is_new = node == len(first)
                if is_new:
                    first.append(row * length + column)
                    paths_to_nodes.append(path.copy())
            paths.append(path)

        mask = torch.full((len(first), len(first)), -torch.inf, device="cpu")
        for node, path in enumerate(paths_to_nodes):
            mask[node, path] = 0
        device = tokens.ids.device
        return cls(
            torch.tensor(paths, device=device),
            torch.tensor(first, device=device),
            mask.to(device),
        )


class Sharing:
    """The blocks of a text tower, to be run on trees of prompts.

    Args:
        blocks: layers that `caller` calls one after another with hidden states and a mask. They
            are looked up in each call, as some may be exchanged.
        mask_name: the parameter of a block that is the mask.
        caller: the module that runs the blocks.
    """

    def __init__(
        self, blocks: nn.ModuleList, mask_name: str, caller: nn.Module
    ) -> None:
        self._blocks = blocks
        self._caller = caller
        self._mask_name = mask_name
        self._parameter_names = list(inspect.signature(blocks[0].forward).parameters)

    @property
    def is_recomputed(self) -> bool:
        """True if blocks run again in the backward pass, where they would not know of the tree.

        open_clip's `set_grad_checkpointing` asks for it; transformers does it in training only.
        """
        return bool(getattr(self._caller, "grad_checkpointing", False))

    @contextmanager
    def on(self, tree: PromptTree) -> Iterator[None]:
        """Run the blocks on a tree; the tower then takes all its prompts, once or more."""
        mask = tree.mask.reshape(*_MASK_DIMENSIONS[self._mask_name], *tree.mask.shape)
        blocks = list(self._blocks)

        def enter(block: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
            arguments = dict(zip(self._parameter_names, args, strict=False)) | kwargs
            states = arguments.pop(self._parameter_names[0])
            # The first block gets the states of nodes instead of those of all tokens.
            if block is blocks[0]:
                states = states.reshape(-1, tree.paths.numel(), states.shape[-1])
                states = states.index_select(1, tree.first)
            if _CAUSAL_MASK in arguments:  # the mask of the tree is causal already
                arguments[_CAUSAL_MASK] = None
            arguments[self._mask_name] = mask.to(states)
            return (states,), arguments

        def leave(_block: nn.Module, _args: Any, output: Any) -> Any:
            # After the last block each token has the states of its node.
            states = _states(output)
            expanded = states.index_select(1, tree.paths.flatten())
            expanded = expanded.reshape(-1, tree.paths.shape[1], states.shape[-1])
            return expanded if isinstance(output, Tensor) else (expanded, *output[1:])

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
    """Return the blocks of a text tower, which `call` runs on prompts of this shape.

    They are a list of layers that are called in order, each once, from hidden states to hidden
    states.
    """
    called: list[nn.Module] = []

    def is_states(output: Any) -> bool:
        return isinstance(output, Tensor) and output.shape[:-1] == shape

    def watch(module: nn.Module, args: Any, output: Any) -> None:
        if args and is_states(args[0]) and is_states(_states(output)):
            called.append(module)

    module_lists = [m for m in root.modules() if isinstance(m, nn.ModuleList)]
    listed_layers: set[nn.Module] = set()
    for module_list in module_lists:
        listed_layers.update(module_list)
    with ExitStack() as hooks:
        for layer in listed_layers:
            hooks.enter_context(layer.register_forward_hook(watch))
        call()
    # Some layers of other lists may have states too, such as those inside the blocks.
    for module_list in module_lists:
        blocks = list(module_list)
        if blocks and [layer for layer in called if layer in set(blocks)] == blocks:
            return _sharing_of(module_list, root)
    return None


def _sharing_of(module_list: nn.ModuleList, root: nn.Module) -> Sharing | None:
    """Return None if the blocks have no mask that is known."""
    names = inspect.signature(module_list[0].forward).parameters
    mask_name = next((name for name in _MASK_DIMENSIONS if name in names), None)
    if mask_name is None:
        return None
    callers = (module for module in root.modules() if module_list in module.children())
    return Sharing(module_list, mask_name, next(callers, root))
