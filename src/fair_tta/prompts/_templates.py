"""Target, sensitive and joint prompts, made of one template and names.

The template ``"A photo of a {sensitive} celebrity {target}."`` holds three sentences. The *target*
prompt is the sentence without the sensitive slot, the *sensitive* prompt the sentence without the
target slot, and the *joint* prompt has both. A prompt keeps its parts (`SentencePart`), so that
later the words of the template can be separated from the words of the names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, KeysView, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from itertools import chain, product
from typing import TypeAlias

from fair_tta.errors import PromptError

TARGET = "target"
SENSITIVE = "sensitive"
_JOINT = "joint"
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
    """Words of the template or, if `slot` is not None, a place to be filled in."""

    text: str
    slot: str | None = None


@dataclass(frozen=True)
class Prompt:
    """A sentence for one class.

    Attributes:
        parts: those with a slot are names, the others belong to the template.
        further_texts: the sentences of further templates for the same class.
    """

    parts: tuple[SentencePart, ...]
    further_texts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The whole sentence."""
        return "".join(part.text for part in self.parts)

    def with_name(self, index: int, name: str) -> str:
        """Return the sentence with another name in part `index`."""
        return "".join(
            name if i == index else part.text for i, part in enumerate(self.parts)
        )


def parse_sentence(
    argument: str, sentence: str, required: set[str] | None
) -> tuple[SentencePart, ...]:
    """Cut a sentence into parts; if given, its slots must be the `required` ones."""
    if not isinstance(sentence, str):
        raise PromptError(
            f"`{argument}` should be a sentence (got {sentence!r}).", argument=argument
        )
    _check_unicode(argument, f"`{argument}` should be text", sentence)
    parts: list[SentencePart] = []
    for index, text in enumerate(_SLOT.split(sentence)):
        # `split` alternates between the text around and the slots.
        is_slot = index % 2 == 1
        if is_slot and text not in _SLOT_NAMES:
            raise PromptError(
                f"`{argument}` has the unknown slot {text!r}; the slots are {SLOTS}.",
                argument=argument,
            )
        if text:
            parts.append(SentencePart(text, _SLOT_NAMES[text] if is_slot else None))
    # A brace that begins no slot is most likely a typing error, not a word of the sentence.
    slots = set()
    for part in parts:
        if part.slot is not None:
            slots.add(part.slot)
        elif "{" in part.text or "}" in part.text:
            raise PromptError(
                f"`{argument}` has an unmatched brace (got {sentence!r}).",
                argument=argument,
            )
    if required is not None and slots != required:
        # "target" before "sensitive".
        names = [f"`{{{slot}}}`" for slot in sorted(required, reverse=True)]
        raise PromptError(
            f"`{argument}` should have {' and '.join(names)} and no other slot (got {sentence!r}).",
            argument=argument,
        )
    return tuple(parts)


def sentence_text(sentence: tuple[SentencePart, ...]) -> str:
    """Return the sentence with its slots in braces."""
    return "".join(
        part.text if part.slot is None else f"{{{part.slot}}}" for part in sentence
    )


def leave_out(sentence: tuple[SentencePart, ...], slot: str) -> str:
    """Return the sentence without a slot, and with one space or none where it was."""
    text = sentence_text(sentence)
    marker = f"{{{slot}}}"
    # "a {sensitive} cat." and "a cat {sensitive}." should both become "a cat."
    while marker in text:
        before, after = text.split(marker, 1)
        start = before.rstrip()
        end = after.lstrip()
        had_space = start != before or end != after
        is_at_edge = not start or not end or end[0] in _CLOSING
        space = " " if had_space and not is_at_edge else ""
        text = start + space + end
    return text


def fill_slots(
    sentence: tuple[SentencePart, ...], phrases: Mapping[str, str]
) -> Prompt:
    """Return the sentence with phrases in its slots."""
    parts = []
    for part in sentence:
        if part.slot is not None:
            part = SentencePart(phrases[part.slot], part.slot)
        parts.append(part)
    return Prompt(tuple(parts))


ClassNames = Sequence[str] | Mapping[str, str]
"""Names of classes, or ``{label: phrase}`` when the label is not what the sentence should hold."""

SingleTemplate: TypeAlias = "str | Templates | Mapping[str, str]"
TemplateArgument: TypeAlias = "SingleTemplate | Sequence[SingleTemplate]"
"""A sentence, the three sentences, or several of these."""


