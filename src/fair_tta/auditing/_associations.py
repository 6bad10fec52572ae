"""Which class leans to which sensitive value, by the words of the prompts alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fair_tta._prompts.task import Task
from fair_tta.errors import FairTTAError
from fair_tta.metrics._perceived import prompt_associations


@dataclass(frozen=True)
class Associations:
    """How much perceiving a value raises the logit of a class; no image is needed.

    ``tau <z_s - mean z, T_y - mean T>`` with z the features of the sensitive prompts, T those of
    the target prompts and tau the scale. A difference of 1 between two classes multiplies their
    odds by e. What the image features do besides is not seen here.

    Attributes:
        logits: ``{attribute: {value: {class: logits}}}``
    """

    logits: Mapping[str, Mapping[str, Mapping[str, float]]]

    @classmethod
    def of(cls, task: Task) -> Associations:
        """The associations of a task's prompts.

        Raises:
            FairTTAError: it names no sensitive values.
        """
        if not task.sensitive:
            raise FairTTAError(
                "`sensitive` should name what should not matter, such as ['on water', 'on land']: "
                "without it there is nothing to associate classes with."
            )
        target = task.target_features.cpu().double().numpy()
        logits = {}
        for attribute, features in task.sensitive_features.items():
            table = prompt_associations(features.cpu().double().numpy(), target, task.scale)
            logits[attribute] = {
                value: dict(zip(task.targets, row, strict=True))
                for value, row in zip(task.sensitive[attribute], table.tolist(), strict=True)
            }
        return cls(logits)

    def to_dict(self) -> dict[str, dict[str, dict[str, float]]]:
        """Plain dictionaries, as JSON has it."""
        return {a: {v: dict(row) for v, row in rows.items()} for a, rows in self.logits.items()}

    def __str__(self) -> str:
        return "\n\n".join(_table(attribute, rows) for attribute, rows in self.logits.items())


def _table(attribute: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    head = [f"{attribute} (logits)", *next(iter(rows.values()))]
    cells = [head, *([v, *(f"{x:+.2f}" for x in row.values())] for v, row in rows.items())]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells
    )
