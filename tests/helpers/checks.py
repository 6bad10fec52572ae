"""Named asserts that every model family must pass (see docs/models.md)."""

from __future__ import annotations

from typing import Any

import torch
from internals import Task, Templates, unit_features
from PIL import Image
from torch import Tensor

from fair_tta.models import Backend

TARGETS = {"cat": "cat", "dog": "black dog", "bird": "water bird"}
SENSITIVE = {"place": {"water": "on water", "land": "on land"}}
TEMPLATE = "a photo of a {target} {sensitive}."


def make_task(backend: Backend) -> Task:
    return Task(backend, TARGETS, SENSITIVE, Templates.from_sentence(TEMPLATE))


def picture(seed: int = 0, size: tuple[int, int] = (52, 40)) -> Image.Image:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(
        256, (size[1], size[0], 3), generator=generator, dtype=torch.uint8
    )
    return Image.fromarray(pixels.numpy())


def assert_splice_is_exact(backend: Any, original: Any) -> None:
    """(a) Features from the initial context equal those of the model's own full-length call.

    Args:
        own: ``Tokens -> features``, the model's own call, written in the test.
    """
    task = make_task(backend)
    for prompts in (
        task.target_prompts,
        task.sensitive_prompts["place"],
        task.joint_prompts("place"),
    ):
        assert (prompts.slots >= 0).any(1).all()
        with torch.no_grad():
            spliced = task.encode(prompts, task.context)
            torch.testing.assert_close(
                spliced, unit_features(original(prompts.tokens)), rtol=0, atol=1e-5
            )


def assert_gradient_is_right(backend: Any) -> None:
    """(b) The gradient with respect to the context agrees with finite differences (float64)."""
    task = make_task(backend)
    context = task.context.clone().requires_grad_()
    assert context.dtype == torch.float64
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(
        task.target_features.shape, generator=generator, dtype=torch.float64
    )

    def loss(at: Tensor) -> Tensor:
        return (task.encode(task.target_prompts, at) * weight).sum()

    (gradient,) = torch.autograd.grad(loss(context), context)
    assert gradient.norm() > 0
    random = [
        torch.randn(context.shape, generator=generator).double() for _ in range(3)
    ]
    for direction in (gradient, *random):
        step = 1e-3 * direction / direction.norm()
        with torch.no_grad():
            slope = (loss(context + step) - loss(context - step)) / 2
        # ALIGN and others take their softmax in float32 whatever their dtype (mT5 of transformers
        # 4.56: 1.8e-4); a slot that is spliced wrongly is off by per cents
        tolerance = 5e-4 * float(gradient.norm() * step.norm())
        torch.testing.assert_close(
            slope, (gradient * step).sum(), rtol=0, atol=tolerance
        )


def assert_cut_is(backend: Any, original: Any, expected: bool) -> None:
    """(c) The padded tail is cut exactly where that changes nothing."""
    assert backend.cuts_tail is expected
    tokens = backend.tokenize(["a cat", "a picture of a big black dog on water"])
    with torch.no_grad():
        torch.testing.assert_close(
            unit_features(backend.encode_text(tokens)),
            unit_features(original(tokens)),
            rtol=0,
            atol=1e-5,
        )
    lengths: list[int] = []
    layer = backend.embedding_layer
    handle = layer.register_forward_hook(
        lambda _m, args, _o: lengths.append(args[0].shape[1])
    )
    backend.encode_text(tokens)
    handle.remove()
    full = tokens.ids.shape[1]
    used = int(tokens.mask.any(0).nonzero().max()) + 1
    if expected:
        assert used <= lengths[0] <= used + 1 < full
    else:
        assert lengths[0] == full


def assert_zero_shot_is(
    backend: Any, logits_per_image: Any, tolerance: float = 1e-5
) -> None:
    """Probabilities equal the softmax of the model's own logits.

    Args:
        logits_per_image: ``(images, sentences) -> [images, sentences]``, the model's own answer.
    """
    from fair_tta import FairTPTClassifier, ZeroShot

    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, adapter=ZeroShot())
    images = [picture(0), picture(1, (33, 77))]
    sentences = [f"a photo of a {phrase}." for phrase in TARGETS.values()]
    expected = logits_per_image(images, sentences).double().softmax(-1)
    ours = torch.tensor(clf.predict_proba(images))
    torch.testing.assert_close(ours, expected, rtol=0, atol=tolerance)
