"""The two towers of a model, whatever its library: text from embeddings, images from pixels.

One route serves every text tower: it is called as always, with ordinary ids, and a temporary
forward hook on its token-embedding layer returns our embeddings. Ids still drive masks, positions
and pooling. Which layer that is, and whether the padded tail may be cut, is found out by looking at
what the tower does with two sentences, not by its name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from fair_tta.errors import ModelError, PromptError, TowerError
from fair_tta.models._backend import Tokens
from fair_tta.models._model_lock import (
    advice_for,
    advise_on_error,
    computed_once,
    eval_mode_lock,
    ignore_warnings_of,
    image_twin,
)
from fair_tta.models._prefix_sharing import PromptTree, Sharing, find_sharing

_SAME = 0.02  # of the length of features: half precision differs by less

PROBE = ("a dog", "a black cat.")
"""Two short sentences of different length, to look at what a text tower does with them."""

TextCall = Callable[[Tensor, Any], Tensor]
"""``(ids [prompts, length], mask [prompts, length] or None) -> features [prompts, dim]``"""


@torch.no_grad()
def find_embedding(root: nn.Module, call: TextCall, probe: Tokens) -> nn.Module:
    """The layer that turns the ids, and nothing else, into ``[prompts, length, width]``."""
    found: list[nn.Module] = []

    def watch(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        ids = args[0] if args else None
        if isinstance(ids, Tensor) and isinstance(output, Tensor):
            takes_ids = ids.shape == probe.ids.shape and bool((ids == probe.ids).all())
            if takes_ids and output.shape[:-1] == ids.shape:
                found.append(module)

    with ExitStack() as hooks:
        for module in root.modules():
            hooks.enter_context(module.register_forward_hook(watch))
        call(probe.ids, probe.mask)
    # NLLB's table of positions takes the ids too, and a wrapper (LoRA) contains the table it wraps.
    tables = [
        layer
        for layer in dict.fromkeys(found)
        if features_agree(layer(probe.ids), layer(probe.ids.flip(1)).flip(1))
    ]
    outermost = [
        a for a in tables if not any(a is not b and a in b.modules() for b in tables)
    ]
    if not outermost:
        raise TowerError("no layer turns its token ids into embeddings")
    if len(outermost) > 1:
        raise TowerError(f"{len(outermost)} layers turn its token ids into embeddings")
    return outermost[0]


def features_agree(a: Tensor, b: Tensor) -> bool:
    """Equal up to the rounding of their dtype, relative to the size of the features."""
    tolerance = 1e-4 if a.dtype in (torch.float32, torch.float64) else 5e-2
    a, b = a.cpu().double(), b.cpu().double()
    return bool((a - b).norm() <= tolerance * b.norm())


@contextmanager
def output_replaced(layer: nn.Module, ids: Tensor, value: Tensor) -> Iterator[None]:
    """While it lasts, the layer turns these ids into this value; `TowerError` if nobody asked."""
    used = False

    def replace(_module: nn.Module, _args: Any, output: Tensor) -> Tensor | None:
        nonlocal used
        if output.shape[:-1] != ids.shape:
            return None
        used = True
        return value.to(output.dtype, copy=True)  # BLIP adds positions in place

    with layer.register_forward_hook(replace):
        yield
    if not used:
        raise TowerError(
            "the text tower did not ask its embedding layer for the prompts"
        )


class TextTower:
    """The text side of a backend: a text tower that can be fed with embeddings.

    Args:
        model: the module that holds the tower, which messages call `tower`.
        call: the model's own text features from ids and mask; must also take shortened ids.
        probe: at least one tokenised sentence, shorter than the full length.
        slack: how many columns of padding to keep when the tail is cut.
    """

    def __init__(
        self, model: Any, tower: str, call: TextCall, probe: Tokens, slack: int = 0
    ) -> None:
        self.model = model
        self._tower = f"the text tower {tower}"
        self._own_call = call
        self._slack = slack
        self._masked = True
        self.layer: nn.Module | None = (
            None  # turns ids into embeddings, which can be replaced
        )
        self.reason = ""  # why there is none
        self.cuts_tail = (
            False  # padding after the last real token is left out: exact here
        )
        self.sharing: Sharing | None = (
            None  # of the work on beginnings that prompts share
        )
        with eval_mode_lock(
            model
        ):  # ours alone, or hooks of two threads would see each other's calls
            self._explore(probe)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def embed_tokens(self, ids: Tensor) -> Tensor:
        """Token embeddings as the tower's own layer makes them, without gradient."""
        layer = self._require_layer()
        self._check_known(ids)
        with eval_mode_lock(self.model), torch.no_grad():
            embeddings: Tensor = layer(ids)
        return embeddings

    def shorten(self, tokens: Tokens) -> Tokens:
        """Leave out the padded tail where that is exact."""
        if not self.cuts_tail:
            return tokens
        length = used_length(tokens) + self._slack
        return Tokens(tokens.ids[:, :length], tokens.mask[:, :length])

    def encode_text(self, tokens: Tokens) -> Tensor:
        """The model's own features, with the tail cut where that is exact, without gradient."""
        self._check_known(tokens.ids)
        tokens = self.shorten(tokens)
        with torch.no_grad():
            return self._call(tokens.ids, tokens.mask)

    def encode_prompts(self, tokens: Tokens, embeddings: Tensor) -> Tensor:
        """Features of `embeddings` ``[prompts, length, width]`` standing in for `tokens`."""
        tokens = self.shorten(tokens)
        return self._encode_from(tokens, embeddings[:, : tokens.ids.shape[1]])

    def encode_episodes(
        self, tokens: Tokens, tree: PromptTree, embeddings: Tensor
    ) -> Tensor:
        """Features ``[episodes, prompts, dim]`` of the same prompts under several contexts.

        Tokens are shortened if they can be; `tree` is what the prompts have in common in each
        episode, and `embeddings` are ``[episodes, prompts, length, width]``.
        """
        episodes, sharing = len(embeddings), self.sharing
        on_tree = None if sharing is None or sharing.is_recomputed else sharing.on(tree)
        features = self._encode_from(
            tokens.repeat(episodes), embeddings.flatten(0, 1), on_tree
        )
        return features.reshape(episodes, len(tokens.ids), -1)

    def _call(self, ids: Tensor, mask: Tensor) -> Tensor:
        with eval_mode_lock(self.model):
            return self._own_call(ids, mask if self._masked else None)

    def _require_layer(self) -> nn.Module:
        if self.layer is None:
            raise TowerError(f"{self._tower} cannot be tuned: {self.reason}")
        return self.layer

    def _encode_from(
        self,
        tokens: Tokens,
        embeddings: Tensor,
        sharing: AbstractContextManager[None] | None = None,
    ) -> Tensor:
        replaced = output_replaced(self._require_layer(), tokens.ids, embeddings)
        with eval_mode_lock(self.model), replaced, sharing or nullcontext():
            return self._own_call(tokens.ids, tokens.mask if self._masked else None)

    def _explore(self, probe: Tokens) -> None:
        """Find out by a few calls what can be done with the tower."""
        # a tokenizer that was called under inference_mode gives tensors that autograd refuses
        probe = Tokens(probe.ids.clone(), probe.mask.clone())
        try:
            self.layer = find_embedding(self.model, self._call, probe)
            self._check_splice(probe)
            self.cuts_tail = self._tail_is_free(probe)
            self._check_gradient(self.shorten(probe))
        except TowerError as error:
            self.layer, self.reason = None, str(error)
        except ModelError:
            raise
        except (
            AttributeError,
            TypeError,
            RuntimeError,
            ValueError,
            IndexError,
        ) as error:
            advice = advice_for(self.model, str(error))
            if isinstance(error, IndexError):
                advice = " (The tokenizer may be damaged, or that of another model.)"
            raise ModelError(
                f"{self._tower} does not take sentences: {error}{advice}"
            ) from error
        if self.cuts_tail and self.layer is not None:
            self._masked = not self._mask_is_free(probe)
            self.sharing = self._find_sharing(probe)

    @torch.no_grad()
    def _check_splice(self, probe: Tokens) -> None:
        """Replacing embeddings by themselves must change nothing, replacing them by others must."""
        embeddings = self.embed_tokens(probe.ids)
        own = self._call(probe.ids, probe.mask)
        same = self._encode_from(probe, embeddings)
        other = self._encode_from(probe, embeddings.flip(-1))
        if not features_agree(same, own) or features_agree(other, own):
            raise TowerError("its features do not follow its token embeddings")

    def _check_gradient(self, probe: Tokens) -> None:
        """A gradient must come back from the features to the embeddings."""
        with (
            ignore_warnings_of(),
            torch.enable_grad(),
        ):  # quantised layers warn that they have no gradient
            leaf = self.embed_tokens(probe.ids).clone().requires_grad_()
            try:
                torch.autograd.grad(self._encode_from(probe, leaf).float().sum(), leaf)
            except (RuntimeError, Warning) as error:
                reason = (
                    f"no gradient comes through it ({str(error).partition('. ')[0]})"
                )
                if any(p.is_inference() for p in self.model.parameters()):
                    reason = "its weights were made under torch.inference_mode: load it outside it"
                elif any(
                    "quantized" in type(m).__module__ for m in self.model.modules()
                ):
                    reason = "its layers are quantised and give no gradient: load it in float"
                raise TowerError(reason) from error

    def _check_known(self, ids: Tensor) -> None:
        """A damaged tokenizer, or that of another model, may name tokens that are not there."""
        count = getattr(self.layer, "num_embeddings", None)
        if isinstance(count, int) and int(ids.max()) >= count:
            raise ModelError(
                f"the tokenizer does not belong to {self._tower}: it names token "
                f"{int(ids.max())}, and there are {count}. Get it again, or pass the model's own."
            )

    @torch.no_grad()
    def _tail_is_free(self, probe: Tokens) -> bool:
        """Do features ignore what stands in the tail, and stay the same when it is cut off?"""
        length = used_length(probe) + self._slack
        if length >= probe.ids.shape[1]:
            return False
        embeddings = self.embed_tokens(probe.ids)
        own = self._encode_from(probe, embeddings)
        noisy = embeddings.clone()
        noisy[:, length:] = 10 * embeddings[:, :1].flip(-1) + 1
        if not torch.allclose(
            self._encode_from(probe, noisy), own, rtol=1e-6, atol=1e-7
        ):
            return False
        # a lone sentence has no padding left at all, which some towers take for "no mask needed"
        for rows in (slice(None), slice(-1, None)):
            length = (
                used_length(Tokens(probe.ids[rows], probe.mask[rows])) + self._slack
            )
            short = Tokens(probe.ids[rows, :length], probe.mask[rows, :length])
            try:
                cut = self._encode_from(short, embeddings[rows, :length])
            except (
                RuntimeError,
                ValueError,
                IndexError,
            ):  # the tower takes its full length only
                return False
            if not features_agree(cut, own[rows]):
                return False
        return True

    @torch.no_grad()
    def _mask_is_free(self, probe: Tokens) -> bool:
        """Are features the same without a mask, as where a token sees none of those after it?

        Then there is no need for one, nor for the tower to wait for a device to read it.
        """
        own = self._call(probe.ids, probe.mask)
        self._masked = False
        try:
            return features_agree(
                self._call(probe.ids, probe.mask), own
            ) and self._tail_is_free(probe)
        except (AttributeError, TypeError, RuntimeError, ValueError):  # it wants a mask
            return False
        finally:
            self._masked = True

    def _find_sharing(self, probe: Tokens) -> Sharing | None:
        """The tower's blocks, if they give the same features for trees as for whole prompts.

        A gradient must come back too: checkpointing runs blocks once more on the way back.
        """
        tokens = self.shorten(probe)
        tree = PromptTree.from_tokens(tokens, torch.zeros_like(tokens.ids))
        embeddings = self.embed_tokens(tokens.ids)
        leaf = torch.cat([embeddings, embeddings.flip(-1)]).requires_grad_()
        with torch.no_grad():
            own = self._encode_from(tokens.repeat(2), leaf)
        try:
            call = partial(self.encode_text, tokens)
            sharing = find_sharing(self.model, call, tokens.ids.shape)
            if sharing is None:
                return None
            with torch.enable_grad():
                shared = self._encode_from(tokens.repeat(2), leaf, sharing.on(tree))
                torch.autograd.grad(shared.float().sum(), leaf)
        except (AttributeError, TypeError, RuntimeError, ValueError, IndexError):
            return None
        return sharing if features_agree(shared.detach(), own) else None


