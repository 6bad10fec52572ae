"""`benchmarks/transductive.py` on small files of the same layout, and against plain loops."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("transductive")
    sys.path.remove(str(ROOT / "benchmarks"))


def drawn(seed: int, n: int = 40, dim: int = 6) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, dim)), generator.integers(0, 2, n)


def literally(images: Any, first: Any, weight: float) -> Any:
    """The formulas of the docstring, a number at a time."""
    n, dim = images.shape
    neighbours = [
        sorted(
            (j for j in range(n) if j != i), key=lambda j: -float(images[i] @ images[j])
        )[:3]
        for i in range(n)
    ]
    z = [list(map(float, line)) for line in first]
    classes = range(first.shape[1])
    top = [sorted(range(n), key=lambda i: -z[i][k])[:8] for k in classes]
    mu = [np.mean([images[i] for i in indices], 0) for indices in top]
    var = [1 / dim] * dim
    for _ in range(10):
        for _ in range(5):
            new = []
            for i in range(n):
                odds = []
                for k in classes:
                    density = sum(
                        (images[i][d] - mu[k][d]) ** 2 / var[d] for d in range(dim)
                    )
                    pull = sum(
                        float(images[i] @ images[j]) * z[j][k] for j in neighbours[i]
                    )
                    odds.append(first[i][k] * np.exp(-weight * density / 2 + pull))
                new.append([o / sum(odds) for o in odds])
            z = new
        mu = [
            sum(z[i][k] * images[i] for i in range(n)) / sum(r[k] for r in z)
            for k in classes
        ]
        var = [
            sum(
                z[i][k] * (images[i][d] - mu[k][d]) ** 2
                for i in range(n)
                for k in classes
            )
            / n
            for d in range(dim)
        ]
    return np.array(z)


@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_the_formulas(script: Any, weight: float) -> None:
    images = script.unit(drawn(0, 20, 4)[0])
    first = script.softmax(3 * images @ script.unit(drawn(1, 3, 4)[0]).T)
    actual = script.transclip(images, first, weight)
    np.testing.assert_allclose(actual, literally(images, first, weight), atol=1e-8)


def test_without_the_mixture_and_neighbours_that_agree_it_stays_zero_shot(
    script: Any,
) -> None:
    images = script.unit(drawn(2)[0])
    first = np.full((40, 2), 0.5)
    np.testing.assert_allclose(script.transclip(images, first, 0.0), first, atol=1e-12)


def test_it_follows_what_sets_a_batch_apart(script: Any) -> None:
    """Two far clusters that are the attribute, and a text that knows the class."""
    noise, truth = drawn(3, 60, 8)
    values = np.arange(60) % 2
    images = 0.3 * noise
    images[:, 0] += 2 * values - 1
    logits = 1.0 * (2 * truth - 1) + 0.5 * (2 * values - 1)
    first = script.softmax(np.stack([-logits, logits], 1))
    assert (first.argmax(1) == truth).all()
    actual = script.transclip(script.unit(images), first, 1.0).argmax(1)
    assert script.phi(actual, values) > 0.9


def test_phi(script: Any) -> None:
    a, b = np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])
    assert script.phi(a, b) == pytest.approx(1)
    assert script.phi(a, np.array([0, 1, 0, 1])) == pytest.approx(0)
    assert script.phi(a, np.ones(4)) == 0


def test_small_files_of_the_same_layout(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    generator = np.random.default_rng(0)
    names = sorted({prompt for prompts in script.TASKS.values() for prompt in prompts})
    attributes = [
        *(name for name in script.TASKS if name != "Beard"),
        "No_Beard",
        "Male",
    ]
    labels = np.tile(np.arange(60)[:, None] // np.arange(1, 8) % 2, 1)
    features = generator.normal(size=(60, 16)).astype(np.float16)
    np.savez(
        tmp_path / "celeba1000_openai_vitb32.npz",
        features=features,
        attributes=np.array(attributes),
        labels=labels.astype(np.int8),
    )
    np.savez(
        tmp_path / "cifar10_500_openai_vitb32.npz",
        features=features[:20],
        labels=np.arange(20) % 10,
    )
    tables = {"lvis": ["spectacles"], "o365": [*script.CIFAR], "oid": names}
    vectors = {
        split: generator.normal(size=(len(table), 16))
        for split, table in tables.items()
    }
    keys = {f"{kind}_names": np.array(of) for kind, of in tables.items()}
    arrays: dict[str, Any] = {**vectors, **keys}
    np.savez(tmp_path / "text_detic_openai_vitb32.npz", **arrays)
    monkeypatch.setattr(script, "RESAMPLES", 20)
    script.main(["--data", str(tmp_path)])
    out = capsys.readouterr().out
    assert out.count("\n| Beard | ") == len(script.WEIGHTS)
    assert "| CIFAR-10 (n = 20) | " in out
    first = next(line for line in out.splitlines() if line.startswith("| Eyeglasses ("))
    assert len(first.split(" | ")) == 2 + len(script.WEIGHTS)
