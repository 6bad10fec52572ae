"""ShareBalance: answers whose class shares differ less between perceived groups, or are stated."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fair_tta._linalg import centred
from fair_tta._prompts.task import Task
from fair_tta.errors import FairTTAError, SmallReferenceWarning, check_number
from fair_tta.methods._base import Needs, Outcome, softmax
from fair_tta.methods._fitted import FitsClassLabels, ReferenceBatch
from fair_tta.methods._own.offsets import (
    SCALES,
    balancing_offsets,
    cell_weights,
    group_logits,
    log_loss,
    mean_logits,
    subtract,
)
from fair_tta.methods._reference import Reference

TRUSTS = 0.0, 0.25, 0.5, 0.75, 1.0  # among which labels choose
_WITHOUT_LABELS = 0.25
_MARGIN = 6.0  # of the first over the second sharpened logit; half of the images have more
_PSEUDO_LABELS = 20  # how many labels the predicted overall shares count as
_LEAST_SHARE = 1e-3
_FAR = 0.1  # from a share that was wanted
_FEW, _FEW_LABELS = 10, 50  # images of an attribute value, and class labels
_AT_ONCE = 2**24  # numbers, of some of the images

Shares = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class ShareBalance(FitsClassLabels):
    """Evens out the class shares of perceived groups, or meets overall shares that are stated.

    Over reference images with class logits L, w = p(s | image), pi the mean of w and c0 the offsets
    of `LogitBalance`: with ``q = softmax(beta (L - w c0))``, sharpened by beta so that it is close
    to counted answers, class shares are ``p_s = sum w_s q / sum w_s`` and ``o = mean q``, and those
    that are wanted ``rho_s = o + (1 - trust) (p_s - o)``. Of all predictions with these shares the
    nearest in KL to the model's own are found by minimising, convex in a,

        1/n sum_n logsumexp_y(beta L_n - w_n a) + sum_s pi_s <rho_s, a_s> + 1/(2n) |a - beta c0|^2

    and ``logits = L - sum_s p_s a_s / beta``. Several attributes are one problem. Overall shares
    that are stated take the place of o, and p_s is shifted by the same.

    A method of this library, with relatives: FairProjection (Alghamdi et al., 2022) projects on
    fairness constraints; posterior regularisation (Ganchev et al., 2010) and learning from label
    proportions (Mann & McCallum, 2007; Quadrianto et al., 2009) constrain expected shares; stated
    overall shares are a prior shift (Saerens et al., 2002).

    Differences from the reference implementation: none, this is it.

    Args:
        trust: how far perceived groups are taken to have the same class shares, from 0, which is
            `LogitBalance`, to 1; "auto" is the trust with the lowest group-balanced log loss on
            the labels of `fit`, and 0.25 without labels.
        overall: what is known of the overall class shares: None, ``{class: share}`` (as text
            "class=share;class=share"), or "labels", which estimates them from those of `fit`.
        reference: what `fit` or `load` has found; without it nothing can be answered.

    Example:
        >>> ShareBalance(overall={"doctor": 0.3, "nurse": 0.7})
        ShareBalance(trust='auto', overall=(('doctor', 0.3), ('nurse', 0.7)), reference=None)
    """

    trust: float | str = "auto"
    overall: str | Mapping[str, float] | Shares | None = None
    reference: Reference | None = None
    enough = 100
    learnt_with = ("trust", "overall")

    def __post_init__(self) -> None:
        trust: Any = self.trust
        if trust != "auto":
            with suppress(TypeError, ValueError):
                trust = float(trust)  # a text on the command line
            check_number("trust", trust, "be 'auto' or lie in [0, 1]", lambda x: 0 <= x <= 1)
        object.__setattr__(self, "trust", trust)
        object.__setattr__(self, "overall", _read_shares(self.overall))

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """Class labels for ``overall="labels"`` only."""
        return Needs(sensitive=True, reference=True, class_labels=self.overall == "labels")

    def check_task(self, task: Task) -> None:
        if isinstance(self.overall, tuple) and {*dict(self.overall)} != {*task.targets}:
            raise FairTTAError(
                f"`overall` should have a share of each class, {list(task.targets)} (got "
                f"{[name for name, _ in self.overall]})."
            )

    def learn(self, task: Task, batches: Iterator[ReferenceBatch]) -> Mapping[str, Tensor]:
        """``offsets.ATTRIBUTE`` ``[values, targets]``, and what `report` returns."""
        self.check_task(task)
        found = [(group_logits(task, batch.features), batch.classes) for batch in batches]
        parts, known = [logits for logits, _ in found], torch.cat([own for _, own in found])
        means = mean_logits(parts)
        base = torch.cat([balancing_offsets(means, name) for name in task.sensitive])
        perceived = [torch.cat([of[a] for _, of in parts]).softmax(-1) for a in task.sensitive]
        problem = _Problem(torch.cat([of for of, _ in parts]), torch.cat(perceived, 1), base)
        some = torch.nonzero(known >= 0).squeeze(1)
        labels, losses = known[some], list[float]()
        overall = self._overall_shares(task, problem, labels)

        def offsets(trust: float) -> Tensor:
            return base if trust == 0 and overall is None else problem.solve(trust, overall)

        trust = _WITHOUT_LABELS if self.trust == "auto" else float(self.trust)
        if self.trust == "auto" and len(some):
            weights = cell_weights(labels, [w[some] for w in perceived], keep_shares=False)
            for one in TRUSTS:
                logits = (problem.logits - problem.perceived @ offsets(one))[some]
                losses.append(min(log_loss(s * logits, labels, weights) for s in SCALES[:4]))
            trust = TRUSTS[int(np.argmin(losses))]
        chosen = offsets(trust)
        before, after = problem.counted(torch.zeros_like(base)), problem.counted(chosen)
        values = [name for names in task.sensitive.values() for name in names]
        self._warn(values, problem, trust, len(some), after - problem.wanted(trust, overall))
        learnt = {
            "trust": torch.tensor(trust, dtype=torch.float64, device="cpu"),
            "losses": torch.tensor(losses, dtype=torch.float64, device="cpu"),
        }
        sizes = [w.shape[1] for w in perceived]
        for key, rows in {"offsets": chosen, "before": before, "after": after}.items():
            for name, own in zip(task.sensitive, rows.split(sizes), strict=True):
                learnt[f"{key}.{name}"] = own
        return learnt

    def _overall_shares(self, task: Task, problem: _Problem, labels: Tensor) -> Tensor | None:
        if isinstance(self.overall, tuple):
            stated = dict(self.overall)
            return _shares(torch.tensor([stated[name] for name in task.targets]).double())
        if self.overall is None:
            return None
        if not len(labels):
            raise FairTTAError("ShareBalance(overall='labels') needs class labels: pass `labels`.")
        counts = torch.bincount(labels, minlength=len(task.targets))
        predicted = problem.predicted()[1]
        return (counts + _PSEUDO_LABELS * predicted) / (len(labels) + _PSEUDO_LABELS)

    def _warn(
        self, values: list[str], problem: _Problem, trust: float, labels: int, missed: Tensor
    ) -> None:
        counts, found = problem.perceived.sum(0), list[tuple[str, type[Warning]]]()
        few = [f"{v!r} ({n:.1f})" for v, n in zip(values, counts, strict=True) if n < _FEW]
        if few:
            text = f"fewer than {_FEW} images are perceived as {', '.join(few)}: shares of so few"
            found.append((f"{text} are uncertain.", SmallReferenceWarning))
        if 0 < labels < _FEW_LABELS:
            text = f"what {labels} class labels decide is uncertain: {_FEW_LABELS} or more help."
            found.append((text, SmallReferenceWarning))
        if trust == 1 and not labels:
            text = "trust=1 takes it that the classes are equally frequent whatever the attribute "
            text += "value. No labels show that: where it is not so, accuracy falls."
            found.append((text, UserWarning))
        far = missed[counts >= _FEW].abs().max() if bool((counts >= _FEW).any()) else 0
        if far > _FAR and (trust or self.overall is not None):
            text = f"the class shares that were wanted cannot be reached: {100 * far:.0f} points"
            found.append((f"{text} are missing for some attribute value.", UserWarning))
        for text, kind in found:
            warnings.warn(text, kind, stacklevel=5)

    def report(self) -> dict[str, Any]:
        """What `fit` has found.

        ``trust``; ``losses``, the group-balanced log loss by trust, empty if labels did not choose
        it; ``before`` and ``after``, ``{attribute: {value: {class: share}}}``, the class shares of
        the zero-shot answers and of this method's, on the reference images by perceived value.
        """
        reference = self.checked_reference()
        tensors, prompts = reference.tensors, reference.identity.prompts

        def named(key: str) -> dict[str, dict[str, dict[str, float]]]:
            return {
                name: {
                    value: dict(zip(prompts["targets"], row, strict=True))
                    for value, row in zip(values, tensors[f"{key}.{name}"].tolist(), strict=True)
                }
                for name, values in prompts["sensitive"].items()
            }

        losses = dict(zip(TRUSTS, tensors["losses"].tolist(), strict=False))
        shares = {key: named(key) for key in ("before", "after")}
        return {"trust": float(tensors["trust"]), "losses": losses, **shares}

    def prepare(self, task: Task, learnt: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What is taken for each perceived value: ``{attribute: [values, targets]}``."""
        return {name: learnt[f"offsets.{name}"] for name in task.sensitive}

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        return Outcome(softmax(subtract(group_logits(task, features[:, :1]), self.prepared(task))))


