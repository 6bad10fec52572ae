"""CLIP models of different libraries behind one protocol; no prompts, no methods."""

from fair_tta.backends.hf import TransformersBackend
from fair_tta.backends.openclip import OpenClipBackend
from fair_tta.backends.protocol import Backend, Tokens
from fair_tta.backends.resolve import resolve

__all__ = ["Backend", "OpenClipBackend", "Tokens", "TransformersBackend", "resolve"]
