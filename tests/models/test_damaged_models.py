"""Models whose weights are not there, in several precisions, or give no gradient."""

from __future__ import annotations

import copy
import json
import math
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hostile_models
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from internals import FOLDER
from test_untouched import open_clip_clip, transformers_clip
from torch import nn
from transformers import CLIPImageProcessor

from fair_tta import FairTPT, FairTPTClassifier, ZeroShot
from fair_tta.errors import ModelError, TowerError
from fair_tta.extend import Adapter, AugMix
from fair_tta.methods import Tent


def classify(model: Any, adapter: Adapter | None = None) -> Any:
    clf = FairTPTClassifier(
        model, TARGETS, SENSITIVE, TEMPLATE, adapter=adapter, views=AugMix(2)
    )
    return clf.predict(picture())


@pytest.mark.parametrize("make", [transformers_clip, open_clip_clip])
def test_weights_that_are_not_there(make: Callable[[], tuple[Any, Any]]) -> None:
    model, parts = make()
    vision = model.vision_model if hasattr(model, "vision_model") else model.visual
    vision.to("meta")
    with pytest.raises(
        ModelError, match=r"`model` \(CLIP.*have no values, such as .*: load it on"
    ):
        classify(parts)


def test_a_vision_tower_in_another_precision() -> None:
    model, parts = transformers_clip()
    model.vision_model.half()
    message = (
        r"vision tower of CLIPModel fails: .*\(Its weights are in float16 and float32"
    )
    for adapter in (None, Tent()):  # which tunes the tower itself
        with pytest.raises(ModelError, match=message):
            classify(parts, adapter)
    model.float()
    classify(parts)


def test_a_text_tower_in_another_precision() -> None:
    model, parts = transformers_clip()
    model.text_model.bfloat16()
    message = r"does not take sentences: .*\(Its weights are in bfloat16 and float32: convert all"
    with pytest.raises(ModelError, match=message):
        classify(parts)


@pytest.mark.parametrize("make", [transformers_clip, open_clip_clip])
def test_weights_that_are_not_finite(make: Callable[[], tuple[Any, Any]]) -> None:
    """Also where attention swallows them: a query that is NaN attends to all tokens alike."""
    model, parts = make()
    name = "q_proj" if hasattr(model, "text_model") else "in_proj"
    weight = next(
        w for n, w in model.named_parameters() if name in n and "visual" not in n
    )
    clf = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE, adapter="zero-shot")
    for value in (torch.nan, torch.inf):
        with (
            torch.no_grad()
        ):  # PyTorch counts this change; one through `.data` it does not
            weight.view(-1)[0] = value
        for answer in (
            partial(classify, parts, ZeroShot()),
            partial(clf.predict, picture()),
        ):
            with pytest.raises(ModelError, match=f"are not finite, such as '.*{name}"):
                answer()


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 120 GB")],
)
def test_too_little_memory_for_what_an_image_processor_makes(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    clf = FairTPTClassifier(transformers_clip()[1], TARGETS, SENSITIVE, TEMPLATE)
    monkeypatch.setattr(type(clf._backend), "preprocess", fail)
    monkeypatch.setattr(type(clf._backend), "encode_images", fail)
    with pytest.raises(
        ModelError, match=r"not enough memory .* smaller `batch_size`, and look at"
    ):
        clf.with_adapter("zero-shot").predict(picture())


def test_sizes_that_would_take_all_memory(tmp_path: Path) -> None:
    model, (_, (images, tokenizer)) = transformers_clip()
    for name, size in (
        ("crop_size", {"height": 200_000, "width": 32}),
        ("size", math.inf),
    ):
        processor = copy.copy(images)
        setattr(processor, name, size)
        with pytest.raises(
            ModelError, match=r"CLIPModel has '\w+': \w+, which is more than 4096"
        ):
            classify((model, (processor, tokenizer)))
    folder = hostile_models.save_open_clip(
        tmp_path / "a", vision={"image_size": 200_000}
    )
    with pytest.raises(
        ModelError, match="has 'image_size': 200000, which is more than 4096"
    ):
        classify(folder)
    folder = hostile_models.save_open_clip(tmp_path / "b")
    hostile_models.write(
        folder / "open_clip_config.json", preprocess_cfg={"size": [200_000, 9]}
    )
    with pytest.raises(ModelError, match="has 'size': 200000, which is more than 4096"):
        classify(folder)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("full"), RuntimeError("odd picture")]
)
def test_what_is_not_about_the_weights_stays_what_it_is(
    error: RuntimeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, parts = transformers_clip()
    model.vision_model.post_layernorm.double()

    def fail(**_inputs: Any) -> None:
        raise error

    clf = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(2))
    monkeypatch.setattr(model, "get_image_features", fail)
    with pytest.raises(type(error), match=str(error)):
        clf.predict(picture())


