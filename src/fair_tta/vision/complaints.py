"""What to call an image in a message, and why it cannot be read."""

from __future__ import annotations

import os

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from fair_tta.vision.files import NotRegularError


def describe(image: object) -> str:
    """What to call it."""
    if isinstance(image, str):
        return repr(image[:500])
    if isinstance(image, bytes | bytearray | memoryview):
        return f"bytes of length {memoryview(image).nbytes}"
    if isinstance(image, np.ndarray | torch.Tensor):
        kind = "array" if isinstance(image, np.ndarray) else "tensor"
        if isinstance(image, torch.Tensor) and image.is_nested:
            return f"nested tensor of dtype {image.dtype}"  # whose shape is an error
        return f"{kind} of shape {tuple(image.shape)} and dtype {image.dtype}"
    if isinstance(image, Image.Image):
        path = getattr(image, "filename", "")
        return f"PIL image {os.fsdecode(path)!r}" if path else f"PIL image of mode {image.mode}"
    path = getattr(image, "name", None) if hasattr(image, "read") else None
    return f"{type(image).__name__} {path!r}" if isinstance(path, str) else type(image).__name__


def explain(error: Exception) -> str:
    """The reason, and what to do about it."""
    if isinstance(error, FileNotFoundError):
        return "no such file. Check the path and the working directory"
    if isinstance(error, NotRegularError):
        return "it is a pipe, a socket or a device. Save the picture to a file first"
    if isinstance(error, IsADirectoryError):
        return "it is a directory. Pass the image files in it"
    if isinstance(error, PermissionError):
        return "permission denied. Make it a file that this user may read"
    if isinstance(error, Image.DecompressionBombError):
        return f"{error} Shrink it, or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it"
    if isinstance(error, UnidentifiedImageError):
        return "not an image format that PIL knows, or damaged. Convert it to PNG, or get it again"
    reason = getattr(error, "strerror", None) or error
    return f"{reason} ({type(error).__name__}). If it is damaged or cut short, get it again"
