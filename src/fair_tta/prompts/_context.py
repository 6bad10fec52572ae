"""Tokenised prompts and the context they share: the tokens of the template's own words.

A tokenizer gives no positions of words, so the context is found by comparing tokens:

1. Each name in a prompt is exchanged for other words (`PROBE_WORDS` and the names of other
   prompts). Tokens that change belong to the name, all others to the template.
2. The sentences of a task (targets, attribute values, pairs) hold different parts of the
   template. The context is a shortest sequence that contains all of them (`merge`).
3. The template's tokens of each prompt are numbered by their partners in the context
   (`align`). A tuned context is then written over these positions (`PromptSet.splice`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from fair_tta.errors import PromptError
from fair_tta.models._backend import Tokens
from fair_tta.models._model_lock import computed_once
from fair_tta.models._prefix_sharing import PromptTree
from fair_tta.prompts._templates import Prompt, Templates

PROBE_WORDS = (
    # Words that no vocabulary is likely to have whole: their pieces begin and end with q or x.
    # A name that shares its first or last token with one of them ("quokka") does not share it
    # with the other, so the span that changes reaches to both ends of the name.
    "qqq",
    "xzx",
    # A third first and last token, for names in which both letters occur at the ends. Neither
    # a digit nor these letters form a token with punctuation beside a slot.
    "7",
)
"""Words that take the place of a name to find the tokens that are not the name's."""


@dataclass(frozen=True, eq=False)
class PromptSet:
    """Tokenised prompts and the positions of the shared context in them.

    Attributes:
        texts: the sentences.
        tokens: ids and mask, ``[prompts, length]``.
        slots: ``[prompts, length]``, the number of the context vector here, -1 for fixed tokens.
        further: the same prompts in further templates, prompt by prompt; without a context.
    """

    texts: tuple[str, ...]
    tokens: Tokens
    slots: Tensor
    further: PromptSet | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @property
    @computed_once
    def tree(self) -> PromptTree:
        """The beginnings that prompts have in common, under any context."""
        return PromptTree.from_tokens(self.tokens, self.slots)

    @property
    @computed_once
    def _parts_by_size(self) -> dict[int, list[PromptSet]]:
        return {}

    def parts(self, size: int) -> list[PromptSet]:
        """Split the prompts into sets of at most `size`.

        Equal sizes give the same objects, because features are cached by prompt set.
        """
        if size >= len(self):
            return [self]
        if size not in self._parts_by_size:
            parts = []
            for start in range(0, len(self), size):
                parts.append(self[start : start + size])
            self._parts_by_size[size] = parts
        return self._parts_by_size[size]

    def __getitem__(self, rows: slice) -> PromptSet:
        tokens = Tokens(self.tokens.ids[rows], self.tokens.mask[rows])
        return PromptSet(self.texts[rows], tokens, self.slots[rows])

    def trim(self, tokens: Tokens) -> PromptSet:
        """Return the prompts with `tokens`, which have fewer columns of padding."""
        length = tokens.ids.shape[1]
        return PromptSet(self.texts, tokens, self.slots[:, :length])

    def shift(self, offset: int | Tensor) -> PromptSet:
        """Return the prompts for the copy of the context that begins at vector `offset`.

        Several copies of a context are tuned as one tensor; a tensor has an offset per prompt.
        """
        offsets = torch.as_tensor(offset, device=self.slots.device).reshape(-1, 1)
        shifted = torch.where(self.slots < 0, -1, self.slots + offsets)
        return PromptSet(self.texts, self.tokens, shifted)

    def splice(self, embeddings: Tensor, context: Tensor) -> Tensor:
        """Write context vectors ``[..., vectors, width]`` into the embeddings of `tokens`.

        ``[prompts, length, width] -> [..., prompts, length, width]``, differentiable in both.
        """
        vectors = context[..., self.slots.clamp(min=0), :]
        is_context = (self.slots >= 0).unsqueeze(-1)
        return torch.where(is_context, vectors, embeddings)


def concatenate_prompts(sets: Sequence[PromptSet]) -> PromptSet:
    """Return one set of all prompts, in order."""
    texts: tuple[str, ...] = ()
    ids = []
    masks = []
    slots = []
    for prompts in sets:
        texts += prompts.texts
        ids.append(prompts.tokens.ids)
        masks.append(prompts.tokens.mask)
        slots.append(prompts.slots)
    tokens = Tokens(torch.cat(ids), torch.cat(masks))
    return PromptSet(texts, tokens, torch.cat(slots))


def fixed_prompts(tokens: Tokens, sentences: Sequence[str]) -> PromptSet:
    """Return whole sentences, which hold none of the context."""
    slots = torch.full_like(tokens.ids, -1)
    return PromptSet(tuple(sentences), tokens, slots)


