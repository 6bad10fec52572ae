"""Worker: the answers of `predict`, each at its cost; an image that fails fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from checks import picture
from cli_fixtures import tiny_model as tiny_model
from internals import ImageSource, Job, Worker, WorkUnit, make_job

from fair_tta import TPT, FairTPT, FairTPTClassifier, ZeroShot
from fair_tta.errors import ModelError
from fair_tta.extend import Adapter, AugMix

METHODS: tuple[Adapter, ...] = (ZeroShot(), TPT(), FairTPT())


@pytest.fixture
def classifier(tiny_model: str) -> FairTPTClassifier:
    return FairTPTClassifier(
        tiny_model,
        ["cat", "dog"],
        ["water", "land"],
        "{target} on {sensitive}",
        views=AugMix(3),
    )


@pytest.fixture
def sources(tmp_path: Path) -> list[ImageSource]:
    sources = []
    for i in range(3):
        path = tmp_path / f"{i}.png"
        picture(i).save(path)
        sources.append(ImageSource(path.name, str(path)))
    return sources


BROKEN = ImageSource("broken", b"nonsense")


def work(job: Job, *sources: ImageSource, stored: Sequence[int] = ()) -> list[Any]:
    """Rows of a unit; images at the `stored` positions have all rows already."""
    missing = tuple(
        frozenset() if position in stored else frozenset(job.queries())
        for position in range(len(sources))
    )
    unit = WorkUnit(sources, 0, job.queries(), missing if stored else None)
    return Worker(job).begin(unit)()


@pytest.fixture
def encoded_shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Images and views of each call of `encode`."""
    shapes: list[tuple[int, ...]] = []
    encode = FairTPTClassifier.encode

    def record(self: Any, images: Any, **options: Any) -> Any:
        features = encode(self, images, **options)
        shapes.append(tuple(features.shape[:2]))
        return features

    monkeypatch.setattr(FairTPTClassifier, "encode", record)
    return shapes


def test_answers_are_those_of_predict(
    classifier: FairTPTClassifier,
    sources: list[ImageSource],
    encoded_shapes: list[tuple[int, ...]],
) -> None:
    job = make_job(classifier, METHODS)
    first, reason, second = work(job, sources[0], BROKEN, sources[1])
    assert sorted(encoded_shapes) == [(2, 1), (2, 3)], (
        "the images alone and their views, once for all methods"
    )
    assert reason.startswith("cannot read bytes of length 8")
    for source, rows in zip(sources, (first, second), strict=False):
        for adapter, row in zip(METHODS, rows, strict=True):
            assert row.image == source.name
            alone = classifier.with_adapter(adapter).predict(source.source)
            for name in ("probabilities", "sensitive_entropy"):
                expected = pytest.approx(getattr(alone, name), abs=1e-4)
                assert getattr(row.prediction, name) == expected
    assert work(job) == []


def test_keys_are_of_the_content(
    classifier: FairTPTClassifier, sources: list[ImageSource]
) -> None:
    job = make_job(classifier, METHODS)
    same_content = ImageSource("same", Path(str(sources[0].source)).read_bytes())
    keys = [
        [row.key for row in rows]
        for rows in work(job, sources[0], same_content, sources[1])
    ]
    assert keys[0] == keys[1]
    assert len({*keys[0], *keys[2]}) == 6
    ((row, *_),) = work(make_job(classifier, METHODS), sources[0])
    assert row.key == keys[0][0]


def test_digests_differ_with_views_methods_questions_and_weights(
    classifier: FairTPTClassifier,
) -> None:
    backend: Any = classifier._backend
    jobs = [
        make_job(classifier, METHODS),
        make_job(classifier.with_views(AugMix(4)), METHODS),
        make_job(classifier, [TPT(rho=0.5)]),
        make_job(FairTPTClassifier(backend, ["cat", "cow"]), METHODS[:2]),
        make_job(FairTPTClassifier(backend, ["cat", "dog"], scale=3.0), METHODS[:2]),
        make_job(FairTPTClassifier(backend, ["dog", "cat"]), METHODS[:2]),
    ]
    digests = {job.digests for job in jobs}
    assert len(digests) == 6
    with torch.no_grad():
        next(backend.model.parameters()).add_(1)
    assert make_job(classifier, METHODS).digests not in digests


def test_models_differ_in_more_than_weights(classifier: FairTPTClassifier) -> None:
    backend: Any = classifier._backend
    before = make_job(classifier, METHODS).digests
    backend.model.vision_model.encoder.layers[0].mlp.activation_fn = torch.nn.Tanh()
    assert make_job(classifier, METHODS).digests[0] != before[0], "another activation"
    tokenize = backend.tokenize
    backend.tokenize = lambda texts: tokenize([t.replace("dog", "cow") for t in texts])
    same_names = FairTPTClassifier(
        backend, ["cat", "dog"], ["water", "land"], "{target} on {sensitive}"
    )
    assert make_job(same_names, METHODS).digests[1] != before[1], "another tokenizer"


