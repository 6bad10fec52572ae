"""A hash of a model's weights."""

from __future__ import annotations

from hashlib import sha256

import torch
from torch import Tensor, nn


def weights_hash(model: nn.Module) -> str | None:
    """SHA-256 of all weights and buffers with their names, dtypes and shapes.

    The same on every device. None for weights that are not there to be read (meta tensors) or are
    not plain tensors.
    """
    digest = sha256()
    try:
        for name, tensor in sorted(model.state_dict().items()):
            if not isinstance(tensor, Tensor):
                continue  # extra state of a module
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            plain = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(plain.view(torch.uint8).numpy().data)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return digest.hexdigest()
