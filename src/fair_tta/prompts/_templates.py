"""From one template and some names to the target, sensitive and joint prompts.

The template ``"A photo of a {sensitive} celebrity {target}."`` holds three sentences. The *target*
prompt is the sentence without the sensitive slot, the *sensitive* prompt the sentence without the
target slot, and the *joint* prompt has both. A prompt keeps its parts (`Part`), so that later the
words of the template can be separated from the words of the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, KeysView, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from fair_tta.errors import PromptError

TARGET, SENSITIVE = "target", "sensitive"
_SLOT_NAMES = {
    "{target}": TARGET,
    "[T-CLS]": TARGET,
    "{}": TARGET,
    "{sensitive}": SENSITIVE,
    "[S-CLS]": SENSITIVE,
}
_SLOT = re.compile(r"(\{[^{}]*\}|\[T-CLS\]|\[S-CLS\])")
_CLOSING = ".,;:!?)]…。，、！？；："  # punctuation that takes no space before it
SLOTS = "`{target}` (also `[T-CLS]` or a bare `{}`) and `{sensitive}` (also `[S-CLS]`)"


@dataclass(frozen=True)
class SentencePart:
    """A piece of a sentence: words of the template, or (``slot`` not None) something to fill in."""

    text: str
    slot: str | None = None


@dataclass(frozen=True)
class Prompt:
    """A sentence for one class. Parts with a slot are names, the others belong to the template.

    `further_texts` are the sentences of further templates for the same class.
    """

    parts: tuple[SentencePart, ...]
    further_texts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The whole sentence."""
        return "".join(part.text for part in self.parts)

    def with_name(self, index: int, name: str) -> str:
        """The sentence with another name in part `index`."""
        return "".join(
            name if i == index else part.text for i, part in enumerate(self.parts)
        )


def parse_sentence(
    argument: str, sentence: str, required: set[str] | None
) -> tuple[SentencePart, ...]:
    """Cut a sentence into parts; `required` slots must be there and no others."""
    if not isinstance(sentence, str):
        raise PromptError(
            f"`{argument}` should be a sentence (got {sentence!r}).", argument=argument
        )
    _check_unicode(f"`{argument}` should be text", sentence)
    parts: list[SentencePart] = []
    for place, text in enumerate(_SLOT.split(sentence)):
        is_slot = place % 2 == 1
        if is_slot and text not in _SLOT_NAMES:
            raise PromptError(
                f"`{argument}` has the unknown slot {text!r}; the slots are {SLOTS}.",
                argument=argument,
            )
        if text:
            parts.append(SentencePart(text, _SLOT_NAMES[text] if is_slot else None))
    if any("{" in part.text or "}" in part.text for part in parts if part.slot is None):
        raise PromptError(
            f"`{argument}` has an unmatched brace (got {sentence!r}).",
            argument=argument,
        )
    slots = {part.slot for part in parts if part.slot is not None}
    if required is not None and slots != required:
        wanted = " and ".join(
            f"`{{{slot}}}`" for slot in sorted(required, reverse=True)
        )
        raise PromptError(
            f"`{argument}` should have {wanted} and no other slot ({sentence!r}).",
            argument=argument,
        )
    return tuple(parts)


def sentence_text(sentence: tuple[SentencePart, ...]) -> str:
    """The sentence with its slots as they are written."""
    return "".join(
        part.text if part.slot is None else f"{{{part.slot}}}" for part in sentence
    )


def leave_out(sentence: tuple[SentencePart, ...], slot: str) -> str:
    """The sentence without a slot; a doubled space or a space before punctuation goes with it."""
    text = sentence_text(sentence)
    marker = f"{{{slot}}}"
    while marker in text:
        left, right = text.split(marker, 1)
        gap = " " if left != left.rstrip() or right != right.lstrip() else ""
        left, right = left.rstrip(), right.lstrip()
        if not left or not right or right[0] in _CLOSING:
            gap = ""
        text = left + gap + right
    return text


def fill_slots(
    sentence: tuple[SentencePart, ...], phrases: Mapping[str, str]
) -> Prompt:
    """The sentence with phrases in its slots."""
    parts = (
        p if p.slot is None else SentencePart(phrases[p.slot], p.slot) for p in sentence
    )
    return Prompt(tuple(parts))


ClassNames = Sequence[str] | Mapping[str, str]
"""Names of classes, or ``{label: phrase}`` when the label is not what the sentence should hold."""

