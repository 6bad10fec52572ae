"""CLIP models of different libraries behind one protocol; no prompts, no methods."""

from fair_tta.models._load import resolve
from fair_tta.models._open_clip import OpenClipBackend
from fair_tta.models._transformers import TransformersBackend
from fair_tta.models.protocol import Backend, Tokens

__all__ = ["Backend", "OpenClipBackend", "Tokens", "TransformersBackend", "resolve"]
