"""Small copies of the paper's datasets, with drawn pictures, in the layouts found in the wild.

Every function writes a folder and returns what it has written, so that tests need not read it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw

CELEBA_COLUMNS = (
    "5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald Bangs Big_Lips Big_Nose "
    "Black_Hair Blond_Hair Blurry Brown_Hair Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee "
    "Gray_Hair Heavy_Makeup High_Cheekbones Male Mouth_Slightly_Open Mustache Narrow_Eyes No_Beard "
    "Oval_Face Pale_Skin Pointy_Nose Receding_Hairline Rosy_Cheeks Sideburns Smiling Straight_Hair "
    "Wavy_Hair Wearing_Earrings Wearing_Hat Wearing_Lipstick Wearing_Necklace Wearing_Necktie Young"
).split()
FAIRFACE_RACES = (
    "White", "Black", "Latino_Hispanic", "East Asian", "Southeast Asian", "Indian",
    "Middle Eastern",
)  # fmt: skip
FAIRFACE_AGES = (
    "0-2", "3-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "more than 70"
)  # fmt: skip


class Face(NamedTuple):
    """A row of CelebA: yes or no for the attributes that matter, and the split as a number."""

    name: str
    split: int
    blond: bool
    smiling: bool
    makeup: bool
    glasses: bool
    male: bool


def draw(path: Path, number: int = 0) -> Path:
    """A picture of a few pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new(
        "RGB", (12, 12), (40 * number % 256, 90, 255 - 20 * number % 256)
    )
    ImageDraw.Draw(picture).rectangle(
        (number % 8, 3, number % 8 + 4, 9), fill=(250, 220, 10)
    )
    picture.save(path)
    return path


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> Path:
    """A CSV file with commas."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def celeba_faces() -> list[Face]:
    """Every combination of the five attributes; two of three in the test split."""
    answers = product((False, True), repeat=5)
    return [
        Face(f"{i:06}.jpg", (2, 2, i // 3 % 2)[i % 3], *yes)
        for i, yes in enumerate(answers, 1)
    ]


def celeba_values(face: Face) -> dict[str, int]:
    """All forty attributes as -1 or 1; those that do not matter vary with the name."""
    values = {
        name: 1 - 2 * ((i + int(face.name[:6])) % 2)
        for i, name in enumerate(CELEBA_COLUMNS)
    }
    matter = zip(
        ("Blond_Hair", "Smiling", "Heavy_Makeup", "Eyeglasses", "Male"),
        face[2:],
        strict=True,
    )
    return {**values, **{name: 1 if yes else -1 for name, yes in matter}}


def celeba_text(
    base: Path, *, attributes: str = "", partition: str = "", images: str = ""
) -> None:
    """The official text files, with runs of spaces, a trailing space, and the official count."""
    lines = ["202599", " ".join(CELEBA_COLUMNS) + " "]
    for face in celeba_faces():
        values = "".join(f" {value:>2}" for value in celeba_values(face).values())
        lines.append(f"{face.name} {values}")
        draw(base / images / "img_align_celeba" / face.name, face.split)
    for folder in (attributes, partition):
        (base / folder).mkdir(parents=True, exist_ok=True)
    (base / attributes / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    splits = "".join(f"{face.name} {face.split}\n" for face in celeba_faces())
    (base / partition / "list_eval_partition.txt").write_text(splits)


def celeba_flat(root: Path) -> Path:
    """Everything in one folder."""
    celeba_text(root)
    return root


def celeba_official(root: Path) -> Path:
    """The folders of the official release."""
    celeba_text(root / "CelebA", attributes="Anno", partition="Eval", images="Img")
    return root


def celeba_torchvision(root: Path) -> Path:
    """What torchvision leaves in its `root`."""
    celeba_text(root / "celeba")
    (root / "celeba" / "identity_CelebA.txt").write_text("000001.jpg 2880\n")
    return root


def celeba_kaggle(root: Path) -> Path:
    """The CSV files and the doubled folder of Kaggle's copy."""
    faces = celeba_faces()
    rows = [[f.name, *celeba_values(f).values()] for f in faces]
    write_csv(root / "list_attr_celeba.csv", [["image_id", *CELEBA_COLUMNS], *rows])
    splits = [[face.name, face.split] for face in faces]
    write_csv(root / "list_eval_partition.csv", [["image_id", "partition"], *splits])
    for face in faces:
        draw(root / "img_align_celeba" / "img_align_celeba" / face.name, face.split)
    return root


