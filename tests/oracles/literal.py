"""A literal, slow reading of the paper: an oracle for the tests, written apart from the library.

Nothing is cached, shortened or solved ahead: every call runs the model's own text tower at full
length, every gradient comes from autograd, every step from ``torch.optim``, one image at a time.

A prompt is a list of parts ``(text, is_name)``; its text is their concatenation. Its context tokens
are those outside names; all prompts of a task hold the same ones, and one copy serves them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import torch
from torch import Tensor
from torchjd.aggregation import UPGrad
from torchjd.autojac import backward
from torchjd.linalg import QuadprogProjector

Prompt = Sequence[tuple[str, bool]]
Loss = Literal["T", "S", "TS", "super-TS"]
# ("fixed", learning rate, class of torch.optim) or ("elra", beta, sigma)
Rate = tuple[Literal["fixed"], float, Any] | tuple[Literal["elra"], float, float]


@dataclass(frozen=True)
class Task:
    """The prompts: by class; by attribute and value; by attribute, class and value."""

    target_prompts: Sequence[Prompt]
    sensitive_prompts: Sequence[Sequence[Prompt]] = ()
    joint_prompts: Sequence[Sequence[Sequence[Prompt]]] = ()

    def all_prompts(self) -> list[Prompt]:
        """Every prompt of the three sets."""
        return [
            *self.target_prompts,
            *(p for attribute in self.sensitive_prompts for p in attribute),
            *(
                p
                for attribute in self.joint_prompts
                for of_class in attribute
                for p in of_class
            ),
        ]


# --- text ------------------------------------------------------------------------------------


class LiteralText:
    """The text side of one model: ``kind`` is "hf" or "openclip"."""

    def __init__(
        self, model: Any, kind: Literal["hf", "openclip"], tokenizer: Any
    ) -> None:
        assert not model.training
        self.model, self.kind, self.tokenizer = model, kind, tokenizer
        if kind == "hf":
            table = model.text_model.embeddings
            self.length = model.config.text_config.max_position_embeddings
        else:
            table = model if hasattr(model, "token_embedding") else model.text
            self.length = model.context_length
        names = ("token_embedding", "word_embeddings")
        (self.embedding,) = (
            getattr(table, name) for name in names if hasattr(table, name)
        )
        self.scale = float(model.logit_scale.detach().exp())

    def initial(self, task: Task) -> Tensor:
        """Embeddings ``[n, w]`` of the context tokens, which every prompt of the task holds."""
        lists = []
        for prompt in task.all_prompts():
            ids, _, indices = self.tokens(prompt)
            lists.append([int(ids[index]) for index in indices])
        first = lists[0]
        assert first, "no context tokens"
        assert all(token_list == first for token_list in lists), (
            f"the context tokens differ: {lists}"
        )
        with torch.no_grad():
            vectors: Tensor = self.embedding(
                torch.tensor(first, device=self.embedding.weight.device)
            )
        return vectors.clone()

    def own_features(self, prompts: Sequence[Prompt]) -> Tensor:
        """The model's own text features ``[k, d]``, not normalised."""
        with torch.no_grad():
            return self._call(prompts)

    def features(self, prompts: Sequence[Prompt], context: Tensor) -> Tensor:
        """Text features ``[k, d]``, **not normalised**, with ``context`` ``[n, w]`` spliced in."""
        assert context.ndim == 2

        def splice(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
            spliced = output.detach().clone()
            assert spliced.shape[:2] == (len(prompts), self.length)
            for row, prompt in enumerate(prompts):
                _, _, indices = self.tokens(prompt)
                assert len(indices) == len(context)
                for i, index in enumerate(indices):
                    spliced[row, index] = context[i].to(spliced.dtype)
            return spliced.clone()  # some towers add positions in place

        handle = self.embedding.register_forward_hook(splice)
        try:
            return self._call(prompts)
        finally:
            handle.remove()

    def tokens(self, prompt: Prompt) -> tuple[Tensor, Tensor, list[int]]:
        """Ids and attention mask, both at full length, and the places of the context tokens."""
        ids, mask, indices = (
            self._hf(prompt) if self.kind == "hf" else self._openclip(prompt)
        )
        assert len(ids) == len(mask) == self.length, "the prompt is too long"
        return ids, mask, indices

    def _call(self, prompts: Sequence[Prompt]) -> Tensor:
        device = self.embedding.weight.device
        rows = [self.tokens(prompt) for prompt in prompts]
        ids = torch.stack([row[0] for row in rows]).to(device)
        mask = torch.stack([row[1] for row in rows]).to(device)
        if self.kind == "openclip":
            features: Tensor = self.model.encode_text(ids, normalize=False)
            return features
        if self.model.config.model_type.startswith("siglip"):  # trained without a mask
            output = self.model.get_text_features(input_ids=ids)
        else:
            output = self.model.get_text_features(input_ids=ids, attention_mask=mask)
        pooled: Tensor = getattr(output, "pooler_output", output)
        return pooled

    def _hf(self, prompt: Prompt) -> tuple[Tensor, Tensor, list[int]]:
        text = "".join(part for part, _ in prompt)
        in_name = [is_name for part, is_name in prompt for _ in part]
        encoded = self.tokenizer(
            text,
            padding="max_length",
            max_length=self.length,
            return_attention_mask=True,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
        )
        indices = []
        for index, (start, end) in enumerate(encoded["offset_mapping"]):
            if encoded["special_tokens_mask"][index]:  # also padding
                continue
            letters = [i for i in range(start, end) if not text[i].isspace()]
            if not letters:  # a lone space belongs to the word that it begins
                letters = [i for i in range(end, len(text)) if not text[i].isspace()][
                    :1
                ]
            if not any(in_name[i] for i in letters):
                indices.append(index)
        return (
            torch.tensor(encoded["input_ids"]),
            torch.tensor(encoded["attention_mask"]),
            indices,
        )

    def _openclip(self, prompt: Prompt) -> tuple[Tensor, Tensor, list[int]]:
        token_ids = self.tokenizer.encode("".join(part for part, _ in prompt))
        pieces: list[int] = []
        indices = []
        for part, is_name in prompt:
            new = self.tokenizer.encode(part)
            if not is_name:
                indices += [
                    1 + len(pieces) + i for i in range(len(new))
                ]  # 1: start of text
            pieces += new
        assert pieces == token_ids, "a token crosses the border of a name"
        ids = self.tokenizer(
            ["".join(part for part, _ in prompt)], context_length=self.length
        )[0]
        full_ids = [
            self.tokenizer.sot_token_id,
            *token_ids,
            self.tokenizer.eot_token_id,
        ]
        assert ids[: len(full_ids)].tolist() == full_ids
        return ids, (torch.arange(self.length) < len(full_ids)).long(), indices


# --- probabilities and entropies -------------------------------------------------------------


def log_probabilities(
    text: LiteralText, prompts: Sequence[Prompt], context: Tensor, views: Tensor
) -> Tensor:
    """``log softmax(scale * cosine)``, ``[N, k]``."""
    features = text.features(prompts, context).to(views.dtype)
    features = features / features.norm(dim=1, keepdim=True)
    views = views / views.norm(dim=1, keepdim=True)
    return torch.log_softmax(text.scale * (views @ features.T), dim=1)


def entropy_of_mean(log_p: Tensor) -> Tensor:
    """Entropy of the mean over views of ``[N, k]``, divided by ``log k``, in log space."""
    number, classes = log_p.shape
    assert classes > 1
    log_mean = torch.logsumexp(log_p, dim=0) - math.log(number)
    return -(log_mean.exp() * log_mean).sum() / math.log(classes)


def confident(
    text: LiteralText, task: Task, views: Tensor, rho: float, context: Tensor
) -> Tensor:
    """Indices of the views that are kept: lowest target entropy first, ties in order."""
    with torch.no_grad():
        log_p = log_probabilities(text, task.target_prompts, context, views)
    entropies = -(log_p.exp() * log_p).sum(1)
    count = max(1, math.floor(rho * len(views) + 1e-9))
    return torch.argsort(entropies, stable=True)[:count]


def terms(
    text: LiteralText, task: Task, views: Tensor, context: Tensor, loss: Loss
) -> tuple[Tensor, Tensor | None]:
    """The two terms ``l(Y)`` and ``l(S)`` over ``views`` (those kept), both positive.

    Several attributes: the sum of their terms.

    Args:
        context: ``[n, w]``, or for super-TS one per target ``[C, n, w]``.
    """

    def entropy(prompts: Sequence[Prompt], at: Tensor) -> Tensor:
        return entropy_of_mean(log_probabilities(text, prompts, at, views))

    def total(values: list[Tensor]) -> Tensor:
        assert values, "the task has no prompts for this loss"
        return torch.stack(values).sum()

    def mean(values: list[Tensor]) -> Tensor:
        return total(values) / len(values)

    classes = range(len(task.target_prompts))
    if loss == "super-TS":
        assert context.shape[0] == len(classes)
        target = mean([entropy(task.target_prompts, context[y]) for y in classes])
        sensitive = mean(
            [
                total(
                    [
                        entropy(attribute[y], context[y])
                        for attribute in task.joint_prompts
                    ]
                )
                for y in classes
            ]
        )
        return target, sensitive
    target = entropy(task.target_prompts, context)
    if loss == "T":
        return target, None
    if loss == "S":
        return target, total(
            [entropy(values, context) for values in task.sensitive_prompts]
        )
    assert loss == "TS"
    return target, total(
        [
            mean([entropy(attribute[y], context) for y in classes])
            for attribute in task.joint_prompts
        ]
    )


# --- two objectives --------------------------------------------------------------------------


def preference(lam: float) -> Tensor:
    """Of the two objectives: ``(1, lam)``, or ``(0, 1)`` where lam is infinite."""
    return torch.tensor(
        [0.0, 1.0] if math.isinf(lam) else [1.0, lam], dtype=torch.float64
    )


def upgrad_closed_form(jacobian: Tensor, pref: Tensor) -> Tensor:
    """UPGrad's weights for two objectives (METHODS 5.2), in float64."""
    gramian = jacobian.double() @ jacobian.double().T
    a, b, c = (float(gramian[i]) for i in ((0, 0), (1, 1), (0, 1)))
    p1, p2 = (float(p) for p in pref)
    if c >= 0:
        return torch.tensor([p1, p2], dtype=torch.float64)
    return torch.tensor([p1 + p2 * -c / a, p2 + p1 * -c / b], dtype=torch.float64)


def upgrad_aggregate(jacobian: Tensor, pref: Tensor) -> Tensor:
    """TorchJD's UPGrad of ``[2, m]``, not regularised; the closed form where quadprog cannot."""
    rows = jacobian.double()
    pref = pref.to(rows.device)
    closed = upgrad_closed_form(rows, pref).to(rows.device) @ rows
    norms = rows.norm(dim=1)
    cosine = float(rows[0] @ rows[1] / (norms[0] * norms[1]))
    if not (abs(cosine) < 1 - 1e-8 and 1e-6 < float(norms[0] / norms[1]) < 1e6):
        return closed.to(
            jacobian.dtype
        )  # the quadratic programme is singular, or nearly
    projector = QuadprogProjector(norm_eps=0.0, reg_eps=0.0)
    direction: Tensor = UPGrad(pref_vector=pref, projector=projector)(rows)
    assert float((direction - closed).norm()) <= 1e-6 * float(pref @ norms), (
        "UPGrad: two answers"
    )
    return direction.to(jacobian.dtype)


# --- FairTPT and TPT -------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """What ``fair_tpt`` found for one image."""

    probabilities: Tensor  # [C], view 0 with the tuned context
    context: Tensor  # [n, w]; super-TS: [C, n, w]
    learning_rate: float  # of every step; under ELRA what the probe found
    # One tensor [G] per attribute: the sensitive prompts on view 0 with the tuned context;
    # super-TS: [C, G], a row per target's context.
    sensitive_probabilities: list[Tensor]
    kept: Tensor  # indices of the views kept
    direction: Tensor  # gradient, or UPGrad's aggregate, at the start; as context
    change: float  # D, of the target term in ELRA's probe; nan at a fixed rate
    relative_step: float  # |t1 - t0| / |t0| of the first step
    degenerate: bool = False  # ELRA: no gradient or no change, so no step was made
    losses: list[tuple[float, float]] = field(
        default_factory=list
    )  # (l(Y), l(S)) before each step


def fair_tpt(
    text: LiteralText,
    task: Task,
    views: Tensor,
    *,
    loss: Loss = "S",
    lam: float = 100.0,
    upgrad: bool = False,
    rate: Rate = ("elra", 0.01, 0.01),
    rho: float = 0.75,
    steps: int = 1,
) -> Result:
    """FairTPT, and TPT where ``loss`` is "T", of one image.

    Args:
        views: image features ``[N, d]``, the plain image first; they need not be normalised.
        lam: from 0 (target alone) to infinity (sensitive alone); "T" ignores it.
        upgrad: Jacobian descent on ``(l(Y), -l(S))`` with preference ``(1, lam)``; "T" ignores it.
    """
    start = text.initial(task)
    kept = confident(text, task, views, rho, start)
    filtered = views[kept]
    if loss == "super-TS":
        start = torch.stack([start for _ in task.target_prompts])
    parameter = start.clone().requires_grad_()
    losses: list[tuple[float, float]] = []

    def differentiate() -> tuple[float, float]:
        """Fill ``parameter.grad``; the two terms."""
        parameter.grad = None
        target, sensitive = terms(text, task, filtered, parameter, loss)
        if sensitive is None:
            target.backward(inputs=[parameter])
            return float(target.detach()), math.nan
        if upgrad:
            backward([target, -sensitive], inputs=[parameter], parallel_chunk_size=1)
            jacobian: Tensor = parameter.jac  # type: ignore[attr-defined]
            del parameter.jac  # type: ignore[attr-defined]
            aggregate = upgrad_aggregate(jacobian.flatten(1), preference(lam))
            parameter.grad = aggregate.view_as(parameter).clone()
        elif math.isinf(lam):
            (-sensitive).backward(inputs=[parameter])
        else:
            objective = 1 / (1 + lam) * target - lam / (1 + lam) * sensitive
            objective.backward(inputs=[parameter])
        return float(target.detach()), float(sensitive.detach())

    before, _ = differentiate()
    direction = _gradient(parameter)
    change, degenerate = math.nan, False
    make_optimizer: Callable[..., torch.optim.Optimizer]
    if rate[0] == "fixed":
        _, learning_rate, make_optimizer = rate
    else:
        _, beta, sigma = rate
        make_optimizer = torch.optim.SGD
        learning_rate, change = math.inf, 0.0
        if float(direction.norm()) > 0:
            probe_rate = sigma * float(start.norm()) / float(direction.norm())
            probe = torch.optim.SGD([parameter], lr=probe_rate)
            probe.zero_grad()
            differentiate()
            probe.step()
            with torch.no_grad():
                after = float(terms(text, task, filtered, parameter, loss)[0])
                parameter.copy_(start)
            change = abs(after - before)
            if change > 0:
                learning_rate = probe_rate * beta / change
        degenerate = not math.isfinite(learning_rate)

    relative_step = 0.0
    if not degenerate:
        optimizer = make_optimizer([parameter], lr=learning_rate)
        for step in range(steps):
            optimizer.zero_grad()
            losses.append(differentiate())
            optimizer.step()
            if step == 0:
                relative_step = float(
                    (parameter.detach() - start).norm() / start.norm()
                )

    tuned = parameter.detach().clone()
    with torch.no_grad():
        return Result(
            probabilities=_answer(text, task, views[:1], tuned),
            context=tuned,
            learning_rate=learning_rate,
            sensitive_probabilities=[
                _sensitive(text, values, views[:1], tuned)
                for values in task.sensitive_prompts
            ],
            kept=kept,
            direction=direction,
            change=change,
            relative_step=relative_step,
            degenerate=degenerate,
            losses=losses,
        )


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.detach().clone()


def _answer(text: LiteralText, task: Task, view: Tensor, context: Tensor) -> Tensor:
    prompts = task.target_prompts
    if context.ndim == 2:
        return log_probabilities(text, prompts, context, view)[0].exp()
    joined = torch.cat(
        [text.features([p], at) for p, at in zip(prompts, context, strict=True)]
    )
    joined = joined.to(view.dtype)  # the class y with its own context
    joined = joined / joined.norm(dim=1, keepdim=True)
    return torch.softmax(
        text.scale * (view / view.norm(dim=1, keepdim=True)) @ joined.T, dim=1
    )[0]


def _sensitive(
    text: LiteralText, prompts: Sequence[Prompt], view: Tensor, context: Tensor
) -> Tensor:
    if context.ndim == 2:
        return log_probabilities(text, prompts, context, view)[0].exp()
    return torch.stack(
        [log_probabilities(text, prompts, at, view)[0].exp() for at in context]
    )


def zero_shot(
    text: LiteralText, task: Task, views: Tensor, context: Tensor | None = None
) -> Tensor:
    """Probabilities ``[C]`` of view 0, with the initial context unless another is given."""
    with torch.no_grad():
        at = text.initial(task) if context is None else context
        return _answer(text, task, views[:1], at)


# --- Zero ------------------------------------------------------------------------------------


def zero(
    text: LiteralText,
    task: Task,
    views: Tensor,
    rho: float,
    context: Tensor | None = None,
) -> tuple[Tensor, int]:
    """Votes ``[C]`` (whole numbers) of the kept views, and the label.

    Among tied classes the larger summed probability over the kept views wins, then the first.
    """
    at = text.initial(task) if context is None else context
    kept = confident(text, task, views, rho, at)
    with torch.no_grad():
        p = log_probabilities(text, task.target_prompts, at, views[kept]).exp()
    votes = torch.zeros(p.shape[1], dtype=torch.long)
    for row in p:
        votes[int(row.argmax())] += 1
    tied = [y for y in range(len(votes)) if votes[y] == votes.max()]
    return votes, max(tied, key=lambda y: float(p[:, y].sum()))


# --- OrthCali --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """The problem that OrthCali solves, in float64."""

    initial: Tensor  # P0 [d, d]
    differences: Tensor  # [|D|, d], z_i - z_j
    lam: float

    def objective(self, projection: Tensor) -> Tensor:
        """``|P - P0|^2 + lam / |D| * sum |P z_i - P z_j|^2``."""
        value = (projection - self.initial).square().sum()
        if self.lam == 0:
            return value
        pairs = [(projection @ d).square().sum() for d in self.differences]
        return value + self.lam / len(pairs) * torch.stack(pairs).sum()

    def solve(self) -> Tensor:
        """The minimiser: least squares in the ``d * d`` entries of P, read row by row."""
        if self.lam == 0:
            return self.initial.clone()
        assert len(self.differences), "the task has no joint prompts"
        d = self.initial.shape[0]
        eye = torch.eye(d, dtype=torch.float64)
        weight = math.sqrt(self.lam / len(self.differences))
        rows = [torch.eye(d * d, dtype=torch.float64)]
        contexts = [self.initial.flatten()]
        for difference in self.differences:
            rows.append(weight * torch.kron(eye, difference[None]))
            contexts.append(torch.zeros(d, dtype=torch.float64))
        solution: Tensor = torch.linalg.lstsq(
            torch.cat(rows), torch.cat(contexts)[:, None]
        ).solution
        return solution.view(d, d)


def calibration(
    text: LiteralText, task: Task, lam: float, context: Tensor | None = None
) -> Calibration:
    """OrthCali's problem for a task, with the initial context unless another is given."""
    at = text.initial(task) if context is None else context
    with torch.no_grad():
        sensitive = torch.cat(
            [text.features(values, at) for values in task.sensitive_prompts]
        )
        a = _unit(sensitive).T
        rank_tolerance = max(a.shape) * torch.finfo(sensitive.dtype).eps
        # A (A'A)^-1 A' = A A^+
        initial = torch.eye(len(a), dtype=torch.float64) - a @ torch.linalg.pinv(
            a, rtol=rank_tolerance
        )
        differences = []
        for attribute in task.joint_prompts:
            for of_class in attribute:
                z = _unit(text.features(of_class, at))
                differences += [z[i] - z[j] for i, j in combinations(range(len(z)), 2)]
    empty = torch.empty(0, len(a), dtype=torch.float64)
    return Calibration(initial, torch.stack(differences) if differences else empty, lam)


def orthcali(
    text: LiteralText,
    task: Task,
    views: Tensor,
    lam: float,
    context: Tensor | None = None,
) -> Tensor:
    """Probabilities ``[C]`` of view 0 with target features projected and normalised again.

    Args:
        context: one context ``[n, w]`` for the sensitive, joint and target prompts.
    """
    at = text.initial(task) if context is None else context
    projection = calibration(text, task, lam, at).solve()
    with torch.no_grad():
        target = _unit(text.features(task.target_prompts, at))
        projected = _unit(torch.stack([projection @ q for q in target]))
        view = _unit(views[:1])[0]
        return torch.softmax(text.scale * (projected @ view), dim=0).to(views.dtype)


def _unit(features: Tensor) -> Tensor:
    rows = features.detach().double().cpu()
    unit: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return unit
