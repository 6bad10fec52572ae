"""CLIP models of different libraries behind one protocol; no prompts, no methods."""

from fair_tta.models._backend import Backend, Tokens
from fair_tta.models._loading import resolve
from fair_tta.models._open_clip import OpenClipBackend
from fair_tta.models._transformers import TransformersBackend

__all__ = ["Backend", "OpenClipBackend", "Tokens", "TransformersBackend", "resolve"]