def test_each_method_is_billed_for_the_views_that_it_needs(
    classifier: FairTPTClassifier,
    sources: list[ImageSource],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock that moves when images are encoded and when a method works."""
    clock = [0.0]
    encode, predict = FairTPTClassifier.encode, FairTPTClassifier._predict_encoded

    def encode_slowly(self: Any, images: Any, **options: Any) -> Any:
        features = encode(self, images, **options)
        clock[0] += features.shape[0] * features.shape[1]
        return features

    def predict_slowly(self: Any, *arguments: Any) -> Any:
        seconds: dict[Any, float] = {ZeroShot: 0.2, TPT: 20.0, FairTPT: 40.0}
        clock[0] += seconds[type(self.adapter)]
        return predict(self, *arguments)

    monkeypatch.setattr("fair_tta.lab.runs._worker.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr(FairTPTClassifier, "encode", encode_slowly)
    monkeypatch.setattr(FairTPTClassifier, "_predict_encoded", predict_slowly)
    expected = {ZeroShot: 1.1, TPT: 13.0, FairTPT: 23.0}
    for methods in (METHODS, METHODS[::-1], METHODS[:1], METHODS[2:]):
        for rows in work(make_job(classifier, methods), *sources[:2]):
            for method, row in zip(methods, rows, strict=True):
                assert row.seconds == pytest.approx(expected[type(method)])


def test_stored_rows_are_not_recomputed_for_images_that_cannot_be_read(
    classifier: FairTPTClassifier,
    sources: list[ImageSource],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_job(classifier, METHODS[:1])
    rows = work(job, *sources[:2], stored=[0])
    assert [len(image_rows) for image_rows in rows] == [1, 1], "the batch as a whole"
    monkeypatch.setattr(FairTPTClassifier, "encode", None)
    gone = ImageSource("gone", "gone.png")
    first, reason, second = work(job, sources[0], gone, sources[1], stored=[0, 2])
    assert first == second == []
    assert "cannot read 'gone.png': no such file" in reason


def test_large_images_are_processed_a_few_at_a_time(
    classifier: FairTPTClassifier,
    sources: list[ImageSource],
    encoded_shapes: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_job(classifier, METHODS)
    unit = sources[0], sources[1], BROKEN, sources[2]
    together = work(job, *unit)
    monkeypatch.setattr("fair_tta.images._batches.MAX_DECODED_PIXELS", 5 * 52 * 40)
    for stored in ([], [0]):
        encoded_shapes.clear()
        few_at_a_time = work(job, *unit, stored=stored)
        assert [images for images, _ in encoded_shapes] == [2, 2, 1, 1]
        assert few_at_a_time[2] == together[2]
        for position in (0, 1, 3):
            for row, same_row in zip(
                few_at_a_time[position], together[position], strict=True
            ):
                assert row.key == same_row.key
                expected = pytest.approx(same_row.prediction.probabilities, abs=1e-4)
                assert row.prediction.probabilities == expected


def replace_encoder(
    classifier: FairTPTClassifier, encode: Callable[[Any, Any], Any]
) -> None:
    """Images are encoded by ``encode(images, the original function)``."""
    backend: Any = classifier._backend
    original = backend.encode_images
    backend.encode_images = lambda images: encode(images, original)


def test_an_image_that_the_model_cannot_use_fails_alone(
    classifier: FairTPTClassifier, sources: list[ImageSource], tmp_path: Path
) -> None:
    def refuse_thin(images: Any, encode: Any) -> Any:
        if any(image.width == 1 for image in images):
            raise RuntimeError("too thin")
        return encode(images)

    replace_encoder(classifier, refuse_thin)
    picture(1, (1, 9)).save(tmp_path / "thin.png")
    thin = ImageSource("thin.png", str(tmp_path / "thin.png"))
    job = make_job(classifier, METHODS[:1])
    first, reason, second = work(job, sources[0], thin, sources[2])
    assert [type(rows) for rows in (first, second)] == [list, list]
    assert (
        reason
        == "the model cannot use this image of 1 x 9 pixels (RuntimeError: too thin)"
    )
    assert work(job, thin) == [reason]


def test_an_image_without_finite_features_is_left_out(
    classifier: FairTPTClassifier, sources: list[ImageSource]
) -> None:
    def overflow(images: Any, encode: Any) -> Any:
        features = encode(images)
        features[len(images) // 2] = float("nan")
        return features

    replace_encoder(classifier, overflow)
    job = make_job(classifier, METHODS[:1])
    first, reason, second = work(job, *sources)
    assert [type(rows) for rows in (first, second)] == [list, list]
    assert "its features are not finite" in reason
    with pytest.raises(ModelError, match="if it runs in half precision"):
        work(job, sources[0])


@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("AttributeError", 2),  # the fault of the program, as it occurs with each image
        ("OutOfMemoryError", 1),
        ("AcceleratorError", 1),
        ("ModelError", 1),
    ],
)
def test_an_error_that_is_no_fault_of_the_images_is_raised(
    classifier: FairTPTClassifier, sources: list[ImageSource], name: str, images: int
) -> None:
    errors = {"AttributeError": AttributeError, "ModelError": ModelError}
    error: Any = errors.get(name) or getattr(torch, name, None)
    if error is None:
        pytest.skip("an older torch")

    def fail(*_: Any) -> None:
        raise error("no such thing")

    replace_encoder(classifier, fail)
    job = make_job(classifier, METHODS[:1])
    with pytest.raises(error, match="no such thing"):
        work(job, *sources[:images], BROKEN)
