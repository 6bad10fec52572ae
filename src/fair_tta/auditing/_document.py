"""The types of `audit.json`. Its JSON Schema is made from them, docstrings included."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
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
# Bounds are checked when a document is read, and are in its schema
Rate = Annotated[float, Meta(ge=0, le=1)]
Change = Annotated[float, Meta(ge=-1, le=1)]
LabelByName = Mapping[str, str]


class DocumentPart(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all parts: immutable, and unknown fields of a file are refused."""


RateEstimate: TypeAlias = Estimate[Rate]
ChangeEstimate: TypeAlias = Estimate[Change]

COMPARED_METRICS = [metric for metric in METRICS.values() if metric.is_compared]
"""The metrics whose differences a comparison has."""


class Figures(DocumentPart, frozen=True):
    """Base with a field for each metric of `fair_tta.metrics.definitions`."""

    if TYPE_CHECKING:

        def __init__(self, **figures: Estimate) -> None: ...
        def __getattr__(self, name: str) -> Estimate: ...

    def by_name(self) -> dict[str, Estimate]:
        """Return ``{metric: estimate}``."""
        return asdict(self)


def _define_figures(
    name: str, docstring: str, estimate: Any, metrics: Iterable[MetricDefinition]
) -> Any:
    return defstruct(
        name,
        [(metric.name, estimate) for metric in metrics],
        bases=(Figures,),
        namespace={"__doc__": docstring},
        kw_only=True,
    )


# The fields follow the definitions, so that a new metric is written down in one place. The type
# checker cannot see them, and takes both for their base class.
if TYPE_CHECKING:
    RunMetrics: TypeAlias = Figures
    Differences: TypeAlias = Figures
else:
    RunMetrics = _define_figures(
        "RunMetrics", "The figures of a run.", RateEstimate, METRICS.values()
    )
    Differences = _define_figures(
        "Differences",
        "The figures of a run minus those of the reference.",
        ChangeEstimate,
        COMPARED_METRICS,
    )


class AdapterFields(DocumentPart, frozen=True):
    """A method with its settings."""

    name: str
    settings: Mapping[str, Any]
    repr: str


class ZeroShotScores(DocumentPart, frozen=True):
    """The same images before adaptation."""

    average_target_confidence: RateEstimate
    sensitive_indifference: Mapping[str, RateEstimate]


class PerceivedOdds(DocumentPart, frozen=True):
    """EOD as estimated without labels, beside that with labels.

    pseudo_eod: with the model's zero-shot beliefs instead of labels. eod: with labels, of this
    attribute alone; null if the data has no attribute of this name.
    """

    pseudo_eod: RateEstimate
    eod: RateEstimate | None


class PerceivedOddsChange(DocumentPart, frozen=True):
    """Both minus those of the reference."""

    pseudo_eod: ChangeEstimate
    eod: ChangeEstimate | None


class GroupName(DocumentPart, frozen=True):
    """A group: images of one class, or of all classes if target is null."""

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
    """One class in one group.

    different_images: null if no image is repeated, or if that is not known.
    """

    target: str
    n: NonNegativeInt
    correct: NonNegativeInt
    true_positive_rate: RateEstimate
    false_positive_rate: RateEstimate
    selection_rate: RateEstimate
    different_images: NonNegativeInt | None = None

    @property
    def images(self) -> int:
        """The number of images; repeated ones count once."""
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
            description="Rows are true classes, columns are answers, in the order of data.targets. "
            "A last column without a class counts answers that are no class."
        ),
    ]
    classes: tuple[ClassInGroup, ...]


class HarmRate(DocumentPart, frozen=True):
    """The share of answers of a group in a set of classes; sensitive is empty for everybody."""

    classes: Annotated[str, Meta(description="The name of the set in data.harmful.")]
    sensitive: LabelByName
    rate: RateEstimate


