"""The examination as types, as an object, and in words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Annotated, Any, Literal

from msgspec import Meta
from PIL.Image import Image

from fair_tta._io import write_atomically
from fair_tta.auditing._audit import JsonDocument
from fair_tta.auditing._document import (
    AdapterFields,
    ChangeEstimate,
    DocumentPart,
    NonNegativeInt,
    Provenance,
    Rate,
    RateEstimate,
    read_origin,
)
from fair_tta.errors import FairTTAError, ImageError
from fair_tta.images._stored import StoredFeature
from fair_tta.metrics._perceived import prompt_associations
from fair_tta.prediction import Prediction
from fair_tta.prompts._task import Task


class GroupLabels(DocumentPart, frozen=True):
    """How many labels would show the accuracy of every class of every value (a group).

    each: images of a group, whatever its accuracy, to know it up to half_width. groups: how many
    there are. rarest_target, rarest_value, rarest_share: the group that is perceived least.
    at_random: so many images, drawn at random, have enough of it; null if it is never perceived.
    """

    half_width: Rate
    each: NonNegativeInt
    groups: NonNegativeInt
    rarest_target: str
    rarest_value: str
    rarest_share: Rate
    at_random: NonNegativeInt | None


class ChangeLabels(DocumentPart, frozen=True):
    """How many labels would show whether changed answers change for the better.

    pictures: if twice as many change one way as the other, McNemar's test finds it on so many
    images with probability 0.8. labels: only those need labels whose answer changes. Null if
    nothing changes.
    """

    pictures: NonNegativeInt | None
    labels: NonNegativeInt | None


class PerceivedAttribute(DocumentPart, frozen=True):
    """What the model perceives of an attribute.

    shares: means of p(value | image). entropy: mean normalised entropy of p, 1 is indifferent.
    confidence: mean probability of the most probable value. r_squared: how much of the target's
    logits is a linear function of p. associations: in logits, value by class. pseudo_eod: of the
    zero-shot answers. labels_needed: to measure what is only perceived here.
    """

    shares: Mapping[str, RateEstimate]
    entropy: RateEstimate
    confidence: RateEstimate
    r_squared: Rate | None
    associations: Mapping[str, Mapping[str, float]]
    pseudo_eod: RateEstimate
    labels_needed: GroupLabels


class PseudoChange(DocumentPart, frozen=True):
    """Pseudo-EOD with an adapter, and how it differs from that of the zero-shot answers.

    images_needed: images of one group that would show, with probability 0.8, a change of its
    accuracy as large as this one, if its answers change as often as all; null if there is none.
    """

    after: RateEstimate
    change: ChangeEstimate
    images_needed: NonNegativeInt | None


class ExaminedAdapter(DocumentPart, frozen=True):
    """What an adapter does to the answers. warnings: on how many images a warning came."""

    name: str
    adapter: AdapterFields
    changed: NonNegativeInt
    changed_share: RateEstimate
    pseudo_eod: Mapping[str, PseudoChange]
    labels_needed: ChangeLabels
    warnings: Mapping[str, NonNegativeInt]


class ResamplingSettings(DocumentPart, frozen=True):
    """How intervals were made."""

    level: Annotated[float, Meta(gt=0, lt=1)]
    resamples: NonNegativeInt
    seed: NonNegativeInt


class ExaminationDocument(DocumentPart, frozen=True):
    """What can be seen without labels. It is the model's own perception, not a measurement on
    people. Rates lie in [0, 1].

    ranking: for each attribute the adapters, the largest fall of pseudo-EOD first. notice: what
    the ranking is and is not.
    """

    schema: Literal["fair-tta/examination/1"]
    n: Annotated[int, Meta(ge=1)]
    targets: tuple[str, ...]
    settings: ResamplingSettings
    attributes: Annotated[Mapping[str, PerceivedAttribute], Meta(min_length=1)]
    adapters: tuple[ExaminedAdapter, ...]
    ranking: Mapping[str, tuple[str, ...]]
    notice: str
    provenance: Mapping[str, Any]
    warnings: tuple[str, ...]

    @property
    def origin(self) -> Provenance:
        """What every provenance has, without the entries that were added."""
        return read_origin(self.provenance)

    def __post_init__(self) -> None:
        read_origin(self.provenance)
        names = sorted(adapter.name for adapter in self.adapters)
        for attribute, of in self.attributes.items():
            tables = [tuple(row) for row in of.associations.values()]
            if tables != [self.targets] * len(of.shares) or [*of.associations] != [
                *of.shares
            ]:
                raise FairTTAError(
                    f"the associations of {attribute!r:.60} are not complete"
                )
            if sorted(self.ranking.get(attribute, ())) != names:
                raise FairTTAError(
                    f"the ranking of {attribute!r:.60} is not one of the adapters"
                )
        for adapter in self.adapters:
            if [*adapter.pseudo_eod] != [*self.attributes]:
                raise FairTTAError(
                    f"{adapter.name!r:.60} is not examined by every attribute"
                )


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
    def _of(cls, task: Task) -> Associations:
        """The associations of a task's prompts.

        Raises:
            FairTTAError: it names no sensitive values.
        """
        if not task.sensitive:
            raise FairTTAError(
                "`sensitive` should name what should not matter, such as ['on water', 'on land']: "
                "without it there is nothing to associate classes with.",
                argument="sensitive",
            )
        target = task.target_features.cpu().double().numpy()
        logits = {}
        for attribute, features in task.sensitive_features.items():
            table = prompt_associations(
                features.cpu().double().numpy(), target, task.scale
            )
            logits[attribute] = {
                value: dict(zip(task.targets, row, strict=True))
                for value, row in zip(
                    task.sensitive[attribute], table.tolist(), strict=True
                )
            }
        return cls(logits)

    def to_dict(self) -> dict[str, dict[str, dict[str, float]]]:
        """Plain dictionaries, as JSON has it."""
        return {
            a: {v: dict(row) for v, row in rows.items()}
            for a, rows in self.logits.items()
        }

    def __str__(self) -> str:
        lines: list[str] = []
        for attribute, rows in self.logits.items():
            head = [f"{attribute} (logits)", *next(iter(rows.values()))]
            cells = [
                head,
                *([v, *(f"{x:+.2f}" for x in row.values())] for v, row in rows.items()),
            ]
            wide, *widths = (
                max(map(len, column)) for column in zip(*cells, strict=True)
            )
            lines += [
                "  ".join([v.ljust(wide), *map(str.rjust, x, widths)])
                for v, *x in cells
            ]
            lines.append("")
        return "\n".join(lines[:-1])


MOST_IMAGES = 36  # of all methods together, unless there are many methods
LEAST_IMAGES = 3  # of each method, if so many answers change
SIDE = 128  # pixels; what is larger is made smaller


@dataclass(frozen=True, eq=False)
class ChangedImage:
    """An image whose answer would change.

    Attributes:
        adapter: by which method.
        name: of the image.
        image: a small copy without metadata, or its path.
        before: the zero-shot answer.
        after: the method's answer.
        before_probability: of the answer before, by zero-shot.
        after_probability: of the answer after, by the method.
    """

    adapter: str
    name: str
    image: Any
    before: str
    after: str
    before_probability: float
    after_probability: float


class ChangedImages:
    """Collects a few images of each method whose answer changed, each equally likely."""

    def __init__(
        self, adapters: Iterable[str], most: int = MOST_IMAGES, *, seed: int = 0
    ) -> None:
        names = list(adapters)
        self._quota = max(LEAST_IMAGES, most // max(1, len(names)))
        self._kept: dict[str, list[ChangedImage]] = {name: [] for name in names}
        self._seen = dict.fromkeys(names, 0)
        self._chance = random.Random(seed)

    def add(
        self, predictions: Sequence[Prediction], name: str, image: Image | str
    ) -> None:
        """One more image, or its path: the prediction of `ZeroShot` and of each method."""
        if isinstance(image, StoredFeature):  # there is nothing to show
            return
        before = predictions[0]
        for (adapter, kept), after in zip(
            self._kept.items(), predictions[1:], strict=False
        ):
            if after.label == before.label:
                continue
            self._seen[adapter] += 1
            place = len(kept)
            if place == self._quota:
                place = self._chance.randrange(self._seen[adapter])
            if place >= self._quota:
                continue
            found = ChangedImage(
                adapter,
                name,
                image if isinstance(image, str) else small_copy(image),
                before.label,
                after.label,
                before.probabilities[before.label],
                after.probabilities[after.label],
            )
            kept[place : place + 1] = [found]

    def images(self, load: Callable[[str], Image]) -> tuple[ChangedImage, ...]:
        """All that were kept; those that cannot be read from their paths any more are left out."""
        found = []
        for one in (one for kept in self._kept.values() for one in kept):
            try:
                image = (
                    small_copy(load(one.image))
                    if isinstance(one.image, str)
                    else one.image
                )
            except (ImageError, OSError):
                continue
            found.append(replace(one, image=image))
        return tuple(found)


def small_copy(image: Image) -> Image:
    """Of at most `SIDE` pixels each way, in RGB, without what files say besides."""
    copy = image.convert("RGB") if image.mode != "RGB" else image.copy()
    copy.thumbnail((SIDE, SIDE))
    copy.info = {}
    return copy


@dataclass(frozen=True, repr=False)
class Examination(JsonDocument):
    """What can be seen of a classifier without labels: its own perception, no measurement.

    `FairTPTClassifier.examine` makes it.

    Args:
        document: all figures; its fields are those of `examine.json`.
        images: some whose answer would change, for the page; none after `load`.
    """

    document: ExaminationDocument
    images: tuple[ChangedImage, ...] = field(default=(), compare=False)

    _kind = ExaminationDocument

    def to_html(self, *, title: str | None = None, images: bool = False) -> str:
        """One HTML page that needs nothing else: what `save_html` writes."""
        from fair_tta.lab.report import (
            examination_html,
        )  # a convenience: the lab when called

        return examination_html(self, title=title, images=images)

    def save_html(
        self,
        path: str | PathLike[str],
        *,
        title: str | None = None,
        images: bool = False,
    ) -> None:
        """Write the page to a file."""
        write_atomically(path, self.to_html(title=title, images=images).encode())

    def __repr__(self) -> str:
        names = [adapter.name for adapter in self.document.adapters]
        return f"Examination(n={self.document.n}, adapters={names})"

    def __str__(self) -> str:
        document = self.document
        lines = [f"{document.n} images, without labels"]
        for attribute, of in document.attributes.items():
            shares = ", ".join(
                f"{name} {share.to_text()}" for name, share in of.shares.items()
            )
            lines += [
                f"{attribute}: perceived as {shares}; entropy {of.entropy.to_text()}"
            ]
            lines += [f"  {'zero-shot':27}{of.pseudo_eod.to_text()}"]
            by_name = {adapter.name: adapter for adapter in document.adapters}
            for adapter in (by_name[name] for name in document.ranking[attribute]):
                change = adapter.pseudo_eod[attribute].change
                lines += [
                    f"  {adapter.name:27}{change.to_text('+')}  {adapter.changed} changed"
                ]
        if document.adapters:
            lines += [
                "Pseudo-EOD of zero-shot and its change, with intervals.",
                document.notice,
            ]
        return "\n".join([*lines, *document.warnings])
