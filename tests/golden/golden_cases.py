"""What the golden files hold: every method on five small worlds, and three fixed runs.

All imports from the library are at the top of this file, so that a move is a change of one place.
Weights of the two families are drawn with numpy, by the names of the parameters, and their images
have the size that the models take, so that no version of another library changes them.
"""

from __future__ import annotations

import csv
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import open_clip
import torch
from PIL import Image
from typer.testing import CliRunner

sys.path.insert(
    0, str(Path(__file__).parents[1] / "helpers")
)  # for `python tests/golden/write.py`

import families

# isort: split
from fits import fit_on
from internals import TASKS, DistortedViews

from fair_tta import (
    ELRA,
    TPT,
    AssociationCorrection,
    FairTPT,
    FairTPTClassifier,
    FairTPTMO,
    FixedRate,
    LogitBalance,
    OrthCali,
    Prediction,
    Zero,
    ZeroShot,
    miniature,
)
from fair_tta.errors import SmallGroupWarning, SmallReferenceWarning
from fair_tta.extend import AugMix
from fair_tta.lab.cli import app
from fair_tta.methods import (
    MEMO,
    SAGE,
    SAR,
    TIE,
    UMFC,
    BendVLM,
    DeYO,
    EpisodicTIE,
    PartialProjection,
    PerceptionCLIP,
    RoboShot,
    SEraser,
    SLoss,
    SuperTSLoss,
    Tent,
    TIEStar,
    TSLoss,
)

HERE = Path(__file__).parent
PREDICTIONS = HERE / "predictions.json"
RUNS = HERE / "runs"

METHODS: dict[str, Any] = {
    "ZeroShot": ZeroShot(),
    "TPT": TPT(),
    "Zero": Zero(),
    "Zero half": Zero(0.5),
    "OrthCali": OrthCali(),
    "OrthCali PRISM-mini": OrthCali(lam=0, renormalise=False),
    "FairTPT": FairTPT(),
    "FairTPT lam=0": FairTPT(lam=0),
    "FairTPT lam=inf": FairTPT(lam=math.inf),
    "FairTPT fixed": FairTPT(rate=FixedRate(5e-3), steps=2),
    "FairTPT TS": FairTPT(loss=TSLoss()),
    "FairTPT super-TS": FairTPT(loss=SuperTSLoss()),
    "FairTPT super-TS joint": FairTPT(loss=SuperTSLoss(joint=True)),
    "FairTPT >> OrthCali": FairTPT() >> OrthCali(lam=0),
    "FairTPT >> RoboShot": FairTPT() >> RoboShot(),
    "FairTPT bounded": FairTPT(rate=ELRA(max_relative_step=2.0)),
    "FairTPTMO": FairTPTMO(),
    "FairTPTMO super-TS": FairTPTMO(loss=SuperTSLoss()),
    "FairTPTMO fixed": FairTPTMO(rate=FixedRate(5e-3)),
    "FairTPTMO joint": FairTPTMO(loss=SLoss(joint=True), rate=FixedRate(5e-3), steps=2),
    "AssociationCorrection": AssociationCorrection(),
    "SEraser": SEraser(),
    "SEraser few": SEraser(DistortedViews(4), black=False, steps=4),
    "DeYO": DeYO(),
    "DeYO all views": DeYO(margin=1.1, least_drop=-1.0),
    "Tent": Tent(),
    "MEMO": MEMO(),
    "MEMO every weight": MEMO(every_weight=True),
    "SAR": SAR(),
    "SAR all views": SAR(margin=1.1),
    "RoboShot": RoboShot(),
    "RoboShot pairs": RoboShot(reject=[("cat", "dog")], accept=[("a bird", "no bird")]),
    "PerceptionCLIP": PerceptionCLIP(),
    "PerceptionCLIP without class": PerceptionCLIP(temperature=3.0, with_class=False),
    "SAGE": SAGE(),
    "SAGE 2": SAGE(
        templates=["a {}.", "a photo of a {}.", "a drawing of a {}"], keep=2
    ),
    "PartialProjection": PartialProjection(),
    "EpisodicTIE": EpisodicTIE(),
    "LogitBalance": LogitBalance(),
    "LogitBalance prior": LogitBalance(strength=1.0, keep_prior=0.0),
    "TIE": TIE(),
    "TIEStar": TIEStar(),
    "BendVLM": BendVLM(),
    "UMFC": UMFC(),
    "UMFC perceived": UMFC(perceived=True),
}
"""Every method with its defaults, and some variants."""


