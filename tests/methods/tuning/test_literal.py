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
    orthcali,
    preference,
    terms,
    upgrad_aggregate,
    upgrad_closed_form,
    zero,
    zero_shot,
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
                own = text.model.encode_text(text.tokenizer(sentences))
            else:
                length = text.model.config.text_config.max_position_embeddings
                more = {
                    "padding": "max_length",
                    "max_length": length,
                    "return_tensors": "pt",
                }
                inputs = text.tokenizer(sentences, **more)
                if name == "SigLIP":
                    inputs = {"input_ids": inputs["input_ids"]}
                output = text.model.get_text_features(**inputs)
                own = getattr(output, "pooler_output", output)  # transformers 5, and 4
            assert torch.equal(text.own_features(prompts), own)
            torch.testing.assert_close(text.features(prompts, context), own)
            moved = text.features(prompts, 1.3 * context.flip(0))
        assert float((moved - own).abs().max()) > 1e-3
        assert torch.equal(text.own_features(prompts), own)  # the model is as it was


@pytest.mark.parametrize("name", KINDS)
def test_context_is_what_lies_outside_names(name: str) -> None:
    text = text_of(name)
    for prompt in TASK.all_prompts():
        ids, mask, places = text.tokens(prompt)
        assert all(mask[place] for place in places)
        found = text.tokenizer.decode([int(ids[place]) for place in places])
        assert (
            found.replace(" ", "").replace("\N{LOWER ONE EIGHTH BLOCK}", "")
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


def test_names_that_share_a_token_with_the_context_are_refused() -> None:
    text = text_of("open_clip")
    with pytest.raises(AssertionError, match="border"):
        text.tokens([("photo", True), ("graph", False)])
    with pytest.raises(AssertionError, match="differ"):
        text.initial(
            Task([sentence("cat"), [("a picture of a ", False), ("dog", True)]])
        )


# --- FairTPT ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rate"), list(zip(KINDS, [*RATES, ELRA], strict=True))
)
def test_lam_0_is_tpt(name: str, rate: Rate) -> None:
    text = text_of(name)
    views = make_views(text)
    fair = fair_tpt(text, TASK, views, loss="S", lam=0, rate=rate, steps=2)
    plain = fair_tpt(text, TASK, views, loss="T", rate=rate, steps=2)
    torch.testing.assert_close(fair.context, plain.context, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        fair.probabilities, plain.probabilities, rtol=1e-9, atol=1e-12
    )
    assert fair.learning_rate == pytest.approx(plain.learning_rate, rel=1e-9)
    assert plain.losses[0][0] == pytest.approx(fair.losses[0][0])
    assert float(plain.probabilities.sum()) == pytest.approx(1)
    assert not torch.allclose(
        plain.probabilities, zero_shot(text, TASK, views), atol=1e-6
    )


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
    found = fair_tpt(
        text,
        TASK,
        views,
        loss=loss,
        lam=1.0,
        upgrad=upgrad,
        rate=("elra", beta, sigma),
        rho=0.5,
    )
    assert not found.degenerate
    assert len(found.kept) == 4
    assert found.relative_step == pytest.approx(sigma * beta / found.change, rel=1e-9)
    start = text.initial(TASK).expand_as(found.context)
    step = start - found.context
    torch.testing.assert_close(
        step, found.learning_rate * found.direction, rtol=1e-6, atol=1e-9
    )
    # Both steps are short, so the target term then changes by about beta.
    assert found.relative_step < 1e-2
    with torch.no_grad():
        target, _ = terms(text, TASK, views[found.kept], found.context, loss)
    assert abs(float(target) - found.losses[0][0]) == pytest.approx(beta, rel=0.2)


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
    found = fair_tpt(text, TASK, views, lam=lam, rate=rate)
    w = 1.0 if math.isinf(lam) else lam / (1 + lam)
    torch.testing.assert_close(found.direction, (1 - w) * of_target - w * of_sensitive)
    many = fair_tpt(text, TASK, views, lam=lam, upgrad=True, rate=rate)
    for own in (of_target, -of_sensitive):  # Jacobian descent conflicts with neither
        assert float((many.direction * own).sum()) >= -1e-9 * float(
            many.direction.norm()
        )


