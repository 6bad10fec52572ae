"""What the files of a model may ask for when a string names it: known kinds of models, never code.

open_clip's own `get_tokenizer` hands settings of the config to transformers as they are, and
`trust_remote_code` may be among them; and it does not say that code is not trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from fair_tta._io import points_outside
from fair_tta.errors import ModelError, suggest_name
from fair_tta.miniature._model import FOLDER
from fair_tta.models._open_clip import OpenClipBackend

_DUAL_ENCODERS = (
    "aimv2 align altclip blip chinese_clip clip clipseg flava groupvit metaclip_2 owlv2 owlvit "
    "siglip siglip2 tipsv2"
).split()
_ENCODERS = {
    "vision-text-dual-encoder",  # of any two of these
    *"albert bert camembert deberta deberta-v2 distilbert electra ernie m2m_100 modernbert".split(),
    *"mpnet mt5 roberta xlm-roberta xlm-roberta-xl".split(),
    *"beit convnext convnextv2 data2vec-vision deit dinov2 dinov2_with_registers".split(),
    *"dinov3_convnext dinov3_vit levit regnet resnet swin swinv2 vit vit_mae vit_msn".split(),
}
_CLASS_KEY = re.compile(r".*(tokenizer|processor|extractor)_(class|type)")
_IMAGES = (
    "Beit|Bit|Blip|ChineseCLIP|CLIP|ConvNext|DeiT|DINOv3ViT|EfficientNet|Flava|Levit|Owlv2|OwlViT|"
    "Siglip2?|Tipsv2|ViT"
)
_TOKENIZERS = (
    "Albert|Bert|Camembert|CLIP|DebertaV2|Deberta|DistilBert|Electra|Gemma|M2M100|MPNet|MT5|Nllb|"
    "PreTrained|Roberta|Siglip2?|T5|XLMRoberta"
)
_PROCESSORS = (
    "Align|AltCLIP|Blip|ChineseCLIP|CLIPSeg|CLIP|Flava|Owlv2|OwlViT|Siglip2?|Tipsv2|"
    "VisionTextDualEncoder"
)
_CLASS = re.compile(  # of the families above
    f"({_IMAGES})(ImageProcessor(Fast|Pil)?|FeatureExtractor)|({_PROCESSORS})Processor"
    f"|({_TOKENIZERS})Tokenizer(Fast)?|(Tokenizers|Python|SentencePiece)Backend"
)
_ATTENTION = (
    None,
    "eager",
    "sdpa",
)  # others come from the hub where the library is not installed
_REFUSED = set(  # they run code, or name files that may lie elsewhere
    "audio_tokenizer auto_map custom_pipelines trust_remote_code fusion_config kernel_config "
    "quantization_config configuration_files fast_tokenizer_files init_inputs transformers_weights"
    .split()
)  # fmt: skip
_PATH_KEY = re.compile(r".*_(file|path|ckpt|spm)|spm|vocab|merges")
_PATHS_NEVER_READ = {
    "name_or_path",
    "special_tokens_map_file",
}  # of many models, by old versions
# Parts of the names of files with settings, and of those whose keys become arguments of a class.
_SETTINGS = ("config", "index", "special_tokens_map")
_ARGUMENTS = ("tokenizer_config", "processor_config", "special_tokens_map")
_PLAIN_NAME = re.compile(r"\w[\w.-]*", re.ASCII)

_SIZE_KEY = re.compile(r"(\w+_)?(size|edge|height|width|patches)")
_MOST_PIXELS = 4096  # wide or high; also of patches

_FOLDER, _HUB = "local-dir:", "hf-hub:"
_CONFIG = "open_clip_config.json"
_TOKENIZER_SETTINGS = ("clean", "language", "reduction_mask", "strip_sep_token")


def find_model_files(
    name: str, patterns: str = "*.json", *, offline: bool = False
) -> tuple[Path, str | None]:
    """The folder with the small files of a model, and its revision if it is on the hub.

    What is read later with this revision is what was checked here. If `offline`, what has been
    downloaded before will do.
    """
    return (
        (Path(name), None)
        if Path(name).is_dir()
        else _download(name, patterns, offline)
    )


def _download(name: str, patterns: str, offline: bool = False) -> tuple[Path, str]:
    from huggingface_hub import snapshot_download

    # transformers looks into folders of the model, but not into folders of those
    folder = Path(
        snapshot_download(
            name,
            allow_patterns=patterns,
            ignore_patterns="*/*/*",
            local_files_only=offline,
        )
    )
    return folder, folder.name


def loading_options(revision: str | None) -> dict[str, Any]:
    """How transformers should load: a folder, which has no revision, never asks the network."""
    offline = revision is None
    return {
        "revision": revision,
        "trust_remote_code": False,
        "local_files_only": offline,
    }


def check_folder(name: str, folder: Path, *, is_model: bool = True) -> None:
    """Raise `ModelError` unless transformers may read the files of this folder.

    `name` is what the user calls it; not `is_model` if tokenizer and image processor are wanted.
    """
    if is_model and (folder / "adapter_config.json").exists():
        _refuse(name, "its adapter_config.json names another model to load")
    _check_links(name, folder)
    config = folder / "config.json"
    if is_model and config.is_file() and not _has_kind(_read_json(name, config)):
        _refuse(name, "its config.json has no 'model_type'")  # transformers would guess
    for path in sorted([*folder.glob("*"), *folder.glob("*/*")]):
        file = path.name.lower()  # some disks do not distinguish them
        if not file.endswith(".json") or not any(part in file for part in _SETTINGS):
            continue
        for key, value in _settings(_read_json(name, path)):
            is_read = is_model or file != "config.json" or _CLASS_KEY.fullmatch(key)
            if is_read and not _is_allowed(file, key, value):
                where = path.relative_to(folder).as_posix()
                _refuse(name, f"{where} has {key!r}: {_shorten(value)}")


def _has_kind(config: Any) -> bool:
    return isinstance(config, dict) and "model_type" in config


def _is_allowed(file: str, key: str, value: Any) -> bool:
    if key == "model_type" and file == "config.json":
        parts = tuple(f"{name}_" for name in _DUAL_ENCODERS)  # clip_text_model
        return isinstance(value, str) and (
            value in _DUAL_ENCODERS or value in _ENCODERS or value.startswith(parts)
        )
    if _CLASS_KEY.fullmatch(key):
        return value is None or (
            isinstance(value, str) and bool(_CLASS.fullmatch(value))
        )
    if key.endswith(("attn_implementation", "attn_implementation_internal")):
        choices = value.values() if isinstance(value, dict) else [value]
        return all(choice in _ATTENTION for choice in choices)
    if key == "weight_map":
        files = value.values() if isinstance(value, dict) else [None]
        return all(
            isinstance(file, str) and _PLAIN_NAME.fullmatch(file) for file in files
        )
    is_path = _PATH_KEY.fullmatch(key) and key not in _PATHS_NEVER_READ
    is_argument = any(part in file for part in _ARGUMENTS)
    return not value or not (key in _REFUSED or (is_path and is_argument))


def _settings(content: Any) -> Iterator[tuple[str, Any]]:
    """All keys at all depths with their values."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value.items()
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def check_sizes(name: str, settings: Any) -> None:
    """Raise `ModelError` if an image processor with these settings makes images of gigabytes."""
    for key, value in _settings(settings):
        for size in value if isinstance(value, list | tuple) else [value]:
            is_size = isinstance(size, int | float) and _SIZE_KEY.fullmatch(key)
            if is_size and not size <= _MOST_PIXELS:
                raise ModelError(
                    f"the image processor of {name} has {key!r}: {size}, which is more than "
                    f"{_MOST_PIXELS}: its images would take gigabytes, so it may be damaged."
                )


