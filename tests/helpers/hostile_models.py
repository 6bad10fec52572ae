"""Folders of models that try to run code, or to reach out of themselves, when they are loaded."""

from __future__ import annotations

import json
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import families
import numpy as np
import open_clip
import safetensors.torch
import torch
import transformers

VISION = {"image_size": 32, "layers": 2, "width": 32, "patch_size": 8, "head_width": 8}
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 4, "layers": 2}


class Payload:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@lru_cache
def _clip() -> Any:
    return families.seeded(families.clip)


@lru_cache
def _open_clip() -> Any:
    return families.seeded(lambda: (open_clip.CLIP(16, VISION, TEXT),))[0]


def write(path: Path, **values: Any) -> None:
    """Put these values into a JSON file, over those that are there."""
    path.parent.mkdir(exist_ok=True, parents=True)
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(old | values))


def write_code(folder: Path, flag: Path) -> None:
    """`evil.py`, which says that it ran and has a class for every purpose."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "evil.py").write_text(
        f"open({str(flag)!r}, 'w').close()\n"
        "import transformers as t\n"
        "class Config(t.CLIPConfig): model_type = 'evil'\n"
        "class Text(t.BertConfig): model_type = 'evil'\n"
        "class Model(t.CLIPModel): pass\n"
        "class Tokenizer(t.CLIPTokenizer): pass\n"
        "class Images(t.CLIPImageProcessor): pass\n"
        "class Processor(t.CLIPProcessor): pass\n"
    )


def save_clip(folder: Path) -> Path:
    """A transformers model without fault."""
    model, images, tokenizer = _clip()
    model.save_pretrained(folder)
    transformers.CLIPProcessor(images, tokenizer).save_pretrained(folder)
    return folder


def save_open_clip(folder: Path, vision: Any = None, **text: Any) -> Path:
    """An open_clip model without fault, but for what is put into its config."""
    folder.mkdir(exist_ok=True, parents=True)
    config = {"embed_dim": 16, "vision_cfg": vision or VISION, "text_cfg": TEXT | text}
    write(folder / "open_clip_config.json", model_cfg=config, preprocess_cfg={})
    safetensors.torch.save_file(
        _open_clip().state_dict(), folder / "open_clip_model.safetensors"
    )
    return folder


# --- open_clip -------------------------------------------------------------------------------


def trusting_subfolder(folder: Path, flag: Path) -> None:
    kwargs = {"trust_remote_code": True, "subfolder": "tok"}
    save_open_clip(folder, hf_tokenizer_name="x", tokenizer_kwargs=kwargs)
    write_code(folder, flag)
    write(
        folder / "tok" / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["evil.Tokenizer"] * 2},
    )


def trusting(folder: Path, flag: Path) -> None:
    kwargs = {"trust_remote_code": True}
    save_open_clip(folder, hf_tokenizer_name="x", tokenizer_kwargs=kwargs)
    write_code(folder, flag)
    write(
        folder / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["evil.Tokenizer"] * 2},
    )


def asking(folder: Path, flag: Path) -> None:
    """transformers asks the user whether to run the code; whoever pipes `yes` has answered."""
    save_open_clip(folder, hf_tokenizer_name="x")
    write_code(folder, flag)
    write(
        folder / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["evil.Tokenizer"] * 2},
    )


def legacy_map(folder: Path, flag: Path) -> None:
    save_open_clip(folder, hf_tokenizer_name="x")
    write_code(folder, flag)
    write(folder / "tokenizer_config.json", auto_map=["evil.Tokenizer", None])


def text_tower(folder: Path, flag: Path) -> None:
    tower = folder / "tower"
    write_code(tower, flag)
    write(
        tower / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Text"}
    )
    save_open_clip(folder, hf_model_name=str(tower))


def text_tower_here(folder: Path, flag: Path) -> None:
    """A path relative to the current folder has the shape of a hub id."""
    tower = Path("evil/tower")
    write_code(tower, flag)
    write(
        tower / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Text"}
    )
    save_open_clip(folder, hf_model_name=str(tower))


def timm_folder(folder: Path, flag: Path) -> None:
    tower = folder / "tower"
    arguments = {"checkpoint_path": str(tower / "weights.pth")}
    write(tower / "config.json", architecture="resnet18", model_args=arguments)
    (tower / "weights.pth").write_bytes(pickle.dumps(Payload(flag)))
    save_open_clip(
        folder, vision={"timm_model_name": f"local-dir:{tower}", "image_size": 32}
    )


def pickled_open_clip(folder: Path, flag: Path) -> None:
    save_open_clip(folder)
    (folder / "open_clip_model.safetensors").unlink()
    torch.save({"logit_scale": Payload(flag)}, folder / "open_clip_pytorch_model.bin")


def pickled_oddly(folder: Path, flag: Path) -> None:
    """Without torch's zip around it, under another name."""
    save_open_clip(folder)
    (folder / "open_clip_model.safetensors").unlink()
    (folder / "weights.pth").write_bytes(pickle.dumps(Payload(flag), protocol=2))


