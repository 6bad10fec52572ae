"""The three lines of the contract."""

from __future__ import annotations

import io
import itertools
import math
import re
import time
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import families
import numpy as np
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from fits import fit_on_features
from internals import Task
from PIL import Image
from torch import Tensor

from fair_tta import (
    TPT,
    FairTPTClassifier,
    FairTTAError,
    Features,
    LogitBalance,
    Prediction,
    Templates,
    Zero,
    ZeroShot,
)
from fair_tta.errors import ImageError, PromptError, SmallGroupWarning
from fair_tta.extend import Adapter, AugMix, Cache, Needs, Outcome, task_of
from fair_tta.models import TransformersBackend
from fair_tta.prediction import Predictions


@pytest.fixture(scope="module")
def backend() -> TransformersBackend:
    return TransformersBackend(*families.seeded(families.clip))


@pytest.fixture(scope="module")
def clf(backend: TransformersBackend) -> FairTPTClassifier:
    return FairTPTClassifier(
        backend, TARGETS, SENSITIVE, TEMPLATE, adapter=ZeroShot(), batch_size=2
    )


@dataclass(frozen=True)
class Moves(Adapter):
    """Puts a given probability on the first class."""

    probability: float = 0.9
    needs = Needs(sensitive=True)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        outcome = ZeroShot().adapt(task, features)
        remaining = (1 - self.probability) / (len(task.targets) - 1)
        moved = torch.full_like(outcome.probabilities, remaining)
        moved[:, 0] = self.probability
        notes = tuple(("a note",) for _ in features)
        return Outcome(moved, outcome.sensitive, warnings=notes)


def test_a_prediction_says_it_all(clf: FairTPTClassifier) -> None:
    p = clf.predict(picture())
    assert isinstance(p, Prediction)
    assert list(p.probabilities) == list(TARGETS)
    assert p.label == max(p.probabilities, key=p.probabilities.__getitem__)
    assert p.probabilities == p.zero_shot
    assert set(p.sensitive["place"]) == {"water", "land"}
    assert p.sensitive == p.sensitive_zero_shot
    for probabilities, entropy in (
        (p.probabilities, p.entropy),
        (p.zero_shot, p.entropy_zero_shot),
        (p.sensitive["place"], p.sensitive_entropy["place"]),
        (p.sensitive_zero_shot["place"], p.sensitive_entropy_zero_shot["place"]),
    ):
        values = list(probabilities.values())
        assert sum(values) == pytest.approx(1, abs=1e-5)
        expected = -sum(v * math.log(v) for v in values) / math.log(len(values))
        assert entropy == pytest.approx(expected, abs=1e-5)
    assert p.distance == 0
    assert p.certified_unchanged
    assert not p.flipped
    assert p.learning_rate is None
    assert p.views_kept is None
    assert p.warnings == ()
    assert str(p).startswith(p.label)
    with pytest.raises(FrozenInstanceError):
        p.label = "other"  # type: ignore[misc]