class _Problem:
    """The shares of reference images, and the offsets that change them.

    Args:
        logits: ``[images, targets]``
        perceived: w of all attributes side by side, ``[images, values]``.
        base: offsets to start from, ``[values, targets]``.
    """

    def __init__(self, logits: Tensor, perceived: Tensor, base: Tensor) -> None:
        first, second = logits.topk(2).values.T
        self.beta = _MARGIN / max(float(np.median((first - second).numpy())), 1e-6)
        self.logits, self.perceived = logits, perceived
        self.sharp = self.beta * centred(logits, -1)
        seen = perceived.sum(0, keepdim=True).T >= 1  # of fewer nothing is known
        self.start = self.beta * centred(base, -1) * seen

    def _by_value(self, q: Tensor) -> Tensor:
        w = self.perceived
        return w.T @ q / w.sum(0).clamp(min=torch.finfo(w.dtype).tiny)[:, None]

    def counted(self, offsets: Tensor) -> Tensor:
        """Class shares of the answers, by value: ``[values, targets]``."""
        answers = (self.logits - self.perceived @ offsets).argmax(-1)
        return self._by_value(torch.nn.functional.one_hot(answers, self.logits.shape[1]).double())

    def predicted(self) -> tuple[Tensor, Tensor]:
        """Class shares by value and overall from where it starts."""
        q = (self.sharp - self.perceived @ self.start).softmax(-1)
        return self._by_value(q), q.mean(0)

    def wanted(self, trust: float, overall: Tensor | None) -> Tensor:
        """The class shares of each value that are to be met."""
        own, mean = self.predicted()
        if overall is not None:
            own, mean = _shares(own - mean + overall), _shares(overall)
        return _shares(mean + (1 - trust) * (own - mean))

    def solve(self, trust: float, overall: Tensor | None) -> Tensor:
        """The offsets, by Newton's method, whose steps are halved until they descend."""
        n, w = len(self.logits), self.perceived
        wanted = w.mean(0)[:, None] * self.wanted(trust, overall)

        def value(a: Tensor) -> float:
            mean = (self.sharp - w @ a).logsumexp(-1).mean()
            return float(mean + (wanted * a).sum() + (a - self.start).square().sum() / (2 * n))

        a, now = self.start, value(self.start)
        for _ in range(100):
            q = (self.sharp - w @ a).softmax(-1)
            gradient = (wanted - w.T @ q / n + (a - self.start) / n).flatten()
            step = torch.linalg.solve(self._hessian(q), gradient)
            descent, size = float(gradient @ step), 1.0
            while size > 1e-6 and descent > 1e-13:
                to = a - size * step.view_as(a)
                if (then := value(to)) <= now - 1e-4 * size * descent:
                    break
                size /= 2
            else:
                break  # there is nothing left but rounding
            a, now = to, then
        return centred(a, -1) / self.beta

    def _hessian(self, q: Tensor) -> Tensor:
        (n, s), k = self.perceived.shape, q.shape[1]
        hessian = torch.eye(s * k, dtype=q.dtype, device=q.device) / n
        own = hessian.view(s, k, s, k).diagonal(dim1=1, dim2=3)  # of one class, [s, s, k]
        rows = max(1, _AT_ONCE // (s * k))
        for w, p in zip(self.perceived.split(rows), q.split(rows), strict=True):
            each = torch.einsum("ns,nk->nsk", w, p)
            own += torch.einsum("nt,nsk->stk", w, each) / n
            hessian -= each.flatten(1).T @ each.flatten(1) / n
        return hessian


def _shares(rows: Tensor) -> Tensor:
    above = rows.clamp(min=_LEAST_SHARE)
    return above / above.sum(-1, keepdim=True)


def _read_shares(shares: Any) -> Shares | Literal["labels"] | None:
    """Shares as they are kept, from ``{class: share}``, pairs or "class=share;class=share"."""
    if shares is None or shares == "labels":
        return shares  # type: ignore[no-any-return]
    given = (
        [part.rpartition("=")[::2] for part in shares.replace(",", ";").split(";")]
        if isinstance(shares, str)
        else shares
    )
    try:
        pairs = given.items() if isinstance(given, Mapping) else given
        found = tuple((str(name).strip(), float(share)) for name, share in pairs)
    except (TypeError, ValueError):
        found = ()
    total = sum(share for _, share in found)
    if not math.isclose(total, 1, abs_tol=0.02) or any(share < 0 for _, share in found):
        raise FairTTAError(
            "`overall` should be 'labels' or {class: share} with shares from 0 on whose sum is 1 "
            f"(got {shares!r}; as text 'class=share,class=share')."
        )
    return found
