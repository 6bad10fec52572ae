"""Put runs on the same images side by side: `fair_tta.compare`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce

from msgspec import structs

from fair_tta._identity import ORIGIN
from fair_tta.auditing import _document as doc
from fair_tta.auditing._audit import Audit
from fair_tta.auditing._measure import table_warnings, unknown_answer_warnings
from fair_tta.auditing._run import (
    compare_with_first,
    corrected_differences,
    figures_of_run,
)
from fair_tta.errors import FairTTAError
from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._clusters import join_clusters, same_clusters
from fair_tta.metrics.intervals._bootstrap import Bootstrap


def compare(audits: Iterable[Audit]) -> Audit:
    """Put runs on the same images side by side; the first is what the others are compared with.

    Differences have paired intervals: each image counts with the answers of both runs.
    """
    audits = list(audits)
    if not audits:
        raise FairTTAError(
            "`audits` should be a list of audits (got none).", argument="audits"
        )
    tables = [audit._need_columns("compare") for audit in audits]
    document = audits[0].document
    settings = document.settings
    for audit in audits:
        _check_same_data(document.data, audit.document.data)
        _check_same(
            "settings", settings, audit.document.settings, "pass the same `interval`"
        )
    table = _join_tables(audits, tables)
    bootstrap = Bootstrap(
        settings.resamples, settings.seed, settings.level, settings.strata
    )

    # A run keeps its origin only where it is not that of the document.
    runs: list[doc.RunFigures] = []
    for audit in audits:
        origin = _origin(audit.document)
        is_shared = origin == _origin(document)
        for run in _runs_on_table(table, audit, bootstrap):
            if not is_shared and not run.provenance:
                run = structs.replace(run, provenance=origin)
            runs.append(run)
    names = [run.name for run in runs]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise FairTTAError(
            f"runs should have distinct names ({duplicates} came twice): pass `name`."
        )

    corrected = corrected_differences(table, bootstrap)
    comparisons = tuple(
        compare_with_first(
            table,
            index,
            bootstrap,
            names=(names[0], names[index]),
            harmful=document.data.harmful,
            corrected=corrected,
        )
        for index in range(1, len(names))
    )
    data = structs.replace(
        document.data,
        clusters=table.cluster_count,
        different_images=table.different_images,
    )
    about_answers = unknown_answer_warnings(runs, data.n)
    document = structs.replace(
        document,
        data=data,
        runs=tuple(runs),
        comparisons=comparisons,
        warnings=(*about_answers, *table_warnings(table)),
    )
    return Audit(document, table)


def _join_tables(audits: Iterable[Audit], tables: Sequence[AnswerTable]) -> AnswerTable:
    """Return one table with the answers of all runs and all that is known of the images."""
    # The longest has `NO_CLASS` at its end, if a run has answers that are no class.
    targets = max((table.targets for table in tables), key=len)

    # A run of answers alone does not know which images are the same; one of a classifier does.
    contents = [table.contents for table in tables if table.contents is not None]
    return replace(
        tables[0],
        targets=targets,
        answers=tuple(answers for table in tables for answers in table.answers),
        scores=tuple(scores for table in tables for scores in table.scores),
        clusters=reduce(join_clusters, (table.clusters for table in tables)),
        contents=contents[0] if contents else None,
        image_hashes=_image_hashes(audits),
    )


def _runs_on_table(
    table: AnswerTable, audit: Audit, bootstrap: Bootstrap
) -> Sequence[doc.RunFigures]:
    """Return the runs of an audit, measured again if `table` knows more of its images."""
    before = audit._need_columns("compare")
    document = audit.document
    all_differ = table.image_count == table.n
    knows_images = all_differ or same_clusters(before.contents, table.contents)
    if knows_images and same_clusters(before.clusters, table.clusters):
        return document.runs
    runs = []
    for index, run in enumerate(document.runs):
        table_of_run = replace(
            before,
            answers=(before.answers[index],),
            scores=(before.scores[index],),
            clusters=table.clusters,
            contents=table.contents,
        )
        figures = figures_of_run(
            table_of_run,
            bootstrap,
            name=run.name,
            adapter=run.adapter,
            cost=run.cost,
            harmful=document.data.harmful,
            no_class=run.no_class,
        )
        runs.append(structs.replace(figures, provenance=run.provenance))
    return runs


def _check_same_data(first: doc.DataFields, other: doc.DataFields) -> None:
    """Raise unless both audits are of the same rows; one may know more of its images."""
    if first.hash == other.hash:
        other = structs.replace(
            other,
            clusters=first.clusters,
            different_images=first.different_images,
        )
    _check_same("data", first, other, "audit the same images in the same way")


def _check_same(
    part: str, first: doc.DocumentPart, other: doc.DocumentPart, hint: str
) -> None:
    """Raise unless two parts of documents are equal, naming the fields that differ."""
    differing = [
        name
        for name, value in structs.asdict(first).items()
        if getattr(other, name) != value
    ]
    if differing:
        raise FairTTAError(
            f"`audits` should agree in {part}, but {', '.join(differing)} differ: {hint}.",
            argument="audits",
        )


def _image_hashes(audits: Iterable[Audit]) -> dict[str, str]:
    """Return the hashes of the images that some of the audits know.

    Raises:
        FairTTAError: two audits are of other images, or of the same in another order.
    """
    hashes: dict[str, str] = {}
    run_by_source: dict[str, str] = {}
    for audit in audits:
        run = audit.runs[0]
        for source, in_order in audit._need_columns("compare").image_hashes.items():
            first = run_by_source.setdefault(source, run)
            if hashes.setdefault(source, in_order) != in_order:
                raise FairTTAError(
                    "`audits` should be of the same images in the same order, but the images of "
                    f"{first!r} and {run!r} differ: pass the same images, with their labels, in "
                    "one order to each audit.",
                    argument="audits",
                )
    return hashes


def _origin(document: doc.AuditDocument) -> doc.RunOrigin:
    return doc.RunOrigin(**{key: document.provenance[key] for key in ORIGIN})
