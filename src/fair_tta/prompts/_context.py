"""Tokenised prompts, and the context they share: the template's own tokens, found in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile

import torch
from torch import Tensor

from fair_tta.errors import PromptError
from fair_tta.models._backend import Tokens
from fair_tta.models._model_lock import computed_once
from fair_tta.models._prefix_sharing import PromptTree
from fair_tta.prompts._templates import Prompt, Templates


@dataclass(frozen=True, eq=False)
class PromptSet:
    """Tokenised prompts that know where the shared context sits in them.

    Attributes:
        texts: the sentences.
        tokens: ids and mask, ``[prompts, length]``.
        slots: ``[prompts, length]``, which vector of the context stands here, -1 for fixed tokens.
        others: the same prompts in further templates, prompt by prompt; without a context.
    """

    texts: tuple[str, ...]
    tokens: Tokens
    slots: Tensor
    others: PromptSet | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @property
    @computed_once
    def tree(self) -> PromptTree:
        """What the prompts have in common at their beginnings, under any context."""
        return PromptTree.from_tokens(self.tokens, self.slots)

    @property
    @computed_once
    def _parts(self) -> dict[int, list[PromptSet]]:
        return {}

    def parts(self, size: int) -> list[PromptSet]:
        """The prompts in sets of at most `size`, always the same ones."""
        if size >= len(self):
            return [self]
        if size not in self._parts:
            self._parts[size] = [self[i : i + size] for i in range(0, len(self), size)]
        return self._parts[size]

    def __getitem__(self, rows: slice) -> PromptSet:
        tokens = Tokens(self.tokens.ids[rows], self.tokens.mask[rows])
        return PromptSet(self.texts[rows], tokens, self.slots[rows])

    def trim(self, tokens: Tokens) -> PromptSet:
        """The same prompts with fewer columns, as in `tokens`."""
        return PromptSet(self.texts, tokens, self.slots[:, : tokens.ids.shape[1]])

    def shift(self, offset: int | Tensor) -> PromptSet:
        """The prompts for a copy of the context `offset` places further on, in one tensor."""
        by = torch.as_tensor(offset, device=self.slots.device).reshape(-1, 1)
        return PromptSet(
            self.texts, self.tokens, torch.where(self.slots < 0, -1, self.slots + by)
        )

    def splice(self, embeddings: Tensor, context: Tensor) -> Tensor:
        """Put context vectors ``[..., vectors, width]`` into the embeddings of `tokens`.

        ``[prompts, length, width] -> [..., prompts, length, width]``, differentiable in both.
        """
        vectors = context[..., self.slots.clamp(min=0), :]
        return torch.where((self.slots >= 0).unsqueeze(-1), vectors, embeddings)


def concatenate(sets: Sequence[PromptSet]) -> PromptSet:
    """One set of all prompts, in order."""
    return PromptSet(
        tuple(text for prompts in sets for text in prompts.texts),
        Tokens(
            torch.cat([prompts.tokens.ids for prompts in sets]),
            torch.cat([prompts.tokens.mask for prompts in sets]),
        ),
        torch.cat([prompts.slots for prompts in sets]),
    )


def match(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """A longest common subsequence: for each of `a` the index of its partner in `b`, or -1."""
    best: list[list[dict[int, int]]] = [[{}] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in reversed(range(len(a))):
        for j in reversed(range(len(b))):
            if a[i] == b[j]:
                best[i][j] = {i: j, **best[i + 1][j + 1]}
            else:
                best[i][j] = max(best[i + 1][j], best[i][j + 1], key=len)
    return [best[0][0].get(i, -1) for i in range(len(a))]


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


_FILLERS = (
    "qqq",
    "xzx",
    "7",
)  # differ in their first and last token, merge with no punctuation


def fixed_prompts(tokens: Tokens, sentences: Sequence[str]) -> PromptSet:
    """Whole sentences, which hold none of the context."""
    return PromptSet(tuple(sentences), tokens, torch.full_like(tokens.ids, -1))


class SharedContext:
    """The tokens of the template, numbered once for all sets of prompts, in their order."""

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
                    "the same: use other words.",
                    argument=argument,
                )
        bare = (placed.slots < 0).all(1).nonzero().flatten().tolist()
        if bare:
            raise PromptError(
                "`template` should have words besides its slots, there is no context to adapt "
                f"in {placed.texts[bare[0]]!r}.",
                argument="template",
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
        return PromptSet(
            texts, tokens, slots.to(tokens.ids.device), self._further(prompts)
        )

    def _further(self, prompts: Sequence[Prompt]) -> PromptSet | None:
        """The other sentences of an ensemble."""
        others = [text for prompt in prompts for text in prompt.others]
        return fixed_prompts(self._tokenize(others), others) if others else None

    def _find(self, prompts: Sequence[Prompt]) -> list[tuple[list[int], list[int]]]:
        """For each prompt the template's tokens: positions among the real tokens, and ids."""
        self._look_up(prompt.text for prompt in prompts)
        variants = (
            text for i in range(len(prompts)) for _, text in _variants(prompts, i)
        )
        self._look_up(chain(_FILLERS, variants), skip_long=True)
        found = []
        for index, prompt in enumerate(prompts):
            own = self._ids[prompt.text]
            positions = self._template_positions(prompts, index)
            found.append((positions, [own[position] for position in positions]))
        return found

    def _template_positions(self, prompts: Sequence[Prompt], index: int) -> list[int]:
        own = self._ids[prompts[index].text]
        start, stop = _changed(
            own, [self._ids[word] for word in _FILLERS if word in self._ids]
        )
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
        if not new:
            return
        try:
            tokens = self._tokenize(new)
            self._ids.update((text, tokens.row(i)) for i, text in enumerate(new))
        except PromptError:
            if not skip_long:
                raise
            for text in new if len(new) > 1 else ():
                self._look_up([text], skip_long)


