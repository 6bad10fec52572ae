"""What a call costs next to plain zero-shot: CPU time of one thread, methods taking turns."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from effect_figures import fitted
from effect_parts import Run, Step
from effect_pictures import Pictures
from PIL import Image

from fair_tta import FairTPTClassifier, ZeroShot
from fair_tta.auditing._classify import lacks_values
from fair_tta.errors import FairTTAError
from fair_tta.extend import AugMix
from fair_tta.miniature import BIRDS

PLAIN = 4  # a plain call is short, so each round has several


def cost(run: Run) -> Iterator[Step]:
    """On the miniature, and on a ViT-B/32 with random weights: time does not depend on them."""
    small = run.pictures < 100
    yield "miniature", partial(_cost, run, lambda: "miniature", 1 if small else 5)
    if not small:
        yield "ViT-B/32", partial(_cost, run, _vit_b_32, 2)


def _vit_b_32() -> Any:
    import open_clip

    logging.disable(logging.WARNING)  # that weights are random
    model, _, preprocess = open_clip.create_model_and_transforms("ViT-B-32")
    logging.disable(logging.NOTSET)
    return model.eval(), preprocess, open_clip.get_tokenizer("ViT-B-32")


def _cost(run: Run, model, rounds: int) -> dict:
    torch.set_num_threads(1)
    clf = FairTPTClassifier(
        model(), BIRDS.targets, BIRDS.sensitive, BIRDS.template, adapter=ZeroShot()
    )
    features = clf.encode(
        [_picture(10**6 + i) for i in range(8)], with_views=False
    ).repeat(40, 1, 1)
    labels = [list(BIRDS.targets)[i % 2] for i in range(len(features))]
    values = [
        list(BIRDS.sensitive["background"])[i // 2 % 2] for i in range(len(features))
    ]
    reference = Pictures(features, labels, {"background": values})
    ready, seeds = {}, iter(range(10**6))
    for name, adapter in run.adapters.items():
        try:  # once without a clock and with few views: prompts are encoded
            known = fitted(adapter, clf, reference)
            known = known.knowing(values[0]) if lacks_values(known) else known
            method = clf.with_adapter(known)
            method.with_views(AugMix(4)).predict(_picture(next(seeds)))
            ready[name] = method
        except FairTTAError:
            pass  # not for this model
    plain, ratios = [], {name: [] for name in ready}
    for _ in range(rounds):
        plain_seconds = sum(_seconds(clf, next(seeds)) for _ in range(PLAIN)) / PLAIN
        plain.append(plain_seconds)
        for name, method in ready.items():
            slow = method.adapter.needs.views or method.adapter.needs.pixels
            calls = 1 if slow else PLAIN
            method_seconds = (
                sum(_seconds(method, next(seeds)) for _ in range(calls)) / calls
            )
            ratios[name].append(method_seconds / plain_seconds)
    return {
        "plain_ms": round(1000 * median(plain), 1),
        "rounds": rounds,
        "left_out": [name for name in run.adapters if name not in ready],
        "times_plain": {
            name: [round(f(method_ratios), 2) for f in (median, min, max)]
            for name, method_ratios in ratios.items()
        },
    }


def _seconds(clf: FairTPTClassifier, seed: int) -> float:
    """CPU time of a call with a picture that was never seen."""
    picture = _picture(seed)
    start = time.process_time()
    clf.predict(picture)
    return time.process_time() - start


def _picture(seed: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((500, 375), Image.Resampling.BICUBIC)
