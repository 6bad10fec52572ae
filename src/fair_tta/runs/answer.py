"""The row that is kept of every answer: what it is about, what was said, what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from fair_tta.data.csv_rows import printable
from fair_tta.prediction import Prediction


class Key(NamedTuple):
    """What an answer depends on; two answers with the same key are the same.

    Attributes:
        content: digest of the picture's file.
        model: digest of the weights, the preprocessing, the views and the version of fair-tta.
        task: digest of names and templates.
        setting: digest of the method and its settings.
        seed: of the views.
    """

    content: str
    model: str
    task: str
    setting: str
    seed: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one setting says of one picture. Numbers are in the order of the task's names.

    Attributes:
        image: what the picture is called, within its dataset or by the user.
        file: tells its file from what it was before, see `fair_tta.runs.picture_files.stamp_of`.
        content: see `Key`, as the four that follow.
        seconds: what it took: see `fair_tta.runs.worker`.
        by: who did the work.

    The others are those of `Prediction`.
    """

    image: str
    file: str
    content: str
    model: str
    task: str
    setting: str
    seed: int
    label: str
    probabilities: list[float]
    zero_shot: list[float]
    sensitive: dict[str, list[float]]
    sensitive_zero_shot: dict[str, list[float]]
    entropy: float
    entropy_zero_shot: float
    sensitive_entropy: dict[str, float]
    sensitive_entropy_zero_shot: dict[str, float]
    distance: float
    flip_margin: float
    certified_unchanged: bool
    learning_rate: float | None
    relative_step: float | None
    views_kept: int | None
    warnings: tuple[str, ...]
    seconds: float
    by: str = ""

    @property
    def key(self) -> Key:
        """What it depends on."""
        return Key(self.content, self.model, self.task, self.setting, self.seed)


_PLAIN = [
    "label", "entropy", "entropy_zero_shot", "sensitive_entropy", "sensitive_entropy_zero_shot",
    "distance", "flip_margin", "certified_unchanged", "learning_rate", "relative_step",
    "views_kept", "warnings",
]  # fmt: skip


def to_answer(
    prediction: Prediction,
    key: Key,
    *,
    image: str,
    file: str = "",
    seconds: float = 0.0,
) -> Answer:
    """A prediction as it is kept."""
    p = prediction
    return Answer(
        image=printable(image),  # JSON has no place for names that are not Unicode
        file=file,
        **key._asdict(),
        probabilities=list(p.probabilities.values()),
        zero_shot=list(p.zero_shot.values()),
        sensitive={a: list(values.values()) for a, values in p.sensitive.items()},
        sensitive_zero_shot={a: list(v.values()) for a, v in p.sensitive_zero_shot.items()},
        seconds=seconds,
        **{name: getattr(p, name) for name in _PLAIN},
    )


def to_prediction(
    answer: Answer, targets: Iterable[str], sensitive: Mapping[str, Iterable[str]]
) -> Prediction:
    """What is kept as a person gets it."""
    labels = list(targets)

    def named(rows: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
        return {a: dict(zip(sensitive[a], row, strict=True)) for a, row in rows.items()}

    return Prediction(
        probabilities=dict(zip(labels, answer.probabilities, strict=True)),
        zero_shot=dict(zip(labels, answer.zero_shot, strict=True)),
        sensitive=named(answer.sensitive),
        sensitive_zero_shot=named(answer.sensitive_zero_shot),
        **{name: getattr(answer, name) for name in _PLAIN},
    )
