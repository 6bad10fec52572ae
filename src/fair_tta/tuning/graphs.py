"""What a graph of autograd holds on to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from torch import Tensor


def graph_bytes(result: Tensor, weights: Iterable[Tensor]) -> int:
    """Bytes that the graph behind a result keeps alive.

    Args:
        result: of a computation that autograd has noted.
        weights: tensors that are there anyway.
    """
    found: dict[int, int] = {}
    names: dict[type, list[str]] = {}  # `dir` is slow, and a tower has few kinds of nodes
    nodes, seen = [result.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
            kind = type(node)
            if kind not in names:
                names[kind] = [n for n in dir(node) if n.startswith(("_saved_", "saved_tensors"))]
            for storage in map(_storage, _saved(node, names[kind])):
                found[storage.data_ptr()] = storage.nbytes()
    known = {_storage(weight).data_ptr() for weight in weights}
    return sum(size for place, size in found.items() if place not in known)


def _saved(node: Any, names: list[str]) -> Iterator[Tensor]:
    for name in names:
        value = None
        with suppress(RuntimeError):  # let go already
            value = getattr(node, name)
        values = value if isinstance(value, tuple) else (value,)
        yield from (tensor for tensor in values if isinstance(tensor, Tensor))


def _storage(tensor: Tensor) -> Any:
    return tensor.untyped_storage()