class HarmChange(DocumentPart, frozen=True):
    """The change of such a share from the reference, on the same images."""

    classes: str
    sensitive: LabelByName
    difference: ChangeEstimate


class RelativeSteps(DocumentPart, frozen=True):
    """Quantiles of how far the context moved, on the n images where it was tuned."""

    n: NonNegativeInt
    quantiles: Mapping[str, float]


class Cost(DocumentPart, frozen=True):
    """The time that a run took."""

    seconds: float
    seconds_per_image: float


class RunOrigin(DocumentPart, frozen=True):
    """The origin of a run."""

    model: Mapping[str, Any] | None
    prompts: Mapping[str, Any] | None
    views: Mapping[str, Any] | None
    seed: int | None


class UnknownAnswers(DocumentPart, frozen=True):
    """Answers that are no class, which count as wrong.

    n: their number. most_frequent: the counts of the most frequent ones.
    """

    n: NonNegativeInt
    most_frequent: Mapping[str, NonNegativeInt]


class RunFigures(DocumentPart, frozen=True):
    """The figures of one run. perceived: by attribute of the model; null if not recorded."""

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
        Meta(description="The number of images with each warning."),
    ]
    cost: Cost | None
    provenance: Annotated[
        RunOrigin | None,
        Meta(description="null if it is that of the document."),
    ]
    harm: tuple[HarmRate, ...] = ()
    perceived: Mapping[str, PerceivedOdds] | None = None
    median_confidence: Annotated[
        Rate | None,
        Meta(description="Of the answers; null if it was not recorded."),
    ] = None
    no_class: Annotated[
        UnknownAnswers | None,
        Meta(description="null if every answer is one of the classes."),
    ] = None


class AnswerChanges(DocumentPart, frozen=True):
    """Changed answers, and the images that a claim needs.

    mcnemar_p: the p-value of McNemar's test; null with clusters, for which it does not hold.
    """

    n: NonNegativeInt
    changed: NonNegativeInt
    right_to_wrong: NonNegativeInt
    wrong_to_right: NonNegativeInt
    wrong_to_wrong: NonNegativeInt
    mcnemar_p: Rate | None
    images_needed: NonNegativeInt | None


class ComparedGroup(GroupName, frozen=True):
    """A group in two runs.

    corrected: the difference with an interval that allows for every class in every group (Holm);
    null for a group of all classes.
    """

    difference: ChangeEstimate
    changes: AnswerChanges
    corrected: ChangeEstimate | None = None

    @property
    def judged(self) -> ChangeEstimate:
        """The difference whose interval verdicts use."""
        return self.corrected or self.difference


