"""Worker: the answers of `predict`, each at its cost; a picture that fails stays alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from checks import picture
from cli_fixtures import tiny_model as tiny_model
from internals import ImageRows, ImageSource, Job, Worker, WorkUnit, make_job

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
def pictures(tmp_path: Path) -> list[ImageSource]:
    found = []
    for i in range(3):
        picture(i).save(tmp_path / f"{i}.png")
        found.append(ImageSource(f"{i}.png", str(tmp_path / f"{i}.png")))
    return found


def ask(job: Job, *pictures: ImageSource, known: Sequence[int] = ()) -> list[ImageRows]:
    every = frozenset(job.queries())
    left = tuple(frozenset() if i in known else every for i, _ in enumerate(pictures))
    return Worker(job).begin(
        WorkUnit(pictures, 0, job.queries(), left if known else None)
    )()


def test_answers_are_those_of_predict(
    classifier: FairTPTClassifier,
    pictures: list[ImageSource],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    views: list[int] = []
    encode = FairTPTClassifier.encode

    def counted(self: Any, images: Any, **options: Any) -> Any:
        found = encode(self, images, **options)
        views.append(found.shape[0] * found.shape[1])
        return found

    monkeypatch.setattr(FairTPTClassifier, "encode", counted)
    broken = ImageSource("x", b"nonsense")
    found = ask(make_job(classifier, METHODS), pictures[0], broken, pictures[1])
    assert sorted(views) == [2, 6], (
        "the picture alone, and its views, once for all methods"
    )
    assert isinstance(found[1], str)
    assert found[1].startswith("cannot read bytes of length 8")
    for source, answers in zip(pictures, (found[0], found[2]), strict=False):
        assert isinstance(answers, list)
        for adapter, answer in zip(METHODS, answers, strict=True):
            assert answer.image == source.name
            prediction = answer.prediction
            alone = classifier.with_adapter(adapter).predict(source.source)
            assert prediction.probabilities == pytest.approx(
                alone.probabilities, abs=1e-4
            )
            assert prediction.sensitive_entropy == pytest.approx(
                alone.sensitive_entropy, abs=1e-4
            )
    assert ask(make_job(classifier, METHODS)) == []


def test_keys_are_of_the_content(
    classifier: FairTPTClassifier, pictures: list[ImageSource]
) -> None:
    job = make_job(classifier, METHODS)
    again = ImageSource("again", Path(str(pictures[0].source)).read_bytes())
    first, second, other = ask(job, pictures[0], again, pictures[1])
    assert [a.key for a in first] == [a.key for a in second]  # type: ignore[union-attr]
    keys = {a.key for some in (first, other) for a in some}  # type: ignore[union-attr]
    assert len(keys) == 6
    for same in (job, make_job(classifier, METHODS)):
        assert ask(same, pictures[0])[0][0].key == first[0].key  # type: ignore[union-attr]
    unlike = [
        make_job(classifier.with_views(AugMix(4)), METHODS),
        make_job(classifier, [TPT(rho=0.5)]),
        make_job(FairTPTClassifier(classifier._backend, ["cat", "cow"]), METHODS[:2]),
        make_job(
            FairTPTClassifier(classifier._backend, ["cat", "dog"], scale=3.0),
            METHODS[:2],
        ),
        make_job(FairTPTClassifier(classifier._backend, ["dog", "cat"]), METHODS[:2]),
    ]
    digests = {job.digests, *(other.digests for other in unlike)}
    assert len(digests) == 6
    with torch.no_grad():
        next(classifier._backend.model.parameters()).add_(1)  # type: ignore[attr-defined]
    assert make_job(classifier, METHODS).digests not in digests


def test_models_differ_in_more_than_weights(classifier: FairTPTClassifier) -> None:
    model: Any = classifier._backend.model  # type: ignore[attr-defined]
    before = make_job(classifier, METHODS).digests
    model.vision_model.encoder.layers[0].mlp.activation_fn = torch.nn.Tanh()
    assert make_job(classifier, METHODS).digests[0] != before[0], "another activation"
    tokenize = classifier._backend.tokenize

    def otherwise(texts: Any) -> Any:
        return tokenize([text.replace("dog", "cow") for text in texts])

    classifier._backend.tokenize = otherwise  # type: ignore[method-assign]
    again = FairTPTClassifier(
        classifier._backend,
        ["cat", "dog"],
        ["water", "land"],
        "{target} on {sensitive}",
    )
    assert make_job(again, METHODS).digests[1] != before[1], "another tokenizer"


def test_each_method_is_charged_what_it_looks_at(
    classifier: FairTPTClassifier,
    pictures: list[ImageSource],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock that moves when pictures are encoded and when a method works."""
    now = [0.0]
    monkeypatch.setattr("fair_tta.lab.runs._worker.time.perf_counter", lambda: now[0])
    encode, predict = FairTPTClassifier.encode, FairTPTClassifier._predict_encoded

    def encoding(self: Any, images: Any, **options: Any) -> Any:
        found = encode(self, images, **options)
        now[0] += found.shape[0] * found.shape[1]
        return found

    def working(self: Any, *given: Any) -> Any:
        now[0] += {"ZeroShot": 0.2, "TPT": 20.0, "FairTPT": 40.0}[
            type(self.adapter).__name__
        ]
        return predict(self, *given)

    monkeypatch.setattr(FairTPTClassifier, "encode", encoding)
    monkeypatch.setattr(FairTPTClassifier, "_predict_encoded", working)
    for methods in (METHODS, METHODS[::-1], METHODS[:1], METHODS[2:]):
        for answers in ask(make_job(classifier, methods), *pictures[:2]):
            assert isinstance(answers, list)
            expected = {ZeroShot: 1.1, TPT: 13.0, FairTPT: 23.0}
            found = [answer.seconds for answer in answers]
            assert found == pytest.approx([expected[type(m)] for m in methods])


