"""LogitBalance against its formula, fitted, saved, refused, and on the drawn world."""

from __future__ import annotations

import math
import pickle
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from fits import fit_on, fit_on_features, save
from hypothesis import given
from internals import describe, describe_adapter, unit_features
from random_task import (
    Drawn,
    EncodedClassifier,
    drawn,
    random_units,
    softmax,
    unrelated,
)
from torch import Tensor

from fair_tta import (
    TPT,
    FairTPTClassifier,
    FairTTAError,
    LogitBalance,
    ZeroShot,
    metrics,
    miniature,
)
from fair_tta.errors import ImageError, ModelError, PromptError, SmallReferenceWarning
from fair_tta.methods import load_adapter

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")


def by_formula(
    case: Drawn, reference: Tensor, strength: float, keep_prior: float
) -> npt.NDArray[np.float64]:
    target, tau = case.target.numpy(), case.scale
    corrections = []
    for z in (z.numpy() for z in case.sensitive.values()):
        values, classes = len(z), len(target)
        sums, weights = (
            np.zeros((values, classes, classes)),
            np.zeros((values, classes)),
        )
        pi = np.zeros(values)
        for v in reference[:, 0].numpy():
            w, u = softmax(tau * z @ v), tau * target @ v
            q = softmax(u)
            u = u - u.mean()
            pi += w / len(reference)
            for s in range(values):
                for y in range(classes):
                    sums[s, y] += w[s] * q[y] * u
                    weights[s, y] += w[s] * q[y]
        b = np.array([(sums[s] / weights[s][:, None]).mean(0) for s in range(values)])
        corrections.append(
            (z, strength * (b - keep_prior * sum(pi[s] * b[s] for s in range(values))))
        )
    rows = []
    for v in case.features[:, 0].numpy():
        logits = tau * target @ v
        for z, b in corrections:
            logits = logits - softmax(tau * z @ v) @ b
        rows.append(softmax(logits))
    return np.array(rows)


def reference_of(case: Drawn, n: int = 40) -> Tensor:
    """Images that show what is to be shown, as those of the case do."""
    mix = torch.rand(
        n, len(case.features), generator=torch.Generator().manual_seed(n)
    ).double()
    mixed: Tensor = (mix @ case.features[:, 0]).unsqueeze(1)
    return unit_features(mixed)


def fitted(
    case: Drawn, reference: Tensor, strength: float = 1.5, keep_prior: float = 1.0
) -> LogitBalance:
    return fit_on_features(
        LogitBalance(strength, keep_prior), EncodedClassifier(case.task), reference
    )


def answer(case: Drawn, reference: Tensor, **settings: float) -> Tensor:
    return (
        fitted(case, reference, **settings)
        .adapt(case.task, case.features)
        .probabilities
    )


def zero_shot(case: Drawn) -> Tensor:
    return ZeroShot().adapt(case.task, case.features).probabilities


@given(drawn())
def test_is_its_formula(case: Drawn) -> None:
    reference = reference_of(case)
    for strength, keep_prior in ((1.5, 1.0), (0.7, 0.3), (1.0, 0.0)):
        ours = answer(case, reference, strength=strength, keep_prior=keep_prior)
        np.testing.assert_allclose(
            ours, by_formula(case, reference, strength, keep_prior), atol=1e-9
        )


@given(drawn())
def test_strength_0_is_zero_shot(case: Drawn) -> None:
    assert torch.equal(answer(case, reference_of(case), strength=0.0), zero_shot(case))


@given(unrelated())
def test_an_unrelated_attribute_changes_nothing(case: Drawn) -> None:
    ours = answer(case, reference_of(case))
    torch.testing.assert_close(ours, zero_shot(case), rtol=0, atol=1e-9)


@given(drawn())
def test_repeated_images_and_other_batches_change_nothing(case: Drawn) -> None:
    reference = reference_of(case)
    expected = answer(case, reference)
    twice = fitted(case, torch.cat([reference, reference]))
    assert twice.reference is not None
    assert twice.reference.images == 80
    parts = fit_on_features(
        LogitBalance(), EncodedClassifier(case.task), iter(reference.split(11))
    )
    other = fit_on(
        LogitBalance(), EncodedClassifier(case.task), iter(reference)
    )  # seven at once
    for balance in (twice, parts, other):
        ours = balance.adapt(case.task, case.features).probabilities
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)


