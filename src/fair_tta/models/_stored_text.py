"""Text features that the user has already, in place of a model."""

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
    """Whether a model has a vision tower; all but text towers and tables of text features have."""
    return getattr(backend, "sees_images", True)


def refuse_images(*_: object, **__: object) -> NoReturn:
    """Refuse images."""
    raise ModelError(
        "there is no image encoder here: pass the features of the images, Features(array)."
    )


def refuse_missing_scale(name: str) -> NoReturn:
    """Refuse a text tower that does not know its temperature."""
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
            raise FairTTAError(
                "`text_features` should be {prompt: vector} (got "
                f"{'none' if isinstance(features, Mapping) else type(features).__name__}).",
                argument="text_features",
            )
        self._rows = {sentence: row for row, sentence in enumerate(features)}
        self.scale = scale
        self.model = nn.Module()  # by which its content is known
        given = [_as_tensor(sentence, values) for sentence, values in features.items()]
        kinds = {each.dtype for each in given if each.dtype.is_floating_point}
        self.dtype = least_precise_dtype(torch.float32, *kinds)
        vectors = [
            _vector(sentence, each)
            for sentence, each in zip(features, given, strict=True)
        ]
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
        """Where the table is."""
        device: torch.device = self._features.device
        return device

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Rows of sentences, ``[sentences, 1]``."""
        missing = [text for text in texts if text not in self._rows]
        if missing:
            near = get_close_matches(missing[0], self._rows, 3, 0)
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise PromptError(
                f"`text_features` should have the prompts {', '.join(map(repr, missing[:5]))}{more}"
                f" (nearest to the first: {', '.join(map(repr, near))}).",
                argument="text_features",
            )
        ids = torch.tensor([[self._rows[text]] for text in texts], device=self.device)
        return Tokens(ids, torch.ones_like(ids, dtype=torch.bool))

    def encode_text(self, tokens: Tokens) -> Tensor:
        """The rows, ``[sentences, dim]``."""
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
    # numbers in half precision keep their dtype, which tells how many digits they have
    is_half = isinstance(values, np.ndarray) and values.dtype == np.float16
    try:
        return torch.as_tensor(np.array(values, np.float16 if is_half else np.float32))
    except (TypeError, ValueError) as error:
        raise FairTTAError(
            f"`text_features[{sentence!r}]` should be a vector: {error}.",
            argument="text_features",
        ) from error


def _vector(sentence: str, values: Tensor) -> Tensor:
    vector = values.to("cpu", torch.float32)
    if vector.ndim != 1 or not bool(vector.isfinite().all() and vector.any()):
        raise FairTTAError(
            f"`text_features[{sentence!r}]` should be one row of finite numbers, not all zero (got "
            f"shape {list(vector.shape)}).",
            argument="text_features",
        )
    return vector