class Templates:
    """The target, sensitive and joint sentences of prompts.

    One sentence with two slots gives all three (`from_sentence`); state them where it reads badly.

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
    """Further templates of an ensemble: a prompt's feature is the unit mean over all of them."""

    def __init__(
        self, target: str, sensitive: str | None = None, joint: str | None = None
    ) -> None:
        self.target = parse_sentence("template.target", target, {TARGET})
        self.sensitive = None
        if sensitive is not None:
            self.sensitive = parse_sentence(
                "template.sensitive", sensitive, {SENSITIVE}
            )
        self.joint = None
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

        return {name: self._texts(name) for name in (TARGET, SENSITIVE, _JOINT)}

    def _texts(self, name: str) -> str | list[str] | None:
        texts = []
        for templates in self._ensemble:
            sentence = getattr(templates, name)
            if sentence is None:
                return None
            texts.append(sentence_text(sentence))
        return texts if self._further else texts[0]

    @property
    def _ensemble(self) -> tuple[Templates, ...]:
        return (self, *self._further)

    def __str__(self) -> str:
        lines = []
        for name, text in self.sentences.items():
            if text is not None:
                lines.append(f"{name}: {text}")
        return "\n".join(lines)

    def _fill(self, name: str, phrases: Mapping[str, str], missing: str = "") -> Prompt:
        """Return one prompt of all templates.

        Raises:
            PromptError: with the text `missing`, if a template lacks the sentence.
        """
        prompts = []
        for templates in self._ensemble:
            sentence = getattr(templates, name)
            if sentence is None:
                which = ""
                if self._further:
                    which = f" (in {sentence_text(templates.target)!r})"
                raise PromptError(missing.format(which), argument="template")
            prompts.append(fill_slots(sentence, phrases))
        first, *further = prompts
        return Prompt(first.parts, tuple(prompt.text for prompt in further))

    def _target_prompts(self, targets: Mapping[str, str]) -> list[Prompt]:
        """Return one prompt for each target."""
        return [self._fill(TARGET, {TARGET: phrase}) for phrase in targets.values()]

    def _sensitive_prompts(self, names: Mapping[str, str]) -> list[Prompt]:
        """Return one prompt for each value of a sensitive attribute."""
        missing = (
            "`sensitive` names were given, but `template` has no slot for them{}: put "
            "`{{sensitive}}` where they belong, or pass "
            "`template=Templates(target=..., sensitive=...)`."
        )
        prompts = []
        for phrase in names.values():
            prompts.append(self._fill(SENSITIVE, {SENSITIVE: phrase}, missing))
        return prompts

    def _joint_prompts(
        self, targets: Mapping[str, str], names: Mapping[str, str]
    ) -> list[Prompt]:
        """Return one prompt for each pair: ``[(y0,s0), (y0,s1), .., (y1,s0), ..]``."""
        missing = (
            "joint prompts are needed, but `template` does not define them{}: use one "
            "sentence with both slots, or `Templates(target=..., sensitive=..., joint=...)`."
        )
        prompts = []
        for target, sensitive in product(targets.values(), names.values()):
            phrases = {TARGET: target, SENSITIVE: sensitive}
            prompts.append(self._fill(_JOINT, phrases, missing))
        return prompts


def default_template(with_sensitive: bool) -> Templates:
    """Return the sentences of "a photo of a ..."."""
    slot = "{sensitive} " if with_sensitive else ""
    return Templates.from_sentence(f"a photo of a {slot}{{target}}.")


def parse_template(template: object, with_sensitive: bool) -> Templates:
    """Check the argument `template` and return its sentences."""
    if template is None:
        return default_template(with_sensitive)
    if isinstance(template, str):
        return Templates.from_sentence(template)
    if isinstance(template, list | tuple) and template:
        ensemble: list[Templates] = []
        for member in template:  # which may be an ensemble too
            ensemble += parse_template(member, with_sensitive)._ensemble
        templates = copy(ensemble[0])
        templates._further = tuple(ensemble[1:])
        return templates
    if isinstance(template, Mapping):
        if TARGET not in template or not set(template) <= {TARGET, SENSITIVE, _JOINT}:
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
    # The keys of a dict are a set by type, but they are in order.
    if isinstance(names, Set) and not isinstance(names, KeysView):
        raise PromptError(
            f"`{argument}` should be a list of names: a set has no order, which other runs would "
            f"see differently (got {names!r}).",
            argument=argument,
        )
    if isinstance(names, Mapping):
        pairs = list(names.items())
    else:
        pairs = [(name, name) for name in names]
    for text in chain(*pairs):
        if not isinstance(text, str) or not text.strip():
            raise PromptError(
                f"`{argument}` should hold non-empty strings (got {text!r}).",
                argument=argument,
            )
        _check_unicode(argument, f"`{argument}` should hold text", text)
    labels = [label for label, _ in pairs]
    if len(pairs) < 2:
        raise PromptError(
            f"`{argument}` should name at least two values (got {labels}).",
            argument=argument,
        )
    _check_distinct(argument, "labels", labels)
    _check_distinct(argument, "phrases", [phrase for _, phrase in pairs])
    # Plain strings, because those of NumPy and enums cannot be written to files.
    return {str.__str__(label): str.__str__(phrase).strip() for label, phrase in pairs}


def _check_distinct(argument: str, noun: str, texts: list[str]) -> None:
    counts = Counter(text.strip() for text in texts)
    repeated = sorted(text for text, count in counts.items() if count > 1)
    if repeated:
        raise PromptError(
            f"`{argument}` should have distinct {noun} (got {repeated} more than once).",
            argument=argument,
        )


def parse_sensitive(
    sensitive: ClassNames | Mapping[str, ClassNames] | None,
) -> dict[str, dict[str, str]]:
    """Check sensitive names and return them as ``{attribute: {label: phrase}}``.

    A list or a ``{label: phrase}`` is one attribute, called ``"sensitive"``.
    """
    if sensitive is None:
        return {}
    has_phrases = isinstance(sensitive, Mapping) and any(
        isinstance(value, str) for value in sensitive.values()
    )
    if not isinstance(sensitive, Mapping) or not sensitive or has_phrases:
        return {"sensitive": parse_names("sensitive", sensitive)}  # type: ignore[arg-type]
    for attribute in sensitive:
        if not isinstance(attribute, str):
            raise PromptError(
                f"the attributes of `sensitive` should be strings (got {attribute!r}).",
                argument="sensitive",
            )
        _check_unicode(
            "sensitive", "the attributes of `sensitive` should be", attribute
        )
    parsed = {}
    for attribute, names in sensitive.items():
        parsed[str.__str__(attribute)] = parse_names(f"sensitive[{attribute!r}]", names)
    return parsed


def _check_unicode(argument: str, expectation: str, text: str) -> None:
    if text != text.encode("utf-8", "ignore").decode():
        raise PromptError(
            f"{expectation} in Unicode (got {text!r}).", argument=argument
        )
