"""A compiled vision tower beside the plain one, in a process of its own.

What a compiler makes may crash, and that should not take a test run along.
"""

from __future__ import annotations

import warnings
from typing import Any

import families
import torch
from checks import picture

from fair_tta import FairTPTClassifier
from fair_tta.extend import AugMix


def main() -> None:
    """Raises unless both give the same features and the model stays as it was."""
    pictures = [picture(0), picture(1)]
    model, *processor = families.seeded(families.clip)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    settings: dict[str, Any] = {"processor": tuple(processor), "views": AugMix(4)}
    names = ["cat", "dog"], ["indoors", "outdoors"]
    plain = FairTPTClassifier(model, *names, **settings).encode(pictures)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # also that the compiler made wrong code, see below
        clf = FairTPTClassifier(model, *names, **settings, compile_vision=True)
        features = clf.encode(pictures)
    torch.testing.assert_close(features, plain, rtol=0, atol=1e-5)
    assert all(
        torch.equal(before[name], value) for name, value in model.state_dict().items()
    )
    assert not hasattr(model, "_orig_mod")
    print("the same features")


if __name__ == "__main__":
    main()
