"""Decide, by looking at it, what kind of model an object is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import nn

from fair_tta.backends.foreign import check_folder, find
from fair_tta.backends.guard import untouched
from fair_tta.backends.hf import TransformersBackend
from fair_tta.backends.open_clip_strings import load_open_clip_string
from fair_tta.backends.openclip import OpenClipBackend
from fair_tta.backends.protocol import Backend
from fair_tta.errors import ModelError
from fair_tta.miniature.model import FOLDER

_ACCEPTED = (
    "a transformers model (with `processor=` if it has no `name_or_path`), a transformers "
    "zero-shot pipeline, open_clip's (model, preprocess, tokenizer), an open_clip model, the "
    "directory or hub id of a transformers model, 'open_clip:NAME/TAG', 'miniature' (the embedded "
    "model), or an object that satisfies fair_tta.Backend"
)
_CLIP_VOCABULARY = 49408
_MEMBERS = [name for name in vars(Backend) if not name.startswith("_")]


def resolve(model: Any, processor: Any = None) -> Backend:
    """Make a `Backend` of whatever the user has.

    Args:
        model: see the error text for what is accepted.
        processor: for a transformers model, its processor or ``(image_processor, tokenizer)``.
    """
    if isinstance(model, str | Path):
        with untouched():
            return _from_string(str(model), processor)
    if isinstance(model, tuple | list):
        _no_processor(processor)
        return _from_tuple(tuple(map(_unwrapped, model)))
    if isinstance(model, type):
        raise ModelError(
            f"`model` should be a model, not the class of one: make one, as in "
            f"{model.__name__}(...) (got the class {model.__name__})."
        )
    model = _unwrapped(model)
    missing = [name for name in _MEMBERS if not hasattr(model, name)]
    if not missing:  # isinstance of Python 3.12 does not see what __getattr__ gives
        _no_processor(processor)
        backend: Backend = model
        return backend
    if _is_pipeline(model):
        processor = processor or (model.image_processor, model.tokenizer)
        return _from_transformers(model.model, processor)
    if isinstance(model, nn.Module) and hasattr(model, "config") and hasattr(model, "dtype"):
        return _from_transformers(model, processor)
    if isinstance(model, nn.Module) and hasattr(model, "encode_image"):
        _no_processor(processor)
        return OpenClipBackend(model, _open_clip_preprocess(model), _open_clip_tokenizer(model))
    if "encode_images" not in missing or "encode_prompts" not in missing:
        raise ModelError(
            f"`model` should satisfy fair_tta.Backend: {type(model).__name__} lacks "
            f"{', '.join(missing)}."
        )
    raise ModelError(f"`model` should be {_ACCEPTED} (got {_describe(model)}).")


def _from_string(name: str, processor: Any) -> Backend:
    if name == "miniature":
        _no_processor(processor)
        name = str(FOLDER)
    if name.startswith("open_clip:"):
        _no_processor(processor)
        return load_open_clip_string(name.removeprefix("open_clip:"))
    try:
        os.stat(name)
        configs = [file.name for file in Path(name).glob("*config.json")]
    except (FileNotFoundError, NotADirectoryError):
        configs = []
    except (OSError, ValueError) as error:  # a name that is too long, or has odd signs
        raise ModelError(
            f"`model={name[:80]!r}` could not be loaded ({str(error)[:40]}): it should be "
            f"{_ACCEPTED}."
        ) from error
    if configs == ["open_clip_config.json"]:
        _no_processor(processor)
        return load_open_clip_string(f"local-dir:{name}")
    import transformers

    try:
        folder, revision = find(name)
        check_folder(name, folder)
        source: Any = {"revision": revision, "trust_remote_code": False}
        config = transformers.AutoConfig.from_pretrained(name, **source)
        blip = "BlipForImageTextRetrieval" in (getattr(config, "architectures", None) or ())
        kind: Any = transformers.BlipForImageTextRetrieval if blip else transformers.AutoModel
        model, report = kind.from_pretrained(
            name, weights_only=True, output_loading_info=True, **source
        )
    except (ImportError, ModelError):
        raise
    except Exception as error:  # a broken file raises almost anything
        raise ModelError(
            f"`model={name!r}` could not be loaded: {error} If it is an open_clip model, write "
            "'open_clip:NAME/TAG'."
        ) from error
    if report["missing_keys"]:
        some = sorted(report["missing_keys"])[0]
        raise ModelError(
            f"`model={name!r}` is not a whole {type(model).__name__}: weights are missing, such as "
            f"{some!r}."
        )
    return _from_transformers(model.eval(), processor or _load_processor(name, revision))


def _from_tuple(parts: tuple[Any, ...]) -> Backend:
    if len(parts) == 2 and hasattr(parts[0], "config"):
        return _from_transformers(*parts)
    if len(parts) == 3 and hasattr(parts[0], "encode_image") and callable(parts[1]):
        model, preprocess, tokenizer = parts
        if callable(tokenizer) and not hasattr(tokenizer, "transforms"):
            return OpenClipBackend(model, preprocess, tokenizer)
        raise ModelError(
            "`model=(model, preprocess, tokenizer)` should end with the tokenizer, as of "
            f"open_clip.get_tokenizer(name) (got {_describe(tokenizer)})."
        )
    raise ModelError(
        f"`model` should be {_ACCEPTED} (got a tuple of "
        f"{', '.join(_describe(part) for part in parts)})."
    )


def _from_transformers(model: Any, processor: Any) -> Backend:
    if processor is None:
        name = getattr(model, "name_or_path", "")
        if not name:
            raise ModelError(
                f"{type(model).__name__} does not say where it came from (`name_or_path` is "
                "empty): pass `processor=` (a processor, or (image_processor, tokenizer))."
            )
        processor = _find_processor(name)
    if isinstance(processor, tuple | list) and len(processor) == 2:
        image_processor, tokenizer = processor
    else:
        image_processor = getattr(processor, "image_processor", None)
        tokenizer = getattr(processor, "tokenizer", None)
    if not callable(image_processor) or not callable(tokenizer):
        raise ModelError(
            "`processor` should be a transformers processor with image_processor and tokenizer, "
            f"or (image_processor, tokenizer) (got {_describe(processor)})."
        )
    return TransformersBackend(model, image_processor, tokenizer)


def _find_processor(name: str) -> Any:
    """The processor of a model that the user loaded."""
    try:
        folder, revision = find(name)
    except (OSError, ValueError) as error:
        raise _no_processor_at(name, error) from error
    check_folder(name, folder, is_model=False)
    return _load_processor(name, revision)


def _load_processor(name: str, revision: str | None) -> Any:
    import transformers

    source: Any = {"revision": revision, "trust_remote_code": False}
    try:
        with untouched():
            return transformers.AutoProcessor.from_pretrained(name, **source)
    except ImportError:
        raise
    except Exception as error:  # a broken file raises almost anything
        raise _no_processor_at(name, error) from error


def _no_processor_at(name: str, error: Exception) -> ModelError:
    return ModelError(
        f"no processor was found for `model={name!r}` ({error}): pass `processor=` (a processor, "
        "or (image_processor, tokenizer))."
    )


def _open_clip_preprocess(model: Any) -> Any:
    from open_clip.transform import PreprocessCfg, image_transform_v2

    settings = getattr(model.visual, "preprocess_cfg", None)
    if settings is None:
        raise ModelError(
            "this open_clip model does not carry its preprocessing (`model.visual."
            "preprocess_cfg`): pass `model=(model, preprocess, tokenizer)`."
        )
    return image_transform_v2(PreprocessCfg(**settings), is_train=False)


def _open_clip_tokenizer(model: Any) -> Any:
    import open_clip

    text = getattr(model, "text", model)
    if getattr(text, "vocab_size", None) == _CLIP_VOCABULARY and hasattr(text, "token_embedding"):
        return open_clip.SimpleTokenizer(context_length=text.context_length)
    raise ModelError(
        "this open_clip model does not say which tokenizer it was trained with: pass "
        "`model=(model, preprocess, open_clip.get_tokenizer(name))`."
    )


def _unwrapped(model: Any) -> Any:
    """What `torch.compile` and `DataParallel` wrap."""
    model = getattr(model, "_orig_mod", model)
    return model.module if isinstance(model, nn.DataParallel) else model


def _is_pipeline(model: Any) -> bool:
    return getattr(model, "task", None) == "zero-shot-image-classification" and all(
        hasattr(model, name) for name in ("model", "tokenizer", "image_processor")
    )


def _no_processor(processor: Any) -> None:
    if processor is not None:
        raise ModelError("`processor` goes with a transformers model only.")


def _describe(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__name__}"
