"""Text towers that are unlike the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import families
import pytest
import torch
import transformers
from checks import SENSITIVE, TARGETS, TEMPLATE, assert_splice_is_exact, picture
from internals import Task, TextTower
from internals import model_lock_module as guard
from torch import Tensor, nn

from fair_tta import AssociationCorrection, FairTPTClassifier, OrthCali, Zero, ZeroShot
from fair_tta.errors import TowerError
from fair_tta.extend import Adapter, Needs, Outcome
from fair_tta.models import Tokens, TransformersBackend

PROBE = Tokens(
    torch.tensor([[1, 2, 0, 0, 0, 0], [3, 4, 5, 6, 0, 0]]),
    torch.tensor([[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0]]).bool(),
)


@dataclass(frozen=True)
class NeedsGradient(Adapter):
    needs = Needs(prompt_gradient=True)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        return ZeroShot().adapt(task, features)


class Tower(nn.Module):
    """A bag of words, in the manner given."""

    def __init__(self, manner: str) -> None:
        super().__init__()
        self.manner = manner
        self.words = nn.Embedding(8, 4)
        self.more = nn.Embedding(8, 4)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        vectors: Tensor = self.words(ids)
        if self.manner == "one-hot":
            vectors = nn.functional.one_hot(ids, 8).float() @ self.words.weight
        if self.manner == "two tables":
            vectors = vectors + self.more(ids)
        if self.manner == "ignores its table":
            vectors = self.words.weight[ids].detach()
        if self.manner == "forgets the mask":
            return vectors.mean(1)
        if self.manner == "fixed length" and ids.shape[1] != 6:
            raise ValueError("length")
        return (vectors * mask[..., None]).sum(1)


def tower(manner: str) -> TextTower:
    torch.manual_seed(0)
    module = Tower(manner)
    if manner == "one-hot":
        module.forward = lambda ids, mask: (  # type: ignore[method-assign]
            (nn.functional.one_hot(ids, 8).float() @ module.words.weight)
            * mask[..., None]
        ).sum(1)
    return TextTower(module, manner, module, PROBE)


@pytest.mark.parametrize(
    ("manner", "reason"),
    [
        ("one-hot", "no layer turns its token ids into embeddings"),
        ("two tables", "2 layers turn its token ids into embeddings"),
        ("ignores its table", "its features do not follow its token embeddings"),
    ],
)
def test_towers_that_cannot_be_spliced(manner: str, reason: str) -> None:
    it: Any = tower(manner)
    assert it.embedding_layer is None
    assert it.encode_text(PROBE).shape == (
        2,
        4,
    )  # the model's own features are there all the same
    message = f"the text tower {manner} cannot be tuned: {reason}"
    with pytest.raises(TowerError, match=message):
        it.embed_tokens(PROBE.ids)
    with pytest.raises(TowerError, match=message):
        it.encode_prompts(PROBE, torch.ones(2, 6, 4))


@pytest.mark.parametrize(
    ("manner", "cuts"),
    [("masks", True), ("forgets the mask", False), ("fixed length", False)],
)
def test_whether_the_tail_may_be_cut_is_found_out(manner: str, cuts: bool) -> None:
    it = tower(manner)
    assert it.embedding_layer is not None
    assert it.cuts_tail is cuts
    assert torch.allclose(
        it.encode_text(PROBE), it.encode_prompts(PROBE, it.embed_tokens(PROBE.ids))
    )


def unspliceable() -> tuple[Any, Any, Any]:
    """A CLIP that looks its tokens up without a layer of its own."""
    model, images, tokenizer = families.seeded(families.clip)
    embeddings = model.text_model.embeddings
    weight = embeddings.token_embedding.weight
    del embeddings.token_embedding
    embeddings.token_embedding = lambda ids: torch.nn.functional.embedding(ids, weight)
    return model, images, tokenizer


class Wrapped(nn.Module):
    """A table with more around it, as adapters for fine-tuning have it."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.table = table
        self.low = nn.Embedding(table.num_embeddings, 2)
        self.up = nn.Linear(2, table.embedding_dim)

    def forward(self, ids: Tensor) -> Tensor:
        vectors: Tensor = self.table(ids) + self.up(self.low(ids))
        return vectors


