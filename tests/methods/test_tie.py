"""TIE and TIE* against their formula."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from fits import fit_on_features, save
from hypothesis import given
from internals import unit_features
from random_task import DIM, Drawn, EncodedClassifier, drawn, random_units, softmax
from torch import Tensor

from fair_tta import TPT, FairTTAError
from fair_tta.methods import TIE, EpisodicTIE, TIEStar, load_adapter

Array = npt.NDArray[np.float64]
pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")


def reference_of(case: Drawn) -> tuple[Tensor, dict[str, list[int]]]:
    features = random_units(2_654_435_769, 30, 1, DIM)
    return features, {
        a: [i % len(z) for i in range(30)] for a, z in case.sensitive.items()
    }


def scales(v: Array, z: Array, values: list[int]) -> list[float]:
    means = []
    for s in range(len(z)):
        own = [
            float(x @ z[s]) for x, value in zip(v, values, strict=True) if value == s
        ]
        means.append(sum(own) / len(own) if own else 0.0)
    return means


def by_formula(
    case: Drawn, known: dict[str, Array], reference: dict[str, list[int]]
) -> Array:
    """`known` has the value of each image to classify, `reference` those of the others."""
    features = reference_of(case)[0][:, 0].numpy()
    rows = []
    for i, v in enumerate(case.features[:, 0].numpy()):
        moved = v.copy()
        for name, z in ((name, z.numpy()) for name, z in case.sensitive.items()):
            s = int(known[name][i])
            moved -= scales(features, z, reference[name])[s] * z[s]
        rows.append(
            softmax(case.scale * case.target.numpy() @ moved / np.linalg.norm(moved))
        )
    return np.array(rows)


def fit_tie(case: Drawn) -> TIE:
    features, values = reference_of(case)
    names = {a: [f"{a} {i}" for i in values[a]] for a in case.sensitive}
    return fit_on_features(
        TIE(), EncodedClassifier(case.task), features.split(7), names
    )


def fit_star(case: Drawn) -> TIEStar:
    return fit_on_features(
        TIEStar(), EncodedClassifier(case.task), reference_of(case)[0]
    )


def star(case: Drawn) -> Tensor:
    return fit_star(case).adapt(case.task, case.features).probabilities


@given(drawn())
def test_tie_is_its_formula(case: Drawn) -> None:
    tie = fit_tie(case).knowing(
        *(f"{a} {len(z) - 1}" for a, z in case.sensitive.items())
    )
    ours = tie.adapt(case.task, case.features).probabilities
    known = {
        a: np.full(len(case.features), len(z) - 1) for a, z in case.sensitive.items()
    }
    np.testing.assert_allclose(
        ours, by_formula(case, known, reference_of(case)[1]), atol=1e-9
    )


@given(drawn())
def test_tie_star_is_its_formula(case: Drawn) -> None:
    features = reference_of(case)[0][:, 0].numpy()
    known, reference = {}, {}
    for name, z in case.sensitive.items():
        known[name] = (case.features[:, 0].numpy() @ z.numpy().T).argmax(1)
        reference[name] = list((features @ z.numpy().T).argmax(1))
    np.testing.assert_allclose(
        star(case), by_formula(case, known, reference), atol=1e-9
    )


@given(drawn())
def test_a_reference_of_the_image_alone_is_the_episodic_one(case: Drawn) -> None:
    name, z = next(iter(case.sensitive.items()))
    one = replace(case, sensitive={name: z}, features=case.features[:1])
    fitted = fit_on_features(TIEStar(), EncodedClassifier(one.task), one.features)
    ours = fitted.adapt(one.task, one.features).probabilities
    episodic = EpisodicTIE().adapt(one.task, one.features).probabilities
    torch.testing.assert_close(ours, episodic, rtol=0, atol=1e-9)


def test_a_value_that_nothing_seems_to_have_takes_nothing() -> None:
    eye = torch.eye(DIM, dtype=torch.float64)
    case = Drawn(random_units(0, 3, DIM), {"s": eye[:2]}, eye[1].reshape(1, 1, DIM))
    fitted = fit_on_features(
        TIEStar(), EncodedClassifier(case.task), eye[:1].unsqueeze(1)
    )
    assert fitted.reference is not None
    assert fitted.reference.tensors["s"].tolist() == [1, 0]
    ours = fitted.adapt(case.task, case.features).probabilities
    torch.testing.assert_close(ours, case.zero_shot)


def test_orthogonal_prompts_change_nothing() -> None:
    eye = torch.eye(DIM, dtype=torch.float64)
    flat = unit_features(random_units(0, 5, 1, DIM) * (eye[2:].sum(0)))
    case = Drawn(random_units(1, 3, DIM), {"s": eye[:2]}, flat)
    classifier = EncodedClassifier(case.task)
    for fitted in (
        fit_on_features(TIEStar(), classifier, flat),
        fit_on_features(TIE(), classifier, flat, ["s 0", "s 1"] * 2 + ["s 0"]).knowing(
            "s 1"
        ),
    ):
        ours = fitted.adapt(case.task, flat).probabilities
        torch.testing.assert_close(ours, case.zero_shot)


@given(drawn())
def test_order_and_precision_do_not_matter(case: Drawn) -> None:
    expected = star(case)
    torch.testing.assert_close(star(case.renamed).flip(-1), expected, rtol=0, atol=1e-9)
    small = star(case.in_float32)
    assert small.dtype == torch.float32


def test_values_have_to_be_known(tmp_path: Path) -> None:
    case = Drawn(
        random_units(0, 2, DIM),
        {"s": random_units(1, 2, DIM)},
        random_units(2, 3, 1, DIM),
    )
    tie = fit_tie(case)
    tie._check_task(case.task)  # `fit` and `audit` know the values
    for use in (lambda: tie.adapt(case.task, case.features), tie._check_ready):
        with pytest.raises(
            FairTTAError, match=r"needs the true sensitive .* or TIEStar\(\)"
        ):
            use()
    knowing = tie.knowing("s 1")
    for known in (("s 2",), ("s 0", "s 1"), ()):
        with pytest.raises(
            FairTTAError, match=r"a value of each attribute, in the order of \{'s'"
        ):
            tie.knowing(*known)._check_task(case.task)
    save(knowing, tmp_path / "tie")
    assert load_adapter(tmp_path / "tie") == knowing
    with pytest.raises(
        FairTTAError, match="the second method of a chain should be a UsesTexts"
    ):
        TPT() >> TIEStar()  # type: ignore[operator]