def _check_links(name: str, folder: Path) -> None:
    """Refuse links that lead out of a folder."""
    if (
        folder == FOLDER
    ):  # links of the embedded model are of whoever installed the package
        return
    for path in [*folder.glob("*"), *folder.glob("*/*")]:
        if points_outside(path, folder):
            where = path.relative_to(folder).as_posix()
            _refuse(name, f"{where} is a link that leads out of the folder")


def _read_json(name: str, path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"`model={name!r}` could not be loaded: {path.name} is broken ({error}).",
            argument="model",
        ) from error


def _refuse(name: str, what: str) -> NoReturn:
    raise ModelError(
        f"`model={name!r}` is not loaded by its name: {what}. This could run code or read files "
        "outside the model. If you trust it, load it yourself in Python and pass the object in "
        "place of its name.",
        argument="model",
    )


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def load_open_clip_string(name: str) -> OpenClipBackend:
    """The model that ``'open_clip:' + name`` means."""
    import open_clip

    schema = name.startswith((_FOLDER, _HUB))
    architecture, _, tag = (name, "", "") if schema else name.partition("/")
    known = ["/".join(pair) for pair in open_clip.list_pretrained()]
    if not schema and (architecture not in open_clip.list_models() or not tag):
        raise ModelError(
            f"'open_clip:{name}' should be 'open_clip:NAME/TAG' with a name of "
            "open_clip.list_models() and a tag of open_clip.list_pretrained() or the path of a "
            f"checkpoint.{suggest_name(name, known)}"
        )
    try:
        text, vision, tokenizer = _checked(f"open_clip:{name}", architecture)
        model, preprocess = open_clip.create_model_from_pretrained(
            architecture,
            tag or None,
            weights_only=True,
            text_cfg=text,
            vision_cfg=vision,
        )
    except (ImportError, ModelError):
        raise
    except Exception as error:  # a broken file raises almost anything
        raise ModelError(
            f"'open_clip:{name}' could not be loaded: {error}.{suggest_name(name, known)}"
        ) from error
    return OpenClipBackend(model.eval(), preprocess, tokenizer)