@given(drawn())
def test_names_may_come_in_any_order(case: Drawn) -> None:
    reference = reference_of(case)
    sensitive = {a: z.flip(0) for a, z in reversed(case.sensitive.items())}
    other = replace(case, target=case.target.flip(0), sensitive=sensitive)
    ours = answer(other, reference).flip(-1)
    torch.testing.assert_close(ours, answer(case, reference), rtol=0, atol=1e-9)


def random_case(seed: int = 0, **more: Any) -> Drawn:
    sensitive = {"s": random_units(seed + 2, 2, 24), "t": random_units(seed + 3, 3, 24)}
    features = random_units(seed + 1, 6, 1, 24)
    return Drawn(random_units(seed, 3, 24), sensitive, features, **more)


def test_sure_models_give_finite_tables() -> None:
    case = random_case(scale=1e5)
    assert answer(case, reference_of(case)).isfinite().all()


def test_features_are_not_kept_while_fitting() -> None:
    case = random_case()
    seen: list[weakref.ref[Tensor]] = []

    def batches() -> Iterator[Tensor]:
        for n in range(3, 9):
            assert (
                sum(one() is not None for one in seen) <= 1
            )  # the one that was just used
            batch = reference_of(case, n)
            seen.append(weakref.ref(batch))
            yield batch
            del batch

    fit_on_features(LogitBalance(), EncodedClassifier(case.task), batches())


def test_is_frozen_equal_and_picklable(tmp_path: Path) -> None:
    case = random_case()
    one, same = (fitted(case, reference_of(case)) for _ in range(2))
    other = fitted(case, reference_of(case, 41))
    assert one == same == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(same)
    assert one not in (other, replace(one, strength=1.0), LogitBalance())
    assert describe(one) == describe(same) != describe(other)
    assert describe_adapter(one)["settings"]["reference"]["settings"]["images"] == 40
    assert repr(one).startswith(
        "LogitBalance(strength=1.5, keep_prior=1.0, reference=Reference(images=40, sha256='"
    )
    assert len(repr(one)) < 120
    save(one, tmp_path / "one.safetensors")
    save(same, tmp_path / "same.safetensors")
    texts = [
        (tmp_path / f"{name}.safetensors").read_bytes() for name in ("one", "same")
    ]
    assert texts[0] == texts[1]


def test_settings_may_change_after_fitting() -> None:
    case = random_case()
    later = replace(fitted(case, reference_of(case)), keep_prior=0.5, strength=0.9)
    expected = fitted(case, reference_of(case), keep_prior=0.5, strength=0.9)
    assert later == expected


def test_save_and_load(tmp_path: Path) -> None:
    case = random_case()
    balance = fitted(case, reference_of(case), strength=1.2, keep_prior=0.4)
    path = tmp_path / "balance.safetensors"
    save(balance, path)
    assert path.stat().st_size < 4000
    loaded = load_adapter(path, LogitBalance)
    assert loaded == balance
    ours, theirs = (
        b.adapt(case.task, case.features).probabilities for b in (balance, loaded)
    )
    assert torch.equal(ours, theirs)
    assert b'"images": 40' in path.read_bytes().replace(b"\\", b"")
    assert b'"target 1"' in path.read_bytes().replace(b"\\", b"")
    with pytest.raises(
        FairTTAError, match="was fitted with another model or other weights"
    ):
        loaded.adapt(random_case(5).task, case.features)


def test_files_that_cannot_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "balance.safetensors"
    with pytest.raises(FairTTAError, match=r"there is no file .*: check the path"):
        load_adapter(path, LogitBalance)
    case = random_case()
    save(fitted(case, reference_of(case)), path)
    whole = path.read_bytes()
    bad = (
        b"",
        b"nonsense" * 99,
        whole[:-8],
        whole.replace(b"reference/1", b"reference/9"),
        whole.replace(b"target 2", b"target 1"),
        whole.replace(b"keep_prior", b"drop_prior"),
        whole.replace(b"about", b"other"),
        whole[:-1] + bytes([whole[-1] ^ 1]),
    )
    for data in bad:
        path.write_bytes(data)
        with pytest.raises(
            FairTTAError,
            match="is not a file that a fitted method has saved, or it is damaged",
        ):
            load_adapter(path, LogitBalance)