def made_under_inference_mode() -> Any:
    with torch.inference_mode():
        return transformers_clip()[1]


def int8() -> Any:
    model, (_, processor) = transformers_clip()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and in use
        quantised = torch.ao.quantization.quantize_dynamic(
            model, {nn.Linear}, dtype=torch.qint8
        )
    return quantised, processor


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            made_under_inference_mode,
            "its weights were made under torch.inference_mode: load it",
        ),
        (int8, "its layers are quantised and have no gradient: load it in float"),
    ],
)
def test_models_without_gradient_are_for_methods_that_need_none(
    make: Callable[[], Any], reason: str
) -> None:
    model = make()
    classify(model, ZeroShot())
    with pytest.raises(TowerError, match=f"FairTPT tunes the prompt, but .*{reason}"):
        classify(model, FairTPT())


def test_another_tower_without_gradient_says_what_torch_says() -> None:
    model, parts = transformers_clip()
    get_features = model.get_text_features
    model.get_text_features = lambda **inputs: getattr(
        get_features(**inputs), "pooler_output", get_features(**inputs)
    ).detach()
    with pytest.raises(
        TowerError, match=r"no gradient comes through it \(element 0 of tensors"
    ):
        classify(parts, FairTPT())


def cut(_content: Any) -> str:
    return '{"version": "1.0", "trunca'


def shifted(content: Any) -> str:
    """All tokens have numbers that the model does not know."""
    content["model"]["vocab"] = {
        key: 10**6 + n for key, n in content["model"]["vocab"].items()
    }
    return json.dumps(content)


def emptied(content: Any) -> str:
    content["model"] |= {"vocab": {"a": 0}, "merges": []}
    return json.dumps(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "no processor was found for `model="),
        (
            shifted,
            r"does not take sentences: index out of range .*\(The tokenizer may be damaged",
        ),
        (
            emptied,
            r"the tokenizer of CLIPModel .* does not take sentences .*: it is damaged, get",
        ),
    ],
)
def test_damaged_tokenizers(
    damage: Callable[[Any], str], message: str, tmp_path: Path
) -> None:
    shutil.copytree(FOLDER, tmp_path / "model")
    file = tmp_path / "model" / "tokenizer.json"
    file.write_text(damage(json.loads(file.read_text())))
    with pytest.raises(ModelError, match=message):
        classify(str(tmp_path / "model"))


def test_an_image_processor_of_another_model() -> None:
    _, (model, (_, tokenizer)) = transformers_clip()
    for adapter in (ZeroShot(), FairTPT(), Tent()):
        message = r"^CLIPModel takes no images \(ValueError: .*: its image processor may be dam"
        with pytest.raises(ModelError, match=message):
            classify((model, (CLIPImageProcessor(), tokenizer)), adapter)


def test_a_token_that_the_model_does_not_have() -> None:
    _, (model, (images, tokenizer)) = transformers_clip()
    clf = FairTPTClassifier((model, (images, tokenizer)), TARGETS, SENSITIVE, TEMPLATE)
    with pytest.raises(
        ModelError, match=r"it names token 10000000, and there are \d+. Get it ag"
    ):
        clf._backend.embed_tokens(torch.tensor([[0, 10_000_000]]))


@pytest.mark.parametrize("name", ["a" * 5000, "a/" * 5000])
def test_names_that_are_too_long(name: str) -> None:
    with pytest.raises(ModelError, match=r"`model='a.*could not be loaded: ") as got:
        classify(name)
    assert len(str(got.value)) < 1000
