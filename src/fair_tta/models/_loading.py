"""Backends from objects and strings: their kind, processor, device and dtype."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn

from fair_tta.errors import FairTTAError, ModelError, suggest_name
from fair_tta.miniature._model import FOLDER
from fair_tta.models._allowed_models import (
    check_folder,
    check_sizes,
    find_model_files,
    load_open_clip_string,
    loading_options,
)
from fair_tta.models._backend import Backend
from fair_tta.models._model_lock import eval_mode_lock
from fair_tta.models._open_clip import OpenClipBackend
from fair_tta.models._stored_text import refuse_images, sees_images
from fair_tta.models._transformers import TransformersBackend, is_text_tower
from fair_tta.models._vision_tower import features_resemble


def model_origin(backend: Any) -> str:
    """Return the hub id of a model, or the name of its folder; empty if it is not known."""
    path = _name_or_path(backend)
    if not os.path.isdir(path) and not os.path.isabs(path):
        return path
    return "miniature" if Path(path) == FOLDER else Path(path).resolve().name


def backend_name(backend: Any) -> str:
    """Return the name of a backend, with its origin instead of a path of this machine."""
    path = _name_or_path(backend)
    name = str(backend.name)
    return name.replace(path, model_origin(backend)) if path else name


def _name_or_path(backend: Any) -> str:
    return str(getattr(getattr(backend, "model", None), "name_or_path", None) or "")


_ACCEPTED = (
    "a transformers model (with `processor=` if it has no `name_or_path`), a transformers "
    "zero-shot pipeline, open_clip's (model, preprocess, tokenizer), an open_clip model, the "
    "directory or hub id of a transformers model, 'open_clip:NAME/TAG', 'miniature' (the embedded "
    "model), a text tower (with its tokenizer as `processor=`), or an object that satisfies "
    "fair_tta.extend.Backend"
)
_CLIP_VOCABULARY_SIZE = 49408  # of open_clip's `SimpleTokenizer`
_BACKEND_MEMBERS = [name for name in vars(Backend) if not name.startswith("_")]


def resolve(model: Any, processor: Any = None) -> Backend:
    """Return a `Backend` for any model that the user has; see `_ACCEPTED`."""
    backend = _resolve(model, processor)
    uses_processor = isinstance(backend, TransformersBackend) or not sees_images(
        backend
    )
    if processor is not None and not uses_processor:
        raise ModelError(
            "`processor` goes with a transformers model only.", argument="processor"
        )
    return backend


def _resolve(model: Any, processor: Any) -> Backend:
    if isinstance(model, str | Path):
        with eval_mode_lock():
            return _from_string(str(model), processor)
    if isinstance(model, tuple | list):  # a model with its processors
        return _from_tuple(tuple(_unwrapped(part) for part in model))
    model = _unwrapped(model)
    # `isinstance` of Python 3.12 does not see attributes that come from __getattr__.
    is_class = isinstance(model, type)
    missing = [
        name for name in _BACKEND_MEMBERS if is_class or not hasattr(model, name)
    ]
    if not missing:
        backend: Backend = model
        return backend
    # A pipeline of transformers.
    if getattr(model, "task", None) == "zero-shot-image-classification":
        processor = processor or (model.image_processor, model.tokenizer)
        return _from_transformers(model.model, processor)
    if isinstance(model, nn.Module):
        if hasattr(model, "config") and hasattr(model, "dtype"):
            return _from_transformers(model, processor)
        if hasattr(model, "encode_image"):
            return _from_open_clip(model)
        if callable(processor):  # the tokenizer of a text tower
            return OpenClipBackend(model, refuse_images, processor)
    # Almost a user-defined backend: name what it lacks.
    if "encode_images" not in missing or "encode_prompts" not in missing:
        raise ModelError(
            f"`model` should satisfy fair_tta.extend.Backend: {type(model).__name__} lacks "
            f"{', '.join(missing)}.",
            argument="model",
        )
    raise ModelError(
        f"`model` should be {_ACCEPTED} (got {_full_class_name(model)}).",
        argument="model",
    )


def _from_string(name: str, processor: Any) -> Backend:
    if name == "miniature":
        name = str(FOLDER)
    if name.startswith("open_clip:"):
        return load_open_clip_string(name.removeprefix("open_clip:"))
    if os.path.isdir(name):
        configs = [file.name for file in Path(name).glob("*config.json")]
        if configs == ["open_clip_config.json"]:
            return load_open_clip_string(f"local-dir:{name}")
    import transformers

    try:
        folder, revision = find_model_files(name)
        check_folder(name, folder)
        options: Any = loading_options(revision)
        config = transformers.AutoConfig.from_pretrained(name, **options)
        # `AutoModel` would load BLIP without its projections.
        architectures = getattr(config, "architectures", None) or ()
        model_class: Any = transformers.AutoModel
        if "BlipForImageTextRetrieval" in architectures:
            model_class = transformers.BlipForImageTextRetrieval
        model, report = model_class.from_pretrained(
            name, weights_only=True, output_loading_info=True, **options
        )
    except (ImportError, ModelError):
        raise
    except Exception as error:  # a broken file raises almost anything
        reason = str(error)[:500].rstrip(".")
        raise ModelError(
            f"`model={name[:80]!r}` could not be loaded: {reason}. If it is an open_clip "
            f"model, write 'open_clip:NAME/TAG'.{suggest_name(name, _local_models(name))}",
            argument="model",
        ) from error
    # transformers only warns, and fills them with random numbers.
    if report["missing_keys"]:
        raise ModelError(
            f"`model={name!r}` lacks weights of a {type(model).__name__}, such as "
            f"{min(report['missing_keys'])!r}.",
            argument="model",
        )
    processor = processor or _load_processor(name, revision)
    return _from_transformers(model.eval(), processor)


def _local_models(name: str) -> list[str]:
    """Return models to suggest: the embedded one, folders of this machine, the hub's cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    models = ["miniature"]
    with suppress(OSError, ValueError):  # too long a name, or a null character
        models += [str(folder) for folder in Path(name).parent.glob("*/")]
    for folder in Path(HF_HUB_CACHE).glob("models--*"):
        models.append(folder.name.removeprefix("models--").replace("--", "/"))
    return models