@dataclass(frozen=True)
class World:
    """A classifier, images to fit methods on, images to classify and the values of both."""

    classifier: FairTPTClassifier
    reference: list[Image.Image]
    reference_values: dict[str, list[str]]
    images: list[Image.Image]
    values: list[tuple[str, ...]]

    def fitted(self, method: Any) -> Any:
        """A method that is fitted if it has to be."""
        if not method.needs.reference:
            return method
        labels = (self.reference_values,) if method.needs.reference_sensitive else ()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallReferenceWarning)
            return fit_on(method, self.classifier, self.reference, *labels)

    def predict(self, name: str, indices: Sequence[int]) -> list[Prediction]:
        """Of the method of this name, which is fitted first if it has to be."""
        return self.predict_with(self.fitted(METHODS[name]), indices)

    def predict_with(self, method: Any, indices: Sequence[int]) -> list[Prediction]:
        """Of a method that is ready."""
        if isinstance(method, TIE):
            known = [method.knowing(*self.values[i]) for i in indices]
            classifiers = [self.classifier.with_adapter(adapter) for adapter in known]
            pairs = zip(classifiers, indices, strict=True)
            return [one.predict(self.images[i]) for one, i in pairs]
        return [
            *self.classifier.with_adapter(method).predict(
                [self.images[i] for i in indices]
            )
        ]


def _miniature(name: str) -> World:
    task = TASKS[name]
    reference, drawn = task.draw(40, seed=7), task.draw(16, seed=8)
    return World(
        FairTPTClassifier(
            "miniature", task.targets, task.sensitive, task.template, views=AugMix(8)
        ),
        [drawn.image for drawn in reference],
        {a: [one.sensitive[a] for one in reference] for a in task.sensitive},
        [one.image for one in drawn],
        [tuple(one.sensitive.values()) for one in drawn],
    )


def _family(model: Any, attributes: Sequence[str], **options: Any) -> World:
    values = {"sex": ["male", "female"], "age": ["young", "old", "small"]}
    sensitive = {attribute: values[attribute] for attribute in attributes}
    targets = ["cat", "black dog", "water bird"]
    template = "a photo of a {sensitive} {target}."
    images = [_blocks(i) for i in range(64)]
    in_turn = {
        a: [names[i % len(names)] for i in range(40)] for a, names in sensitive.items()
    }
    return World(
        FairTPTClassifier(
            model, targets, sensitive, template, views=AugMix(8), **options
        ),
        images[24:],
        in_turn,
        images[:24],
        list(zip(*in_turn.values(), strict=True))[:24],
    )


def _transformers() -> World:
    model, images, tokenizer = families.clip()
    return _family(drawn_weights(model), ("sex", "age"), processor=(images, tokenizer))


def _open_clip() -> World:
    vision = {
        "image_size": 32,
        "layers": 2,
        "width": 32,
        "patch_size": 8,
        "head_width": 8,
    }
    text = {
        "context_length": 77,
        "vocab_size": 49408,
        "width": 32,
        "heads": 4,
        "layers": 2,
    }
    model = drawn_weights(open_clip.CLIP(16, vision, text))
    transform = open_clip.image_transform(32, is_train=False)
    return _family((model, transform, open_clip.SimpleTokenizer()), ("sex",))


