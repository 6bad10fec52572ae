"""The prompts of a task, placed on one shared context, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from fair_tta.backends.protocol import Tokens
from fair_tta.errors import PromptError
from fair_tta.text.context import SharedContext
from fair_tta.text.prompt_set import PromptSet
from fair_tta.text.prompts import Templates
from fair_tta.text.slots import Prompt


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
        # a few joint prompts, because a joint sentence of its own may have words of its own
        two = _first_two(targets)
        prompts += [templates.joint_prompts(two, _first_two(n)) for n in sensitive.values()]
    return SharedContext(tokenize, prompts)


def place_targets(
    shared: SharedContext, templates: Templates, targets: Mapping[str, str]
) -> PromptSet:
    """The prompts of the targets."""
    return _place(shared, "targets", targets, templates.target_prompts(targets))


def place_sensitive(
    shared: SharedContext, templates: Templates, sensitive: Mapping[str, Mapping[str, str]]
) -> dict[str, PromptSet]:
    """The prompts of the sensitive values, by attribute."""
    return {
        attribute: _place(shared, "sensitive", names, templates.sensitive_prompts(names))
        for attribute, names in sensitive.items()
    }


def _place(
    shared: SharedContext, argument: str, names: Mapping[str, str], prompts: list[Prompt]
) -> PromptSet:
    placed = shared.place(prompts)
    seen: dict[tuple[int, ...], str] = {}
    for label, prompt in zip(names, prompts, strict=True):
        other = seen.setdefault(tuple(shared.ids(prompt.text)), label)
        if other != label:
            raise PromptError(
                f"`{argument}` should be told apart by the model, but {other!r} and {label!r} "
                "give the same tokens: use other words."
            )
    bare = (placed.slots < 0).all(1).nonzero().flatten().tolist()
    if bare:
        raise PromptError(
            "`template` should have words besides its slots, there is no context to adapt "
            f"in {placed.texts[bare[0]]!r}."
        )
    return placed


def _first_two(names: Mapping[str, str]) -> dict[str, str]:
    return dict(islice(names.items(), 2))