CELEBA_LAYOUTS = {
    "flat": celeba_flat,
    "official": celeba_official,
    "torchvision": celeba_torchvision,
    "kaggle": celeba_kaggle,
}

UTKFACE_MALFORMED = (
    "39_1_20170116174525125.jpg.chip.jpg",
    "61_1_20170109142408075.jpg.chip.jpg",
    "61_1_20170109150557335.jpg.chip.jpg",
)


def utkface_names() -> list[tuple[int, int, int, str]]:
    """Age, gender, race and the name without its ending."""
    people = product((1, 25, 39, 40, 41, 116), (0, 1), (0, 1, 2, 3, 4))
    return [(a, g, r, f"{a}_{g}_{r}_2017{i:013}") for i, (a, g, r) in enumerate(people)]


def utkface(root: Path, *, parts: bool = False, aligned: bool = True) -> Path:
    """Faces of all kinds and the three malformed names, in one folder or in three."""
    ending = ".jpg.chip.jpg" if aligned else ".jpg"
    names = [name + ending for *_, name in utkface_names()] + list(UTKFACE_MALFORMED)
    for i, name in enumerate(names):
        draw(root / f"part{i % 3 + 1}" / name if parts else root / name, i)
    return root


def fairface_rows(folder: str, prefix: str = "") -> list[list[str]]:
    """One face of each age, gender and race."""
    people = product(FAIRFACE_AGES, ("Male", "Female"), FAIRFACE_RACES)
    return [
        [f"{prefix}{folder}/{i}.jpg", age, gender, race, str(i % 2 == 0)]
        for i, (age, gender, race) in enumerate(people, 1)
    ]


def fairface(root: Path, *, images: str = "", prefix: str = "") -> Path:
    """Labels and pictures of both splits; `images` is the folder of the pictures."""
    for folder in ("train", "val"):
        rows = fairface_rows(folder, prefix)
        rows = rows[:7] if folder == "train" else rows
        header = ["file", "age", "gender", "race", "service_test"]
        write_csv(root / f"fairface_label_{folder}.csv", [header, *rows])
        for i, _ in enumerate(rows, 1):
            draw(root / images / folder / f"{i}.jpg", i)
    return root


def waterbirds(base: Path) -> Path:
    """One bird for each split, y and place, and some more in the test split."""
    combos = [*product((0, 1, 2), (0, 1), (0, 1)), (2, 0, 1), (2, 1, 1), (2, 1, 1)]
    rows: list[list[object]] = []
    for i, (split, y, background) in enumerate(combos, 1):
        name = f"{i:03}.Some_Bird/Some_Bird_{i:04}.jpg"
        rows.append(
            [
                i,
                name,
                y,
                split,
                background,
                "/o/ocean/1.jpg" if background else "/b/bamboo/1.jpg",
            ]
        )
        draw(base / name, i)
    header = ["img_id", "img_filename", "y", "split", "place", "place_filename"]
    write_csv(base / "metadata.csv", [header, *rows])
    return base


def folder(root: Path, n: int = 6) -> tuple[Path, Path]:
    """Images and a file of labels: returns the folder and the file."""
    rows = [
        [f"{i}.png", ("cat", "dog")[i % 2], ("indoors", "outdoors")[i // 2 % 2]]
        for i in range(n)
    ]
    for i, (name, *_) in enumerate(rows):
        draw(root / "images" / name, i)
    labels = write_csv(root / "labels.csv", [["path", "animal", "place"], *rows])
    return root / "images", labels