class Rounded(Wrapped):
    """Its product is rounded otherwise at the first places, as some processors do."""

    def forward(self, ids: Tensor) -> Tensor:
        return (
            super().forward(ids)
            * (1 + 3e-7 * (torch.arange(ids.shape[1]) < 4))[:, None]
        )


@pytest.mark.parametrize("wrapper", [Wrapped, Rounded])
def test_a_wrapped_table_is_replaced_as_a_whole(wrapper: type[Wrapped]) -> None:
    model, images, tokenizer = families.seeded(families.clip)
    embeddings = model.text_model.embeddings
    embeddings.token_embedding = wrapper(embeddings.token_embedding)
    backend = TransformersBackend(model, images, tokenizer)
    assert isinstance(backend.embedding_layer, Wrapped)

    def own(tokens: Tokens) -> Tensor:
        output = model.get_text_features(tokens.ids, attention_mask=tokens.mask.long())
        features: Tensor = getattr(
            output, "pooler_output", output
        )  # transformers 5, and 4
        return features

    assert_splice_is_exact(backend, own)


@pytest.mark.skipif(not families.IS_FIVE, reason="fails in transformers itself")
def test_equally_long_prompts_without_padding() -> None:
    """transformers drops AIMv2's causal mask when a batch has no padding: then nothing is cut."""
    tokenizer = families.clip_tokenizer()
    sizes = families._text(**families._clip_ids(tokenizer))
    config = transformers.Aimv2Config(
        text_config=sizes, vision_config=families._vision(), projection_dim=16
    )
    model = families.seeded(lambda: (transformers.Aimv2Model(config),))[0]
    backend = TransformersBackend(model, families._images(), tokenizer)
    two = backend.encode_text(backend.tokenize(["a cat", "a dog"]))
    three = backend.encode_text(
        backend.tokenize(["a cat", "a dog", "a very big black dog"])
    )
    torch.testing.assert_close(two, three[:2], rtol=1e-4, atol=1e-5)


def test_zero_shot_works_without_splicing_and_others_say_what_does() -> None:
    model, images, tokenizer = unspliceable()
    backend = TransformersBackend(model, images, tokenizer)
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, adapter=ZeroShot())
    twin = TransformersBackend(*families.seeded(families.clip))
    expected = FairTPTClassifier(twin, TARGETS, SENSITIVE, TEMPLATE, adapter=ZeroShot())
    for adapter in (ZeroShot(), Zero(), OrthCali(), AssociationCorrection()):
        ours = clf.with_adapter(adapter).predict(picture()).probabilities
        theirs = expected.with_adapter(adapter).predict(picture()).probabilities
        assert ours == pytest.approx(theirs, abs=1e-5)
    with pytest.raises(
        TowerError,
        match=r"NeedsGradient tunes the prompt, but the text tower CLIPText\w+ of CLIPModel cannot "
        r"be tuned: .* Choose a method that does not, such as AssociationCorrection\(\), "
        r"LogitBalance\(\), OrthCali\(\) or ZeroShot\(\)\.",
    ):
        clf.with_adapter(NeedsGradient())
    FairTPTClassifier(twin, TARGETS, SENSITIVE, TEMPLATE, adapter=NeedsGradient())


def test_a_model_is_taken_once_to_find_out_about_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two times another thread could run it, which our hooks would take for our call."""
    depths = [0]

    class Counted:
        def __enter__(self) -> None:
            depths.append(depths[-1] + 1)

        def __exit__(self, *_: object) -> None:
            depths.append(depths[-1] - 1)

    users = guard._Users()
    users.lock = Counted()  # type: ignore[assignment]
    monkeypatch.setattr(guard, "_users_of", lambda _module: users)
    backend = TransformersBackend(*families.seeded(families.clip))
    assert backend.sharing is not None
    assert depths == [0, 1, 0]
