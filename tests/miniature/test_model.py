"""The embedded model: small, the same in both libraries, biased as the paper's, and made again."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

import families
import numpy as np
import pytest
import torch
from internals import TASKS, MiniatureTask, run_episodes
from transformers import AutoProcessor, AutoTokenizer, CLIPModel

from fair_tta import FairTPTClassifier, FairTTAError, ZeroShot
from fair_tta.errors import SmallGroupWarning
from fair_tta.metrics import accuracy, bias
from fair_tta.miniature import FOLDER, load_open_clip
from miniature_vocabulary import templates, tokenizer, words
from train_miniature import TrainingRecipe, train

EVERY_TASK = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


TRAINED = pytest.mark.skipif(
    not families.IS_FIVE, reason="the embedded model is trained with transformers 5"
)


def test_it_takes_at_most_six_megabytes() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 6e6


def test_it_has_a_card_and_the_recipe() -> None:
    assert "python tools/train_miniature.py" in (FOLDER / "README.md").read_text(
        "utf-8"
    )
    assert (FOLDER / "recipe.json").exists()


@EVERY_TASK
def test_open_clip_and_transformers_give_equal_answers(task: MiniatureTask) -> None:
    images = [picture.image for picture in task.draw(4)]
    arguments: tuple[Any, ...] = (task.targets, task.sensitive, task.template)
    ours, theirs = (
        FairTPTClassifier(model, *arguments, adapter=ZeroShot())
        for model in ("miniature", load_open_clip())
    )
    assert np.allclose(
        ours.predict_proba(images), theirs.predict_proba(images), atol=1e-5
    )


def test_its_logits_equal_those_of_open_clip_for_unknown_words_too() -> None:
    model = CLIPModel.from_pretrained(FOLDER).eval()
    processor = AutoProcessor.from_pretrained(FOLDER)
    twin, preprocess, tokenize = load_open_clip()
    image = TASKS["birds"].draw(1)[0].image
    texts = ["This is a picture of a water bird.", "Zürich, 42 xylophones"]
    inputs = processor(text=texts, images=[image], return_tensors="pt", padding=True)
    with torch.no_grad():
        expected = model(**inputs).logits_per_image
        pictures, sentences, scale = twin(preprocess(image)[None], tokenize(texts))[:3]
    assert torch.allclose(expected, scale * pictures @ sentences.T, atol=1e-4)


@EVERY_TASK
def test_zero_shot_figures_lie_in_the_papers_range(task: MiniatureTask) -> None:
    (episode,) = run_episodes(
        [task], {"": ZeroShot()}, seeds=[0], images=180, split="validation"
    )
    truth = [drawn.target for drawn in episode.images]
    labels = [prediction.label for prediction in episode.predictions]
    values = {
        name: [drawn.sensitive[name] for drawn in episode.images]
        for name in task.sensitive
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        gap = bias(truth, labels, values, interval=None)
    entropies = [np.mean([*p.sensitive_entropy.values()]) for p in episode.predictions]
    assert 0.70 <= float(accuracy(truth, labels)) <= 0.97
    assert 0.05 <= float(gap) <= 0.45
    assert 0.15 <= np.mean(entropies) <= 0.60


@TRAINED
def test_every_word_it_was_trained_on_is_one_token() -> None:
    built = tokenizer(list(TASKS.values()))
    for word in words(list(TASKS.values())):
        assert len(built.tokenize(word)) == 1, word


@TRAINED
def test_the_shipped_tokenizer_is_the_one_that_is_built() -> None:
    shipped = AutoTokenizer.from_pretrained(FOLDER)
    built = tokenizer(list(TASKS.values()))
    for text in (t for task in TASKS.values() for t in templates(task)):
        assert shipped(text)["input_ids"] == built(text)["input_ids"]


@EVERY_TASK
def test_the_tasks_own_template_is_among_those_trained_on(task: MiniatureTask) -> None:
    assert task.template in templates(task)


class Interrupted(Exception):
    pass


def _stop_after(steps: int) -> Any:
    def progress(work: Any, title: str) -> Any:
        for index, item in enumerate(work):
            if title == "training" and index == steps:
                raise Interrupted
            yield item

    return progress


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@TRAINED
def test_training_can_be_interrupted_and_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train_miniature._CHECKPOINT_EVERY", 2)
    recipe = TrainingRecipe(steps=5, pictures=12, batch=6, sentences=2)
    train(tmp_path / "whole", recipe)
    with pytest.raises(Interrupted):
        train(tmp_path / "parts", recipe, _stop_after(3))
    assert (tmp_path / "parts" / "checkpoint.pt").exists()
    with pytest.raises(
        FairTTAError, match="`out` holds the checkpoint of another recipe"
    ):
        train(tmp_path / "parts", TrainingRecipe(steps=6, pictures=12))
    train(tmp_path / "parts", recipe)
    assert _digest(tmp_path / "parts") == _digest(tmp_path / "whole")
    assert not (tmp_path / "parts" / "checkpoint.pt").exists()


@TRAINED
def test_a_trained_folder_is_a_model_for_the_classifier(tmp_path: Path) -> None:
    train(tmp_path, TrainingRecipe(steps=1, pictures=6, batch=4, sentences=1))
    task = TASKS["badges"]
    clf = FairTPTClassifier(
        str(tmp_path), task.targets, task.sensitive, task.template, adapter=ZeroShot()
    )
    assert clf.predict(task.draw(1)[0].image).label in task.targets
