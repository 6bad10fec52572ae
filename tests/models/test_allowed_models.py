"""A string that names a model never runs code that comes with it, nor reaches out of its folder."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import families
import hostile_models as hostile
import huggingface_hub
import huggingface_hub.constants
import open_clip
import pytest
import safetensors.torch
import torch
import transformers
from checks import picture
from cli_fixtures import NAMES, call
from internals import FOLDER
from internals import allowed_models_module as untrusted
from internals import loading_module as load

from fair_tta import FairTPTClassifier
from fair_tta.errors import ModelError
from fair_tta.models import resolve

EVERY = hostile.OPEN_CLIP | hostile.TRANSFORMERS


@pytest.fixture(autouse=True)
def _agreeable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Somebody who says yes to everything, in a folder and with a cache of his own."""
    questions: list[str] = []

    def say_yes(question: str = "") -> str:
        questions.append(question)
        return "y"

    monkeypatch.setattr(builtins, "input", say_yes)
    cache = str(tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", cache)
    if hasattr(transformers.utils.hub, "TRANSFORMERS_CACHE"):  # version 4 has a copy
        monkeypatch.setattr(transformers.utils.hub, "TRANSFORMERS_CACHE", cache)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield
    assert not questions


@pytest.mark.parametrize("name", EVERY)
def test_a_folder_runs_nothing(name: str, tmp_path: Path) -> None:
    flag, folder = tmp_path / "ran", tmp_path / "model"
    make, words = EVERY[name]
    make(folder, flag)
    is_open_clip = name in hostile.OPEN_CLIP
    with pytest.raises(ModelError, match=words):
        FairTPTClassifier(
            f"open_clip:local-dir:{folder}" if is_open_clip else folder, ["a", "b"]
        )
    assert not flag.exists()
    with pytest.raises(ModelError):  # seen as a folder of either library
        resolve(str(folder))
    assert not flag.exists()


@pytest.mark.parametrize("name", ["trusting", "own_tokenizer", "pickled"])
def test_nor_does_the_command(name: str, tmp_path: Path) -> None:
    flag, folder = tmp_path / "ran", tmp_path / "model"
    EVERY[name][0](folder, flag)
    picture().save("a.png")
    model = (
        f"open_clip:local-dir:{folder}" if name in hostile.OPEN_CLIP else str(folder)
    )
    out = call(
        "predict",
        "a.png",
        "--model",
        model,
        *NAMES,
        stdin=b"y\n" * 9,
        code=3,
        columns=999,
    )
    assert not flag.exists()
    assert "--model" in out.stderr or "open_clip" in out.stderr


ON_THE_HUB = [
    "asking",
    "trusting",
    "tower_of_the_hub",
    "pickled_open_clip",
    "own_model",
]


@pytest.mark.parametrize(
    "name", [*ON_THE_HUB, "own_tokenizer", "audio_tokenizer", "pickled"]
)
def test_nor_does_a_model_of_the_hub(name: str, tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    make = EVERY[name][0]
    hostile.as_hub(
        tmp_path / "cache", "somebody/model", lambda folder: make(folder, flag)
    )
    if (
        name == "asking"
    ):  # of the hub, the tokenizer is that of the model which it names
        hostile.as_hub(tmp_path / "cache", "x", lambda folder: make(folder, flag))
    is_open_clip = name in hostile.OPEN_CLIP
    with pytest.raises(ModelError):
        resolve("open_clip:hf-hub:somebody/model" if is_open_clip else "somebody/model")
    assert not flag.exists()


def test_a_folder_of_the_same_name_is_not_the_hub(tmp_path: Path) -> None:
    hostile.as_hub(tmp_path / "cache", "somebody/open", partial(
        hostile.trusting, flag=tmp_path / "ran"
    ))  # fmt: skip
    hostile.save_open_clip(Path("somebody/open"))
    with pytest.raises(ModelError, match="tokenizer_kwargs"):
        resolve("open_clip:hf-hub:somebody/open")


def test_checkpoints_of_other_formats(tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    hostile.numpy_weights(tmp_path / "a.npz", flag)
    hostile.script_weights(tmp_path / "a.pt")
    config = {"embed_dim": 16, "vision_cfg": hostile.VISION, "text_cfg": hostile.TEXT}
    (tmp_path / "fair-tta-foreign.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "fair-tta-foreign.json")
    for name in ("a.npz", "a.pt"):
        with pytest.raises(ModelError, match="could not be loaded"):
            resolve(f"open_clip:fair-tta-foreign/{tmp_path / name}")
    assert not flag.exists()


# --- what is harmless still loads ------------------------------------------------------------


def answer(model: Any) -> Any:
    return (
        FairTPTClassifier(model, ["cat", "dog"]).predict_proba([picture()])[0].tolist()
    )


def test_harmless_models_are_loaded_from_folder_and_hub(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = hostile.save_clip(tmp_path / "clip")
    hostile.write(folder / "tokenizer_config.json", special_tokens_map_file="/x/y.json")
    hostile.write(folder / "config.json", attn_implementation="eager", auto_map={})
    hostile.as_hub(cache, "somebody/clip", hostile.save_clip)
    assert answer("somebody/clip") == pytest.approx(answer(folder), abs=1e-5)
    model = transformers.CLIPModel.from_pretrained("somebody/clip")
    assert answer(model) == answer("somebody/clip")  # finds its processor on the hub

    save = partial(hostile.save_open_clip, tokenizer_kwargs={"clean": "canonicalize"})
    folder = save(tmp_path / "open")
    hostile.as_hub(cache, "somebody/open", save)
    expected = answer(folder)
    assert answer(f"open_clip:local-dir:{folder}") == expected
    assert answer("open_clip:hf-hub:somebody/open") == expected


def test_links_that_stay_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the folder, to the blobs of the hub, at the folder itself, and of an installer."""
    folder = hostile.save_clip(tmp_path / "clip")
    expected = answer(folder)
    (folder / "model.safetensors").rename(folder / "weights-1")
    (folder / "model.safetensors").symlink_to("weights-1")
    (folder / "again").symlink_to("../clip/config.json")
    assert answer(folder) == expected
    (tmp_path / "by-another-name").symlink_to(folder)
    assert answer(tmp_path / "by-another-name") == expected

    def save_with_blobs(folder: Path) -> None:
        hostile.save_clip(folder)
        hostile.blobs_behind_links(folder)

    hostile.as_hub(tmp_path / "cache", "somebody/linked", save_with_blobs)
    assert answer("somebody/linked") == pytest.approx(expected, abs=1e-5)
    (snapshot,) = tmp_path.glob("cache/models--somebody--linked/snapshots/*")
    assert answer(snapshot) == expected

    embedded = tmp_path / "site-packages" / "miniature"
    embedded.mkdir(parents=True)
    for file in FOLDER.iterdir():  # as uv installs packages with --link-mode=symlink
        if file.is_file():
            (embedded / file.name).symlink_to(file)
    monkeypatch.setattr(load, "FOLDER", embedded)
    monkeypatch.setattr(untrusted, "FOLDER", embedded)
    assert answer("miniature")


def test_links_of_a_snapshot_to_another_model(tmp_path: Path) -> None:
    def save(folder: Path) -> None:
        hostile.save_clip(folder)
        hostile.blobs_behind_links(folder)
        (folder / "extra.json").symlink_to("../../../models--own--secret/blobs/1")

    hostile.as_hub(tmp_path / "cache", "somebody/linked", save)
    (snapshot,) = tmp_path.glob("cache/models--somebody--linked/snapshots/*")
    with pytest.raises(ModelError, match=r"extra\.json is a link that leads out of"):
        resolve(snapshot)


@pytest.mark.parametrize(
    "family", [pytest.param(n, marks=families.marks(n)) for n in families.TRANSFORMERS]
)
def test_every_family_is_loaded_from_its_folder(family: str, tmp_path: Path) -> None:
    for part in families.seeded(families.TRANSFORMERS[family]):
        part.save_pretrained(tmp_path / "model")
    assert str(tmp_path / "model") in resolve(tmp_path / "model").name


def test_towers_and_tokenizers_of_transformers_inside_open_clip(tmp_path: Path) -> None:
    tokenizer = families.bert_tokenizer()
    tower = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
        )
    )
    tower.config.save_pretrained(tmp_path / "tower")

    def save_tower(folder: Path) -> None:
        tower.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    hostile.as_hub(tmp_path / "cache", "somebody/bert", save_tower)
    names = {"hf_model_name": "somebody/bert", "hf_tokenizer_name": "somebody/bert"}
    text = {"context_length": 16, "hf_proj_type": "linear", **names}
    model = open_clip.CustomTextCLIP(
        16, hostile.VISION, text | {"hf_model_name": str(tmp_path / "tower")}
        | {"hf_model_pretrained": False},
    )  # fmt: skip
    config = {"embed_dim": 16, "vision_cfg": hostile.VISION, "text_cfg": text}
    weights = {key: value.contiguous() for key, value in model.state_dict().items()}

    def save(folder: Path) -> None:
        folder.mkdir()
        hostile.write(
            folder / "open_clip_config.json", model_cfg=config, preprocess_cfg={}
        )
        safetensors.torch.save_file(weights, folder / "open_clip_model.safetensors")

    hostile.as_hub(tmp_path / "cache", "somebody/open", save)
    backend = resolve("open_clip:hf-hub:somebody/open")
    save(tmp_path / "folder")
    with pytest.raises(ModelError, match="could not be loaded"):
        resolve(tmp_path / "folder")  # open_clip looks for the tokenizer here
    tokenizer.save_pretrained(tmp_path / "folder")
    from_folder = resolve(f"open_clip:local-dir:{tmp_path / 'folder'}")
    ids = backend.tokenize(["a photo of a cat"]).ids
    assert torch.equal(from_folder.tokenize(["a photo of a cat"]).ids, ids)
    assert torch.equal(
        ids[0, :7], torch.tensor(tokenizer("a photo of a cat")["input_ids"])
    )
    expected = model.eval().encode_text(ids)
    for loaded in (backend, from_folder):
        features = loaded.encode_text(loaded.tokenize(["a photo of a cat"]))
        assert torch.allclose(features, expected, atol=1e-5)


def test_a_folder_never_leads_to_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def snapshot_download(*_: Any, local_files_only: bool = False, **__: Any) -> str:
        asked.append(local_files_only)
        raise FileNotFoundError("not here")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    folder = hostile.save_open_clip(tmp_path / "model", hf_model_name="somebody/tower")
    with pytest.raises(ModelError, match="not here"):
        resolve(f"open_clip:local-dir:{folder}")
    assert asked == [True]


def test_nor_does_the_config_beside_a_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers reads config.json for a tokenizer too, and asks the hub about its backbone."""
    asked: list[str] = []

    def repo_exists(_: Any, name: str, **__: Any) -> bool:
        asked.append(name)
        return False

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_exists", repo_exists)
    folder = hostile.save_clip(tmp_path / "model")
    hostile.save_open_clip(folder, hf_tokenizer_name="x")
    config = {
        "model_type": "detr",
        "backbone": "somebody/tower",
        "use_timm_backbone": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    with suppress(ModelError):
        resolve(f"open_clip:local-dir:{folder}")
    assert asked == []


def test_what_the_user_loaded_is_taken_as_it_is(tmp_path: Path) -> None:
    """Code that the user trusts may stand in config.json; its processor is looked at."""
    folder = hostile.save_clip(tmp_path / "clip")
    model = transformers.CLIPModel.from_pretrained(folder)
    hostile.write(folder / "config.json", auto_map={"AutoModel": "modeling.Own"})
    assert answer(model)
    flag = tmp_path / "ran"
    hostile.own_tokenizer(tmp_path / "own", flag)
    model = transformers.CLIPModel.from_pretrained(tmp_path / "own")
    with pytest.raises(ModelError, match=r"tokenizer_config\.json"):
        resolve(model)
    assert not flag.exists()
