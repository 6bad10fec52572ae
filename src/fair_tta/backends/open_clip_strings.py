"""Load an open_clip model by a string, from a config that was looked at first.

open_clip's own `get_tokenizer` hands settings of the config to transformers as they are, and
`trust_remote_code` may be among them; and it does not say that code is not trusted.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from fair_tta.backends.foreign import (
    check_files,
    check_folder,
    download,
    find,
    read_json,
    refuse,
    shorten,
)
from fair_tta.backends.openclip import OpenClipBackend
from fair_tta.errors import ModelError

_FOLDER, _HUB = "local-dir:", "hf-hub:"
_CONFIG = "open_clip_config.json"
_TOKENIZER_SETTINGS = ("clean", "language", "reduction_mask", "strip_sep_token")
_UNSAFE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


def load_open_clip_string(name: str) -> OpenClipBackend:
    """The model that ``'open_clip:' + name`` means."""
    import open_clip

    if os.environ.get(_UNSAFE, "").lower() in ("1", "y", "yes", "true"):
        # open_clip answers a TypeError of `torch.load` by loading again in the default way
        raise ModelError(f"open_clip reads weights unsafely while {_UNSAFE} is set: unset it.")
    schema = name.startswith((_FOLDER, _HUB))
    architecture, _, tag = (name, "", "") if schema else name.partition("/")
    if not schema and (architecture not in open_clip.list_models() or not tag):
        raise ModelError(
            f"'open_clip:{name}' should be 'open_clip:NAME/TAG' with a name of "
            "open_clip.list_models() and a tag of open_clip.list_pretrained() or the path of a "
            "checkpoint."
        )
    try:
        text, vision, tokenizer = _checked(f"open_clip:{name}", architecture)
        model, preprocess = open_clip.create_model_from_pretrained(
            architecture, tag or None, weights_only=True, text_cfg=text, vision_cfg=vision
        )
    except (ImportError, ModelError):
        raise
    except Exception as error:  # a broken file raises almost anything
        raise ModelError(f"'open_clip:{name}' could not be loaded: {error}") from error
    return OpenClipBackend(model.eval(), preprocess, tokenizer)


def _checked(name: str, architecture: str) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """The settings of both towers, and the tokenizer."""
    import open_clip
    import timm
    from open_clip.hf_configs import arch_dict

    if architecture.startswith(_FOLDER):
        here = Path(architecture.removeprefix(_FOLDER))
        check_files(name, here)
        config = read_json(name, here / _CONFIG)
    elif architecture.startswith(_HUB):
        config = read_json(name, download(architecture.removeprefix(_HUB), _CONFIG)[0] / _CONFIG)
    else:
        config = open_clip.get_model_config(architecture)
    config = config.get("model_cfg", config)
    text, vision = dict(config["text_cfg"]), dict(config["vision_cfg"])
    # weights of towers that lie elsewhere are never needed: a model without its own is refused
    tower = vision.get("timm_model_name")
    if tower:
        vision["timm_model_pretrained"] = False
        if not re.fullmatch(r"\w+(\.\w+)?", tower) or not timm.is_model(tower.split(".")[0]):
            refuse(name, f"its config has 'timm_model_name': {tower!r}", "timm has no such model")
    tower = text.get("hf_model_name")
    if tower:
        there, _ = _named(name, "hf_model_name", tower, "config.json")
        check_folder(tower, there)
        kind = read_json(name, there / "config.json").get("model_type")
        if kind not in arch_dict:
            refuse(
                name, f"{tower!r} has 'model_type': {kind!r}", "open_clip has no such text tower"
            )
        text |= {"hf_model_name": str(there), "hf_model_pretrained": False}
    return text, vision, _tokenizer(name, architecture, text)


def _tokenizer(name: str, architecture: str, text: dict[str, Any]) -> Any:
    import open_clip
    from open_clip.tokenizer import DEFAULT_CONTEXT_LENGTH, HFTokenizer

    settings = text.get("tokenizer_kwargs") or {}
    for key, value in settings.items():
        if key not in _TOKENIZER_SETTINGS:
            refuse(
                name,
                f"its config has 'tokenizer_kwargs': {{{key!r}: {shorten(value)}}}",
                f"allowed are {', '.join(_TOKENIZER_SETTINGS)}",
            )
    source, revision = text.get("hf_tokenizer_name"), None
    length = text.get("context_length", DEFAULT_CONTEXT_LENGTH)
    if not source and not architecture.startswith((_FOLDER, _HUB)):
        return open_clip.get_tokenizer(architecture)
    if not source:
        return open_clip.SimpleTokenizer(context_length=length, **settings)
    if architecture.startswith(_FOLDER):
        source = architecture.removeprefix(_FOLDER)
        check_folder(name, Path(source), is_model=False)
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


def _named(name: str, key: str, other: Any, patterns: str = "*.json") -> tuple[Path, str | None]:
    """The folder and the revision of a model of transformers that a config names."""
    if not isinstance(other, str) or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", other):
        refuse(
            name, f"its config has {key!r}: {shorten(other)}", "this should be the id of a model"
        )
    return find(other, patterns)
