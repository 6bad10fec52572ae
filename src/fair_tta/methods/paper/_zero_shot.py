"""ZeroShot: the model's own answer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fair_tta.methods._base import Outcome, TextFeatures, UsesTexts, probabilities
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class ZeroShot(UsesTexts):
    r"""Return the model's own zero-shot answer, the baseline of every comparison.

    ``p(y | x) = softmax_y(tau * cos(v, l_y))``, with v the image feature, l_y the feature of the
    prompt of class y and tau the model's own inverse temperature. A bias that all classes share,
    as SigLIP has it, cancels.

    Radford et al., *Learning Transferable Visual Models From Natural Language Supervision*, 2021.

    Differences from the reference implementation: the paper's algorithm box samples the label,
    its tables take the most probable one, and so do we.

    Example:
        >>> ZeroShot()
        ZeroShot()
    """

    def adapt_texts(self, task: Task, features: Tensor, texts: TextFeatures) -> Outcome:
        return Outcome(
            probabilities(task, features, texts.target),
            {a: probabilities(task, features, t) for a, t in texts.sensitive.items()},
        )
