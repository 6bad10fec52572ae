"""Borrow the user's model and give it back as it was."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import current_thread, main_thread

import torch
from torch import nn

from fair_tta.backends.locks import lock_of


@contextmanager
def untouched(module: nn.Module | None = None) -> Iterator[None]:
    """Run a block in eval mode; afterwards train/eval flags are as before.

    One thread at a time may borrow a model. Tensors made inside can enter autograd later, also if
    the caller is in `torch.inference_mode`; a caller's autocast does not reach inside, because
    answers must not depend on it. Weights, `requires_grad`, dtype and device are never changed by
    the library at all: gradients are taken with respect to the context only. Nor are the global
    random states: we draw from generators of our own, and rewinding what the user's own code draws
    would rewind the numbers of other threads too.
    """
    parameter = None if module is None else next(module.parameters(), None)
    device = "cpu" if parameter is None else parameter.device.type
    with nullcontext() if module is None else lock_of(module):
        training = [] if module is None else [m for m in module.modules() if m.training]
        grad = torch.is_grad_enabled()
        try:
            for m in training:
                m.training = False
            with (
                torch.inference_mode(False),
                torch.set_grad_enabled(grad),
                torch.autocast(device, enabled=False),
            ):
                yield
        finally:
            for m in training:
                m.training = True


@contextmanager
def borrowed(backend: object) -> Iterator[nn.Module | None]:
    """`untouched` for the model of a backend, if it has one, and without gradients."""
    model = getattr(backend, "model", None)
    module = model if isinstance(model, nn.Module) else None
    with untouched(module), torch.no_grad():
        yield module


@contextmanager
def quiet(module: str = "") -> Iterator[None]:
    """While it lasts no warnings, in the main thread.

    Filters are those of all threads: what another thread sets or takes back, the caller's code
    would find or keep. What is done elsewhere warns as the caller's filters say.

    Args:
        module: a pattern of the names of modules whose warnings are meant; all of them if empty.
    """
    if current_thread() is not main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=module)
        yield