def test_to_dict_has_the_shape_of_the_pipeline(clf: FairTPTClassifier) -> None:
    rows = clf.predict(picture()).to_dict()
    assert [set(row) for row in rows] == [{"score", "label"}] * 3
    scores = [row["score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all(type(score) is float for score in scores)


def test_an_adapters_answer_stands_beside_zero_shots(clf: FairTPTClassifier) -> None:
    plain, moved = (
        clf.predict(picture()),
        clf.with_adapter(Moves(0.9)).predict(picture()),
    )
    assert moved.zero_shot == plain.probabilities
    assert moved.probabilities["cat"] == pytest.approx(0.9)
    assert moved.label == "cat"
    assert moved.flipped == (plain.label != "cat")
    assert moved.warnings == ("a note",)
    p, q = (
        np.array(list(moved.zero_shot.values())),
        np.array(list(moved.probabilities.values())),
    )
    assert moved.distance == pytest.approx(np.abs(p - q).sum() / 2, abs=1e-6)
    top = np.sort(p)[::-1]
    assert moved.flip_margin == pytest.approx((top[0] - top[1]) / 2, abs=1e-6)
    assert moved.certified_unchanged == (moved.distance < moved.flip_margin)


@dataclass(frozen=True)
class Flat(Adapter):
    """The natural adapter: it knows the targets' probabilities and nothing else."""

    outcome: Any = None

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        if self.outcome is not None:
            return self.outcome  # type: ignore[no-any-return]
        log_p = task.log_probabilities(features[:, 0], task.target_features / 2)
        return Outcome(log_p.exp())


def test_a_small_adapter_keeps_the_zero_shot_sensitive_values(
    clf: FairTPTClassifier,
) -> None:
    small = clf.with_adapter(Flat()).predict([picture(0), picture(1)])
    for prediction, plain in zip(
        small, clf.predict([picture(0), picture(1)]), strict=True
    ):
        assert prediction.sensitive == prediction.sensitive_zero_shot == plain.sensitive
        assert prediction.sensitive_entropy == plain.sensitive_entropy
        assert prediction.probabilities != plain.probabilities


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (torch.ones(1, 3) / 3, r"Flat.adapt should return an Outcome \(got a Tensor\)"),
        (
            Outcome(torch.ones(3) / 3),
            r"Flat.*`probabilities` of shape \[1, 3\] .*got \[3\]",
        ),
        (
            Outcome(torch.ones(1, 2) / 2),
            r"`probabilities` of shape \[1, 3\] \(got \[1, 2\]\)",
        ),
        (Outcome([[1, 0, 0]]), r"`probabilities` of shape \[1, 3\] \(got a list\)"),  # type: ignore[arg-type]
        (
            Outcome(torch.tensor([[3.0, -1, 2]])),
            "`probabilities` that are not negative and sum to",
        ),
        (
            Outcome(torch.ones(1, 3) / 3, {"place": torch.ones(1, 3) / 3}),
            r"`sensitive\['place'\]` of shape \[1, 2\] \(got \[1, 3\]\)",
        ),
        (
            Outcome(torch.ones(1, 3) / 3, {"age": torch.ones(1, 2) / 2}),
            r"for attributes among \['place'\] \(got \['age'\]\)",
        ),
        (
            Outcome(torch.ones(1, 3) / 3, learning_rate=torch.tensor(0.1)),
            r"`learning_rate` of shape \[1\] \(got \[\]\)",
        ),
        (
            Outcome(torch.ones(1, 3) / 3, warnings=((), ())),
            "`warnings` as a tuple of texts for each of 1 images, or none",
        ),
    ],
)
def test_an_outcome_that_does_not_fit_is_named(
    clf: FairTPTClassifier, outcome: Any, message: str
) -> None:
    with pytest.raises(FairTTAError, match=message):
        clf.with_adapter(Flat(outcome)).predict(picture())


class Uniform(Adapter):
    def adapt(self, task: Task, features: Tensor) -> Outcome:
        targets = len(task.targets)
        return Outcome(torch.full((len(features), targets), 1 / targets))


def test_a_method_in_five_lines(clf: FairTPTClassifier) -> None:
    p = clf.with_adapter(Uniform()).predict(picture())
    assert list(p.probabilities.values()) == pytest.approx([1 / 3] * 3)
    assert p.sensitive == clf.predict(picture()).sensitive


def test_what_is_not_an_adapter(clf: FairTPTClassifier) -> None:
    class Foreign:
        adapt = Uniform.adapt

    for wrong in (ZeroShot, 3):
        with pytest.raises(
            FairTTAError, match=r"an instance of a method, such as ZeroShot\(\)"
        ):
            clf.with_adapter(wrong)  # type: ignore[arg-type]
    with pytest.raises(
        FairTTAError, match=r"should inherit from fair_tta\.extend\.Adapter"
    ):
        clf.with_adapter(Foreign())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "views", [AugMix(5), AugMix(1), [picture(1)], lambda i, g: [i]]
)
def test_no_images_have_features_too(backend: TransformersBackend, views: Any) -> None:
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, views=views)
    for with_views in (True, False):
        views_some, none = (
            clf.encode([picture()], with_views=with_views),
            clf.encode([], with_views=with_views),
        )
        counted = with_views and not (callable(views) and not hasattr(views, "n"))
        assert none.shape == (
            0,
            views_some.shape[1] if counted else 1,
            views_some.shape[2],
        )
        assert (none.dtype, none.device) == (views_some.dtype, views_some.device)
        assert clf.predict(Features(none)) == []


@pytest.mark.parametrize(
    ("features", "got"),
    [
        (torch.zeros(3), "[3]"),
        (torch.zeros(2, 0, 16), "[2, 0, 16]"),
        (torch.zeros(2, 1, 5), "[2, 1, 5]"),
        ([[1.0]], "list"),
    ],
)
def test_features_that_are_none_of_ours(
    clf: FairTPTClassifier, features: Any, got: str
) -> None:
    with pytest.raises(FairTTAError) as error:
        clf._predict_encoded(features)
    dim = clf.encode([picture()]).shape[2]
    should = f"or what `encode` returns, [images, views, {dim}] (got {got})."
    assert str(error.value) == f"`features` should be [images, {dim}], {should}"
    with pytest.raises(FairTTAError, match=re.escape(should.partition(" (got")[0])):
        fit_on_features(LogitBalance(), clf, features)


