"""The examination as types: what `examine.json` holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from fair_tta.auditing.document import (
    AdapterFields,
    Difference,
    Measured,
    NotNegative,
    Part,
    Rate,
)
from fair_tta.errors import FairTTAError

EXAMINATION_ID: Final = "fair-tta/examination/1"


class PerceivedAttribute(Part, frozen=True):
    """What the model perceives of an attribute.

    shares: means of p(value | image). entropy: mean normalised entropy of p, 1 is indifferent.
    confidence: mean probability of the most probable value. r_squared: how much of the target's
    logits is a linear function of p. associations: in logits, value by class. pseudo_eod: of the
    zero-shot answers.
    """

    shares: Mapping[str, Measured]
    entropy: Measured
    confidence: Measured
    r_squared: Rate | None
    associations: Mapping[str, Mapping[str, float]]
    pseudo_eod: Measured
    stop_signs: tuple[str, ...]


class PseudoChange(Part, frozen=True):
    """Pseudo-EOD with an adapter, and how it differs from that of the zero-shot answers."""

    after: Measured
    change: Difference


class ExaminedAdapter(Part, frozen=True):
    """What an adapter does to the answers. warnings: on how many images a warning came."""

    name: str
    adapter: AdapterFields
    changed: NotNegative
    changed_share: Measured
    pseudo_eod: Mapping[str, PseudoChange]
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

    def __post_init__(self) -> None:
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
