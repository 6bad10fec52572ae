"""Label files that hold no labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dataset_fixtures as fixtures

from fair_tta.datasets import read_folder


def labels(content: bytes, **options: Any) -> Callable[[Path], object]:
    options = {"target_column": "animal", "sensitive_columns": "place", **options}

    def read(folder: Path) -> object:
        fixtures.folder(folder)
        (folder / "labels.csv").write_bytes(content)
        return read_folder(folder / "images", folder / "labels.csv", **options)

    return read


CASES: dict[str, Callable[[Path], object]] = {
    "an empty file": labels(b""),
    "blank lines": labels(b" \n\n"),
    "a Git LFS pointer": labels(b"version https://git-lfs.github.com/spec/v1\noid"),
    "a damaged sheet": labels(b"PK\3\4\0\0\0xl/workbook.xml"),
    "JSON lines that are no objects": labels(b'{"path": "0.png"}\n[1]\n'),
    "an old Excel file": labels(b"\xd0\xcf\x11\xe0\0\0"),
    "a web page": labels(b"<HTML lang=en><title>\n Sign in </title>"),
    "a quote that is not closed": labels(b'path,animal,place\n0.png,"cat,in\n'),
    "a header that is not closed": labels(b'"path\n'),
    "a separator without a header": labels(b"sep=;\n"),
    "a header without rows": labels(b"path,animal,place\n"),
    "rows without images": labels(b"path,animal,place\ngone.png,cat,in\n"),
    "a column that is missing": labels(b"path,animal,place\n", sensitive_columns="a"),
    "a column that comes twice": labels(b"path,animal,place,animal\n0.png,cat,in,dog"),
}
