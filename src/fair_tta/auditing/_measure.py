"""How audits are made: measure a run, of answers or of a classifier; put runs side by side."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from hashlib import sha256
from itertools import islice
from time import perf_counter
from typing import Any

from msgspec import structs

from fair_tta._identity import (
    ORIGIN,
    classifier_provenance,
    describe,
    describe_adapter,
    environment,
)
from fair_tta._spelling import likely_labels
from fair_tta.auditing import _document as doc
from fair_tta.auditing._audit import Audit
from fair_tta.auditing._run import (
    HarmSets,
    against,
    corrected_differences,
    figures_of_run,
    parse_harmful,
)
from fair_tta.classifier import checked_images
from fair_tta.errors import (
    FairTTAError,
    SmallGroupWarning,
    UnknownAnswerWarning,
    check_number,
)
from fair_tta.images._load import image_bar, is_single_image
from fair_tta.images._stored import Features
from fair_tta.images._vision import image_digest
from fair_tta.methods._registry import AnyAdapter
from fair_tta.metrics._answer_table import (
    NO_CLASS,
    ONE_ATTRIBUTE,
    AnswerTable,
    Column,
    Sensitive,
    Values,
    are_equal,
    check_clusters,
    check_twins,
    distinct_names,
    join_clusters,
    read_answer_table,
    read_column,
    read_sensitive,
)
from fair_tta.metrics._estimates import (
    SMALL,
    Over,
    listed,
    read_over,
    small_groups,
    warn_small,
)
from fair_tta.metrics._scores import Scores
from fair_tta.metrics.intervals._bootstrap import (
    DEFAULT,
    Bootstrap,
    Interval,
    read_interval,
)
from fair_tta.prediction import Prediction, Predictions

_MOST_UNKNOWN = 20  # different answers that are no class, named in a document


def audit(
    y_true: Column,
    y_pred: Column | Predictions,
    sensitive: Sensitive,
    *,
    name: str | None = None,
    targets: Sequence[Hashable] | None = None,
    values: Values | None = None,
    scores: Scores | None = None,
    seconds: float | None = None,
    harmful: HarmSets | None = None,
    clusters: Column | None = None,
    digests: Column | None = None,
    interval: Interval = DEFAULT,
    adapter: Any = None,
    provenance: Mapping[str, Any] | None = None,
) -> Audit:
    """Measure the answers of one run, group by group.

    Args:
        y_true: true labels, one per image: a list, array, tensor or series.
        y_pred: answers, or the `Predictions` of a classifier, which also say how certain they are.
            Those that are none of the classes count as wrong, are counted in the document and
            warned about; it is an error if all are.
        sensitive: sensitive values, or ``{attribute: values}``; groups are intersections.
        name: what to call the run; if None the method of `Predictions`, or "predictions".
        targets: all classes, if some may not occur; if None those of `Predictions`, or the labels
            in `y_true`.
        values: all sensitive values, or ``{attribute: all values}``, if some may not occur.
        scores: what the run reports besides its answers: `Scores`; if None those of `Predictions`.
        seconds: how long the run took.
        harmful: classes that should not be answered, or ``{name of a set: classes}``; how often
            they are is reported by group, see `fair_tta.metrics.harm_rate`.
        clusters: the person or source of each image, if several images come from one; intervals
            allow for that. Without a value (None, NaN or "") an image is a cluster of its own.
        digests: of the content of each image, such as that of its file. Rows with equal ones are
            the same image, and so in one cluster; the audit states how many images differ.
        interval: how intervals are made.
        adapter: the method, to be written down.
        provenance: what else to write down, see `fair_tta._identity`.

    Example:
        >>> y_true = ["cat", "dog"] * 100
        >>> y_pred = ["cat"] * 100 + ["cat", "dog"] * 50
        >>> found = audit(y_true, y_pred, ["indoors"] * 100 + ["outdoors"] * 100)
        >>> found.estimate("worst_group_accuracy").value
        0.0
    """
    if seconds is not None:
        check_number(
            "seconds", seconds, "be a number from 0 on", lambda x: 0 <= x < float("inf")
        )
    how = read_interval(interval)
    if sensitive is None:
        raise FairTTAError(
            "`sensitive` should have a value per image, or be {attribute: values} (got None).",
            argument="sensitive",
        )
    truth = read_column("y_true", y_true)
    if isinstance(y_pred, Predictions):
        _check_complete(y_pred)
        scores = Scores.from_predictions(y_pred) if scores is None else scores
        adapter = y_pred._adapter if adapter is None else adapter
        name = type(adapter).__name__ if name is None and adapter is not None else name
        if targets is None and set(truth) <= set(y_pred._targets):
            targets = y_pred._targets
        y_pred = y_pred.labels
    name = "predictions" if name is None else name
    answers = read_column("y_pred", y_pred)
    answers, targets, unknown = _known_answers(truth, answers, targets)
    columns = read_answer_table(truth, [answers], sensitive, targets, values, clusters)
    n, names = len(columns.truth), tuple(map(str, columns.targets))
    classes = tuple(name for name in names if name != NO_CLASS)
    attributes = {
        attribute: tuple(map(str, of)) for attribute, of in columns.values.items()
    }
    checked = (scores or Scores())._checked(n)
    columns = replace(columns, targets=names, values={**attributes}, scores=(checked,))
    data_hash = _data_hash(
        columns
    )  # of what was passed, whether images are known or not
    if digests is None:
        check_clusters(columns.clusters)
    else:  # images were classified: what is known of them is reported, if without intervals
        columns = columns.with_contents(digests)
    sets = parse_harmful(harmful, classes)
    warn_small(columns.sizes(Over.TARGET_AND_SENSITIVE))
    for sentence in _only_one_group(columns):
        warnings.warn(sentence, SmallGroupWarning, stacklevel=2)
    run = figures_of_run(
        columns,
        how,
        name=name,
        adapter=None
        if adapter is None
        else doc.AdapterFields(**describe_adapter(adapter)),
        cost=None if seconds is None else doc.Cost(float(seconds), seconds / n),
        harmful=sets,
        no_class=unknown,
    )
    about_unknown = _about_unknown_answers([run], n)
    for sentence in about_unknown:
        warnings.warn(sentence, UnknownAnswerWarning, stacklevel=2)
    document = doc.AuditDocument(
        schema=doc.SCHEMA_ID,
        data=doc.DataFields(
            n,
            data_hash,
            classes,
            attributes,
            sets,
            clusters=columns.cluster_count,
            different_images=columns.different_images,
        ),
        settings=doc.IntervalSettings(
            how.level, how.resamples, how.seed, read_over("strata", how.strata), SMALL
        ),
        runs=(run,),
        comparisons=(),
        provenance=environment()
        | dict.fromkeys(ORIGIN)
        | describe(dict(provenance or {})),
        warnings=(*about_unknown, *_warnings(columns)),
    )
    return Audit(document, columns)


def _check_complete(predictions: Predictions) -> None:
    """Raise if the answer of an image is missing."""
    missing = [place for place, label in enumerate(predictions.labels) if label is None]
    if missing:
        raise FairTTAError(
            f"`y_pred` should have an answer for each image (got none for {len(missing)}, the "
            f"first at place {missing[0]}, which could not be read): leave these rows out of all "
            "columns.",
            argument="y_pred",
        )


def _known_answers(
    truth: list[Hashable], answers: list[Hashable], targets: Sequence[Hashable] | None
) -> tuple[list[Hashable], Sequence[Hashable] | None, doc.UnknownAnswers | None]:
    """Return answers and classes with `NO_CLASS` for answers that are no class, and which they are.

    Raises:
        FairTTAError: no answer is one of the classes.
    """
    classes = distinct_names("targets", targets, truth)
    known = set(classes)
    counts = Counter(answer for answer in answers if answer not in known)
    if not counts or not classes:
        return answers, targets, None
    if counts.total() == len(answers):
        meant = likely_labels([*map(str, counts)], [*map(str, classes)])
        translate = f"translate them, such as by {meant}, or " if meant else ""
        raise FairTTAError(
            f"`y_pred` should be among the classes, {listed([*map(repr, classes)])}, but no answer "
            f"is (got {_listed_counts(counts)}): {translate}name all classes with `targets`.",
            argument="y_pred",
        )
    check_twins("`y_pred` and targets", [*classes, *counts])
    most_frequent = {str(answer): n for answer, n in counts.most_common(_MOST_UNKNOWN)}
    unknown = doc.UnknownAnswers(counts.total(), most_frequent)
    answers = [answer if answer in known else NO_CLASS for answer in answers]
    return answers, [*classes, NO_CLASS], unknown


def _about_unknown_answers(
    runs: Iterable[doc.RunFigures], images: int
) -> tuple[str, ...]:
    """Return a sentence for each run that has answers that are no class."""
    return tuple(
        f"{run.name}: {run.no_class.n} of {images} answers are no class and count as wrong: "
        f"{_listed_counts(run.no_class.most_frequent)}."
        for run in runs
        if run.no_class is not None
    )


def _listed_counts(counts: Mapping[Any, int]) -> str:
    """Return names for a message with how often they came, the most frequent first."""
    by_frequency = sorted(counts, key=lambda name: -counts[name])
    return listed([f"{name!r} ({counts[name]})" for name in by_frequency])


def compare(audits: Iterable[Audit]) -> Audit:
    """Put runs on the same images side by side; the first is what the others are compared with.

    Differences have paired intervals: each image counts with the answers of both runs.
    """
    audits = list(audits)
    if not audits:
        raise FairTTAError(
            "`audits` should be a list of audits (got none).", argument="audits"
        )
    columns = [a._need_columns("compare") for a in audits]
    document = audits[0].document
    made = document.settings
    for other in audits:
        _check_same_data(document.data, other.document.data)
        _check_same(
            "settings", made, other.document.settings, "pass the same `interval`"
        )
    # A run of answers alone does not know which images are the same; one of a classifier does.
    contents = (
        of_audit.contents for of_audit in columns if of_audit.contents is not None
    )
    together = replace(
        columns[0],
        # the longest has `NO_CLASS` at its end, if a run has such answers
        targets=max((of_audit.targets for of_audit in columns), key=len),
        answers=tuple(answers for of_audit in columns for answers in of_audit.answers),
        scores=tuple(scores for of_audit in columns for scores in of_audit.scores),
        clusters=reduce(join_clusters, (of_audit.clusters for of_audit in columns)),
        contents=next(contents, None),
        image_hashes=_image_hashes(audits),
    )
    how = Bootstrap(made.resamples, made.seed, made.level, made.strata)
    runs: list[doc.RunFigures] = []
    for other in audits:
        origin = _origin(other.document)
        same = origin == _origin(document)
        runs += [
            run if same or run.provenance else structs.replace(run, provenance=origin)
            for run in _runs_among(together, other, how)
        ]
    names = [run.name for run in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FairTTAError(
            f"runs should have distinct names ({twice} came twice): pass `name`."
        )
    corrected = corrected_differences(together, how)
    comparisons = [
        against(
            together,
            i,
            how,
            names=(names[0], names[i]),
            harmful=document.data.harmful,
            corrected=corrected,
        )
        for i in range(1, len(names))
    ]
    data = structs.replace(
        document.data,
        clusters=together.cluster_count,
        different_images=together.different_images,
    )
    document = structs.replace(
        document,
        data=data,
        runs=tuple(runs),
        comparisons=tuple(comparisons),
        warnings=(*_about_unknown_answers(runs, document.data.n), *_warnings(together)),
    )
    return Audit(document, together)


def _runs_among(
    together: AnswerTable, measured: Audit, how: Bootstrap
) -> Sequence[doc.RunFigures]:
    """Return the runs of an audit, measured again if more is known now of its images."""
    columns, document = measured._need_columns("compare"), measured.document
    all_differ = together.image_count == together.n
    knows_images = all_differ or are_equal(columns.contents, together.contents)
    if knows_images and are_equal(columns.clusters, together.clusters):
        return document.runs
    runs = []
    for place, run in enumerate(document.runs):
        answers = replace(
            columns,
            answers=(columns.answers[place],),
            scores=(columns.scores[place],),
            clusters=together.clusters,
            contents=together.contents,
        )
        figures = figures_of_run(
            answers,
            how,
            name=run.name,
            adapter=run.adapter,
            cost=run.cost,
            harmful=document.data.harmful,
            no_class=run.no_class,
        )
        runs.append(structs.replace(figures, provenance=run.provenance))
    return runs


def _warnings(columns: AnswerTable) -> tuple[str, ...]:
    """Return what a reader of the figures must know about the images."""
    sentences = list(small_groups(columns.sizes(Over.TARGET_AND_SENSITIVE)))
    sentences += _only_one_group(columns)
    different = columns.different_images
    if different is not None and different < columns.n:
        rows = f"These {columns.n:,} rows are {different:,} different images"
        sentences.append(f"{rows}: those of the same image count as one cluster.")
    if columns.few_clusters:
        clusters = f"{columns.cluster_count} {columns.cluster_noun}"
        sentences.append(
            f"No figure has an interval: {clusters} show nothing about others."
        )
    return tuple(sentences)


def _only_one_group(columns: AnswerTable) -> list[str]:
    """Return a sentence if there are no two groups to compare."""
    present = [name for name, n in columns.sizes(Over.SENSITIVE).items() if n]
    if len(present) != 1:
        return []
    return [
        f"Only one group has images, {present[0]}: no gap between groups can be measured."
    ]


def _check_same_data(first: doc.DataFields, other: doc.DataFields) -> None:
    """Raise an error unless both audits are of the same rows; one may know more of its images."""
    if first.hash == other.hash:
        other = structs.replace(
            other,
            clusters=first.clusters,
            different_images=first.different_images,
        )
    _check_same("data", first, other, "audit the same images in the same way")


def _image_hashes(audits: Iterable[Audit]) -> dict[str, str]:
    """Return the hashes of the images that some of the audits know.

    Raises:
        FairTTAError: two audits are of other images, or of the same in another order.
    """
    hashes: dict[str, str] = {}
    run_by_source: dict[str, str] = {}
    for measured in audits:
        run = measured.runs[0]
        for source, in_order in measured._need_columns("compare").image_hashes.items():
            first = run_by_source.setdefault(source, run)
            if hashes.setdefault(source, in_order) != in_order:
                raise FairTTAError(
                    "`audits` should be of the same images in the same order, but the images of "
                    f"{first!r} and {run!r} differ: pass the same images, with their labels, in "
                    "one order to each audit.",
                    argument="audits",
                )
    return hashes


def _check_same(part: str, first: doc.Part, other: doc.Part, hint: str) -> None:
    differ = [k for k, v in structs.asdict(first).items() if getattr(other, k) != v]
    if differ:
        raise FairTTAError(
            f"`audits` should agree in {part}, but {', '.join(differ)} differ: {hint}.",
            argument="audits",
        )


def _origin(document: doc.AuditDocument) -> doc.RunOrigin:
    return doc.RunOrigin(**{key: document.provenance[key] for key in ORIGIN})


def _data_hash(columns: AnswerTable) -> str:
    """Of labels, sensitive values and clusters, in order."""
    groups = columns.groups
    parts = {
        "labels": columns.names(columns.truth),
        "attributes": list(columns.values),
        "groups": [groups[i] for i in columns.group],
    }
    if columns.clusters is not None:
        parts["clusters"] = columns.clusters.tolist()
    return "sha256:" + sha256(json.dumps(parts).encode()).hexdigest()


def lacks_values(adapter: Any) -> bool:
    """Whether a method needs the true attribute values of each image and does not have them."""
    return adapter.needs.values and adapter.known is None


def predict_knowing(
    classifier: Any,
    adapter: Any,
    images: Iterable[Any],
    columns: Mapping[str, list[Hashable]],
    digests: list[str],
    *,
    progress: bool = False,
) -> Iterator[Prediction]:
    """Predictions in the order of the images, each by the method for its own values.

    `columns` are the sensitive values by attribute, in the classifier's words. The digest of each
    image is added to `digests`.
    """
    attributes = classifier.sensitive
    for attribute, names in attributes.items():
        values = dict.fromkeys(columns.get(attribute, ()))
        unknown = [repr(value) for value in values if value not in names]
        if attribute not in columns or unknown:
            raise FairTTAError(
                f"{type(adapter).__name__} has to know the true values: `sensitive` should have "
                f"{attribute!r} with values among {list(names)} (got "
                f"{', '.join(unknown[:5]) or list(columns)})."
            )
    rows = list(zip(*(columns[attribute] for attribute in attributes), strict=True))
    methods = {
        known: classifier.with_adapter(adapter.knowing(*known)) for known in set(rows)
    }
    stream, values_of, bar = iter(images), iter(rows), image_bar(images, progress)
    while batch := list(islice(stream, classifier._batch_size)):
        loaded = _with_digests(map(classifier._load, batch), digests)
        features = classifier.encode(loaded, with_views=adapter.needs.views)
        own = list(islice(values_of, len(batch)))
        if len(own) < len(batch):
            raise FairTTAError(
                "`labels` should be as many as images (got fewer).", argument="labels"
            )
        answers: dict[int, Prediction] = {}
        for known in set(own):
            places = [place for place, value in enumerate(own) if value == known]
            found = methods[known]._predict_encoded(features[places])
            answers.update(zip(places, found, strict=True))
        bar.update(len(batch))
        yield from (answers[place] for place in range(len(batch)))
    bar.close()


def _with_digests(loaded: Iterable[Any], digests: list[str]) -> Iterator[Any]:
    """Yield loaded images, and add the digest of each to `digests`."""
    for image in loaded:
        digests.append(image_digest(image))
        yield image


def audit_classifier(
    classifier: Any,
    images: Any,
    labels: Column,
    sensitive: Sensitive,
    *,
    adapter: AnyAdapter | None = None,
    name: str | None = None,
    rename: Mapping[Any, str] | None = None,
    harmful: HarmSets | None = None,
    clusters: Column | None = None,
    progress: bool = False,
    interval: Interval = DEFAULT,
) -> Audit:
    """See `FairTPTClassifier.audit`."""
    if is_single_image(images):
        raise FairTTAError(
            "`images` should be several images, one per label.", argument="images"
        )
    renamed, targets = rename or {}, classifier.targets
    truth = [renamed.get(label, label) for label in read_column("labels", labels)]
    unknown = sorted({repr(label) for label in truth if label not in targets})
    if unknown:
        raise FairTTAError(
            f"`labels` should be the classifier's targets, {list(targets)} (got "
            f"{', '.join(unknown[:5])}): pass `rename={{your label: target}}`.",
            argument="labels",
        )

    def check(n: int) -> None:
        if n != len(truth):
            raise FairTTAError(
                f"`labels` should be as many as images, {n} (got {len(truth)}).",
                argument="labels",
            )

    if hasattr(images, "__len__"):
        check(len(images))
    columns, known = read_sensitive(sensitive, len(truth)), classifier.sensitive
    if (
        list(columns) == [ONE_ATTRIBUTE] and len(known) == 1
    ):  # both have one, which is meant
        columns = {next(iter(known)): columns[ONE_ATTRIBUTE]}
    start = perf_counter()
    stream: Iterable[Prediction]
    digests: list[str] = []
    digests_of = _digests_of(classifier, images)
    if adapter is not None:
        classifier = classifier.with_adapter(adapter)
    method = classifier.adapter
    if lacks_values(method):
        method._check_fitted()
        stream = predict_knowing(
            classifier, method, images, columns, digests, progress=progress
        )
    else:
        stream = classifier._stream(checked_images(images), progress, digests=digests)
    predictions = list(stream)
    seconds = perf_counter() - start
    check(len(predictions))
    measured = audit(
        truth,
        [p.label for p in predictions],
        columns,
        name=type(method).__name__ if name is None else name,
        targets=targets,
        values={
            a: known[a]
            for a in columns
            if a in known and set(columns[a]) <= set(known[a])
        },
        scores=Scores.from_predictions(predictions),
        seconds=seconds,
        harmful=harmful,
        clusters=clusters,
        digests=digests,
        interval=interval,
        adapter=method,
        provenance=classifier_provenance(classifier),
    )
    columns_of_run = measured._need_columns("compare")
    (in_order,) = columns_of_run.image_hashes.values()
    recognisable = replace(columns_of_run, image_hashes={digests_of: in_order})
    return Audit(measured.document, recognisable)


def _digests_of(classifier: Any, images: Any) -> str:
    """Return what the digests of these images are of.

    Features of one image differ from model to model, with the views and with the precision, and so
    do their digests: those of other features say nothing about the images.
    """
    if not isinstance(images, Features):
        return "images"
    model = classifier_provenance(classifier)["model"]
    identity = sha256(
        json.dumps(model, sort_keys=True, default=str).encode()
    ).hexdigest()
    return f"{images!r} of model {identity[:8]}"
