"""PerceptionCLIP: infers the attribute first, then classifies given the attribute."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fair_tta.errors import check_number
from fair_tta.methods._base import Adapter, Needs, Outcome
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class PerceptionCLIP(Adapter):
    """Infer the sensitive value of each image first, and classify given each value.

    ``p(y | x) = sum_z p(z | x) p(y | x, z)`` with ``f(y, z) = tau <v, joint prompt of y and z>``,
    ``p(y | x, z) = softmax_y f(y, z)`` and ``p(z | x)`` in proportion to
    ``sum_y exp(f(y, z) / T)``, or without the class to ``exp(tau <v, sensitive prompt of z> / T)``.
    Several attributes become one whose values are all combinations. Nothing is tuned and one view
    is enough. It needs joint prompts. The attribute *is* used here, as context: where classes are
    separated better given the value, gaps may close or widen.

    From the paper of that name; public code: umd-huang-lab/perceptionCLIP.

    Differences from the reference implementation: all in log space (the public code sums plain
    exponentials, which overflow in float32 at logits above 88); prompts come from your template;
    there is no empty value ("not sure") unless you name one; images are preprocessed as the model
    wants them, where the public code takes other statistics.

    Args:
        temperature: T; above 1 the inferred attribute is less certain, and if infinite every value
            counts the same.
        with_class: infer the attribute from the joint prompts; if False from the sensitive prompts.

    Example:
        >>> PerceptionCLIP(with_class=False)
        PerceptionCLIP(temperature=1.0, with_class=False)
    """

    temperature: float = 1.0
    with_class: bool = True
    needs = Needs(sensitive=True)

    def __post_init__(self) -> None:
        check_number(
            "temperature", self.temperature, "be a positive number", lambda x: x > 0
        )

    def _check_task(self, task: Task) -> None:
        (attribute,) = task.product.sensitive
        task.product.joint_prompts(attribute)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        combined = task.product
        (attribute,) = combined.sensitive
        # They do not depend on the image.
        joint = task.remember(
            ("joint features", attribute),
            lambda: combined.own_features(combined.joint_prompts(attribute)),
        )
        image = features[:, :1]
        joint_logits = task.logits(image, joint).squeeze(1)
        by_target_and_value = joint_logits.unflatten(-1, (len(task.targets), -1))
        value_logits = None
        if not self.with_class:
            values = combined.sensitive_features[attribute]
            value_logits = task.logits(image, values).squeeze(1)
        log_p = classify_given_value(
            by_target_and_value, value_logits, self.temperature
        )
        return Outcome(log_p.exp())


def classify_given_value(
    joint_logits: Tensor, value_logits: Tensor | None, temperature: float
) -> Tensor:
    """Return ``log sum_z p(z | x) p(y | x, z)``, ``[images, targets]``.

    Args:
        joint_logits: ``[images, targets, values]`` of the joint prompts.
        value_logits: ``[images, values]`` of the sensitive prompts; None infers values from the
            joint prompts.
        temperature: of the inference of the value.
    """
    if value_logits is None:
        value_logits = (joint_logits / temperature).logsumexp(1)
    else:
        value_logits = value_logits / temperature
    # In log space: plain exponentials overflow in float32 at logits above 88.
    log_p_value = value_logits.log_softmax(-1).unsqueeze(1)
    log_p_given_value = joint_logits.log_softmax(1)
    log_p: Tensor = (log_p_value + log_p_given_value).logsumexp(-1)
    return log_p.log_softmax(-1)  # the sum is one except for rounding
