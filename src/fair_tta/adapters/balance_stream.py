"""LogitBalance on a stream: each image is answered with what came before it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fair_tta.adapters.contract import Outcome
from fair_tta.adapters.group_sums import balanced_answers, group_sums, means_of
from fair_tta.adapters.predictions import to_predictions
from fair_tta.adapters.reference import Reference, unknown_settings
from fair_tta.adapters.reference_batches import EncodesImages, first_views
from fair_tta.adapters.stream_guard import StreamGuard, perception_sums
from fair_tta.adapters.task_identity import TaskIdentity
from fair_tta.adapters.zero_shot import ZeroShot
from fair_tta.errors import FairTTAError, ImageError, PromptError
from fair_tta.prediction import Prediction
from fair_tta.text.task import Task
from fair_tta.vision.images import is_single_image

if TYPE_CHECKING:
    from fair_tta.adapters.logit_balance import LogitBalance

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
        from fair_tta.adapters.logit_balance import LogitBalance

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