class _Broken:
    """Fails to load with `weights_only`, by a TypeError, and loads without."""

    def __reduce__(self) -> Any:
        return (OrderedDict, (), (None, {}))


def pickled_with_type_error(folder: Path, flag: Path) -> None:
    """open_clip answers a TypeError by loading again, without `weights_only`."""
    save_open_clip(folder)
    (folder / "open_clip_model.safetensors").unlink()
    torch.save(
        {"a": _Broken(), "b": Payload(flag)}, folder / "open_clip_pytorch_model.bin"
    )


def vocabulary_elsewhere(folder: Path, flag: Path) -> None:
    save_open_clip(
        folder, tokenizer_kwargs={"bpe_path": str(flag.parent / "elsewhere.gz")}
    )


def endless_pattern(folder: Path, flag: Path) -> None:
    """open_clip puts special tokens into a regular expression as they are."""
    save_open_clip(
        folder, tokenizer_kwargs={"additional_special_tokens": ["(.*.*)*=$"]}
    )


def cache_elsewhere(folder: Path, flag: Path) -> None:
    save_open_clip(
        folder, hf_tokenizer_name="x", tokenizer_kwargs={"cache_dir": "/elsewhere"}
    )


def no_weights(folder: Path, flag: Path) -> None:
    """open_clip would then load the weights that the text tower's name leads to."""
    save_open_clip(folder)
    (folder / "open_clip_model.safetensors").unlink()


def tower_of_the_hub(folder: Path, flag: Path) -> None:
    """The config names a model of the hub, and that one has code."""

    def save(tower: Path) -> None:
        write_code(tower, flag)
        write(
            tower / "config.json",
            model_type="evil",
            auto_map={"AutoConfig": "evil.Text"},
        )

    as_hub(flag.parent / "cache", "somebody/tower", save)
    save_open_clip(folder, hf_model_name="somebody/tower")


def tower_of_a_known_kind(folder: Path, flag: Path) -> None:
    """Where transformers knows the kind it takes its own class; still this is refused."""

    def save(tower: Path) -> None:
        write_code(tower, flag)
        write(
            tower / "config.json",
            model_type="bert",
            auto_map={"AutoModel": "evil.Model"},
        )

    as_hub(flag.parent / "cache", "somebody/tower", save)
    save_open_clip(folder, hf_model_name="somebody/tower")


# --- transformers ----------------------------------------------------------------------------


