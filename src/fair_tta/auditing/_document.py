"""The audit as types: what `audit.json` holds. The JSON Schema is made from these."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, ValidationError, convert, defstruct, field
from msgspec.json import schema_components
from msgspec.structs import asdict

from fair_tta.errors import FairTTAError
from fair_tta.metrics._estimates import Estimate, GroupBy
from fair_tta.metrics._metric import MetricDefinition
from fair_tta.metrics.definitions import METRICS

SCHEMA_ID: Literal["fair-tta/audit/1"] = "fair-tta/audit/1"

NonNegativeInt = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=0, le=1)]
Change = Annotated[float, Meta(ge=-1, le=1)]
LabelByName = Mapping[str, str]


class DocumentPart(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all parts share: they cannot be changed, and what they do not know is refused."""


RateEstimate: TypeAlias = Estimate[Rate]
ChangeEstimate: TypeAlias = Estimate[Change]

COMPARED_METRICS = [metric for metric in METRICS.values() if metric.is_compared]
"""What a comparison has a difference of."""


class Figures(DocumentPart, frozen=True):
    """A field for each entry of `fair_tta.metrics.definitions.METRICS`."""

    if TYPE_CHECKING:

        def __init__(self, **figures: Estimate) -> None: ...
        def __getattr__(self, name: str) -> Estimate: ...

    def by_name(self) -> dict[str, Estimate]:
        """Return ``{metric: figure}``."""
        return asdict(self)


def _figures(
    name: str, doc: str, estimate: Any, metrics: Iterable[MetricDefinition]
) -> Any:
    fields = [(metric.name, estimate) for metric in metrics]
    return defstruct(
        name, fields, bases=(Figures,), namespace={"__doc__": doc}, kw_only=True
    )


if TYPE_CHECKING:
    RunMetrics: TypeAlias = Figures
    Differences: TypeAlias = Figures
else:
    RunMetrics = _figures(
        "RunMetrics", "The figures of a run.", RateEstimate, METRICS.values()
    )
    Differences = _figures(
        "Differences",
        "How the figures of a run differ from those of the reference.",
        ChangeEstimate,
        COMPARED_METRICS,
    )


class AdapterFields(DocumentPart, frozen=True):
    """A method with its settings."""

    name: str
    settings: Mapping[str, Any]
    repr: str


class ZeroShotScores(DocumentPart, frozen=True):
    """The same images with the prompt as it was given."""

    average_target_confidence: RateEstimate
    sensitive_indifference: Mapping[str, RateEstimate]


class PerceivedOdds(DocumentPart, frozen=True):
    """What would have been said without labels, beside what they show.

    pseudo_eod: EOD with the model's zero-shot beliefs in place of labels. eod: that of this
    attribute alone, null if the data has no attribute of this name.
    """

    pseudo_eod: RateEstimate
    eod: RateEstimate | None


class PerceivedOddsChange(DocumentPart, frozen=True):
    """How both differ from those of the reference."""

    pseudo_eod: ChangeEstimate
    eod: ChangeEstimate | None


class GroupName(DocumentPart, frozen=True):
    """Which group: of one class, or of all if target is null."""

    target: str | None
    sensitive: LabelByName


class WorstGroups(DocumentPart, frozen=True):
    """The worst group over class and sensitive value, and over sensitive value alone."""

    target_and_sensitive: GroupName | None = field(name="(y, s)")
    sensitive: GroupName | None = field(name="s")


class GapsOfClass(DocumentPart, frozen=True):
    """Gaps between groups in the rates of one class."""

    target: str
    n: NonNegativeInt
    tpr_gap: RateEstimate
    fpr_gap: RateEstimate
    selection_gap: RateEstimate


class ClassInGroup(DocumentPart, frozen=True):
    """One class in one group. different_images: null if none comes twice or that is not known."""

    target: str
    n: NonNegativeInt
    correct: NonNegativeInt
    true_positive_rate: RateEstimate
    false_positive_rate: RateEstimate
    selection_rate: RateEstimate
    different_images: NonNegativeInt | None = None

    @property
    def images(self) -> int:
        """How many images there are; one that comes several times counts once."""
        return self.n if self.different_images is None else self.different_images


class GroupFigures(DocumentPart, frozen=True):
    """One group in all classes."""

    sensitive: LabelByName
    n: NonNegativeInt
    correct: NonNegativeInt
    accuracy: RateEstimate
    calibration_error: RateEstimate
    confusion: Annotated[
        tuple[tuple[NonNegativeInt, ...], ...],
        Meta(
            description="Rows are true, columns are answers, in the order of data.targets; the "
            "last of one column more are answers that are no class."
        ),
    ]
    classes: tuple[ClassInGroup, ...]


class HarmRate(DocumentPart, frozen=True):
    """How often answers of a group fall into a set of classes; sensitive is empty for everybody."""

    classes: Annotated[str, Meta(description="The name of the set in data.harmful.")]
    sensitive: LabelByName
    rate: RateEstimate


