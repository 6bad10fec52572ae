"""The reference of the other tests, tested by itself."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import families
import open_clip
import pytest
import torch
from literal import (
    LiteralText,
    Prompt,
    Rate,
    Task,
    calibration,
    confident,
    fair_tpt,
    terms,
)
from torch import Tensor

CLASSES = ("cat", "black dog", "bird")
PLACES = ("on water", "on land")
AGES = ("young", "old", "big")
KINDS = ("CLIP", "open_clip", "SigLIP", "Chinese-CLIP")
ELRA: Rate = ("elra", 0.01, 0.01)
RATES: list[Rate] = [
    ELRA,
    ("fixed", 5e-3, torch.optim.AdamW),
    ("fixed", 0.1, torch.optim.SGD),
]


def tiny_open_clip() -> tuple[Any, Any, Any]:
    vision = {
        "image_size": 32,
        "layers": 2,
        "width": 32,
        "patch_size": 8,
        "head_width": 8,
    }
    text = {
        "context_length": 77,
        "vocab_size": 49408,
        "width": 32,
        "heads": 4,
        "layers": 2,
    }
    return open_clip.CLIP(16, vision, text), None, open_clip.SimpleTokenizer()


BUILD = {
    "CLIP": families.clip,
    "open_clip": tiny_open_clip,
    "SigLIP": families.siglip,
    "Chinese-CLIP": families.chinese_clip,
}


@lru_cache
def text_of(name: str, dtype: torch.dtype = torch.float64) -> LiteralText:
    model, _, tokenizer = families.seeded(BUILD[name])
    with torch.no_grad():
        model.logit_scale.fill_(2.6)  # SigLIP's is tiny before training
    return LiteralText(
        model.to(dtype), "openclip" if name == "open_clip" else "hf", tokenizer
    )


def sentence(target: str = "", sensitive: str = "") -> Prompt:
    names = [name for name in (target, sensitive) if name]
    middle = [part for name in names for part in ((" ", False), (name, True))]
    return [("a photo of a", False), *middle, (".", False)]


def make_task(*attributes: tuple[str, ...]) -> Task:
    return Task(
        [sentence(y) for y in CLASSES],
        [[sentence(sensitive=s) for s in values] for values in attributes],
        [[[sentence(y, s) for s in values] for y in CLASSES] for values in attributes],
    )


TASK = make_task(PLACES)


def make_views(text: LiteralText, n: int = 8, seed: int = 0) -> Tensor:
    width = text.own_features(TASK.target_prompts[:1])
    generator = torch.Generator().manual_seed(seed)
    shape = (n, width.shape[1])
    centre = torch.randn(1, shape[1], generator=generator, dtype=torch.float64)
    return (
        centre + 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    ).to(width)


# --- text ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", KINDS)
def test_initial_features_are_the_models_own(name: str, dtype: torch.dtype) -> None:
    text = text_of(name, dtype)
    task = make_task(PLACES, AGES)
    context = text.initial(task)
    assert context.dtype == dtype
    for prompts in (
        task.target_prompts,
        task.sensitive_prompts[1],
        task.joint_prompts[0][1],
    ):
        sentences = ["".join(part for part, _ in p) for p in prompts]
        with torch.no_grad():
            if name == "open_clip":
                expected = text.model.encode_text(text.tokenizer(sentences))
            else:
                length = text.model.config.text_config.max_position_embeddings
                options = {
                    "padding": "max_length",
                    "max_length": length,
                    "return_tensors": "pt",
                }
                inputs = text.tokenizer(sentences, **options)
                if name == "SigLIP":
                    inputs = {"input_ids": inputs["input_ids"]}
                output = text.model.get_text_features(**inputs)
                expected = getattr(
                    output, "pooler_output", output
                )  # transformers 5, and 4
            assert torch.equal(text.own_features(prompts), expected)
            torch.testing.assert_close(text.features(prompts, context), expected)
            moved = text.features(prompts, 1.3 * context.flip(0))
        assert float((moved - expected).abs().max()) > 1e-3
        assert torch.equal(
            text.own_features(prompts), expected
        )  # the model is as it was


@pytest.mark.parametrize("name", KINDS)
def test_context_is_what_lies_outside_names(name: str) -> None:
    text = text_of(name)
    for prompt in TASK.all_prompts():
        ids, mask, positions = text.tokens(prompt)
        assert all(mask[position] for position in positions)
        context = text.tokenizer.decode([int(ids[position]) for position in positions])
        assert (
            context.replace(" ", "").replace("\N{LOWER ONE EIGHTH BLOCK}", "")
            == "aphotoofa."
        )


@pytest.mark.parametrize("name", KINDS)
def test_gradient_agrees_with_finite_differences(name: str) -> None:
    text = text_of(name)
    views = make_views(text)
    start = text.initial(TASK)
    # Chinese-CLIP of transformers 4 takes its softmax in float32
    step, margin = (
        (1e-5, 1e-5) if families.IS_FIVE or name != "Chinese-CLIP" else (1e-3, 1e-2)
    )
    generator = torch.Generator().manual_seed(1)
    along = torch.randn(start.shape, generator=generator, dtype=torch.float64)
    parameter = start.clone().requires_grad_()
    target, sensitive = terms(text, TASK, views, parameter, "TS")
    assert sensitive is not None
    for i, term in enumerate((target, sensitive)):
        (gradient,) = torch.autograd.grad(term, parameter)
        with torch.no_grad():
            ahead, behind = (
                terms(text, TASK, views, start + h * along, "TS")[i]
                for h in (step, -step)
            )
        assert ahead is not None
        assert behind is not None
        slope = float((ahead - behind) / (2 * step))
        assert slope == pytest.approx(
            float((gradient * along).sum()), rel=margin, abs=1e-9
        )
        assert abs(slope) > 1e-4


# --- FairTPT ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "loss", "upgrad"),
    [
        ("CLIP", "S", False), ("open_clip", "S", True), ("SigLIP", "TS", True),
        ("Chinese-CLIP", "super-TS", False), ("CLIP", "super-TS", True),
    ],
)  # fmt: skip
def test_elra_step(name: str, loss: Any, upgrad: bool) -> None:
    text = text_of(name)
    views = make_views(text)
    beta, sigma = 1e-4, 1e-3
    tuned = fair_tpt(
        text,
        TASK,
        views,
        loss=loss,
        lam=1.0,
        upgrad=upgrad,
        rate=("elra", beta, sigma),
        rho=0.5,
    )
    assert not tuned.degenerate
    assert len(tuned.kept) == 4
    assert tuned.relative_step == pytest.approx(sigma * beta / tuned.change, rel=1e-9)
    start = text.initial(TASK).expand_as(tuned.context)
    step = start - tuned.context
    torch.testing.assert_close(
        step, tuned.learning_rate * tuned.direction, rtol=1e-6, atol=1e-9
    )
    # Both steps are short, so the target term then changes by about beta.
    assert tuned.relative_step < 1e-2
    with torch.no_grad():
        target, _ = terms(text, TASK, views[tuned.kept], tuned.context, loss)
    assert abs(float(target) - tuned.losses[0][0]) == pytest.approx(beta, rel=0.2)


@pytest.mark.parametrize("lam", [0.0, 1.0, 100.0, math.inf])
def test_direction(lam: float) -> None:
    text = text_of("open_clip")
    views = make_views(text)
    parameter = text.initial(TASK).requires_grad_()
    kept = confident(text, TASK, views, 0.75, parameter)
    target, sensitive = terms(text, TASK, views[kept], parameter, "S")
    assert sensitive is not None
    (of_target,) = torch.autograd.grad(target, parameter)
    (of_sensitive,) = torch.autograd.grad(sensitive, parameter)
    assert float((of_target * -of_sensitive).sum()) < 0  # the two conflict
    rate: Rate = ("fixed", 1e-3, torch.optim.SGD)
    tuned = fair_tpt(text, TASK, views, lam=lam, rate=rate)
    w = 1.0 if math.isinf(lam) else lam / (1 + lam)
    torch.testing.assert_close(tuned.direction, (1 - w) * of_target - w * of_sensitive)
    jacobian_descent = fair_tpt(text, TASK, views, lam=lam, upgrad=True, rate=rate)
    for gradient in (
        of_target,
        -of_sensitive,
    ):  # Jacobian descent conflicts with neither
        assert float((jacobian_descent.direction * gradient).sum()) >= -1e-9 * float(
            jacobian_descent.direction.norm()
        )


# --- UPGrad ----------------------------------------------------------------------------------


# --- Zero ------------------------------------------------------------------------------------


# --- OrthCali --------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.0, 1.0, 1000.0])
def test_calibration_is_the_minimiser(lam: float) -> None:
    text = text_of("CLIP")
    task = make_task(PLACES, AGES)
    problem = calibration(text, task, lam)
    assert problem.differences.shape == (3 * 1 + 3 * 3, 16)
    solution = problem.solve().requires_grad_()
    (gradient,) = torch.autograd.grad(problem.objective(solution), solution)
    assert float(gradient.abs().max()) < 1e-9
    moments = problem.differences.T @ problem.differences / len(problem.differences)
    eye = torch.eye(16, dtype=torch.float64)
    closed = problem.initial @ torch.linalg.inv(eye + lam * moments)
    torch.testing.assert_close(solution.detach(), closed, rtol=0, atol=1e-10)

    # A minimiser that knows nothing of least squares ends at the same place.
    free = problem.initial.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [free],
        max_iter=400,
        tolerance_grad=1e-10,
        tolerance_change=0,
        history_size=50,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = problem.objective(free)
        value.backward()
        return value

    optimizer.step(closure)
    torch.testing.assert_close(free.detach(), closed, rtol=0, atol=1e-6)
