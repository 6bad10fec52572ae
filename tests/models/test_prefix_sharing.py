"""Prompts that begin alike share their beginning: the tree, and what the towers make of it."""

from __future__ import annotations

import copy
from typing import Any

import families
import numpy as np
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, make_task, picture
from families_open_clip import OPEN_CLIP
from hypothesis import given
from hypothesis import strategies as st
from internals import PromptTree, Task, TextTower, concatenate_prompts
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fair_tta import FairTPTClassifier
from fair_tta.extend import AugMix
from fair_tta.models import OpenClipBackend, Tokens, TransformersBackend

# Causal, read off at the end of text, and made of blocks that take a mask. CoCa is causal too, but
# appends a class token that sees the whole prompt.
SHARE = {
    "CLIP", "CLIPSeg", "MetaCLIP 2", "CLIP with ResNet", "CLIP worldwide (MetaCLIP 2)",
    "CustomTextCLIP TextTransformer",
}  # fmt: skip
FAMILIES = [
    pytest.param(
        kind, name, make, id=f"{kind.__name__}-{name}", marks=families.marks(name)
    )
    for kind, known in (
        (TransformersBackend, families.TRANSFORMERS),
        (OpenClipBackend, OPEN_CLIP),
    )
    for name, make in known.items()
    if name in SHARE | {"SigLIP", "BLIP", "CoCa"}
]

rows = st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 1)), min_size=1, max_size=6),
                min_size=1, max_size=5)  # fmt: skip


def tokens_of(prompts: list[list[tuple[int, int]]]) -> tuple[Tokens, Tensor]:
    length = max(map(len, prompts)) + 1
    ids, slots = (
        torch.zeros(len(prompts), length).long(),
        torch.full((len(prompts), length), -1),
    )
    mask = torch.zeros(len(prompts), length).bool()
    for i, prompt in enumerate(prompts):
        for j, (token, slot) in enumerate(prompt):
            ids[i, j], slots[i, j], mask[i, j] = token, slot, True
    return Tokens(ids, mask), slots


@given(rows)
def test_a_node_for_each_distinct_beginning(
    prompts: list[list[tuple[int, int]]],
) -> None:
    tokens, slots = tokens_of(prompts)
    tree = PromptTree.from_tokens(tokens, slots)
    beginnings = {
        tuple(prompt[: j + 1]) for prompt in prompts for j in range(len(prompt))
    }
    assert len(tree.first) == len(beginnings)
    pairs = [
        (int(i), int(s))
        for i, s in zip(tokens.ids.flatten(), slots.flatten(), strict=True)
    ]
    for prompt, path in zip(prompts, tree.paths.tolist(), strict=True):
        assert [pairs[tree.first[node]] for node in path[: len(prompt)]] == prompt
        assert set(path[len(prompt) :]) == {path[len(prompt) - 1]}  # padding
        for j, node in enumerate(path[: len(prompt)]):
            visible = (tree.mask[node] == 0).nonzero().flatten().tolist()
            assert visible == sorted(path[: j + 1])
    assert set(tree.mask.flatten().tolist()) <= {0.0, -torch.inf}


def episodes_of(task: Task, count: int = 3) -> Tensor:
    """Other contexts, far from the initial one."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(count, *task.context.shape, generator=generator).to(
        task.context
    )
    context: Tensor = task.context + noise * task.context.norm() / noise[0].norm()
    return context


@pytest.mark.parametrize(("backend_class", "name", "make"), FAMILIES)
def test_every_family_gives_the_same_features_and_gradients(
    backend_class: Any, name: str, make: Any
) -> None:
    """Against the model's own call, one prompt at a time, at full length (float64)."""
    model, *processors = families.seeded(make)
    backend = backend_class(model.double(), *processors)
    assert (backend.sharing is not None) is (name in SHARE)
    task = make_task(backend)
    prompts = concatenate_prompts([task.target_prompts, task.joint_prompts("place")])
    contexts = episodes_of(task).requires_grad_()
    ours = task.encode(prompts, contexts)
    spliced = prompts.splice(backend.embed_tokens(prompts.tokens.ids), contexts)
    one_by_one = [
        [
            backend.encode_prompts(prompts[i : i + 1].tokens, spliced[e, i : i + 1])[0]
            for i in range(len(prompts))
        ]
        for e in range(len(contexts))
    ]
    theirs = nn.functional.normalize(
        torch.stack([torch.stack(row) for row in one_by_one]), dim=-1
    )
    # ALIGN and others compute parts in float32, CLIPSeg of transformers 4 its softmax
    tolerance = {"CLIPSeg": 1e-6}.get(name, 1e-9 if name in SHARE else 1e-5)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)
    weight = torch.randn(
        ours.shape, generator=torch.Generator().manual_seed(1)
    ).double()
    gradients = [
        torch.autograd.grad((x * weight).sum(), contexts)[0] for x in (ours, theirs)
    ]
    scale = float(gradients[1].abs().max())
    torch.testing.assert_close(*gradients, rtol=0, atol=100 * tolerance * scale)


@pytest.mark.parametrize("backend_class", [TransformersBackend, OpenClipBackend])
def test_blocks_see_each_beginning_once(backend_class: Any) -> None:
    make = families.clip if backend_class is TransformersBackend else OPEN_CLIP["CLIP"]
    backend = backend_class(*families.seeded(make))
    task = make_task(backend)
    shapes: list[torch.Size] = []
    blocks = backend.sharing._blocks

    def note(_block: nn.Module, _args: Any, output: Any) -> None:
        shapes.append((output[0] if isinstance(output, tuple) else output).shape)

    handles = [block.register_forward_hook(note) for block in blocks]
    task.encode(task.target_prompts, episodes_of(task))
    for handle in handles:
        handle.remove()
    tokens = task.target_prompts.tokens
    real = [tuple(tokens.row(i)) for i in range(len(tokens.ids))]
    beginnings = {row[: j + 1] for row in real for j in range(len(row))}
    assert len(beginnings) < sum(map(len, real))
    assert [shape[:2] for shape in shapes[:-1]] == [(3, len(beginnings))] * (
        len(blocks) - 1
    )
    assert all(
        not block._forward_pre_hooks and not block._forward_hooks for block in blocks
    )


