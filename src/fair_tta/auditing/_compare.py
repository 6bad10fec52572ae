"""Put runs on the same images side by side: `fair_tta.compare`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

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

    # Rows are matched by their order alone, so everything that is known of them has to agree
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

    # Intervals of metrics are corrected for all comparisons at once
    corrected = corrected_differences(table, bootstrap)
    comparisons = []
    for index in range(1, len(names)):
        comparisons.append(
            compare_with_first(
                table,
                index,
                bootstrap,
                names=(names[0], names[index]),
                harmful=document.data.harmful,
                corrected=corrected,
            )
        )
    data = structs.replace(
        document.data,
        clusters=table.cluster_count,
        different_images=table.different_images,
    )

    # Warnings are made anew: the joined table may know more of the images
    about_answers = unknown_answer_warnings(runs, data.n)
    document = structs.replace(
        document,
        data=data,
        runs=tuple(runs),
        comparisons=tuple(comparisons),
        warnings=(*about_answers, *table_warnings(table)),
    )
    return Audit(document, table)


def _join_tables(audits: Iterable[Audit], tables: Sequence[AnswerTable]) -> AnswerTable:
    """Return one table with the answers of all runs and all that is known of the images."""
    joined = tables[0]
    for table in tables[1:]:
        joined = replace(
            joined,
            # The longer one has `NO_CLASS` at its end, for answers that are no class
            targets=max(joined.targets, table.targets, key=len),
            answers=joined.answers + table.answers,
            scores=joined.scores + table.scores,
            clusters=join_clusters(joined.clusters, table.clusters),
            # A run of answers alone does not know which images are the same
            contents=table.contents if joined.contents is None else joined.contents,
        )
    return replace(joined, image_hashes=_image_hashes(audits))


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

    # Clusters and repeated images change intervals, though no answer
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
    differing = []
    for name, value in structs.asdict(first).items():
        if getattr(other, name) != value:
            differing.append(name)
    if differing:
        raise FairTTAError(
            f"`audits` should have the same {part}, but differ in {', '.join(differing)}: {hint}.",
            argument="audits",
        )


def _image_hashes(audits: Iterable[Audit]) -> dict[str, str]:
    """Return the hashes of the images that some of the audits know.

    Raises:
        FairTTAError: two audits are of other images, or of the same in another order.
    """
    # Digests of images and digests of one model's features are never equal: each source has one
    # hash, with the run that brought it first for the message
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
