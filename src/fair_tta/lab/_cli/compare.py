"""``fair-tta compare``: files of predictions, measured side by side without a model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fair_tta._io import text_cell
from fair_tta.lab._cli import audit as audits
from fair_tta.lab._cli.console import exits, usage
from fair_tta.lab._cli.names import parse_renames

if TYPE_CHECKING:
    from fair_tta.lab.data._labels import LabelValues
    from fair_tta.lab.data._records import Record
    from fair_tta.lab.folder import FolderAudit


def compare_command(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="CSV files as `fair-tta predict --csv` writes them, or with any column of "
            "answers; the first is what others are compared with.",
        ),
    ],
    sensitive_column: audits.SensitiveColumn,
    labels: Annotated[
        Path | None, typer.Option(help="CSV file.", show_default="columns of the first FILE")
    ] = None,
    target_column: audits.TargetColumn = "class",
    answer_column: Annotated[
        list[str], typer.Option(metavar="COLUMN", help="Column of the answers; or one for each.")
    ] = ["label"],  # noqa: B006
    path_column: audits.PathColumn = None,
    cluster_column: audits.ClusterColumn = None,
    rename: audits.Rename = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Folder for audit and report.")] = None,
    fail_if: audits.FailIf = [],  # noqa: B006
    fail_on: audits.FailOn = "the last FILE",
) -> None:
    """Compare files of predictions on the same images, group by group, without a model.

    Rows are matched by path or id. Those that are not in all files are left out and counted; the
    exit code is then 4, or 5 if a --fail-if holds. One FILE alone is measured.
    """
    if len(answer_column) not in (1, len(files)):
        raise typer.BadParameter("give one, or one for each FILE.", param_hint="--answer-column")
    with exits(context, labels_csv="--labels"):
        from msgspec import structs

        from fair_tta.auditing._judge import judge, read_thresholds
        from fair_tta.lab.data._labels import Labels
        from fair_tta.lab.folder import AUDIT, CARD, REPORT
        from fair_tta.lab.report import write_report

        pairs = [*zip(files, answer_column * len(files), strict=False)]
        names = [file.stem for file, _ in pairs]
        if len(set(names)) < len(names):
            names = [f"{file}: {column}" for file, column in pairs]
        judged = names[-1] if fail_on == "the last FILE" else fail_on
        limits = usage("--fail-if / --fail-on", read_thresholds, fail_if, judged, names)
        renames = usage("--rename", parse_renames, rename)
        columns = target_column, (*sensitive_column,), path_column, renames, (), cluster_column
        values = Labels(Path(), labels or files[0], *columns).scan()
        runs = [Labels(Path(), *pair, (), path_column).scan() for pair in pairs]
        found = _measured(values, dict(zip(names, runs, strict=True)))
        document = found.audit.document
        document = structs.replace(document, thresholds=tuple(judge(t, document) for t in limits))
        found = replace(found, audit=replace(found.audit, document=document), out=out)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            found.audit.save(out / AUDIT)
            for name in (REPORT, CARD):
                write_report(found.audit, out / name)
        audits.conclude(found)


def _measured(values: LabelValues, runs: Mapping[str, LabelValues]) -> FolderAudit:
    """All runs on the rows that every file has, and what was left out."""
    from fair_tta.auditing import audit, compare
    from fair_tta.errors import FairTTAError, SmallGroupWarning
    from fair_tta.lab.data._records import Problem, ProblemKind, collect
    from fair_tta.lab.folder import FolderAudit

    sources = {values.labels.file.name: values, **runs}
    records, problems = collect(values.records(check_images=False))
    answers = [collect(of.records(check_images=False))[0] for of in runs.values()]
    # `predict --csv` writes names as spreadsheets and terminals can take them
    names = {text_cell(record.target): record.target for record in records}
    answers = [[replace(r, target=names.get(r.target, r.target)) for r in of] for of in answers]
    labels = _by_key(records, [str(text_cell(record.key)) for record in answers[0]])
    tables = [labels, *(_by_key(some, labels) for some in answers)]
    for key in dict.fromkeys(chain(*tables)):
        lacking = [name for name, of in zip(sources, tables, strict=True) if key not in of]
        if lacking:
            what = f"{key} (not in {', '.join(lacking)})"
            problems = problems.add(Problem(ProblemKind.UNMATCHED, what))
    keys = [key for key in labels if all(key in of for of in tables)]
    if not keys:
        text = "no row is in all files: match them by another column (`path_column`)."
        raise FairTTAError("\n".join([text, *problems.lines()]))
    hashes = {name: of.sha256 for name, of in sources.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)  # the audit has them
        measured = [
            audit(
                [labels[key].target for key in keys],
                [of[key].target for key in keys],
                {a: [labels[key].sensitive[a] for key in keys] for a in values.labels.sensitive},
                name=name,
                targets=sorted({of[key].target for of in tables for key in keys}),
                clusters=[labels[key].cluster for key in keys],
                provenance={"sha256": hashes, "problems": problems.to_dict()},
            )
            for name, of in zip(runs, tables[1:], strict=True)
        ]
    return FolderAudit(compare(measured), problems, None, {})


def _by_key(records: Sequence[Record], known: Collection[str]) -> dict[str, Record]:
    """Records by path, without the folders that all of them begin with where more are known so."""
    known = set(known)
    parts = [str(text_cell(record.key)).split("/") for record in records]
    shared = len(os.path.commonprefix([part[:-1] for part in parts]))  # noqa: RUF071, of lists
    cut = [["/".join(part[depth:]) for part in parts] for depth in range(shared + 1)]
    best = max(cut, key=lambda keys: len(known.intersection(keys)))
    return dict(zip(best, records, strict=True))