def _from_tuple(parts: tuple[Any, ...]) -> Backend:
    # (model, processor) of transformers
    if len(parts) == 2 and hasattr(parts[0], "config"):
        return _from_transformers(*parts)
    # (model, preprocess, tokenizer) of open_clip
    if len(parts) == 3 and hasattr(parts[0], "encode_image") and callable(parts[1]):
        model, preprocess, tokenizer = parts
        if callable(tokenizer) and not hasattr(tokenizer, "transforms"):
            return OpenClipBackend(model, preprocess, tokenizer)
        raise ModelError(
            "`model=(model, preprocess, tokenizer)` should end with the tokenizer, as of "
            f"open_clip.get_tokenizer(name) (got {_full_class_name(tokenizer)}).",
            argument="model",
        )
    classes = ", ".join(_full_class_name(part) for part in parts)
    raise ModelError(
        f"`model` should be {_ACCEPTED} (got a tuple of {classes}).", argument="model"
    )


def _from_transformers(model: Any, processor: Any) -> Backend:
    # A model that was loaded from the hub or a folder says where its processor is.
    if processor is None:
        name = getattr(model, "name_or_path", "")
        if not name:
            raise ModelError(
                f"{type(model).__name__} does not state where it came from (`name_or_path` is "
                "empty): pass `processor=` (a processor, or (image_processor, tokenizer))."
            )
        processor = _load_processor(name)
    if isinstance(processor, tuple | list) and len(processor) == 2:
        image_processor, tokenizer = processor
    else:
        image_processor = getattr(processor, "image_processor", None)
        tokenizer = getattr(processor, "tokenizer", None)
    # A text tower comes with its tokenizer alone.
    if is_text_tower(model):
        tokenizer = tokenizer or processor
        image_processor = image_processor or refuse_images
    if not callable(image_processor) or not callable(tokenizer):
        raise ModelError(
            "`processor` should be a transformers processor with image_processor and tokenizer, "
            f"or (image_processor, tokenizer) (got {_full_class_name(processor)}).",
            argument="processor",
        )
    if hasattr(image_processor, "to_dict"):
        check_sizes(type(model).__name__, image_processor.to_dict())
    return TransformersBackend(model, image_processor, tokenizer)


def _load_processor(name: str, revision: str | None = None) -> Any:
    """Return the processor of a model; without a revision its files are checked first."""
    import transformers

    try:
        # A user's model may name any folder or hub id as its origin.
        if revision is None:
            folder, revision = find_model_files(name)
            check_folder(name, folder, is_model=False)
        options: Any = loading_options(revision)
        with eval_mode_lock():
            return transformers.AutoProcessor.from_pretrained(name, **options)
    except (ImportError, ModelError):
        raise
    except Exception as error:  # a broken file raises almost anything
        raise ModelError(
            f"no processor was found for `model={name!r}` ({error}): pass `processor=` (a "
            "processor, or (image_processor, tokenizer)).",
            argument="model",
        ) from error


def _from_open_clip(model: Any) -> Backend:
    import open_clip
    from open_clip.transform import PreprocessCfg, image_transform_v2

    settings = getattr(model.visual, "preprocess_cfg", None)
    text = getattr(model, "text", model)
    has_vocabulary = getattr(text, "vocab_size", None) == _CLIP_VOCABULARY_SIZE
    is_clip = has_vocabulary and hasattr(text, "token_embedding")
    if settings is None or not is_clip:
        raise ModelError(
            "this open_clip model does not state its preprocessing and its tokenizer: pass "
            "`model=(model, preprocess, open_clip.get_tokenizer(name))`.",
            argument="model",
        )
    preprocess: Any = image_transform_v2(PreprocessCfg(**settings), is_train=False)
    tokenizer = open_clip.SimpleTokenizer(context_length=text.context_length)
    return OpenClipBackend(model, preprocess, tokenizer)


