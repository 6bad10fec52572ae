"""Run any text tower from token embeddings instead of token ids.

One route serves every model: the tower is called as always, with ordinary ids, and a temporary
forward hook on its token-embedding layer returns our embeddings. Ids still drive masks, positions
and pooling. Which layer that is, and whether the padded tail may be cut, is found out by looking at
what the tower does with two sentences, not by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fair_tta._models.borrow import quiet, remedy, untouched
from fair_tta._models.prefix_sharing import Sharing, Tree, find_sharing
from fair_tta._models.protocol import Tokens
from fair_tta.errors import ModelError, PromptError, TowerError

TextCall = Callable[[Tensor, Any], Tensor]
"""``(ids [prompts, length], mask [prompts, length] or None) -> features [prompts, dim]``"""


@torch.no_grad()
def find_embedding(root: nn.Module, call: TextCall, probe: Tokens) -> tuple[nn.Module | None, str]:
    """The layer that turns the ids, and nothing else, into ``[prompts, length, width]``."""
    found: list[nn.Module] = []

    def watch(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        takes_ids = (
            bool(args)
            and isinstance(args[0], Tensor)
            and args[0].shape == probe.ids.shape
            and not args[0].is_floating_point()
            and bool((args[0] == probe.ids).all())
        )
        gives_vectors = isinstance(output, Tensor) and output.shape[:-1] == probe.ids.shape
        if takes_ids and gives_vectors and output.is_floating_point():
            found.append(module)

    handles = [module.register_forward_hook(watch) for module in root.modules()]
    try:
        call(probe.ids, probe.mask)
    finally:
        for handle in handles:
            handle.remove()
    # NLLB's table of positions takes the ids too, and a wrapper (LoRA) contains the table it wraps.
    tables = [layer for layer in dict.fromkeys(found) if _ignores_position(layer, probe.ids)]
    outermost = [a for a in tables if not any(a is not b and a in b.modules() for b in tables)]
    if len(outermost) == 1:
        return outermost[0], ""
    return None, (
        "no layer turns its token ids into embeddings"
        if not outermost
        else f"{len(outermost)} layers turn its token ids into embeddings"
    )


def _ignores_position(layer: nn.Module, ids: Tensor) -> bool:
    """Whether a token has the same vector wherever it stands, as in a table of tokens."""
    here: Tensor = layer(ids)
    there: Tensor = layer(ids.flip(1))
    return agree(here, there.flip(1))


def agree(a: Tensor, b: Tensor) -> bool:
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

    handle = layer.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()
    if not used:
        raise TowerError("the text tower did not ask its embedding layer for the prompts")


_PROBES = (
    ("a dog", "a black cat."),
    ("a", "a cat"),
    ("a",),
)  # the next, if the model is that short


class TextTower:
    """The text side of a backend: a text tower that can be fed with embeddings.

    Args:
        model: the module that holds the tower.
        tower: what to call the tower in messages.
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
        self._cut = False
        self._masked = True
        self._sharing: Sharing | None = None
        with untouched(model):  # ours alone, or hooks of two threads would see each other's calls
            self._explore(probe)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def can_splice(self) -> bool:
        """Whether embeddings can be replaced; if not, `reason` is why."""
        return self._layer is not None

    @property
    def cuts_tail(self) -> bool:
        """Whether padding after the last real token is left out (exact for this tower)."""
        return self._cut

    @property
    def shares_beginnings(self) -> bool:
        """Whether prompts that begin alike share the work on their beginning (exact here)."""
        return self._sharing is not None

    def embed_tokens(self, ids: Tensor) -> Tensor:
        """Token embeddings as the tower's own layer makes them, without gradient."""
        layer = self._require_layer()
        self._check_known(ids)
        with untouched(self.model), torch.no_grad():
            embeddings: Tensor = layer(ids)
        return embeddings

    def shorten(self, tokens: Tokens) -> Tokens:
        """Leave out the padded tail where that is exact."""
        if not self._cut:
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

    def encode_episodes(self, tokens: Tokens, tree: Tree, embeddings: Tensor) -> Tensor:
        """Features of the same prompts under several contexts.

        Args:
            tokens: ``[prompts, length]``, shortened if they can be.
            tree: what the prompts have in common in each episode.
            embeddings: ``[episodes, prompts, length, width]``

        Returns:
            ``[episodes, prompts, dim]``
        """
        episodes = len(embeddings)
        shared = self._sharing
        sharing = None if shared is None or shared.is_recomputed else shared.on(tree)
        features = self._encode_from(tokens.repeat(episodes), embeddings.flatten(0, 1), sharing)
        return features.reshape(episodes, len(tokens.ids), -1)

    def _call(self, ids: Tensor, mask: Tensor) -> Tensor:
        with untouched(self.model):
            return self._own_call(ids, mask if self._masked else None)

    def _require_layer(self) -> nn.Module:
        if self._layer is None:
            raise TowerError(f"{self._tower} cannot be tuned: {self.reason}")
        return self._layer

    def _encode_from(
        self,
        tokens: Tokens,
        embeddings: Tensor,
        sharing: AbstractContextManager[None] | None = None,
    ) -> Tensor:
        replaced = output_replaced(self._require_layer(), tokens.ids, embeddings)
        with untouched(self.model), replaced, sharing or nullcontext():
            return self._own_call(tokens.ids, tokens.mask if self._masked else None)

    def _explore(self, probe: Tokens) -> None:
        """Find out by a few calls what can be done with the tower."""
        # a tokenizer that was called under inference_mode gives tensors that autograd refuses
        probe = Tokens(probe.ids.clone(), probe.mask.clone())
        try:
            self._layer, self.reason = find_embedding(self.model, self._call, probe)
        except (AttributeError, TypeError, RuntimeError, ValueError, IndexError) as error:
            advice = remedy(self.model, str(error))
            if isinstance(error, IndexError):
                advice = " (The tokenizer may be damaged, or that of another model.)"
            raise ModelError(f"{self._tower} does not take sentences: {error}{advice}") from error
        if self._layer is not None:
            self._check_splice(probe)
        if self._layer is not None:
            self._cut = self._tail_is_free(probe)
            self._check_gradient(self.shorten(probe))
        if self._cut and self._layer is not None:
            self._masked = not self._mask_is_free(probe)
            self._sharing = self._find_sharing(probe)

    @torch.no_grad()
    def _check_splice(self, probe: Tokens) -> None:
        """Replacing embeddings by themselves must change nothing, replacing them by others must."""
        embeddings = self.embed_tokens(probe.ids)
        own = self._call(probe.ids, probe.mask)
        same = self._encode_from(probe, embeddings)
        other = self._encode_from(probe, embeddings.flip(-1))
        if not agree(same, own) or agree(other, own):
            self._layer = None
            self.reason = "its features do not follow its token embeddings"

    def _check_gradient(self, probe: Tokens) -> None:
        """A gradient must come back from the features to the embeddings."""
        with quiet(), torch.enable_grad():  # quantised layers warn that they have no gradient
            leaf = self.embed_tokens(probe.ids).clone().requires_grad_()
            try:
                torch.autograd.grad(self._encode_from(probe, leaf).float().sum(), leaf)
            except (RuntimeError, Warning) as error:
                self._layer = None
                self.reason = f"no gradient comes through it ({str(error).partition('. ')[0]})"
                if any(tensor.is_inference() for tensor in _tensors(self.model)):
                    self.reason = (
                        "its weights were made under torch.inference_mode: load it outside of that"
                    )
                elif _is_quantised(self.model):
                    self.reason = "its layers are quantised and give no gradient: load it in float"

    def _check_known(self, ids: Tensor) -> None:
        """A damaged tokenizer, or that of another model, may name tokens that are not there."""
        count = getattr(self._layer, "num_embeddings", None)
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
        if not torch.allclose(self._encode_from(probe, noisy), own, rtol=1e-6, atol=1e-7):
            return False
        # a lone sentence has no padding left at all, which some towers take for "no mask needed"
        for rows in (slice(None), slice(-1, None)):
            length = used_length(Tokens(probe.ids[rows], probe.mask[rows])) + self._slack
            short = Tokens(probe.ids[rows, :length], probe.mask[rows, :length])
            try:
                cut = self._encode_from(short, embeddings[rows, :length])
            except (RuntimeError, ValueError, IndexError):  # the tower takes its full length only
                return False
            if not agree(cut, own[rows]):
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
            return agree(self._call(probe.ids, probe.mask), own) and self._tail_is_free(probe)
        except (AttributeError, TypeError, RuntimeError, ValueError):  # it wants a mask
            return False
        finally:
            self._masked = True

    def _find_sharing(self, probe: Tokens) -> Sharing | None:
        """The tower's blocks, if they give the same features for trees as for whole prompts.

        A gradient must come back too: checkpointing runs blocks once more on the way back.
        """
        tokens = self.shorten(probe)
        tree = Tree.of(tokens, torch.zeros_like(tokens.ids))
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
        return sharing if agree(shared.detach(), own) else None


def _tensors(root: nn.Module) -> Iterator[Tensor]:
    yield from root.parameters()
    yield from root.buffers()


def _is_quantised(root: nn.Module) -> bool:
    return any("quantized" in type(module).__module__ for module in root.modules())


def used_length(tokens: Tokens) -> int:
    """How many columns hold a real token in some row, counted from the left."""
    return int(tokens.mask.any(0).nonzero().max()) + 1


def tokenized_probe(tokenize: Callable[[Sequence[str]], Tokens]) -> Tokens:
    """Two short sentences of different length, to look at what a text tower does with them."""
    for sentences in _PROBES[:-1]:
        try:
            return tokenize(sentences)
        except PromptError:
            continue
    return tokenize(_PROBES[-1])


def check_length(text: str, length: int, limit: int) -> None:
    """Raise `PromptError` when a sentence does not fit into the model."""
    if length > limit:
        raise PromptError(
            f"the prompt {text!r} has {length} tokens, the model takes at most {limit}: "
            "shorten the template or the name."
        )
