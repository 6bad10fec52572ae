"""Train the miniature model: ``python tools/train_miniature.py --out DIR``.

Seeded, about seven minutes on two cores, and resumable: the same command goes on where it stopped.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn
from torch.nn import functional as F

from fair_tta.errors import FairTTAError
from fair_tta.miniature._drawing import SIZE
from fair_tta.miniature._world import TASKS, MiniatureTask
from miniature_vocabulary import (
    CONTEXT_LENGTH,
    save_tokenizer,
    templates,
    tokenizer,
)

_MEAN, _STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
_CHECKPOINT_EVERY = 50  # steps
_CARD = """\
---
library_name: transformers
license: mit
tags: [fair-tta, clip, zero-shot-image-classification]
---
# fair-tta miniature

A CLIP of {weights:,} weights that knows the drawn world of `fair_tta.miniature` and nothing else:
birds on water or land, coloured badges, houses and trees by day or night, in summer or winter.

- Use: trying out fair-tta offline, demonstrations and tests. It is of no use on photos.
- Made by `python tools/train_miniature.py` with the settings in `recipe.json`: drawn pictures in
  which an attribute goes along with the target, cross-entropy within groups of prompts (target,
  attribute, both), AdamW. No photos and no people were used.
- Known fault, on purpose: it leans on background, colour, time and season, because they went along
  with the answer in training. `fair-tta demo` measures how much.