def _checked(
    name: str, architecture: str
) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """The settings of both towers, and the tokenizer."""
    import open_clip
    import timm
    from open_clip.hf_configs import arch_dict

    if architecture.startswith(_FOLDER):
        here = Path(architecture.removeprefix(_FOLDER))
        _check_links(name, here)
        config = _read_json(name, here / _CONFIG)
    elif architecture.startswith(_HUB):
        here, _ = _download(architecture.removeprefix(_HUB), _CONFIG)
        config = _read_json(name, here / _CONFIG)
    else:
        config = open_clip.get_model_config(architecture)
    check_sizes(name, config.get("preprocess_cfg"))
    config = config.get("model_cfg", config)
    check_sizes(name, {"image_size": config["vision_cfg"].get("image_size")})
    text, vision = dict(config["text_cfg"]), dict(config["vision_cfg"])
    # weights of towers that lie elsewhere are never needed: a model without its own is refused
    tower = vision.get("timm_model_name")
    if tower:
        vision["timm_model_pretrained"] = False
        if not re.fullmatch(r"\w+(\.\w+)?", tower) or not timm.is_model(
            tower.split(".")[0]
        ):
            _refuse(
                name,
                f"its config has 'timm_model_name': {tower!r}, which timm does not have",
            )
    tower = text.get("hf_model_name")
    if tower:
        is_folder = architecture.startswith(_FOLDER)
        there, _ = _named(
            name, "hf_model_name", tower, "config.json", offline=is_folder
        )
        check_folder(tower, there)
        kind = _read_json(name, there / "config.json").get("model_type")
        if kind not in arch_dict:
            _refuse(
                name,
                f"{tower!r} has 'model_type': {kind!r}, which open_clip does not have",
            )
        text |= {"hf_model_name": str(there), "hf_model_pretrained": False}
    return text, vision, _tokenizer(name, architecture, text)


def _tokenizer(name: str, architecture: str, text: dict[str, Any]) -> Any:
    import open_clip
    from open_clip.tokenizer import DEFAULT_CONTEXT_LENGTH, HFTokenizer

    settings = text.get("tokenizer_kwargs") or {}
    for key, value in settings.items():
        if key not in _TOKENIZER_SETTINGS:
            _refuse(
                name,
                f"its config has 'tokenizer_kwargs': {{{key!r}: {_shorten(value)}}}",
            )
    source, revision = text.get("hf_tokenizer_name"), None
    length = text.get("context_length", DEFAULT_CONTEXT_LENGTH)
    if not source and not architecture.startswith((_FOLDER, _HUB)):
        return open_clip.get_tokenizer(architecture)
    if not source:
        return open_clip.SimpleTokenizer(context_length=length, **settings)
    if architecture.startswith(_FOLDER):
        source = architecture.removeprefix(_FOLDER)
        check_folder(name, Path(source))  # transformers reads config.json too
    else:
        folder, revision = _named(name, "hf_tokenizer_name", source)
        check_folder(source, folder, is_model=False)
    return HFTokenizer(
        source,
        context_length=length,
        tokenizer_mode=text.get("tokenizer_mode"),
        trust_remote_code=False,
        revision=revision,
        **settings,
    )


def _named(
    name: str, key: str, other: Any, patterns: str = "*.json", *, offline: bool = False
) -> tuple[Path, str | None]:
    """The folder and the revision of a model of transformers that a config names."""
    if not isinstance(other, str) or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", other):
        _refuse(
            name,
            f"its config has {key!r}: {_shorten(other)}, which is not the id of a model",
        )
    return find_model_files(other, patterns, offline=offline)
