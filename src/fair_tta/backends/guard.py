"""Borrow the user's model and give it back as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn


@contextmanager
def untouched(module: nn.Module | None = None) -> Iterator[None]:
    """Run a block in eval mode; afterwards train/eval flags and global random states are as before.

    Tensors made inside can enter autograd later, also if the caller is in `torch.inference_mode`.
    Weights, `requires_grad`, dtype and device are never changed by the library at all: gradients
    are taken with respect to the context only.
    """
    training = [] if module is None else [m for m in module.modules() if m.training]
    cuda = torch.cuda.is_initialized()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if cuda else []
    try:
        for m in training:
            m.training = False
        grad = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.set_grad_enabled(grad):
            yield
    finally:
        for m in training:
            m.training = True
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(cuda_states)
