"""Find out what kind of model an object or a string is, and load it."""

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


def model_origin(backend: Any) -> str:
    """Hub id of a model, or the name of its folder; empty if it is not known."""
    path = _path(backend)
    if not os.path.isdir(path) and not os.path.isabs(path):
        return path
    return "miniature" if Path(path) == FOLDER else Path(path).resolve().name


def model_name(backend: Any) -> str:
    """The name of a backend."""
    name, path = str(backend.name), _path(backend)
    return name.replace(path, model_origin(backend)) if path else name


def _path(backend: Any) -> str:
    return str(getattr(getattr(backend, "model", None), "name_or_path", None) or "")


_ACCEPTED = (
    "a transformers model (with `processor=` if it has no `name_or_path`), a transformers "
    "zero-shot pipeline, open_clip's (model, preprocess, tokenizer), an open_clip model, the "
    "directory or hub id of a transformers model, 'open_clip:NAME/TAG', 'miniature' (the embedded "
    "model), a text tower (with its tokenizer as `processor=`), or an object that satisfies "
    "fair_tta.extend.Backend"
)
_CLIP_VOCABULARY = 49408
_MEMBERS = [name for name in vars(Backend) if not name.startswith("_")]


def resolve(model: Any, processor: Any = None) -> Backend:
    """Make a `Backend` of whatever the user has; see `_ACCEPTED`."""
    backend = _resolve(model, processor)
    takes_one = isinstance(backend, TransformersBackend) or not sees_images(backend)
    if processor is not None and not takes_one:
        raise ModelError(
            "`processor` goes with a transformers model only.", argument="processor"
        )
    return backend


def _resolve(model: Any, processor: Any) -> Backend:
    if isinstance(model, str | Path):
        with eval_mode_lock():
            return _from_string(str(model), processor)
    if isinstance(model, tuple | list):
        return _from_tuple(tuple(map(_unwrapped, model)))
    model = _unwrapped(model)
    # isinstance of Python 3.12 does not see what __getattr__ gives
    missing = [
        name for name in _MEMBERS if isinstance(model, type) or not hasattr(model, name)
    ]
    if not missing:
        backend: Backend = model
        return backend
    if getattr(model, "task", None) == "zero-shot-image-classification":
        processor = processor or (model.image_processor, model.tokenizer)
        return _from_transformers(model.model, processor)
    if (
        isinstance(model, nn.Module)
        and hasattr(model, "config")
        and hasattr(model, "dtype")
    ):
        return _from_transformers(model, processor)
    if isinstance(model, nn.Module) and hasattr(model, "encode_image"):
        return _from_open_clip(model)
    if isinstance(model, nn.Module) and callable(processor):  # a text tower
        return OpenClipBackend(model, refuse_images, processor)
    if "encode_images" not in missing or "encode_prompts" not in missing:
        raise ModelError(
            f"`model` should satisfy fair_tta.extend.Backend: {type(model).__name__} lacks "
            f"{', '.join(missing)}.",
            argument="model",
        )
    raise ModelError(
        f"`model` should be {_ACCEPTED} (got {_describe(model)}).", argument="model"
    )


def _from_string(name: str, processor: Any) -> Backend:
    if name == "miniature":
        name = str(FOLDER)
    if name.startswith("open_clip:"):
        return load_open_clip_string(name.removeprefix("open_clip:"))
    files = Path(name).glob("*config.json") if os.path.isdir(name) else ()
    configs = [file.name for file in files]
    if configs == ["open_clip_config.json"]:
        return load_open_clip_string(f"local-dir:{name}")
    import transformers

    try:
        folder, revision = find_model_files(name)
        check_folder(name, folder)
        source: Any = loading_options(revision)
        config = transformers.AutoConfig.from_pretrained(name, **source)
        blip = "BlipForImageTextRetrieval" in (
            getattr(config, "architectures", None) or ()
        )
        kind: Any = (
            transformers.BlipForImageTextRetrieval if blip else transformers.AutoModel
        )
        model, report = kind.from_pretrained(
            name, weights_only=True, output_loading_info=True, **source
        )
    except (ImportError, ModelError):
        raise
    except Exception as error:  # a broken file raises almost anything
        raise ModelError(
            f"`model={name[:80]!r}` could not be loaded: {str(error)[:500]} If it is an open_clip "
            f"model, write 'open_clip:NAME/TAG'.{suggest_name(name, _models_here(name))}",
            argument="model",
        ) from error
    if report["missing_keys"]:
        raise ModelError(
            f"`model={name!r}` is not a whole {type(model).__name__}: weights are missing, such as "
            f"{min(report['missing_keys'])!r}.",
            argument="model",
        )
    return _from_transformers(
        model.eval(), processor or _load_processor(name, revision)
    )


