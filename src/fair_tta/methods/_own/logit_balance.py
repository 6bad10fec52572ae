"""LogitBalance: subtracts the mean logit shift of the group the model perceives."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fair_tta._images.load import is_single_image
from fair_tta._prompts.task import Task
from fair_tta.errors import FairTTAError, ImageError, PromptError, check_number
from fair_tta.methods._base import Outcome, softmax
from fair_tta.methods._fitted import EncodesImages, FitsImages, ReferenceBatch, first_views
from fair_tta.methods._own.association_correction import centred, check_strength
from fair_tta.methods._paper.zero_shot import ZeroShot
from fair_tta.methods._predictions import to_predictions
from fair_tta.methods._reference import Reference, TaskIdentity, unknown_settings
from fair_tta.methods._tuning.entropy import normalised_entropy
from fair_tta.prediction import Prediction


def group_sums(task: Task, features: Tensor) -> dict[str, Tensor]:
    """Of images ``[images, dim]``; sums of several batches add up.

    With w = p(s | image), q = p(y | image) and u the class-centred logits,
    ``weights.ATTRIBUTE`` is the sum of w q, ``[values, targets]``, and ``logits.ATTRIBUTE`` that of
    w q u, ``[values, targets, targets]``.
    """
    u = centred(task.logits(features, task.target_features.to(features)), -1)
    q = u.softmax(-1)
    sums = {}
    for name, values in task.sensitive_features.items():
        w = task.logits(features, values.to(features)).softmax(-1)
        sums[f"weights.{name}"] = torch.einsum("ns,ny->sy", w, q)
        sums[f"logits.{name}"] = torch.einsum("ns,ny,nc->syc", w, q, u)
    return sums


def means_of(sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``means.ATTRIBUTE``, the mean logits of the images perceived with a value, each perceived
    class counting the same, ``[values, targets]``, and ``shares.ATTRIBUTE``, ``[values]``.
    """
    tiny = torch.finfo(torch.float64).tiny
    found = {}
    for name in (key.removeprefix("weights.") for key in sums if key.startswith("weights.")):
        weights, logits = sums[f"weights.{name}"], sums[f"logits.{name}"]
        found[f"means.{name}"] = (logits / weights[..., None].clamp(min=tiny)).mean(1)
        found[f"shares.{name}"] = weights.sum(1) / weights.sum()
    return found


def balanced_answers(task: Task, features: Tensor, tables: Mapping[str, Tensor]) -> Tensor:
    """Probabilities ``[images, targets]`` of view 0 without what perceived values add.

    Args:
        task: the text side.
        features: ``[images, views, dim]``
        tables: ``{attribute: [values, targets]}``, what each value adds.
    """
    image = features[:, :1]
    logits = task.logits(image, task.target_features)
    for name, values in task.sensitive_features.items():
        logits = logits - task.logits(image, values).softmax(-1) @ tables[name]
    return softmax(logits)


_NO_CHANGE = 1e-6  # of a probability from image to image: the rounding of single precision