def test_contexts_that_differ_between_prompts_are_kept_apart() -> None:
    """Super-TS gives each target a context of its own: equal ids, other vectors."""
    backend = TransformersBackend(*families.seeded(families.clip))
    task = make_task(backend)
    vectors = len(task.context)
    shifted = task.target_prompts.shift(torch.arange(3) * vectors)
    contexts = episodes_of(task, 3)
    together = task.encode(shifted, contexts.flatten(0, 1))
    for y in range(3):
        alone = task.encode(task.target_prompts, contexts[y])[y]
        torch.testing.assert_close(together[y], alone, rtol=0, atol=1e-5)  # of length 1


def test_hooks_are_gone_after_an_error() -> None:
    backend: Any = TransformersBackend(*families.seeded(families.clip))
    task = make_task(backend)
    blocks = backend.sharing._blocks

    def fail(*_: Any) -> None:
        raise MemoryError

    handle = blocks[1].register_forward_pre_hook(fail)
    with pytest.raises(MemoryError):
        task.encode(task.target_prompts, task.context)
    handle.remove()
    assert all(
        not block._forward_pre_hooks and not block._forward_hooks for block in blocks
    )


class Block(nn.Module):
    """Adds the mean of what the mask allows, or does something else."""

    def __init__(self, manner: str) -> None:
        super().__init__()
        self.manner = manner

    def forward(self, states: Tensor, attn_mask: Tensor) -> Any:
        if self.manner == "own mask":
            attn_mask = torch.full(attn_mask.shape, -torch.inf).triu(1)
        mixed = states + attn_mask.softmax(-1) @ states
        return {"tuple": (mixed, None), "list": [mixed]}.get(self.manner, mixed)


class Causal(nn.Module):
    """A causal tower of two blocks."""

    def __init__(self, manner: str) -> None:
        super().__init__()
        self.manner = manner
        self.words = nn.Embedding(8, 4)
        self.positions = nn.Parameter(torch.randn(6, 4))
        self.blocks = nn.ModuleList([Block(manner), Block(manner)])

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.words(ids) + self.positions[: ids.shape[1]]
        causal = torch.full((ids.shape[1],) * 2, -torch.inf).triu(1)
        for block in self.blocks:
            if self.manner == "recomputed":
                states = checkpoint(
                    block, states, attn_mask=causal, use_reentrant=False
                )
            else:
                states = block(states, attn_mask=causal)
            states = states if isinstance(states, Tensor) else states[0]
        end = mask.sum(1) - 1
        last: Tensor = states[torch.arange(len(ids)), end]
        return last


@pytest.mark.parametrize(
    ("manner", "shares"),
    [
        ("plain", True),
        ("tuple", True),
        ("own mask", False),
        ("list", False),
        ("recomputed", False),
    ],
)
def test_a_tower_that_does_not_play_along_runs_as_always(
    manner: str, shares: bool
) -> None:
    torch.manual_seed(0)
    module = Causal(manner)
    ids = torch.tensor([[1, 2, 7, 0, 0, 0], [1, 2, 5, 6, 7, 0]])
    tokens = Tokens(ids, ids > 0)
    tower = TextTower(module, manner, module, tokens)
    assert tower.cuts_tail
    assert (tower.sharing is not None) is shares
    short = tower.shorten(tokens)
    tree = PromptTree.from_tokens(short, torch.full(short.ids.shape, -1))
    leaf = tower.embed_tokens(short.ids)[None].requires_grad_()
    features = tower.encode_episodes(short, tree, leaf)[0]
    torch.testing.assert_close(features, module(ids, ids > 0))
    (gradient,) = torch.autograd.grad(features.sum(), leaf)
    assert gradient.norm() > 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_checkpointing_of_open_clip_gives_the_same_answers(when: str) -> None:
    """It runs the blocks again on the way back, where nothing is shared."""
    parts: Any = families.seeded(OPEN_CLIP["CLIP"])

    def make() -> FairTPTClassifier:
        return FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(4))

    images = [picture(seed) for seed in range(3)]
    expected = make().predict_proba(images)
    clf = make() if when == "after" else None
    parts[0].set_grad_checkpointing(True)
    clf = make() if clf is None else clf
    for part in (images, images[:1]):
        np.testing.assert_allclose(
            clf.predict_proba(part), expected[: len(part)], atol=1e-4
        )
    parts[0].set_grad_checkpointing(False)
    np.testing.assert_allclose(clf.predict_proba(images), expected, atol=1e-4)
    assert parts[0].transformer.grad_checkpointing is False


def test_a_second_dtype_still_shares() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        model, *processors = families.seeded(families.clip)
        assert TransformersBackend(model.to(dtype), *processors).sharing is not None


@pytest.mark.parametrize("index", [0, -1])
def test_a_block_may_be_exchanged(index: int) -> None:
    model, images, tokenizer = families.seeded(families.clip)
    backend = TransformersBackend(model, images, tokenizer)
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(4))
    before = clf.predict(picture())
    layers = model.text_model.encoder.layers
    layers[index] = copy.deepcopy(layers[index])
    with torch.no_grad():
        layers[index].mlp.fc1.weight.mul_(2)
    backend = TransformersBackend(model, images, tokenizer)
    anew = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(4))
    assert clf.predict(picture()) == anew.predict(picture()) != before