def _models_here(name: str) -> list[str]:
    """Models that are there: the embedded one, folders beside it, those of the hub's cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    beside: list[str] = []
    with suppress(OSError, ValueError):  # too long a name, or a null character
        beside = [str(folder) for folder in Path(name).parent.glob("*/")]
    cached = [
        folder.name[8:].replace("--", "/")
        for folder in Path(HF_HUB_CACHE).glob("models--*")
    ]
    return ["miniature", *beside, *cached]


def _from_tuple(parts: tuple[Any, ...]) -> Backend:
    if len(parts) == 2 and hasattr(parts[0], "config"):
        return _from_transformers(*parts)
    if len(parts) == 3 and hasattr(parts[0], "encode_image") and callable(parts[1]):
        model, preprocess, tokenizer = parts
        if callable(tokenizer) and not hasattr(tokenizer, "transforms"):
            return OpenClipBackend(model, preprocess, tokenizer)
        raise ModelError(
            "`model=(model, preprocess, tokenizer)` should end with the tokenizer, as of "
            f"open_clip.get_tokenizer(name) (got {_describe(tokenizer)}).",
            argument="model",
        )
    raise ModelError(
        f"`model` should be {_ACCEPTED} (got a tuple of "
        f"{', '.join(_describe(part) for part in parts)}).",
        argument="model",
    )


def _from_transformers(model: Any, processor: Any) -> Backend:
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
    if is_text_tower(model):
        tokenizer = tokenizer or processor
        image_processor = image_processor or refuse_images
    if not callable(image_processor) or not callable(tokenizer):
        raise ModelError(
            "`processor` should be a transformers processor with image_processor and tokenizer, "
            f"or (image_processor, tokenizer) (got {_describe(processor)}).",
            argument="processor",
        )
    if hasattr(image_processor, "to_dict"):
        check_sizes(type(model).__name__, image_processor.to_dict())
    return TransformersBackend(model, image_processor, tokenizer)


def _load_processor(name: str, revision: str | None = None) -> Any:
    """The processor of a model; without a revision its files are checked first."""
    import transformers

    try:
        if revision is None:
            folder, revision = find_model_files(name)
            check_folder(name, folder, is_model=False)
        source: Any = loading_options(revision)
        with eval_mode_lock():
            return transformers.AutoProcessor.from_pretrained(name, **source)
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
    is_clip = getattr(text, "vocab_size", None) == _CLIP_VOCABULARY
    if settings is None or not is_clip or not hasattr(text, "token_embedding"):
        raise ModelError(
            "this open_clip model does not state its preprocessing and its tokenizer: pass "
            "`model=(model, preprocess, open_clip.get_tokenizer(name))`.",
            argument="model",
        )
    preprocess: Any = image_transform_v2(PreprocessCfg(**settings), is_train=False)
    tokenizer = open_clip.SimpleTokenizer(context_length=text.context_length)
    return OpenClipBackend(model, preprocess, tokenizer)


def _unwrapped(model: Any) -> Any:
    """What `torch.compile` and `DataParallel` wrap."""
    model = getattr(model, "_orig_mod", model)
    return model.module if isinstance(model, nn.DataParallel) else model


def _describe(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__name__}"


_DTYPES = {
    name: getattr(torch, name) for name in ("float32", "float16", "bfloat16", "float64")
}

_AS_GOOD_AS_SAME = 0.02  # of the length of features: half precision differs by less


def load(
    model: Any,
    processor: Any = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Backend:
    """`resolve`, where and as it is wanted; see `FairTPTClassifier`."""
    for name, value in (("device", device), ("dtype", dtype)):
        if value is not None and not isinstance(model, str | Path):
            raise FairTTAError(
                f"`{name}` goes with a model that is loaded from a string. An object stays as it "
                f"is: move it yourself, as in model.to({str(value)!r}) (got {name}={value!r} and a "
                f"{type(model).__name__}).",
                argument=name,
            )
    where = None if device is None else find_device(device)
    what = None if dtype is None else find_dtype(dtype, where)
    backend = resolve(model, processor)
    if where is not None or what is not None:
        move(backend, where, what)
    return backend


def with_compiled_vision(backend: Backend) -> Backend:
    """The same model with its vision tower compiled.

    Some compilers make wrong code for some processors, or none, so an image goes through both
    first; if they differ, warn and return the model as it was.
    """
    make = getattr(backend, "with_compiled_vision", None)
    if make is None:
        raise FairTTAError(
            f"`compile_vision` needs a model of transformers or open_clip ({backend.name} is a "
            "user-defined backend): compile its vision tower yourself.",
            argument="compile_vision",
        )
    compiled: Backend = make()
    image = [Image.linear_gradient("L").convert("RGB")]
    own, result = backend.encode_images(image).float(), "gives other features"
    try:
        other = compiled.encode_images(image).float()
        if (
            other - own
        ).norm() <= _AS_GOOD_AS_SAME * own.norm():  # not if anything is NaN
            return compiled
    except Exception as error:  # of a compiler: of any kind
        result = f"fails ({type(error).__name__})"
    warnings.warn(
        f"torch.compile (torch {torch.__version__}) {result} on this machine: the vision tower "
        "stays as it is.",
        stacklevel=3,
    )
    return backend


def move(
    backend: Backend, device: torch.device | None, dtype: torch.dtype | None = None
) -> None:
    """Move a model; its single numbers, such as the temperature, keep their precision."""
    model = getattr(backend, "model", None)
    if not isinstance(model, nn.Module):
        raise FairTTAError(
            f"`device` and `dtype` need a model of torch to move ({backend.name} shows none).",
            argument="device",
        )
    numbers = [(p, p.detach().clone()) for p in model.parameters() if p.ndim == 0]
    try:
        model.to(device=device, dtype=dtype)
        for parameter, value in numbers:
            parameter.data = value.to(parameter.device)
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        raise FairTTAError(
            f"`device` {str(device)!r} cannot be used: {error}", argument="device"
        ) from error


def find_device(device: str | torch.device) -> torch.device:
    """The device of a name; of "auto" the accelerator of this machine, or its CPU."""
    if device == "auto":
        found = (
            torch.accelerator.current_accelerator()
            if torch.accelerator.is_available()
            else None
        )
        return torch.device("cpu") if found is None else found
    try:
        found = torch.device(device)
        if found.type == "meta":
            raise TypeError("it holds no numbers")
    except (RuntimeError, TypeError) as error:
        raise FairTTAError(
            f"`device` {str(device)!r} cannot be used: it should be 'auto', 'cpu', 'cuda', 'mps' "
            "or another device of torch.",
            argument="device",
        ) from error
    return found


def find_dtype(dtype: str | torch.dtype, device: torch.device | None) -> torch.dtype:
    """The dtype of a name; of "auto" bfloat16 on accelerators that have it, else float16.

    On a CPU "auto" is float32: few are faster in less.
    """
    if dtype == "auto":
        if device is None or device.type == "cpu":
            return torch.float32
        has_bfloat16 = device.type != "cuda" or torch.cuda.is_bf16_supported(False)
        return torch.bfloat16 if has_bfloat16 else torch.float16
    found: torch.dtype | None = _DTYPES.get(str(dtype).removeprefix("torch."))
    if found is not None:
        return found
    raise FairTTAError(
        f"`dtype` should be 'auto', {', '.join(map(repr, _DTYPES))} (got {dtype!r}).",
        argument="dtype",
    )
