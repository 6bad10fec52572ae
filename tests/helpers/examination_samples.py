"""Examinations of a made-up model, for tests of their page and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from internals import ChangedImage, Floats, examine_predictions
from PIL import Image
from report_samples import provenance

from fair_tta import OrthCali
from fair_tta.auditing import Examination
from fair_tta.extend import Adapter
from fair_tta.metrics import Bootstrap
from fair_tta.prediction import Prediction

PLACE = {"place": ["on water", "on land"]}


def examined(
    n: int = 120,
    targets: Sequence[str] = ("water bird", "land bird"),
    sensitive: Mapping[str, Sequence[str]] = PLACE,
    adapters: Sequence[str] = ("orthcali", "zero"),
    lean: float = 3.0,
    confidence: float = 3.0,
    corrected: Sequence[float] = (1.0, -0.5),
    pictures: int = 2,
) -> Examination:
    """Return an examination of answers that lean on the first attribute.

    Args:
        n: images.
        targets: classes.
        sensitive: values of attributes.
        adapters: names of methods.
        lean: how far logits follow the first attribute.
        confidence: the scale of the logits of attributes.
        corrected: the share of the lean that each method takes away.
        pictures: changed images of each method.
    """
    random = np.random.default_rng(0)
    values = {attribute: list(names) for attribute, names in sensitive.items()}
    associations = {}
    for attribute, names in values.items():
        associations[attribute] = {
            name: {y: 0.3 * (i - j) for j, y in enumerate(targets)}
            for i, name in enumerate(names)
        }
    methods: dict[str, Adapter] = {name: OrthCali() for name in adapters}
    first = next(iter(values))
    predictions = []
    for _ in range(n):
        beliefs = {}
        for attribute, names in values.items():
            scores = confidence * random.normal(size=len(names))
            beliefs[attribute] = softmax(scores)
        excess = beliefs[first][0] - 1 / len(beliefs[first])
        lift = np.resize([1.0, 0.0], len(targets)) * excess
        noise = random.normal(size=len(targets))
        shares = [0.0, *corrected[: len(adapters)]]
        logits = [noise + lean * (1 - share) * lift for share in shares]
        predictions.append(
            [predicted(x, logits[0], targets, beliefs, values) for x in logits]
        )
    document = examine_predictions(
        associations,
        methods,
        predictions,
        Bootstrap(100),
        provenance(targets, values),
        ["Not all images were used."],
    )
    image = Image.new("RGB", (40, 20), "red")
    changed = [
        ChangedImage(name, f"<{name}> {i}", image, targets[0], targets[-1], 0.61, 0.734)
        for name in adapters
        for i in range(pictures)
    ]
    return Examination(document, tuple(changed))


def softmax(x: Floats) -> Floats:
    exponentials = np.exp(x - x.max())
    shares: Floats = exponentials / exponentials.sum()
    return shares


def predicted(
    logits: Floats,
    zero_shot: Floats,
    targets: Sequence[str],
    beliefs: Mapping[str, Floats],
    values: Mapping[str, Sequence[str]],
) -> Prediction:
    p = softmax(logits)
    sensitive = {}
    for attribute, shares in beliefs.items():
        names = values[attribute]
        sensitive[attribute] = dict(zip(names, shares.tolist(), strict=True))
    return Prediction(
        label=targets[int(p.argmax())],
        probabilities=dict(zip(targets, p.tolist(), strict=True)),
        zero_shot=dict(zip(targets, softmax(zero_shot).tolist(), strict=True)),
        sensitive=sensitive,
        sensitive_zero_shot=sensitive,
        entropy=0.5,
        entropy_zero_shot=0.5,
        sensitive_entropy={},
        sensitive_entropy_zero_shot={},
        distance=0.0,
        flip_margin=0.0,
        certified_unchanged=False,
        warnings=("bounded",),
    )