def test_only_where_features_point_to_counts(backend: TransformersBackend) -> None:
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(4))
    features = clf.encode([picture(0), picture(1)])
    expected = clf._predict_encoded(features)
    assert expected == clf.predict([picture(0), picture(1)])
    scales = torch.tensor([1.0009, 1e-30, 1e25, 1.0])[None, :, None]
    for actual, expected_row in zip(
        clf._predict_encoded(features * scales), expected, strict=True
    ):
        assert actual.probabilities == pytest.approx(
            expected_row.probabilities, abs=1e-4
        )
        assert actual.zero_shot == pytest.approx(expected_row.zero_shot, abs=1e-6)


def test_one_image_is_no_list(clf: FairTPTClassifier) -> None:
    images: Any = picture()
    with pytest.raises(
        ImageError, match=r"should be a list of images \(got one\): encode\(\["
    ):
        clf.encode(images)


def test_a_line_break_in_the_template_is_a_space_like_any(
    backend: TransformersBackend,
) -> None:
    template = "a photo\nof a {target}\n{sensitive}: now."
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, template, adapter=ZeroShot())
    with pytest.warns(SmallGroupWarning):
        audit = clf.audit(
            [picture(i) for i in range(2)], ["cat", "dog"], ["water", "land"]
        )
    assert audit.to_dict()["provenance"]["prompts"]["template"] == {
        "target": "a photo\nof a {target}: now.",
        "sensitive": "a photo\nof a {sensitive}: now.",
        "joint": template,
    }


def test_sensitive_names_find_a_place_in_the_default_template(
    backend: TransformersBackend,
) -> None:
    clf = FairTPTClassifier(backend, ["cat", "dog"], ["male", "female"])
    assert str(clf._task.templates) == str(
        Templates.from_sentence("a photo of a {sensitive} {target}.")
    )
    plain = FairTPTClassifier(backend, ["cat", "dog"])
    assert str(plain._task.templates) == "target: a photo of a {target}."
    expected = plain.predict(picture()).probabilities
    assert clf.predict(picture()).zero_shot == pytest.approx(expected, abs=1e-6)


def test_forget_lets_go_of_everything(backend: TransformersBackend) -> None:
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(3))
    expected = clf.predict(picture())
    kept, task = clf._cache.bytes, clf._task
    assert 0 < kept < clf._cache.limit
    clf._vision.forget()  # of images alone
    assert 0 < clf._cache.bytes < kept
    clf.forget()
    assert len(clf._cache) == clf._cache.bytes == 0
    assert clf._task is not task
    assert clf.predict(picture()) == expected
    assert clf._cache.bytes == kept


def test_what_a_thread_was_at_when_all_was_forgotten_is_not_kept(
    backend: TransformersBackend,
) -> None:
    """It has been made of the weights before."""
    at_work, go_on = Event(), Event()

    def views(image: Any, generator: np.random.Generator) -> list[Any]:
        at_work.set()
        go_on.wait(10)
        return [image]

    clf = FairTPTClassifier(
        backend, TARGETS, SENSITIVE, TEMPLATE, adapter=Zero(), views=views
    )
    thread = Thread(target=clf.predict, args=(picture(),))
    thread.start()
    at_work.wait(10)
    clf.forget()
    go_on.set()
    thread.join(10)
    assert len(clf._cache) == 0


def test_classifiers_may_share_a_cache_or_keep_nothing(
    backend: TransformersBackend,
) -> None:
    shared, nothing = Cache(2**24), Cache(0)
    arguments: Any = {"sensitive": SENSITIVE, "template": TEMPLATE, "views": AugMix(3)}
    separate = FairTPTClassifier(backend, TARGETS, **arguments)
    shared_clf = FairTPTClassifier(backend, TARGETS, **arguments, cache=shared)
    none = FairTPTClassifier(backend, TARGETS, **arguments, cache=nothing)
    expected = separate.predict([picture(0), picture(1)])
    assert shared_clf.predict([picture(0), picture(1)]) == expected
    half = shared.bytes
    two = FairTPTClassifier(
        backend, dict(reversed(TARGETS.items())), **arguments, cache=shared
    )
    two.predict([picture(0), picture(1)])
    assert shared.bytes > half == separate._cache.bytes
    assert shared_clf._cache is shared_clf.with_views(AugMix(1))._cache is shared
    assert none.predict([picture(0), picture(1)]) == expected
    assert nothing.bytes == 0
    shared.clear()
    assert shared_clf.predict([picture(0), picture(1)]) == expected
    wrong: Any = 2**20
    with pytest.raises(FairTTAError, match=r"`cache` should be a Cache .*got 1048576"):
        FairTPTClassifier(backend, TARGETS, cache=wrong)


