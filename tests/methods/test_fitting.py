"""One way to be fitted, for every method: with and without labels, checked, saved, found again."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from checks import picture
from fits import fit_on, fit_on_features, save
from internals import (
    Adapter,
    FairTPT,
    Needs,
    ReferenceBatch,
    UsesTexts,
    _reference_digest,
    check_adapter,
)
from random_task import DIM, EncodedClassifier, random_units, task_of
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from fair_tta import FairTPTClassifier, FairTTAError, Features, LogitBalance, ZeroShot
from fair_tta.errors import ModelError, PromptError, SmallReferenceWarning
from fair_tta.extend import FittedMethod, Outcome, Reference, Task
from fair_tta.methods import BalancedHead, load_adapter

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")


@dataclass(frozen=True)
class GroupMeans(FittedMethod, UsesTexts):
    """Takes the mean of an image's perceived group from it: the whole of a method with labels."""

    strength: float = 1.0
    power: int = 1
    notes: tuple[str, ...] = ()
    reference: Reference | None = None
    needs = Needs(sensitive=True, reference=True, reference_sensitive=True)
    _recommended_images: ClassVar[int] = 5
    _fit_settings: ClassVar[tuple[str, ...]] = ("power",)

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        sums = {
            a: torch.zeros(len(names), DIM).double()
            for a, names in task.sensitive.items()
        }
        counts = {a: torch.zeros(len(names), 1) for a, names in task.sensitive.items()}
        for batch in batches:
            for a, indices in batch.values.items():
                sums[a].index_add_(0, indices, batch.features**self.power)
                counts[a].index_add_(0, indices, torch.ones(len(indices), 1))
        means = {f"means.{a}": sums[a] / counts[a] for a in sums}
        return means | {f"counts.{a}": n.flatten().long() for a, n in counts.items()}

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        return ZeroShot().adapt(task, features)

    def adapt_texts(self, task: Task, features: Tensor, texts: Any) -> Outcome:
        return self.adapt(task, features)


def classifier(values: tuple[int, ...] = (2,)) -> EncodedClassifier:
    sensitive = {f"s{i}": random_units(i + 1, n, DIM) for i, n in enumerate(values)}
    return EncodedClassifier(task_of(random_units(0, 3, DIM), sensitive))


FEATURES = random_units(7, 9, 1, DIM)
LABELS = ["s0 0", "s0 1", "s0 1"] * 3


def test_learns_of_labelled_images() -> None:
    method = fit_on(GroupMeans(), classifier(), list(FEATURES), LABELS)
    assert method.reference is not None
    learned = method.reference.tensors
    assert learned["counts.s0"].tolist() == [3, 6]
    torch.testing.assert_close(learned["means.s0"][0], FEATURES[::3, 0].mean(0))
    in_batches = fit_on_features(
        GroupMeans(), classifier(), iter(FEATURES.split(2)), {"s0": LABELS}
    )
    torch.testing.assert_close(
        in_batches.reference and in_batches.reference.tensors, learned
    )
    two = fit_on_features(
        GroupMeans(),
        classifier((2, 3)),
        FEATURES,
        {"s1": ["s1 2", "s1 0", "s1 1"] * 3, "s0": iter(LABELS)},
    )
    assert two.reference is not None
    assert two.reference.tensors["counts.s1"].tolist() == [3, 3, 3]
    torch.testing.assert_close(
        two.reference.tensors["means.s1"][2], FEATURES[::3, 0].mean(0)
    )


def test_only_where_reference_features_point_to_counts() -> None:
    unit = fit_on_features(GroupMeans(), classifier(), FEATURES, LABELS)
    scales = torch.linspace(0.1, 30, len(FEATURES))[:, None, None]
    scaled = fit_on_features(GroupMeans(), classifier(), FEATURES * scales, LABELS)
    assert unit.reference is not None
    assert scaled.reference is not None
    torch.testing.assert_close(scaled.reference.tensors, unit.reference.tensors)


