"""Fitting on reference images: once for all methods, parts of chains, and on folds."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from checks import picture
from fits import fit_on
from internals import (
    ImageSource,
    Job,
    ReferenceBatch,
    UsesTexts,
    WorkUnit,
    describe_adapter,
    fit_adapters,
    fit_on_folder,
    make_job,
    start_worker,
)
from torch import Tensor

from fair_tta import FairTPT, FairTPTClassifier, FairTTAError, LogitBalance, ZeroShot
from fair_tta.extend import FittedMethod, Outcome, Reference, Task

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")


@dataclass(frozen=True)
class Centre(FittedMethod, UsesTexts):
    """A second stage that is fitted: it knows the mean of the reference."""

    reference: Reference | None = None

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        return {"mean": torch.cat([batch.features for batch in batches]).mean(0)}

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        return ZeroShot().adapt(task, features)

    def adapt_texts(self, task: Task, features: Tensor, texts: Any) -> Outcome:
        return self.adapt(task, features)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(7):
        picture(i).save(tmp_path / f"{i}.png")
    (tmp_path / "broken.png").write_bytes(b"nonsense")
    return tmp_path


@pytest.fixture(scope="module")
def clf() -> FairTPTClassifier:
    return FairTPTClassifier(
        "miniature", ["cat", "dog"], ["day", "night"], adapter=ZeroShot(), batch_size=3
    )


def send(job: Job) -> tuple[Job, Callable[[WorkUnit], Any]]:
    """The job as another process receives it, and its worker there."""
    sent = pickle.loads(pickle.dumps(job))
    begin = start_worker(sent, torch.get_num_threads())
    return sent, lambda unit: begin(unit)()


def test_images_are_encoded_once_for_all_methods(
    clf: FairTPTClassifier, folder: Path
) -> None:
    passes: list[None] = []
    progress: list[tuple[int, int | None]] = []
    model: Any = clf._backend.model  # type: ignore[attr-defined]
    hook = model.vision_model.register_forward_pre_hook(lambda *_: passes.append(None))
    adapters: dict[str, Any] = {
        "zero-shot": ZeroShot(),
        "balance": LogitBalance(),
        "chain": FairTPT() >> Centre(),
    }
    fitted = fit_on_folder(
        clf, adapters, folder, progress=lambda *counts: progress.append(counts)
    )
    hook.remove()
    # three batches, and the image by which each method knows the model
    assert len(passes) <= 3 + 2
    assert progress == [(0, None), (3, None), (6, None), (7, None)]
    assert fitted.adapters["zero-shot"] == ZeroShot()
    alone: Any = fit_on(LogitBalance(), clf, [folder / f"{i}.png" for i in range(7)])
    balance: Any = fitted.adapters["balance"]
    for name, tensor in alone.reference.tensors.items():
        ours = balance.reference.tensors[name]
        torch.testing.assert_close(ours, tensor, rtol=1e-4, atol=1e-5)
    chain: Any = fitted.adapters["chain"]
    assert chain.then.reference.images == 7
    assert fitted.provenance["images"] == 7
    assert fitted.provenance["methods"] == ["balance", "chain"]
    (left_out,) = fitted.left_out
    assert "broken.png" in left_out


def test_the_digest_is_of_contents_whatever_their_names(
    clf: FairTPTClassifier, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    renamed = tmp_path_factory.mktemp("renamed")
    for i in range(7):
        (renamed / f"{9 - i}.png").write_bytes((folder / f"{i}.png").read_bytes())
    first, second = (
        fit_on_folder(clf, {"b": LogitBalance()}, reference).provenance["sha256"]
        for reference in (folder, renamed)
    )
    assert first == second


def test_fitted_methods_go_to_other_processes(
    clf: FairTPTClassifier, folder: Path
) -> None:
    balance = fit_on(LogitBalance(), clf, [picture(i) for i in range(9)])
    job = make_job(clf, [balance], "miniature")
    sent, work = send(job)
    assert sent.adapters == job.adapters
    assert sent.digests == job.digests
    source = ImageSource("x", str(folder / "3.png"))
    (rows,) = work(WorkUnit((source,), 0, job.queries()))
    expected = clf.with_adapter(balance).predict(folder / "3.png").probabilities
    assert rows[0].prediction.probabilities == pytest.approx(expected, abs=1e-4)
    unlike = fit_on(LogitBalance(), clf, [picture(i) for i in range(8)])
    *model_and_questions, methods = make_job(clf, [unlike], "miniature").digests
    assert model_and_questions == list(job.digests[:2])
    assert methods != job.digests[2]


def test_shared_images_are_known_by_content(
    clf: FairTPTClassifier, folder: Path
) -> None:
    path = folder / "3.png"
    same_size = folder / "same size"
    same_size.write_bytes(path.read_bytes()[:-1] + b"?")
    images = [ImageSource("x", str(p)) for p in (path, same_size, folder / "missing")]
    methods = {"b": LogitBalance()}
    fitted = fit_on_folder(clf, methods, folder, images, reference_is_data=True)
    assert fitted.provenance["shared"] == 1
    with pytest.raises(FairTTAError, match=r"has 1 of the images to be classified"):
        fit_on_folder(clf, methods, folder, images)


def test_without_a_folder_methods_are_cross_fitted(
    clf: FairTPTClassifier, folder: Path
) -> None:
    sources = [ImageSource(path.name, str(path)) for path in sorted(folder.iterdir())]
    methods = {"z": ZeroShot(), "m": LogitBalance()}
    fitted = fit_adapters(clf, methods, None, lambda: sources)
    assert fitted.adapters["z"] == ZeroShot()
    assert fitted.notes[0].startswith(
        "m: cross-fitted on these 7 images without labels"
    )
    crossed = fitted.adapters["m"]
    settings = describe_adapter(crossed)["settings"]["fits"]["settings"]
    assert (settings["folds"], settings["images"]) == (5, 7)
    job = make_job(clf, fitted.adapters.values(), "miniature")
    _, work = send(job)
    unit = WorkUnit(tuple(sources[:7]), 0, job.queries())
    predictions = clf.with_adapter(crossed).predict([s.source for s in sources[:7]])
    for rows, prediction in zip(work(unit), predictions, strict=True):
        expected = pytest.approx(prediction.probabilities, abs=1e-5)
        assert rows[1].prediction.probabilities == expected


def test_an_image_that_the_model_fails_on_is_left_out(
    clf: FairTPTClassifier, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture(9).resize((5, 40)).save(folder / "odd.png")
    encode = clf.encode

    def fail(images: Any, **options: Any) -> Tensor:
        if any(image.size == (5, 40) for image in images):
            raise RuntimeError("no such shape")
        return encode(images, **options)

    monkeypatch.setattr(clf, "encode", fail)
    fitted = fit_on_folder(clf, {"b": LogitBalance()}, folder)
    assert fitted.provenance["images"] == 7
    reason = "cannot use this image of 5 x 40 pixels (RuntimeError: no such"
    assert reason in fitted.left_out[1]