def test_a_task_does_not_change(clf: FairTPTClassifier) -> None:
    task: Any = clf._task
    with pytest.raises(FrozenInstanceError):
        task.targets = {}
    with pytest.raises(FrozenInstanceError):
        del task.context


def test_numerical_failure_gives_the_zero_shot_answer_and_a_warning(
    clf: FairTPTClassifier,
) -> None:
    failed = clf.with_adapter(Moves(float("nan"))).predict(picture())
    assert (
        failed.probabilities == failed.zero_shot == clf.predict(picture()).probabilities
    )
    assert failed.warnings == (
        "a note",
        "adaptation gave values that are not finite; this is the zero-shot answer",
    )


def test_one_list_and_stream_agree(clf: FairTPTClassifier) -> None:
    pictures = [picture(i, (30 + i, 40)) for i in range(5)]
    batched_answers = clf.predict(pictures)
    assert isinstance(batched_answers, Predictions)
    stream = clf.predict(p for p in pictures)
    assert isinstance(stream, Iterator)
    for single, batched, streamed in zip(
        map(clf.predict, pictures), batched_answers, stream, strict=True
    ):
        assert batched == streamed
        assert single.label == batched.label
        assert single.probabilities == pytest.approx(batched.probabilities, abs=1e-4)
    assert batched_answers == clf.predict(tuple(pictures))
    backwards = clf.predict(pictures[::-1])[::-1]
    for a, b in zip(batched_answers, backwards, strict=True):
        assert a.label == b.label
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-4)
    assert clf.predict([]) == []


def test_a_stream_is_lazy_and_may_be_endless(clf: FairTPTClassifier) -> None:
    count = 0

    def endless() -> Iterator[Any]:
        nonlocal count
        for i in itertools.count():
            count += 1
            yield picture(i)

    stream = clf.predict(endless())
    assert count == 0
    next(stream)
    assert count == clf._batch_size == 2
    for _ in range(4):
        next(stream)
    assert count == 6


def test_a_bad_image_in_a_stream_loses_nothing(
    clf: FairTPTClassifier, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"not a picture")
    got = []
    pictures: list[Any] = [picture(0), picture(1), picture(2), bad, picture(4)]
    with pytest.raises(ImageError, match=r"image 3: .*bad\.jpg"):
        for prediction in clf.predict(iter(pictures)):
            got.append(prediction)
    assert len(got) == 3
    with pytest.raises(ImageError, match=r"bad\.jpg"):
        clf.predict(bad)


def test_images_that_cannot_be_read_may_be_skipped(
    clf: FairTPTClassifier, tmp_path: Path
) -> None:
    zero_shot = clf.with_adapter(ZeroShot())
    prediction, none = zero_shot.predict(picture()), tmp_path / "none.png"
    (tmp_path / "damaged.png").write_bytes(b"no image")
    picture().save(tmp_path / "good.png")
    files = [none, tmp_path / "good.png", tmp_path / "damaged.png"]
    with pytest.warns(
        UserWarning, match=r"^image [02]: cannot read '.*\.png'"
    ) as caught:
        assert zero_shot.predict(files, errors="skip") == [None, prediction, None]
    assert [str(warning.message)[:7] for warning in caught] == ["image 0", "image 2"]
    stream = zero_shot.predict(iter([picture(), b"", picture()]), errors="skip")
    with pytest.warns(UserWarning, match="image 1: "):
        assert list(stream) == [prediction, None, prediction]
    with pytest.warns(UserWarning, match="image 0: "):
        assert zero_shot.predict(none, errors="skip") is None
    assert zero_shot.predict([picture()], errors="skip") == [prediction]
    wrong: Any = "ignore"
    with pytest.raises(FairTTAError, match="`errors` should be 'raise' or 'skip'"):
        zero_shot.predict(files, errors=wrong)