def test_what_is_known_is_not_done_for_pictures_that_cannot_be_read(
    classifier: FairTPTClassifier,
    pictures: list[ImageSource],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_job(classifier, METHODS[:1])
    missing = ImageSource("gone", "gone.png")
    whole = ask(job, *pictures[:2], known=[0])
    assert [len(answers) for answers in whole] == [1, 1], "the batch as a whole"
    monkeypatch.setattr(FairTPTClassifier, "encode", None)
    found = ask(job, pictures[0], missing, pictures[1], known=[0, 2])
    assert found[0] == found[2] == []
    assert "cannot read 'gone.png': no such file" in found[1]


def test_large_pictures_are_worked_on_a_few_at_a_time(
    classifier: FairTPTClassifier,
    pictures: list[ImageSource],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, broken = make_job(classifier, METHODS), ImageSource("x", b"nonsense")
    asked = pictures[0], pictures[1], broken, pictures[2]
    whole = ask(job, *asked)
    batches: list[int] = []
    encode = FairTPTClassifier.encode

    def counted(self: Any, images: Any, **options: Any) -> Any:
        batches.append(len(images))
        return encode(self, images, **options)

    monkeypatch.setattr(FairTPTClassifier, "encode", counted)
    monkeypatch.setattr("fair_tta.images._batches.MAX_DECODED_PIXELS", 5 * 52 * 40)
    for known in ([], [0]):
        batches.clear()
        found = ask(job, *asked, known=known)
        assert batches == [2, 2, 1, 1]
        assert found[2] == whole[2]
        for place in (0, 1, 3):
            ours, theirs = found[place], whole[place]
            assert isinstance(ours, list)
            assert isinstance(theirs, list)
            for one, other in zip(ours, theirs, strict=True):
                assert one.key == other.key
                expected = pytest.approx(other.prediction.probabilities, abs=1e-4)
                assert one.prediction.probabilities == expected


def test_a_picture_that_the_model_cannot_use_fails_alone(
    classifier: FairTPTClassifier, pictures: list[ImageSource], tmp_path: Path
) -> None:
    encode = classifier._backend.encode_images

    def picky(images: Any) -> Any:
        if any(image.width == 1 for image in images):
            raise RuntimeError("too thin")
        return encode(images)

    classifier._backend.encode_images = picky  # type: ignore[method-assign]
    picture(1, (1, 9)).save(tmp_path / "thin.png")
    thin = ImageSource("thin.png", str(tmp_path / "thin.png"))
    job = make_job(classifier, METHODS[:1])
    found = ask(job, pictures[0], thin, pictures[2])
    assert [type(answers) for answers in found] == [list, str, list]
    assert (
        found[1]
        == "the model cannot use this image of 1 x 9 pixels (RuntimeError: too thin)"
    )
    assert ask(job, thin) == [found[1]]


def test_a_picture_without_finite_features_is_left_out(
    classifier: FairTPTClassifier, pictures: list[ImageSource]
) -> None:
    encode = classifier._backend.encode_images

    def broken(images: Any) -> Any:
        found = encode(images)
        found[len(images) // 2] = float("nan")
        return found

    classifier._backend.encode_images = broken  # type: ignore[method-assign]
    found = ask(make_job(classifier, METHODS[:1]), *pictures)
    assert [type(answers) for answers in found] == [list, str, list]
    assert "its features are not finite" in found[1]
    with pytest.raises(ModelError, match="if it runs in half precision"):
        ask(make_job(classifier, METHODS[:1]), pictures[0])


def test_a_program_that_fails_with_all_pictures_stops(
    classifier: FairTPTClassifier, pictures: list[ImageSource]
) -> None:
    def broken(*_: Any) -> None:
        raise AttributeError("no such method")

    classifier._backend.encode_images = broken  # type: ignore[method-assign,assignment]
    with pytest.raises(AttributeError, match="no such method"):
        ask(
            make_job(classifier, METHODS[:1]),
            pictures[0],
            ImageSource("x", b"nonsense"),
            pictures[1],
        )


@pytest.mark.parametrize("kind", ["OutOfMemoryError", "AcceleratorError", "ModelError"])
def test_a_device_that_fails_is_no_fault_of_the_picture(
    classifier: FairTPTClassifier, pictures: list[ImageSource], kind: str
) -> None:
    error = ModelError if kind == "ModelError" else getattr(torch, kind, None)
    if error is None:
        pytest.skip("an older torch")

    def full(*_: Any) -> None:
        raise error("CUDA out of memory")

    classifier._backend.encode_images = full  # type: ignore[method-assign,assignment]
    with pytest.raises(error, match="CUDA out of memory"):
        ask(make_job(classifier, METHODS[:1]), pictures[0])
