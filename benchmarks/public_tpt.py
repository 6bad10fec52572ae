"""TPT as the public code does it, for one image on an open_clip model: what ours is compared with.

Views are made one by one with PIL, prompts have all 77 tokens, the text tower goes forward and back
for each image and forward again for the answer, and the image is encoded once more for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from augmix_reference import reference_views
from PIL import Image
from torch import Tensor


class PublicTPT:
    """Args: an open_clip `CLIP`, its preprocessing and tokenizer, and names of classes."""

    def __init__(
        self, model: Any, preprocess: Any, tokenizer: Any, names: list[str]
    ) -> None:
        self.model, self.preprocess = model, preprocess
        with torch.no_grad():
            self.ids = tokenizer([f"a photo of a {name}." for name in names])
            self.embedded = model.token_embedding(self.ids)
        self.context = self.embedded[0, 1:5].clone()  # "a photo of a"

    def __call__(self, image: Image.Image, seed: int, views: int = 64) -> Tensor:
        other_views = reference_views(
            image, views, (224, 224), np.random.default_rng(seed)
        )
        first = self.preprocess(image)[None]
        context = self.context.clone().requires_grad_()
        optimizer = torch.optim.AdamW([context], lr=5e-3)
        logits = self._logits(torch.cat([first, other_views]), context)
        entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
        kept = logits[entropy.argsort()[: int(views * 0.1)]]
        mean = kept.log_softmax(1).logsumexp(0) - np.log(len(kept))
        loss = -(mean * mean.exp()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            return self._logits(first, context).softmax(1)[0]

    def _logits(self, pixels: Tensor, context: Tensor) -> Tensor:
        with torch.no_grad():
            images = self.model.encode_image(pixels, normalize=True)
        rows = context.expand(len(self.ids), -1, -1)
        x = torch.cat([self.embedded[:, :1], rows, self.embedded[:, 5:]], 1)
        x = self.model.transformer(
            x + self.model.positional_embedding, attn_mask=self.model.attn_mask
        )
        x = self.model.ln_final(x)[torch.arange(len(x)), self.ids.argmax(-1)]
        texts = torch.nn.functional.normalize(x @ self.model.text_projection, dim=-1)
        return 100.0 * images @ texts.T
