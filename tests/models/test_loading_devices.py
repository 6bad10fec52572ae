"""Models from strings on a device and in a precision; objects stay as they are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import device_models
import families
import pytest
import torch
from checks import picture
from internals import find_device, find_dtype, load

from fair_tta import FairTPT, FairTPTClassifier, FairTTAError, Zero, ZeroShot
from fair_tta.extend import AugMix
from fair_tta.models import resolve

NAMES: Any = (["circle", "square"], ["red", "blue"], "a {sensitive} {target}.")
PICTURES = [picture(i, (40 + i, 30)) for i in range(6)]


@pytest.mark.parametrize("dtype", ["bfloat16", torch.float16, "float64"])
def test_a_string_is_loaded_in_a_precision(dtype: Any) -> None:
    clf = FairTPTClassifier(
        "miniature", *NAMES, views=AugMix(4), device="cpu", dtype=dtype
    )
    plain = FairTPTClassifier("miniature", *NAMES, views=AugMix(4))
    expected = dtype if isinstance(dtype, torch.dtype) else getattr(torch, dtype)
    assert clf._backend.dtype == expected
    assert (
        clf._backend.scale == plain._backend.scale
    )  # bfloat16 would be one percent off
    assert clf.predict(PICTURES[0]).zero_shot == pytest.approx(
        plain.predict(PICTURES[0]).zero_shot, abs=0.05
    )


def test_auto() -> None:
    assert (
        find_dtype("auto", None)
        == find_dtype("auto", torch.device("cpu"))
        == torch.float32
    )
    assert find_dtype("auto", torch.device("mps")) == torch.bfloat16
    expected = (
        torch.accelerator.current_accelerator()
        if torch.accelerator.is_available()
        else None
    )
    assert find_device("auto") == (expected or torch.device("cpu"))
    assert load("miniature", device="auto", dtype="auto").device == find_device("auto")


def test_auto_on_an_old_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated=True: False)
    assert find_dtype("auto", torch.device("cuda")) == torch.float16


class Plain:
    """A backend that keeps its model to itself."""

    def __init__(self) -> None:
        inner = resolve("miniature")
        self.inner = {name: getattr(inner, name) for name in (
            "name", "device", "dtype", "scale", "encode_images", "tokenize", "embed_tokens",
            "encode_text", "encode_prompts",
        )}  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.inner:
            raise AttributeError(name)
        return self.inner[name]


def test_user_defined_backends_are_not_compiled() -> None:
    with pytest.raises(
        FairTTAError, match="`compile_vision` needs a model of transformers or"
    ):
        FairTPTClassifier(Plain(), *NAMES, compile_vision=True)


def test_a_device_that_is_not_there() -> None:
    missing = next(n for n in ("cuda", "xpu", "hpu") if not _is_there(n))
    with pytest.raises(FairTTAError, match=f"`device` '{missing}' cannot be used: "):
        load("miniature", device=missing)


def _is_there(name: str) -> bool:
    module = getattr(torch, name, None)
    return module is not None and bool(module.is_available())


@pytest.mark.parametrize(
    ("dtype", "adapter"),
    [("bfloat16", ZeroShot()), ("float16", Zero(1.0)), ("bfloat16", FairTPT())],
)
def test_half_precision_hardly_depends_on_the_batch(dtype: str, adapter: Any) -> None:
    settings: dict[str, Any] = {"adapter": adapter, "views": AugMix(4), "dtype": dtype}
    clf = FairTPTClassifier("miniature", *NAMES, **settings)
    together = clf.predict_proba(PICTURES)
    clf.forget()
    one_by_one = [clf.predict_proba(image) for image in PICTURES]
    assert abs(together - one_by_one).max() < 1e-3


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("gcc") is None, reason="torch.compile needs a compiler here"
)
def test_a_compiled_vision_tower_gives_the_same_features() -> None:
    script = Path(__file__).parents[1] / "helpers" / "compiled_run.py"
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    if run.returncode < 0:
        pytest.skip(
            f"what torch.compile made has crashed here (signal {-run.returncode})"
        )
    assert run.stdout.endswith("the same features\n"), run.stderr[-3000:]


def _wrong(call: Any) -> Any:
    return lambda **inputs: call(**inputs) * torch.nan


def _none(call: Any) -> Any:
    def fail(**inputs: Any) -> None:
        raise OSError("no code came of it")

    return fail


@pytest.mark.parametrize(
    ("compiler", "problem"),
    [(_wrong, "has other features"), (_none, r"fails \(OSError\)")],
)
def test_wrong_code_of_a_compiler_is_noticed(
    compiler: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, *processor = families.seeded(families.clip)
    settings: dict[str, Any] = {"processor": tuple(processor), "views": AugMix(2)}
    plain = FairTPTClassifier(model, *NAMES, **settings)
    monkeypatch.setattr(torch, "compile", compiler)
    with pytest.warns(
        UserWarning, match=f"{problem} on this machine: the vision tower stays"
    ):
        clf = FairTPTClassifier(model, *NAMES, **settings, compile_vision=True)
    torch.testing.assert_close(clf.encode(PICTURES[:1]), plain.encode(PICTURES[:1]))


def _inside(model: Any) -> Any:
    """The vision tower is compiled, the rest is not."""
    name = "vision_model" if hasattr(model, "vision_model") else "visual"
    setattr(model, name, torch.compile(getattr(model, name), backend="eager"))
    return model


def _in_place(model: Any) -> Any:
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize(
    ("library", "compiled"),
    [
        ("transformers", lambda model: torch.compile(model, backend="eager")),
        ("transformers", _in_place),
        ("transformers", _inside),
        ("open_clip", _inside),
    ],
    ids=["the whole", "in place", "the vision tower", "the vision tower of open_clip"],
)
def test_a_model_that_is_compiled_already(library: str, compiled: Any) -> None:
    """By a backend that calls no compiler: what one makes may crash, see above."""
    build = (
        families.clip if library == "transformers" else device_models.BUILD["open_clip"]
    )
    model, *processors = families.seeded(build)

    def predict(clip: Any) -> Any:
        parts = (
            (clip, tuple(processors))
            if library == "transformers"
            else (clip, *processors)
        )
        clf = FairTPTClassifier(parts, *NAMES, adapter=FairTPT(), views=AugMix(4))
        return clf.predict_proba(PICTURES[:2])

    expected = predict(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        probabilities = predict(compiled(model))
    finally:
        torch._dynamo.reset()
    assert probabilities == pytest.approx(expected, abs=1e-4)
    after = {
        name.replace("_orig_mod.", ""): value
        for name, value in model.state_dict().items()
    }
    assert all(torch.equal(after[name], value) for name, value in before.items())
