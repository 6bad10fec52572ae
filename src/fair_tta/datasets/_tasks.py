"""The paper's 13 pairs of target and sensitive attribute, with their prompts.

Names and templates of the first six pairs are in the paper's tables of prompts and of names. Its
table of further attributes gives no names: those of gender, race and age are the names of the first
six, those of makeup and glasses were chosen here in the same manner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fair_tta.errors import FairTTAError


@dataclass(frozen=True)
class AgeCut:
    """The ages of the young and the old; anyone in between is left out and counted.

    The paper does not state its cut, and public code has no common rule: some take 20 and over
    against 10 and under, some make three groups with cuts at 20 and 40.

    Args:
        young_below: the young are younger than this, in years.
        old_from: the old are at least this old; `young_below` if None, so that no one is left out.
    """

    young_below: int = 40
    old_from: int | None = None

    def __post_init__(self) -> None:
        if self.young_below < 1:
            raise FairTTAError(
                f"`young_below` should be at least 1 (got {self.young_below!r}).",
                argument="young_below",
            )
        if self.old_from is not None and self.old_from < self.young_below:
            raise FairTTAError(
                f"`old_from` should be at least `young_below`, {self.young_below} "
                f"(got {self.old_from!r}).",
                argument="old_from",
            )

    @property
    def limits(self) -> dict[str, int]:
        """Both limits, as datasets record them."""
        old_from = self.young_below if self.old_from is None else self.old_from
        return {"young_below": self.young_below, "old_from": old_from}

    def label(self, age: int) -> str | None:
        """Return `"young"`, `"old"`, or None in between."""
        if age < self.limits["young_below"]:
            return "young"
        return "old" if age >= self.limits["old_from"] else None


DEFAULT_AGES = AgeCut()
"""Young is below 40: an edge of FairFace's brackets, and one cut for both datasets with ages."""


@dataclass(frozen=True)
class BenchmarkTask:
    """A question to a dataset, in words that `FairTPTClassifier` takes.

    Attributes:
        dataset: the name of the dataset.
        target: the name of the target attribute, as in the paper's tables.
        targets: ``{label: phrase}``.
        sensitive: ``{attribute: {label: phrase}}``; one attribute in the paper.
        template: a sentence with the slots ``{target}`` and ``{sensitive}``.
        harmful: ``{name: classes}``, sets of targets that no one should be labeled with.

    Example:
        >>> task = BenchmarkTask.find("CelebA", "hair color", "gender")
        >>> print(task)
        CelebA hair color x gender
        >>> task.arguments()["template"]
        'A photo of a {sensitive} celebrity {target}.'
    """

    dataset: str
    target: str
    targets: Mapping[str, str]
    sensitive: Mapping[str, Mapping[str, str]]
    template: str
    harmful: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def find(cls, dataset: str, target: str, sensitive: str) -> BenchmarkTask:
        """Return the task of a pair in the paper's tables."""
        names = (dataset, target, sensitive)
        for task in PAPER_TASKS:
            if (task.dataset, task.target, *task.sensitive) == names:
                return task
        known = "; ".join(map(str, PAPER_TASKS))
        raise FairTTAError(
            f"there is no task '{dataset} {target} x {sensitive}'. Choose one of: {known}."
        )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``FairTPTClassifier(model, **task.arguments())``."""
        return {
            "targets": dict(self.targets),
            "sensitive": {name: dict(v) for name, v in self.sensitive.items()},
            "template": self.template,
        }

    def __str__(self) -> str:
        return f"{self.dataset} {self.target} x {', '.join(self.sensitive)}"


def _label_is_phrase(*names: str) -> dict[str, str]:
    return {name: name for name in names}


# Names of attributes, ``{label: phrase}``
GENDERS = _label_is_phrase("male", "female")
AGES = _label_is_phrase("young", "old")
RACES_4 = _label_is_phrase("White", "Black", "Asian", "Indian")
RACES_7 = _label_is_phrase(
    "White",
    "Southeast Asian",
    "Middle Eastern",
    "Black",
    "Indian",
    "Latino Hispanic",
    "East Asian",
)
HAIR = {"dark": "with dark hair", "blond": "with blond hair"}
SMILING = _label_is_phrase("smiling", "not smiling")
MAKEUP = {"makeup": "wearing makeup", "no makeup": "not wearing makeup"}
GLASSES = {"glasses": "wearing glasses", "no glasses": "not wearing glasses"}
BIRD_NAMES = {"water bird": "of a water bird", "land bird": "of a land bird"}
BACKGROUNDS = {"water": "on water", "land": "on land"}

# Templates
PERSON = "A photo of a {sensitive} {target} person."
CELEBRITY = "A photo of a {sensitive} celebrity {target}."
PICTURE = "This is a picture {target} {sensitive}."

PAPER_TASKS = (
    BenchmarkTask("FairFace", "gender", GENDERS, {"race": RACES_7}, PERSON),
    BenchmarkTask("CelebA", "hair color", HAIR, {"gender": GENDERS}, CELEBRITY),
    BenchmarkTask("CelebA", "smiling", SMILING, {"gender": GENDERS}, CELEBRITY),
    BenchmarkTask(
        "Waterbirds", "bird type", BIRD_NAMES, {"background": BACKGROUNDS}, PICTURE
    ),
    BenchmarkTask("UTKFace", "age", AGES, {"race": RACES_4}, PERSON),
    BenchmarkTask("UTKFace", "gender", GENDERS, {"race": RACES_4}, PERSON),
    BenchmarkTask("FairFace", "age", AGES, {"race": RACES_7}, PERSON),
    BenchmarkTask("FairFace", "age", AGES, {"gender": GENDERS}, PERSON),
    BenchmarkTask("FairFace", "race", RACES_7, {"gender": GENDERS}, PERSON),
    BenchmarkTask("CelebA", "makeup", MAKEUP, {"gender": GENDERS}, CELEBRITY),
    BenchmarkTask("CelebA", "glasses", GLASSES, {"gender": GENDERS}, CELEBRITY),
    BenchmarkTask("UTKFace", "age", AGES, {"gender": GENDERS}, PERSON),
    BenchmarkTask("UTKFace", "race", RACES_4, {"gender": GENDERS}, PERSON),
)
"""All 13, the six of the main tables first."""
