"""Text features that the user has already, instead of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from fair_tta._linalg import least_precise_dtype
from fair_tta.errors import FairTTAError, ModelError, PromptError, TowerError
from fair_tta.models._backend import Tokens


def sees_images(backend: object) -> bool:
    """Return whether a model has a vision tower, unlike text towers and stored text features."""
    return getattr(backend, "sees_images", True)


def refuse_images(*_: object, **__: object) -> NoReturn:
    """Raise `ModelError`, as an image encoder that does not exist."""
    raise ModelError(
        "there is no image encoder here: pass the features of the images, Features(array)."
    )


def refuse_missing_scale(name: str) -> NoReturn:
    """Raise `ModelError` for a text tower that does not know its temperature."""
    raise ModelError(
        f"{name} has no logit scale: pass `scale`, exp(logit_scale) of the whole model."
    )


class TextTable:
    """A backend of stored text features: a sentence is one token, the number of its row.

    Args:
        features: ``{sentence: [dim]}``
        scale: inverse temperature.
    """

    name = "stored text features"
    sees_images = False

    def __init__(self, features: Mapping[str, Any], scale: float) -> None:
        if not isinstance(features, Mapping) or not features:
            is_mapping = isinstance(features, Mapping)
            received = "none" if is_mapping else type(features).__name__
            raise FairTTAError(
                f"`text_features` should be {{prompt: vector}} (got {received}).",
                argument="text_features",
            )
        self._rows = {sentence: row for row, sentence in enumerate(features)}
        self.scale = scale
        self.model = nn.Module()  # its buffer identifies the content of this table
        # Vectors are compared in float32; the dtype is the one in which they were stored.
        tensors = {text: _as_tensor(text, values) for text, values in features.items()}
        dtypes = {tensor.dtype for tensor in tensors.values()}
        floating = [dtype for dtype in dtypes if dtype.is_floating_point]
        self.dtype = least_precise_dtype(torch.float32, *floating)

        vectors = [_check_vector(text, tensor) for text, tensor in tensors.items()]
        sizes = sorted({len(vector) for vector in vectors})
        if len(sizes) > 1:
            raise FairTTAError(
                f"`text_features` should all have one dimension (got {sizes}).",
                argument="text_features",
            )
        self.model.register_buffer("features", torch.stack(vectors))
        self._features: Any = self.model.features

    @property
    def device(self) -> torch.device:
        """Device of the table."""
        device: torch.device = self._features.device
        return device

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Return the row of each sentence, ``[sentences, 1]``."""
        # There is no tower to encode any other prompt.
        missing = [text for text in texts if text not in self._rows]
        if missing:
            listed = ", ".join(repr(text) for text in missing[:5])
            if len(missing) > 5:
                listed += f" and {len(missing) - 5} more"
            nearest = get_close_matches(missing[0], self._rows, n=3, cutoff=0)
            raise PromptError(
                f"`text_features` should have the prompts {listed} (nearest to the first: "
                f"{', '.join(map(repr, nearest))}).",
                argument="text_features",
            )
        ids = torch.tensor([[self._rows[text]] for text in texts], device=self.device)
        return Tokens(ids, torch.ones_like(ids, dtype=torch.bool))

    def encode_text(self, tokens: Tokens) -> Tensor:
        """Return the features, ``[sentences, dim]``."""
        features: Tensor = self._features[tokens.ids[:, 0]]
        return features

    def embed_tokens(self, ids: Tensor) -> Tensor:
        """Raise an error: there is no text tower."""
        raise TowerError("stored text features have no text tower that could be tuned")

    def encode_prompts(self, tokens: Tokens, embeddings: Tensor) -> Tensor:
        """Raise an error: there is no text tower."""
        return self.embed_tokens(tokens.ids)

    encode_images = refuse_images


def _as_tensor(sentence: str, values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    # Half precision keeps its dtype, from which the rounding of the features is known.
    is_half = isinstance(values, np.ndarray) and values.dtype == np.float16
    try:
        return torch.as_tensor(np.array(values, np.float16 if is_half else np.float32))
    except (TypeError, ValueError) as error:
        raise FairTTAError(
            f"`text_features[{sentence!r}]` should be a vector: {error}.",
            argument="text_features",
        ) from error


def _check_vector(sentence: str, values: Tensor) -> Tensor:
    """Return a vector in float32 on the CPU; raise `FairTTAError` if it is not usable."""
    vector = values.to("cpu", torch.float32)
    if vector.ndim != 1 or not bool(vector.isfinite().all() and vector.any()):
        raise FairTTAError(
            f"`text_features[{sentence!r}]` should be one row of finite numbers, not all zero (got "
            f"shape {list(vector.shape)}).",
            argument="text_features",
        )
    return vector
