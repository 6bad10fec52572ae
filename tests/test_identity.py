"""Identity: what differs has another fingerprint, what is equal is found again."""

from __future__ import annotations

import copy
import importlib
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_fixtures import tiny_model as tiny_model
from internals import (
    describe,
    describe_adapter,
    feature_identity,
    fingerprint,
    load_backend,
    make_job,
)
from torch import nn

from fair_tta import FairTPT, FairTPTClassifier, Templates, ZeroShot
from fair_tta.extend import AugMix


class InFile:
    """Of a file, this one."""

    def __init__(self, share: Any) -> None:
        self.share = share


@dataclass(frozen=True)
class Frozen:
    share: Any


def function(value: Any) -> Any:
    return value


def test_settings_are_plain_json() -> None:
    assert describe(float("inf")) == "inf"
    assert describe(np.float64(0.5)) == 0.5
    assert describe({1: (True, None)}) == {"1": [True, None]}
    assert describe(torch.optim.AdamW) == "torch.optim.adamw.AdamW"
    described = describe_adapter(FairTPT(lam=float("inf")))
    assert described["name"] == "FairTPT"
    assert described["settings"]["lam"] == "inf"
    assert described["repr"].startswith("FairTPT(lam=inf")
    assert describe_adapter(object())["name"] == "object"
    assert set(describe(function)["settings"]) == {Path(__file__).name}


@pytest.mark.parametrize(
    ("value", "equal", "different"),
    [
        (InFile(1), InFile(1), InFile(2)),
        (InFile(Frozen(1)), InFile(Frozen(1)), InFile(Frozen(2))),
        (Frozen(function), Frozen(function), Frozen(InFile)),
        (partial(function, 1), partial(function, 1), partial(function, 2)),
        (
            partial(function, value=1),
            partial(function, value=1),
            partial(function, value=2),
        ),
        ({"a", "b"}, {"b", "a"}, {"a", "c"}),
        (frozenset([0, 8]), frozenset([8, 0]), {0, 8}),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (nn.Dropout(0.1), nn.Dropout(0.1), nn.Dropout(0.2)),
        (torch.zeros(2), torch.zeros(2), torch.ones(2)),
        (np.zeros(2), np.zeros(2), np.ones(2)),
        (
            Templates.from_sentence("a {target}"),
            Templates.from_sentence("a {target}"),
            Templates.from_sentence("the {target}"),
        ),
    ],
)
def test_what_differs_has_another_fingerprint(
    value: Any, equal: Any, different: Any
) -> None:
    assert fingerprint(value) == fingerprint(equal) != fingerprint(different)
    assert None not in (fingerprint(value), fingerprint(different))
    json.dumps(describe(value))


def test_models_are_known_by_their_weights() -> None:
    module = nn.Linear(2, 2)
    assert (
        fingerprint(Frozen(module))
        == fingerprint(Frozen(module))
        != fingerprint(nn.Linear(2, 2))
    )


def test_code_of_the_user_is_known_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(InFile(1)), fingerprint(Frozen(1))
    other_file = tmp_path / "other.py"
    other_file.write_text(Path(__file__).read_text() + "\n# another\n")
    monkeypatch.setitem(globals(), "__file__", str(other_file))
    assert fingerprint(InFile(1)) != before[0]
    assert fingerprint(Frozen(1)) != before[1]


def test_code_of_the_user_includes_what_it_imports_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a method whose helper had changed were taken for finished."""
    (tmp_path / "shift_by.py").write_text("SHIFT = 0\n")
    (tmp_path / "shifted.py").write_text(
        "import shift_by\n\n\nclass Shifted:\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    shifted = importlib.import_module("shifted").Shifted()
    before = fingerprint(shifted)
    (tmp_path / "shift_by.py").write_text("SHIFT = 1\n")
    assert fingerprint(shifted) != before


def test_what_has_no_lasting_identity_has_no_fingerprint() -> None:
    circle = InFile(None)
    circle.share = circle
    namespace: dict[str, Any] = {"__name__": "nowhere"}
    exec("class Made: pass", namespace)
    for value in (
        lambda: 1,
        partial(lambda: 1),
        Frozen(lambda: 1),
        circle,
        namespace["Made"](),
    ):
        assert fingerprint(value) is None
        json.dumps(describe(value))


def test_a_method_without_identity_is_computed_again_and_said_so() -> None:
    @dataclass(frozen=True)
    class Mine(ZeroShot):
        share: Any

    clf = FairTPTClassifier(
        "miniature", ["cat", "dog"], adapter=ZeroShot(), views=AugMix(2)
    )
    first, again = (make_job(clf, [ZeroShot(), Mine(lambda: 1)]) for _ in range(2))
    with pytest.warns(UserWarning, match="cannot be recognised by a later run"):
        digests = first.digests, again.digests
    assert digests[0][:2] == digests[1][:2]
    (same_digest, mine), (also, other_digest) = digests[0][2], digests[1][2]
    assert same_digest == also
    assert mine != other_digest


def test_features_depend_on_weights_views_and_preprocessing(tiny_model: str) -> None:
    backend = load_backend(tiny_model)
    twin, changed = copy.deepcopy(backend), copy.deepcopy(backend)
    identity = feature_identity(backend, AugMix(6))
    assert str(Path(tiny_model).parent) not in str(identity)
    assert identity == feature_identity(twin, AugMix(6))
    assert identity["dim"] == 16
    different = [
        feature_identity(backend, AugMix(7)),
        feature_identity(backend, AugMix(6, severity=2)),
    ]
    with torch.no_grad():
        next(twin.model.parameters()).add_(1e-3)  # type: ignore[attr-defined]
    different.append(feature_identity(twin, AugMix(6)))
    changed.image_processor.image_mean = [0.1, 0.2, 0.3]  # type: ignore[attr-defined]
    different.append(feature_identity(changed, AugMix(6)))
    assert all(identity != changed for changed in different)
    assert len({str(changed) for changed in different}) == 4

    class Hidden:
        """A model that shows neither weights nor preprocessing."""

        name, encode_images = "hidden", backend.encode_images

    hidden = feature_identity(Hidden(), AugMix(6))
    assert hidden["weights"].startswith("features ")
    assert hidden["preprocessing"] is None
