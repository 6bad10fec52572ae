"""Stored features wherever images are taken, against the same in numpy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checks import picture
from fits import fit_on, fit_on_features, save
from internals import stored_module as stored

from fair_tta import (
    AssociationCorrection,
    FairTPTClassifier,
    FairTTAError,
    Features,
    LogitBalance,
    ZeroShot,
)
from fair_tta.methods import load_adapter

DIM, SCALE, N = 32, 20.0, 700
TARGETS, VALUES = ["cat", "dog", "bird"], ["woman", "man"]
TABLE_SEED = 4


def cone(n: int, seed: int) -> Any:
    common = np.random.default_rng(0).standard_normal(DIM)
    rows = 2 * common + np.random.default_rng(seed).standard_normal((n, DIM))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


TEXTS = cone(5, TABLE_SEED)
T, Z = TEXTS[:3], TEXTS[3:]
TABLE = {f"a {name}": row for name, row in zip([*TARGETS, *VALUES], TEXTS, strict=True)}


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def corrected(v: Any, strength: float = 0.75) -> Any:
    """AssociationCorrection as its docstring has it, image by image."""
    rows = []
    for image in v:
        d = softmax(SCALE * Z @ image) @ (Z - Z.mean(0))
        share = min(1.0, max(0.0, image @ d / (d @ d)))
        rows.append(softmax(SCALE * T @ (image - strength * share * d)))
    return np.array(rows)


def balanced(v: Any, reference: Any, strength: float = 1.5) -> Any:
    """LogitBalance as its docstring has it, fitted on `seen`."""
    u = SCALE * reference @ T.T
    u, w = u - u.mean(1, keepdims=True), softmax(SCALE * reference @ Z.T)
    q = softmax(u)
    m = np.einsum("ns,ny,nc->syc", w, q, u) / np.einsum("ns,ny->sy", w, q)[..., None]
    b, pi = m.mean(1), w.mean(0)
    return softmax(
        SCALE * v @ T.T - softmax(SCALE * v @ Z.T) @ (strength * (b - pi @ b))
    )


@pytest.fixture
def clf() -> FairTPTClassifier:
    return FairTPTClassifier.from_features(
        TABLE, TARGETS, VALUES, "a {sensitive} {target}", scale=SCALE
    )


@pytest.fixture(params=["float32", "float16", "torch"])
def array(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Memory-mapped, of lengths other than one; or a tensor."""
    rows = cone(N, 1) * np.linspace(0.5, 20, N)[:, None]
    if request.param == "torch":
        return torch.tensor(rows)
    np.save(tmp_path / "v.npy", rows.astype(request.param))
    return np.load(tmp_path / "v.npy", mmap_mode="r")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "ROWS_PER_CHUNK", 64)


def unit(array: Any) -> Any:
    in_float64 = np.asarray(array, np.float64)
    return in_float64 / np.linalg.norm(in_float64, axis=1, keepdims=True)


@pytest.mark.usefixtures("small_chunks")
def test_every_way_gives_what_numpy_gives(clf: FairTPTClassifier, array: Any) -> None:
    v, features = unit(array), Features(array)
    assert clf.adapter == AssociationCorrection()
    balance = fit_on(LogitBalance(), clf, features)
    again = fit_on_features(LogitBalance(), clf, array)
    assert balance.reference is not None
    assert balance.reference.images == N
    assert again.reference is not None
    for name, value in balance.reference.tensors.items():
        torch.testing.assert_close(again.reference.tensors[name], value)
    for method, expected in (
        (ZeroShot(), softmax(SCALE * v @ T.T)),
        (AssociationCorrection(), corrected(v)),
        (balance, balanced(v, v)),
    ):
        adapted = clf.with_adapter(method)
        actual = adapted.predict_proba(features)
        assert actual.dtype == np.float64
        assert actual.shape == (N, 3)
        np.testing.assert_allclose(actual, expected, atol=1e-4)
        for answers in (
            adapted.predict(features),
            list(adapted.predict(iter(features))),
            adapted._predict_encoded(array),
            adapted._predict_encoded(array[:, None]),
        ):
            rows = [list(answer.probabilities.values()) for answer in answers]
            np.testing.assert_allclose(rows, actual, atol=1e-4)
            assert [TARGETS.index(answer.label) for answer in answers] == list(
                actual.argmax(1)
            )
        np.testing.assert_allclose(
            adapted.predict_proba(features[5]), actual[5], atol=1e-4
        )
        assert adapted.predict(features[5]).label == TARGETS[actual[5].argmax()]


