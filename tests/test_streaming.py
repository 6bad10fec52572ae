"""Streams and label files: what fails stays alone; repeated rows are found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from checks import picture
from cli_fixtures import tiny_model as tiny_model
from cli_fixtures import write_labels
from fair_tta import (
    TPT,
    Adapter,
    AugMix,
    FairTPT,
    FairTPTClassifier,
    ImageError,
    ModelError,
    ZeroShot,
)
from fair_tta.benchmarks.datasets.problems import Problem
from fair_tta.benchmarks.datasets.records import DatasetError, Record, collect
from fair_tta.errors import FairTTAError
from fair_tta.folders import Labels, Tally, audit_folder
from fair_tta.folders.tally import shown
from fair_tta.streaming import Answer, answer_batch, batched


@pytest.fixture
def classifier(tiny_model: str) -> FairTPTClassifier:
    return FairTPTClassifier(
        tiny_model, ["cat", "dog"], ["water", "land"], "{target} on {sensitive}", views=AugMix(3)
    )


def test_answers_are_those_of_each_classifier(
    classifier: FairTPTClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods: dict[str, Adapter] = {"a": ZeroShot(), "b": TPT(), "c": FairTPT()}
    classifiers = {name: classifier.with_adapter(adapter) for name, adapter in methods.items()}
    images = [picture(0), picture(1)]
    calls: list[int] = []
    encode = classifier.vision._encode

    def counted(images: Any, with_views: bool) -> Any:
        calls.append(len(images) * with_views)
        return encode(images, with_views)

    monkeypatch.setattr(classifier.vision, "_encode", counted)
    answers = answer_batch(classifiers, [images[0], b"nonsense", images[1]])
    assert sum(calls) == 2  # views of each picture once, for all methods
    assert isinstance(answers[1], ImageError)
    for image, answer in zip(images, (answers[0], answers[2]), strict=True):
        assert isinstance(answer, Answer)
        assert list(answer.predictions) == list(answer.seconds) == ["a", "b", "c"]
        for name, prediction in answer.predictions.items():
            alone = classifiers[name].predict(image)
            assert prediction.probabilities == pytest.approx(alone.probabilities, abs=1e-4)
    answer_batch(classifiers, [picture(3)])
    assert len(classifier.vision._kept) == 2  # with and without views: memory does not grow
    assert answer_batch(classifiers, []) == []


def test_a_picture_that_the_model_cannot_use_fails_alone(
    classifier: FairTPTClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = classifier.vision.features

    def picky(images: Any, with_views: bool) -> Any:
        if any(image.width == 1 for image in images):
            raise RuntimeError("too thin")
        return features(images, with_views)

    monkeypatch.setattr(classifier.vision, "features", picky)
    answers = answer_batch({"": classifier}, [picture(0), picture(1, (1, 9)), picture(2)])
    assert [type(answer) for answer in answers] == [Answer, ImageError, Answer]
    assert str(answers[1]) == (
        "the model cannot use this picture of 1 x 9 pixels (RuntimeError: too thin)"
    )


def test_a_program_that_fails_with_all_pictures_stops_the_stream(
    classifier: FairTPTClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise AttributeError("no such method")

    monkeypatch.setattr(classifier.vision, "features", broken)
    with pytest.raises(AttributeError, match="no such method"):
        answer_batch({"": classifier}, [picture(0), b"nonsense", picture(1)])


@pytest.mark.parametrize("kind", ["OutOfMemoryError", "AcceleratorError"])
def test_a_device_that_fails_is_no_fault_of_the_picture(
    classifier: FairTPTClassifier, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    error = getattr(torch, kind, None)
    if error is None:
        pytest.skip("an older torch")

    def full(images: Any, with_views: bool) -> None:
        raise error("CUDA out of memory")

    monkeypatch.setattr(classifier.vision, "features", full)
    with pytest.raises(error, match="CUDA out of memory"):
        answer_batch({"": classifier}, [picture(0)])


def test_warnings_of_adapters_are_in_the_audit(
    classifier: FairTPTClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("a.png", "cat", "land"), ("b.png", "dog", "water"), ("c.png", "dog", "land")]
    for i, row in enumerate(rows):
        picture(i).save(tmp_path / row[0])
    write_labels(tmp_path / "labels.csv", rows)
    values = Labels(tmp_path, tmp_path / "labels.csv", "animal", ("place",)).scan()
    predict = FairTPTClassifier.predict

    def warning(self: Any, images: Any) -> Any:
        texts = [("bounded",), (), ("bounded", "not finite")]
        tuned = isinstance(self.adapter, TPT)
        answers: Any = predict(self, images)
        return [
            replace(p, warnings=text if tuned else ())
            for p, text in zip(answers, texts, strict=True)
        ]

    monkeypatch.setattr(FairTPTClassifier, "predict", warning)
    methods: dict[str, Adapter] = {"a": ZeroShot(), "b": TPT()}
    found = audit_folder(classifier, methods, values, tmp_path / "out", notes=["read me"]).audit
    counts = [run["warnings"] for run in found.document["runs"]]
    assert counts == [{}, {"bounded": 2, "not finite": 1}]
    assert found.warnings[0] == "read me"


def test_errors_of_the_model_stop_the_stream(
    classifier: FairTPTClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ModelError("weights")

    monkeypatch.setattr(classifier.vision, "features", broken)
    with pytest.raises(ModelError, match="weights"):
        answer_batch({"": classifier}, [picture(0), picture(1)])


@given(st.integers(0, 20), st.integers(1, 6))
def test_batches_hold_everything_in_order(count: int, size: int) -> None:
    batches = list(batched(range(count), size))
    assert [item for batch in batches for item in batch] == list(range(count))
    assert all(len(batch) == size for batch in batches[:-1])


rows = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from("xy"), st.sampled_from("uv")), min_size=1
)


@settings(max_examples=40, deadline=None)
@given(rows)
def test_repeated_rows_are_those_that_the_reader_finds(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("labels")
    write_labels(folder / "labels.csv", rows)
    labels = Labels(folder, folder / "labels.csv", "animal", ("place",))
    values = labels.scan()
    found = list(values.unique(labels.rows(check_images=False)))
    records, _ = collect(labels.rows(check_images=False))
    assert {r.key: r for r in found if isinstance(r, Record)} == {r.key: r for r in records}
    assert len(found) == values.rows == len(rows)
    assert values.raw["animal"] == Counter(row[1] for row in rows)
    assert values.names("place") == sorted({row[2] for row in rows})


def test_merged_values_do_not_contradict_each_other(tmp_path: Path) -> None:
    write_labels(
        tmp_path / "labels.csv", [("a", "x", "sea"), ("a", "x", "lake"), ("b", "y", "sea")]
    )
    labels = Labels(
        tmp_path, tmp_path / "labels.csv", "animal", ("place",),
        rename={"place": {"sea": "water", "lake": "water"}},
    )  # fmt: skip
    values = labels.scan()
    kinds = [
        row.kind.name if isinstance(row, Problem) else row.sensitive["place"]
        for row in values.unique(labels.rows(check_images=False))
    ]
    assert kinds == ["water", "DUPLICATE", "water"]
    assert values.names("place") == ["water"]


def test_many_unknown_values_are_summarised(tmp_path: Path) -> None:
    write_labels(tmp_path / "labels.csv", [(f"{i}", f"x{i}", "sea") for i in range(30)])
    values = Labels(tmp_path, tmp_path / "labels.csv", "animal", ("place",)).scan()
    named = {"animal": ["x0"], "place": ["sea"]}
    with pytest.raises(DatasetError, match=r"animal 'x1' \(1 row\).* and 19 more"):
        values.allowed(named, skip_unknown=False)
    assert values.allowed(named, skip_unknown=True) == {"animal": {"x0"}, "place": {"sea"}}


def test_no_adapter_at_all(classifier: FairTPTClassifier, tmp_path: Path) -> None:
    write_labels(tmp_path / "labels.csv", [("a", "cat", "land")])
    values = Labels(tmp_path, tmp_path / "labels.csv", "animal", ("place",)).scan()
    with pytest.raises(FairTTAError, match="`adapters` should name at least one adapter"):
        audit_folder(classifier, {}, values, tmp_path / "out")


def test_tally() -> None:
    tally = Tally()
    assert not tally
    for i in range(30):
        tally.add("gone", f"{i}.png")
    assert tally.headline() == "30 rows were left out"
    tally.add("twice", "x", lost=False)
    tally.add("odd", "labels.csv", row=False, lost=False)
    assert (tally.rows, tally.lost) == (31, 30)
    assert tally.headline() == (
        "31 rows were left out, 1 of them because the picture is counted already"
    )
    assert tally.lines() == [
        "30 x gone: 0.png; 1.png; 2.png; ...", "1 x twice: x", "1 x odd: labels.csv"
    ]  # fmt: skip
    assert tally.to_dict()["gone"]["count"] == 30
    assert len(tally.to_dict()["gone"]["examples"]) == 20


@given(st.text())
def test_shown_text_is_printable(text: str) -> None:
    assert shown(text).isprintable()
    assert shown(shown(text)) == shown(text)
    shown(text + "\udcff").encode()