def test_super_ts_of_one_shared_start_is_ts() -> None:
    """At the start all contexts agree, so both terms are those of TS."""
    text = text_of("CLIP")
    task = make_task(PLACES, AGES)
    views = make_views(text)
    start = text.initial(task)
    with torch.no_grad():
        shared = terms(text, task, views, start, "TS")
        own = terms(text, task, views, torch.stack([start] * len(CLASSES)), "super-TS")
    assert shared[1] is not None
    assert own[1] is not None
    torch.testing.assert_close(shared[0], own[0])
    torch.testing.assert_close(shared[1], own[1])
    found = fair_tpt(text, task, views, loss="super-TS", lam=1.0)
    assert found.context.shape == (len(CLASSES), *start.shape)
    assert [tuple(p.shape) for p in found.sensitive_probabilities] == [(3, 2), (3, 3)]
    summed = fair_tpt(text, task, views, loss="TS", lam=1.0).direction
    torch.testing.assert_close(
        found.direction.sum(0), summed
    )  # the derivative along equal moves


def test_attributes_are_added() -> None:
    text = text_of("CLIP")
    views = make_views(text)
    start = text.initial(TASK)
    for loss in ("S", "TS"):
        with torch.no_grad():
            both, one, two = (
                terms(text, make_task(*attributes), views, start, loss)[1]
                for attributes in ((PLACES, AGES), (PLACES,), (AGES,))
            )
        assert both is not None
        assert one is not None
        assert two is not None
        torch.testing.assert_close(both, one + two)


def test_no_gradient_is_degenerate() -> None:
    text = text_of("CLIP")
    views = make_views(text)
    same = Task([sentence("cat"), sentence("cat")])
    found = fair_tpt(text, same, views, loss="T")  # entropy is 1 whatever the context
    assert found.degenerate or found.change < 1e-12
    if found.degenerate:
        assert torch.equal(found.context, text.initial(same))


# --- UPGrad ----------------------------------------------------------------------------------


def test_upgrad_does_not_conflict() -> None:
    generator = torch.Generator().manual_seed(0)
    conflicts = 0
    for _ in range(100):
        rows = torch.randn(2, 4, generator=generator, dtype=torch.float64)
        rows = rows * 10 ** (
            4 * torch.rand(2, 1, generator=generator, dtype=torch.float64) - 6
        )
        conflicts += float(rows[0] @ rows[1]) < 0
        for lam in (0.0, 1.0, 100.0, math.inf):
            aggregate = upgrad_aggregate(rows, preference(lam))
            slack = 1e-9 * float(aggregate.norm())
            assert all(
                float(aggregate @ row) >= -slack * float(row.norm()) for row in rows
            )
            closed = upgrad_closed_form(rows, preference(lam)) @ rows
            torch.testing.assert_close(
                aggregate, closed, rtol=1e-6, atol=1e-9 * float(rows.norm())
            )
            doubled = upgrad_aggregate(2 * rows, preference(lam))  # scales are kept
            torch.testing.assert_close(doubled, 2 * aggregate, rtol=1e-6, atol=0)
    assert 30 < conflicts < 70


def test_upgrad_where_quadprog_cannot() -> None:
    row = torch.tensor([1.0, 2.0], dtype=torch.float64)
    opposed = upgrad_aggregate(torch.stack([row, -row]), preference(1.0))
    assert float(opposed.norm()) < 1e-12
    half = upgrad_aggregate(torch.stack([row, 0 * row]), preference(3.0))
    torch.testing.assert_close(half, row)
    assert not upgrad_aggregate(torch.zeros(2, 3), preference(1.0)).any()