def test_what_is_prepared_is_as_the_task_is() -> None:
    clf = classifier()
    method = fit_on_features(GroupMeans(), clf, FEATURES, LABELS)
    task = task_of(
        clf._task.target_features.float(), {"s0": clf._task.sensitive_features["s0"]}
    )
    prepared = method._prepared(task)
    assert prepared["means.s0"].dtype == torch.float32
    assert prepared["counts.s0"].dtype == torch.int64
    assert method._prepared(task) is prepared  # prepared once


@pytest.mark.parametrize("labels", [LABELS[:8], [*LABELS, "s0 1"]])
def test_as_many_labels_as_images(labels: list[str]) -> None:
    """A list of images is counted before any is read, other iterables while they pass."""
    message = rf"for each of 9 images \(got {len(labels)}\)"
    for images in (list(FEATURES), iter(FEATURES)):
        with pytest.raises(FairTTAError, match=message):
            fit_on(GroupMeans(), classifier(), images, labels)
    with pytest.raises(FairTTAError, match=message):
        fit_on_features(GroupMeans(), classifier(), FEATURES.split(4), labels)


def test_unknown_labels_are_found_before_any_image_is_read() -> None:
    def unread() -> Iterator[Tensor]:
        raise AssertionError("no image should be read")
        yield

    with pytest.raises(FairTTAError, match="should be among"):
        fit_on(GroupMeans(), classifier(), unread(), ["s0 9"] * 9)


def test_labels_that_run_out() -> None:
    with pytest.raises(FairTTAError, match=r"for each of 8 images \(got 6\)"):
        fit_on_features(GroupMeans(), classifier(), FEATURES.split(4), LABELS[:6])


def test_few_images_warn_by_the_methods_own_measure() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_on_features(GroupMeans(), classifier(), FEATURES, LABELS)
    with pytest.warns(
        SmallReferenceWarning, match="GroupMeans was fitted on 4 images; .* than 5 "
    ):
        fit_on_features(GroupMeans(), classifier(), FEATURES[:4], LABELS[:4])


def test_needs_names() -> None:
    with pytest.raises(
        PromptError, match="GroupMeans needs sensitive attribute values"
    ):
        fit_on_features(GroupMeans(), classifier(()), FEATURES, LABELS)


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "means.safetensors"
    method = fit_on_features(
        GroupMeans(0.5, 2, ("a", "b")), classifier(), FEATURES, LABELS
    )
    save(method, path)
    loaded = load_adapter(path, GroupMeans)
    assert loaded == method == pickle.loads(pickle.dumps(method))
    assert hash(loaded) == hash(method)
    assert loaded.notes == ("a", "b")
    text = path.read_bytes().replace(b"\\", b"")
    for part in (
        b'"method": "GroupMeans"',
        b'"power": 2',
        b'"images": 9',
        b'"random numbers"',
    ):
        assert part in text
    with pytest.raises(
        FairTTAError, match=r"is of the method GroupMeans, not of LogitBalance\."
    ):
        load_adapter(path, LogitBalance)
    with pytest.raises(
        FairTTAError, match=r"is of the method GroupMeans, not of .*LogitBalance"
    ):
        load_adapter(path)  # it knows the classes of this library only