def drawn_weights(model: Any) -> Any:
    """The model with weights that depend on the names and shapes of its parameters alone."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            drawn = np.random.default_rng(crc32(name.encode())).standard_normal(
                weight.shape
            )
            if name == "logit_scale":
                drawn = np.log(20.0)
            elif weight.ndim == 1:
                is_gain = name.endswith("weight")  # of a norm layer
                drawn = is_gain + 0.1 * drawn
            elif "embed" in name:
                drawn *= 0.3
            else:
                drawn *= weight[0].numel() ** -0.5
            weight.copy_(torch.as_tensor(drawn))
    return model.eval()


def _blocks(seed: int) -> Image.Image:
    """Coloured squares, 32 x 32 pixels."""
    colours = np.random.default_rng([5, seed]).integers(
        0, 256, (4, 4, 3), dtype=np.uint8
    )
    return Image.fromarray(colours.repeat(8, 0).repeat(8, 1))


_WORLDS: dict[str, Callable[[], World]] = {
    **{name: lambda name=name: _miniature(name) for name in TASKS},  # type: ignore[misc]
    "transformers": _transformers,
    "open_clip": _open_clip,
}
WORLDS = tuple(_WORLDS)


@cache
def world(name: str) -> World:
    """One of `WORLDS`, made once."""
    return _WORLDS[name]()


def plain(prediction: Prediction) -> list[Any]:
    """Label, probabilities, and those of each attribute."""
    numbers = (prediction.probabilities, *prediction.sensitive.values())
    return [
        prediction.label,
        *([round(p, 8) for p in part.values()] for part in numbers),
    ]


def clustering_objective(world: World, method: Any) -> float:
    """The sum of squared distances to the nearest of the centres that a UMFC has found."""
    features = world.classifier.encode(world.reference, with_views=False)[:, 0].double()
    centres = method.reference.tensors["centres"].double()
    return float(torch.cdist(features, centres).square().amin(1).sum())


# --- fixed runs --------------------------------------------------------------------------------

_NAMES = [
    *(
        "--targets",
        "water bird=of a water bird",
        "--targets",
        "land bird=of a land bird",
    ),
    *(
        "--sensitive",
        "background: water=on water",
        "--sensitive",
        "background: land=on land",
    ),
    *("--template", miniature.BIRDS.template, "--batch-size", "8"),
]
_METHODS = "zero-shot,association-correction,logit-balance,fair-tpt"


def run_all(folder: Path) -> Iterator[Path]:
    """Run `audit`, `examine` and `mitigate` in a folder; yield the files with their figures."""
    for name, seed in (("images", 8), ("reference", 7)):
        (folder / name).mkdir()
        drawn = miniature.BIRDS.draw(48, seed=seed)
        for i, image in enumerate(drawn):
            image.image.save(folder / name / f"{i:02}.png")
        rows = [
            (f"{i:02}.png", image.target, *image.sensitive.values())
            for i, image in enumerate(drawn)
        ]
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("path", "bird", "background"), *rows])
    images = str(folder / "images")
    reference = ("--reference", str(folder / "reference"))
    labels = ("--labels", f"{images}.csv", "--target-column", "bird")
    values = ("--sensitive-column", "background")
    methods = ("--adapters", _METHODS, *reference)
    audit = ("--images", images, *labels, *values, "--views", "8")
    _call("audit", *audit, *_NAMES, *methods, "--out", str(folder / "audit"))
    yield folder / "audit" / "audit.json"
    examine = (images, "--views", "8")
    _call("examine", *examine, *_NAMES, *methods, "--out", str(folder / "examine"))
    yield folder / "examine" / "examine.json"
    _call(
        "mitigate", images, *labels, *values, *_NAMES, "--out", str(folder / "mitigate")
    )
    yield folder / "mitigate" / "audit.json"


def _call(*arguments: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallReferenceWarning)
        warnings.simplefilter("ignore", SmallGroupWarning)
        result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, (result.output, result.exception)
