"""TTR against a computation that tries every way to cut an image, and its limits."""

from __future__ import annotations

from itertools import product
from typing import Any

import families
import families_open_clip
import numpy as np
import pytest
import torch
from checks import picture
from internals import NOT_EPISODIC, Backend

from fair_tta import FairTPTClassifier, FairTTAError, ZeroShot
from fair_tta.methods import TTR
from fair_tta.models import TransformersBackend

TARGETS, TEMPLATE = ["cat", "black dog"], "a photo of a {}."


def classifier(**more: Any) -> FairTPTClassifier:
    backend = TransformersBackend(*families.seeded(families.clip))
    settings: dict[str, Any] = {
        "template": TEMPLATE,
        "scale": 30.0,
        "adapter": ZeroShot(),
    }
    return FairTPTClassifier(backend, TARGETS, **(settings | more))


def smoothed(points: Any, sigma: float) -> Any:
    """Each column with a Gaussian of four sigmas, mirrored at its ends (d c b a | a b c d)."""
    radius = int(4 * sigma + 0.5)
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    kernel /= kernel.sum()
    padded = np.concatenate([points[:radius][::-1], points, points[-radius:][::-1]])
    return np.array([kernel @ padded[i : i + len(kernel)] for i in range(len(points))])


def best_cut(points: Any, segments: int) -> tuple[int, ...]:
    """Of all ways to put points into segments the one with the smallest squared distances."""

    def cost(cut: tuple[int, ...]) -> float:
        groups = (points[np.array(cut) == place] for place in {*cut})
        return sum(float(((group - group.mean(0)) ** 2).sum()) for group in groups)

    return min(product(range(segments), repeat=len(points)), key=cost)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_segment_is_that_of_brute_force(seed: int) -> None:
    generator = np.random.default_rng(seed)
    patches, general = generator.normal(size=(8, 12)), generator.normal(size=12)
    patches += (
        2 * generator.normal(size=(3, 12))[generator.integers(0, 3, 8)]
    )  # some structure
    pixels = generator.normal(size=(3, 16, 32))
    _, vectors = np.linalg.eigh(patches.T @ patches)
    points = smoothed(patches @ vectors[:, -3:], 0.72)
    cut = np.array(best_cut(points, 3))
    means = [patches[cut == place].mean(0) @ general for place in {*cut.tolist()}]
    chosen = [*{*cut.tolist()}][int(np.argmin(means))]
    mask = np.kron((cut == chosen).reshape(2, 4), np.ones((8, 8)))
    tensors = map(torch.from_numpy, (pixels[None], patches[None], general))
    (found,) = TTR("bird")._cut_segments(*tensors)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.numpy(), pixels * mask)
    assert 0 < mask.mean() < 1


def test_the_answer_is_that_of_the_segment() -> None:
    clf, image = classifier(), picture()
    backend: Any = clf._backend
    pixels = backend.preprocess([image])
    general = backend.encode_text(backend.tokenize(["a photo of a bird."]))[0]
    (kept,) = TTR("bird")._cut_segments(
        [pixels[0]], [backend.encode_patches(pixels)[0]], general
    )
    v = backend.encode_pixels(kept[None]).double().numpy()[0]
    texts = backend.encode_text(
        backend.tokenize([f"a photo of a {y}." for y in TARGETS])
    )
    t = texts.double().numpy()
    logits = 30 * (t @ v) / np.linalg.norm(t, axis=1) / np.linalg.norm(v)
    expected = np.exp(logits) / np.exp(logits).sum()
    found = clf.with_adapter("ttr:subject=bird").predict(image)
    assert [*found.probabilities.values()] == pytest.approx(expected.tolist(), abs=1e-5)
    assert found.probabilities != pytest.approx(found.zero_shot, abs=1e-6)


def test_one_segment_is_the_whole_image() -> None:
    prediction = classifier(adapter=TTR("bird", segments=1)).predict(picture())
    assert prediction.probabilities == pytest.approx(prediction.zero_shot, abs=1e-5)


def test_equal_patches_are_one_segment() -> None:
    pixels = torch.ones(3, 16, 16)
    for sigma in (0.0, 0.72):
        (kept,) = TTR("bird", sigma=sigma)._cut_segments(
            [pixels], [torch.ones(4, 5)], torch.ones(5)
        )
        assert torch.equal(kept, pixels)


