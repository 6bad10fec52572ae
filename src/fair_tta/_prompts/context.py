"""The shared context: the template's own tokens, found in every tokenised prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile

import torch

from fair_tta._models.protocol import Tokens
from fair_tta._prompts.encoder import PromptSet
from fair_tta._prompts.templates import Prompt, Templates
from fair_tta.errors import PromptError


def match(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """A longest common subsequence: for each of `a` the index of its partner in `b`, or -1."""
    length = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in reversed(range(len(a))):
        for j in reversed(range(len(b))):
            length[i][j] = (
                length[i + 1][j + 1] + 1
                if a[i] == b[j]
                else max(length[i + 1][j], length[i][j + 1])
            )
    partner = [-1] * len(a)
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            partner[i] = j
            i, j = i + 1, j + 1
        elif length[i + 1][j] >= length[i][j + 1]:
            i += 1
        else:
            j += 1
    return partner


def merge(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """A shortest sequence that contains both `a` and `b` in order."""
    merged: list[int] = []
    done = 0
    for i, partner in enumerate(match(a, b)):
        if partner >= 0:
            merged += b[done:partner]
            done = partner + 1
        merged.append(a[i])
    return [*merged, *b[done:]]


_FILLERS = ("qqq", "xzx", "7")  # differ in their first and last token, merge with no punctuation


class SharedContext:
    """The tokens of the template, numbered once for all sets of prompts.

    Args:
        tokenize: the backend's tokenizer.
        prompts: the sets that define the context, in order.
    """

    def __init__(
        self,
        tokenize: Callable[[Sequence[str]], Tokens],
        prompts: Sequence[Sequence[Prompt]],
    ) -> None:
        self._tokenize = tokenize
        self._ids: dict[str, list[int]] = {}
        self.token_ids: list[int] = []
        """Token ids of the context, in the order of the sentence."""
        for group in prompts:
            for sequence in dict.fromkeys(tuple(ids) for _, ids in self._find(group)):
                self.token_ids = merge(self.token_ids, sequence)

    def place_named(
        self,
        argument: str,
        names: Mapping[str, str],
        make: Callable[[Mapping[str, str]], Sequence[Prompt]],
    ) -> PromptSet:
        """`place` the prompt of each name; each must have tokens of its own, and a context."""
        prompts = make(names)
        placed = self.place(prompts)
        seen: dict[tuple[int, ...], str] = {}
        for label, prompt in zip(names, prompts, strict=True):
            other = seen.setdefault(tuple(self._ids[prompt.text]), label)
            if other != label:
                raise PromptError(
                    f"`{argument}` should have different tokens, but {other!r} and {label!r} have "
                    "the same: use other words."
                )
        bare = (placed.slots < 0).all(1).nonzero().flatten().tolist()
        if bare:
            raise PromptError(
                "`template` should have words besides its slots, there is no context to adapt "
                f"in {placed.texts[bare[0]]!r}."
            )
        return placed

    def place(self, prompts: Sequence[Prompt]) -> PromptSet:
        """Tokenise prompts and find the context in them."""
        texts = tuple(prompt.text for prompt in prompts)
        tokens = self._tokenize(texts)
        slots = torch.full(tokens.ids.shape, -1, device="cpu")
        matches: dict[tuple[int, ...], list[int]] = {}
        for row, (positions, ids) in enumerate(self._find(prompts)):
            if tuple(ids) not in matches:
                matches[tuple(ids)] = match(ids, self.token_ids)
            columns = tokens.mask[row].nonzero().flatten().cpu()[positions]
            slots[row, columns] = slots.new_tensor(matches[tuple(ids)])
        return PromptSet(texts, tokens, slots.to(tokens.ids.device))

    def _find(self, prompts: Sequence[Prompt]) -> list[tuple[list[int], list[int]]]:
        """For each prompt the template's tokens: positions among the real tokens, and ids."""
        self._look_up(prompt.text for prompt in prompts)
        self._look_up(_FILLERS, skip_long=True)
        variants = (text for i in range(len(prompts)) for _, text in _variants(prompts, i))
        self._look_up(variants, skip_long=True)
        found = []
        for index, prompt in enumerate(prompts):
            own = self._ids[prompt.text]
            positions = self._template_positions(prompts, index)
            found.append((positions, [own[position] for position in positions]))
        return found

    def _template_positions(self, prompts: Sequence[Prompt], index: int) -> list[int]:
        own = self._ids[prompts[index].text]
        start, stop = _changed(own, [self._ids[word] for word in _FILLERS if word in self._ids])
        positions = set(range(start, stop))  # all but begin and end of text
        variants: dict[int, list[list[int]]] = {}
        for part, text in _variants(prompts, index):
            if text in self._ids:
                variants.setdefault(part, []).append(self._ids[text])
        for part, others in variants.items():
            start, stop = _changed(own, others)
            if start >= stop:
                raise PromptError(
                    f"the name {prompts[index].parts[part].text!r} leaves no token of its own in "
                    f"{prompts[index].text!r}: this tokenizer does not know it. Use other words."
                )
            positions -= set(range(start, stop))
        return sorted(positions)

    def _look_up(self, texts: Iterable[str], skip_long: bool = False) -> None:
        """Tokenise what is new. A variant may be too long where the prompt itself is not."""
        new = [text for text in dict.fromkeys(texts) if text not in self._ids]
        try:
            tokens = self._tokenize(new) if new else None
        except PromptError:
            if not skip_long:
                raise
            for text in new:
                with suppress(PromptError):
                    self._ids[text] = self._tokenize([text]).row(0)
            return
        if tokens is not None:
            self._ids.update((text, tokens.row(i)) for i, text in enumerate(new))


def _variants(prompts: Sequence[Prompt], index: int) -> list[tuple[int, str]]:
    """The prompt with other words in place of each name: fillers, and its neighbours' names."""
    prompt = prompts[index]
    neighbours = (prompts[index - 1], prompts[(index + 1) % len(prompts)])
    return [
        (i, prompt.with_name(i, words))
        for i, part in enumerate(prompt.parts)
        if part.slot is not None
        for words in (*_FILLERS, *(other.parts[i].text for other in neighbours))
        if words != part.text
    ]


def _common(a: list[int], b: list[int]) -> int:
    """Length of the common beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _changed(own: list[int], variants: list[list[int]]) -> tuple[int, int]:
    """The span of `own` outside which all variants agree with it."""
    start = min(_common(own, other) for other in variants)
    end = min(_common(own[::-1], other[::-1]) for other in variants)
    return start, len(own) - end


def find_context(
    tokenize: Callable[[Sequence[str]], Tokens],
    templates: Templates,
    targets: Mapping[str, str],
    sensitive: Mapping[str, Mapping[str, str]],
) -> SharedContext:
    """The context that all prompts of a task share."""
    prompts = [templates.target_prompts(targets)]
    prompts += [templates.sensitive_prompts(names) for names in sensitive.values()]
    if templates.joint is not None:
        # a few joint prompts, because a separate joint sentence may have other words
        two = dict(islice(targets.items(), 2))
        for names in sensitive.values():
            prompts.append(templates.joint_prompts(two, dict(islice(names.items(), 2))))
    return SharedContext(tokenize, prompts)