def own_model(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write_code(folder, flag)
    maps = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    write(folder / "config.json", model_type="evil", auto_map=maps)


def own_versioned_config(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write_code(folder, flag)
    write(folder / "config.json", configuration_files=["config.4.0.0.json"])
    maps = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    write(folder / "config.4.0.0.json", model_type="evil", auto_map=maps)


def own_tokenizer(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write_code(folder, flag)
    write(
        folder / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["evil.Tokenizer"] * 2},
        tokenizer_class="Evil",
    )


def own_tokenizer_of_two_towers(folder: Path, flag: Path) -> None:
    """Where nothing names a processor, transformers forgets that code is not trusted."""
    model, images, tokenizer = families.seeded(families.dual_encoder)
    model.save_pretrained(folder)
    images.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_code(folder, flag)
    write(
        folder / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["evil.Tokenizer"] * 2},
        tokenizer_class="Evil",
    )


def own_image_processor(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write_code(folder, flag)
    (folder / "processor_config.json").unlink(missing_ok=True)
    write(
        folder / "preprocessor_config.json",
        auto_map={"AutoImageProcessor": "evil.Images"},
        image_processor_type="EvilImages",
    )


def own_processor(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write_code(folder, flag)
    maps = {"AutoProcessor": "evil.Processor"}
    write(folder / "processor_config.json", auto_map=maps, processor_class="Evil")


def own_generation(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write_code(folder / "custom_generate", flag)
    (folder / "custom_generate" / "evil.py").rename(
        folder / "custom_generate" / "generate.py"
    )
    write(folder / "config.json", custom_pipelines={"x": {"impl": "evil.Model"}})


def attention_of_the_hub(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write(folder / "config.json", attn_implementation="evil/kernel:forward")


def attention_of_a_tower(folder: Path, flag: Path) -> None:
    save_clip(folder)
    config = json.loads((folder / "config.json").read_text())
    write(folder / "config.json", text_config={
        **config["text_config"], "_attn_implementation": {"": "evil/kernel"},
    })  # fmt: skip


def quantised(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write(folder / "config.json", quantization_config={"quant_method": "bitsandbytes"})


def adapter(folder: Path, flag: Path) -> None:
    own_model(folder / "base", flag)
    save_clip(folder)
    write(folder / "adapter_config.json", base_model_name_or_path=str(folder / "base"))


def timm_tower(folder: Path, flag: Path) -> None:
    """timm loads `checkpoint_path`; before 1.0.20 or so without `weights_only`."""
    folder.mkdir()
    (folder / "weights.pth").write_bytes(pickle.dumps(Payload(flag)))
    write(
        folder / "config.json",
        model_type="timm_wrapper",
        architecture="resnet18",
        model_args={"checkpoint_path": str(folder / "weights.pth")},
    )


def timm_inside_two_towers(folder: Path, flag: Path) -> None:
    timm_tower(folder, flag)
    tower = json.loads((folder / "config.json").read_text())
    write(
        folder / "config.json",
        model_type="vision-text-dual-encoder",
        vision_config=tower,
        text_config={"model_type": "bert"},
    )


def class_of_another_kind(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write(folder / "tokenizer_config.json", tokenizer_class="RagRetriever")


def function_for_a_class(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write(
        folder / "processor_config.json",
        image_processor={"image_processor_type": "pipeline", "trust_remote_code": True},
    )


def shards_elsewhere(folder: Path, flag: Path) -> None:
    save_clip(folder)
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    names = dict.fromkeys(_clip()[0].state_dict(), "../elsewhere.safetensors")
    write(
        folder / "model.safetensors.index.json",
        metadata={"total_size": 1},
        weight_map=names,
    )


def words_elsewhere(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write(
        folder / "tokenizer_config.json", vocab_file=str(flag.parent / "elsewhere.json")
    )


def words_by_position(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write(
        folder / "tokenizer_config.json",
        init_inputs=[str(flag.parent / "elsewhere.json")],
    )


def tokenizer_files_elsewhere(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write(
        folder / "tokenizer_config.json",
        fast_tokenizer_files=["../tokenizer.0.0.1.json"],
    )


def pickled(folder: Path, flag: Path) -> None:
    save_clip(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"logit_scale": Payload(flag)}, folder / "pytorch_model.bin")


def pickled_shards(folder: Path, flag: Path) -> None:
    save_clip(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"logit_scale": Payload(flag)}, folder / "shard.bin")
    names = dict.fromkeys(_clip()[0].state_dict(), "shard.bin")
    write(
        folder / "pytorch_model.bin.index.json",
        metadata={"total_size": 1},
        weight_map=names,
    )


def link_to_a_pickle(folder: Path, flag: Path) -> None:
    save_clip(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"logit_scale": Payload(flag)}, folder.parent / "elsewhere.bin")
    (folder / "pytorch_model.bin").symlink_to(folder.parent / "elsewhere.bin")


def move_out(path: Path) -> None:
    """Leave a link in place of a file or folder, which is outside the model then."""
    elsewhere = path.parent.parent / f"elsewhere-{path.name}"
    path.rename(elsewhere)
    path.symlink_to(f"../{elsewhere.name}")


def weights_behind_a_link(folder: Path, flag: Path) -> None:
    """Whoever loads a folder that was unpacked in his own would read his own files so."""
    save_clip(folder)
    move_out(folder / "model.safetensors")


def words_behind_a_link(folder: Path, flag: Path) -> None:
    save_clip(folder)
    move_out(folder / "tokenizer.json")


def link_in_a_folder(folder: Path, flag: Path) -> None:
    """What is not there now may be there when it is read."""
    save_clip(folder)
    write(folder / "inner" / "file.json", a=1)
    (folder / "inner" / "link.json").symlink_to("../../no-such-file")


def checkpoint_behind_a_link(folder: Path, flag: Path) -> None:
    save_open_clip(folder)
    move_out(folder / "open_clip_model.safetensors")


def config_behind_a_link(folder: Path, flag: Path) -> None:
    save_open_clip(folder)
    move_out(folder / "open_clip_config.json")


def linked_folder(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write_code(folder.parent / "behind", flag)
    write(
        folder.parent / "behind" / "tokenizer_config.json",
        auto_map=["evil.Tokenizer", None],
    )
    (folder / "tokenizer").symlink_to(folder.parent / "behind")


def audio_tokenizer(folder: Path, flag: Path) -> None:
    """A processor may name a model of any class, which is loaded without a word about trust."""
    save_clip(folder)
    own_model(folder / "a" / "b", flag)
    names = {"audio_tokenizer_class": "AutoModel"}
    names["audio_tokenizer_name_or_path"] = str(folder / "a" / "b")
    write(folder / "processor_config.json", audio_tokenizer=names)


def audio_tokenizer_file(folder: Path, flag: Path) -> None:
    save_clip(folder)
    own_model(folder / "a" / "b", flag)
    write(
        folder / "audio_tokenizer_config.json",
        audio_tokenizer_class="AutoModel",
        audio_tokenizer_name_or_path=str(folder / "a" / "b"),
    )


def round_about(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write(folder / "processor_config.json", processor_class="AutoProcessor")


def escaped_key(folder: Path, flag: Path) -> None:
    own_tokenizer_of_two_towers(folder, flag)
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text().replace("auto_map", "auto\\u005fmap"))


def key_that_comes_twice(folder: Path, flag: Path) -> None:
    own_tokenizer_of_two_towers(folder, flag)
    path = folder / "tokenizer_config.json"
    path.write_text(
        '{"auto_map": null, "tokenizer_class": "BertTokenizer",' + path.read_text()[1:]
    )


def capital_letters(folder: Path, flag: Path) -> None:
    """Some disks open it under the usual name."""
    own_tokenizer_of_two_towers(folder, flag)
    (folder / "tokenizer_config.json").rename(folder / "Tokenizer_Config.JSON")


def words_by_path(folder: Path, flag: Path) -> None:
    save_clip(folder)
    (folder / "tokenizer.json").unlink()
    write(folder / "tokenizer_config.json", vocab=str(flag.parent / "elsewhere.json"))


def words_of_sentencepiece(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write(
        folder / "tokenizer_config.json", sp_model_kwargs={"model_file": "/elsewhere"}
    )


def words_by_special_tokens(folder: Path, flag: Path) -> None:
    """transformers takes whatever stands in this old file for arguments of the tokenizer."""
    save_clip(folder)
    (folder / "tokenizer.json").unlink()
    write(
        folder / "special_tokens_map.json",
        vocab_file=str(flag.parent / "elsewhere.json"),
    )


def words_with_rules_elsewhere(folder: Path, flag: Path) -> None:
    """This tokenizer opens what its vocabulary names."""
    save_clip(folder)
    write(
        folder / "byte_maps.json",
        decompose_map=str(flag.parent / "elsewhere"),
        merge_map={},
    )
    write(folder / "tokenizer_config.json", tokenizer_class="MyT5Tokenizer")


def labels_elsewhere(folder: Path, flag: Path) -> None:
    """An image processor that reads names of classes from a file, or from a dataset of the hub."""
    save_clip(folder)
    config = {"repo_path": str(flag.parent), "class_info_file": "elsewhere.json"}
    images = {"image_processor_type": "OneFormerImageProcessor", **config}
    write(folder / "processor_config.json", image_processor=images)


def processor_that_fails(folder: Path, flag: Path) -> None:
    """Neither an OSError nor a ValueError."""
    save_clip(folder)
    (folder / "tokenizer.json").write_text('{"a": 1}')


def _guessed(folder: Path, **values: Any) -> None:
    """transformers takes a config without a kind for one of timm if it has this key."""
    save_clip(folder)
    (folder / "config.json").write_text(json.dumps({"pretrained_cfg": {}, **values}))


def timm_by_a_guess(folder: Path, flag: Path) -> None:
    outside_path = str(flag.parent / "elsewhere.bin")
    _guessed(
        folder, architecture="resnet18", model_args={"checkpoint_path": outside_path}
    )


def timm_of_the_hub(folder: Path, flag: Path) -> None:
    _guessed(folder, architecture="hf-hub:timm/resnet18.a1_in1k")


def timm_of_another_folder(folder: Path, flag: Path) -> None:
    _guessed(folder, architecture=f"local-dir:{flag.parent}")


def letters_in_images(folder: Path, flag: Path) -> None:
    """This image processor hands a string of the folder to the command line of tesseract."""
    save_clip(folder)
    images = {"apply_ocr": True, "tesseract_config": f"-c debug_file={flag}"}
    write(
        folder / "processor_config.json",
        image_processor={"image_processor_type": "LayoutLMv2ImageProcessor", **images},
    )


def weights_elsewhere(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write(folder / "config.json", transformers_weights="../elsewhere.safetensors")


def fused(folder: Path, flag: Path) -> None:
    save_clip(folder)
    write(folder / "config.json", fusion_config={"x": {"impl": "evil"}})


def too_deep(folder: Path, flag: Path) -> None:
    save_clip(folder)
    (folder / "config.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000)


def no_json(folder: Path, flag: Path) -> None:
    save_clip(folder)
    (folder / "tokenizer_config.json").write_bytes(b"\xff\xfe{}")


Make = Callable[[Path, Path], None]
OPEN_CLIP: dict[str, tuple[Make, str]] = {
    make.__name__: (make, words)
    for make, words in (
        (trusting_subfolder, "tokenizer_kwargs"),
        (trusting, "tokenizer_kwargs"),
        (asking, "auto_map"),
        (legacy_map, "auto_map"),
        (text_tower, "hf_model_name"),
        (text_tower_here, "auto_map|model_type"),
        (timm_folder, "timm_model_name"),
        (pickled_open_clip, "could not be loaded"),
        (pickled_oddly, "could not be loaded"),
        (pickled_with_type_error, "could not be loaded"),
        (vocabulary_elsewhere, "bpe_path"),
        (endless_pattern, "additional_special_tokens"),
        (cache_elsewhere, "cache_dir"),
        (no_weights, "could not be loaded"),
        (tower_of_the_hub, "auto_map|model_type"),
        (tower_of_a_known_kind, "auto_map"),
        (
            checkpoint_behind_a_link,
            "open_clip_model.safetensors is a link that leads out of",
        ),
        (config_behind_a_link, "open_clip_config.json is a link that leads out of"),
    )
}
"""How to make the folder, and what the error names."""

TRANSFORMERS: dict[str, tuple[Make, str]] = {
    make.__name__: (make, words)
    for make, words in (
        (own_model, "auto_map|model_type"),
        (own_versioned_config, "configuration_files|auto_map"),
        (own_tokenizer, "auto_map|_class"),
        (own_tokenizer_of_two_towers, "auto_map|_class"),
        (own_image_processor, "auto_map|image_processor_type"),
        (own_processor, "auto_map|_class"),
        (own_generation, "custom_pipelines"),
        (attention_of_the_hub, "attn_implementation"),
        (attention_of_a_tower, "attn_implementation"),
        (quantised, "quantization_config"),
        (adapter, r"adapter_config\.json"),
        (timm_tower, "model_type"),
        (timm_inside_two_towers, "model_type"),
        (class_of_another_kind, "tokenizer_class"),
        (function_for_a_class, "image_processor_type|trust_remote_code"),
        (shards_elsewhere, "weight_map"),
        (words_elsewhere, "vocab_file"),
        (words_by_position, "init_inputs"),
        (tokenizer_files_elsewhere, "fast_tokenizer_files"),
        (pickled, "could not be loaded"),
        (pickled_shards, "could not be loaded"),
        (link_to_a_pickle, r"pytorch_model\.bin is a link that leads out of"),
        (linked_folder, "tokenizer is a link that leads out of"),
        (weights_behind_a_link, r"model\.safetensors is a link that leads out of"),
        (words_behind_a_link, r"tokenizer\.json is a link that leads out of"),
        (link_in_a_folder, r"inner/link\.json is a link that leads out of"),
        (audio_tokenizer, "audio_tokenizer"),
        (audio_tokenizer_file, "audio_tokenizer"),
        (round_about, "processor_class"),
        (escaped_key, "auto_map|tokenizer_class"),
        (key_that_comes_twice, "auto_map|tokenizer_class"),
        (capital_letters, "auto_map|tokenizer_class"),
        (words_by_path, "vocab"),
        (words_of_sentencepiece, "model_file"),
        (words_by_special_tokens, r"special_tokens_map\.json has 'vocab_file'"),
        (words_with_rules_elsewhere, "tokenizer_class"),
        (labels_elsewhere, "image_processor_type"),
        (processor_that_fails, "no processor was found"),
        (timm_by_a_guess, "no 'model_type'"),
        (timm_of_the_hub, "no 'model_type'"),
        (timm_of_another_folder, "no 'model_type'"),
        (letters_in_images, "image_processor_type"),
        (weights_elsewhere, "transformers_weights"),
        (fused, "fusion_config"),
        (too_deep, r"config\.json"),
        (no_json, r"tokenizer_config\.json"),
    )
}
"""The same for models of transformers."""


def numpy_weights(path: Path, flag: Path) -> None:
    """An array of objects, which numpy keeps as a pickle."""
    array: Any = np.array([Payload(flag)], dtype=object)
    np.savez(path, array, allow_pickle=True)


def script_weights(path: Path) -> None:
    """TorchScript, which is a program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), path)


def as_hub(cache: Path, name: str, make: Callable[[Path], Any]) -> None:
    """A model of the hub, as if it had been downloaded."""
    folder = cache / f"models--{name.replace('/', '--')}"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    (folder / "snapshots").mkdir()
    make(folder / "snapshots" / commit)


def blobs_behind_links(snapshot: Path) -> None:
    """Move the files of a snapshot among the blobs, as the hub's library does."""
    blobs = snapshot.parent.parent / "blobs"
    blobs.mkdir()
    for index, path in enumerate(sorted(snapshot.iterdir())):
        path.rename(blobs / f"{index:040x}")
        path.symlink_to(f"../../blobs/{index:040x}")