SingleTemplate: TypeAlias = "str | Templates | Mapping[str, str]"
TemplateArgument: TypeAlias = "SingleTemplate | Sequence[SingleTemplate]"
"""A sentence, the three sentences, or several of these."""


class Templates:
    """The three sentences, where one sentence with two slots does not give what is wanted.

    Args:
        target: sentence with a `{target}` slot.
        sensitive: sentence with a `{sensitive}` slot, or None if no sensitive prompts are needed.
        joint: sentence with both slots, or None if no joint prompts are needed.

    Example:
        >>> templates = Templates.from_sentence("A photo of a {sensitive} celebrity {target}.")
        >>> print(templates)
        target: A photo of a celebrity {target}.
        sensitive: A photo of a {sensitive} celebrity.
        joint: A photo of a {sensitive} celebrity {target}.
    """

    _further: tuple[Templates, ...] = ()
    """Further templates: of all of them the features of a prompt are the unit mean."""

    def __init__(
        self, target: str, sensitive: str | None = None, joint: str | None = None
    ) -> None:
        self.target = parse_sentence("template.target", target, {TARGET})
        self.sensitive = self.joint = None
        if sensitive is not None:
            self.sensitive = parse_sentence(
                "template.sensitive", sensitive, {SENSITIVE}
            )
        if joint is not None:
            self.joint = parse_sentence("template.joint", joint, {TARGET, SENSITIVE})

    @classmethod
    def from_sentence(cls, template: str) -> Templates:
        """Take the three sentences from one, as in the paper's table of prompts."""
        sentence = parse_sentence("template", template, None)
        slots = {part.slot for part in sentence}
        if TARGET not in slots:
            raise PromptError(
                f"`template` should have a slot for the target, {SLOTS} (got {template!r}).",
                argument="template",
            )
        if SENSITIVE not in slots:
            return cls(template)
        return cls(
            leave_out(sentence, SENSITIVE),
            leave_out(sentence, TARGET),
            sentence_text(sentence),
        )

    @property
    def sentences(self) -> dict[str, str | list[str] | None]:
        """The sentences by ``"target"``, ``"sensitive"`` and ``"joint"``, None if there is none.

        Those of several templates are lists.
        """

        def written(name: str) -> str | list[str] | None:
            every = [getattr(templates, name) for templates in (self, *self._further)]
            if None in every:
                return None
            return (
                [sentence_text(s) for s in every]
                if self._further
                else sentence_text(every[0])
            )

        return {name: written(name) for name in ("target", "sensitive", "joint")}

    def __str__(self) -> str:
        return "\n".join(
            f"{name}: {s}" for name, s in self.sentences.items() if s is not None
        )

    def _fill(self, name: str, phrases: Mapping[str, str], missing: str) -> Prompt:
        """One prompt of all templates; `missing` is what to raise if one lacks the sentence."""
        prompts = []
        for templates in (self, *self._further):
            sentence = getattr(templates, name)
            if sentence is None:
                which = (
                    f" (in {sentence_text(templates.target)!r})"
                    if self._further
                    else ""
                )
                raise PromptError(missing.format(which))
            prompts.append(fill_slots(sentence, phrases))
        return Prompt(prompts[0].parts, tuple(prompt.text for prompt in prompts[1:]))

    def _target_prompts(self, targets: Mapping[str, str]) -> list[Prompt]:
        """One prompt for each target."""
        return [self._fill(TARGET, {TARGET: phrase}, "") for phrase in targets.values()]

    def _sensitive_prompts(self, names: Mapping[str, str]) -> list[Prompt]:
        """One prompt for each value of a sensitive attribute."""
        missing = (
            "`sensitive` names were given, but `template` has no slot for them{}: put "
            "`{{sensitive}}` where they belong, or pass "
            "`template=Templates(target=..., sensitive=...)`."
        )
        return [
            self._fill(SENSITIVE, {SENSITIVE: name}, missing) for name in names.values()
        ]

    def _joint_prompts(
        self, targets: Mapping[str, str], names: Mapping[str, str]
    ) -> list[Prompt]:
        """One prompt for each pair, target by target: ``[(y0,s0), (y0,s1), .., (y1,s0), ..]``."""
        missing = (
            "joint prompts are needed, but `template` does not define them{}: use one "
            "sentence with both slots, or `Templates(target=..., sensitive=..., joint=...)`."
        )
        pairs = product(targets.values(), names.values())
        return [
            self._fill("joint", {TARGET: y, SENSITIVE: s}, missing) for y, s in pairs
        ]


