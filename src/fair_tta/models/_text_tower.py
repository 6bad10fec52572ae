"""Text towers of any library, fed with embeddings instead of token ids.

One route serves every text tower: it is called as always, with ordinary ids, and a temporary
forward hook on its token-embedding layer returns our embeddings. Ids still drive masks, positions
and pooling. Which layer that is, and whether the padded tail may be cut, is found by running the
tower on two sentences, not by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fair_tta.errors import ModelError, PromptError, TowerError
from fair_tta.models._backend import Tokens
from fair_tta.models._model_lock import eval_mode_lock, ignore_warnings_of
from fair_tta.models._prefix_sharing import PromptTree, Sharing, find_sharing
from fair_tta.models._weights import advice_for

PROBE = ("a dog", "a black cat.")
"""Two short sentences of different length, on which a text tower is tried."""

TextCall = Callable[[Tensor, Any], Tensor]
"""``(ids [prompts, length], mask [prompts, length] or None) -> features [prompts, dim]``"""

# Errors that towers raise on inputs that they do not support.
_CALL_ERRORS = (AttributeError, TypeError, RuntimeError, ValueError, IndexError)


@torch.no_grad()
def find_embedding_layer(root: nn.Module, call: TextCall, probe: Tokens) -> nn.Module:
    """Return the layer that turns ids, and nothing else, into ``[prompts, length, width]``."""
    candidates: list[nn.Module] = []

    def watch(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        ids = args[0] if args else None
        if isinstance(ids, Tensor) and isinstance(output, Tensor):
            takes_ids = ids.shape == probe.ids.shape and bool((ids == probe.ids).all())
            is_new = module not in candidates
            if takes_ids and is_new and output.shape[:-1] == ids.shape:
                candidates.append(module)

    with ExitStack() as hooks:
        for module in root.modules():
            hooks.enter_context(module.register_forward_hook(watch))
        call(probe.ids, probe.mask)

    # NLLB's table of positions takes the ids too: its output depends on the position.
    tables = []
    for layer in candidates:
        reversed_twice = layer(probe.ids.flip(1)).flip(1)
        if features_agree(layer(probe.ids), reversed_twice):
            tables.append(layer)

    # A wrapper, such as that of LoRA, contains the table that it wraps.
    inner = {part for table in tables for part in table.modules() if part is not table}
    outermost = [table for table in tables if table not in inner]
    if not outermost:
        raise TowerError("no layer turns its token ids into embeddings")
    if len(outermost) > 1:
        raise TowerError(f"{len(outermost)} layers turn its token ids into embeddings")
    return outermost[0]


def features_agree(features: Tensor, expected: Tensor) -> bool:
    """Return whether features are equal up to the rounding of their dtype, relative to length."""
    is_precise = features.dtype in (torch.float32, torch.float64)
    tolerance = 1e-4 if is_precise else 5e-2
    features = features.cpu().double()
    expected = expected.cpu().double()
    return bool((features - expected).norm() <= tolerance * expected.norm())


@contextmanager
def output_replaced(layer: nn.Module, ids: Tensor, output: Tensor) -> Iterator[None]:
    """Replace the output of a layer for these ids; raise `TowerError` if it is not called."""
    is_used = False

    def replace(_module: nn.Module, _args: Any, original: Tensor) -> Tensor | None:
        nonlocal is_used
        if original.shape[:-1] != ids.shape:
            return None
        is_used = True
        return output.to(original.dtype, copy=True)  # BLIP adds positions in place

    with layer.register_forward_hook(replace):
        yield
    if not is_used:
        raise TowerError("the text tower did not call its embedding layer")


class TextTower:
    """The text side of a backend: a text tower that can be fed with embeddings.

    Args:
        model: the module that holds the tower.
        tower: what messages call the tower.
        call: the model's own text features from ids and mask; must also take shortened ids.
        probe: at least one tokenised sentence, shorter than the full length.
        slack: how many columns of padding to keep when the tail is cut.

    Attributes:
        embedding_layer: turns ids into embeddings, which can be replaced; None if none was found.
        untunable_reason: the reason why there is none.
        cuts_tail: True if padding after the last real token can be left out without any effect.
        sharing: shares work on equal beginnings of prompts, if the tower allows it.
    """

    def __init__(
        self, model: Any, tower: str, call: TextCall, probe: Tokens, slack: int = 0
    ) -> None:
        self.model = model
        self._name = f"the text tower {tower}"
        self._encode_ids = call
        self._slack = slack
        self._needs_mask = True
        self.embedding_layer: nn.Module | None = None
        self.untunable_reason = ""
        self.cuts_tail = False
        self.sharing: Sharing | None = None
        # Exclusively, because hooks of two threads would see each other's calls.
        with eval_mode_lock(model):
            self._explore(probe)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def embed_tokens(self, ids: Tensor) -> Tensor:
        """Return the token embeddings of the tower's own layer, without gradient."""
        layer = self._require_layer()
        self._check_known(ids)
        with eval_mode_lock(self.model), torch.no_grad():
            embeddings: Tensor = layer(ids)
        return embeddings

    def shorten(self, tokens: Tokens) -> Tokens:
        """Return tokens without the padded tail, or unchanged if that would change features."""
        if not self.cuts_tail:
            return tokens
        length = used_length(tokens) + self._slack
        return Tokens(tokens.ids[:, :length], tokens.mask[:, :length])

    def encode_text(self, tokens: Tokens) -> Tensor:
        """Return the model's own features ``[prompts, dim]``, without gradient."""
        self._check_known(tokens.ids)
        tokens = self.shorten(tokens)
        with eval_mode_lock(self.model), torch.no_grad():
            return self._call(tokens)

    def encode_prompts(self, tokens: Tokens, embeddings: Tensor) -> Tensor:
        """Return features of `embeddings` ``[prompts, length, width]`` instead of `tokens`."""
        tokens = self.shorten(tokens)
        return self._encode_embeddings(tokens, embeddings[:, : tokens.ids.shape[1]])

    def encode_episodes(
        self, tokens: Tokens, tree: PromptTree, embeddings: Tensor
    ) -> Tensor:
        """Return features ``[episodes, prompts, dim]`` of the same prompts under several contexts.

        Args:
            tokens: shortened if they can be.
            tree: the common beginnings of the prompts in each episode.
            embeddings: ``[episodes, prompts, length, width]``.
        """
        # Blocks that run again in the backward pass would not know of the tree.
        episodes = len(embeddings)
        block = None
        if self.sharing is not None and not self.sharing.is_recomputed:
            block = self.sharing.on(tree)
        features = self._encode_embeddings(
            tokens.repeat(episodes), embeddings.flatten(0, 1), block
        )
        return features.reshape(episodes, len(tokens.ids), -1)

    def _call(self, tokens: Tokens) -> Tensor:
        """Return the model's own features; the caller holds the model."""
        return self._encode_ids(tokens.ids, tokens.mask if self._needs_mask else None)

    def _require_layer(self) -> nn.Module:
        if self.embedding_layer is None:
            raise TowerError(f"{self._name} cannot be tuned: {self.untunable_reason}")
        return self.embedding_layer

    def _encode_embeddings(
        self,
        tokens: Tokens,
        embeddings: Tensor,
        sharing: AbstractContextManager[None] | None = None,
    ) -> Tensor:
        """Return features of embeddings, computed within the block `sharing` if there is one."""
        replaced = output_replaced(self._require_layer(), tokens.ids, embeddings)
        with eval_mode_lock(self.model), replaced, sharing or nullcontext():
            return self._call(tokens)

    def _explore(self, probe: Tokens) -> None:
        """Find out by a few calls what the tower supports."""
        # A tokenizer called under inference_mode makes tensors that autograd refuses.
        probe = Tokens(probe.ids.clone(), probe.mask.clone())
        try:
            self.embedding_layer = find_embedding_layer(
                self.model, lambda ids, mask: self._call(Tokens(ids, mask)), probe
            )
            self._check_replacement(probe)
            self.cuts_tail = self._ignores_tail(probe)
            self._check_gradient(self.shorten(probe))
        except TowerError as error:
            self.embedding_layer = None
            self.untunable_reason = str(error)
        except ModelError:
            raise
        except _CALL_ERRORS as error:
            advice = advice_for(self.model, str(error))
            if isinstance(error, IndexError):
                advice = " (The tokenizer may be damaged, or that of another model.)"
            raise ModelError(
                f"{self._name} does not take sentences: {error}{advice}"
            ) from error
        if self.cuts_tail and self.embedding_layer is not None:
            self._needs_mask = not self._ignores_mask(probe)
            self.sharing = self._find_sharing(probe)

    @torch.no_grad()
    def _check_replacement(self, probe: Tokens) -> None:
        """Raise `TowerError` unless features follow embeddings, and equal ones change nothing."""
        embeddings = self.embed_tokens(probe.ids)
        original = self._call(probe)
        unchanged = self._encode_embeddings(probe, embeddings)
        changed = self._encode_embeddings(probe, embeddings.flip(-1))
        is_followed = not features_agree(changed, original)
        if not (features_agree(unchanged, original) and is_followed):
            raise TowerError("its features do not follow its token embeddings")

    def _check_gradient(self, probe: Tokens) -> None:
        """Raise `TowerError` unless a gradient flows from the features to the embeddings."""
        # Quantised layers warn that they have no gradient.
        with ignore_warnings_of(), torch.enable_grad():
            leaf = self.embed_tokens(probe.ids).clone().requires_grad_()
            try:
                features = self._encode_embeddings(probe, leaf)
                torch.autograd.grad(features.float().sum(), leaf)
            except (RuntimeError, Warning) as error:
                raise TowerError(self._gradient_advice(error)) from error

    def _gradient_advice(self, error: Exception) -> str:
        """Return the reason why no gradient flows, and what to do if that is known."""
        if any(weight.is_inference() for weight in self.model.parameters()):
            return (
                "its weights were made under torch.inference_mode: load it outside it"
            )
        modules = self.model.modules()
        if any("quantized" in type(module).__module__ for module in modules):
            return "its layers are quantised and have no gradient: load it in float"
        first_sentence = str(error).partition(". ")[0]
        return f"no gradient comes through it ({first_sentence})"

    def _check_known(self, ids: Tensor) -> None:
        """Raise `ModelError` if a tokenizer names tokens that the tower does not have."""
        count = getattr(self.embedding_layer, "num_embeddings", None)
        if isinstance(count, int) and int(ids.max()) >= count:
            raise ModelError(
                f"the tokenizer does not belong to {self._name}: it names token "
                f"{int(ids.max())}, and there are {count}. Get it again, or pass the model's own."
            )

    @torch.no_grad()
    def _ignores_tail(self, probe: Tokens) -> bool:
        """Return whether features ignore the padded tail, and stay the same when it is cut."""
        length = used_length(probe) + self._slack
        if length >= probe.ids.shape[1]:
            return False
        embeddings = self.embed_tokens(probe.ids)
        original = self._encode_embeddings(probe, embeddings)

        # Nothing must change if the tail holds numbers that no token has.
        noisy = embeddings.clone()
        noisy[:, length:] = 10 * embeddings[:, :1].flip(-1) + 1
        with_noise = self._encode_embeddings(probe, noisy)
        if not torch.allclose(with_noise, original, rtol=1e-6, atol=1e-7):
            return False

        # A lone sentence has no padding left at all, from which some towers conclude that no mask
        # is needed.
        for rows in (slice(None), slice(-1, None)):
            sentences = Tokens(probe.ids[rows], probe.mask[rows])
            length = used_length(sentences) + self._slack
            short = Tokens(sentences.ids[:, :length], sentences.mask[:, :length])
            try:
                cut = self._encode_embeddings(short, embeddings[rows, :length])
            except (RuntimeError, ValueError, IndexError):
                return False  # the tower takes its full length only
            if not features_agree(cut, original[rows]):
                return False
        return True

    @torch.no_grad()
    def _ignores_mask(self, probe: Tokens) -> bool:
        """Return whether features are the same without a mask, as in causal towers.

        Then none is passed, for which the tower would have to wait for a device.
        """
        original = self._call(probe)
        self._needs_mask = False
        try:
            unmasked = self._call(probe)
            return features_agree(unmasked, original) and self._ignores_tail(probe)
        except (AttributeError, TypeError, RuntimeError, ValueError):
            return False  # the tower requires a mask
        finally:
            self._needs_mask = True

    def _find_sharing(self, probe: Tokens) -> Sharing | None:
        """Return the tower's blocks if they compute the same features on trees of prompts.

        The gradient is tried too: checkpointing runs blocks again in the backward pass.
        """
        tokens = self.shorten(probe)
        tree = PromptTree.from_tokens(tokens, torch.zeros_like(tokens.ids))
        embeddings = self.embed_tokens(tokens.ids)
        # Two episodes with different embeddings.
        leaf = torch.cat([embeddings, embeddings.flip(-1)]).requires_grad_()
        with torch.no_grad():
            original = self._encode_embeddings(tokens.repeat(2), leaf)
        try:
            call = partial(self.encode_text, tokens)
            sharing = find_sharing(self.model, call, tokens.ids.shape)
            if sharing is None:
                return None
            with torch.enable_grad():
                block = sharing.on(tree)
                shared = self._encode_embeddings(tokens.repeat(2), leaf, block)
                torch.autograd.grad(shared.float().sum(), leaf)
        except _CALL_ERRORS:
            return None
        return sharing if features_agree(shared.detach(), original) else None


def used_length(tokens: Tokens) -> int:
    """Return the number of columns up to the last real token of any row."""
    return int(tokens.mask.any(0).nonzero().max()) + 1


def check_prompt_length(text: str, length: int, limit: int) -> None:
    """Raise `PromptError` when a sentence does not fit into the model."""
    if length > limit:
        raise PromptError(
            f"the prompt {text!r} has {length} tokens, the model takes at most {limit}: "
            "shorten the template or the name."
        )