class WholeSentences(SharedContext):
    """No context: prompts of a model that knows whole sentences only."""

    def __init__(self, tokenize: Callable[[Sequence[str]], Tokens]) -> None:
        super().__init__(tokenize, ())

    def place_named(
        self,
        argument: str,
        names: Mapping[str, str],
        make: Callable[[Mapping[str, str]], Sequence[Prompt]],
    ) -> PromptSet:
        """`place` the prompt of each name."""
        return self.place(make(names))

    def place(self, prompts: Sequence[Prompt]) -> PromptSet:
        """Look up prompts."""
        texts = [prompt.text for prompt in prompts]
        placed = fixed_prompts(self._tokenize(texts), texts)
        return replace(placed, others=self._further(prompts))


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


def _changed(own: list[int], variants: list[list[int]]) -> tuple[int, int]:
    """The span of `own` outside which all variants agree with it."""
    every = [own, *variants]
    return _common(every), len(own) - _common([ids[::-1] for ids in every])


def _common(every: list[list[int]]) -> int:
    """Length of the common beginning."""
    return sum(
        1 for _ in takewhile(lambda ids: len({*ids}) == 1, zip(*every, strict=False))
    )


def find_context(
    tokenize: Callable[[Sequence[str]], Tokens],
    templates: Templates,
    targets: Mapping[str, str],
    sensitive: Mapping[str, Mapping[str, str]],
) -> SharedContext:
    """The context that all prompts of a task share."""
    prompts = [templates._target_prompts(targets)]
    prompts += [templates._sensitive_prompts(names) for names in sensitive.values()]
    if templates.joint is not None:
        # a few joint prompts, because a separate joint sentence may have other words
        two = dict(islice(targets.items(), 2))
        for names in sensitive.values():
            prompts.append(
                templates._joint_prompts(two, dict(islice(names.items(), 2)))
            )
    return SharedContext(tokenize, prompts)