def used_length(tokens: Tokens) -> int:
    """How many columns hold a real token in some row, counted from the left."""
    return int(tokens.mask.any(0).nonzero().max()) + 1


def check_prompt_length(text: str, length: int, limit: int) -> None:
    """Raise `PromptError` when a sentence does not fit into the model."""
    if length > limit:
        raise PromptError(
            f"the prompt {text!r} has {length} tokens, the model takes at most {limit}: "
            "shorten the template or the name."
        )


class VisionTower:
    """The image encoder of a backend. A subclass says how its library is called.

    ``_inputs(images)`` is what the model's own preprocessing makes of images, with the key
    ``pixel_values``; ``_features(model, inputs)`` are its features of that; and
    ``_project_tokens(pixels)`` treats the class token and each patch as if it were the image's,
    ``[images, 1 + patches, dim]``, or returns None.
    """

    _compiled: Any = None

    def encode_images(self: Any, images: Sequence[Image.Image]) -> Tensor:
        """Features from the model's own preprocessing and vision tower."""
        features: Tensor = self._encode(self._inputs(images))
        return features

    def preprocess(self: Any, images: Sequence[Image.Image]) -> Tensor | None:
        """Pixels ``[images, 3, height, width]`` as the model wants them.

        None if it wants something else, as SigLIP 2 does, which takes patches of any number.
        """
        inputs: dict[str, Tensor] = self._inputs(images)
        pixels = inputs["pixel_values"]
        return pixels if len(inputs) == 1 and pixels.ndim == 4 else None

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Features of preprocessed pixels."""
        features: Tensor = self._encode({"pixel_values": pixels})
        return features

    def image_tower(self: Any) -> nn.Module:
        """The vision tower with modules of its own, pixels to features."""
        call = self._features
        return image_twin(
            self.model, lambda model, pixels: call(model, {"pixel_values": pixels})
        )

    def with_compiled_vision(self: Any) -> Any:
        """The same with a compiled vision tower; the model itself stays as it is."""
        other, model, call = copy.copy(self), self.model, self._features
        other._compiled = torch.compile(lambda **inputs: call(model, inputs))
        return other

    def _encode(self: Any, inputs: dict[str, Tensor]) -> Any:
        inputs = {
            key: value.to(
                self.device, self.dtype if value.is_floating_point() else None
            )
            for key, value in inputs.items()
        }
        tower = f"the vision tower of {self.name}"
        with (
            eval_mode_lock(self.model, exclusive=False),
            torch.no_grad(),
            advise_on_error(self.model, tower),
        ):
            run = self._compiled
            return self._features(self.model, inputs) if run is None else run(**inputs)

    def encode_patches(self: Any, pixels: Tensor) -> Tensor:
        """Features of patches in the space of the text's, row by row: ``[images, patches, dim]``.

        Raises `TowerError` if the vision tower has none. They are what its last layer norm and its
        projection make of the last layer, which an image checks: the class token, or the mean of
        the patches, has to be the tower's own feature.
        """
        if not self._has_patches:
            raise TowerError(
                f"the vision tower of {self.name} has no features of patches that its projection "
                "takes: only vision transformers have, with a class token or a mean of patches."
            )
        tokens: Tensor = self._tokens(pixels)
        return tokens[:, 1:]

    def _tokens(self: Any, pixels: Tensor) -> Any:
        with eval_mode_lock(self.model), torch.no_grad():
            return self._project_tokens(pixels.to(self.device, self.dtype))

    @property
    @computed_once
    def _has_patches(self) -> bool:
        pixels = self.preprocess([Image.linear_gradient("L").convert("RGB")])
        tokens = None if pixels is None else self._tokens(pixels)
        if pixels is None or tokens is None or tokens.ndim != 3:
            return False
        own = self.encode_pixels(pixels).float()
        pooled = tokens[:, 0].float(), tokens[:, 1:].float().mean(1)
        return any(bool((own - one).norm() <= _SAME * own.norm()) for one in pooled)
