"""The shared context is found in every tokenised prompt, whatever the tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import families
import open_clip
import pytest
import torch
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from internals import Prompt, PromptSet, SharedContext, check_prompt_length, parse_names
from test_prompt_templates import PAIRS
from tokenizers import Tokenizer, models, pre_tokenizers

from fair_tta import Templates
from fair_tta.errors import PromptError
from fair_tta.models import Tokens

TOKENIZERS: dict[str, Callable[[], Any]] = {
    "CLIP": families.clip_tokenizer,
    "BERT": families.bert_tokenizer,
    "XLM-R": lambda: families.unigram_tokenizer("roberta"),
    "SigLIP": lambda: families.unigram_tokenizer("siglip"),
}


def tokenize_with(
    tokenizer: Any, pad_left: bool = False
) -> Callable[[Sequence[str]], Tokens]:
    def tokenize(texts: Sequence[str]) -> Tokens:
        rows = tokenizer(list(texts), padding=False, truncation=False)["input_ids"]
        length = max(map(len, rows)) + 2
        ids, mask = (
            torch.zeros(len(rows), length).long(),
            torch.zeros(len(rows), length).bool(),
        )
        for i, row in enumerate(rows):
            columns = slice(length - len(row), None) if pad_left else slice(0, len(row))
            ids[i, columns] = torch.tensor(row)
            mask[i, columns] = True
        return Tokens(ids, mask)

    return tokenize


def sets_of(
    template: str, targets: list[str], sensitive: list[str], tokenize: Any
) -> tuple[SharedContext, list[tuple[list[Prompt], PromptSet]]]:
    templates = Templates.from_sentence(template)
    y, s = parse_names("targets", targets), parse_names("sensitive", sensitive)
    groups = [templates._target_prompts(y), templates._sensitive_prompts(s)]
    shared = SharedContext(tokenize, groups)
    groups.append(templates._joint_prompts(y, s))
    return shared, [(prompts, shared.locate(prompts)) for prompts in groups]


def expected_kinds(tokenizer: Any, prompt: Prompt) -> list[str]:
    """For each token 'special', 'name', 'template' or 'both', from the tokenizer's own offsets."""
    encoded = tokenizer(
        prompt.text, return_offsets_mapping=True, return_special_tokens_mask=True
    )
    name_at: list[bool] = []
    for part in prompt.parts:
        name_at += [part.slot is not None] * len(part.text)
    kinds = []
    for (start, stop), special in zip(
        encoded["offset_mapping"], encoded["special_tokens_mask"], strict=True
    ):
        touched = {
            name_at[i] for i in range(start, stop) if not prompt.text[i].isspace()
        }
        if special:
            kinds.append("special")
        else:
            kinds.append({(True,): "name", (False,): "template", (): "space"}.get(
                tuple(touched), "both"
            ))  # fmt: skip
    return kinds


def assert_context_is_right(
    tokenizer: Any, shared: SharedContext, prompts: list[Prompt], placed: PromptSet
) -> None:
    context = torch.tensor(shared.token_ids)
    for row, prompt in enumerate(prompts):
        slots, ids = placed.slots[row], placed.tokens.ids[row]
        used = slots[slots >= 0]
        assert torch.equal(
            ids[slots >= 0], context[used]
        )  # the spliced prompt is the prompt
        assert used.tolist() == sorted(set(used.tolist()))  # each vector once, in order
        assert (slots[~placed.tokens.mask[row]] == -1).all()
        kinds = expected_kinds(tokenizer, prompt)
        tuned = (slots[placed.tokens.mask[row]] >= 0).tolist()
        for kind, is_tuned in zip(kinds, tuned, strict=True):
            if kind in ("special", "name", "both"):
                assert not is_tuned, (prompt.text, kinds, tuned)
            elif kind == "template":
                assert is_tuned, (prompt.text, kinds, tuned)


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("pair", PAIRS)
def test_the_papers_pairs(kind: str, pair: str) -> None:
    tokenizer = TOKENIZERS[kind]()
    shared, sets = sets_of(*PAIRS[pair], tokenize_with(tokenizer))
    for prompts, placed in sets:
        assert_context_is_right(tokenizer, shared, prompts, placed)
        # in the paper's templates every prompt holds the whole context
        assert ((placed.slots >= 0).sum(1) == len(shared.token_ids)).all()


