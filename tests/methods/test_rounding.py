"""What a projection leaves of a feature that it should take away: rounding, and no answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from fits import fit_on
from hypothesis import given
from hypothesis import strategies as st
from internals import (
    CLASS_LOST,
    IMAGE_LOST,
    is_rounding,
    least_precise_dtype,
    project_out,
    rounding_floor,
)
from internals import registry_module as registry
from random_task import DIM, drawn, random_units

from fair_tta import (
    AssociationCorrection,
    FairTPTClassifier,
    Features,
    LogitBalance,
    OrthCali,
    Prediction,
    ZeroShot,
)
from fair_tta.extend import Adapter
from fair_tta.methods import (
    SAGE,
    TIE,
    UMFC,
    BalancedHead,
    BendVLM,
    EpisodicTIE,
    PartialProjection,
    PerceptionCLIP,
    RoboShot,
    TIEStar,
)

Array = npt.NDArray[np.float32]

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


pytestmark = pytest.mark.filterwarnings(
    "ignore::fair_tta.errors.SmallReferenceWarning",
    "ignore::fair_tta.errors.FeatureMismatchWarning",
)


# --------------------------------------------------------------------------- the floor itself


def test_the_floor_of_each_precision() -> None:
    """Four times what is stored and what is summed, both counted in units of the last place."""
    assert rounding_floor(512, torch.float64) == pytest.approx(4 * 513 * 2.0**-52)
    assert rounding_floor(512, torch.float32) == pytest.approx(4 * 513 * 2.0**-23)
    assert rounding_floor(512, torch.float16) == pytest.approx(
        4 * (2.0**-10 + 512 * 2.0**-23)
    )
    assert rounding_floor(512, torch.bfloat16) == pytest.approx(
        4 * (2.0**-7 + 512 * 2.0**-23)
    )
    assert (
        least_precise_dtype(torch.float64, torch.bfloat16, torch.float16)
        == torch.bfloat16
    )


@given(
    st.integers(0, 2**32),
    st.integers(1, 8),
    st.sampled_from(DTYPES),
    st.sampled_from([1, 3, 7.3]),
)
def test_a_combination_of_rows_leaves_less_than_the_floor(
    seed: int, count: int, dtype: torch.dtype, times: float
) -> None:
    rows = random_units(seed, count, 64)
    shares = torch.rand(count, generator=torch.Generator().manual_seed(seed)).double()
    inside = (shares / shares.sum()) @ rows
    x = (times * inside / inside.norm()).to(dtype)[None]
    remainder = project_out(x, rows.to(dtype))
    assert is_rounding(remainder, x, rounding_floor(64, dtype)).all()


@given(st.integers(0, 2**32), st.integers(0, 8), st.sampled_from(DTYPES))
def test_other_features_leave_more(seed: int, count: int, dtype: torch.dtype) -> None:
    x, rows = (
        random_units(seed, 20, 64).to(dtype),
        random_units(seed + 1, count, 64).to(dtype),
    )
    assert not is_rounding(project_out(x, rows), x, rounding_floor(64, dtype)).any()


# --------------------------------------------------------------------------- the law

CLASSES, VALUES = ["cat", "dog", "cow"], ["red", "blue", "green"]
WIDTH = 48


def unit_rows(rows: Array) -> Array:
    """Rows of length one."""
    divided: Array = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return divided


@dataclass(frozen=True)
class World:
    """Features of prompts, ``[names, dim]``, and of images, ``[images, dim]``."""

    targets: Array
    values: Array
    images: Array
    adapter: Adapter

    def joint(self) -> dict[tuple[str, str], Array]:
        """Features of joint prompts: they lean to both parts, and each has a part of its own."""
        numbers = np.random.default_rng(1)
        features = {}
        for value, z in zip(VALUES, unit_rows(self.values), strict=True):
            for name, class_features in zip(
                CLASSES, unit_rows(self.targets), strict=True
            ):
                noise = numbers.normal(size=WIDTH).astype(np.float32) / 20
                features[value, name] = unit_rows(class_features + z + noise)
        return features

    def answers(self) -> list[Prediction]:
        """What the method answers, fitted on these images if it has to be."""
        texts: dict[str, Any] = {}
        for name, class_features in zip(CLASSES, self.targets, strict=True):
            for opening in ("", "A photo. ", "A drawing. "):
                texts[f"{opening}a {name}"] = class_features
        for value, z in zip(VALUES, self.values, strict=True):
            texts[f"a {value}"] = z
        for (value, name), joint in self.joint().items():
            texts[f"a {value} {name}"] = joint
        for index, axis in enumerate(np.eye(WIDTH, dtype=np.float32)):
            texts[f"axis {index}"] = axis
            texts[f"minus axis {index}"] = -axis
        template = "a {sensitive} {target}"
        clf = FairTPTClassifier.from_features(
            texts, CLASSES, VALUES, template, adapter=ZeroShot()
        )
        return [*clf.with_adapter(self._fitted(clf)).predict(Features(self.images))]

    def _fitted(self, clf: FairTPTClassifier) -> Adapter:
        method: Any = self.adapter
        if not method.needs.reference:
            return self.adapter
        known = None
        if method.needs.reference_sensitive:
            known = [*VALUES, *VALUES * 99][: len(self.images)]
        if method.needs.reference_labels:
            known = [*CLASSES, *CLASSES * 99][: len(self.images)]
        method = fit_on(method, clf, Features(self.images), known)
        fitted: Adapter = method.knowing("red") if isinstance(method, TIE) else method
        return fitted


def ordinary(adapter: Adapter, seed: int = 0) -> World:
    """Random features; not in a cone, so that none is the nearest to all."""
    numbers = np.random.default_rng(seed)
    targets, values, images = (
        numbers.normal(size=(n, WIDTH)).astype(np.float32)
        for n in (len(CLASSES), len(VALUES), 200)
    )
    return World(targets, values, images, adapter)


def image_along_a_value(adapter: Adapter) -> World:
    world = ordinary(adapter)
    world.images[::2] = world.values[0]
    return world


def images_all_along_a_value(adapter: Adapter) -> World:
    world = ordinary(adapter)
    world.images[:] = world.values[0]
    return world


def class_among_the_values(adapter: Adapter) -> World:
    world = ordinary(adapter)
    world.targets[0] = 0.3 * world.values[0] + 0.7 * world.values[1]
    return world


def classes_among_the_values(adapter: Adapter) -> World:
    shares = np.array([[0.3, 0.6, 0.1], [0.6, 0.1, 0.3], [0.1, 0.3, 0.6]], np.float32)
    world = ordinary(adapter)
    world.targets[:] = shares @ world.values
    return world


WORLDS = [
    ordinary,
    image_along_a_value,
    images_all_along_a_value,
    class_among_the_values,
    classes_among_the_values,
]

ALL_AXES = [(f"axis {i}", f"minus axis {i}") for i in range(WIDTH)]

ADAPTERS: dict[str, Adapter] = {
    "ZeroShot": ZeroShot(),
    "OrthCali": OrthCali(),
    "OrthCali(0)": OrthCali(0),
    "PRISM-mini": OrthCali(0, renormalise=False),
    "AssociationCorrection": AssociationCorrection(),
    "LogitBalance": LogitBalance(),
    "BalancedHead": BalancedHead(),
    "EpisodicTIE": EpisodicTIE(),
    "TIE": TIE(),
    "TIEStar": TIEStar(),
    "RoboShot": RoboShot(),
    "RoboShot of all axes": RoboShot(reject=ALL_AXES),
    "RoboShot with some doubled": RoboShot(reject=ALL_AXES[:-1], accept=ALL_AXES[-2:]),
    "PartialProjection": PartialProjection(),
    "BendVLM": BendVLM(neighbours=9),
    "UMFC": UMFC(),
    "UMFC perceived": UMFC(perceived=True),
    "PerceptionCLIP": PerceptionCLIP(),
    "SAGE": SAGE(templates=["a {}", "A photo. a {}", "A drawing. a {}"]),
}

# A method that works on features keeps these laws with its defaults if it has no settings above.
# Methods that need a tower are in `test_every_adapter`, and so is SEM, which needs lengths.
_CONFIGURED = {type(method) for method in ADAPTERS.values()}
for _method_class in registry.ADAPTERS.values():
    _needs = _method_class().needs
    _needs_tower = _needs.prompt_gradient or _needs.views or _needs.pixels
    if not _needs_tower and not _needs.setting and _method_class not in _CONFIGURED:
        ADAPTERS[_method_class.__name__] = _method_class()


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
def test_no_length_changes_a_label(make: Any, name: str) -> None:
    """Of image features, of the classes' prompts or of the values', three or five times as long."""
    if (make, name) == (images_all_along_a_value, "BendVLM"):
        pytest.skip(
            "equal reference images bend nothing: every class scores 0, p is 1/3 each"
        )
    world: World = make(ADAPTERS[name])
    expected = [p.label for p in world.answers()]
    for times in (np.float32(3), np.float32(5)):
        for longer in (
            replace(world, images=times * world.images),
            replace(world, targets=times * world.targets),
            replace(world, values=times * world.values),
        ):
            assert [p.label for p in longer.answers()] == expected


# --------------------------------------------------------------------------- what is answered


def assert_zero_shot(predictions: list[Prediction], *warnings: str) -> None:
    for prediction in predictions:
        assert prediction.probabilities == prediction.zero_shot
        assert prediction.warnings == warnings


@pytest.mark.parametrize("name", ["EpisodicTIE", "TIEStar"])
def test_an_image_along_a_value(name: str) -> None:
    predictions = image_along_a_value(ADAPTERS[name]).answers()
    if name == "EpisodicTIE":
        assert_zero_shot(predictions[::2], IMAGE_LOST)
    assert not any(prediction.warnings for prediction in predictions[1::2])


@pytest.mark.parametrize("name", ["TIE", "TIEStar", "EpisodicTIE"])
def test_all_images_along_a_value(name: str) -> None:
    assert_zero_shot(images_all_along_a_value(ADAPTERS[name]).answers(), IMAGE_LOST)


@pytest.mark.parametrize("name", ["OrthCali(0)", "PRISM-mini", "BendVLM"])
def test_a_class_among_the_values(name: str) -> None:
    assert_zero_shot(class_among_the_values(ADAPTERS[name]).answers(), CLASS_LOST)


def test_pairs_that_span_everything() -> None:
    assert_zero_shot(
        ordinary(RoboShot(reject=ALL_AXES)).answers(), IMAGE_LOST, CLASS_LOST
    )


def test_an_image_between_the_groups() -> None:
    """Within the span of the prototypes' differences nothing is left beside them."""
    world = ordinary(PartialProjection())
    joint = world.joint()
    prototypes = [sum(joint[value, name] for name in CLASSES) for value in VALUES]
    world.images[::2] = prototypes[0] - prototypes[1]
    predictions = world.answers()
    assert_zero_shot(predictions[::2], IMAGE_LOST)
    assert not any(prediction.warnings for prediction in predictions[1::2])


