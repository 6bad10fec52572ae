"""SEM against a computation latent by latent, and its limits."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import autoencoders
import families
import numpy as np
import pytest
import torch
from checks import picture
from internals import DIVERSE, fingerprint, load_saved_method, save_adapter
from safetensors.torch import save_file

from fair_tta import FairTPTClassifier, FairTTAError, ZeroShot
from fair_tta.methods import SEM
from fair_tta.models import TransformersBackend

TARGETS = ["cat", "black dog", "bird"]
SENSITIVE = {"sex": ["male", "female"], "age": ["young", "old", "not old"]}
TEMPLATE = "a photo of a {sensitive} {target}."
WORDINGS = [
    TEMPLATE,
    "a {sensitive} {target} in a picture.",
    "one {sensitive} {target}.",
]
LATENTS = 24


@lru_cache
def tiny_backend() -> Any:
    return TransformersBackend(*families.seeded(families.clip))


def classifier(template: Any = TEMPLATE, **more: Any) -> FairTPTClassifier:
    backend = tiny_backend()
    settings: dict[str, Any] = {
        "sensitive": SENSITIVE,
        "scale": 30.0,
        "adapter": ZeroShot(),
    }
    return FairTPTClassifier(backend, TARGETS, template=template, **(settings | more))


def encode(sentences: list[str]) -> torch.Tensor:
    backend = tiny_backend()
    raw: torch.Tensor = backend.encode_text(backend.tokenize(sentences))
    return raw


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return autoencoders.trained_weights(encode([*DIVERSE]), LATENTS)


@pytest.fixture(scope="module")
def file(weights: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    return autoencoders.saved(
        tmp_path_factory.mktemp("sae") / "sae.safetensors", weights
    )


def test_the_autoencoder_of_the_tests_was_trained(weights: Any) -> None:
    w = {name: of.numpy() for name, of in weights.items()}
    e = encode([*DIVERSE]).numpy()
    h = np.maximum((e - w["bpre"]) @ w["encoder.weight"].T + w["encoder.bias"], 0)
    lost = ((h @ w["decoder.weight"].T + w["bpre"] - e) ** 2).sum()
    assert lost < 0.3 * ((e - e.mean(0)) ** 2).sum()
    assert 0.05 < (h > 0).mean() < 0.95


def middle(values: list[float]) -> float:
    """The median, of two in the middle the smaller, as torch has it."""
    return sorted(values)[(len(values) - 1) // 2]


def below(others: list[float], value: float) -> float:
    return sum(other < value for other in others) / len(others)


WORDED = {
    "male": ["a man.", "a photo of a male.", "he is a boy.", "one gentleman."],
    "not old": ["a photo of somebody who is not old.", "no pensioner."],
}


def brute_force(
    w: Any, templates: list[str], diverse: list[str], worded: Any = None
) -> Any:
    """Unit features of the classes, one latent at a time."""
    worded = worded or {}

    def latents(sentence: str) -> list[float]:
        centred = encode([sentence])[0].double().numpy() - w["bpre"]
        rows = zip(w["encoder.weight"], w["encoder.bias"], strict=True)
        return [max(0.0, float(row @ centred + a)) for row, a in rows]

    targets = [t.replace("{sensitive} ", "") for t in templates]
    values = [t.replace("{target} ", "").replace(" {target}", "") for t in templates]
    d = [latents(sentence) for sentence in diverse]
    groups = {
        attribute: [
            [latents(text) for text in worded.get(name, [])]
            or [latents(t.replace("{sensitive}", name)) for t in values]
            for name in names
        ]
        for attribute, names in SENSITIVE.items()
    }
    features = []
    for y in TARGETS:
        wordings = [latents(t.replace("{target}", y)) for t in targets]
        changed = []
        for j in range(LATENTS):
            column = [h[j] for h in d]
            content = below(column, middle([h[j] for h in wordings]))
            bias = 0.0
            for names in groups.values():
                for s, own in enumerate(names):
                    typical = middle([h[j] for h in own])
                    others = [h[j] for i, of in enumerate(names) if i != s for h in of]
                    bias = max(
                        bias, min(below(column, typical), below(others, typical))
                    )
            m = (1 + content - bias) ** 2
            changed.append(m * wordings[0][j] + (1 - m) * middle(column))
        e = w["decoder.weight"] @ np.array(changed) + w["bpre"]
        features.append(e / np.linalg.norm(e))
    return np.array(features)


@pytest.mark.parametrize("templates", [WORDINGS[:1], WORDINGS], ids=["SEM_b", "SEM_bi"])
@pytest.mark.parametrize("worded", [None, WORDED], ids=["prompts", "wordings"])
def test_features_are_those_of_brute_force(
    templates: Any, worded: Any, weights: Any, file: str
) -> None:
    diverse = [*DIVERSE[:41]]
    adapter = SEM(file, diverse, worded)
    clf = classifier(templates, adapter=adapter)
    exact = {n: w.double().numpy() for n, w in weights.items()}
    expected = brute_force(exact, templates, diverse, worded)
    found = adapter._class_features(clf._task)
    # rounding of the text tower may move a share past one diverse prompt
    np.testing.assert_allclose(found.numpy(), expected, atol=0.02)
    assert np.median(abs(found.numpy() - expected)) < 1e-5
    prediction = clf.predict(picture())
    v = clf.encode([picture()])[0, 0].double().numpy()
    logits = 30 * found.numpy() @ v
    probabilities = np.exp(logits) / np.exp(logits).sum()
    assert [*prediction.probabilities.values()] == pytest.approx(
        probabilities.tolist(), abs=1e-5
    )
    assert prediction.probabilities != pytest.approx(prediction.zero_shot, abs=1e-4)


def test_the_default_sentences_are_many_and_differ() -> None:
    assert len(DIVERSE) == len({*DIVERSE}) == 340
    assert DIVERSE[:2] == ("a photo of the apple.", "a drawing of the apple.")


def test_where_content_and_bias_are_equal_prompts_are_reconstructed(
    tmp_path: Path,
) -> None:
    """With no latent above the diverse prompts' c = b = 0, so m = 1 and h' = h = 0: e' = b."""
    weights = autoencoders.random_weights(families.DIM, LATENTS)
    weights["encoder.bias"] -= 1000
    file = autoencoders.saved(tmp_path / "off.safetensors", weights)
    found = SEM(file)._class_features(classifier()._task)
    expected = weights["bpre"].double() / weights["bpre"].double().norm()
    torch.testing.assert_close(found, expected.expand_as(found))