word = st.sampled_from(
    "a an the photo picture of this is Person celebrity, (small) BIG red; it's 2 at one… où".split()
)
phrase = st.lists(word, max_size=4).map(" ".join)
name = st.one_of(
    st.sampled_from(
        "cat dog White male female quokka qqq xzx Ünïcode photo a 7 77 鳥 x-ray smiling".split()
    ),
    st.lists(st.sampled_from("with dark blond hair not a the 7".split()), min_size=2, max_size=4)
    .map(" ".join),
)  # fmt: skip
names = st.lists(name, min_size=2, max_size=4, unique=True)


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(deadline=None, max_examples=40)
@given(
    st.tuples(phrase, phrase, phrase), st.booleans(), names, names, st.sampled_from(["", ".", "!"]),
    st.booleans(),
)  # fmt: skip
def test_random_templates_and_names(
    kind: str,
    phrases: tuple[str, str, str],
    target_first: bool,
    targets: list[str],
    sensitive: list[str],
    end: str,
    pad_left: bool,
) -> None:
    tokenizer = TOKENIZERS[kind]()
    slots = ["{target}", "{sensitive}"] if target_first else ["{sensitive}", "{target}"]
    template = (
        f"{phrases[0]} {slots[0]} {phrases[1]} {slots[1]} {phrases[2]}".strip() + end
    )
    tokenize = tokenize_with(tokenizer, pad_left)
    for group in (
        targets,
        sensitive,
    ):  # such names are refused before the context is sought
        rows = [tuple(tokenizer(n)["input_ids"]) for n in group]
        assume(len(set(rows)) == len(rows))
    try:
        shared, sets = sets_of(template, targets, sensitive, tokenize)
    except PromptError as error:
        assert "leaves no token of its own" in str(error)
        return
    for prompts, placed in sets[:2]:
        assert_context_is_right(tokenizer, shared, prompts, placed)


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(deadline=None, max_examples=40)
@given(st.text("ab-.( ", max_size=6), st.text("ab-.) ", max_size=6), names)
def test_letters_and_punctuation_touching_a_slot(
    kind: str, before: str, after: str, targets: list[str]
) -> None:
    """The spliced prompt equals the prompt, and no token with letters of a name is tuned."""
    tokenizer = TOKENIZERS[kind]()
    prompts = Templates(f"this {before}{{target}}{after} thing")._target_prompts(
        parse_names("targets", targets)
    )
    try:
        shared = SharedContext(tokenize_with(tokenizer), [prompts])
    except PromptError:
        return
    placed = shared.locate(prompts)
    context = torch.tensor(shared.token_ids)
    for row, prompt in enumerate(prompts):
        slots = placed.slots[row]
        assert torch.equal(
            placed.tokens.ids[row][slots >= 0], context[slots[slots >= 0]]
        )
        tuned = (slots[placed.tokens.mask[row]] >= 0).tolist()
        for token_kind, is_tuned in zip(
            expected_kinds(tokenizer, prompt), tuned, strict=True
        ):
            if token_kind in ("special", "name", "both"):
                assert not is_tuned


def test_open_clips_tokenizer_gives_the_same_context_as_the_transformers_one() -> None:
    simple = open_clip.SimpleTokenizer()

    def tokenize(texts: Sequence[str]) -> Tokens:
        ids = simple(list(texts))
        return Tokens(ids, ids != 0)

    for pair in PAIRS.values():
        ours, _ = sets_of(*pair, tokenize)
        theirs, _ = sets_of(*pair, tokenize_with(families.clip_tokenizer()))
        assert ours.token_ids == theirs.token_ids


def test_separate_sentences_share_what_they_have_in_common() -> None:
    tokenizer = families.bert_tokenizer()
    templates = Templates("a photo of a {target}.", "this is a {sensitive}.")
    groups = [
        templates._target_prompts({"cat": "cat", "dog": "dog"}),
        templates._sensitive_prompts({"male": "male", "female": "female"}),
    ]
    shared = SharedContext(tokenize_with(tokenizer), groups)
    words = tokenizer.convert_ids_to_tokens(shared.token_ids)
    assert sorted(words) == sorted(["a", "photo", "of", "this", "is", "a", "."])
    for prompts in groups:
        assert_context_is_right(tokenizer, shared, prompts, shared.locate(prompts))


def test_a_name_the_tokenizer_swallows_is_an_error() -> None:
    tokenizer = families.bert_tokenizer()
    prompts = Templates("a photo of a {target}.")._target_prompts(
        {"cat": "cat", "?": "\u200b"}
    )
    with pytest.raises(PromptError, match="leaves no token of its own"):
        SharedContext(tokenize_with(tokenizer), [prompts])


def test_splice_puts_vectors_in_place_and_nowhere_else() -> None:
    slots = torch.tensor([[-1, 0, 1, -1], [-1, 1, -1, -1]])
    tokens = Tokens(torch.zeros(2, 4).long(), torch.ones(2, 4).bool())
    prompts = PromptSet(("", ""), tokens, slots)
    embeddings, context = torch.zeros(2, 4, 3), torch.randn(5, 2, 3)
    spliced = prompts.splice(embeddings, context)
    assert spliced.shape == (5, 2, 4, 3)
    for episode in range(5):
        for row in range(2):
            for column in range(4):
                slot = int(slots[row, column])
                expected = (
                    context[episode, slot] if slot >= 0 else embeddings[row, column]
                )
                assert torch.equal(spliced[episode, row, column], expected)


def test_one_name_the_tokenizer_does_not_know() -> None:
    """All fillers are unknown words too; then its neighbours show where the name is."""
    inner = Tokenizer(
        models.WordLevel({"<unk>": 0, "a": 1, "cat": 2, "here": 3, "dog": 4}, "<unk>")
    )
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>"
    )
    prompts = Templates("a {target} here")._target_prompts(
        {n: n for n in ("cat", "dog", "zebu")}
    )
    shared = SharedContext(tokenize_with(tokenizer), [prompts])
    assert shared.token_ids == [1, 3]
    assert (shared.locate(prompts).slots[:, :3] == torch.tensor([0, -1, 1])).all()


def test_prompts_that_just_fit() -> None:
    """Words in place of a name may be longer than the name; that must not matter."""
    tokenizer = families.clip_tokenizer()
    plain = tokenize_with(tokenizer)

    def tokenize(texts: Sequence[str]) -> Tokens:
        for text in texts:
            check_prompt_length(text, len(tokenizer(text)["input_ids"]), 8)
        return plain(texts)

    prompts = Templates("a photo of a {target}.")._target_prompts(
        {"cat": "cat", "dog": "dog"}
    )
    shared = SharedContext(tokenize, [prompts])
    assert len(shared.token_ids) == 5
    with pytest.raises(PromptError, match="at most 8"):
        SharedContext(tokenize, [Templates("a photo of a {target}.")._target_prompts(
            {"cat": "cat", "dog": "big dog"}
        )])  # fmt: skip
