"""What is fitted for one model and its prompts is refused by others."""

from __future__ import annotations

from typing import Any

import families
import pytest
import torch
from checks import picture
from fits import fit_on

from fair_tta import FairTPTClassifier, FairTTAError, LogitBalance, ZeroShot
from fair_tta.models import TransformersBackend

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")

PICTURES = [picture(i) for i in range(8)]


def classifier(dtype: torch.dtype = torch.float32, **changes: Any) -> FairTPTClassifier:
    model, images, tokenizer = families.seeded(families.clip)
    settings: dict[str, Any] = {
        "targets": ["cat", "dog"],
        "sensitive": {"place": ["water", "land"]},
        "template": "a photo of a {target} on {sensitive}.",
        "scale": 30.0,
        "adapter": ZeroShot(),
    }
    backend = TransformersBackend(model.to(dtype), images, tokenizer)
    return FairTPTClassifier(backend, **(settings | changes))


@pytest.fixture(scope="module")
def balance() -> LogitBalance:
    return fit_on(LogitBalance(), classifier(), PICTURES)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16]
)
def test_precision_does_not_matter(balance: LogitBalance, dtype: torch.dtype) -> None:
    expected = classifier(adapter=balance).predict(PICTURES[0])
    prediction = classifier(dtype, adapter=balance).predict(PICTURES[0])
    assert prediction.probabilities == pytest.approx(expected.probabilities, abs=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"targets": ["cat", "bird"]},
            r"another `targets`, \{'cat': 'cat', 'dog': 'dog'\} \(got ",
        ),
        ({"targets": ["dog", "cat"]}, "another `targets`"),
        ({"targets": {"cat": "black cat", "dog": "dog"}}, "another `targets`"),
        ({"sensitive": {"place": ["land", "water"]}}, "another `sensitive`"),
        ({"sensitive": ["water", "land"]}, "another `sensitive`"),
        ({"template": "a picture of a {target} on {sensitive}."}, "another `template`"),
        ({"scale": 31.0}, r"another `scale`, 30 \(got 31\): fit it again"),
    ],
)
def test_other_prompts_are_refused(
    balance: LogitBalance, changes: Any, message: str
) -> None:
    with pytest.raises(
        FairTTAError, match=f"this LogitBalance was fitted with {message}"
    ):
        classifier(adapter=balance, **changes)


@pytest.mark.parametrize("tower", ["text_model", "vision_model"])
def test_other_weights_are_refused(balance: LogitBalance, tower: str) -> None:
    """Also if one tower is the same, and if they change while the model is in use."""
    clf = classifier(adapter=balance)
    clf.predict(PICTURES[0])
    with torch.no_grad():
        for weight in getattr(clf._backend.model, tower).parameters():  # type: ignore[attr-defined]
            weight += 0.05 * torch.randn(
                weight.shape, generator=torch.Generator().manual_seed(weight.numel())
            )
    with pytest.raises(
        FairTTAError, match=r"another model or other weights, CLIPModel \(got CLIPM"
    ):
        clf.predict(PICTURES[0])
    again = clf.with_adapter(fit_on(balance, clf, PICTURES))
    assert again.predict(PICTURES[0]).label in ("cat", "dog")


def test_another_model_is_refused(balance: LogitBalance) -> None:
    """Before any picture is read."""
    with pytest.raises(FairTTAError, match="was fitted with another model"):
        FairTPTClassifier(
            "miniature", ["cat", "dog"], {"place": ["water", "land"]},
            "a photo of a {target} on {sensitive}.", scale=30.0, adapter=balance,
        )  # fmt: skip
