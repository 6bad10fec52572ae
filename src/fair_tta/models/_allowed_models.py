"""Checks of the files of a model that a string names: known kinds of models, never code.

open_clip's own `get_tokenizer` passes settings of the config to transformers unchanged, and
`trust_remote_code` may be among them; nor does it say itself that code is not trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from fair_tta._io import points_outside_model
from fair_tta.errors import ModelError, suggest_name
from fair_tta.miniature._model import FOLDER
from fair_tta.models._open_clip import OpenClipBackend

# Values of 'model_type' in config.json.
_DUAL_ENCODERS = (
    "aimv2 align altclip blip chinese_clip clip clipseg flava groupvit metaclip_2 owlv2 owlvit "
    "siglip siglip2 tipsv2"
).split()
_TEXT_ENCODERS = (
    "albert bert camembert deberta deberta-v2 distilbert electra ernie m2m_100 modernbert mpnet "
    "mt5 roberta xlm-roberta xlm-roberta-xl"
).split()
_IMAGE_ENCODERS = (
    "beit convnext convnextv2 data2vec-vision deit dinov2 dinov2_with_registers dinov3_convnext "
    "dinov3_vit levit regnet resnet swin swinv2 vit vit_mae vit_msn"
).split()
_MODEL_TYPES = {
    *_DUAL_ENCODERS,
    *_TEXT_ENCODERS,
    *_IMAGE_ENCODERS,
    "vision-text-dual-encoder",  # of any text encoder and any image encoder
}
# Types of the parts of a dual encoder, such as clip_text_model.
_PART_PREFIXES = tuple(f"{name}_" for name in _DUAL_ENCODERS)

# Names of classes of the families above.
_IMAGE_PROCESSORS = (
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
_CLASS = re.compile(
    f"({_IMAGE_PROCESSORS})(ImageProcessor(Fast|Pil)?|FeatureExtractor)|({_PROCESSORS})Processor"
    f"|({_TOKENIZERS})Tokenizer(Fast)?|(Tokenizers|Python|SentencePiece)Backend"
)
_CLASS_KEY = re.compile(r".*(tokenizer|processor|extractor)_(class|type)")

# Other implementations of attention come from the hub where the library is not installed.
_ATTENTION = (None, "eager", "sdpa")
_ATTENTION_KEYS = ("attn_implementation", "attn_implementation_internal")

# Settings that run code, or name files that may lie elsewhere.
_REFUSED_KEYS = set(
    "audio_tokenizer auto_map custom_pipelines trust_remote_code fusion_config kernel_config "
    "quantization_config configuration_files fast_tokenizer_files init_inputs transformers_weights"
    .split()
)  # fmt: skip
_PATH_KEY = re.compile(r".*_(file|path|ckpt|spm)|spm|vocab|merges")
# Old versions wrote these into many models; no version reads them.
_UNREAD_PATH_KEYS = {"name_or_path", "special_tokens_map_file"}
# Parts of the names of files with settings, and of those whose keys become arguments of a class.
_SETTINGS_FILES = ("config", "index", "special_tokens_map")
_ARGUMENT_FILES = ("tokenizer_config", "processor_config", "special_tokens_map")
_PLAIN_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")

_SIZE_KEY = re.compile(r"(\w+_)?(size|edge|height|width|patches)")
_MAX_IMAGE_EDGE = 4096  # pixels; also the largest number of patches

_FOLDER_PREFIX = "local-dir:"
_HUB_PREFIX = "hf-hub:"
_OPEN_CLIP_CONFIG = "open_clip_config.json"
_TOKENIZER_SETTINGS = ("clean", "language", "reduction_mask", "strip_sep_token")


def find_model_files(
    name: str, patterns: str = "*.json", *, offline: bool = False
) -> tuple[Path, str | None]:
    """Return the folder with the small files of a model, and its revision if it is on the hub.

    Loading this revision later loads what was checked here. If `offline`, only files that have
    been downloaded before are used.
    """
    if Path(name).is_dir():
        return Path(name), None
    return _download(name, patterns, offline)


def _download(name: str, patterns: str, offline: bool = False) -> tuple[Path, str]:
    from huggingface_hub import snapshot_download

    # transformers looks into folders of the model, but not into folders of those.
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
    """Return the options of `from_pretrained`; a folder, which has no revision, stays offline."""
    return {
        "revision": revision,
        "trust_remote_code": False,
        "local_files_only": revision is None,
    }


def check_folder(name: str, folder: Path, *, is_model: bool = True) -> None:
    """Raise `ModelError` unless transformers may read the files of this folder.

    Args:
        name: what messages call the folder.
        folder: with the small files of a model.
        is_model: False if only its tokenizer and image processor are loaded.
    """
    if is_model and (folder / "adapter_config.json").exists():
        _refuse(name, "its adapter_config.json names another model to load")
    _check_links(name, folder)
    config = folder / "config.json"
    if is_model and config.is_file():
        settings = _read_json(name, config)
        if not isinstance(settings, dict) or "model_type" not in settings:
            # transformers would guess the type from the name.
            _refuse(name, "its config.json has no 'model_type'")

    for path in sorted(_model_files(folder)):
        file_name = path.name.lower()  # some disks do not distinguish upper case
        is_json = file_name.endswith(".json")
        if not is_json or not any(part in file_name for part in _SETTINGS_FILES):
            continue
        for key, setting in _nested_items(_read_json(name, path)):
            is_read = is_model or file_name != "config.json"
            is_read = is_read or _CLASS_KEY.fullmatch(key) is not None
            if is_read and not _is_allowed(file_name, key, setting):
                where = path.relative_to(folder).as_posix()
                _refuse(name, f"{where} has {key!r}: {_short_repr(setting)}")


def _model_files(folder: Path) -> list[Path]:
    """Return all files that transformers may read: those of the folder and of its folders."""
    return [*folder.glob("*"), *folder.glob("*/*")]


def _is_allowed(file_name: str, key: str, setting: Any) -> bool:
    """Return whether a setting can neither run code nor read files outside the model."""
    if key == "model_type" and file_name == "config.json":
        return isinstance(setting, str) and (
            setting in _MODEL_TYPES or setting.startswith(_PART_PREFIXES)
        )
    if _CLASS_KEY.fullmatch(key):
        is_known = isinstance(setting, str) and _CLASS.fullmatch(setting) is not None
        return setting is None or is_known
    if key.endswith(_ATTENTION_KEYS):
        choices = setting.values() if isinstance(setting, dict) else [setting]
        return all(choice in _ATTENTION for choice in choices)
    if key == "weight_map":
        files = setting.values() if isinstance(setting, dict) else [None]
        return all(
            isinstance(file, str) and _PLAIN_NAME.fullmatch(file) for file in files
        )
    is_path = _PATH_KEY.fullmatch(key) and key not in _UNREAD_PATH_KEYS
    is_argument = any(part in file_name for part in _ARGUMENT_FILES)
    return not setting or not (key in _REFUSED_KEYS or (is_path and is_argument))


def _nested_items(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of all dictionaries in the content of a JSON file, at any depth."""
    waiting = [content]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield from part.items()
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def check_sizes(name: str, settings: Any) -> None:
    """Raise `ModelError` if an image processor with these settings makes images of gigabytes."""
    for key, setting in _nested_items(settings):
        for size in setting if isinstance(setting, list | tuple) else [setting]:
            is_size = isinstance(size, int | float) and _SIZE_KEY.fullmatch(key)
            if is_size and not size <= _MAX_IMAGE_EDGE:
                raise ModelError(
                    f"the image processor of {name} has {key!r}: {size}, which is more than "
                    f"{_MAX_IMAGE_EDGE}: its images would take gigabytes, so it may be damaged."
                )