def test_long_reprs_are_cut(backend: TransformersBackend) -> None:
    names = [f"n{i}" for i in range(1000)]
    many_classes = FairTPTClassifier(backend, names, SENSITIVE, adapter=ZeroShot())
    assert "targets=['n0', 'n1', 'n2', 'n3', 'n4', ... 995 more], sensitive={" in repr(
        many_classes
    )
    assert "n4, ... 995 more" in many_classes._repr_html_()
    assert str(many_classes.predict(picture())).endswith(", ... 995 more)")
    few_classes = FairTPTClassifier(
        backend, ["cat", "dog"], {"sex": ["male", "female"]}
    )
    assert (
        "targets=['cat', 'dog'], sensitive={'sex': ('male', 'female')}, adapter="
        in repr(few_classes)
    )


def test_every_kind_of_image_gives_the_same_answer(
    clf: FairTPTClassifier, tmp_path: Path
) -> None:
    image = picture()
    image.save(tmp_path / "a.png")
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    array = np.asarray(image)
    expected = clf.predict(image)
    for spelling in (
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        buffer.getvalue(),
        array,
        array.transpose(2, 0, 1),
        array / 255,
        torch.tensor(array).permute(2, 0, 1),
        torch.tensor(array).permute(2, 0, 1) / 255,
    ):
        assert clf.predict(spelling) == expected
    batch: Any = np.stack([array, array])
    assert clf.predict(batch) == clf.predict([image, image])
    tensors: Any = torch.tensor(batch).permute(0, 3, 1, 2)
    assert clf.predict(tensors) == clf.predict([image, image])


@pytest.mark.parametrize("wrong", [3, None, {"image": 1}, object()])
def test_what_is_no_image(clf: FairTPTClassifier, wrong: Any) -> None:
    with pytest.raises(ImageError, match="`images` should be an image"):
        clf.predict(wrong)
    with pytest.raises(ImageError, match="`images` should be an image"):
        clf.predict_proba(wrong)
    with pytest.raises(ImageError):
        clf.predict([wrong])


def test_batches_of_any_size(backend: TransformersBackend, tmp_path: Path) -> None:
    clf = FairTPTClassifier(backend, TARGETS, adapter=ZeroShot(), batch_size=10**30)
    picture().save(tmp_path / "a.png")
    assert len(clf.predict([tmp_path / "a.png"] * 2)) == 2


def test_predict_proba(clf: FairTPTClassifier) -> None:
    pictures = [picture(0), picture(1), picture(2)]
    table = clf.predict_proba(pictures)
    assert table.shape == (3, 3)
    assert table.sum(1) == pytest.approx(np.ones(3), abs=1e-5)
    assert clf.predict_proba(picture(1)) == pytest.approx(table[1], abs=1e-4)
    assert clf.predict_proba(iter(pictures)).tolist() == table.tolist()
    assert clf.predict_proba([]).shape == (0, 3)
    assert clf.targets == ("cat", "dog", "bird")
    assert clf.sensitive == {"place": ("water", "land")}


def test_a_long_list_with_views_logs_its_cost_once(
    clf: FairTPTClassifier, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "fair_tta")
    with_views = clf.with_adapter(Zero())
    with_views.predict([picture(i) for i in range(20)])
    clf.predict([picture(i) for i in range(21)])
    with_views.with_views(AugMix(1)).predict([picture(i) for i in range(21)])
    assert not caplog.records
    for _ in range(2):
        with_views.predict([picture(i) for i in range(21)])
    (record,) = caplog.records
    assert record.levelname == "INFO"
    n = with_views._vision.count
    match = re.fullmatch(
        rf"Zero encodes {n} views of each image: (\S+) s per image, (\S+) minutes for 21. A method "
        r"with one view encodes one: with_adapter\('association-correction'\).",
        record.getMessage(),
    )
    assert match is not None
    assert float(match[2]) == pytest.approx(21 * float(match[1]) / 60, rel=0.1)