def test_more_segments_than_patches() -> None:
    patches = torch.eye(4)
    (kept,) = TTR("bird", segments=9, sigma=0)._cut_segments(
        [torch.ones(3, 4, 4)], [patches], -torch.arange(4.0)
    )
    assert (
        kept[0].sum() <= 8
    )  # one or two patches of four pixels: three dimensions of four
    assert kept[0, 2:, 2:].sum() == 4


@pytest.mark.parametrize("seed", [0, 1])
def test_a_queue_groups_the_patches_of_several_images(seed: int) -> None:
    generator = np.random.default_rng(seed)
    patches, general = generator.normal(size=(2, 4, 12)), generator.normal(size=12)
    patches += 2 * generator.normal(size=(3, 12))[generator.integers(0, 3, (2, 4))]
    pixels, every = generator.normal(size=(2, 3, 16, 16)), patches.reshape(8, 12)
    _, vectors = np.linalg.eigh(every.T @ every)
    cuts = np.array(best_cut(smoothed(every @ vectors[:, -3:], 0.72), 3)).reshape(2, 4)
    tensors: Any = map(torch.from_numpy, (pixels, patches, general))
    found = TTR("bird", queue=2)._cut_segments(*tensors)
    for image, own, cut, kept in zip(pixels, patches, cuts, found, strict=True):
        means = {
            place: own[cut == place].mean(0) @ general for place in {*cut.tolist()}
        }
        chosen = min(means, key=lambda place: means[place])
        mask = np.kron((cut == chosen).reshape(2, 2), np.ones((8, 8)))
        np.testing.assert_allclose(kept.numpy(), image * mask)


def test_a_queue_is_marked_as_not_episodic() -> None:
    images = [picture(seed) for seed in range(3)]
    clf = classifier(adapter=TTR("bird"))
    assert not any(p.warnings for p in clf.predict(images))
    found = clf.with_adapter("ttr:subject=bird,queue=2").predict(images)
    assert all(p.warnings == (NOT_EPISODIC,) for p in found)
    alone = clf.predict(images[2]).probabilities
    assert found[2].probabilities == pytest.approx(alone, abs=1e-5), (
        "the last is left alone"
    )


def test_what_is_refused() -> None:
    with pytest.raises(
        FairTTAError, match=r"TTR needs `subject`, .*TTR\(subject='bird'\)"
    ):
        classifier(adapter=TTR())
    with pytest.raises(FairTTAError, match="needs `subject`"):
        classifier(adapter="ttr:segments=2")
    with pytest.raises(FairTTAError, match=r"`segments` should be .*\(got 0\)"):
        TTR("bird", segments=0)
    with pytest.raises(FairTTAError, match=r"`queue` should be .*\(got 0\)"):
        TTR("bird", queue=0)
    with pytest.raises(
        FairTTAError, match=r"`sigma` should be a number >= 0 \(got -1\)"
    ):
        TTR("bird", sigma=-1)
    with pytest.raises(FairTTAError, match=r"`subject` should be a phrase \(got 3\)"):
        TTR(3)  # type: ignore[arg-type]
    clf = classifier(adapter=TTR("bird"))
    with pytest.raises(
        FairTTAError, match="TTR needs the images themselves: pass them to `"
    ):
        clf._predict_encoded(clf.encode([picture()]))


def test_towers_without_patches_are_refused() -> None:
    parts = families_open_clip.build(families_open_clip.shrunk("RN50"))
    with pytest.raises(
        FairTTAError, match="has no features of patches that its projection takes"
    ):
        FairTPTClassifier(parts, TARGETS, template=TEMPLATE, adapter=TTR("bird"))

    class Own:
        """A user's backend, with what the protocol asks for."""

        def __init__(self, backend: Any) -> None:
            for name in (name for name in vars(Backend) if not name.startswith("_")):
                setattr(self, name, getattr(backend, name))

    own: Any = Own(classifier()._backend)
    with pytest.raises(FairTTAError, match="has no method `encode_patches`"):
        FairTPTClassifier(own, TARGETS, template=TEMPLATE, adapter=TTR("bird"))