def test_an_identity_autoencoder_keeps_classes_that_nothing_exceeds(
    tmp_path: Path,
) -> None:
    """One diverse prompt, the attribute's values and the class all equal: shares are 0, m is 1."""
    eye = torch.eye(families.DIM)
    weights = {
        "bpre": torch.zeros(families.DIM),
        "encoder.weight": torch.cat([eye, -eye]),
        "encoder.bias": torch.zeros(2 * families.DIM),
        "decoder.weight": torch.cat([eye, -eye], 1),
    }
    file = autoencoders.saved(tmp_path / "eye.safetensors", weights)
    clf = classifier(sensitive={"sex": SENSITIVE["sex"]})
    adapter = SEM(file, [f"a photo of a {y}." for y in TARGETS[:1]])
    found = adapter._class_features(clf._task)[0]
    # latents of the first class are never above its own sentence: c = 0, and what the values'
    # prompts do not show (b = 0) is reconstructed, the rest goes to the median, which is its own
    torch.testing.assert_close(
        found.float(), clf._task.target_features[0], atol=1e-5, rtol=0
    )


def test_the_file_is_known_by_its_content(
    file: str, weights: Any, tmp_path: Path
) -> None:
    same, other = tmp_path / "same.safetensors", tmp_path / "other.safetensors"
    autoencoders.saved(same, weights)
    autoencoders.saved(other, {**weights, "bpre": 2 * weights["bpre"]})
    own = fingerprint(SEM(file))
    assert own == fingerprint(SEM(same)) != fingerprint(SEM(other))  # type: ignore[arg-type]
    assert own != fingerprint(SEM(file, DIVERSE[:9]))
    assert own != fingerprint(SEM(file, wordings=WORDED))