def test_prompts_that_are_what_sets_clusters_apart() -> None:
    """Of ``T - beta t`` nothing is left where T is t and beta 1."""
    world = ordinary(UMFC(beta=1.0, perceived=True))
    apart = _apart(world)
    world.targets[0] = apart
    assert_zero_shot(world.answers(), CLASS_LOST)


def _apart(world: World) -> Array:
    """The t of `UMFC`, in numpy."""
    v = unit_rows(world.images)
    group = (v @ unit_rows(world.values).T).argmax(1)
    means = [v.mean(0) - v[group == value].mean(0) for value in range(len(VALUES))]
    total = sum(mean / np.linalg.norm(mean) for mean in means)
    return unit_rows(total)


@pytest.mark.parametrize("name", [name for name in ADAPTERS if "RoboShot " not in name])
def test_ordinary_features_are_answered_without_a_warning(name: str) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        world = ordinary(ADAPTERS[name])
        images: Any = world.images.astype(dtype)
        predictions = replace(world, images=images).answers()
        assert not any(prediction.warnings for prediction in predictions)


def test_the_precision_of_stored_features_counts() -> None:
    """Rounded to half precision, a feature along a prompt is off by more than float32 has it."""
    world = ordinary(EpisodicTIE())
    halves: Any = world.values[:1].astype(np.float16)
    assert_zero_shot(replace(world, images=halves).answers(), IMAGE_LOST)
    # the same numbers, with the claim that they are exact
    exact = replace(world, images=halves.astype(np.float32)).answers()
    assert not exact[0].warnings
    one_by_one = replace(world, images=world.values[:1])
    assert_zero_shot(one_by_one.answers(), IMAGE_LOST)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_precision_of_text_features_counts(dtype: torch.dtype) -> None:
    world = class_among_the_values(OrthCali(0))
    halves: Any = torch.from_numpy(world.targets).to(dtype)
    texts: dict[str, Any] = {
        f"a {name}": t for name, t in zip(CLASSES, halves, strict=True)
    }
    values: Any = torch.from_numpy(world.values).to(dtype)
    texts |= {f"a {value}": z for value, z in zip(VALUES, values, strict=True)}
    clf = FairTPTClassifier.from_features(
        texts, CLASSES, VALUES, "a {sensitive} {target}", adapter=OrthCali(0)
    )
    assert clf._backend.dtype == dtype
    assert_zero_shot([*clf.predict(Features(world.images))], CLASS_LOST)


@given(drawn())
def test_other_dtypes_of_images_share_what_is_kept(case: Any) -> None:
    task = case.task
    coarse = task._for_image_dtype(torch.float16)
    assert task._for_image_dtype(torch.float64) is task
    assert task._for_image_dtype(torch.float16) is coarse
    assert coarse.image_floor > task.image_floor == task.text_floor == coarse.text_floor
    assert task.image_floor == rounding_floor(DIM, torch.float64)
    assert coarse.remember("key", lambda: 1, lambda _: 1) == 1
    assert task.remember("key", lambda: 2, lambda _: 1) == 1


def test_equal_reference_images_have_no_direction() -> None:
    """The differences of equal features are rounding, from which no linear head is learnt."""
    world = images_all_along_a_value(BalancedHead())
    texts = {f"a {name}": t for name, t in zip(CLASSES, world.targets, strict=True)}
    texts |= {f"a {value}": z for value, z in zip(VALUES, world.values, strict=True)}
    clf = FairTPTClassifier.from_features(
        texts, CLASSES, VALUES, "a {sensitive} {target}"
    )
    head = fit_on(BalancedHead(), clf, Features(world.images), (CLASSES * 99)[:200])
    assert head.reference is not None
    assert not head.reference.tensors["weights"].any()
