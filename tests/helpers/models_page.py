"""The tables of docs/models.md, made from the tiny models themselves.

``python tests/helpers/models_page.py`` writes them; test_open_clip_walk.py checks them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import open_clip
from checks import assert_splice_is_exact
from families import TRANSFORMERS, seeded
from families_open_clip import OPEN_CLIP, build, shrunk

from fair_tta.models import OpenClipBackend, TransformersBackend

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- begin generated -->", "<!-- end generated -->"
NAMES: tuple[str, ...] = tuple(
    open_clip.list_models()
)  # before any test adds one of its own


# --- the walk over open_clip.list_models() -------------------------------------------------------


@dataclass(frozen=True)
class Structure:
    """How a text tower reads a sentence, as far as the model itself shows it."""

    tower: str
    attention: str
    pooling: str


@dataclass(frozen=True)
class Outcome:
    """What came of one model; `problem` is empty if the splice is exact."""

    structure: Structure
    cuts_tail: bool
    shares: bool
    problem: str


@lru_cache
def configs() -> dict[str, list[str]]:
    """Shrunk configs as JSON, each with the names that shrink to it."""
    rows: dict[str, list[str]] = {}
    for name in NAMES:
        rows.setdefault(json.dumps(shrunk(name), sort_keys=True), []).append(name)
    return rows


@lru_cache
def examine(config: str) -> Outcome:
    """Build a shrunk model, splice its prompts and compare with its own text features."""
    structure, cuts_tail, shares = Structure("not built", "", ""), False, False
    try:
        model, preprocess, tokenizer = seeded(lambda: build(json.loads(config)))
        structure = _structure(model)
        backend = OpenClipBackend(model, preprocess, tokenizer)
        cuts_tail, shares = backend.cuts_tail, backend.sharing is not None
        assert_splice_is_exact(
            backend, lambda t: model.encode_text(t.ids, normalize=False)
        )
    except Exception as error:  # whatever it is, the page names it
        reason = (str(error).strip() or "no message").splitlines()[0]
        return Outcome(
            structure, cuts_tail, shares, f"{type(error).__name__}: {reason}"
        )
    return Outcome(structure, cuts_tail, shares, "")


def walk() -> dict[str, Outcome]:
    """The outcome for every name."""
    rows = {
        name: examine(config) for config, names in configs().items() for name in names
    }
    return {name: rows[name] for name in NAMES}


def _structure(model: Any) -> Structure:
    text = getattr(model, "text", model)
    class_name = type(model).__name__
    if hasattr(text, "pooler"):
        encoder = type(text.transformer).__name__
        at = type(text.pooler).__name__.removesuffix("Pooler").lower()
        pooling = {"mean": "mean of the real tokens", "cls": "first token"}[at]
        return Structure(
            f"{class_name}, HFTextEncoder ({encoder})",
            "both ways, padding masked",
            pooling,
        )
    tower = class_name if text is model else f"{class_name}, {type(text).__name__}"
    attention = "both ways, padding seen" if text.attn_mask is None else "causal"
    if getattr(text, "cls_emb", None) is not None:
        return Structure(tower, attention, "appended class token")
    pool = text.text_pool_type if text is model else text.pool_type
    return Structure(
        tower,
        attention,
        {"argmax": "highest id", "eos": "end of text", "last": "last position"}[pool],
    )


# --- tables --------------------------------------------------------------------------------------


def tables() -> str:
    """All that stands between the markers."""
    outcomes = walk()
    good = sum(not outcome.problem for outcome in outcomes.values())
    return "\n".join(
        [
            "### Families",
            "",
            *_table(
                [
                    "library",
                    "family",
                    "prompts can be tuned",
                    "padded tail is cut",
                    "beginnings are shared",
                    "inverse temperature",
                ],
                _families(),
            ),
            "",
            "### The models of open_clip",
            "",
            f"open_clip {open_clip.__version__} lists {len(outcomes)} models. For {good} of them, "
            f"shrunk, the splice is exact ({100 * good / len(outcomes):.1f} %).",
            "",
            *_table(
                [
                    "model class, text tower",
                    "attention",
                    "pooled at",
                    "prompts can be tuned",
                    "padded tail is cut",
                    "beginnings are shared",
                    "models",
                ],
                _structures(outcomes),
            ),
            "",
            "### Exceptions",
            "",
            *(
                [f"- `{n}`: {o.problem}" for n, o in outcomes.items() if o.problem]
                or ["None."]
            ),
        ]
    )


def _families() -> Iterator[list[str]]:
    libraries: list[tuple[str, dict[str, Callable[[], Any]], Any]] = [
        ("transformers", TRANSFORMERS, TransformersBackend),
        ("open_clip", OPEN_CLIP, OpenClipBackend),
    ]
    for library, builders, backend_kind in libraries:
        for family, builder in builders.items():
            model, images, tokenizer = seeded(builder)
            backend = backend_kind(model, images, tokenizer)
            yield [
                library,
                family,
                _yes(backend.embedding_layer is not None),
                _yes(backend.cuts_tail),
                _yes(backend.sharing is not None),
                _inverse_temperature(model, backend.scale),
            ]


def _inverse_temperature(model: Any, scale: float) -> str:
    if hasattr(model, "logit_scale"):
        value, formula = model.logit_scale.detach().exp().item(), "`exp(logit_scale)`"
    elif hasattr(model, "temperature"):
        value, formula = 1 / model.temperature.item(), "`1 / temperature`"
    else:
        value, formula = 1.0, "1"
    assert math.isclose(scale, value, rel_tol=1e-6), (formula, scale, value)
    return formula


def _structures(outcomes: dict[str, Outcome]) -> Iterator[list[str]]:
    rows: dict[tuple[Structure, bool, bool, bool], list[str]] = {}
    for name, outcome in outcomes.items():
        key = outcome.structure, not outcome.problem, outcome.cuts_tail, outcome.shares
        rows.setdefault(key, []).append(f"`{name}`")
    for (structure, tuned, cut, shares), names in sorted(
        rows.items(), key=lambda row: -len(row[1])
    ):
        text = f"{len(names)}: {', '.join(names)}"
        yield [
            structure.tower,
            structure.attention,
            structure.pooling,
            _yes(tuned),
            _yes(cut),
            _yes(shares),
            text,
        ]


def _table(head: list[str], rows: Iterator[list[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


# --- the page ------------------------------------------------------------------------------------


def on_page() -> str:
    """The tables as they stand in the page."""
    return PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def write() -> None:
    """Put the tables into the page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}", "utf-8")


if __name__ == "__main__":
    write()