def default_template(with_sensitive: bool) -> Templates:
    """The sentence where none is given: a photo of a (sensitive) target."""
    slot = "{sensitive} " if with_sensitive else ""
    return Templates.from_sentence(f"a photo of a {slot}{{target}}.")


def parse_template(template: object, with_sensitive: bool) -> Templates:
    """Check what the user passed as `template`."""
    if template is None:
        return default_template(with_sensitive)
    if isinstance(template, str):
        return Templates.from_sentence(template)
    if isinstance(template, list | tuple) and template:
        every = [parse_template(one, with_sensitive) for one in template]
        every = [templates for one in every for templates in (one, *one._further)]
        first = copy(every[0])
        first._further = tuple(every[1:])
        return first
    if isinstance(template, Mapping):
        known = {TARGET, SENSITIVE, "joint"}
        if TARGET not in template or not set(template) <= known:
            raise PromptError(
                "`template` as a dict should be {'target': sentence, 'sensitive': sentence, "
                f"'joint': sentence}}, of which the first is required (got {[*template]}).",
                argument="template",
            )
        return Templates(**template)
    if not isinstance(template, Templates):
        raise PromptError(
            "`template` should be a sentence, {'target': sentence, 'sensitive': sentence, 'joint': "
            f"sentence}}, Templates, or a list of these (got {template!r}).",
            argument="template",
        )
    return template


def parse_names(argument: str, names: ClassNames) -> dict[str, str]:
    """Check class names and return them as ``{label: phrase}``."""
    if isinstance(names, str) or not isinstance(names, (Mapping, Iterable)):
        raise PromptError(
            f"`{argument}` should be a list of names (got {names!r}).",
            argument=argument,
        )
    if isinstance(names, Set) and not isinstance(
        names, KeysView
    ):  # those of a dict are in order
        raise PromptError(
            f"`{argument}` should be a list of names: a set has no order, which other runs would "
            f"see differently (got {names!r}).",
            argument=argument,
        )
    pairs = (
        list(names.items()) if isinstance(names, Mapping) else [(n, n) for n in names]
    )
    for text in (text for pair in pairs for text in pair):
        if not isinstance(text, str) or not text.strip():
            raise PromptError(
                f"`{argument}` should hold non-empty strings (got {text!r}).",
                argument=argument,
            )
        _check_unicode(f"`{argument}` should hold text", text)
    if len(pairs) < 2:
        got = [label for label, _ in pairs]
        raise PromptError(
            f"`{argument}` should name at least two values (got {got}).",
            argument=argument,
        )
    for position, what in ((0, "labels"), (1, "phrases")):
        texts = [pair[position].strip() for pair in pairs]
        twice = sorted({text for text in texts if texts.count(text) > 1})
        if twice:
            raise PromptError(
                f"`{argument}` should have distinct {what} ({twice} came twice).",
                argument=argument,
            )
    # plain strings: those of NumPy and enums cannot be written to files
    return {str.__str__(label): str.__str__(phrase).strip() for label, phrase in pairs}


def parse_sensitive(
    sensitive: ClassNames | Mapping[str, ClassNames] | None,
) -> dict[str, dict[str, str]]:
    """Check sensitive names and return them as ``{attribute: {label: phrase}}``.

    A list or a ``{label: phrase}`` is one attribute, called ``"sensitive"``.
    """
    if sensitive is None:
        return {}
    if (
        not isinstance(sensitive, Mapping)
        or not sensitive
        or any(isinstance(v, str) for v in sensitive.values())
    ):
        return {"sensitive": parse_names("sensitive", sensitive)}  # type: ignore[arg-type]
    for attribute in sensitive:
        if not isinstance(attribute, str):
            raise PromptError(
                f"the attributes of `sensitive` should be strings (got {attribute!r}).",
                argument="sensitive",
            )
        _check_unicode("the attributes of `sensitive` should be", attribute)
    return {
        str.__str__(attribute): parse_names(f"sensitive[{attribute!r}]", names)
        for attribute, names in sensitive.items()
    }


def _check_unicode(start: str, text: str) -> None:
    if text != text.encode("utf-8", "ignore").decode():
        raise PromptError(f"{start} in Unicode (got {text!r}).")
