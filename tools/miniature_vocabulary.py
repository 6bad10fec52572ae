"""The words of the miniature model, and a byte-pair tokenizer in which each is one token.

Other words are spelt with single bytes, so every text can be tokenised; the model knows nothing of
them.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

from fair_tta.miniature._world import MiniatureTask

CONTEXT_LENGTH = 77
_START, _END = "<|startoftext|>", "<|endoftext|>"
_LAST = "</w>"  # CLIP marks the last piece of a word

_OPENINGS = ("This is a picture", "A drawing", "A small view", "a photo")
_TAILS = (" on paper", "")
_ENDS = (".", "")


def templates(task: MiniatureTask) -> list[str]:
    """Sentences with the two slots to train on, the task's own among them."""
    if "{sensitive} {target}" in task.template:  # an adjective before a noun
        frames = [
            f"{{opening}} of a {{{{sensitive}}}} {{{{target}}}}{tail}{{end}}"
            for tail in _TAILS
        ]
    else:
        frames = ["{opening} {{target}} {{sensitive}}{end}"]
    sentences = {
        frame.format(opening=opening, end=end)
        for frame, opening, end in itertools.product(frames, _OPENINGS, _ENDS)
    }
    return sorted(sentences | {task.template})


def words(tasks: list[MiniatureTask]) -> list[str]:
    """All words and marks of the templates and names of the tasks, in lower case."""
    texts = [text for task in tasks for text in templates(task)]
    for task in tasks:
        texts += task.targets.values()
        texts += [
            phrase for names in task.sensitive.values() for phrase in names.values()
        ]
    cleaned = re.sub(r"\{\w+\}", " ", " ".join(texts)).lower()
    return sorted(set(re.findall(r"[a-z]+|[^\sa-z]", cleaned)))


def tokenizer(tasks: list[MiniatureTask]) -> Any:
    """A transformers CLIP tokenizer with these words."""
    import transformers

    make: Any = transformers.CLIPTokenizer

    merges: list[tuple[str, str]] = []
    for word in words(tasks):
        pieces = _apply(merges, [*word[:-1], word[-1] + _LAST])
        while len(pieces) > 1:
            merges.append((pieces[0], pieces[1]))
            pieces = _apply(merges, pieces)
    alphabet = _byte_letters()
    tokens = [*alphabet, *(letter + _LAST for letter in alphabet)]
    tokens += ["".join(pair) for pair in merges]
    tokens += [_START, _END]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    return make(
        vocab=vocabulary,
        merges=merges,
        bos_token=_START,
        eos_token=_END,
        unk_token=_END,
        pad_token=_END,
        model_max_length=CONTEXT_LENGTH,
    )


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write it in the files of today's and of older transformers."""
    tokenizer.save_pretrained(folder)
    model = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
    (folder / "vocab.json").write_text(
        json.dumps(model["vocab"], ensure_ascii=False), "utf-8"
    )
    lines = [
        pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]
    ]
    (folder / "merges.txt").write_text(
        "\n".join(["#version: 0.2", *lines, ""]), "utf-8"
    )


def _apply(merges: list[tuple[str, str]], pieces: list[str]) -> list[str]:
    """Byte-pair encoding: again and again the earliest merge that fits."""
    pieces = list(pieces)
    rank = {pair: index for index, pair in enumerate(merges)}
    while True:
        pairs = [pair for pair in itertools.pairwise(pieces) if pair in rank]
        if not pairs:
            return pieces
        best, joined, index = min(pairs, key=rank.__getitem__), [], 0
        while index < len(pieces):
            if tuple(pieces[index : index + 2]) == best:
                joined.append(best[0] + best[1])
                index += 2
            else:
                joined.append(pieces[index])
                index += 1
        pieces = joined


def _byte_letters() -> list[str]:
    """A visible letter for each byte, as GPT-2 and CLIP spell bytes."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(b) for b in visible] + [
        chr(256 + index) for index in range(len(hidden))
    ]