- Words outside its small vocabulary are spelt byte by byte and mean nothing to it.
"""


@dataclass(frozen=True)
class TrainingRecipe:
    """Everything the result depends on, written into the model's folder.

    Attributes:
        seed: of weights, order, crops and training pictures.
        pictures: drawn for each task.
        steps: of the optimiser.
        batch: pictures of each task in a step.
        sentences: templates tried in a step.
        rate: highest learning rate, of AdamW with one cycle.
        embedding_rate: the same for the embeddings of tokens and places, as a part of `rate`. It
            keeps them about as large as they start, which is as large as those of OpenAI's CLIP:
            only then does a fixed step of 5e-3 mean for the context what it means there.
        weight_decay: of AdamW.
        smoothing: share of a target's answer that is spread over all targets, so that the model
            is about as sure of its answers as CLIP is.
        smallest_crop: sides of random crops, as a part of the picture's.
        scale: where the softmax's inverse temperature starts.
    """

    seed: int = 0
    pictures: int = 5000
    steps: int = 1500
    batch: int = 40
    sentences: int = 3
    rate: float = 2e-3
    embedding_rate: float = 0.1
    weight_decay: float = 0.05
    smoothing: float = 0.1
    smallest_crop: float = 0.8
    scale: float = 10.0


def build_model(vocabulary: int) -> Any:
    """A CLIP of some 0.4 million weights, random."""
    from transformers import CLIPConfig, CLIPModel

    text = {
        "vocab_size": vocabulary, "hidden_size": 64, "intermediate_size": 256,
        "num_hidden_layers": 2, "num_attention_heads": 2, "projection_dim": 64,
        "max_position_embeddings": CONTEXT_LENGTH, "hidden_act": "gelu",
        "bos_token_id": vocabulary - 2, "eos_token_id": vocabulary - 1,
        "pad_token_id": vocabulary - 1,
    }  # fmt: skip
    vision = {
        "image_size": SIZE, "patch_size": 8, "hidden_size": 64, "intermediate_size": 256,
        "num_hidden_layers": 4, "num_attention_heads": 2, "projection_dim": 64,
        "hidden_act": "gelu",
    }  # fmt: skip
    model = CLIPModel(
        CLIPConfig(text_config=text, vision_config=vision, projection_dim=64)
    )
    for part in (
        model.modules()
    ):  # transformers' own start is far too small for so small a model
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
        elif isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
    return model


@dataclass(frozen=True)
class _Lesson:
    """The training pictures of a task, and what each prompt group should answer."""

    task: MiniatureTask
    pixels: Tensor  # [pictures, 3, size, size] uint8
    answers: dict[tuple[str, ...], Tensor]  # {slots of the group: [pictures, prompts]}

    def prompts(self, slots: tuple[str, ...], template: str) -> list[str]:
        """The sentences of a prompt group, in the order of `answers`."""
        names = [
            self.task.targets if s == "target" else self.task.sensitive[s]
            for s in slots
        ]
        sentences = []
        for combination in itertools.product(*(n.values() for n in names)):
            filled = dict(zip(slots, combination, strict=True))
            target = filled.pop("target", "")
            text = template.format(target=target, sensitive=" ".join(filled.values()))
            sentences.append(
                " ".join(text.replace(" .", ".").replace(" !", "!").split())
            )
        return sentences


def _lesson(task: MiniatureTask, recipe: TrainingRecipe, progress: Any) -> _Lesson:
    stream = task.stream(recipe.seed, split="train")
    pictures = [
        next(stream) for _ in progress(range(recipe.pictures), f"drawing {task.name}")
    ]
    pixels = torch.from_numpy(np.stack([np.asarray(p.image) for p in pictures]))
    target_indices = torch.tensor(
        [list(task.targets).index(p.target) for p in pictures]
    )
    one_hot = F.one_hot(target_indices, len(task.targets)).float()
    lesson = {
        "target": (1 - recipe.smoothing) * one_hot
        + recipe.smoothing / len(task.targets)
    }
    for column, (attribute, names) in enumerate(task.sensitive.items()):
        shares = torch.zeros(len(pictures), len(names))
        for row, picture in zip(shares, pictures, strict=True):
            shade = picture.shades[column]
            row[shade.other] = shade.part**2 / (shade.part**2 + (1 - shade.part) ** 2)
            row[shade.value] = 1 - row[shade.other]
        lesson[attribute] = shares
    groups: list[tuple[str, ...]] = [(slot,) for slot in lesson]
    groups += [("target", attribute) for attribute in task.sensitive]
    if len(task.sensitive) > 1:
        groups.append(("target", *task.sensitive))
    answers = {}
    for slots in groups:
        joint = lesson[slots[0]]
        for slot in slots[1:]:
            joint = (joint[:, :, None] * lesson[slot][:, None, :]).flatten(1)
        answers[slots] = joint
    return _Lesson(task, pixels.permute(0, 3, 1, 2).contiguous(), answers)


def _crops(
    pixels: Tensor, recipe: TrainingRecipe, random: np.random.Generator
) -> Tensor:
    """Normalised pictures, all cropped and mirrored alike."""
    side = int(random.integers(int(recipe.smallest_crop * SIZE), SIZE + 1))
    top, x = random.integers(0, SIZE - side + 1, 2)
    cut = pixels[:, :, top : top + side, x : x + side].float() / 255
    cut = F.interpolate(cut, (SIZE, SIZE), mode="bilinear", antialias=True)
    if random.random() < 0.5:
        cut = cut.flip(-1)
    mean, std = (torch.tensor(values)[:, None, None] for values in (_MEAN, _STD))
    return (cut - mean) / std


def _loss(
    model: Any,
    words: Any,
    lesson: _Lesson,
    recipe: TrainingRecipe,
    random: np.random.Generator,
) -> Tensor:
    """Cross-entropies within prompt groups, summed over groups, averaged over sentences.

    A contrastive loss over a batch full of equal captions does not learn; this does.
    """
    rows = torch.from_numpy(
        random.choice(len(lesson.pixels), recipe.batch, replace=False)
    )
    images = model.get_image_features(
        pixel_values=_crops(lesson.pixels[rows], recipe, random)
    )
    images = F.normalize(_tensor(images), dim=-1)
    known = templates(lesson.task)
    chosen = [lesson.task.template, *random.choice(known, recipe.sentences - 1)]
    prompts = [
        lesson.prompts(slots, str(t)) for t in chosen for slots in lesson.answers
    ]
    tokens = words(
        [p for group in prompts for p in group], padding=True, return_tensors="pt"
    )
    texts = F.normalize(_tensor(model.get_text_features(**tokens)), dim=-1)
    total = torch.zeros(())
    parts = texts.split([len(group) for group in prompts])
    for text, slots in zip(parts, itertools.cycle(lesson.answers)):
        logits = model.logit_scale.exp() * images @ text.T
        total = total + F.cross_entropy(logits, lesson.answers[slots][rows])
    return total / len(chosen)


def _tensor(features: Any) -> Tensor:
    """Older transformers return the features, newer ones an object with them."""
    tensor: Tensor = (
        features if isinstance(features, Tensor) else features.pooler_output
    )
    return tensor


def train(
    out: Path, recipe: TrainingRecipe, progress: Any = lambda work, title: work
) -> None:
    """Train and write a transformers directory; go on from `out`'s checkpoint if there is one.

    Args:
        out: the folder to write.
        recipe: what to do.
        progress: wraps an iterable, with a title, in a progress bar.
    """
    out.mkdir(parents=True, exist_ok=True)
    checkpoint = out / "checkpoint.pt"
    tasks = list(TASKS.values())
    words = tokenizer(tasks)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = build_model(len(words)).train()
    with torch.no_grad():
        model.logit_scale.fill_(float(np.log(recipe.scale)))
    embeddings = list(model.text_model.embeddings.parameters())
    known = set(map(id, embeddings))
    decayed_weights = [
        weight for weight in model.parameters() if id(weight) not in known
    ]
    optimiser = torch.optim.AdamW(
        [{"params": decayed_weights}, {"params": embeddings}],
        weight_decay=recipe.weight_decay,
    )
    rate = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        [recipe.rate, recipe.embedding_rate * recipe.rate],
        total_steps=recipe.steps,
    )
    done = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        if saved["recipe"] != asdict(recipe):
            raise FairTTAError(
                f"`out` holds the checkpoint of another recipe, {saved['recipe']}: choose another "
                "folder or delete it."
            )
        done = saved["done"]
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        rate.load_state_dict(saved["rate"])
    lessons = [_lesson(task, recipe, progress) for task in tasks]
    for step in progress(range(done, recipe.steps), "training"):
        random = np.random.default_rng(
            [recipe.seed, step]
        )  # so a resumed run does the same
        optimiser.zero_grad()
        for lesson in lessons:
            _loss(model, words, lesson, recipe, random).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        rate.step()
        if (step + 1) % _CHECKPOINT_EVERY == 0:
            state = {
                "recipe": asdict(recipe), "done": step + 1, "model": model.state_dict(),
                "optimiser": optimiser.state_dict(), "rate": rate.state_dict(),
            }  # fmt: skip
            torch.save(state, out / "checkpoint.part")
            (out / "checkpoint.part").replace(checkpoint)  # never half a checkpoint
    _save(model.eval(), words, recipe, out)
    checkpoint.unlink(missing_ok=True)


def _save(model: Any, words: Any, recipe: TrainingRecipe, out: Path) -> None:
    from transformers import CLIPImageProcessor, CLIPProcessor

    model.save_pretrained(out)
    pixels = CLIPImageProcessor(
        size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE},
        image_mean=list(_MEAN), image_std=list(_STD),
    )  # fmt: skip
    CLIPProcessor(pixels, words).save_pretrained(out)
    pixels.save_pretrained(out)
    save_tokenizer(words, out)
    (out / "recipe.json").write_text(
        json.dumps(asdict(recipe), indent=2) + "\n", "utf-8"
    )
    (out / "README.md").write_text(
        _CARD.format(weights=model.num_parameters()), "utf-8"
    )


def main(
    out: Annotated[Path, typer.Option(help="Folder to write the model to.")] = Path(
        "miniature"
    ),
    seed: Annotated[int, typer.Option(help="Of weights, order and pictures.")] = 0,
    steps: Annotated[
        int, typer.Option(help="Of the optimiser.")
    ] = TrainingRecipe.steps,
    pictures: Annotated[
        int, typer.Option(help="For each task.")
    ] = TrainingRecipe.pictures,
) -> None:
    """Train the miniature model from scratch, or go on where the same command stopped."""
    from rich.progress import track

    recipe = TrainingRecipe(seed=seed, steps=steps, pictures=pictures)
    train(out, recipe, lambda work, title: track(work, title))
    typer.echo(f"wrote {out}: FairTPTClassifier({str(out)!r}, ...) takes it")


if __name__ == "__main__":
    typer.run(main)
