"""CLIP models of different libraries behind one protocol; no prompts, no methods."""

from fair_tta.models._backend import Backend as Backend
from fair_tta.models._backend import Tokens as Tokens
from fair_tta.models._loading import resolve as resolve
from fair_tta.models._open_clip import OpenClipBackend as OpenClipBackend
from fair_tta.models._transformers import TransformersBackend as TransformersBackend
