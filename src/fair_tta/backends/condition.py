"""Whether the weights of a model are there, and in one precision; if not, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

from fair_tta.errors import ModelError


def check_present(model: nn.Module) -> None:
    """Raise `ModelError` if some weights are elsewhere: on the meta device there are no numbers."""
    tensors = chain(model.named_parameters(), model.named_buffers())
    absent = next((name for name, tensor in tensors if tensor.is_meta), None)
    if absent is None:
        return
    is_offloaded = any(hasattr(module, "_hf_hook") for module in model.modules())
    why, what = (
        ("accelerate has moved them out", "without `device_map` and offloading")
        if is_offloaded
        else ("they are on the meta device", "with its weights, on a CPU or GPU")
    )
    raise ModelError(
        f"the weights of `model` ({type(model).__name__}) are not there, such as {absent!r}: "
        f"{why}. Load it {what}."
    )


@contextmanager
def explained(model: nn.Module, tower: str) -> Iterator[None]:
    """What a tower raises is a `ModelError`; out of memory stays what it is."""
    try:
        yield
    except ModelError:
        raise
    except (RuntimeError, TypeError, IndexError, AttributeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise ModelError(f"{tower} fails: {error}{remedy(model)}") from error


def remedy(model: nn.Module) -> str:
    """A sentence on what to do about weights in several precisions or places; else empty."""
    weights = [p for p in model.parameters() if p.is_floating_point()]
    kinds = sorted({str(p.dtype).removeprefix("torch.") for p in weights})
    places = sorted({str(p.device) for p in weights})
    if len(kinds) > 1:
        advice = "give all one precision, as `model.float()` does"
        return f" (Its weights are in {' and '.join(kinds)}: {advice}.)"
    if len(places) > 1:
        advice = "bring all to one, as `model.to('cpu')` does"
        return f" (Its weights are on {' and '.join(places)}: {advice}.)"
    return ""
