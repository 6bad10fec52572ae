"""Fitting on a folder: once for all methods, parts of chains, and what cannot be fitted there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from checks import picture
from fits import fit_on
from internals import (
    Adapter,
    ImageSource,
    Needs,
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
    """Knows the mean of the reference, as a second stage may."""

    reference: Reference | None = None

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        return {"mean": torch.cat([batch.features for batch in batches]).mean(0)}

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        return ZeroShot().adapt(task, features)

    def adapt_texts(self, task: Task, features: Tensor, texts: Any) -> Outcome:
        return self.adapt(task, features)


@dataclass(frozen=True)
class Labelled(FittedMethod):
    """Cannot do without labels."""

    reference: Reference | None = None
    needs = Needs(sensitive=True, reference=True, reference_sensitive=True)
    _learn, adapt = Centre._learn, Centre.adapt


@dataclass(frozen=True)
class InItsOwnWay(Adapter):
    """Is fitted, but not as the others are."""

    reference: None = None
    needs = Needs(sensitive=True, reference=True)
    adapt = Centre.adapt


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


def test_pictures_are_encoded_once_for_all_methods(
    clf: FairTPTClassifier, folder: Path
) -> None:
    seen: list[int] = []
    model: Any = clf._backend.model  # type: ignore[attr-defined]
    hook = model.vision_model.register_forward_pre_hook(lambda _, args, more: seen.append(1),
                                                        with_kwargs=True)  # fmt: skip
    told: list[tuple[int, int | None]] = []
    adapters: dict[str, Any] = {
        "zero-shot": ZeroShot(), "balance": LogitBalance(), "chain": FairTPT() >> Centre(),
    }  # fmt: skip
    found = fit_on_folder(
        clf, adapters, folder, progress=lambda done, total: told.append((done, total))
    )
    hook.remove()
    assert (
        len(seen) <= 3 + 2
    )  # batches, and the picture by which each method knows the model
    assert told == [(0, None), (3, None), (6, None), (7, None)]
    assert found.adapters["zero-shot"] == ZeroShot()
    pictures = [folder / f"{i}.png" for i in range(7)]
    balance, chain = fit_on(LogitBalance(), clf, pictures), found.adapters["chain"]
    ours: Any = found.adapters["balance"]
    for name, value in balance.reference.tensors.items():  # type: ignore[union-attr]
        torch.testing.assert_close(
            ours.reference.tensors[name], value, rtol=1e-4, atol=1e-5
        )
    assert chain.then.reference.images == 7  # type: ignore[attr-defined]
    assert found.provenance["images"] == 7
    assert found.provenance["methods"] == ["balance", "chain"]
    assert [("broken.png" in text) for text in found.left_out] == [True]


def test_the_digest_is_of_contents_whatever_their_names(
    clf: FairTPTClassifier, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    for i in range(7):
        (other / f"{9 - i}.png").write_bytes((folder / f"{i}.png").read_bytes())
    digests = {
        fit_on_folder(clf, {"b": LogitBalance()}, f).provenance["sha256"]
        for f in (folder, other)
    }
    assert len(digests) == 1


def test_what_was_learnt_goes_to_other_processes(
    clf: FairTPTClassifier, folder: Path
) -> None:
    balance = fit_on(LogitBalance(), clf, [picture(i) for i in range(9)])
    job = make_job(clf, [balance], "miniature")
    unit = WorkUnit((ImageSource("x", str(folder / "3.png")),), 0, job.queries())
    sent = pickle.loads(pickle.dumps(job))
    assert sent.adapters == job.adapters
    assert sent.digests == job.digests
    (answers,) = start_worker(sent, torch.get_num_threads())(unit)()
    assert not isinstance(answers, str)
    (answer,) = answers
    expected = clf.with_adapter(balance).predict(folder / "3.png")
    assert answer.prediction.probabilities == pytest.approx(
        expected.probabilities, abs=1e-4
    )
    other = make_job(
        clf, [fit_on(LogitBalance(), clf, [picture(i) for i in range(8)])], "miniature"
    )
    assert other.digests[:2] == job.digests[:2]
    assert other.digests[2] != job.digests[2]


def test_shared_pictures_are_known_by_content(
    clf: FairTPTClassifier, folder: Path
) -> None:
    path = folder / "3.png"
    padded = folder / "padded"  # as long as another, and not the same
    padded.write_bytes(path.read_bytes()[:-1] + b"?")
    asked = [ImageSource("x", str(p)) for p in (path, padded, folder / "missing")]
    methods = {"b": LogitBalance()}
    found = fit_on_folder(clf, methods, folder, asked, reference_is_data=True)
    assert found.provenance["shared"] == 1
    with pytest.raises(FairTTAError, match=r"has 1 of the images to be classified"):
        fit_on_folder(clf, methods, folder, asked)


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        (
            Labelled(),
            r"'m' needs the attribute values of its reference images, .*sensitive=values",
        ),
        (InItsOwnWay(), "'m' cannot be fitted on a folder: no FittedMethod"),
        (ZeroShot(), r"a reference goes with a method that is to be fitted \(got m\)"),
    ],
)
def test_what_cannot_be_fitted_on_a_folder(
    clf: FairTPTClassifier, folder: Path, adapter: Any, message: str
) -> None:
    with pytest.raises(FairTTAError, match=message):
        fit_adapters(clf, {"m": adapter}, folder, list)


def test_without_a_folder_methods_are_cross_fitted(
    clf: FairTPTClassifier, folder: Path
) -> None:
    sources = [ImageSource(path.name, str(path)) for path in sorted(folder.iterdir())]
    methods = {"z": ZeroShot(), "m": LogitBalance()}
    found = fit_adapters(clf, methods, None, lambda: sources)
    assert [type(one).__name__ for one in found.adapters.values()] == [
        "ZeroShot",
        "CrossFitted",
    ]
    assert found.notes[0].startswith("m: cross-fitted on these 7 images without labels")
    settings = describe_adapter(found.adapters["m"])["settings"]["fits"]["settings"]
    assert (settings["folds"], settings["images"]) == (5, 7)
    job = make_job(clf, found.adapters.values(), "miniature")
    unit = WorkUnit(tuple(sources[:7]), 0, job.queries())
    sent = pickle.loads(pickle.dumps(job))
    answers = start_worker(sent, torch.get_num_threads())(unit)()
    expected = clf.with_adapter(found.adapters["m"]).predict(
        [s.source for s in sources[:7]]
    )
    for rows, one in zip(answers, expected, strict=True):
        assert rows[1].prediction.probabilities == pytest.approx(  # type: ignore[union-attr]
            one.probabilities, abs=1e-5
        )


def test_an_image_that_the_model_fails_on_is_left_out(
    clf: FairTPTClassifier, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture(9).resize((5, 40)).save(folder / "odd.png")
    encode = clf.encode

    def fail(images: Any, **more: Any) -> Tensor:
        if any(image.size == (5, 40) for image in images):
            raise RuntimeError("no such shape")
        return encode(images, **more)

    monkeypatch.setattr(clf, "encode", fail)
    found = fit_on_folder(clf, {"b": LogitBalance()}, folder)
    assert found.provenance["images"] == 7
    assert (
        "cannot use this image of 5 x 40 pixels (RuntimeError: no such"
        in found.left_out[1]
    )


def test_unfitted_methods_are_refused_before_any_work(clf: FairTPTClassifier) -> None:
    with pytest.raises(
        FairTTAError, match="'m' needs the attribute values of its reference"
    ):
        fit_adapters(clf, {"m": Labelled()}, None, list)
    with pytest.raises(FairTTAError, match="LogitBalance has not been fitted"):
        clf.examine(iter([]), [LogitBalance()])