def test_a_bar_is_there_before_the_first_image_and_counts_finished_ones(
    clf: FairTPTClassifier,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown_lines: list[str] = []
    predict = FairTPTClassifier._predict_batch

    def slow(self: FairTPTClassifier, *arguments: Any) -> Any:
        shown_lines.append(capfd.readouterr().err)
        time.sleep(0.15)
        return predict(self, *arguments)

    monkeypatch.setattr(FairTPTClassifier, "_predict_batch", slow)
    clf.predict([picture(i) for i in range(6)], progress=True)
    assert [re.findall(r"(\d)/6", text)[-1] for text in shown_lines] == ["0", "2", "4"]


def test_progress_bar(
    clf: FairTPTClassifier, capfd: pytest.CaptureFixture[str]
) -> None:
    clf.predict([picture()], progress=True)
    assert "1/1" in capfd.readouterr().err
    clf.predict([picture()])
    assert capfd.readouterr().err == ""


def test_with_adapter_shares_the_text_side(clf: FairTPTClassifier) -> None:
    calls = []
    layer = clf._backend.embedding_layer  # type: ignore[attr-defined]
    with layer.register_forward_hook(lambda *_: calls.append(1)):
        clf.predict(picture())
        assert calls
        calls.clear()
        moving = clf.with_adapter(Moves())
        moving.predict([picture(0), picture(1)])
    assert not calls  # prompts were not encoded again
    assert moving._task is clf._task
    assert clf.adapter == ZeroShot()


def test_permuting_names_permutes_the_answer(backend: TransformersBackend) -> None:
    names = ["cat", "black dog", "water bird", "photo"]
    expected = FairTPTClassifier(backend, names).predict(picture()).probabilities
    for order in itertools.permutations(names):
        p = FairTPTClassifier(backend, list(order)).predict(picture()).probabilities
        assert p == pytest.approx(
            expected, abs=1e-4
        )  # prompts in other places of their batch


def test_labels_and_phrases(backend: TransformersBackend) -> None:
    names = FairTPTClassifier(
        backend, ["of a cat", "of a dog"], template="a picture {target}."
    )
    labels = FairTPTClassifier(
        backend, {"c": "of a cat", "d": "of a dog"}, template="a picture {target}."
    )
    assert labels.predict(picture()).label in ("c", "d")
    assert (
        labels.predict_proba(picture()).tolist()
        == names.predict_proba(picture()).tolist()
    )


def test_scale(backend: TransformersBackend) -> None:
    flat = FairTPTClassifier(backend, ["cat", "dog"], scale=1e-6).predict_proba(
        picture()
    )
    assert flat == pytest.approx([0.5, 0.5], abs=1e-4)
    default_scale = FairTPTClassifier(backend, ["cat", "dog"])
    same_scale = FairTPTClassifier(backend, ["cat", "dog"], scale=backend.scale)
    assert (
        same_scale.predict_proba(picture()).tolist()
        == default_scale.predict_proba(picture()).tolist()
    )


def test_scaling_image_features_changes_nothing(backend: TransformersBackend) -> None:
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE)
    features = torch.randn(3, 1, 16, generator=torch.Generator().manual_seed(0))
    from internals import unit_features

    a = ZeroShot().adapt(clf._task, unit_features(features)).probabilities
    b = ZeroShot().adapt(clf._task, unit_features(7 * features)).probabilities
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"targets": ["cat"]},
            PromptError,
            "`targets` should name at least two values",
        ),
        ({"targets": ["Cat", "cat"]}, PromptError, "'Cat' and 'cat' have the same"),
        (
            {"sensitive": ["x"]},
            PromptError,
            "`sensitive` should name at least two values",
        ),
        (
            {"sensitive": ["MALE", "male"]},
            PromptError,
            "`sensitive` should have different tokens",
        ),
        ({"template": "a photo"}, PromptError, "should have a slot for the target"),
        ({"template": "a {target}"}, PromptError, "`template` has no slot for them"),
        ({"template": "{target} {sensitive}"}, PromptError, "words besides its slots"),
        (
            {"template": 3},
            PromptError,
            "should be a sentence, {'target': sentence, 'sensitive': sentence, 'j",
        ),
        (
            {"template": "a {target} {sensitive}" + " very" * 80},
            PromptError,
            "at most 77",
        ),
        ({"targets": ["cat", "very " * 80 + "dog"]}, PromptError, "at most 77"),
        ({"adapter": ZeroShot}, FairTTAError, r"`adapter` should be an instance"),
        ({"adapter": "nothing"}, FairTTAError, "there is no adapter 'nothing'"),
        (
            {"adapter": Moves(), "sensitive": None},
            PromptError,
            "Moves needs sensitive attr",
        ),
        (
            {"batch_size": 0},
            FairTTAError,
            "`batch_size` should be an integer >= 1",
        ),
        ({"scale": 0}, FairTTAError, "`scale` should be a positive number"),
        ({"scale": math.nan}, FairTTAError, "`scale` should be a positive number"),
        ({"scale": 10**400}, FairTTAError, "`scale` should be a positive number"),
    ],
)
def test_clear_errors(
    backend: TransformersBackend,
    arguments: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    good = {
        "targets": ["cat", "dog"],
        "sensitive": ["male", "female"],
        "template": "a photo of a {sensitive} {target}.",
    }
    with pytest.raises(error, match=message):
        FairTPTClassifier(backend, **(good | arguments))


def test_a_sensitive_slot_may_stay_empty(backend: TransformersBackend) -> None:
    clf = FairTPTClassifier(
        backend, ["cat", "dog"], template="a photo of a {sensitive} {target}."
    )
    plain = FairTPTClassifier(
        backend, ["cat", "dog"], template="a photo of a {target}."
    )
    assert (
        clf.predict_proba(picture()).tolist() == plain.predict_proba(picture()).tolist()
    )


def test_separate_templates(backend: TransformersBackend) -> None:
    clf = FairTPTClassifier(
        backend,
        ["cat", "dog"],
        ["male", "female"],
        Templates(target="a photo of a {target}.", sensitive="this is {sensitive}."),
    )
    assert set(clf.predict(picture()).sensitive["sensitive"]) == {"male", "female"}


def test_words_of_the_joint_sentence_alone_are_context_too(
    backend: TransformersBackend,
) -> None:
    clf = FairTPTClassifier(
        backend,
        ["cat", "dog"],
        ["male", "female"],
        Templates(
            "a {target}.", "a {sensitive}.", "an image showing a {sensitive} {target}."
        ),
    )
    assert ((clf._task.joint_prompts("sensitive").slots >= 0).sum(1) == 5).all()
    with pytest.raises(PromptError, match="no context to adapt in 'cat'"):
        FairTPTClassifier(backend, ["cat", "dog"], None, Templates("{target}"))


def test_several_attributes(backend: TransformersBackend) -> None:
    clf = FairTPTClassifier(
        backend,
        ["cat", "dog"],
        {"sex": ["male", "female"], "age": {"y": "young", "o": "old"}},
        "a photo of a {sensitive} {target}.",
    )
    p = clf.predict(picture())
    assert {a: list(v) for a, v in p.sensitive.items()} == {
        "sex": ["male", "female"],
        "age": ["y", "o"],
    }


def test_a_strategy_of_ones_own_must_keep_its_word(
    backend: TransformersBackend,
) -> None:
    class TooFew:
        n = 4

        def __call__(self, image: Any, size: tuple[int, int], generator: Any) -> Any:
            return np.zeros((2, *size, 3), np.float32)

    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, views=TooFew())
    with pytest.raises(
        FairTTAError, match=r"should return an array \[3, 32, 32, 3\].*got \[2, 32,"
    ):
        clf.predict(picture())


