"""SAGE: of many templates, those that separate the classes of an image most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fair_tta.errors import FairTTAError
from fair_tta.methods._base import Adapter, Outcome, softmax
from fair_tta.prompts._task import Task
from fair_tta.prompts._templates import (
    TARGET,
    fill_slots,
    parse_sentence,
    sentence_text,
)

OPENINGS = (
    "", "A photo. ", "A good photo. ", "A bad photo. ", "A blurry photo. ", "A bright photo. ",
    "A dark photo. ", "A small picture. ", "A close-up. ", "A drawing. ",
)  # fmt: skip
"""What stands before the classifier's own sentence unless there are templates: a list of ours."""


@dataclass(frozen=True)
class SAGE(Adapter):
    """Classifies each image with the templates whose scores spread most over the classes.

    Of each template the score is ``max_y <v, T_y> - min_y <v, T_y>``; the `keep` templates with the
    largest are kept and their cosines averaged. Nothing is tuned and one view is enough. It names
    no attribute: with two classes it follows the template that is most certain, whatever
    that is certain of.

    arXiv 2511.13005; public code: wenqian-ye/spurious_vlm.

    Differences from the reference implementation: cosines are averaged, as in the paper; the
    public code averages text features and normalises them again, which is the same for ``keep=1``.
    The paper takes the 80 templates of ImageNet. Unless you give templates, ours are the
    classifier's own target sentence alone and after nine neutral openings ("A blurry photo."),
    because a phrase such as "with blond hair" does not fit into the templates of others; of a
    classifier with several templates they are these.

    Args:
        templates: sentences with a slot for the target, into which your phrases go.
        keep: how many of them count for an image.

    Example:
        >>> SAGE(templates=["a photo of a {}.", "a drawing of a {}."]).keep
        1
    """

    templates: Sequence[str] | None = None
    keep: int = 1

    def __post_init__(self) -> None:
        count = len(OPENINGS)
        if self.templates is not None:
            is_list = isinstance(self.templates, Sequence) and not isinstance(
                self.templates, str
            )
            if not is_list or not self.templates:
                raise FairTTAError(
                    f"`templates` should be a list of sentences (got {self.templates!r}).",
                    argument="templates",
                )
            for sentence in self.templates:
                parse_sentence("templates", sentence, {TARGET})
            object.__setattr__(self, "templates", tuple(self.templates))
            count = len(self.templates)
        if not isinstance(self.keep, int) or not 1 <= self.keep <= count:
            raise FairTTAError(
                f"`keep` should be a number of templates from 1 to {count} (got {self.keep!r}).",
                argument="keep",
            )

    def _check_task(self, task: Task) -> None:
        task.sentence_prompts(self._sentences(task))

    def _sentences(self, task: Task) -> list[str]:
        """All sentences, template by template."""
        own = [
            sentence_text(one.target)
            for one in (task.templates, *task.templates._further)
        ]
        templates = own if len(own) > 1 else [opening + own[0] for opening in OPENINGS]
        return [
            fill_slots(
                parse_sentence("templates", template, {TARGET}), {TARGET: phrase}
            ).text
            for template in (templates if self.templates is None else self.templates)
            for phrase in task.targets.values()
        ]

    def adapt(self, task: Task, features: Tensor) -> Outcome:

        def encode() -> Tensor:
            return task.own_features(task.sentence_prompts(self._sentences(task)))

        texts = task.remember(("templates", self.templates), encode)
        logits = task.logits(features[:, :1], texts).unflatten(
            -1, (-1, len(task.targets))
        )
        return Outcome(softmax(widest(logits, self.keep)))


def widest(logits: Tensor, keep: int) -> Tensor:
    """The mean over the `keep` templates with the widest range of logits:
    ``[..., templates, targets] -> [..., targets]``.
    """
    width = logits.amax(-1) - logits.amin(-1)
    order = width.argsort(dim=-1, descending=True, stable=True)[..., :keep]
    return logits.take_along_dim(order.unsqueeze(-1), -2).mean(-2)
