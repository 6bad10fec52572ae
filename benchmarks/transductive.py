"""Adaptation to an unlabelled batch: does it settle on the class, or on the attribute?

    python benchmarks/transductive.py --data DIR [--results]

With `--results` the tables go to benchmarks/results/transductive*.

DIR has `celeba1000_openai_vitb32.npz` (features [n, 512], attributes, labels),
`cifar10_500_openai_vitb32.npz` (features, labels) and `text_detic_openai_vitb32.npz` (tables of
text features of "a NAME"), all of OpenAI's ViT-B/32. Six tasks on 1,000 images of CelebA, whose
attribute is gender, and CIFAR-10 as a control without an attribute. Some two minutes.

The baseline is that of TransCLIP (Zanella, Gerin, Ben Ayed, NeurIPS 2024, arXiv 2406.01837) in its
zero-shot form, from formulas, not from its code. It classifies all images together, so it is no
method of the library: its answers depend on which images come together. With
y_i = softmax(100 <f_i, t>) the zero-shot answer it minimises

    - weight sum_i z_i' log p_i - sum_ij w_ij z_i' z_j + sum_i KL(z_i || y_i)

over assignments z, where p_ik is the density of a Gaussian with mean mu_k and a common diagonal
covariance, and w_ij = <f_i, f_j> for the three nearest neighbours j of i. In turn:

    z_i   proportional to  y_i * p_i^weight * exp(sum_j w_ij z_j)
    mu_k  = sum_i z_ik f_i / sum_i z_ik
    var   = 1/n sum_ik z_ik (f_i - mu_k)^2

from means over the 8 most confident images of each class, a variance of 1/dim and z = y. The weight
is 1 in the update and 1/n in the objective as we know them, so several are run.

phi is the size of the correlation of the answers with the class and with gender. Intervals (95 %)
are of changes from zero-shot on the same images, given the batch: paired ones of the library, and
percentiles over 2,000 resamples for phi.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from result_files import RESULTS, table, write_results

from fair_tta.errors import SmallGroupWarning
from fair_tta.metrics import (
    accuracy,
    definitions,
    paired_difference,
    worst_group_accuracy,
)

Array = np.ndarray[Any, Any]

TASKS = {  # attribute of CelebA: prompts if it is there and if it is not
    "Eyeglasses": ("spectacles", "Human face"),
    "Wearing_Hat": ("Hat", "Human face"),
    "Wearing_Necktie": ("Tie", "Necklace"),
    "Wearing_Earrings": ("Earrings", "Human face"),
    "Wearing_Necklace": ("Necklace", "Human face"),
    "Beard": ("Human beard", "Human mouth"),  # not No_Beard
}
CIFAR = (
    "Airplane",
    "Car",
    "Bird",
    "Cat",
    "Deer",
    "Dog",
    "Frog",
    "Horse",
    "Boat",
    "Truck",
)
INTRODUCTION = """# A batch may settle on the attribute

