"""What every adapter must satisfy, as named asserts over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import autoencoders
import families
import numpy as np
import pytest
import torch
from checks import picture
from fits import fit_on
from internals import (
    CLASS_LOST,
    IMAGE_LOST,
    NOT_FINITE,
    STEP_BOUNDED,
    STEP_NOT_FINITE,
    Chained,
    DistortedViews,
    KLFromUniform,
    Scores,
    unit_features,
)
from internals import registry_module as text_form
from torch import Tensor

from fair_tta import (
    ELRA,
    TPT,
    AssociationCorrection,
    FairTPT,
    FairTPTClassifier,
    FairTPTMO,
    FairTTAError,
    FixedRate,
    LogitBalance,
    OrthCali,
    Prediction,
    Templates,
    Zero,
    ZeroShot,
)
from fair_tta.errors import PromptError
from fair_tta.extend import Adapter, AugMix
from fair_tta.methods import (
    MEMO,
    SAGE,
    SAR,
    SEM,
    TIE,
    TTR,
    UMFC,
    BalancedHead,
    BendVLM,
    DeYO,
    EpisodicTIE,
    PartialProjection,
    PerceptionCLIP,
    RoboShot,
    SEraser,
    SLoss,
    SuperTSLoss,
    Tent,
    TIEStar,
    TSLoss,
)
from fair_tta.models import TransformersBackend

TARGETS = ["cat", "black dog", "water bird"]
SENSITIVE = {"sex": ["male", "female"], "age": ["young", "old", "not old"]}
TEMPLATE = "a photo of a {sensitive} {target}."

AUTOENCODER = autoencoders.saved(
    Path(mkdtemp()) / "sae.safetensors", autoencoders.random_weights(families.DIM, 32)
)

ADAPTERS: dict[str, Any] = {
    "ZeroShot": ZeroShot(),
    "TPT": TPT(),
    "TPT ELRA": TPT(rate=ELRA()),
    "Zero": Zero(),
    "OrthCali": OrthCali(),
    "FairTPT": FairTPT(),
    "FairTPT inf": FairTPT(lam=math.inf),
    "FairTPT fixed": FairTPT(rate=FixedRate(5e-3), steps=2),
    "FairTPT TS": FairTPT(loss=TSLoss()),
    "FairTPT super-TS joint": FairTPT(loss=SuperTSLoss(joint=True)),
    "FairTPTMO": FairTPTMO(),
    "FairTPTMO joint": FairTPTMO(loss=SLoss(joint=True), steps=2),
    "FairTPT >> OrthCali": FairTPT() >> OrthCali(lam=0),
    "super-TS >> OrthCali": FairTPT(loss=SuperTSLoss()) >> OrthCali(lam=10),
    "AssociationCorrection": AssociationCorrection(),
    "LogitBalance": LogitBalance(),
    "BalancedHead": BalancedHead(),
    "SEraser": SEraser(auxiliary=DistortedViews(4), steps=4),
    "SEraser hold": SEraser(
        auxiliary=DistortedViews(3), loss=KLFromUniform(hold=True), steps=2
    ),
    "DeYO": DeYO(margin=1.1, least_drop=-1.0),
    "Tent": Tent(),
    "MEMO": MEMO(every_weight=True),
    "SAR": SAR(margin=1.1),
    "OrthCali PRISM-mini": OrthCali(lam=0, renormalise=False),
    "RoboShot": RoboShot(),
    "RoboShot own pairs": RoboShot(
        reject=[("cat", "dog")], accept=[("a bird", "no bird")]
    ),
    "PerceptionCLIP": PerceptionCLIP(),
    "PerceptionCLIP without class": PerceptionCLIP(temperature=3.0, with_class=False),
    "SAGE": SAGE(),
    "SAGE 2": SAGE(
        templates=["a {}.", "a photo of a {}.", "a drawing of a {}"], keep=2
    ),
    "PartialProjection": PartialProjection(),
    "EpisodicTIE": EpisodicTIE(),
    "TIE": TIE(),
    "TIEStar": TIEStar(),
    "BendVLM": BendVLM(neighbours=3),
    "SEM": SEM(autoencoder=AUTOENCODER),
    "TTR": TTR(subject="dog"),
    "UMFC": UMFC(),
    "UMFC perceived": UMFC(perceived=True),
    "FairTPT >> AssociationCorrection": FairTPT() >> AssociationCorrection(),
    "FairTPT >> RoboShot": FairTPT() >> RoboShot(),
    "super-TS >> PartialProjection": FairTPT(loss=SuperTSLoss()) >> PartialProjection(),
    "super-TS >> AssociationCorrection": FairTPT(loss=SuperTSLoss())
    >> AssociationCorrection(),
}

# A method that is registered and has no settings above keeps the laws with its defaults.
_CONFIGURED = {type(method) for method in ADAPTERS.values()}
for _method_class in text_form.ADAPTERS.values():
    if _method_class not in _CONFIGURED:
        ADAPTERS[_method_class.__name__] = _method_class()

REFERENCE = [picture(100 + i) for i in range(12)]

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")


FITTED: dict[Any, Any] = {}
"""Methods that were fitted already, for a model and names."""


def classifier(*, fit_again: bool = False, **arguments: Any) -> FairTPTClassifier:
    backend = arguments.pop("backend", None) or TransformersBackend(
        *families.seeded(families.clip)
    )
    settings: dict[str, Any] = {
        "targets": TARGETS,
        "sensitive": SENSITIVE,
        "template": TEMPLATE,
        "scale": 30.0,
    }
    settings |= {"views": AugMix(8)} | arguments
    adapter = settings.pop("adapter", None)
    if not needs_fit(adapter):
        return FairTPTClassifier(backend, adapter=adapter, **settings)
    clf = FairTPTClassifier(backend, adapter=ZeroShot(), **settings)
    key = (
        backend,
        adapter,
        str([settings[name] for name in ("targets", "sensitive", "template")]),
    )
    if fit_again or key not in FITTED:
        FITTED[key] = fitted(clf, adapter).adapter
    return clf.with_adapter(FITTED[key])


def needs_fit(adapter: Any) -> bool:
    return adapter is not None and bool(adapter.needs.reference)


def fitted(clf: FairTPTClassifier, adapter: Any) -> FairTPTClassifier:
    """With a method that is fitted to the model and the prompts."""
    labels = {
        a: [*names, *names * 9][: len(REFERENCE)] for a, names in SENSITIVE.items()
    }
    known: tuple[Any, ...] = (labels,) if adapter.needs.reference_sensitive else ()
    images = REFERENCE
    if adapter.needs.reference_labels:
        images = REFERENCE * 5
        known = ((sorted(clf.targets) * 20)[: len(images)],)
    method = fit_on(adapter, clf, images, *known)
    if isinstance(method, TIE):
        method = method.knowing(
            *(SENSITIVE[attribute][1] for attribute in clf.sensitive)
        )
    return clf.with_adapter(method)


@pytest.fixture(scope="module")
def plain() -> FairTPTClassifier:
    return classifier()


# Of each method the first setting above; the others keep two of the laws.
FIRST = [*{type(method): name for name, method in reversed(ADAPTERS.items())}.values()]


@pytest.fixture(params=FIRST[::-1])
def adapter(request: pytest.FixtureRequest) -> Adapter:
    chosen: Adapter = ADAPTERS[request.param]
    return chosen


@pytest.fixture(params=ADAPTERS)
def variant(request: pytest.FixtureRequest) -> Adapter:
    chosen: Adapter = ADAPTERS[request.param]
    return chosen


def test_every_method_is_here() -> None:
    tested = {type(method) for method in ADAPTERS.values()}
    assert tested == {*text_form.ADAPTERS.values(), Chained}


def test_is_a_frozen_strategy(adapter: Adapter) -> None:
    assert isinstance(adapter, Adapter)
    assert hash(adapter) == hash(adapter)
    with pytest.raises(AttributeError):
        adapter.rho = 1  # type: ignore[attr-defined]
    assert type(adapter).__doc__


def test_batch_order_and_history_do_not_matter(
    plain: FairTPTClassifier, variant: Adapter
) -> None:
    pictures = [picture(i, (40 + i, 30)) for i in range(3)]
    clf = classifier(adapter=variant, backend=plain._backend, batch_size=2)
    expected = [clf.with_views(AugMix(8)).predict(p) for p in pictures]
    in_batches = clf.predict(pictures)
    backwards = clf.with_views(AugMix(8)).predict(pictures[::-1])[::-1]
    again = clf.predict(pictures[2])
    for prediction, batched, reversed_order in zip(
        expected, in_batches, backwards, strict=True
    ):
        for again_predicted in (batched, reversed_order):
            assert prediction.label == again_predicted.label
            assert prediction.probabilities == pytest.approx(
                again_predicted.probabilities, abs=1e-4
            )
            for attribute in SENSITIVE:
                assert prediction.sensitive[attribute] == pytest.approx(
                    again_predicted.sensitive[attribute], abs=1e-3
                )
    assert again.label == expected[2].label
    assert again.probabilities == pytest.approx(expected[2].probabilities, abs=1e-4)


def test_only_a_queue_looks_at_other_images() -> None:
    """As the test above shows; with these needs rows are kept for the whole batch."""
    assert not any(method.needs.other_images for method in ADAPTERS.values())
    assert TTR("dog", queue=2).needs.other_images


def test_the_same_seed_gives_the_same_bits(
    plain: FairTPTClassifier, adapter: Adapter
) -> None:
    pictures = [picture(i) for i in range(3)]
    first, second = (
        classifier(adapter=adapter, backend=plain._backend, fit_again=True).predict(
            pictures
        )
        for _ in range(2)
    )
    assert first == second
    if adapter.needs.views and not isinstance(
        adapter, Zero
    ):  # whose votes may be the same
        reseeded = classifier(adapter=adapter, seed=1, backend=plain._backend).predict(
            pictures
        )
        assert reseeded != first


@pytest.mark.parametrize(
    "adapter",
    [
        *(ADAPTERS[name] for name in ("FairTPT super-TS joint", "SAR", "TIE", "UMFC")),
        # Adam of torch 2.6 counts its steps on the default device, which has no numbers here
        DeYO(margin=1.1, least_drop=-1.0, rate=FixedRate(5e-3, torch.optim.SGD)),
        Tent(rate=FixedRate(5e-3, torch.optim.SGD)),
    ],
    ids=lambda adapter: type(adapter).__name__,
)
def test_the_default_device_does_not_matter(
    plain: FairTPTClassifier, adapter: Adapter
) -> None:
    """As after `torch.set_default_device("cuda")`: what lands there has no numbers here."""
    settings: dict[str, Any] = {"adapter": adapter, "backend": plain._backend}
    image = picture()
    expected = classifier(**settings, fit_again=True).predict(image)
    with torch.device("meta"):
        prediction = classifier(**settings, fit_again=True).predict(image)
    assert prediction == expected


@lru_cache
def backend_in(dtype: torch.dtype) -> TransformersBackend:
    model, images, tokenizer = families.seeded(families.clip)
    return TransformersBackend(model.to(dtype), images, tokenizer)


def test_finite_in_half_precision(adapter: Adapter) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        prediction = classifier(backend=backend_in(dtype), adapter=adapter).predict(
            picture()
        )
        assert sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert not {IMAGE_LOST, CLASS_LOST, NOT_FINITE} & {*prediction.warnings}


def test_permuting_names_permutes_the_answer(
    plain: FairTPTClassifier, variant: Adapter
) -> None:
    expected = classifier(adapter=variant, backend=plain._backend).predict(picture())
    combines = isinstance(variant, PerceptionCLIP) or "joint=True" in repr(variant)
    # the phrases of a combination follow the order of the attributes
    attributes = list(SENSITIVE) if combines else list(SENSITIVE)[::-1]
    clf = classifier(
        adapter=variant,
        backend=plain._backend,
        targets=[TARGETS[i] for i in (2, 0, 1)],
        sensitive={name: SENSITIVE[name][::-1] for name in attributes},
    )
    prediction = clf.predict(picture())
    assert prediction.label == expected.label
    assert prediction.probabilities == pytest.approx(expected.probabilities, abs=1e-4)


class Longer:
    """A model whose features of images, of all prompts or of some are three times as long."""

    def __init__(self, backend: Any, longer: str) -> None:
        self._backend = backend
        self._longer = longer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def encode_images(self, images: Any) -> Any:
        return self._times("images") * self._backend.encode_images(images)

    def encode_pixels(self, pixels: Tensor) -> Any:
        return self._times("images") * self._backend.encode_pixels(pixels)

    def encode_prompts(self, tokens: Any, embeddings: Tensor) -> Any:
        return self._times("prompts") * self._backend.encode_prompts(tokens, embeddings)

    def encode_episodes(self, *arguments: Any) -> Any:
        return self._times("prompts") * self._backend.encode_episodes(*arguments)

    def encode_text(self, tokens: Any) -> Any:
        features = self._times("prompts") * self._backend.encode_text(tokens)
        if self._longer != "sensitive prompts":
            return features
        ids = self._backend.tokenize(["old", "male", "female"]).ids[:, 1]
        is_sensitive = torch.isin(tokens.ids, ids).any(1, keepdim=True)
        return torch.where(is_sensitive, 3 * features, features)

    def _times(self, lengthened: str) -> int:
        return 3 if lengthened == self._longer else 1


@pytest.mark.parametrize("longer", ["images", "prompts", "sensitive prompts"])
def test_no_length_of_features_changes_a_label(
    plain: FairTPTClassifier, adapter: Adapter, longer: str
) -> None:
    """See also `test_rounding`, where projections leave nothing."""
    if isinstance(adapter, SEM) and longer != "images":
        pytest.skip("an autoencoder takes features as long as they are")
    pictures = [picture(i) for i in range(4)]
    expected = classifier(adapter=adapter, backend=plain._backend).predict(pictures)
    backend = Longer(plain._backend, longer)
    predictions = classifier(adapter=adapter, backend=backend).predict(pictures)
    assert [p.label for p in predictions] == [p.label for p in expected]
    for prediction, wanted_prediction in zip(predictions, expected, strict=True):
        assert prediction.probabilities == pytest.approx(
            wanted_prediction.probabilities, abs=1e-4
        )


def test_works_with_one_view_and_with_views_of_ones_own(
    plain: FairTPTClassifier, adapter: Adapter
) -> None:
    given_views = [picture(7), picture(8)]
    for views in (AugMix(1), given_views, lambda image, generator: given_views):
        clf = classifier(adapter=adapter, backend=plain._backend, views=views)
        assert clf.predict(picture()).label in TARGETS


def assert_one_answer(predictions: Sequence[Prediction], rows: Any) -> None:
    """Label, scores, probabilities, flips, certificates and confidence tell the same story."""
    scores = Scores.from_predictions(predictions)
    again = Scores.from_probabilities(rows)
    assert list(again.confidence) == list(scores.confidence)
    for p, row in zip(predictions, rows, strict=True):
        best = p.to_dict()
        assert p.label == list(p.probabilities)[int(row.argmax())] == best[0]["label"]
        assert p.label == max(p.probabilities, key=p.probabilities.__getitem__)
        assert [s["score"] for s in best] == sorted(
            p.probabilities.values(), reverse=True
        )
        assert p.flipped == (p.label != max(p.zero_shot, key=p.zero_shot.__getitem__))
        assert not (p.flipped and p.certified_unchanged)
        assert sum(p.probabilities.values()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)]
)
def test_one_answer_everywhere_also_with_ties(
    adapter: Adapter, dtype: torch.dtype
) -> None:
    """Two views that disagree tie in votes; two names with one vector tie in probabilities."""
    model, images, tokenizer = families.seeded(families.clip)
    backend = TransformersBackend(model.to(dtype), images, tokenizer)
    if isinstance(adapter, Zero):
        adapter = Zero(rho=1.0)
    clf = classifier(
        backend=backend, adapter=adapter, targets=["cat", "dog", "bird", "water bird"]
    )
    generator = torch.Generator().manual_seed(0)
    features = unit_features(torch.randn(40, 2, 16, generator=generator, dtype=dtype))
    features[:10, 1] = features[:10, 0]  # no tie
    pictures = [picture(i) for i in range(4)]
    from_pictures = adapter.needs.pixels
    predictions = (
        clf.predict(pictures) if from_pictures else clf._predict_encoded(features)
    )
    rows = np.array([list(p.probabilities.values()) for p in predictions])
    assert_one_answer(predictions, rows)
    if isinstance(adapter, Zero):
        assert sum(p.probabilities[p.label] < 1 for p in predictions) > 5
    table = model.text_model.embeddings.token_embedding.weight
    cat, dog = (tokenizer(word)["input_ids"][1] for word in ("cat", "dog"))
    with torch.no_grad():
        table[dog] = table[cat]
    if needs_fit(adapter):
        clf = fitted(clf.with_adapter(ZeroShot()), adapter)
    if not from_pictures:
        predictions = clf._predict_encoded(features)
        rows = np.array([list(p.probabilities.values()) for p in predictions])
        assert_one_answer(predictions, rows)
    assert_one_answer(clf.predict(pictures), clf.predict_proba(pictures))


def test_the_same_template_twice_is_that_template(
    plain: FairTPTClassifier, adapter: Adapter
) -> None:
    """Every method works with several templates, but those that tune the words of one."""
    settings: dict[str, Any] = {"adapter": adapter, "backend": plain._backend}
    if adapter.needs.prompt_gradient:
        with pytest.raises(
            PromptError, match=r"tunes the words of one template \(got 2\)"
        ):
            classifier(template=[TEMPLATE, TEMPLATE], **settings)
        return
    expected = classifier(**settings).predict(picture())
    doubled = classifier(template=[TEMPLATE, TEMPLATE], **settings).predict(picture())
    if adapter != SAGE():  # which chooses from these then
        assert doubled.probabilities == pytest.approx(expected.probabilities, abs=1e-4)
    assert doubled.zero_shot == pytest.approx(expected.zero_shot, abs=1e-4)


@pytest.mark.parametrize(
    "make", [TPT, FairTPT, FairTPTMO, SEraser, DeYO, Tent, MEMO, SAR]
)
def test_zero_steps_is_zero_shot(plain: FairTPTClassifier, make: Any) -> None:
    prediction = plain.with_adapter(make(steps=0)).predict(picture())
    # in other batches of prompts, and the scale enlarges what float32 rounds off
    assert prediction.probabilities == pytest.approx(prediction.zero_shot, abs=1e-4)
    assert prediction.distance == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    "make",
    [method for method in text_form.ADAPTERS.values() if method().needs.sensitive],
)
def test_needs_sensitive_names(plain: FairTPTClassifier, make: Any) -> None:
    with pytest.raises(PromptError, match="needs sensitive attribute values"):
        FairTPTClassifier(plain._backend, TARGETS, adapter=make())


def test_strength_0_is_zero_shot(plain: FairTPTClassifier) -> None:
    for adapter in (AssociationCorrection(strength=0), LogitBalance(strength=0)):
        prediction = classifier(backend=plain._backend, adapter=adapter).predict(
            picture()
        )
        assert prediction.probabilities == prediction.zero_shot
        assert (prediction.distance, prediction.flipped) == (0, False)


def test_default_method(plain: FairTPTClassifier) -> None:
    assert classifier(backend=plain._backend).adapter == FairTPT()
    assert classifier(backend=plain._backend, sensitive=None).adapter == ZeroShot()


def test_defaults_are_the_papers() -> None:
    assert (TPT().rho, TPT().steps, TPT().rate) == (
        0.1,
        1,
        FixedRate(5e-3, torch.optim.AdamW),
    )
    assert Zero().rho == 0.1
    assert OrthCali().lam == 1000
    for method in (FairTPT(), FairTPTMO()):
        assert (method.lam, method.rho, method.steps) == (100, 0.75, 1)
        assert method.loss == SLoss()
        assert isinstance(method.rate, ELRA)
        assert (method.rate.beta, method.rate.sigma) == (0.01, 0.01)
    assert AugMix().n == 64


def test_moves_what_it_should_move(plain: FairTPTClassifier) -> None:
    """TPT makes the marginal target more certain, FairTPT the sensitive attribute less."""
    pictures = [picture(i) for i in range(12)]
    tpt = plain.with_adapter(TPT()).predict(pictures)
    assert sum(p.entropy - p.entropy_zero_shot for p in tpt) < 0
    fair = plain.with_adapter(FairTPT()).predict(pictures)
    rise = [
        p.sensitive_entropy[a] - p.sensitive_entropy_zero_shot[a]
        for p in fair
        for a in SENSITIVE
    ]
    assert sum(rise) > 0


def test_the_bound_shows_in_the_prediction(plain: FairTPTClassifier) -> None:
    clf = plain.with_adapter(FairTPT(rate=ELRA(max_relative_step=1e-4)))
    prediction = clf.predict(picture())
    assert prediction.relative_step == pytest.approx(1e-4, rel=1e-2)
    assert prediction.warnings == (STEP_BOUNDED.format(radius=1e-4),)
    free = plain.with_adapter(FairTPT()).predict(picture())
    assert free.relative_step is not None
    assert 1e-4 < free.relative_step < 2
    assert free.warnings == ()


def test_a_step_that_is_not_finite_leaves_the_zero_shot_answer(
    plain: FairTPTClassifier,
) -> None:
    for method in (FairTPT, FairTPTMO):
        prediction = plain.with_adapter(method(rate=ELRA(beta=1e60))).predict(picture())
        assert prediction.probabilities == pytest.approx(prediction.zero_shot, abs=1e-6)
        assert prediction.label == max(
            prediction.zero_shot, key=prediction.zero_shot.__getitem__
        )
        assert prediction.relative_step == prediction.learning_rate == 0
        assert prediction.warnings == (STEP_NOT_FINITE,)


def test_a_sweep_needs_one_vision_pass(plain: FairTPTClassifier) -> None:
    clf = classifier(backend=plain._backend)
    passes = []
    model: Any = plain._backend.model  # type: ignore[attr-defined]
    handle = model.vision_model.register_forward_hook(lambda *_: passes.append(1))
    pictures = [picture(0), picture(1)]
    clf.predict(pictures)
    first_count = len(passes)
    for lam in (0.0, 1.0, 100.0, math.inf):
        for rho in (0.1, 0.5, 1.0):
            clf.with_adapter(FairTPT(lam=lam, rho=rho)).predict(pictures)
            clf.with_adapter(Zero(rho)).predict(pictures)
    assert len(passes) == first_count > 0
    clf.with_views(AugMix(4)).predict(pictures)
    assert len(passes) > first_count
    handle.remove()


@pytest.mark.parametrize(
    "method",
    [
        FairTPT(loss=TSLoss()),
        FairTPTMO(loss=SuperTSLoss()),
        OrthCali(),
        FairTPT() >> OrthCali(),
        PartialProjection(),
    ],
)
def test_missing_joint_prompts_are_found_before_any_picture(
    plain: FairTPTClassifier, method: Any
) -> None:
    template = Templates("a photo of a {target}.", "a photo of a {sensitive}.")
    with pytest.raises(
        PromptError, match="joint prompts are needed, but `template` does not"
    ):
        classifier(adapter=method, backend=plain._backend, template=template)
    classifier(adapter=OrthCali(lam=0), backend=plain._backend, template=template)


def test_views_of_different_number(plain: FairTPTClassifier) -> None:
    def views(image: Any, _: Any) -> list[Any]:
        return [image] * (image.width % 3)

    pictures = [picture(0, (30, 40)), picture(1, (31, 40))]
    clf = classifier(backend=plain._backend, views=views)
    with pytest.raises(
        FairTTAError, match=r"many views of each image of a batch \(got 1"
    ):
        clf.predict(pictures)
    one_by_one = classifier(backend=plain._backend, views=views, batch_size=1)
    assert [p.views_kept for p in one_by_one.predict(pictures)] == [1, 1]