def test_audit_examine_and_mitigate_take_features(clf: FairTPTClassifier) -> None:
    v = cone(N, 1)
    labels = np.array(TARGETS)[np.arange(N) % 3]
    sensitive = np.array(VALUES)[np.arange(N) // 3 % 2]
    audit = clf.audit(Features(v), labels, sensitive)
    right = np.array(TARGETS)[corrected(v).argmax(1)] == labels
    assert audit.estimate("accuracy").value == pytest.approx(right.mean())
    examination = clf.examine(
        Features(v), [AssociationCorrection(), fit_on(LogitBalance(), clf, Features(v))]
    )
    perceived = softmax(SCALE * v @ Z.T).mean(0)
    shares = examination.document.attributes["sensitive"].shares
    assert [shares[name].value for name in VALUES] == pytest.approx(
        list(perceived), abs=1e-5
    )
    changed = (corrected(v).argmax(1) != (v @ T.T).argmax(1)).sum()
    assert examination.document.adapters[0].changed == changed
    assert not examination.images, "there are no images to show"
    chosen = clf.mitigate(Features(v), labels, sensitive)
    assert chosen.audit.estimate("accuracy").n == N


def test_what_was_fitted_is_saved_and_belongs_to_its_texts(
    clf: FairTPTClassifier, tmp_path: Path
) -> None:
    v = Features(cone(N, 1))
    save(fit_on(LogitBalance(), clf, v), tmp_path / "fitted")
    loaded = load_adapter(tmp_path / "fitted")
    again = FairTPTClassifier.from_features(
        dict(reversed(TABLE.items())), TARGETS, VALUES, "a {sensitive} {target}", scale=SCALE,
        adapter=loaded,
    )  # fmt: skip
    np.testing.assert_allclose(
        again.predict_proba(v), balanced(cone(N, 1), cone(N, 1)), atol=1e-4
    )
    with pytest.raises(
        FairTTAError, match="fitted with another model or other weights, stored te"
    ):
        FairTPTClassifier.from_features(
            TABLE | {"a cat": cone(1, 9)[0]}, TARGETS, VALUES, "a {sensitive} {target}",
            scale=SCALE, adapter=loaded,
        )  # fmt: skip


def test_a_model_takes_features_beside_images() -> None:
    clf = FairTPTClassifier("miniature", ["cat", "dog"], ["on water", "on land"])
    images = [picture(i) for i in range(4)]
    one_view = clf.with_adapter("association-correction")
    array = clf.encode(images, with_views=False)[:, 0].numpy()
    expected = one_view.predict_proba(images)
    np.testing.assert_allclose(
        one_view.predict_proba(Features(array)), expected, atol=1e-4
    )
    for method in ("fair-tpt", "memo"):
        adapted = clf.with_adapter(method)
        call: Any
        for call in (
            adapted.predict,
            adapted.predict_proba,
            partial(clf.examine, adapters=[method]),
        ):
            with pytest.raises(
                FairTTAError, match="stored features have neither pixels nor furth"
            ):
                call(Features(array))


def test_features_are_never_guessed(clf: FairTPTClassifier) -> None:
    model = FairTPTClassifier("miniature", ["cat", "dog"])
    grey = np.abs(cone(64, 1)).clip(0, 1)
    assert model.predict(grey).label in model.targets, (
        "an array of two axes is one grey image"
    )
    with pytest.raises(
        FairTTAError, match=r"no image encoder here: pass .* Features\(array\)"
    ):
        clf.predict(cone(3, 1))
    with pytest.raises(FairTTAError, match=r"got one ndarray\).* as Features\(array\)"):
        fit_on(LogitBalance(), clf, cone(3, 1))


def test_a_bad_row_is_named(clf: FairTPTClassifier) -> None:
    v = cone(40, 1)
    v[33, 2] = np.nan
    call: Any
    for call in (clf.predict, clf.predict_proba, clf._predict_encoded, clf.examine):
        argument = v if call == clf._predict_encoded else Features(v)
        with pytest.raises(
            FairTTAError, match="`features` should not be NaN or infinite: see row 33"
        ):
            call(argument)
    with pytest.raises(FairTTAError, match="see row 33"):
        fit_on(LogitBalance(), clf, Features(v))


@pytest.mark.parametrize("dtype", [np.asarray, torch.tensor])
@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_an_array_of_features_is_not_taken_for_a_picture(
    dtype: Any, errors: Any
) -> None:
    """Five features with numbers in 0..1 were one grey picture of 5 x 512 pixels."""
    clf = FairTPTClassifier("miniature", ["cat", "dog"])
    dim = clf.encode([picture()], with_views=False).shape[-1]
    rows = dtype(np.random.default_rng(0).random((5, dim)).astype(np.float32))
    message = r"pass Features\(array\) if its rows are features"
    for images in (rows, [rows, rows], iter([rows])):
        with pytest.raises(FairTTAError, match=message):
            list(clf.predict(images, errors=errors))
    for call in (clf.predict_proba, lambda rows: clf.encode([rows]), clf.examine):
        with pytest.raises(FairTTAError):
            call(rows)
    with pytest.raises(FairTTAError):
        clf.audit(rows, ["cat"] * 5, ["a"] * 5)
    assert clf.predict(rows[:, :, None]).label in ("cat", "dog")
    assert clf.predict(rows[:, 1:]).label in ("cat", "dog")
    assert len(clf.predict(Features(rows))) == 5
