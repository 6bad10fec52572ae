"""Audits to report on, and a reader of pages that is strict about their structure."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

import numpy as np

from fair_tta import FairTPT, ZeroShot
from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.errors import SmallGroupWarning
from fair_tta.metrics import Bootstrap

VOID = {"meta", "link", "br", "img"}
GENDER = {"gender": ["man", "woman"]}
HOSTILE = {
    "a<script>alert(1)</script>": [
        '"><img src=x onerror=alert(1)>',
        "{{ 7 * 7 }}",
        "$x^{$",
    ],
    "b & | `c` *d*\n# e": [
        "\x00nul\x1b",
        "\udce9tranger",
        "東京 🐦 https://example.org/x",
    ],
}


def provenance(
    targets: Sequence[str], sensitive: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    return {
        "model": {
            "name": "CLIPModel (tiny)",
            "class": "CLIPModel",
            "origin": None,
            "parameters": 151277313,
            "weights_sha256": "ab" * 32,
            "scale": 100.0,
        },
        "prompts": {
            "targets": {t: f"with {t} hair" for t in targets},
            "sensitive": {
                a: {v: f"of a {v}" for v in vs} for a, vs in sensitive.items()
            },
            "template": {
                "target": "A photo {target}.",
                "sensitive": None,
                "joint": None,
            },
        },
        "views": {"repr": "AugMix(n=64)", "n": 64},
        "seed": 7,
        "command": "fair-tta audit --images faces",
    }


def sample(
    n: int = 400,
    runs: Sequence[str] = ("ZeroShot", "FairTPT", "TPT"),
    targets: Sequence[str] = ("blond", "dark"),
    sensitive: Mapping[str, Sequence[str]] = GENDER,
    scores: bool = True,
    absent: bool = False,
) -> Audit:
    """A made-up study: the first group fares worse, later runs less so."""
    random = np.random.default_rng(0)
    truth = random.integers(len(targets), size=n)
    groups = {a: random.integers(len(v) - absent, size=n) for a, v in sensitive.items()}
    first = next(iter(groups.values()))
    luck = random.random(n)
    audits = []
    for k, name in enumerate(runs):
        again = random.random(n) < 0.1 * (k > 0)
        luck_here = np.where(again, random.random(n), luck)
        right = luck_here < 0.85 - 0.3 * ((first == 0) & (truth == 0)) / (k + 1)
        answers = np.where(right, truth, (truth + 1) % len(targets))
        entropies = {a: random.uniform(0.5, 1, n) for a in sensitive}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)
            audits.append(
                audit(
                    [targets[i] for i in truth],
                    [targets[i] for i in answers],
                    {a: [sensitive[a][i] for i in groups[a]] for a in sensitive},
                    name=name,
                    targets=list(targets),
                    values={a: list(v) for a, v in sensitive.items()},
                    scores=Scores(
                        confidence=random.uniform(0.5, 1, n),
                        entropy=random.uniform(0.2, 0.8, n),
                        entropy_zero_shot=random.uniform(0.2, 0.8, n),
                        sensitive_entropy=entropies,
                        sensitive_entropy_zero_shot=entropies,
                        relative_step=random.random(n) if k else None,
                    )
                    if scores
                    else None,
                    seconds=1.5 * (k + 1) if scores else None,
                    interval=Bootstrap(resamples=200),
                    adapter=(FairTPT() if k else ZeroShot()) if scores else None,
                    provenance=provenance(targets, sensitive) if scores else None,
                )
            )
    return compare(audits) if len(audits) > 1 else audits[0]


class Page(HTMLParser):
    """Reads a page and refuses tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.text = ""
        self._open: list[str] = []
        self._table: list[list[str]] | None = None
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, names)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._table = []
            self.tables[dict(attrs).get("id") or f"table {len(self.tables)}"] = (
                self._table
            )
        if self._table is not None and tag == "tr":
            self._table.append([])
        if self._table is not None and tag in ("td", "th"):
            self._table[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag not in VOID
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag
        if tag == "table":
            self._table = None

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += data
        if self._table and self._table[-1] and {"td", "th"} & set(self._open):
            self._table[-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def ids(self) -> list[str]:
        return [
            attributes["id"] or "" for _, attributes in self.tags if "id" in attributes
        ]