`python benchmarks/transductive.py --data DIR --results` writes this file and `transductive/`: the
baseline of TransCLIP (Zanella et al., NeurIPS 2024), written from its formulas, on six tasks of
1,000 images of CelebA (OpenAI's ViT-B/32, attribute gender), and CIFAR-10 without an attribute.
Levels are accuracy / worst-group accuracy / agreement (phi) of the answers with gender; n are
images with and without the thing, men / women each. Changes have 95 % intervals. The weight of the
Gaussian mixture is 1 in the method's update and 1/n in its objective as we know them, so both are
here, with two between. What it says: docs/methods.md."""
WEIGHTS = {"1": 1.0, "0.1": 0.1, "0.03": 0.03, "1/n": None}
SCALE, CONFIDENT, NEIGHBOURS, ROUNDS, INNER = 100.0, 8, 3, 10, 5
RESAMPLES = 2000


@dataclass(frozen=True)
class Batch:
    """Unit features of images and texts, and of each image its class and attribute value."""

    title: str
    images: Array
    texts: Array
    truth: Array
    values: Array | None = None


def unit(vectors: Array) -> Array:
    vectors = vectors.astype(np.float64)
    scaled: Array = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return scaled


def softmax(logits: Array) -> Array:
    odds: Array = np.exp(logits - logits.max(-1, keepdims=True))
    shares: Array = odds / odds.sum(-1, keepdims=True)
    return shares


def zero_shot(images: Array, texts: Array) -> Array:
    """Probabilities ``[images, classes]``."""
    return softmax(SCALE * images @ texts.T)


def transclip(images: Array, first: Array, weight: float) -> Array:
    """Assignments ``[images, classes]`` from zero-shot probabilities `first`."""
    n, dim = images.shape
    similar = images @ images.T
    np.fill_diagonal(similar, -np.inf)
    neighbours = np.argsort(-similar, 1)[:, :NEIGHBOURS]
    weights = np.take_along_axis(similar, neighbours, 1)[..., None]
    z, log_first = first, np.log(np.maximum(first, 1e-30))
    mu = np.stack(
        [images[np.argsort(-column)[:CONFIDENT]].mean(0) for column in first.T]
    )
    variance = np.full(dim, 1 / dim)
    for _ in range(ROUNDS):
        away = ((images[:, None] - mu) ** 2 / variance).sum(-1)
        for _ in range(INNER):
            z = softmax(
                log_first - weight * away / 2 + (weights * z[neighbours]).sum(1)
            )
        mu = z.T @ images / np.maximum(z.sum(0), 1e-12)[:, None]
        squared_distances = (z[..., None] * (images[:, None] - mu) ** 2).sum((0, 1))
        variance = np.maximum(squared_distances / n, 1e-12)
    return z


def answers(batch: Batch) -> dict[str, Array]:
    """Place of the answer: zero-shot, and by the weight of the mixture."""
    first = zero_shot(batch.images, batch.texts)
    answers_by_method = {"zero-shot": first.argmax(1)}
    for name, weight in WEIGHTS.items():
        z = transclip(batch.images, first, 1 / len(first) if weight is None else weight)
        answers_by_method[name] = z.argmax(1)
    return answers_by_method


def read(folder: Path) -> Iterator[Batch]:
    images = np.load(folder / "celeba1000_openai_vitb32.npz")
    tables = np.load(folder / "text_detic_openai_vitb32.npz")
    vectors = {
        name: vector
        for kind in ("lvis", "o365", "oid")  # of names that several have, the last
        for name, vector in zip(
            tables[f"{kind}_names"].tolist(), tables[kind], strict=True
        )
    }
    columns = dict(
        zip(images["attributes"].tolist(), images["labels"].T > 0, strict=True)
    )
    columns["Beard"] = ~columns["No_Beard"]
    for name, prompts in TASKS.items():
        texts = unit(np.stack([vectors[prompt] for prompt in prompts]))
        truth, men = (~columns[name]).astype(int), columns["Male"].astype(int)
        yield Batch(name, unit(images["features"]), texts, truth, men)
    control = np.load(folder / "cifar10_500_openai_vitb32.npz")
    texts = unit(np.stack([vectors[prompt] for prompt in CIFAR]))
    yield Batch(
        "CIFAR-10", unit(control["features"]), texts, control["labels"].astype(int)
    )


def phi(a: Array, b: Array) -> float:
    """Size of the correlation of two columns of 0 and 1; 0 if one is constant."""
    return 0.0 if a.std() * b.std() == 0 else abs(float(np.corrcoef(a, b)[0, 1]))


def phi_change(before: Array, after: Array, labels: Array) -> tuple[float, float]:
    generator = np.random.default_rng(0)
    draws = (generator.integers(0, len(before), len(before)) for _ in range(RESAMPLES))
    changes = [phi(after[d], labels[d]) - phi(before[d], labels[d]) for d in draws]
    low, high = np.percentile(changes, [2.5, 97.5])
    return float(low), float(high)


def title_of(batch: Batch) -> str:
    if batch.values is None:
        return f"{batch.title} (n = {len(batch.truth)})"
    pairs = [(y, s) for y in (0, 1) for s in (1, 0)]
    cells = [int(((batch.truth == y) & (batch.values == s)).sum()) for y, s in pairs]
    empty = ", one class only" if 0 in cells else ""
    return f"{batch.title} ({' / '.join(map(str, cells))}{empty})"


def level(batch: Batch, labels: Array) -> str:
    """Accuracy, worst group and phi with gender."""
    right = 100 * float(accuracy(batch.truth, labels))
    if batch.values is None:
        return f"{right:.1f}"
    worst = worst_group_accuracy(batch.truth, labels, batch.values, targets=[0, 1])
    return f"{right:.1f} / {100 * float(worst):.1f} / {phi(labels, batch.values):.2f}"


def changes(batch: Batch, before: Array, after: Array) -> Iterator[str]:
    """Of accuracy, the worst group, phi with the class and with gender."""
    assert batch.values is not None
    for metric in (definitions.ACCURACY, definitions.WORST_GROUP_ACCURACY):
        change = paired_difference(
            metric, batch.truth, before, after, batch.values, targets=[0, 1]
        )
        bounds = [
            f"{100 * end:+.1f}" for end in (change.low, change.high) if end is not None
        ]
        yield f"{100 * float(change):+.1f} [{', '.join(bounds)}]"
    for labels in (batch.truth, batch.values):
        low, high = phi_change(before, after, labels)
        yield f"{phi(after, labels) - phi(before, labels):+.2f} [{low:+.2f}, {high:+.2f}]"


def levels_table(answered_batches: Sequence[tuple[Batch, Mapping[str, Array]]]) -> str:
    """Return accuracy, worst group and phi of every batch and weight."""
    rows = [
        [title_of(batch), *(level(batch, answer) for answer in answers.values())]
        for batch, answers in answered_batches
    ]
    return table(["task", "zero-shot", *(f"weight {name}" for name in WEIGHTS)], rows)


def changes_table(answered_batches: Sequence[tuple[Batch, Mapping[str, Array]]]) -> str:
    """Return the changes from zero-shot of every batch that has an attribute."""
    rows = [
        [batch.title, name, *changes(batch, answers["zero-shot"], answers[name])]
        for batch, answers in answered_batches
        if batch.values is not None
        for name in WEIGHTS
    ]
    head = [
        "task",
        "weight",
        "accuracy",
        "worst group",
        "phi with class",
        "phi with gender",
    ]
    return table(head, rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--results",
        type=Path,
        nargs="?",
        const=RESULTS,
        help="write the tables to this folder",
    )
    options = parser.parse_args(arguments)
    answered_batches = [(batch, answers(batch)) for batch in read(options.data)]
    warnings.simplefilter("ignore", SmallGroupWarning)
    blocks = {
        "levels": levels_table(answered_batches),
        "changes": changes_table(answered_batches),
    }
    print(f"Accuracy / worst group / phi with gender; n there and not, men / women each:\n\n"
          f"{blocks['levels']}\n\nChanges from zero-shot:\n\n{blocks['changes']}")  # fmt: skip
    if options.results:
        write_results("transductive", INTRODUCTION, blocks, options.results)


if __name__ == "__main__":
    main()