class HarmChange(DocumentPart, frozen=True):
    """How that share differs from the reference's, on the same images."""

    classes: str
    sensitive: LabelByName
    difference: ChangeEstimate


class RelativeSteps(DocumentPart, frozen=True):
    """How far the context moved, on the n images where it was tuned."""

    n: NonNegativeInt
    quantiles: Mapping[str, float]


class Cost(DocumentPart, frozen=True):
    """How long a run took."""

    seconds: float
    seconds_per_image: float


class RunOrigin(DocumentPart, frozen=True):
    """Where a run comes from."""

    model: Mapping[str, Any] | None
    prompts: Mapping[str, Any] | None
    views: Mapping[str, Any] | None
    seed: int | None


class UnknownAnswers(DocumentPart, frozen=True):
    """Answers that are no class, which count as wrong. n: how many. most_frequent: how often each
    of the most frequent ones came.
    """

    n: NonNegativeInt
    most_frequent: Mapping[str, NonNegativeInt]


class RunFigures(DocumentPart, frozen=True):
    """One run in figures. perceived: by attribute of the model; null if not recorded."""

    name: str
    adapter: AdapterFields | None
    metrics: RunMetrics
    sensitive_indifference: Mapping[str, RateEstimate]
    zero_shot_scores: ZeroShotScores | None
    worst_group: WorstGroups
    classes: tuple[GapsOfClass, ...]
    groups: tuple[GroupFigures, ...]
    relative_steps: RelativeSteps | None
    warnings: Annotated[
        Mapping[str, NonNegativeInt],
        Meta(description="On how many images a warning came."),
    ]
    cost: Cost | None
    provenance: Annotated[
        RunOrigin | None,
        Meta(description="Where it differs from that of the document, else null."),
    ]
    harm: tuple[HarmRate, ...] = ()
    perceived: Mapping[str, PerceivedOdds] | None = None
    median_confidence: Annotated[
        Rate | None,
        Meta(description="Of the answers given; null if it was not recorded."),
    ] = None
    no_class: Annotated[
        UnknownAnswers | None,
        Meta(description="null if every answer is one of the classes."),
    ] = None


class AnswerChanges(DocumentPart, frozen=True):
    """How many answers changed, the p-value of McNemar's test (null with clusters, for which it
    does not hold), and the images a claim needs.
    """

    n: NonNegativeInt
    changed: NonNegativeInt
    right_to_wrong: NonNegativeInt
    wrong_to_right: NonNegativeInt
    wrong_to_wrong: NonNegativeInt
    mcnemar_p: Rate | None
    images_needed: NonNegativeInt | None


class ComparedGroup(GroupName, frozen=True):
    """A group in two runs. corrected: the difference with an interval that allows for every class
    in every group (Holm); null for a group of all classes.
    """

    difference: ChangeEstimate
    changes: AnswerChanges
    corrected: ChangeEstimate | None = None

    @property
    def judged(self) -> ChangeEstimate:
        """The difference whose interval verdicts follow."""
        return self.corrected or self.difference


class Comparison(DocumentPart, frozen=True):
    """A run beside the reference, on the same images. perceived: by attribute of the model; null
    if not recorded.
    """

    reference: str
    run: str
    differences: Differences
    sensitive_indifference: Mapping[str, ChangeEstimate]
    changes: AnswerChanges
    groups: tuple[ComparedGroup, ...]
    harm: tuple[HarmChange, ...] = ()
    perceived: Mapping[str, PerceivedOddsChange] | None = None
    corrected: Annotated[
        Differences | None,
        Meta(
            description="differences again, metric by metric at levels that allow for all "
            "comparisons made; null if there is one."
        ),
    ] = None
    compared: Annotated[
        NonNegativeInt | None,
        Meta(
            description="How many comparisons corrected allows for, also those not kept here."
        ),
    ] = None

    @property
    def adjusted(self) -> Differences:
        """The differences whose intervals verdicts follow: corrected if there are several."""
        return self.corrected or self.differences


class DataFields(DocumentPart, frozen=True):
    """The images. hash: of labels, sensitive values and clusters, in order. harmful: sets of
    classes. clusters: how many persons, sources or different images intervals allow for; null if
    images are independent. different_images: how many images differ in content; null if only
    answers are known.
    """

    n: NonNegativeInt
    hash: str
    targets: tuple[str, ...]
    sensitive: Mapping[str, tuple[str, ...]]
    harmful: Mapping[str, tuple[str, ...]] = {}
    clusters: NonNegativeInt | None = None
    different_images: NonNegativeInt | None = None


class IntervalSettings(DocumentPart, frozen=True):
    """How intervals were made. small: groups with fewer images warn."""

    level: Annotated[float, Meta(gt=0, lt=1)]
    resamples: NonNegativeInt
    seed: NonNegativeInt
    strata: GroupBy
    small: NonNegativeInt


