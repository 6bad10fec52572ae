"""CLIP models of different libraries behind one protocol; no prompts, no methods."""

from fair_tta._models.load import resolve
from fair_tta._models.open_clip import OpenClipBackend
from fair_tta._models.protocol import Backend, Tokens
from fair_tta._models.transformers import TransformersBackend

__all__ = ["Backend", "OpenClipBackend", "Tokens", "TransformersBackend", "resolve"]