# --- Zero ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rho", "count"), [(0.0, 1), (0.1, 1), (0.3, 3), (0.75, 7), (1.0, 10)]
)
@pytest.mark.parametrize("name", KINDS)
def test_votes_sum_to_the_views_kept(name: str, rho: float, count: int) -> None:
    text = text_of(name)
    views = make_views(text, 10)
    votes, label = zero(text, TASK, views, rho)
    assert votes.sum() == count
    assert votes[label] == votes.max()
    if rho == 0:
        kept = confident(text, TASK, views, rho, text.initial(TASK))
        assert label == int(zero_shot(text, TASK, views[kept]).argmax())


def test_ties_go_to_the_larger_sum() -> None:
    text = text_of("CLIP")
    features = text.own_features(TASK.target_prompts)
    features = features / features.norm(dim=1, keepdim=True)
    between = features[0] + features[2]
    for strong, weak in ((0, 2), (2, 0)):
        views = torch.stack([between + 0.01 * features[weak], features[strong]])
        votes, label = zero(text, TASK, views, 1.0)
        assert votes.tolist() == [1, 0, 1]
        assert label == strong


# --- OrthCali --------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.0, 1.0, 1000.0])
def test_calibration_is_the_minimiser(lam: float) -> None:
    text = text_of("CLIP")
    task = make_task(PLACES, AGES)
    problem = calibration(text, task, lam)
    assert problem.differences.shape == (3 * 1 + 3 * 3, 16)
    found = problem.solve().requires_grad_()
    (gradient,) = torch.autograd.grad(problem.objective(found), found)
    assert float(gradient.abs().max()) < 1e-9
    moments = problem.differences.T @ problem.differences / len(problem.differences)
    eye = torch.eye(16, dtype=torch.float64)
    closed = problem.initial @ torch.linalg.inv(eye + lam * moments)
    torch.testing.assert_close(found.detach(), closed, rtol=0, atol=1e-10)

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


@pytest.mark.parametrize("name", KINDS)
def test_orthcali(name: str) -> None:
    text = text_of(name)
    views = make_views(text)
    problem = calibration(text, TASK, 0.0)
    sensitive = text.own_features(TASK.sensitive_prompts[0])
    torch.testing.assert_close(
        problem.initial @ sensitive.T, torch.zeros_like(sensitive.T), rtol=0, atol=1e-9
    )
    plain = orthcali(text, TASK, views, 0.0)
    assert float(plain.sum()) == pytest.approx(1)
    assert not torch.allclose(plain, zero_shot(text, TASK, views), atol=1e-6)
    # Without joint prompts P0 is all there is.
    alone = Task(TASK.target_prompts, TASK.sensitive_prompts)
    torch.testing.assert_close(orthcali(text, alone, views, 0.0), plain)
    tuned = fair_tpt(text, TASK, views).context
    after = orthcali(text, TASK, views, 0.0, tuned)
    assert float(after.sum()) == pytest.approx(1)
    assert not torch.allclose(after, plain, atol=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_float32_is_near_float64(name: str) -> None:
    exact, rough = text_of(name), text_of(name, torch.float32)
    views = make_views(exact)
    options: list[dict[str, Any]] = [
        {"rate": ("fixed", 1e-3, torch.optim.SGD), "lam": 1.0},
        {"rate": ELRA, "lam": 0.0},
    ]
    for more in options:
        wanted = fair_tpt(exact, TASK, views, **more)
        found = fair_tpt(rough, TASK, views.float(), **more)
        assert found.probabilities.dtype == found.context.dtype == torch.float32
        assert torch.equal(wanted.kept, found.kept)
        torch.testing.assert_close(
            found.probabilities.double(), wanted.probabilities, rtol=0, atol=1e-3
        )
    low, high = (
        orthcali(rough, TASK, views.float(), 1.0),
        orthcali(exact, TASK, views, 1.0),
    )
    assert low.dtype == torch.float32
    torch.testing.assert_close(low.double(), high, rtol=0, atol=1e-4)
