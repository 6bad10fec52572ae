"""Methods whose answers depend on the other images of a batch: their rows are never mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest
from checks import picture
from cli_fixtures import tiny_model as tiny_model
from cli_fixtures import write_labels
from internals import Engine, ImageSource, Labels, Local, Runner, Store, make_job
from test_runner import Late
from torch import Tensor

from fair_tta import FairTPTClassifier, Prediction, ZeroShot
from fair_tta.extend import Adapter, AugMix, Needs, Outcome, Task
from fair_tta.lab import audit_folder
from fair_tta.methods import TTR

COUNT, BROKEN, COPY = 11, 4, 6


@dataclass(frozen=True)
class Centred(Adapter):
    """Takes the mean of the batch from each image."""

    needs = Needs(other_images=True)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Classify what sets an image apart from the others."""
        image = features[:, :1]
        logits = task.logits(image - image.mean(0), task.target_features)
        return Outcome(logits.softmax(-1).squeeze(1))


METHODS = ZeroShot(), Centred(), TTR("dog", queue=2)

Answers = list[list[Prediction] | str]
"""The predictions for each image, or why there are none."""


@pytest.fixture(scope="module")
def classifier(tiny_model: str) -> FairTPTClassifier:
    return FairTPTClassifier(tiny_model, ["cat", "dog"], views=AugMix(3), scale=30.0)


@pytest.fixture
def sources(tmp_path: Path) -> list[ImageSource]:
    """Images, of which one is there twice, and a file that is no image."""
    paths = [tmp_path / f"{i}.png" for i in range(COUNT)]
    for i, path in enumerate(paths):
        picture(5 if i == COPY else i).save(path)
    paths[BROKEN].write_bytes(b"no image")
    return [ImageSource(path.name, str(path)) for path in paths]


def run(
    classifier: FairTPTClassifier,
    sources: Sequence[ImageSource],
    size: int,
    folder: Path,
    *,
    stop_after: int | None = None,
    engine: Engine | None = None,
) -> Answers:
    """Answers for all images, or for the first few: the others are never worked on."""
    job = make_job(classifier, METHODS)
    folder.mkdir(exist_ok=True)
    answers: Answers = []
    with Store(folder / "rows") as store:
        runner = Runner(job, engine or Local(), store)
        stream = runner.stream(sources, lambda source: source, size=size, seed=0)
        for _, rows in islice(stream, stop_after):
            answers.append(
                rows if isinstance(rows, str) else [row.prediction for row in rows]
            )
    return answers


@pytest.mark.parametrize("size", [2, 3, 16])
def test_a_stopped_run_ends_like_one_that_was_not_stopped(
    classifier: FairTPTClassifier, sources: list[ImageSource], size: int, tmp_path: Path
) -> None:
    undisturbed = run(classifier, sources, size, tmp_path / "undisturbed")
    assert isinstance(undisturbed[BROKEN], str)
    for stop_after in (1, 6):
        folder = tmp_path / f"stopped after {stop_after}"
        run(classifier, sources, size, folder, stop_after=stop_after)
        assert run(classifier, sources, size, folder) == undisturbed
    late = Late()
    again = run(classifier, sources, size, tmp_path / "undisturbed", engine=late)
    assert again == undisturbed
    assert len(late.submitted) == 1, "only the batch of the file that is no image"


def test_another_batch_is_computed_again(
    classifier: FairTPTClassifier, sources: list[ImageSource], tmp_path: Path
) -> None:
    """After another batch size, a shorter list or another order."""
    folder = tmp_path / "all in one"
    for size, batch_sources in (
        (3, sources),
        (5, sources),
        (5, sources[1:]),
        (3, sources[::-1]),
    ):
        fresh_folder = tmp_path / f"{size} {batch_sources[0].name}"
        expected = run(classifier, batch_sources, size, fresh_folder)
        answers = run(classifier, batch_sources, size, folder)
        for predictions, fresh in zip(answers, expected, strict=True):
            assert isinstance(predictions, str) == isinstance(fresh, str)
            for prediction, same in zip(predictions, fresh, strict=True):
                # Rows of zero-shot are stored, and have the last digits of their first batch.
                if isinstance(prediction, Prediction) and isinstance(same, Prediction):
                    probabilities = pytest.approx(same.probabilities, abs=1e-6)
                    assert prediction.probabilities == probabilities


def test_answers_are_those_of_predict(
    classifier: FairTPTClassifier, sources: list[ImageSource], tmp_path: Path
) -> None:
    """More than 16 images, a classifier's own batch, may be one batch."""
    many = [source for i, source in enumerate(sources * 2) if i % COUNT != BROKEN]
    clf = classifier.with_adapter(TTR("dog", queue=20))
    clf._batch_size = len(many)
    expected = clf.predict([str(source.source) for source in many])
    job = make_job(classifier, [clf.adapter])
    with Store(tmp_path / "rows") as store:
        runner = Runner(job, Local(), store)
        stream = runner.stream(many, lambda source: source, size=len(many), seed=0)
        for (_, rows), prediction in zip(stream, expected, strict=True):
            assert not isinstance(rows, str)
            assert rows[0].prediction.probabilities == pytest.approx(
                prediction.probabilities
            )


def test_an_audit_after_another_batch_size(
    classifier: FairTPTClassifier, sources: list[ImageSource], tmp_path: Path
) -> None:
    names = [source.name for i, source in enumerate(sources) if i not in (BROKEN, COPY)]
    rows = [(name, "cat" if i % 3 else "dog", "land") for i, name in enumerate(names)]
    write_labels(tmp_path / "labels.csv", rows)
    values = Labels(tmp_path, tmp_path / "labels.csv", "animal", ("place",)).scan()

    def audit(batch_size: int, out: str) -> list[str]:
        sized = classifier.with_adapter(ZeroShot())
        sized._batch_size = batch_size
        audit_folder(sized, {"centred": Centred()}, values, tmp_path / out)
        return (tmp_path / out / "predictions.csv").read_text().splitlines()

    first = audit(2, "out")
    second = audit(5, "out")
    assert second == audit(5, "fresh")
    assert second != first
    assert audit(2, "out") == first
