"""Borrow the user's model and give it back as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

_locks: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()  # an RLock for each model


@contextmanager
def untouched(module: nn.Module | None = None) -> Iterator[None]:
    """Run a block in eval mode; afterwards train/eval flags and global random states are as before.

    One thread at a time may borrow a model. Tensors made inside can enter autograd later, also if
    the caller is in `torch.inference_mode`; a caller's autocast does not reach inside, because
    answers must not depend on it. Weights, `requires_grad`, dtype and device are never changed by
    the library at all: gradients are taken with respect to the context only.
    """
    parameter = None if module is None else next(module.parameters(), None)
    device = "cpu" if parameter is None else parameter.device.type
    with nullcontext() if module is None else _locks.setdefault(module, RLock()):
        training = [] if module is None else [m for m in module.modules() if m.training]
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
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
            random.setstate(states[0])
            np.random.set_state(states[1])
            torch.set_rng_state(states[2])
            if cuda_states:
                torch.cuda.set_rng_state_all(cuda_states)
