"""Tests run offline, on one thread each (or OMP_NUM_THREADS), and leave nothing behind."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for processes that tests start too

import pytest
from hypothesis import HealthCheck, settings

# torch and transformers are imported by fixtures: the process that hands out tests needs neither.

# A busy machine is no defect: neither a slow example nor slow data fails a test.
settings.register_profile(
    "any-machine",
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-machine")


@pytest.fixture(autouse=True, scope="session")
def _silence_loggers() -> None:
    import torch
    import transformers

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


@lru_cache(maxsize=8)
def _loaded(model: str, options: tuple[tuple[str, Any], ...], _: Any) -> Any:
    from internals import load

    return load(model, **dict(options))


def _load_once(model: Any, processor: Any = None, **options: Any) -> Any:
    from internals import load

    from fair_tta.miniature import FOLDER

    folder = (
        FOLDER
        if model == "miniature"
        else Path(model)
        if isinstance(model, str)
        else None
    )
    if processor is not None or folder is None or not folder.is_dir():
        return load(model, processor, **options)
    stats = [(file.name, file.stat()) for file in sorted(folder.iterdir())]
    files = tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
    return _loaded(model, tuple(options.items()), files)


@pytest.fixture
def loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of a model is loaded once in this process, while its files stay as they are."""
    for module in ("classifier", "lab.runs._job"):
        monkeypatch.setattr(f"fair_tta.{module}.load", _load_once)


@pytest.fixture
def few_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default a classifier looks at 8 views instead of 64."""
    from fair_tta import FairTPTClassifier
    from fair_tta.extend import AugMix

    defaults: Any = FairTPTClassifier.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "views", AugMix(8))


@pytest.fixture
def tiny_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pages name models of the hub and images, tiny stand-ins lie in the current folder."""
    import families
    import open_clip
    import transformers
    from checks import picture

    model, images, tokenizer = families.seeded(families.clip)
    folder = tmp_path / "openai" / "clip-vit-base-patch32"
    model.save_pretrained(folder)
    transformers.CLIPProcessor(images, tokenizer).save_pretrained(folder)
    picture().save(tmp_path / "bird.jpg")
    (tmp_path / "birds").mkdir()
    for i in range(3):
        picture(i).save(tmp_path / "birds" / f"{i}.jpg")
    vision = {
        "image_size": 32,
        "layers": 2,
        "width": 32,
        "patch_size": 8,
        "head_width": 8,
    }
    text = {
        "context_length": 77,
        "vocab_size": 49408,
        "width": 32,
        "heads": 4,
        "layers": 2,
    }
    tiny = families.seeded(lambda: (open_clip.CLIP(16, vision, text),))[0]
    transform = open_clip.image_transform(32, is_train=False)
    monkeypatch.setattr(
        open_clip,
        "create_model_and_transforms",
        lambda *_, **__: (tiny, transform, transform),
    )
