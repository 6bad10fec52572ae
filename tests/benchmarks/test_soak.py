"""`benchmarks/soak.py` on a few predictions, its verdict, and the page that quotes it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")


@pytest.fixture(scope="module")
def soak() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("soak")
    sys.path.remove(str(ROOT / "benchmarks"))


def points(memory: list[float], blocks: float = 0.0) -> list[dict[str, float]]:
    return [
        {
            "predictions": 500 * i,
            "resident_mib": mib,
            "python_blocks": 1e6 + blocks * 500 * i,
        }
        for i, mib in enumerate(memory)
    ]


def run(curve: list[dict[str, float]], soak: Any, **end: int) -> dict[str, Any]:
    unchanged = {
        "threads": 5,
        "python_threads": 1,
        "files": 6,
        "random_states": "a",
        "hooks": 0,
    }
    return {
        "growth": soak.growth(curve),
        "start": unchanged,
        "warm": unchanged,
        "end": unchanged | end,
    }


def test_what_grows_is_told(soak: Any) -> None:
    flat = [800.0] * 10 + [900.0, 903.0] * 20
    assert soak.verdict(run(points(flat), soak)) == 0
    assert soak.verdict(run(points([900.0 + i for i in range(50)]), soak)) == 1
    assert soak.growth(points(flat, blocks=0.2))[
        "blocks_per_prediction"
    ] == pytest.approx(0.2)
    assert soak.verdict(run(points(flat, blocks=0.2), soak)) == 1
    for name in ("hooks", "threads", "files"):
        assert soak.changed(run(points(flat), soak, **{name: 99})) == [name]
        assert soak.verdict(run(points(flat), soak, **{name: 99})) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classifiers", ["0", "4"])
def test_a_few_predictions(
    soak: Any,
    classifiers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "soak.json"
    sizes = ["--predictions", "500", "--every", "100", "--out", str(out)]
    sizes += ["--classifiers", classifiers]
    monkeypatch.setattr(sys, "argv", ["soak.py", *sizes])
    soak.main()  # what memory does in so few is not its business
    summary = json.loads(out.read_text())
    assert summary["predictions"] >= 500
    assert summary["refused"] > 0
    counted = [point["predictions"] for point in summary["curve"]]
    assert counted == sorted(set(counted))
    for name in ("hooks", "attributes", "trained", "gradients", "weights"):
        assert summary["start"][name] == summary["end"][name]
    assert "predictions on" in capsys.readouterr().out
    assert "predictions in one process" in (tmp_path / "soak.svg").read_text()


def test_the_page_quotes_the_last_run(soak: Any) -> None:
    summary = json.loads((ROOT / "docs" / "soak.json").read_text())
    assert soak.summary(summary) in (ROOT / "docs" / "reliability.md").read_text()
    assert soak.verdict(summary) == 0
    assert summary["predictions"] >= 100_000
