"""All of `open_clip.list_models()`, shrunk: the splice is exact, and docs/models.md says so."""

from __future__ import annotations

import models_page
import open_clip
import pytest
from families_open_clip import shrunk

SIZES = {"width", "heads", "layers", "vocab_size", "hf_model_name", "hf_tokenizer_name"}


@pytest.mark.slow
def test_at_least_95_percent_of_the_models_pass() -> None:
    outcomes = models_page.walk()
    assert len(outcomes) == len(models_page.NAMES) >= 100
    failed = {
        name: outcome.problem for name, outcome in outcomes.items() if outcome.problem
    }
    assert len(failed) <= 0.05 * len(outcomes), failed


def test_shrinking_keeps_the_structure() -> None:
    for name in models_page.NAMES:
        full, small = open_clip.get_model_config(name), shrunk(name)
        for part in (full, small):
            part["text_cfg"] = {
                k: v for k, v in part["text_cfg"].items() if k not in SIZES
            }
            part.pop("embed_dim")
            part.pop("vision_cfg")
            multimodal = part.pop("multimodal_cfg", None)
            assert multimodal is None or multimodal["context_length"] == 76
        assert small == full, name


@pytest.mark.slow
def test_page_is_true() -> None:
    if f"open_clip {open_clip.__version__} " not in models_page.on_page():
        pytest.skip("docs/models.md was made with another version of open_clip")
    assert models_page.on_page() == models_page.tables(), "see helpers/models_page.py"
