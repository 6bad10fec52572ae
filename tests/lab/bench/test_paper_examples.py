"""Every example runs on a small copy of its dataset, with the embedded model."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import dataset_fixtures
import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
DATASETS = {
    "celeba": ("CelebA hair color x gender", dataset_fixtures.celeba_official),
    "utkface": ("UTKFace age x race", dataset_fixtures.utkface),
    "fairface": ("FairFace gender x race", dataset_fixtures.fairface),
    "waterbirds": ("Waterbirds bird type x background", dataset_fixtures.waterbirds),
}


def start(name: str, *words: object) -> None:
    before = sys.argv
    sys.argv = [name, *map(str, words)]
    try:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    finally:
        sys.argv = before


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset(
    name: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    title, write = DATASETS[name]
    data = write(tmp_path / "data")
    start(
        name, data, "--model", model, "--images", 4, "--seeds", 1, "--views", 2,
        "--out", tmp_path / "out",
    )  # fmt: skip
    text = capsys.readouterr().out
    assert f"\n{title}\nsetting | Acc | Acc, paper | WGA | " in text
    assert "FairTPT-MO" in text
    assert (tmp_path / "out" / "report.html").is_file()


def test_own_folder(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, labels = dataset_fixtures.folder(tmp_path / "pets", 8)
    start("own_folder", images, labels, "--model", model, "--views", 4, "--out", tmp_path / "out")
    assert "FairTPT" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*DATASETS, "own_folder"])
def test_examples_are_short(name: str) -> None:
    most = 30 if name in DATASETS else 60
    assert len((EXAMPLES / f"{name}.py").read_text("utf-8").splitlines()) <= most
