"""Every example of a dataset runs on a small copy of it, with the embedded model."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import dataset_fixtures
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
DATASETS = {
    "celeba": ("CelebA hair color x gender", dataset_fixtures.celeba_official),
    "utkface": ("UTKFace age x race", dataset_fixtures.utkface),
    "fairface": ("FairFace gender x race", dataset_fixtures.fairface),
    "waterbirds": ("Waterbirds bird type x background", dataset_fixtures.waterbirds),
}

pytestmark = [
    pytest.mark.usefixtures("loaded_once"),
    pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning"),
]


def start(monkeypatch: pytest.MonkeyPatch, name: str, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset(
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    title, write = DATASETS[name]
    data = write(tmp_path / "data")
    start(monkeypatch, name, data, "--model", "miniature", "--images", 8, "--views", 2)
    text = capsys.readouterr().out
    assert text.startswith(f"{title}\nNot measurable with these images: ")
    assert " images\nZeroShot\n  accuracy " in text
    assert "\nFairTPT\n  accuracy " in text


def test_own_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = dataset_fixtures.folder(tmp_path / "pets", 8)
    start(
        monkeypatch, "own_folder", images, labels, "--model", "miniature", "--views", 4
    )
    text = capsys.readouterr().out
    assert text.startswith("no problems\nNot measurable with these images: ")
    assert " images\nZeroShot\n  accuracy " in text
    assert "\nFairTPTMO\n" in text