class Threshold(DocumentPart, frozen=True):
    """A limit for a figure of a run, in points. failed: the whole interval lies beyond it. passed:
    none of it does. undecided: a part of it does. not judged: there is no interval.
    """

    metric: str
    sign: Annotated[str, Meta(pattern="^[<>]$")]
    points: Annotated[float, Meta(ge=0, le=100)]
    run: str
    outcome: Literal["failed", "passed", "undecided", "not judged"]


class Machine(DocumentPart, frozen=True):
    """Where it ran."""

    platform: str
    processor: str
    cpus: NonNegativeInt | None
    accelerator: str | None


class ModelFields(Struct, frozen=True):
    """The model; what else is known of it may stand here too."""

    name: str | None = None
    weights_sha256: str | None = None


class PromptFields(Struct, frozen=True):
    """The prompts."""

    targets: LabelByName | None = None
    sensitive: Mapping[str, LabelByName] | None = None
    template: Mapping[str, str | list[str] | None] | None = None


class ViewFields(Struct, frozen=True):
    """The views of each image."""

    repr: str | None = None


class Provenance(Struct, frozen=True):
    """Versions, machine, model, prompts; whoever made the audit may have added entries."""

    time: str
    fair_tta: str | None
    packages: Mapping[str, str | None]
    python: str
    machine: Machine
    model: ModelFields | None
    prompts: PromptFields | None
    views: ViewFields | None
    seed: int | None


def read_origin(provenance: Mapping[str, Any]) -> Provenance:
    """What every provenance has, without the entries that were added."""
    try:
        return convert(provenance, Provenance)
    except ValidationError as error:
        raise FairTTAError(f"in provenance: {error}") from None


class AuditDocument(DocumentPart, frozen=True):
    """Group-wise figures of one or more runs on the same images. Rates lie in [0, 1]. A value of
    null is not defined, and its reason says why.
    """

    schema: Literal["fair-tta/audit/1"]
    data: DataFields
    settings: IntervalSettings
    runs: Annotated[tuple[RunFigures, ...], Meta(min_length=1)]
    comparisons: tuple[Comparison, ...]
    provenance: Annotated[
        Mapping[str, Any], Meta(extra_json_schema={"$ref": "#/$defs/Provenance"})
    ]
    warnings: tuple[str, ...]
    thresholds: tuple[Threshold, ...] = ()

    @property
    def compared(self) -> int:
        """How many comparisons marks of metrics allow for; 0 if they are not corrected."""
        corrected = [c for c in self.comparisons if c.corrected is not None]
        return max((c.compared or len(self.comparisons) for c in corrected), default=0)

    @property
    def origin(self) -> Provenance:
        """What every provenance has, without the entries that were added."""
        return read_origin(self.provenance)

    def __post_init__(self) -> None:
        read_origin(self.provenance)
        targets, groups = (
            self.data.targets,
            [group.sensitive for group in self.runs[0].groups],
        )
        square = [len(targets)] * len(targets)
        with_no_class = [len(targets) + 1] * len(targets)
        for run in self.runs:
            if [group.sensitive for group in run.groups] != groups:
                raise FairTTAError(
                    f"the groups of {run.name!r:.60} are not those of the first run"
                )
            for group in run.groups:
                shape = [len(row) for row in group.confusion]
                if tuple(
                    cell.target for cell in group.classes
                ) != targets or shape not in (
                    square,
                    with_no_class,
                ):
                    raise FairTTAError(
                        f"the classes of {run.name!r:.60} are not those of the data"
                    )
                counts = [(cell.correct, cell.n) for cell in group.classes]
                if any(
                    correct > n for correct, n in [(group.correct, group.n), *counts]
                ):
                    raise FairTTAError(
                        f"{run.name!r:.60} has more right answers than images"
                    )


_ESTIMATES = {
    "RateEstimate": (Rate, "A figure from 0 to 1."),
    "ChangeEstimate": (Change, "Run minus reference, on the same images."),
}
"""Names of estimates in the schema, with their bounds and what they are."""

_ESTIMATE_FIELDS = (
    " n: the images it rests on. low and high: its interval, null if it has none."
)


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of audits."""
    (top, _), parts = schema_components(
        [AuditDocument, Provenance], ref_template="#/$defs/{name}"
    )
    for part in parts.values():
        part["description"] = " ".join(part["description"].split())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fair-tta audit, version 1",
        **top,
        "$defs": _with_named_estimates(parts),
    }


def _with_named_estimates(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a schema with short names instead of ``Estimate[Annotated[...]]``."""
    text = json.dumps(parts)
    for name, (bounds, _) in _ESTIMATES.items():
        title = f"Estimate[{bounds}]"
        key = re.sub(r"[^a-zA-Z0-9.\-_]", "_", title)  # as msgspec writes it
        text = text.replace(f'"{key}"', f'"{name}"').replace(f'/{key}"', f'/{name}"')
        text = text.replace(json.dumps(title), f'"{name}"')
    named: dict[str, Any] = json.loads(text)
    for name, (_, description) in _ESTIMATES.items():
        named[name]["description"] = description + _ESTIMATE_FIELDS
    return named
