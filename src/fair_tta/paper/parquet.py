"""The rows of a table as a parquet file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from fair_tta.data import Record
from fair_tta.errors import require
from fair_tta.files.whole_files import whole_file
from fair_tta.paper.table_run import Chunk, TableRun
from fair_tta.runs.answer import Answer
from fair_tta.runs.settings import Setting
from fair_tta.runs.store import Store


def write_parquet(table: TableRun, store: Store, path: str | os.PathLike[str]) -> None:
    """A row for each image, setting, seed and task; a row group for each chunk of images.

    The order of rows is that of the plan and there is nothing in it that a second run changes, so
    the same run always gives the same rows.
    """
    pyarrow = require("pyarrow", "bench")
    parquet = require("pyarrow.parquet", "bench")
    text, number, numbers = pyarrow.string(), pyarrow.float64(), pyarrow.list_(pyarrow.float64())
    kinds = {
        "dataset": text, "target": text, "sensitive": text, "seed": pyarrow.int64(),
        "setting": text, "adapter": text, "image": text, "truth": text, "group": text,
        "answer": text, "probabilities": numbers, "sensitive_probabilities": numbers,
        "entropy": number, "sensitive_entropy": number, "learning_rate": number,
        "relative_step": number, "warnings": text,
    }  # fmt: skip
    schema = pyarrow.schema(list(kinds.items()))
    with (
        whole_file(path) as part,
        parquet.ParquetWriter(part, schema, compression="zstd") as writer,
    ):
        for chunk, by_setting in table.rows(store):
            rows = [
                row
                for setting, found in zip(table.grid.settings, by_setting, strict=True)
                for row in _rows(table, chunk, setting, found)
            ]
            columns = {name: [row[name] for row in rows] for name in kinds}
            writer.write_table(pyarrow.table(columns, schema=schema))


def _rows(
    table: TableRun, chunk: Chunk, setting: Setting, found: list[tuple[Record, Answer]]
) -> Iterator[dict[str, Any]]:
    task, adapter = table.parts[chunk.task].task, repr(setting.adapter)
    for record, answer in found:
        entropies = list(answer.sensitive_entropy.values())
        yield {
            "dataset": task.dataset,
            "target": task.target,
            "sensitive": " x ".join(task.sensitive),
            "seed": chunk.seed,
            "setting": setting.name,
            "adapter": adapter,
            "image": record.key,
            "truth": record.target,
            "group": " x ".join(record.sensitive.values()),
            "answer": answer.label,
            "probabilities": answer.probabilities,
            "sensitive_probabilities": [p for values in answer.sensitive.values() for p in values],
            "entropy": answer.entropy,
            "sensitive_entropy": sum(entropies) / len(entropies) if entropies else None,
            "learning_rate": answer.learning_rate,
            "relative_step": answer.relative_step,
            "warnings": "; ".join(answer.warnings),
        }
