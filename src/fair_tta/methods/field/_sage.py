"""SAGE: for each image the templates that separate its classes most."""

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

# What precedes the classifier's own sentence if no templates are given: a list of ours.
OPENINGS = (
    "", "A photo. ", "A good photo. ", "A bad photo. ", "A blurry photo. ", "A bright photo. ",
    "A dark photo. ", "A small picture. ", "A close-up. ", "A drawing. ",
)  # fmt: skip


@dataclass(frozen=True)
class SAGE(Adapter):
    """Classify each image with the templates whose scores spread most over the classes.

    The score of a template is ``max_y <v, T_y> - min_y <v, T_y>``; the `keep` templates with the
    largest are kept and their cosines averaged. Nothing is tuned and one view is enough. It names
    no attribute: with two classes it follows the most certain template, whatever the reason for
    its certainty.

    arXiv 2511.13005; public code: wenqian-ye/spurious_vlm.

    Differences from the reference implementation: cosines are averaged, as in the paper; the
    public code averages text features and normalises them again, which is the same for ``keep=1``.
    The paper takes the 80 templates of ImageNet. Unless you give templates, ours are the
    classifier's own target sentence alone and after nine neutral openings ("A blurry photo."),
    because a phrase such as "with blond hair" does not fit into the templates of others. If the
    classifier has several templates, they are used.

    Args:
        templates: sentences with a slot for the target, which your phrases fill.
        keep: the number of templates that count for an image.

    Example:
        >>> SAGE(templates=["a photo of a {}.", "a drawing of a {}."]).keep
        1
    """

    templates: Sequence[str] | None = None
    keep: int = 1

    def __post_init__(self) -> None:
        count = len(OPENINGS)
        if self.templates is not None:
            is_text = isinstance(self.templates, str)
            is_list = isinstance(self.templates, Sequence) and not is_text
            if not is_list or not self.templates:
                raise FairTTAError(
                    f"`templates` should be a list of sentences (got {self.templates!r}).",
                    argument="templates",
                )
            # Parsed here to refuse a wrong sentence before a model is loaded.
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
        """Return all sentences, template by template."""
        sentences = []
        for template in self._templates_of(task):
            parsed = parse_sentence("templates", template, {TARGET})
            for phrase in task.targets.values():
                sentences.append(fill_slots(parsed, {TARGET: phrase}).text)
        return sentences

    def _templates_of(self, task: Task) -> Sequence[str]:
        if self.templates is not None:
            return self.templates
        ensemble = [task.templates, *task.templates._further]
        templates = [sentence_text(template.target) for template in ensemble]
        if len(templates) > 1:
            return templates
        return [opening + templates[0] for opening in OPENINGS]

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        def encode() -> Tensor:
            return task.own_features(task.sentence_prompts(self._sentences(task)))

        texts = task.remember(("templates", self.templates), encode)
        logits = task.logits(features[:, :1], texts)
        by_template = logits.unflatten(-1, (-1, len(task.targets)))
        return Outcome(softmax(mean_of_widest_range(by_template, self.keep)))


def mean_of_widest_range(logits: Tensor, keep: int) -> Tensor:
    """Return the mean logits over the `keep` templates with the widest range.

    ``[..., templates, targets] -> [..., targets]``
    """
    logit_range = logits.amax(-1) - logits.amin(-1)
    # Stable, so that of equal ranges the first template counts on every machine.
    widest_first = logit_range.argsort(dim=-1, descending=True, stable=True)
    kept = widest_first[..., :keep].unsqueeze(-1)
    return logits.take_along_dim(kept, -2).mean(-2)
