"""The examination as types: what `examine.json` holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, ValidationError, convert

from fair_tta.auditing.document import (
    AdapterFields,
    Difference,
    Measured,
    NotNegative,
    Part,
    Provenance,
    Rate,
)
from fair_tta.errors import FairTTAError

EXAMINATION_ID: Final = "fair-tta/examination/1"


class GroupLabels(Part, frozen=True):
    """How many labels would show the accuracy of every class of every value (a group).

    each: images of a group, whatever its accuracy, to know it up to half_width. groups: how many
    there are. rarest_target, rarest_value, rarest_share: the group that is perceived least.
    at_random: so many images, drawn at random, have enough of it; null if it is never perceived.
    """

    half_width: Rate
    each: NotNegative
    groups: NotNegative
    rarest_target: str
    rarest_value: str
    rarest_share: Rate
    at_random: NotNegative | None


class ChangeLabels(Part, frozen=True):
    """How many labels would show whether changed answers change for the better.

    pictures: if twice as many change one way as the other, McNemar's test finds it on so many
    images with probability 0.8. labels: only those need labels whose answer changes. Null if
    nothing changes.
    """

    pictures: NotNegative | None
    labels: NotNegative | None


class PerceivedAttribute(Part, frozen=True):
    """What the model perceives of an attribute.

    shares: means of p(value | image). entropy: mean normalised entropy of p, 1 is indifferent.
    confidence: mean probability of the most probable value. r_squared: how much of the target's
    logits is a linear function of p. associations: in logits, value by class. pseudo_eod: of the
    zero-shot answers. labels_needed: to measure what is only perceived here.
    """

    shares: Mapping[str, Measured]
    entropy: Measured
    confidence: Measured
    r_squared: Rate | None
    associations: Mapping[str, Mapping[str, float]]
    pseudo_eod: Measured
    stop_signs: tuple[str, ...]
    labels_needed: GroupLabels


class PseudoChange(Part, frozen=True):
    """Pseudo-EOD with an adapter, and how it differs from that of the zero-shot answers.

    images_needed: images of one group that would show, with probability 0.8, a change of its
    accuracy as large as this one, if its answers change as often as all; null if there is none.
    """

    after: Measured
    change: Difference
    images_needed: NotNegative | None


class ExaminedAdapter(Part, frozen=True):
    """What an adapter does to the answers. warnings: on how many images a warning came."""

    name: str
    adapter: AdapterFields
    changed: NotNegative
    changed_share: Measured
    pseudo_eod: Mapping[str, PseudoChange]
    labels_needed: ChangeLabels
    warnings: Mapping[str, NotNegative]


class ResamplingSettings(Part, frozen=True):
    """How intervals were made."""

    level: Annotated[float, Meta(gt=0, lt=1)]
    resamples: NotNegative
    seed: NotNegative


class ExaminationDocument(Part, frozen=True):
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
        return convert(self.provenance, Provenance)

    def __post_init__(self) -> None:
        try:
            self.origin  # noqa: B018
        except ValidationError as error:
            raise FairTTAError(f"in provenance: {error}") from None
        names = sorted(adapter.name for adapter in self.adapters)
        for attribute, of in self.attributes.items():
            tables = [tuple(row) for row in of.associations.values()]
            if tables != [self.targets] * len(of.shares) or [*of.associations] != [*of.shares]:
                raise FairTTAError(f"the associations of {attribute!r:.60} are not complete")
            if sorted(self.ranking.get(attribute, ())) != names:
                raise FairTTAError(f"the ranking of {attribute!r:.60} is not one of the adapters")
        for adapter in self.adapters:
            if [*adapter.pseudo_eod] != [*self.attributes]:
                raise FairTTAError(f"{adapter.name!r:.60} is not examined by every attribute")
