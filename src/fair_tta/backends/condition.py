"""Whether the weights of a model are there, and in one precision; if not, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

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
    """What a tower raises because of its weights is a `ModelError` that says what to do.

    Everything else stays what it is: it may be about one picture only.
    """
    try:
        yield
    except RuntimeError as error:
        advice = remedy(model, str(error))
        if not advice:
            raise
        raise ModelError(f"{tower} fails: {error}{advice}") from error


def remedy(model: nn.Module, error: str) -> str:
    """What to do if an error comes of weights in several precisions or places; else empty."""
    weights = [p for p in model.parameters() if p.is_floating_point() and p.ndim > 0]
    kinds = sorted({str(p.dtype).removeprefix("torch.") for p in weights})
    places = sorted({str(p.device) for p in weights})
    if len(kinds) > 1 and "type" in error:
        advice = "give all one precision, as `model.float()` does"
        return f" (Its weights are in {' and '.join(kinds)}: {advice}.)"
    if len(places) > 1 and "device" in error:
        advice = "bring all to one, as `model.to('cpu')` does"
        return f" (Its weights are on {' and '.join(places)}: {advice}.)"
    return ""