@pytest.mark.parametrize("views", [AugMix(5), AugMix(1)])
def test_images_encoded_together_have_the_features_of_each_alone(
    backend: TransformersBackend, views: Any
) -> None:
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, views=views)
    images = [
        picture(i, size)
        for i, size in enumerate([(52, 40), (33, 77), (32, 32), (9, 200)])
    ]
    together = clf._vision.features(images, True)
    clf._vision.forget()
    singly = torch.cat([clf._vision.features([image], True) for image in images])
    torch.testing.assert_close(
        together, singly, rtol=0, atol=1e-5
    )  # of length 1, float32


MEMBERS = """
predict predict_proba encode fit with_adapter with_views audit examine mitigate save export forget
from_features targets sensitive adapter
"""


def test_members_are_those_of_the_contract(clf: FairTPTClassifier) -> None:
    assert {name for name in dir(clf) if name[0] != "_"} == set(MEMBERS.split())
    assert task_of(clf) is clf._task


class Column:
    """Images in a class of their own, as datasets and data frames have them."""

    def __init__(self, images: list[Any]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.images)


def test_several_images_of_any_kind_give_predictions(clf: FairTPTClassifier) -> None:
    pictures = [picture(i) for i in range(3)]
    arrays = np.stack([np.asarray(image) for image in pictures])
    several: list[Any] = [
        pictures,
        tuple(pictures),
        arrays,
        torch.from_numpy(arrays),
        Column(pictures),
        {"a": pictures[0], "b": pictures[1], "c": pictures[2]}.values(),
        Features(clf.encode(pictures, with_views=False)[:, 0]),
    ]
    for images in several:
        actual = clf.predict(images)
        assert isinstance(actual, Predictions)
        assert actual.labels == [clf.predict(one).label for one in pictures]
    for stream in (
        iter(pictures),
        (one for one in pictures),
        map(Image.Image.copy, pictures),
    ):
        lazy = clf.predict(stream)
        assert not isinstance(lazy, Predictions)
        assert next(lazy).label == actual.labels[0]