def _check_links(name: str, folder: Path) -> None:
    """Raise `ModelError` if a link leads out of a folder.

    The blobs of the hub's cache belong to a folder of it.
    """
    # An installation of this package may consist of links.
    if folder == FOLDER:
        return
    for path in _model_files(folder):
        if points_outside_model(path, folder):
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


def _refuse(name: str, reason: str) -> NoReturn:
    raise ModelError(
        f"`model={name!r}` is not loaded by its name: {reason}. This could run code or read files "
        "outside the model. If you trust it, load it yourself in Python and pass the object "
        "instead of its name.",
        argument="model",
    )


def _short_repr(setting: Any) -> str:
    text = repr(setting)
    return text if len(text) <= 80 else f"{text[:77]}..."


def load_open_clip_string(name: str) -> OpenClipBackend:
    """Load the model that ``'open_clip:' + name`` names."""
    import open_clip

    is_source = name.startswith((_FOLDER_PREFIX, _HUB_PREFIX))
    architecture = name
    tag = ""
    if not is_source:
        architecture, _, tag = name.partition("/")
    known = ["/".join(pair) for pair in open_clip.list_pretrained()]
    if not is_source and (architecture not in open_clip.list_models() or not tag):
        raise ModelError(
            f"'open_clip:{name}' should be 'open_clip:NAME/TAG' with a name of "
            "open_clip.list_models() and a tag of open_clip.list_pretrained() or the path of a "
            f"checkpoint.{suggest_name(name, known)}"
        )
    try:
        text, vision = _checked_settings(f"open_clip:{name}", architecture)
        tokenizer = _load_tokenizer(f"open_clip:{name}", architecture, text)
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