def _unwrapped(model: Any) -> Any:
    """Return the model inside the wrappers of `torch.compile` and `DataParallel`."""
    model = getattr(model, "_orig_mod", model)
    return model.module if isinstance(model, nn.DataParallel) else model


def _full_class_name(instance: Any) -> str:
    return f"{type(instance).__module__}.{type(instance).__name__}"


_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}


def load(
    model: Any,
    processor: Any = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Backend:
    """Return `resolve(model)` on a device and in a dtype; see `FairTPTClassifier`."""
    # An object is the user's: it stays where and as it is.
    is_loaded = isinstance(model, str | Path)
    for name, argument in (("device", device), ("dtype", dtype)):
        if argument is not None and not is_loaded:
            raise FairTTAError(
                f"`{name}` goes with a model that is loaded from a string. An object is used as "
                f"it is: move it yourself, as in model.to({str(argument)!r}) (got "
                f"{name}={argument!r} and a {type(model).__name__}).",
                argument=name,
            )
    torch_device = None if device is None else find_device(device)
    torch_dtype = None if dtype is None else find_dtype(dtype, torch_device)
    backend = resolve(model, processor)
    if torch_device is not None or torch_dtype is not None:
        move(backend, torch_device, torch_dtype)
    return backend


def with_compiled_vision(backend: Backend) -> Backend:
    """Return the same model with its vision tower compiled.

    Some compilers make wrong code for some processors, or none, so an image goes through both
    towers first; if they differ, warn and return the model unchanged.
    """
    compile_vision = getattr(backend, "with_compiled_vision", None)
    if compile_vision is None:
        raise FairTTAError(
            f"`compile_vision` needs a model of transformers or open_clip ({backend.name} is a "
            "user-defined backend): compile its vision tower yourself.",
            argument="compile_vision",
        )
    compiled: Backend = compile_vision()
    image = [Image.linear_gradient("L").convert("RGB")]
    expected = backend.encode_images(image).float()
    try:
        if features_resemble(compiled.encode_images(image).float(), expected):
            return compiled
        problem = "has other features"
    except Exception as error:  # compilers raise errors of any class
        problem = f"fails ({type(error).__name__})"
    warnings.warn(
        f"torch.compile (torch {torch.__version__}) {problem} on this machine: the vision tower "
        "stays as it is.",
        stacklevel=3,
    )
    return backend


def move(
    backend: Backend, device: torch.device | None, dtype: torch.dtype | None = None
) -> None:
    """Move a model; its scalars, such as the temperature, keep their precision."""
    model = getattr(backend, "model", None)
    if not isinstance(model, nn.Module):
        raise FairTTAError(
            f"`device` and `dtype` need a model of torch to move ({backend.name} has none).",
            argument="device",
        )
    # Half precision is too coarse for a temperature.
    scalars = [(p, p.detach().clone()) for p in model.parameters() if p.ndim == 0]
    try:
        model.to(device=device, dtype=dtype)
        for parameter, original in scalars:
            parameter.data = original.to(parameter.device)
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        raise FairTTAError(
            f"`device` {str(device)!r} cannot be used: {error}", argument="device"
        ) from error


def find_device(device: str | torch.device) -> torch.device:
    """Return the device of a name; "auto" is the accelerator of this machine, or its CPU."""
    if device == "auto":
        accelerator = None
        if torch.accelerator.is_available():
            accelerator = torch.accelerator.current_accelerator()
        return accelerator or torch.device("cpu")
    try:
        torch_device = torch.device(device)
        if torch_device.type == "meta":
            raise TypeError("it holds no numbers")
    except (RuntimeError, TypeError) as error:
        raise FairTTAError(
            f"`device` {str(device)!r} cannot be used: it should be 'auto', 'cpu', 'cuda', 'mps' "
            "or another device of torch.",
            argument="device",
        ) from error
    return torch_device


def find_dtype(dtype: str | torch.dtype, device: torch.device | None) -> torch.dtype:
    """Return the dtype of a name.

    "auto" is bfloat16 on accelerators that support it, otherwise float16. On a CPU it is float32:
    few are faster in half precision.
    """
    if dtype == "auto":
        if device is None or device.type == "cpu":
            return torch.float32
        has_bfloat16 = device.type != "cuda" or torch.cuda.is_bf16_supported(False)
        return torch.bfloat16 if has_bfloat16 else torch.float16
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise FairTTAError(
            f"`dtype` should be 'auto', {', '.join(map(repr, _DTYPES))} (got {dtype!r}).",
            argument="dtype",
        )
    return _DTYPES[name]