def test_an_unfitted_one_says_what_to_do() -> None:
    case = random_case()
    message = r"LogitBalance has not been fitted: call `clf.fit\(images\)` with 300 or more images"
    with pytest.raises(FairTTAError, match=message):
        LogitBalance().adapt(case.task, case.features)


def test_cannot_come_second() -> None:
    """What it knows is of the prompts as they are, not as they are tuned for an image."""
    with pytest.raises(
        FairTTAError, match=r"should be a UsesTexts, .*got LogitBalance"
    ):
        TPT() >> LogitBalance()  # type: ignore[operator]


def test_few_images_warn() -> None:
    classifier = EncodedClassifier(random_case().task)
    with pytest.warns(
        SmallReferenceWarning, match="fitted on 299 images; with fewer than 300"
    ):
        fit_on(LogitBalance(), classifier, list(random_units(0, 299, 1, 24)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_on(LogitBalance(), classifier, list(random_units(0, 300, 1, 24)))


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    classifier = EncodedClassifier(random_case().task)
    fit_on(LogitBalance(), classifier, list(random_units(0, 30, 1, 24)), progress=True)
    assert "30/30" in capsys.readouterr().err


def test_what_cannot_be_fitted() -> None:
    case = random_case()
    classifier: Any = EncodedClassifier(case.task)
    balance = LogitBalance()
    with pytest.raises(
        FairTTAError, match=r"some hundred reference images \(got none\)"
    ):
        fit_on(balance, classifier, [])
    for one in ("birds/", 3, case.features):
        with pytest.raises(ImageError, match="pass their features as Features"):
            fit_on(balance, classifier, one)
    for wrong in (torch.ones(24), torch.ones(4, 1, 23), torch.ones(4, 0, 24)):
        with pytest.raises(
            FairTTAError, match=r"or what `encode` returns, \[images, views, 24\]"
        ):
            fit_on_features(balance, classifier, wrong)
    with pytest.raises(ModelError, match="returns features that are not finite"):
        fit_on_features(balance, classifier, math.nan * torch.ones(4, 1, 24))
    nothing = EncodedClassifier(replace(case, sensitive={}).task)
    with pytest.raises(PromptError, match="needs sensitive attribute values"):
        fit_on_features(balance, nothing, case.features)


@pytest.mark.parametrize("keep_prior", [-0.1, 1.1, math.nan])
def test_settings_are_checked(keep_prior: float) -> None:
    with pytest.raises(FairTTAError, match=r"`keep_prior` should lie in \[0, 1\]"):
        LogitBalance(keep_prior=keep_prior)
    with pytest.raises(FairTTAError, match="`strength` should be a number >= 0"):
        LogitBalance(strength=-1)


def eod(
    clf: FairTPTClassifier, features: Tensor, pictures: Any, attribute: str
) -> float:
    answers = [p.label for p in clf._predict_encoded(features)]
    labels = [p.target for p in pictures]
    groups = [p.sensitive[attribute] for p in pictures]
    return float(metrics.equalized_odds_difference(labels, answers, groups))


def test_lowers_the_gap_of_badges() -> None:
    """300 reference pictures and 600 others, none of them for tests; measured: -13 points."""
    task = miniature.BADGES
    clf = FairTPTClassifier(
        "miniature",
        task.targets,
        task.sensitive,
        task.template,
        adapter=ZeroShot(),
        batch_size=64,
    )
    balance = fit_on(
        LogitBalance(),
        clf,
        (p.image for p in task.draw(300, seed=1, split="validation")),
    )
    pictures = task.draw(600, split="validation")
    features = clf.encode([p.image for p in pictures], with_views=False)
    before = eod(clf, features, pictures, "colour")
    after = eod(clf.with_adapter(balance), features, pictures, "colour")
    assert after < before - 0.06
