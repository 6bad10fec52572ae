"""Examine a classifier without labels: predict, then look at what it perceives."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from msgspec import convert
from PIL.Image import Image

from fair_tta._identity import (
    ORIGIN,
    classifier_provenance,
    describe_adapter,
    environment,
)
from fair_tta.auditing import _examination as doc
from fair_tta.auditing._document import AdapterFields
from fair_tta.auditing._examination import Associations, ChangedImages, Examination
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.images._batches import load_batches
from fair_tta.images._inputs import check_images
from fair_tta.images._load import image_bar, is_single_image
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.methods._fitting import warn_if_other_model
from fair_tta.methods._registry import Adapters, resolve_adapter
from fair_tta.metrics import average_sensitive_indifference
from fair_tta.metrics._calibration import mean_estimate
from fair_tta.metrics._estimates import SMALL_GROUP, Estimate, list_names
from fair_tta.metrics._perceived import pseudo_odds, r_squared
from fair_tta.metrics._scores import AnswerTableBuilder
from fair_tta.metrics._types import Floats
from fair_tta.metrics.intervals._bootstrap import (
    DEFAULT,
    Bootstrap,
    Interval,
    read_interval,
)
from fair_tta.metrics.intervals._closed_forms import (
    images_for_change,
    images_for_half_width,
    wilson,
)
from fair_tta.prediction import Prediction

HALF_WIDTH = 0.05
"""A group is called known if its accuracy is known up to so much."""

_PARTS = 1_000_000  # a rate as whole numbers


def group_labels(
    shares: Floats, values: Sequence[str], targets: Sequence[str], level: float
) -> doc.GroupLabels:
    """What it takes to know the accuracy of all classes of all values, of shares in that order."""
    each = images_for_half_width(0.5, HALF_WIDTH, level)  # no accuracy needs more
    rarest, target = divmod(int(shares.argmin()), len(targets))
    share = min(1.0, max(0.0, float(shares[rarest, target])))
    drawn = each / share if share > 0 else math.inf
    return doc.GroupLabels(
        half_width=HALF_WIDTH,
        each=each,
        groups=shares.size,
        rarest_target=targets[target],
        rarest_value=values[rarest],
        rarest_share=share,
        at_random=math.ceil(drawn) if drawn < 2**53 else None,
    )


def change_labels(changed: int, n: int, level: float) -> doc.ChangeLabels:
    """What it takes to show whether changed answers change for the better.

    If twice as many become right as become wrong, or the other way round, McNemar's test finds it.
    """
    images = images_for_change(changed, 2 * changed, 3 * n, level)
    labels = None if images is None else math.ceil(images * changed / n)
    return doc.ChangeLabels(pictures=images, labels=labels)


def gap_labels(change: float | None, changed_share: float, level: float) -> int | None:
    """Images of one group that would show a change of its accuracy as large as that of the gap.

    Its answers are taken to change as often as those of all images, and often enough for that.
    """
    if change is None:
        return None
    net, either = round(abs(change) * _PARTS), round(changed_share * _PARTS)
    more = (max(net, either) - net) // 2
    return images_for_change(more, more + net, _PARTS, level)


NOTICE = (
    "The ranking is by the change of pseudo-EOD: the model's own perception, not a measurement on "
    "people. Over 58 tasks of four small models it tracked the true change with rank correlation "
    "0.78. It says nothing about accuracy: answers given at random close every gap."
)

_LEAST = float(np.finfo(np.float32).tiny)  # of a probability, for its logarithm


def examine_predictions(
    associations: Associations,
    adapters: Mapping[str, Adapter],
    answers: Iterable[Sequence[Prediction]],
    bootstrap: Bootstrap,
    provenance: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> doc.ExaminationDocument:
    """All figures, of the predictions of `ZeroShot` and of each adapter on each image; an error if
    there are no images. A few numbers of each stay in memory. `notes` begin the warnings.
    """
    zero_shot = AnswerTableBuilder(keep_beliefs=True)
    labels = [list[str]() for _ in (0, *adapters)]
    warned = [Counter[str]() for _ in labels]
    for predictions in answers:
        zero_shot.add(predictions[0])
        for names, counter, prediction in zip(labels, warned, predictions, strict=True):
            names.append(sys.intern(prediction.label))
            counter.update(prediction.warnings)
    n, scores = len(labels[0]), zero_shot.scores()
    if scores.zero_shot is None or scores.sensitive_zero_shot is None:
        raise FairTTAError(
            "`images` should be at least one image (got none).", argument="images"
        )
    targets, target = tuple(scores.zero_shot), np.stack([*scores.zero_shot.values()], 1)
    place = {name: index for index, name in enumerate(targets)}
    codes = [np.array([place[label] for label in names]) for names in labels]
    few = (
        [f"Fewer than {SMALL_GROUP} images, so figures are uncertain."]
        if n < SMALL_GROUP
        else []
    )
    odds, attributes = {}, {}
    for attribute, w in scores.sensitive_zero_shot.items():
        odds[attribute] = pseudo_odds(codes, target, w, bootstrap)
        groups = np.einsum("ns,ny->sy", w, target)
        table = associations.to_dict()[attribute]
        entropy = average_sensitive_indifference(
            probabilities=w, interval=bootstrap.level
        )
        explained = r_squared(np.log(np.maximum(target, _LEAST)), w)
        attributes[attribute] = doc.PerceivedAttribute(
            {v: mean_estimate(w[:, k], bootstrap.level) for k, v in enumerate(table)},
            entropy,
            mean_estimate(w.max(1), bootstrap.level),
            None if np.isnan(explained) else explained,
            table,
            odds[attribute].runs[0],
            group_labels(groups / n, list(table), targets, bootstrap.level),
        )
        rare = [
            f"{y} / {s} ({groups[k, c]:.1f})"
            for k, s in enumerate(table)
            for c, y in enumerate(targets)
            if groups[k, c] < SMALL_GROUP <= n
        ]
        if rare:
            fewer = (
                f"{attribute}: fewer than {SMALL_GROUP} images each are perceived as"
            )
            few.append(f"{fewer} {list_names(rare)}.")
    examined = []
    for run, (name, adapter) in enumerate(adapters.items(), start=1):
        changed = int((codes[run] != codes[0]).sum())
        pseudo_eod = {}
        for attribute, of in odds.items():
            change = of.changes[run - 1]
            needed = gap_labels(change.value, changed / n, bootstrap.level)
            pseudo_eod[attribute] = doc.PseudoChange(of.runs[run], change, needed)
        examined.append(
            doc.ExaminedAdapter(
                name,
                convert(describe_adapter(adapter), AdapterFields),
                changed,
                Estimate(changed / n, n, *wilson(changed, n, bootstrap.level)),
                pseudo_eod,
                change_labels(changed, n, bootstrap.level),
                dict(warned[run]),
            )
        )
    return doc.ExaminationDocument(
        "fair-tta/examination/1",
        n,
        targets,
        doc.ResamplingSettings(bootstrap.level, bootstrap.resamples, bootstrap.seed),
        attributes,
        tuple(examined),
        {a: _ranking(examined, a) for a in attributes},
        NOTICE,
        {**environment(), **dict.fromkeys(ORIGIN), **provenance},
        (*notes, *few),
    )


def _ranking(
    adapters: Sequence[doc.ExaminedAdapter], attribute: str
) -> tuple[str, ...]:
    """The largest fall first; what has no figure comes last."""
    changes = {
        adapter.name: adapter.pseudo_eod[attribute].change.value for adapter in adapters
    }
    return tuple(
        sorted(changes, key=lambda name: (changes[name] is None, changes[name] or 0.0))
    )


def examine_classifier(
    classifier: FairTPTClassifier,
    images: Any,
    adapters: Adapters | None = ("association-correction",),
    *,
    progress: bool = False,
    interval: Interval = DEFAULT,
) -> Examination:
    """See `FairTPTClassifier.examine`."""
    methods = named_adapters(adapters)
    for method in methods.values():
        classifier.with_adapter(method).adapter._check_ready()  # before the first image
    if is_single_image(images):
        raise FairTTAError(
            "`images` should be several images (got one): examine([image]).",
            argument="images",
        )
    images = check_images(images)
    warn_if_other_model(images, classifier._task)
    bar = image_bar(images, progress)

    def answers() -> Iterator[tuple[str, Image, Sequence[Prediction]]]:
        number = count()
        for batch in load_batches(images, classifier._load, classifier._batch_size):
            if batch.error is not None:
                raise batch.error
            found = _predictions(
                classifier, batch.images, [ZeroShot(), *methods.values()]
            )
            bar.update(len(batch.images))
            for image, predictions in zip(batch.images, found, strict=True):
                yield f"image {next(number)}", image, predictions

    with bar:
        return examine_answers(classifier, methods, answers(), interval=interval)


def examine_answers(
    classifier: FairTPTClassifier,
    adapters: Mapping[str, Adapter],
    answers: Iterable[tuple[str, Image | str, Sequence[Prediction]]],
    *,
    interval: Interval = DEFAULT,
    provenance: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    images: bool = True,
    seed: int = 0,
) -> Examination:
    """Make an examination of predictions, wherever they come from.

    `answers` has for each image its name, the image or its path, and the predictions of `ZeroShot`
    and of each adapter. `notes` begin the warnings; they are read after the last of the answers.
    With `images`, small copies of some whose answer changes are kept; `seed` chooses them.
    """
    changed = ChangedImages(adapters if images else (), seed=seed)

    def passing() -> Iterator[Sequence[Prediction]]:
        for name, image, predictions in answers:
            changed.add(predictions, name, image)
            yield predictions

    origin = classifier_provenance(classifier) | dict(provenance or {})
    bootstrap = read_interval(interval)
    with classifier._current.borrow() as task:
        associations = Associations._of(task)
    document = examine_predictions(
        associations, adapters, passing(), bootstrap, origin, notes
    )
    return Examination(document, changed.images(classifier._load))


def named_adapters(adapters: Adapters | None) -> dict[str, Adapter]:
    """Adapters by name; that of the class if none is given."""
    if isinstance(adapters, Mapping):
        return {name: resolve_adapter(adapter) for name, adapter in adapters.items()}
    several = [resolve_adapter(adapter) for adapter in adapters or ()]
    found = {type(adapter).__name__: adapter for adapter in several}
    if len(found) < len(several):
        raise FairTTAError(
            f"`adapters` should differ in their classes (got {[*map(repr, several)]}), or be "
            "{name: adapter}.",
            argument="adapters",
        )
    return found


def _predictions(
    classifier: FairTPTClassifier, batch: list[Image], methods: list[Adapter]
) -> Iterator[tuple[Prediction, ...]]:
    """For each image the predictions of all methods, from features that are made once."""
    views = any(method.needs.views and not method.needs.pixels for method in methods)
    features = classifier.encode(batch, with_views=views)

    def predict(method: Adapter) -> Sequence[Prediction]:
        clf = classifier.with_adapter(method)
        if method.needs.pixels:
            return clf.predict(batch)
        own = features if method.needs.views else features[:, :1]
        return clf._predict_encoded(own, batch)

    return zip(*map(predict, methods), strict=True)
