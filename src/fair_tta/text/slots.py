"""Sentences with slots: read, written out, without a slot, and with names filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fair_tta.errors import PromptError

TARGET, SENSITIVE = "target", "sensitive"
_SLOT_NAMES = {
    "{target}": TARGET,
    "[T-CLS]": TARGET,
    "{}": TARGET,
    "{sensitive}": SENSITIVE,
    "[S-CLS]": SENSITIVE,
}
_SLOT = re.compile(r"\{[^{}]*\}|\[T-CLS\]|\[S-CLS\]")
_CLOSING = ".,;:!?)]…。，、！？；："  # punctuation that takes no space before it
SLOTS = "`{target}` (also `[T-CLS]` or a bare `{}`) and `{sensitive}` (also `[S-CLS]`)"


@dataclass(frozen=True)
class SentencePart:
    """A piece of a sentence: words of the template, or (``slot`` not None) something to fill in."""

    text: str
    slot: str | None = None


@dataclass(frozen=True)
class Prompt:
    """A sentence for one class. Parts with a slot are names, the others belong to the template."""

    parts: tuple[SentencePart, ...]

    @property
    def text(self) -> str:
        """The whole sentence."""
        return "".join(part.text for part in self.parts)

    def with_name(self, index: int, name: str) -> str:
        """The sentence with another name in part `index`."""
        return "".join(name if i == index else part.text for i, part in enumerate(self.parts))


def parse_sentence(
    argument: str, sentence: str, required: set[str] | None
) -> tuple[SentencePart, ...]:
    """Cut a sentence into parts; `required` slots must be there and no others."""
    if not isinstance(sentence, str):
        raise PromptError(f"`{argument}` should be a sentence (got {sentence!r}).")
    if sentence != sentence.encode("utf-8", "ignore").decode():
        raise PromptError(f"`{argument}` should be text in Unicode (got {sentence!r}).")
    parts: list[SentencePart] = []
    end = 0
    for match in _SLOT.finditer(sentence):
        slot = _SLOT_NAMES.get(match.group())
        if slot is None:
            raise PromptError(
                f"`{argument}` has the unknown slot {match.group()!r}; the slots are {SLOTS}."
            )
        if match.start() > end:
            parts.append(SentencePart(sentence[end : match.start()]))
        parts.append(SentencePart(match.group(), slot))
        end = match.end()
    if end < len(sentence):
        parts.append(SentencePart(sentence[end:]))
    if any("{" in part.text or "}" in part.text for part in parts if part.slot is None):
        raise PromptError(f"`{argument}` has an unmatched brace (got {sentence!r}).")
    slots = {part.slot for part in parts if part.slot is not None}
    if required is not None and slots != required:
        wanted = " and ".join(f"`{{{slot}}}`" for slot in sorted(required, reverse=True))
        raise PromptError(f"`{argument}` should have {wanted} and no other slot ({sentence!r}).")
    return tuple(parts)


def write_out(sentence: tuple[SentencePart, ...]) -> str:
    """The sentence with its slots as they are written."""
    return "".join(part.text if part.slot is None else f"{{{part.slot}}}" for part in sentence)


def leave_out(sentence: tuple[SentencePart, ...], slot: str) -> str:
    """The sentence without a slot; a doubled space or a space before punctuation goes with it."""
    text = write_out(sentence)
    marker = f"{{{slot}}}"
    while marker in text:
        left, right = text.split(marker, 1)
        gap = " " if left != left.rstrip() or right != right.lstrip() else ""
        left, right = left.rstrip(), right.lstrip()
        if not left or not right or right[0] in _CLOSING:
            gap = ""
        text = left + gap + right
    return text


def fill(sentence: tuple[SentencePart, ...], phrases: Mapping[str, str]) -> Prompt:
    """The sentence with phrases in its slots."""
    return Prompt(
        tuple(
            part if part.slot is None else SentencePart(phrases[part.slot], part.slot)
            for part in sentence
        )
    )