def test_saved_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "means.safetensors"
    method = fit_on_features(GroupMeans(), classifier(), FEATURES, LABELS)
    save(method, path)
    before = path.read_bytes()

    def full(_: Path, data: bytes) -> int:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space"):
        save(replace(method, strength=2.0), path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


def test_any_method_of_the_library_is_loaded_by_its_file(tmp_path: Path) -> None:
    balance = fit_on_features(LogitBalance(strength=1.25), classifier(), FEATURES)
    save(balance, tmp_path / "balance.safetensors")
    assert load_adapter(tmp_path / "balance.safetensors") == balance
    with pytest.raises(FairTTAError, match=r"there is no file .*: check the path"):
        load_adapter(tmp_path / "nothing")


def test_settings_that_belong_to_what_was_learnt() -> None:
    clf = classifier()
    method = fit_on_features(GroupMeans(power=2), clf, FEATURES, LABELS)
    replace(method, strength=3.0)._prepared(clf._task)
    with pytest.raises(FairTTAError, match="fit it again"):
        replace(method, power=3)._prepared(clf._task)


@pytest.mark.parametrize(
    ("method", "call"),
    [
        (LogitBalance(), "clf.fit(images)"),
        (BalancedHead(), "clf.fit(images, labels)"),
        (GroupMeans(), "clf.fit(images, sensitive=values)"),
        (FairTPT() >> GroupMeans(), "clf.fit(images, sensitive=values)"),
    ],
)
def test_an_unfitted_method_is_held_and_refused_when_it_should_answer(
    tmp_path: Path, method: Any, call: str
) -> None:
    constructed = FairTPTClassifier(
        "miniature", ["cat", "dog"], ["day", "night"], adapter=method
    )
    clf = FairTPTClassifier(
        constructed._backend, ["cat", "dog"], ["day", "night"], adapter="zero-shot"
    )
    clf = clf.with_adapter(method)
    assert clf.adapter == constructed.adapter == method
    for use in (
        lambda: clf.predict(picture()),
        lambda: clf.predict([picture()]),
        lambda: clf.predict([]),
        lambda: clf.predict(iter([picture()])),
        lambda: clf.predict_proba([picture()]),
        lambda: clf.export(tmp_path / "x"),
        lambda: clf.save(tmp_path / "x"),
        lambda: clf.audit([picture()], ["cat"], ["day"]),
        lambda: clf.examine([picture()], {"method": method}),
    ):
        with pytest.raises(
            FairTTAError, match=re.escape(f"has not been fitted: call `{call}`")
        ):
            use()
    assert not [*tmp_path.iterdir()]


def test_fit_changes_its_own_classifier_and_no_other() -> None:
    balance = LogitBalance(strength=1.0)
    clf = FairTPTClassifier(
        "miniature", ["cat", "dog"], ["day", "night"], adapter=balance
    )
    images = [picture(i) for i in range(9)]
    untouched = clf.with_adapter(balance)
    assert clf.fit(images) is clf
    assert balance.reference is None
    assert untouched.adapter is balance
    assert clf.adapter == fit_on(balance, untouched, images)
    first = clf.adapter
    assert clf.fit(images[:5]).adapter != first  # anew, and from these alone
    assert clf.adapter.reference is not None
    assert clf.adapter.reference.images == 5
    assert untouched.with_adapter("logit-balance").fit(images).adapter.strength == 1.5  # type: ignore[attr-defined]


def test_fit_takes_images_their_features_and_what_encode_returns() -> None:
    clf = FairTPTClassifier(
        "miniature", ["cat", "dog"], ["day", "night"], adapter="logit-balance"
    )
    clf = clf.with_views(4)
    images = [picture(i) for i in range(9)]
    inputs = [
        images,
        iter(images),
        Features(clf.encode(images)),
        Features(clf.encode(images, with_views=False)),
        Features(clf.encode(images).numpy()[:, 0]),
    ]
    first, *further = (
        clf.with_adapter("logit-balance").fit(images_or_features).adapter
        for images_or_features in inputs
    )
    assert first.reference is not None
    for fitted_method in further:
        assert fitted_method.reference is not None
        torch.testing.assert_close(
            fitted_method.reference.tensors, first.reference.tensors
        )


def test_a_chain_learns_in_the_part_that_can() -> None:
    case, chain = classifier(), FairTPT() >> GroupMeans()
    first, second = fit_on(chain, case, list(FEATURES), LABELS).parts
    assert first == FairTPT()
    assert second == fit_on(GroupMeans(), case, list(FEATURES), LABELS)
    with pytest.raises(
        FairTTAError, match="`sensitive` should be the value of each image, bec"
    ):
        fit_on(chain, case, list(FEATURES))


def test_a_method_is_saved_and_is_an_adapter_by_its_path(tmp_path: Path) -> None:
    clf = FairTPTClassifier(
        "miniature", ["cat", "dog"], ["day", "night"], adapter="logit-balance"
    )
    path = tmp_path / "fitted.safetensors"
    clf.fit([picture(i) for i in range(9)]).save(path)
    for given in (path, str(path), load_adapter(path)):
        assert clf.with_adapter(given).adapter == clf.adapter
        again = FairTPTClassifier(
            clf._backend, clf.targets, ["day", "night"], adapter=given
        )
        assert again.predict([picture(3)]).labels == clf.predict([picture(3)]).labels
    with pytest.raises(FairTTAError, match="was fitted with another `targets`"):
        FairTPTClassifier(clf._backend, ["cat", "bird"], ["day", "night"], adapter=path)
    with pytest.raises(
        FairTTAError, match=r"there is no file .*nothing\.safetensors': check"
    ):
        clf.with_adapter("nothing.safetensors")
    clf.with_adapter(ZeroShot()).save(path)
    assert clf.with_adapter(path).adapter == ZeroShot()


@dataclass(frozen=True)
class ByItself(Adapter):
    """Fitted in a way of its own."""

    reference: str | None = None
    needs = Needs(reference=True)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        return ZeroShot().adapt(task, features)


def test_other_ways_to_be_fitted() -> None:
    with pytest.raises(
        FairTTAError, match="ByItself has not been fitted: pass one that"
    ):
        check_adapter(ByItself(), classifier()._task)._check_ready()
    check_adapter(ByItself("much"), classifier()._task)
    assert [x.is_fitted for x in (ByItself(), ByItself("much"), ZeroShot())] == [
        False,
        True,
        True,
    ]


def test_weights_that_change_meanwhile() -> None:
    clf = FairTPTClassifier(
        "miniature", ["cat", "dog"], ["day", "night"], adapter=ZeroShot(), batch_size=2
    )

    def pictures() -> Iterator[Any]:
        for i in range(6):
            if i == 3:
                clf.forget()
            yield picture(i)

    with pytest.raises(
        ModelError, match=r"the weights of .* changed during `fit`: fit again"
    ):
        fit_on(LogitBalance(), clf, pictures())


@dataclass(frozen=True)
class Broken(FittedMethod):
    """Learns what is no number."""

    reference: Reference | None = None

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        return {"x": torch.full((len([*batches]),), torch.nan)}

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        raise AssertionError


def test_what_is_learnt_should_be_numbers() -> None:
    with pytest.raises(
        ModelError, match="what Broken has learned is not finite; if random numbers"
    ):
        fit_on_features(Broken(), classifier(), FEATURES)
    with pytest.raises(
        FairTTAError, match=r"what `encode` returns, \[images, views, 24\] \(got"
    ):
        fit_on_features(Broken(), classifier(), [[1.0]])


@pytest.mark.parametrize(
    "change",
    [
        {"images": "many"}, {"scale": []}, {"prompts": 3}, {"prompts": {"=1": 2}}, {"model": None},
        {"settings": {"strength": 10**400}},
    ],
)  # fmt: skip
def test_files_whose_checksum_is_right_but_not_their_content(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    clf = classifier()
    save(fit_on_features(LogitBalance(), clf, FEATURES), tmp_path / "x")
    with safe_open(tmp_path / "x", "pt") as file:
        about = json.loads(file.metadata()["about"]) | change
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del about["sha256"]
    about["sha256"] = _reference_digest(about, tensors)
    save_file(tensors, tmp_path / "x", metadata={"about": json.dumps(about)})
    with pytest.raises(FairTTAError, match=r"fit( it)? again"):
        check_adapter(load_adapter(tmp_path / "x"), clf._task).adapt(
            clf._task, FEATURES
        )
