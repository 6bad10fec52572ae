"""The examination: the types of `examine.json`, and the object that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Annotated, Any, Literal

from msgspec import Meta

from fair_tta._io import write_atomically
from fair_tta.auditing._changed_images import ChangedImage
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
from fair_tta.auditing._json_document import JsonDocument
from fair_tta.errors import FairTTAError


class GroupLabels(DocumentPart, frozen=True):
    """The labels that would show the accuracy of every class of every value (a group).

    each: images of a group, whatever its accuracy, to know it up to half_width. groups: the number
    of groups. rarest_target, rarest_value, rarest_share: the group that is perceived least.
    at_random: the number of images, drawn at random, that contain enough of it; null if it is never
    perceived.
    """

    half_width: Rate
    each: NonNegativeInt
    groups: NonNegativeInt
    rarest_target: str
    rarest_value: str
    rarest_share: Rate
    at_random: NonNegativeInt | None


class ChangeLabels(DocumentPart, frozen=True):
    """The labels that would show whether changed answers change for the better.

    pictures: the images on which McNemar's test finds it with probability 0.8, if twice as many
    answers change one way as the other. labels: those of these images whose answer changes; the
    others need no label. Both are null if nothing changes.
    """

    pictures: NonNegativeInt | None
    labels: NonNegativeInt | None


class PerceivedAttribute(DocumentPart, frozen=True):
    """An attribute as the model perceives it.

    shares: means of p(value | image). entropy: mean normalised entropy of p, 1 is indifferent.
    confidence: mean probability of the most probable value. r_squared: the share of the variance of
    the target's logits that is a linear function of p. associations: in logits, value by class.
    pseudo_eod: of the zero-shot answers. labels_needed: to measure what is only perceived here.
    """

    shares: Mapping[str, RateEstimate]
    entropy: RateEstimate
    confidence: RateEstimate
    r_squared: Rate | None
    associations: Mapping[str, Mapping[str, float]]
    pseudo_eod: RateEstimate
    labels_needed: GroupLabels


class PseudoChange(DocumentPart, frozen=True):
    """Pseudo-EOD with an adapter, and minus that of the zero-shot answers.

    images_needed: images of one group that would show, with probability 0.8, a change of its
    accuracy as large as this one, if its answers change as often as all; null if there is none.
    """

    after: RateEstimate
    change: ChangeEstimate
    images_needed: NonNegativeInt | None


class ExaminedAdapter(DocumentPart, frozen=True):
    """The effect of an adapter on the answers. warnings: the number of images with each."""

    name: str
    adapter: AdapterFields
    changed: NonNegativeInt
    changed_share: RateEstimate
    pseudo_eod: Mapping[str, PseudoChange]
    labels_needed: ChangeLabels
    warnings: Mapping[str, NonNegativeInt]


class ResamplingSettings(DocumentPart, frozen=True):
    """Settings of the intervals."""

    level: Annotated[float, Meta(gt=0, lt=1)]
    resamples: NonNegativeInt
    seed: NonNegativeInt


class ExaminationDocument(DocumentPart, frozen=True):
    """Figures without labels: the model's own perception, not a measurement on people.

    Rates lie in [0, 1]. ranking: for each attribute the adapters, the largest fall of pseudo-EOD
    first. notice: how to read the ranking.
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
        """The fields that every provenance has, without those that were added."""
        return read_origin(self.provenance)

    def __post_init__(self) -> None:
        # Pages take all this for granted, and a file may have been edited
        read_origin(self.provenance)
        names = sorted(adapter.name for adapter in self.adapters)
        for attribute, perceived in self.attributes.items():
            has_all_values = list(perceived.associations) == list(perceived.shares)
            rows = perceived.associations.values()
            if not has_all_values or any(tuple(row) != self.targets for row in rows):
                raise FairTTAError(
                    f"the associations of {attribute!r:.60} are not complete"
                )
            if sorted(self.ranking.get(attribute, ())) != names:
                raise FairTTAError(
                    f"the ranking of {attribute!r:.60} is not one of the adapters"
                )
        for adapter in self.adapters:
            if list(adapter.pseudo_eod) != list(self.attributes):
                raise FairTTAError(
                    f"{adapter.name!r:.60} is not examined by every attribute"
                )


@dataclass(frozen=True, repr=False)
class Examination(JsonDocument):
    """Figures of a classifier without labels: its own perception, not a measurement.

    Made by `FairTPTClassifier.examine`.

    Args:
        document: all figures; its fields are those of `examine.json`.
        images: some whose answer would change, for the page; none after `load`.
    """

    document: ExaminationDocument
    images: tuple[ChangedImage, ...] = field(default=(), compare=False)

    _document_type = ExaminationDocument

    def to_html(self, *, title: str | None = None, images: bool = False) -> str:
        """Return one HTML page that needs no other file, as `save_html` writes it."""
        # A convenience: the core imports the lab only here, when it is called
        from fair_tta.lab.report import examination_html

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
        # Methods are listed in the order of the ranking, which differs from attribute to attribute
        adapters = {adapter.name: adapter for adapter in document.adapters}
        for attribute, perceived in document.attributes.items():
            shares = []
            for value, share in perceived.shares.items():
                shares.append(f"{value} {share.to_text()}")
            entropy = perceived.entropy.to_text()
            lines.append(
                f"{attribute}: perceived as {', '.join(shares)}; entropy {entropy}"
            )
            lines.append(f"  {'zero-shot':27}{perceived.pseudo_eod.to_text()}")
            for name in document.ranking[attribute]:
                change = adapters[name].pseudo_eod[attribute].change.to_text("+")
                lines.append(f"  {name:27}{change}  {adapters[name].changed} changed")
        if adapters:
            lines.append("Pseudo-EOD of zero-shot and its change, with intervals.")
            lines.append(document.notice)
        return "\n".join([*lines, *document.warnings])