def test_a_series_gives_predictions(clf: FairTPTClassifier) -> None:
    pandas = pytest.importorskip("pandas")
    pictures = [picture(i) for i in range(3)]
    actual = clf.predict(pandas.Series(pictures, index=[7, 8, 9]))
    assert actual == clf.predict(pictures)


def test_what_encode_returns_is_predicted_as_the_images_are(
    backend: TransformersBackend,
) -> None:
    clf = FairTPTClassifier(
        backend, TARGETS, SENSITIVE, TEMPLATE, views=3, batch_size=2
    )
    pictures = [picture(i) for i in range(5)]
    encoded = Features(clf.encode(pictures))
    assert repr(encoded) == "Features([5, 3, 16] of torch.float32)"
    for adapter in ("zero-shot", "zero", TPT(), "association-correction"):
        adapted = clf.with_adapter(adapter)
        actual, expected = adapted.predict(encoded), adapted.predict(pictures)
        assert actual.labels == expected.labels
        np.testing.assert_allclose(
            actual.probabilities, expected.probabilities, atol=1e-6
        )
        np.testing.assert_allclose(
            adapted.predict_proba(encoded), adapted.predict_proba(pictures), atol=1e-6
        )
        assert (
            adapted.predict(encoded[1:3]).labels
            == adapted.predict(pictures[1:3]).labels
        )
    images_alone = Features(clf.encode(pictures).numpy()[:, 0])
    with pytest.raises(FairTTAError, match="neither pixels nor further views"):
        clf.with_adapter("tpt").predict(images_alone)
    with pytest.raises(FairTTAError, match="neither pixels nor further views"):
        clf.with_adapter("memo").predict(encoded)
    broken = clf.encode(pictures)
    broken[3, 1] = math.nan
    with pytest.raises(
        FairTTAError, match="`features` should not be NaN or infinite: see row 3"
    ):
        clf.with_adapter("tpt").predict(Features(broken))
    for wrong in (
        torch.ones(2),
        torch.ones(2, 3, 4, 5),
        torch.ones(2, 0, 16),
        torch.ones(0, 16),
    ):
        with pytest.raises(
            FairTTAError, match=r"\[images, views, dim\] as `encode` returns them"
        ):
            Features(wrong)


def test_plain_python_for_views_and_templates(backend: TransformersBackend) -> None:
    sentences = {
        "target": "a {target}",
        "sensitive": "a {sensitive}",
        "joint": "{sensitive}, {}",
    }
    names = ["cat", "dog"], ["by day", "by night"]
    plain = FairTPTClassifier(backend, *names, sentences, adapter="orthcali", views=3)
    long = FairTPTClassifier(
        backend, *names, Templates(**sentences), adapter="orthcali", views=AugMix(3)
    )
    assert plain.encode([picture()]).shape[1] == 3
    assert plain.predict([picture()]) == long.predict([picture()])
    assert repr(plain.with_views(5)._vision.views) == repr(AugMix(5))
    several: Any = [sentences, "a photo of a {} {sensitive}"]
    two_attributes = FairTPTClassifier(backend, *names, several, adapter="orthcali")
    assert len(task_of(two_attributes).templates._further) == 1


def test_fit_waits_for_the_model(backend: TransformersBackend) -> None:
    """The method is exchanged while no other thread answers with it."""
    clf = FairTPTClassifier(
        backend, TARGETS, SENSITIVE, TEMPLATE, adapter="logit-balance"
    )
    fitted = Event()

    def fit() -> None:
        with pytest.warns(UserWarning, match="was fitted on 3 images"):
            clf.fit([picture(i) for i in range(3)])
        fitted.set()

    with clf._current.borrow():
        thread = Thread(target=fit)
        thread.start()
        assert not fitted.wait(0.2)
        assert clf.adapter == LogitBalance()
    thread.join()
    assert clf.adapter != LogitBalance()


def test_an_attribute_without_a_name_is_not_the_target(
    backend: TransformersBackend,
) -> None:
    values = {"": ["man", "woman"]}
    clf = FairTPTClassifier(backend, TARGETS, values, TEMPLATE, adapter="zero-shot")
    assert set(clf.predict(picture()).probabilities) == set(TARGETS)
