"""`benchmarks/effect.py` from end to end on a few pictures, and the page that is made of it."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
METHODS = ["zero-shot", "association-correction", "logit-balance", "zero"]


@pytest.fixture(scope="module")
def module() -> Any:
    """Any module of the folder, by its name."""

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield load
    sys.path.remove(str(ROOT / "benchmarks"))


def call(
    module: Any, monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str
) -> dict[str, Any]:
    out = folder / "effect.json"
    sizes = [
        "--seeds",
        "2",
        "--pictures",
        "24",
        "--with-views",
        "9",
        "--reference",
        "40",
    ]
    common = [
        "effect.py",
        *sizes,
        "--tasks",
        "birds",
        "badges",
        "--adapters",
        *METHODS,
    ]
    monkeypatch.setattr(
        sys,
        "argv",
        [*common, "--out", str(out), "--bank", str(folder / "bank"), *arguments],
    )
    module("effect").main()
    results: dict[str, Any] = json.loads(out.read_text())
    return results


@pytest.mark.slow
def test_runs_from_end_to_end_and_goes_on(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = ("methods", "placebos", "reference", "skew", "tradeoff")
    parts_found = call(module, monkeypatch, tmp_path, "--part", *parts)["parts"]
    assert list(parts_found["methods"]) == [
        f"{q}/{m}" for q in ("birds", "badges") for m in METHODS
    ]
    for name, entry in parts_found["methods"].items():
        assert entry["n"] == (18 if name.endswith("/zero") else 48), (
            "view 0 alone, or all views"
        )
        for metric in ("accuracy", "balanced", "wga", "eod"):
            figure = entry[metric]
            assert figure["low"] <= figure["change"] <= figure["high"]
            assert figure["after"] - figure["before"] == pytest.approx(
                figure["change"], abs=0.02
            )
    assert parts_found["methods"]["birds/zero-shot"]["changed"] == 0
    kinds = {"right", "wrong attribute", "random flips", "stranger"}
    assert all(set(entry) == kinds for entry in parts_found["placebos"].values())
    assert list(parts_found["reference"]) == [
        f"{q}/logit-balance/30" for q in ("birds", "badges")
    ]
    assert len(parts_found["skew"]) == 6
    (points,) = parts_found["tradeoff"].values()
    assert points["0/1"]["changed"] == 0

    def stop(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(module("effect_parts"), "answers", stop)
    assert call(module, monkeypatch, tmp_path, "--part", *parts)["parts"] == parts_found
    with pytest.raises(SystemExit, match="has other numbers of pictures: use --again"):
        call(module, monkeypatch, tmp_path, "--part", "methods", "--pictures", "36")


def test_every_method_of_the_library_is_asked(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from internals import ADAPTERS

    monkeypatch.setattr(sys, "argv", ["effect.py"])
    needs_more = {"sem", "ttr"}  # a file, and what all classes are kinds of
    assert set(ADAPTERS) - needs_more < set(module("effect").parsed().adapters)


def test_placebos_are_what_they_say(module: Any) -> None:
    random = np.random.default_rng(0)
    before, shift = random.dirichlet([1, 1, 1], 50), random.normal(size=(50, 3))
    after = before * np.exp(shift)
    method = module("effect_figures").Answers(
        before, after / after.sum(1, keepdims=True)
    )
    parts = module("effect_parts")
    labels = method.labels[0]
    flipped = parts.flipped(labels, method, random)
    assert (flipped != labels).sum() == method.flips > 0
    order = np.random.default_rng(0).permutation(50)
    assert (parts.strangers(method) == (np.log(before) + shift[order]).argmax(1)).all()


def test_groups_get_the_shares_of_a_mix(module: Any) -> None:
    import torch

    pictures = module("effect_pictures")
    question = pictures.QUESTIONS["badges"]
    groups = [question.task.groups[i % 9] for i in range(900)]
    drawn = pictures.Pictures(
        torch.zeros(900, 1, 2),
        [g[0] for g in groups],
        {"colour": [g[1] for g in groups]},
    )
    skews = module("effect_parts").skews(question)
    along = drawn.mixed(skews["goes along"], 110)
    pairs = list(zip(along.truth, along.sensitive["colour"], strict=True))
    assert pairs.count(("circle", "red")) == 30
    assert pairs.count(("circle", "blue")) == 3
    assert len(along) == len(along.features) == 108


@pytest.mark.parametrize("name", ["effect.md", "index.md", "../README.md"])
def test_pages_show_the_figures_of_the_json(module: Any, name: str) -> None:
    text = (ROOT / "docs" / name).read_text("utf-8")
    parts = json.loads((ROOT / "docs" / "effect.json").read_text("utf-8"))["parts"]
    blocks = module("effect_page").on_pages(parts)
    assert "<!-- effect: " in text
    again = module("result_files").filled(text, "effect", blocks)
    assert again == text, "python benchmarks/effect.py --page"


def test_results_are_the_figures_of_the_json(module: Any, tmp_path: Path) -> None:
    parts = json.loads((ROOT / "docs" / "effect.json").read_text("utf-8"))["parts"]
    page, files = module("effect_page"), module("result_files")
    files.write_results("effect", page.INTRODUCTION, page.blocks_of(parts), tmp_path)
    names = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*"))
    assert len(names) == 1 + 5 + 8
    for name in names:
        kept = (files.RESULTS / name).read_text("utf-8")
        assert kept == (tmp_path / name).read_text("utf-8"), (
            "python benchmarks/effect.py --page"
        )


def test_what_a_mark_rests_on_is_printed(module: Any) -> None:
    change = module("effect_page").change
    assert (
        change({"change": 0.2, "low": 0.01, "high": 0.4}, 1) == "**+0.2** [+0.01, +0.4]"
    )
    assert (
        change({"change": -0.04, "low": -1.0, "high": -0.02}, 1)
        == "-0.04 (worse) [-1.0, -0.02]"
    )
    assert change({"change": 0.0, "low": -0.1, "high": 0.1}, 1) == "0.0 [-0.1, +0.1]"