def align(sequence: Sequence[int], reference: Sequence[int]) -> list[int]:
    """Return the index of each token's partner in `reference`, or -1.

    Partners are those of a longest common subsequence.
    """
    rows = len(sequence)
    columns = len(reference)

    # lengths[i][j] is the length of the subsequence that sequence[i:] and reference[j:] share.
    # It is filled from the ends, because each entry follows from later ones.
    lengths = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            if sequence[i] == reference[j]:
                lengths[i][j] = 1 + lengths[i + 1][j + 1]
            else:
                lengths[i][j] = max(lengths[i + 1][j], lengths[i][j + 1])

    # Two equal tokens are partners; otherwise the one without which more is left is skipped.
    partners = [-1] * rows
    i = 0
    j = 0
    while i < rows and j < columns:
        if sequence[i] == reference[j]:
            partners[i] = j
            i += 1
            j += 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return partners


def merge(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Return a shortest sequence that contains both in order."""
    merged: list[int] = []
    n_merged = 0  # tokens of `second` that are in `merged`
    for token, partner in zip(first, align(first, second), strict=True):
        if partner >= 0:
            merged += second[n_merged:partner]
            n_merged = partner + 1
        merged.append(token)
    return [*merged, *second[n_merged:]]


class SharedContext:
    """The tokens of the template, numbered once for all sets of prompts of a task.

    Args:
        tokenize: the tokenizer of the model.
        prompt_groups: prompts of each sentence of the task.
    """

    def __init__(
        self,
        tokenize: Callable[[Sequence[str]], Tokens],
        prompt_groups: Sequence[Sequence[Prompt]],
    ) -> None:
        self._tokenize = tokenize
        self._ids_of_text: dict[str, list[int]] = {}
        self.token_ids: list[int] = []
        """Token ids of the context, in the order of the sentence."""
        # Most prompts have the same template tokens, which need to be merged only once.
        merged: set[tuple[int, ...]] = set()
        for prompts in prompt_groups:
            for _, template_ids in self._find_template(prompts):
                if tuple(template_ids) not in merged:
                    merged.add(tuple(template_ids))
                    self.token_ids = merge(self.token_ids, template_ids)

    def locate_named(
        self,
        argument: str,
        names: Mapping[str, str],
        make_prompts: Callable[[Mapping[str, str]], Sequence[Prompt]],
    ) -> PromptSet:
        """`locate` the prompt of each name.

        Raises:
            PromptError: names have the same tokens, or a prompt has no context.
        """
        prompts = make_prompts(names)
        located = self.locate(prompts)
        label_of_ids: dict[tuple[int, ...], str] = {}
        for label, prompt in zip(names, prompts, strict=True):
            ids = tuple(self._ids_of_text[prompt.text])
            first_label = label_of_ids.setdefault(ids, label)
            if first_label != label:
                raise PromptError(
                    f"`{argument}` should have different tokens, but {first_label!r} and "
                    f"{label!r} have the same: use other words.",
                    argument=argument,
                )
        # A prompt without words of the template could not be tuned.
        has_context = (located.slots >= 0).any(1).tolist()
        if not all(has_context):
            text = located.texts[has_context.index(False)]
            raise PromptError(
                "`template` should have words besides its slots; there is no context to adapt "
                f"in {text!r}.",
                argument="template",
            )
        return located

    def locate(self, prompts: Sequence[Prompt]) -> PromptSet:
        """Tokenise prompts and number the context in them."""
        texts = tuple(_texts(prompts))
        tokens = self._tokenize(texts)
        slots = torch.full(tokens.ids.shape, -1, device="cpu")
        vectors_of_ids: dict[tuple[int, ...], list[int]] = {}
        for row, (positions, template_ids) in enumerate(self._find_template(prompts)):
            key = tuple(template_ids)
            if key not in vectors_of_ids:
                vectors_of_ids[key] = align(template_ids, self.token_ids)
            # Positions count real tokens, columns also padding, which may be on the left.
            columns = tokens.mask[row].nonzero().flatten().cpu()
            columns = columns[positions]
            slots[row, columns] = slots.new_tensor(vectors_of_ids[key])
        slots = slots.to(tokens.ids.device)
        return PromptSet(texts, tokens, slots, self._further_prompts(prompts))

    def _further_prompts(self, prompts: Sequence[Prompt]) -> PromptSet | None:
        """Return the sentences of further templates, None if there is one template."""
        texts: list[str] = []
        for prompt in prompts:
            texts += prompt.further_texts
        return fixed_prompts(self._tokenize(texts), texts) if texts else None

    def _find_template(
        self, prompts: Sequence[Prompt]
    ) -> list[tuple[list[int], list[int]]]:
        """Return positions and ids of the template's tokens in each prompt."""
        # All texts are tokenised together, because tokenizers are slow text by text.
        self._read_ids(_texts(prompts))
        variants = []
        variant_texts = list(PROBE_WORDS)
        for index in range(len(prompts)):
            texts_by_part = _variants_by_part(prompts, index)
            variants.append(texts_by_part)
            for texts in texts_by_part.values():
                variant_texts += texts
        # Other words may make a sentence too long that fits with its own name.
        self._read_ids(variant_texts, skip_too_long=True)

        template_tokens = []
        for prompt, texts_by_part in zip(prompts, variants, strict=True):
            ids = self._ids_of_text[prompt.text]
            positions = self._template_positions(prompt, texts_by_part)
            template_tokens.append((positions, [ids[i] for i in positions]))
        return template_tokens

    def _template_positions(
        self, prompt: Prompt, variants: Mapping[int, Sequence[str]]
    ) -> list[int]:
        """Return the positions of tokens that are neither a name's nor special."""
        ids = self._ids_of_text[prompt.text]

        # Whole other texts agree with a sentence only in the tokens that begin and end any text.
        positions = set(_changed_span(ids, self._known_ids(PROBE_WORDS)))

        # A sentence with other words for a name agrees with it except in the name's tokens.
        for part, texts in variants.items():
            known_ids = self._known_ids(texts)
            if not known_ids:
                continue
            name_span = _changed_span(ids, known_ids)
            if not name_span:
                raise PromptError(
                    f"the name {prompt.parts[part].text!r} leaves no token of its own in "
                    f"{prompt.text!r}: this tokenizer does not know it. Use other words."
                )
            positions -= set(name_span)
        return sorted(positions)

    def _known_ids(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the ids of those texts that were not too long."""
        known_ids = []
        for text in texts:
            if text in self._ids_of_text:
                known_ids.append(self._ids_of_text[text])
        return known_ids

    def _read_ids(self, texts: Iterable[str], skip_too_long: bool = False) -> None:
        """Tokenise texts that are new, at once if none is too long."""
        unread = sorted(set(texts).difference(self._ids_of_text))
        if not unread:
            return
        try:
            tokens = self._tokenize(unread)
        except PromptError:
            if not skip_too_long:
                raise
            # Only the error of a single text shows which one is too long.
            if len(unread) > 1:
                for text in unread:
                    self._read_ids([text], skip_too_long)
            return
        for row, text in enumerate(unread):
            self._ids_of_text[text] = tokens.row(row)


class WholeSentences(SharedContext):
    """The empty context of a model that has features of whole sentences only."""

    def __init__(self, tokenize: Callable[[Sequence[str]], Tokens]) -> None:
        super().__init__(tokenize, ())

    def locate_named(
        self,
        argument: str,
        names: Mapping[str, str],
        make_prompts: Callable[[Mapping[str, str]], Sequence[Prompt]],
    ) -> PromptSet:
        """`locate` the prompt of each name."""
        return self.locate(make_prompts(names))

    def locate(self, prompts: Sequence[Prompt]) -> PromptSet:
        """Look up prompts."""
        texts = _texts(prompts)
        located = fixed_prompts(self._tokenize(texts), texts)
        return replace(located, further=self._further_prompts(prompts))


def _texts(prompts: Sequence[Prompt]) -> list[str]:
    return [prompt.text for prompt in prompts]


def _variants_by_part(prompts: Sequence[Prompt], index: int) -> dict[int, list[str]]:
    """Return, for each name in a prompt, the sentence with other words instead of it.

    Names of the neighbouring prompts help where a tokenizer of whole words knows no probe word.
    """
    prompt = prompts[index]
    following = (index + 1) % len(prompts)
    neighbours = (prompts[index - 1], prompts[following])
    variants: dict[int, list[str]] = {}
    for i, part in enumerate(prompt.parts):
        if part.slot is None:
            continue
        variants[i] = []
        for words in (
            *PROBE_WORDS,
            *(neighbour.parts[i].text for neighbour in neighbours),
        ):
            if words != part.text:
                variants[i].append(prompt.with_name(i, words))
    return variants


def _changed_span(ids: list[int], variants: list[list[int]]) -> range:
    """Return the positions in `ids` outside which all variants agree with it."""
    sequences = [ids, *variants]
    backwards = [sequence[::-1] for sequence in sequences]
    return range(
        _common_prefix_length(sequences), len(ids) - _common_prefix_length(backwards)
    )


def _common_prefix_length(sequences: list[list[int]]) -> int:
    """Return the length of the beginning that all sequences have in common."""
    length = 0
    for tokens in zip(*sequences, strict=False):
        if len(set(tokens)) > 1:
            break
        length += 1
    return length


def find_context(
    tokenize: Callable[[Sequence[str]], Tokens],
    templates: Templates,
    targets: Mapping[str, str],
    sensitive: Mapping[str, Mapping[str, str]],
) -> SharedContext:
    """Return the context that all prompts of a task share."""
    prompt_groups = [templates._target_prompts(targets)]
    for values in sensitive.values():
        prompt_groups.append(templates._sensitive_prompts(values))
    if templates.joint is not None:
        # A joint sentence of its own may have other words than both. Two targets and two values
        # show where they are: of all pairs there may be thousands.
        two_targets = dict(islice(targets.items(), 2))
        for values in sensitive.values():
            two_values = dict(islice(values.items(), 2))
            prompt_groups.append(templates._joint_prompts(two_targets, two_values))
    return SharedContext(tokenize, prompt_groups)