class Comparison(DocumentPart, frozen=True):
    """A run beside the reference, on the same images.

    perceived: by attribute of the model; null if not recorded.
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
            description="The differences with intervals that allow, metric by metric, for all "
            "comparisons made; null if there is only one."
        ),
    ] = None
    compared: Annotated[
        NonNegativeInt | None,
        Meta(
            description="The number of comparisons that corrected allows for, including those "
            "that are not kept here."
        ),
    ] = None

    @property
    def adjusted(self) -> Differences:
        """The differences whose intervals verdicts use: corrected if there are several."""
        return self.corrected or self.differences


class DataFields(DocumentPart, frozen=True):
    """The images.

    hash: of labels, sensitive values and clusters, in order. harmful: sets of classes. clusters:
    the number of persons, sources or different images that intervals allow for; null if images are
    independent. different_images: the number of images that differ in content; null if only answers
    are known.
    """

    n: NonNegativeInt
    hash: str
    targets: tuple[str, ...]
    sensitive: Mapping[str, tuple[str, ...]]
    harmful: Mapping[str, tuple[str, ...]] = {}
    clusters: NonNegativeInt | None = None
    different_images: NonNegativeInt | None = None


class IntervalSettings(DocumentPart, frozen=True):
    """Settings of the intervals. small: groups with fewer images warn."""

    level: Annotated[float, Meta(gt=0, lt=1)]
    resamples: NonNegativeInt
    seed: NonNegativeInt
    strata: GroupBy
    small: NonNegativeInt


class Threshold(DocumentPart, frozen=True):
    """A limit for a figure of a run, in points.

    failed: the whole interval lies beyond it. passed: none of it does. undecided: a part of it
    does. not judged: there is no interval.
    """

    metric: str
    sign: Annotated[str, Meta(pattern="^[<>]$")]
    points: Annotated[float, Meta(ge=0, le=100)]
    run: str
    outcome: Literal["failed", "passed", "undecided", "not judged"]


class Machine(DocumentPart, frozen=True):
    """The machine that made the audit."""

    platform: str
    processor: str
    cpus: NonNegativeInt | None
    accelerator: str | None


# These parts do not forbid unknown fields: a provenance is written by models and by callers, too
class ModelFields(Struct, frozen=True):
    """The model; other fields are allowed."""

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
    """Versions, machine, model and prompts; other fields are allowed."""

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
    """Return the fields that every provenance has, without those that were added."""
    try:
        return convert(provenance, Provenance)
    except ValidationError as error:
        raise FairTTAError(f"in provenance: {error}") from None


class AuditDocument(DocumentPart, frozen=True):
    """Group-wise figures of one or more runs on the same images.

    Rates lie in [0, 1]. A value of null is not defined, and its reason says why.
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
        """The number of comparisons that verdicts on metrics allow for; 0 if not corrected."""
        numbers = [0]
        for comparison in self.comparisons:
            if comparison.corrected is not None:
                numbers.append(comparison.compared or len(self.comparisons))
        return max(numbers)

    @property
    def origin(self) -> Provenance:
        """The fields that every provenance has, without those that were added."""
        return read_origin(self.provenance)

    def __post_init__(self) -> None:
        # Reports take all this for granted, and a file may have been edited
        read_origin(self.provenance)
        first_run = self.runs[0]
        groups = [group.sensitive for group in first_run.groups]
        for run in self.runs:
            if [group.sensitive for group in run.groups] != groups:
                raise FairTTAError(
                    f"the groups of {run.name!r:.60} are not those of the first run"
                )
            for group in run.groups:
                _check_group(run.name, group, self.data.targets)


def _check_group(run: str, group: GroupFigures, targets: Sequence[str]) -> None:
    """Raise if the classes of a group are not those of the data, or its counts are impossible."""
    row_lengths = {len(row) for row in group.confusion}
    is_complete = (
        tuple(cell.target for cell in group.classes) == targets
        and len(group.confusion) == len(targets)
        # One column more counts answers that are no class
        and row_lengths in ({len(targets)}, {len(targets) + 1})
    )
    if not is_complete:
        raise FairTTAError(f"the classes of {run!r:.60} are not those of the data")
    parts: list[GroupFigures | ClassInGroup] = [group, *group.classes]
    for part in parts:
        if part.correct > part.n:
            raise FairTTAError(f"{run!r:.60} has more right answers than images")


# Names of estimates in the schema, with their bounds and descriptions.
_ESTIMATES = {
    "RateEstimate": (Rate, "A figure from 0 to 1."),
    "ChangeEstimate": (Change, "Run minus reference, on the same images."),
}
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
        # Docstrings are wrapped and indented
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
        # msgspec titles a part by its type, and makes the key of the title
        title = f"Estimate[{bounds}]"
        key = re.sub(r"[^a-zA-Z0-9.\-_]", "_", title)
        text = text.replace(f'"{key}"', f'"{name}"')
        text = text.replace(f'/{key}"', f'/{name}"')
        text = text.replace(json.dumps(title), f'"{name}"')
    named_parts: dict[str, Any] = json.loads(text)
    for name, (_, description) in _ESTIMATES.items():
        named_parts[name]["description"] = description + _ESTIMATE_FIELDS
    return named_parts
