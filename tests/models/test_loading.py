"""What may be passed as `model`, and what is refused with which words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import families
import numpy as np
import open_clip
import pytest
import torch
import transformers
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from PIL.Image import Image
from torch import Tensor

from fair_tta import FairTPTClassifier
from fair_tta.errors import ModelError
from fair_tta.extend import Backend, Tokens
from fair_tta.models import OpenClipBackend, TransformersBackend, resolve

CONFIG = {
    "embed_dim": 16,
    "vision_cfg": {
        "image_size": 32,
        "layers": 2,
        "width": 32,
        "patch_size": 8,
        "head_width": 8,
    },
    "text_cfg": {
        "context_length": 77,
        "vocab_size": 49408,
        "width": 32,
        "heads": 4,
        "layers": 2,
    },
}


def answer(model: Any, processor: Any = None) -> Any:
    clf = FairTPTClassifier(model, TARGETS, SENSITIVE, TEMPLATE, processor=processor)
    return clf.predict_proba([picture()])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP saved as users save theirs."""
    folder = tmp_path_factory.mktemp("clip")
    model, images, tokenizer = families.seeded(families.clip)
    model.save_pretrained(folder)
    transformers.CLIPProcessor(images, tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny open_clip architecture, known by name."""
    path = tmp_path_factory.mktemp("configs") / "fair-tta-tiny.json"
    path.write_text(json.dumps(CONFIG))
    open_clip.add_model_config(path)
    return "fair-tta-tiny"


def test_every_form_of_a_transformers_model_gives_the_same_answer(saved: Path) -> None:
    model = transformers.CLIPModel.from_pretrained(saved)
    processor = transformers.CLIPProcessor.from_pretrained(saved)
    expected = answer(model, processor)
    parts = (processor.image_processor, processor.tokenizer)
    pipeline = transformers.pipeline("zero-shot-image-classification", model=str(saved))
    for form in (
        answer(model),  # finds its processor by its name_or_path
        answer(model, parts),
        answer((model, processor)),
        answer(str(saved)),
        answer(saved),
        answer(pipeline),
        answer(TransformersBackend(model, *parts)),
        answer(torch.nn.DataParallel(model), processor),
    ):
        assert np.array_equal(form, expected)


def test_equals_the_transformers_pipeline(saved: Path) -> None:
    pipeline = transformers.pipeline("zero-shot-image-classification", model=str(saved))
    labels, template = ["cat", "black dog", "water bird"], "This is a photo of {}."
    theirs = pipeline(picture(), candidate_labels=labels, hypothesis_template=template)
    ours = (
        FairTPTClassifier(pipeline, labels, template=template)
        .predict(picture())
        .to_dict()
    )
    assert [row["label"] for row in ours] == [row["label"] for row in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert set(mine) == set(other)
        assert mine["score"] == pytest.approx(other["score"], abs=1e-5)


def test_every_form_of_an_open_clip_model_gives_the_same_answer(
    registered: str, tmp_path: Path
) -> None:
    model, _, preprocess = open_clip.create_model_and_transforms(registered)
    tokenizer = open_clip.get_tokenizer(registered)
    expected = answer((model, preprocess, tokenizer))
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    folder = tmp_path / "folder"
    folder.mkdir()
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    (folder / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": CONFIG, "preprocess_cfg": model.visual.preprocess_cfg})
    )
    for form in (
        answer(model),
        answer([model, preprocess, tokenizer]),
        answer(OpenClipBackend(model, preprocess, tokenizer)),
        answer(f"open_clip:{registered}/{tmp_path / 'weights.pt'}"),
        answer(f"open_clip:local-dir:{folder}"),
        answer(folder),
    ):
        assert np.array_equal(form, expected)


class Table:
    """A backend of one's own: words are vectors, pictures are their mean colour."""

    name = "Table"
    device = torch.device("cpu")
    dtype = torch.float32
    scale = 10.0

    def encode_images(self, images: Sequence[Image]) -> Tensor:
        colours = [np.asarray(image).reshape(-1, 3).mean(0) for image in images]
        return torch.tensor(np.array(colours), dtype=torch.float32)

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        rows = [
            [crc32(word.encode()) % 997 + 1 for word in text.split()] for text in texts
        ]
        ids = torch.zeros(len(rows), max(map(len, rows))).long()
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
        return Tokens(ids, ids > 0)

    def embed_tokens(self, ids: Tensor) -> Tensor:
        return torch.stack([ids.sin(), ids.cos(), (2 * ids).sin()], -1)

    def encode_text(self, tokens: Tokens) -> Tensor:
        return self.encode_prompts(tokens, self.embed_tokens(tokens.ids))

    def encode_prompts(self, tokens: Tokens, embeddings: Tensor) -> Tensor:
        return (embeddings * tokens.mask[..., None]).sum(1)


def test_a_backend_of_ones_own() -> None:
    backend = Table()
    assert isinstance(backend, Backend)
    clf = FairTPTClassifier(
        backend, ["red", "blue"], ["big", "small"], "a {sensitive} {target} dot"
    )
    assert clf.predict(picture()).label in ("red", "blue")
    assert len(clf._task.context) == 2


def test_strings_that_cannot_be_loaded(registered: str, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"`model='no-such/model'` could not be loaded: "
    ):
        resolve("no-such/model")
    for name in ("no-such-name/openai", registered, ""):
        with pytest.raises(ModelError, match="should be 'open_clip:NAME/TAG'"):
            resolve(f"open_clip:{name}")
    with pytest.raises(
        ModelError, match=f"'open_clip:{registered}/no-such-tag' could not be"
    ):
        resolve(f"open_clip:{registered}/no-such-tag")


def test_missing_processors(tmp_path: Path) -> None:
    model, images, tokenizer = families.seeded(families.clip)
    model.save_pretrained(tmp_path)
    lonely = transformers.CLIPModel.from_pretrained(tmp_path)
    with pytest.raises(ModelError, match="no processor was found for"):
        resolve(lonely)
    with pytest.raises(ModelError, match="`processor` goes with"):
        resolve(Table(), (images, tokenizer))


@pytest.mark.parametrize("change", [{"vocab_size": 100}, {"visual": None}])
def test_an_open_clip_model_without_its_settings(
    change: dict[str, Any], registered: str
) -> None:
    clip = open_clip.create_model(registered)
    for name, setting in change.items():
        setattr(clip, name, setting)
    with pytest.raises(ModelError, match="does not state its preprocessing"):
        resolve(clip)


@pytest.mark.parametrize("kind", [TransformersBackend, Table, transformers.CLIPModel])
def test_a_class_is_no_model(kind: type) -> None:
    with pytest.raises(
        ModelError,
        match=r"`model` should be a transformers model .*\(got (builtins|abc)",
    ):
        resolve(kind)


def test_a_directory_without_all_weights_is_refused(tmp_path: Path) -> None:
    model, images, tokenizer = families.seeded(families.clip)
    transformers.CLIPForImageClassification(model.config).save_pretrained(tmp_path)
    transformers.CLIPProcessor(images, tokenizer).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="lacks weights of a CLIPModel, such as"):
        resolve(tmp_path)


def test_a_broken_file_is_a_model_error(saved: Path, tmp_path: Path) -> None:
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"short")
    with pytest.raises(ModelError, match="could not be loaded"):
        resolve(tmp_path)


def test_wrappers_inside_tuples_and_modules_that_are_backends(registered: str) -> None:
    model, _, preprocess = open_clip.create_model_and_transforms(registered)
    tokenizer = open_clip.get_tokenizer(registered)
    expected = answer((model, preprocess, tokenizer))
    wrapped = answer((torch.nn.DataParallel(model), preprocess, tokenizer))
    assert np.array_equal(wrapped, expected)

    class Own(Table, torch.nn.Module):
        config = None

    assert resolve(own := Own()) is own


def test_models_that_see_but_do_not_read() -> None:
    model, images, tokenizer = families.seeded(families.clip)

    class OnlyImages(torch.nn.Module):
        config = model.config
        dtype = torch.float32

        def get_image_features(self) -> None: ...

    with pytest.raises(ModelError, match="OnlyImages does not have both"):
        resolve(OnlyImages(), (images, tokenizer))
