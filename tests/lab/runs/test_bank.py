"""The bank: features come back, whatever happens to its files."""

from __future__ import annotations

import copy
import os
import time
from pathlib import Path

import bench_tiny
import numpy as np
import pytest
import torch
from torch import Tensor

from fair_tta._identity import feature_identity
from fair_tta._images.views import AugMix
from fair_tta._io import write_whole
from fair_tta._linalg import unit
from fair_tta.errors import FairTTAError
from fair_tta.lab._runs.bank import Bank, bytes_needed
from fair_tta.lab._runs.job import load_backend
from fair_tta.lab.bench._sources import miniature_reader, miniature_tasks

FACTS = {"format": "x", "dim": 5}
NAMES = [f"image {i}" for i in range(7)]


class Source:
    """Features by name, and how often they were asked for."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.all = unit(torch.randn(len(NAMES), 3, 5, generator=generator))
        self.asked: list[str] = []

    def of(self, names: list[str]) -> tuple[list[str], Encode]:
        return names, Encode(self, names)


class Encode:
    def __init__(self, source: Source, names: list[str]) -> None:
        self.source, self.names = source, names

    def __call__(self, places: list[int]) -> Tensor:
        wanted = [self.names[i] for i in places]
        self.source.asked += wanted
        return torch.stack([self.source.all[NAMES.index(n)] for n in wanted])


def check(bank: Bank, source: Source, names: list[str]) -> None:
    found = bank.get(*source.of(names))[0]
    expected = torch.stack([source.all[NAMES.index(n)] for n in names])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(found.shape[:2]))


def test_features_are_made_once(tmp_path: Path) -> None:
    source, bank = Source(), Bank(tmp_path, FACTS, 0)
    check(bank, source, NAMES[:4])
    check(bank, source, [NAMES[5], NAMES[2], NAMES[5], NAMES[0]])
    assert source.asked == [*NAMES[:4], NAMES[5]]
    again = Bank(tmp_path, FACTS, 0)
    assert NAMES[5] in again
    assert NAMES[6] not in again
    check(again, source, NAMES)
    assert source.asked == [*NAMES[:4], NAMES[5], NAMES[4], NAMES[6]]
    features, seconds = bank.get(*source.of(NAMES[:4]))
    torch.testing.assert_close(features, again.get(*source.of(NAMES[:4]))[0])
    assert len(seconds) == 4
    assert min(seconds) > 0


def test_what_was_just_made_is_as_exact_as_what_was_read(tmp_path: Path) -> None:
    source, bank = Source(), Bank(tmp_path, FACTS, 0)
    made, _ = bank.get(*source.of(NAMES))
    assert torch.equal(made, Bank(tmp_path, FACTS, 0).get(*source.of(NAMES))[0])
    assert torch.equal(made[2:4], bank.get(*source.of(NAMES[2:4]))[0])


def test_banks_of_other_facts_or_seeds_are_other_banks(tmp_path: Path) -> None:
    source = Source()
    check(Bank(tmp_path, FACTS, 0), source, NAMES[:2])
    assert NAMES[0] not in Bank(tmp_path, FACTS, 1)
    assert NAMES[0] not in Bank(tmp_path, {**FACTS, "weights": "y"}, 0)
    assert NAMES[0] in Bank(tmp_path, dict(reversed(FACTS.items())), 0)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_files_are_made_again(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    source, bank = Source(), Bank(tmp_path, FACTS, 0)
    check(bank, source, NAMES)
    paths = [bank.folder / f"{name}.features" for name in NAMES]
    for path in paths[:3]:
        data = bytearray(path.read_bytes())
        if seed % 3 == 0:
            data = data[: random.integers(len(data))]  # torn
        elif seed % 3 == 1:
            data[random.integers(len(data))] ^= 1 << random.integers(8)  # one bit
        else:
            data[-40:] = b"?" * 40
        path.write_bytes(bytes(data))
    paths[3].write_bytes(paths[4].read_bytes())  # another image's
    source.asked.clear()
    check(bank, source, NAMES)
    check(Bank(tmp_path, FACTS, 0), source, NAMES)
    assert source.asked == NAMES[:4]


def test_what_kills_have_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    folder = Bank(tmp_path, FACTS, 0).folder
    for name, age in (("old", 2 * 86400), ("young", 60)):
        part = folder / f".{name}.part"
        part.write_bytes(b"half a file")
        os.utime(part, (time.time() - age,) * 2)
    Bank(tmp_path, FACTS, 0)
    assert [path.name for path in folder.glob(".*")] == [".young.part"]


def test_drawing_the_same_pictures_twice_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, task = miniature_reader(tmp_path, 3), miniature_tasks()[0]
    replace = os.replace

    def other_first(old: Path, new: Path) -> None:
        if new.name == "labels.csv":  # another process comes in between
            monkeypatch.setattr("os.replace", replace)
            assert len(read(task)) == 3
        replace(old, new)

    monkeypatch.setattr("os.replace", other_first)
    assert len(read(task)) == 3
    assert len(list((tmp_path / f"{task.target}-3").iterdir())) == 4


def test_a_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="disk full"):
        write_whole(tmp_path / "a", b"b")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_another_process_has_just_written_is_taken(tmp_path: Path) -> None:
    source, mine, other = Source(), Bank(tmp_path, FACTS, 0), Bank(tmp_path, FACTS, 0)
    check(other, source, NAMES[:3])
    check(mine, source, NAMES[:3])
    assert source.asked == NAMES[:3]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError("disk full"), FairTTAError),
        (KeyboardInterrupt("disk full"), KeyboardInterrupt),
    ],
)
def test_features_that_cannot_be_written_leaves_nothing(
    error: BaseException,
    told: type[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, bank = Source(), Bank(tmp_path, FACTS, 0)

    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(told, match="disk full"):
        bank.get(*source.of(NAMES))
    assert [p.name for p in bank.folder.iterdir()] == ["bank.json"]


def test_identity(tmp_path: Path) -> None:
    model = bench_tiny.save_model(tmp_path / "clip")
    backend = load_backend(model)
    twin, other = copy.deepcopy(backend), copy.deepcopy(backend)
    facts = feature_identity(backend, AugMix(6))
    assert str(tmp_path) not in str(facts)
    assert facts == feature_identity(twin, AugMix(6))
    assert facts["dim"] == 16
    assert bytes_needed(facts, 6, 10) == 10 * (2 * 6 * 16 + 128)
    different = [
        feature_identity(backend, AugMix(7)),
        feature_identity(backend, AugMix(6, severity=2)),
    ]
    with torch.no_grad():
        next(twin.model.parameters()).add_(1e-3)  # type: ignore[attr-defined]
    different.append(feature_identity(twin, AugMix(6)))
    other.image_processor.image_mean = [0.1, 0.2, 0.3]  # type: ignore[attr-defined]
    different.append(feature_identity(other, AugMix(6)))
    assert all(facts != other for other in different)
    assert len({str(other) for other in different}) == 4

    class Hidden:
        """A model that shows neither weights nor preprocessing."""

        name, encode_images = "hidden", backend.encode_images

    hidden = feature_identity(Hidden(), AugMix(6))
    assert hidden["weights"].startswith("features ")
    assert hidden["preprocessing"] is None