@dataclass(frozen=True)
class StreamGuard:
    """What has to be the case before a stream is balanced, for every attribute.

    - At least `least` images were seen.
    - The model perceives the attribute: the mean normalised entropy of what it perceives is at most
      `most_entropy`.
    - It can tell attribute and target apart: R^2 of the logits of the classes, minus their mean, on
      what is perceived is at most `most_r_squared`.
    - Nothing drifts: for no value is the mean probability over the last `window` images further
      than `drift` standard errors from that over all images before them. It is looked at once there
      are as many before. With 5, images that do not drift raise one alarm in thousands of windows;
      a change of a value's share from 0.5 to 0.7 raises one with 200 images.

    Args:
        least: number of images.
        window: number of images.
        drift: number of standard errors.
        most_entropy: from 0 to 1.
        most_r_squared: from 0 to 1.
    """

    least: int = 300
    window: int = 200
    drift: float = 5.0
    most_entropy: float = 0.8
    most_r_squared: float = 0.7

    def __post_init__(self) -> None:
        for name in ("least", "window"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise FairTTAError(f"`{name}` should be a number of images (got {value!r}).")
        for name in ("drift", "most_entropy", "most_r_squared"):
            check_number(name, getattr(self, name), "be 0 or more", lambda x: x >= 0)

    def objection(
        self, task: Task, images: int, sums: Mapping[str, Tensor], recent: Mapping[str, Tensor]
    ) -> str | None:
        """Why the next image should not be balanced, None if it may be.

        Args:
            task: the text side.
            images: how many were seen.
            sums: of `perception_sums` over them.
            recent: ``{attribute: [window, values]}``, what was perceived of the last of them.
        """
        if images < self.least:
            return f"{images} images were seen, {self.least} are needed"
        for attribute, names in task.sensitive.items():
            entropy = float(sums[f"entropy.{attribute}"]) / images
            if entropy > self.most_entropy:
                return f"the model does not perceive {attribute!r} (mean entropy {entropy:.2f})"
            explained = r_squared_of(sums, attribute, images)
            if explained > self.most_r_squared:
                return f"the model cannot tell {attribute!r} from the target (R^2 {explained:.2f})"
            last = recent[attribute][-self.window :]
            shifts = drift_of(sums, last, attribute, images)
            if len(last) == self.window and float(shifts.abs().max()) > self.drift:
                value = list(names)[int(shifts.argmax())]
                return (
                    f"what is perceived of {attribute!r} drifts ({value!r} is seen more often than "
                    "before): reset the stream if this is to stay"
                )
        return None


def perception_sums(task: Task, features: Tensor) -> dict[str, Tensor]:
    """What `StreamGuard` looks at, of images ``[images, dim]``; sums of several batches add up."""
    u = centred(task.logits(features, task.target_features.to(features)), -1)
    sums = {"u": u.sum(0), "uu": u.square().sum()}
    for name, values in task.sensitive_features.items():
        log_w = task.log_probabilities(features, values.to(features))
        w = log_w.exp()
        sums |= {
            f"entropy.{name}": normalised_entropy(log_w).sum(),
            f"w.{name}": w.sum(0),
            f"ww.{name}": w.T @ w,
            f"wu.{name}": w.T @ u,
        }
    return sums


def r_squared_of(sums: Mapping[str, Tensor], attribute: str, images: int) -> float:
    """`fair_tta.metrics.r_squared` from running sums; NaN where that is NaN."""
    w, u = sums[f"w.{attribute}"], sums["u"]
    total = float(sums["uu"] - u @ u / images)
    if images <= len(w) or total <= 1e-20 * images * len(u):
        return math.nan
    spread = sums[f"ww.{attribute}"] - torch.outer(w, w) / images
    common = sums[f"wu.{attribute}"] - torch.outer(w, u) / images
    sizes, basis = torch.linalg.eigh(spread)
    is_seen = sizes > max(_NO_CHANGE**2 * images, 1e-12 * float(sizes.max()))
    explained = (basis[:, is_seen].T @ common).square().sum(1) / sizes[is_seen]
    return min(1.0, float(explained.sum()) / total)


def drift_of(sums: Mapping[str, Tensor], recent: Tensor, attribute: str, images: int) -> Tensor:
    """How far recent means are from those before, in standard errors: ``[values]``.

    Zeros as long as there are fewer images before than recent ones.
    """
    w, last = sums[f"w.{attribute}"], len(recent)
    before = images - last
    if not last or before < last:
        return torch.zeros_like(w)
    mean = w / images
    variance = sums[f"ww.{attribute}"].diagonal() / images - mean.square()
    error = (variance.clamp(min=_NO_CHANGE**2) * (1 / last + 1 / before)).sqrt()
    return (recent.mean(0) - (w - recent.sum(0)) / before) / error


if TYPE_CHECKING:
    pass

NOT_BALANCED = "not balanced, this is the zero-shot answer: {}"
"""What `Prediction.warnings` has if the guard objects."""


class BalanceStream:
    """`LogitBalance` that learns while it answers: **not episodic**.

    Each image is answered with what was learnt of the images before it, and then it is learnt
    from. The same image may so have another answer at another place: the order of images matters,
    and so does what ran before. All that is learnt is in `state`, which never changes; after each
    image there is another one. Hold it, pass it on, save it. While the guard objects, the answer is
    the zero-shot answer and `Prediction.warnings` says why.

    Made by `LogitBalance.online`. It is no adapter: `FairTPTClassifier` refuses it.

    Args:
        balance: the settings.
        classifier: whose model, prompts and batch size are used; its adapter and views do not
            matter.
        state: where to go on, as an earlier stream had it; None to begin.
        guard: when not to balance.
    """

    episodic: ClassVar[bool] = False

    def __init__(
        self,
        balance: LogitBalance,
        classifier: EncodesImages,
        state: Reference | None = None,
        guard: StreamGuard = StreamGuard(),
    ) -> None:
        if balance.reference is not None:
            raise FairTTAError(
                "`online` should be called on a LogitBalance without a reference: it learns "
                "from the stream (a fitted one is an adapter)."
            )
        if not classifier.task.sensitive:
            raise PromptError(
                "LogitBalance needs to know what should not matter: pass `sensitive` to the "
                "classifier."
            )
        self.balance, self.classifier, self.guard = balance, classifier, guard
        self.reset()
        if state is not None:
            state.check(type(self).__name__, {})
            state.identity.check(self._task, "this state")
            self._state = state

    @property
    def state(self) -> Reference:
        """What was learnt so far: sums over the images, and what was perceived of the last."""
        return self._state

    def reset(self) -> None:
        """Begin again, with what the model is now."""
        self.classifier.encode([], views=False)  # makes it notice that its weights have changed
        self._task = self.classifier.task
        own = self._task.target_features
        empty = torch.zeros(0, own.shape[1], dtype=torch.float64, device="cpu")
        tensors = self._learn(empty, {})
        self._state = Reference(type(self).__name__, 0, TaskIdentity.of(self._task), tensors)

    def predict(self, images: Iterable[Any]) -> Iterator[Prediction]:
        """Answer images in their order, and learn of each once it is answered.

        Nothing happens until predictions are asked for; `state` has learnt of exactly the images
        whose predictions were given out.

        Args:
            images: any iterable of images; for one, ``[image]``.

        Raises:
            ImageError: an image cannot be read; what came before it is given out first.
        """
        if is_single_image(images) or not hasattr(images, "__iter__"):
            raise ImageError(
                f"`images` should be an iterable of images (got one {type(images).__name__}): "
                "predict([image])."
            )
        return self._stream(iter(images))

    def fitted(self) -> LogitBalance:
        """The adapter that `LogitBalance.fit` would give on the images that were seen."""
        if not self.state.images:
            raise FairTTAError("the stream has seen no image yet: there is nothing to balance by.")
        reference = replace(
            self.state, method="LogitBalance", tensors=means_of(_sums(self.state.tensors))
        )
        return replace(self.balance, reference=reference)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write settings and state to a safetensors file, whole or not at all."""
        balance = {"strength": self.balance.strength, "keep_prior": self.balance.keep_prior}
        self.state.save(path, {**balance, "guard": asdict(self.guard)})

    @classmethod
    def load(cls, path: str | os.PathLike[str], classifier: EncodesImages) -> BalanceStream:
        """What `save` has written, to go on with the same model and prompts."""

        state, settings = Reference.read(path, {cls.__name__: ()})
        try:
            guard, balance = StreamGuard(**settings.pop("guard")), LogitBalance(**settings)
        except (KeyError, TypeError, ValueError) as error:
            raise unknown_settings(path, cls.__name__, error) from error
        return cls(balance, classifier, state, guard)

    def _stream(self, images: Iterator[Any]) -> Iterator[Prediction]:
        while batch := list(islice(images, self.classifier.batch_size)):
            parts: Iterable[Tensor]
            try:
                parts = self.classifier.encode(batch, views=False).split(1)
            except ImageError:  # those before it are good
                parts = (self.classifier.encode([image], views=False) for image in batch)
            for features in parts:
                yield self._answer(self._current_task(), features)

    def _current_task(self) -> Task:
        """The state is of one model; when its weights change, it is of another."""
        task = self.classifier.task
        if task is not self._task:
            self.state.identity.check(task, "this state")
            self._task = task
        return task

    def _answer(self, task: Task, features: Tensor) -> Prediction:
        """Of one image ``[1, views, dim]``; learns of it too."""
        state = self.state
        zero_shot = ZeroShot().adapt(task, features)
        recent = {name: state.tensors[f"recent.{name}"] for name in task.sensitive}
        sums = _sums(state.tensors)
        objection = self.guard.objection(task, state.images, sums, recent)
        if objection is None:
            tables = self.balance.prepare(task, means_of(sums))
            like = {name: table.to(task.target_features) for name, table in tables.items()}
            outcome = Outcome(balanced_answers(task, features, like))
        else:
            warning = NOT_BALANCED.format(objection)
            outcome = Outcome(zero_shot.probabilities, warnings=((warning,),))
        (prediction,) = to_predictions(task, zero_shot, outcome)
        learnt = self._learn(first_views(task, features), state.tensors)
        self._state = replace(state, images=state.images + 1, tensors=learnt)
        return prediction

    def _learn(self, v: Tensor, before: Any) -> dict[str, Tensor]:
        """The tensors of the state with one more image, ``[images, dim]``."""
        task = self._task
        new = {**group_sums(task, v), **perception_sums(task, v)}
        learnt = {
            f"sum.{name}": before.get(f"sum.{name}", 0) + value for name, value in new.items()
        }
        for name, values in task.sensitive_features.items():
            w = task.logits(v, values.to(v)).softmax(-1)
            seen = torch.cat([before.get(f"recent.{name}", w[:0]), w])
            learnt[f"recent.{name}"] = seen[-self.guard.window :]
        return learnt


def _sums(tensors: Any) -> dict[str, Tensor]:
    return {k.removeprefix("sum."): v for k, v in tensors.items() if k.startswith("sum.")}


@dataclass(frozen=True)
class LogitBalance(FitsImages):
    """Takes from each image what its perceived group adds to the classes on reference images.

    Over unlabelled reference images, with w = p(s | image), q = p(y | image) and u the logits of
    the classes minus their mean: ``m[s, y'] = sum w_s q_y' u / sum w_s q_y'``, ``b_s`` its mean
    over y' and pi the mean of w. Then ``logits = u - sum_s p_s strength (b_s - keep_prior sum_t
    pi_t b_t)``. The mean over perceived classes y' limits what base rates do; `keep_prior` keeps
    the model's overall preference for a class. What several attributes take is added up.

    A method of this library, with relatives: UMFC (Liang et al., 2024) subtracts the mean logits of
    an image's cluster, DRC (Seol et al.) has soft groups and a strength, and TTLSA (Sun et al.,
    2023) is the probabilistic relative, which adapts *to* the correlation of the test images. Here
    groups are named by prompts, pseudo-classes are averaged and the population's mean is kept.

    `online` is the same on a stream, without reference images; it is not episodic.

    Differences from the reference implementation: none, this is it.

    Args:
        strength: how much of it; 0 is the zero-shot answer.
        keep_prior: how much of the overall preference for a class is kept, from 0 to 1.
        reference: what `fit` or `load` has found; without it nothing can be answered.

    Example:
        >>> LogitBalance(strength=1.0)
        LogitBalance(strength=1.0, keep_prior=1.0, reference=None)
    """

    strength: float = 1.5
    keep_prior: float = 1.0
    reference: Reference | None = None
    needs_sensitive: ClassVar[bool] = True
    needs_prompt_gradient: ClassVar[bool] = False
    needs_views: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_strength(self.strength)
        check_number("keep_prior", self.keep_prior, "lie in [0, 1]", lambda x: 0 <= x <= 1)

    def learn(self, task: Task, batches: Iterator[ReferenceBatch]) -> Mapping[str, Tensor]:
        """``means.ATTRIBUTE`` is b, ``[values, targets]``, and ``shares.ATTRIBUTE`` pi."""
        sums: dict[str, Tensor] = {}
        for batch in batches:
            new = group_sums(task, batch.features)
            sums = {name: sums.get(name, 0) + value for name, value in new.items()}
        return means_of(sums)

    def prepare(self, task: Task, learnt: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What is taken for each perceived value: ``{attribute: [values, targets]}``."""
        taken = {}
        for name in task.sensitive:
            b, shares = learnt[f"means.{name}"], learnt[f"shares.{name}"]
            taken[name] = self.strength * (b - self.keep_prior * shares @ b)
        return taken

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """See `Adapter.adapt`.

        Raises:
            FairTTAError: it is not fitted, or with another model or other prompts.
        """
        return Outcome(balanced_answers(task, features, self.prepared(task)))

    def online(
        self,
        classifier: EncodesImages,
        *,
        state: Reference | None = None,
        guard: StreamGuard = StreamGuard(),
    ) -> BalanceStream:
        """The same method on a stream: each image is answered with what came before it.

        That is not episodic: answers depend on the order of the images. See `BalanceStream`.

        Args:
            classifier: whose model and prompts are used.
            state: of an earlier stream, to go on with; None to begin.
            guard: when to give the zero-shot answer instead.
        """
        return BalanceStream(self, classifier, state, guard)