def _checked_settings(
    name: str, architecture: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of text and vision tower after a check."""
    config = _read_open_clip_config(name, architecture)
    check_sizes(name, config.get("preprocess_cfg"))
    config = config.get("model_cfg", config)
    check_sizes(name, {"image_size": config["vision_cfg"].get("image_size")})
    text = dict(config["text_cfg"])
    vision = dict(config["vision_cfg"])

    # Weights of towers that lie elsewhere are never needed: a model without its own is refused.
    if vision.get("timm_model_name"):
        _check_timm_tower(name, vision["timm_model_name"])
        vision["timm_model_pretrained"] = False
    if text.get("hf_model_name"):
        is_offline = architecture.startswith(_FOLDER_PREFIX)
        folder = _check_text_tower(name, text["hf_model_name"], offline=is_offline)
        text["hf_model_name"] = str(folder)
        text["hf_model_pretrained"] = False
    return text, vision


def _read_open_clip_config(name: str, architecture: str) -> Any:
    import open_clip

    if architecture.startswith(_FOLDER_PREFIX):
        folder = Path(architecture.removeprefix(_FOLDER_PREFIX))
        _check_links(name, folder)
    elif architecture.startswith(_HUB_PREFIX):
        hub_id = architecture.removeprefix(_HUB_PREFIX)
        folder, _ = _download(hub_id, _OPEN_CLIP_CONFIG)
    else:
        return open_clip.get_model_config(architecture)
    return _read_json(name, folder / _OPEN_CLIP_CONFIG)


def _check_timm_tower(name: str, tower: str) -> None:
    import timm

    is_plain = re.fullmatch(r"\w+(\.\w+)?", tower)
    if not is_plain or not timm.is_model(tower.split(".")[0]):
        _refuse(
            name,
            f"its config has 'timm_model_name': {tower!r}, which timm does not have",
        )


def _check_text_tower(name: str, tower: Any, *, offline: bool) -> Path:
    """Return the folder with the config of a text tower of transformers."""
    from open_clip.hf_configs import arch_dict

    folder, _ = _find_named_model(
        name, "hf_model_name", tower, "config.json", offline=offline
    )
    check_folder(tower, folder)
    model_type = _read_json(name, folder / "config.json").get("model_type")
    if model_type not in arch_dict:
        _refuse(
            name,
            f"{tower!r} has 'model_type': {model_type!r}, which open_clip does not have",
        )
    return folder


def _load_tokenizer(name: str, architecture: str, text: dict[str, Any]) -> Any:
    """Return the tokenizer of a model, by the settings of its text tower."""
    import open_clip
    from open_clip.tokenizer import DEFAULT_CONTEXT_LENGTH, HFTokenizer

    settings = text.get("tokenizer_kwargs") or {}
    for key, setting in settings.items():
        if key not in _TOKENIZER_SETTINGS:
            _refuse(
                name,
                f"its config has 'tokenizer_kwargs': {{{key!r}: {_short_repr(setting)}}}",
            )
    tokenizer_name = text.get("hf_tokenizer_name")
    length = text.get("context_length", DEFAULT_CONTEXT_LENGTH)
    if not tokenizer_name:
        if not architecture.startswith((_FOLDER_PREFIX, _HUB_PREFIX)):
            return open_clip.get_tokenizer(architecture)
        return open_clip.SimpleTokenizer(context_length=length, **settings)

    revision = None
    if architecture.startswith(_FOLDER_PREFIX):
        # open_clip takes the tokenizer from the folder; transformers reads config.json too.
        tokenizer_name = architecture.removeprefix(_FOLDER_PREFIX)
        check_folder(name, Path(tokenizer_name))
    else:
        folder, revision = _find_named_model(name, "hf_tokenizer_name", tokenizer_name)
        check_folder(tokenizer_name, folder, is_model=False)
    return HFTokenizer(
        tokenizer_name,
        context_length=length,
        tokenizer_mode=text.get("tokenizer_mode"),
        trust_remote_code=False,
        revision=revision,
        **settings,
    )


def _find_named_model(
    name: str,
    key: str,
    hub_id: Any,
    patterns: str = "*.json",
    *,
    offline: bool = False,
) -> tuple[Path, str | None]:
    """Return folder and revision of a model of transformers that a config names under a key."""
    if not isinstance(hub_id, str) or not _HUB_ID.fullmatch(hub_id):
        _refuse(
            name,
            f"its config has {key!r}: {_short_repr(hub_id)}, which is not the id of a model",
        )
    return find_model_files(hub_id, patterns, offline=offline)
