"""Datasets, label files and feature files that cannot be read."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dataset_fixtures as fixtures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from internals import (
    PAPER_TASKS,
    FeatureFile,
    Labels,
    LabelTable,
    Source,
    read_features,
    write_labels_of_folders,
)
from safetensors.torch import save_file

from fair_tta.datasets import (
    BenchmarkTask,
    read_dataset,
    read_folder,
    read_text_features,
)

FAIRFACE, CELEBA, _, WATERBIRDS, UTKFACE = PAPER_TASKS[:5]
FAIRFACE_AGE = BenchmarkTask.find("FairFace", "age", "race")
VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3) + 1
WEB_PAGE = """
<!DOCTYPE html><html><head><title>Google Drive - Quota exceeded</title></head></html>"""

Case = Callable[[Path], object]


def celeba_without(*files: str, **changes: str) -> Case:
    """Return a case with a CelebA that lacks files, or has other texts in them."""

    def read(folder: Path) -> object:
        fixtures.celeba_flat(folder)
        for file in files:
            (folder / file).rename(folder / f"renamed-{file}")
        for stem, text in changes.items():
            (folder / f"{stem}.txt").write_text(text)
        return read_dataset(CELEBA, folder)

    return read


def celeba_with_archive(folder: Path) -> object:
    fixtures.celeba_flat(folder)
    (folder / "img_align_celeba").rename(folder / "elsewhere")
    (folder / "img_align_celeba.zip").touch()
    return read_dataset(CELEBA, folder)


def celeba_with_empty_images(folder: Path) -> object:
    fixtures.celeba_flat(folder)
    for path in (folder / "img_align_celeba").iterdir():
        path.write_bytes(b"")
    return read_dataset(CELEBA, folder)


def dataset_of_file(folder: Path) -> object:
    (folder / "all.zip").touch()
    return read_dataset(WATERBIRDS, folder / "all.zip")


def fairface(task: BenchmarkTask = FAIRFACE, **options: Any) -> Case:
    return lambda folder: read_dataset(task, fixtures.fairface(folder), **options)


def label_file(
    rows: Sequence[Sequence[str]], use: Callable[[Labels], object], **options: Any
) -> Case:
    """Return a case with labels of an animal and a place, whose first column is the path."""

    def read(folder: Path) -> object:
        with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
        features = options.get("features")
        if features is not None:
            options["features"] = replace(features, path=folder / features.path)
        arguments = (folder, folder / "labels.csv", "animal", ("place",))
        return use(Labels(*arguments, **options))

    return read


def animals(*values: str) -> list[list[str]]:
    rows = [[f"{i}.png", value, "in"] for i, value in enumerate(values)]
    return [["path", "animal", "place"], *rows]


def allow_cat(labels: Labels) -> object:
    named = {"animal": ["cat"], "place": ["in"]}
    return labels.scan().allowed_values(named, skip_unknown=False)


def features_with(ids: list[str] | None) -> FeatureFile:
    return FeatureFile(Path("vectors.npz"), VECTORS, ids)  # type: ignore[arg-type]


def npz(**arrays: Any) -> Case:
    def read(folder: Path) -> object:
        np.savez(folder / "f.npz", **arrays)
        return read_features(folder / "f.npz")

    return read


def parquet(**columns: Any) -> Case:
    def read(folder: Path) -> object:
        pq.write_table(pa.table(columns), folder / "f.parquet")
        return read_features(folder / "f.parquet")

    return read


def safetensors(read: Callable[[Path], object], **metadata: str) -> Case:
    def write_and_read(folder: Path) -> object:
        path = folder / "f.safetensors"
        save_file({"features": torch.tensor(VECTORS)}, path, metadata)
        return read(path)

    return write_and_read


def damaged(name: str) -> Case:
    def read(folder: Path) -> object:
        (folder / name).write_bytes(b"nonsense")
        return read_features(folder / name)

    return read


def prompts_without_vector(folder: Path) -> object:
    vectors = pa.array([[1.0, 2.0], None])
    pq.write_table(
        pa.table({"prompts": ["a", "b"], "v": vectors}), folder / "t.parquet"
    )
    return read_text_features(folder / "t.parquet")


def folders_as_labels(*files: str, existing: str | None = None) -> Case:
    def write(folder: Path) -> object:
        for file in files:
            fixtures.draw(folder / "photos" / file)
        if existing is not None:
            (folder / "folder-labels.csv").write_text(existing)
        return write_labels_of_folders(folder / "photos", ["animal", "place"], folder)

    return write


def table_of_text(text: str, *columns: str) -> Case:
    def read(folder: Path) -> object:
        (folder / "labels.csv").write_text(text)
        return LabelTable(folder / "labels.csv", columns)

    return read


def find_label(labels: Labels) -> object:
    return labels.scan().labels_in("animal")


scan = Labels.scan
with_cluster = [[*row, "p1"] for row in animals("cat", "dog")]
with_cluster[0][-1] = "person"
with_cluster[1][-1] = "P1"

CASES: dict[str, Case] = {
    # Datasets
    "a task that is not in the paper": lambda _: BenchmarkTask.find(
        "CelebA", "age", "gender"
    ),
    "no folder": lambda folder: read_dataset(UTKFACE, folder / "nowhere"),
    "an archive instead of a folder": dataset_of_file,
    "an empty folder": lambda folder: read_dataset(CELEBA, folder),
    "a folder of another dataset": lambda folder: read_dataset(
        WATERBIRDS, fixtures.fairface(folder)
    ),
    "CelebA without images": celeba_without("img_align_celeba"),
    "CelebA with an archive of its images": celeba_with_archive,
    "CelebA with empty images": celeba_with_empty_images,
    "CelebA without its file of splits": celeba_without("list_eval_partition.txt"),
    "CelebA whose download failed": celeba_without(list_attr_celeba=WEB_PAGE),
    "CelebA whose splits are a page without a title": celeba_without(
        list_eval_partition="<html>no title"
    ),
    "CelebA with other attributes": celeba_without(
        list_attr_celeba="1\nFair_Hair Female\n000001.jpg 1 1\n"
    ),
    "CelebA with a label file that ends after its count": celeba_without(
        list_attr_celeba="202599\n"
    ),
    "UTKFace without an image": lambda folder: read_dataset(UTKFACE, folder),
    "the test split of FairFace": fairface(split="test"),
    "a padding that is not there": fairface(padding="wide"),
    "ages that cut a bracket of FairFace": fairface(FAIRFACE_AGE, young_below=35),
    "ages below 1": fairface(young_below=0),
    "ages that overlap": fairface(young_below=40, old_from=39),
    "an unknown split": fairface(split="dev"),
    "an unknown padding": fairface(padding="both"),
    "a padding without FairFace": lambda folder: read_dataset(
        CELEBA, folder, padding="wide"
    ),
    "a split of UTKFace": lambda folder: read_dataset(UTKFACE, folder, split="test"),
    "a task of another dataset": lambda folder: read_dataset(
        replace(FAIRFACE, dataset="ImageNet"), folder
    ),
    "a task about other attributes": fairface(replace(FAIRFACE, target="height")),
    "a task for the reader of another dataset": lambda _: Source(
        "CelebA", "", ""
    ).check_task(FAIRFACE, []),
    "a sample of no image": lambda folder: read_dataset(
        UTKFACE, fixtures.utkface(folder)
    ).sample(0),
    # Label files
    "no sensitive column": lambda folder: read_folder(
        folder, folder / "l.csv", target_column="y", sensitive_columns=[]
    ),
    "no such column": table_of_text("path,animal\n", "animals"),
    "one column for two purposes": lambda folder: Labels(folder, folder, "y", ("y",)),
    "images that are no folder": lambda folder: Labels(
        folder / "none", folder, "y", ("s",)
    ).scan(),
    "labels that are no file": lambda folder: Labels(
        folder, folder, "y", ("s",)
    ).scan(),
    "a column of paths that cannot be found": label_file(
        [["where", "animal", "place"], ["0", "cat", "in"], ["1", "dog", "in"]], scan
    ),
    "values that were not named": label_file(
        animals("cat", "CAT", *[f"dog {i}" for i in range(12)]), allow_cat
    ),
    "values that read alike": label_file(
        animals("circle", "CIRCLE", "circle", "caf\u00e9", "cafe\u0301"), find_label
    ),
    "more values than labels have": label_file(
        animals(*map(str, range(1001))), find_label
    ),
    "a renamed value that is not there": label_file(
        animals("cat"), scan, rename={"animal": {"dog": "cat"}}
    ),
    "a renamed column that is not read": label_file(
        animals("cat"), scan, rename={"size": {"1": "2"}}
    ),
    "clusters that read alike": label_file(with_cluster, scan, cluster="person"),
    "folders that are not deep enough": folders_as_labels("cat/1.png"),
    "an existing file of folder labels": folders_as_labels(
        "cat/in/1.png", existing="path,size\n"
    ),
    # Features
    "labels with unknown ids": label_file(
        animals("cat", "cat", "dog", "dog"),
        scan,
        features=features_with(["a", "b", "c", "d"]),
    ),
    "labels with several columns of ids": label_file(
        [
            ["x", "y", "animal", "place"],
            ["0", "1", "cat", "in"],
            ["1", "0", "dog", "in"],
        ],
        scan,
        features=features_with(["0", "1", "2", "3"]),
    ),
    "features without ids and labels with names": label_file(
        animals("cat", "cat", "dog", "dog"), scan, features=features_with(None)
    ),
    "features without ids and other labels": label_file(
        [["animal", "place"], ["cat", "in"]], scan, features=features_with(None)
    ),
    "a feature file of another kind": lambda folder: read_features(folder / "f.csv"),
    "no array that holds vectors": npz(a=VECTORS, b=VECTORS),
    "features that are not rows": npz(features=VECTORS[0]),
    "features that are integers": npz(features=VECTORS.astype(int)),
    "features of no image": npz(features=VECTORS[:0]),
    "features without a direction": npz(features=VECTORS * [[1], [0], [np.nan], [1]]),
    "ids that repeat": npz(features=VECTORS, ids=["a", "a", "b", "b"]),
    "fewer ids than vectors": npz(features=VECTORS, ids=["a"]),
    "pickled ids": npz(features=VECTORS, ids=np.array([{}, 1, 2, 3], dtype=object)),
    "a damaged file of features": damaged("f.npz"),
    "vectors of different lengths": parquet(id=["a", "b"], v=[[1.0], [1.0, 2.0]]),
    "a null vector without an id": parquet(v=pa.array([[1.0, 2.0], None])),
    "a null id": safetensors(read_features, ids=json.dumps(["a", None, "c", "d"])),
    "ids by a name that is not there": safetensors(
        lambda path: read_features(path, id_column="nr")
    ),
    "text features without prompts": safetensors(read_text_features),
    "a prompt without a vector": prompts_without_vector,
}