def test_wordings_are_those_of_the_prompts_by_default(file: str) -> None:
    task = classifier()._task
    written = {
        "male": ["a photo of a male."], "female": ["a photo of a female."],
        "young": ["a photo of a young."], "old": ["a photo of a old."],
        "not old": ["a photo of a not old."],
    }  # fmt: skip
    prompts = [
        p.text for names in SENSITIVE.values() for p in sensitive_prompts(task, names)
    ]
    assert prompts == [text for texts in written.values() for text in texts]
    plain, worded = (
        SEM(file, DIVERSE[:9], w)._class_features(task) for w in (None, written)
    )
    assert torch.equal(plain, worded)


def sensitive_prompts(task: Any, names: list[str]) -> Any:
    return task.templates._sensitive_prompts(dict(zip(names, names, strict=True)))


def test_a_saved_method_knows_its_wordings(file: str, tmp_path: Path) -> None:
    clf = classifier(adapter=SEM(file, DIVERSE[:9], WORDED))
    save_adapter(clf.adapter, tmp_path / "sem.safetensors", clf._task)
    loaded = load_saved_method(tmp_path / "sem.safetensors", [SEM])
    assert loaded == clf.adapter
    assert hash(loaded) == hash(clf.adapter)
    assert dict(loaded.wordings or ())["not old"] == tuple(WORDED["not old"])


def test_what_is_refused(file: str, weights: Any, tmp_path: Path) -> None:
    with pytest.raises(
        FairTTAError, match="SEM needs `autoencoder`, the file of a sparse"
    ):
        classifier(adapter="sem")
    with pytest.raises(FairTTAError, match="SEM needs sensitive attribute values"):
        classifier("a {target}.", sensitive=None, adapter=SEM(file))
    with pytest.raises(
        FairTTAError, match=r"'no.file' could not be read: No such file"
    ):
        classifier(adapter="sem:autoencoder=no.file")
    wide = autoencoders.saved(
        tmp_path / "w.safetensors", autoencoders.random_weights(20, 9)
    )
    with pytest.raises(
        FairTTAError, match=r"for features of width 16, those of CLIPModel \(got 20"
    ):
        classifier(adapter=SEM(wide))
    (tmp_path / "text").write_text("no weights")
    with pytest.raises(FairTTAError, match="text' is not a safetensors file"):
        classifier(adapter=SEM(tmp_path / "text"))  # type: ignore[arg-type]
    for wrong in (
        {name: of for name, of in weights.items() if name != "bpre"},
        {**weights, "decoder.weight": weights["encoder.weight"].clone()},
        {"x": torch.zeros(2)},
    ):
        save_file(wrong, tmp_path / "wrong.safetensors")
        with pytest.raises(
            FairTTAError, match=r"should hold bpre \[dim\], encoder.weight \[lat"
        ):
            classifier(adapter=f"sem:autoencoder={tmp_path / 'wrong.safetensors'}")
    for wordings, message in (
        (
            {"man": ["a man"]},
            r"`wordings` should be of values .* among .* \(got 'man'\)",
        ),
        (
            {"male": "a man"},
            r"`wordings\['male'\]` should be a list of sentences \(got 'a man'",
        ),
        (
            {"male": []},
            r"`wordings\['male'\]` should be a list of sentences \(got \[\]",
        ),
    ):
        with pytest.raises(FairTTAError, match=message):
            classifier(adapter=SEM(file, wordings=wordings))
    with pytest.raises(FairTTAError, match="`diverse` should be a list of sentences"):
        SEM(file, "a photo")
    with pytest.raises(
        FairTTAError, match="`autoencoder` should be the path of a file"
    ):
        SEM(weights)
