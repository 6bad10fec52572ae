"""``fair-tta audit`` and ``compare``: how large is the gap, and what do methods make of it?"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fair_tta._io import printable, text_cell
from fair_tta.lab.cli import _options as options
from fair_tta.lab.cli._console import (
    FAILED,
    LEFT_OUT,
    embedded_notes,
    exits,
    log,
    usage,
)
from fair_tta.lab.cli._names import (
    attributes_option,
    column_names,
    harmful_option,
    parse_renames,
    prompt_problems,
    targets_option,
)

if TYPE_CHECKING:
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.datasets._labels import LabelValues
    from fair_tta.datasets._records import Problem, Record
    from fair_tta.lab._folder import FolderAudit

SensitiveColumn = Annotated[
    list[str],
    typer.Option(
        metavar="COLUMN",
        help="Column of what should not matter; repeat it for several (groups are then "
        "intersections).",
    ),
]
LabelsFile = Annotated[
    Path | None,
    typer.Option(
        help="CSV file with a header.", show_default="folders are labels: CLASS/VALUE/image.jpg"
    ),
]
TargetColumn = Annotated[str, typer.Option(metavar="COLUMN", help="Column of the classes.")]
PathColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of the paths.", show_default="by its name"),
]
ClusterColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the person or source that several images come from: intervals allow for "
        "images of one that agree. An empty cell is a person or source of its own.",
        show_default="images are independent",
    ),
]
Rename = Annotated[
    list[str], typer.Option(metavar="TEXT", help="'column: value=label' for values of the file.")
]
SkipUnknown = Annotated[
    bool, typer.Option("--skip-unknown", help="Leave out rows with values not named.")
]
_MOST_RENAMED = 20  # answers that a message shows how to rename

FailIf = Annotated[
    list[str],
    typer.Option(
        metavar="TEXT",
        help="'typical_gap > 10', 'wga < 60' or another metric, in points: exit code 5 if the "
        "whole interval lies beyond it. Repeat it for several.",
    ),
]
FailOn = Annotated[str, typer.Option(metavar="NAME", help="The run that --fail-if is about.")]


def audit_command(
    context: typer.Context,
    *,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the images.", show_default=False)
    ] = None,
    sensitive_column: SensitiveColumn,
    out: Annotated[Path, typer.Option(help="Folder for rows, audit and report.")],
    labels: LabelsFile = None,
    target_column: TargetColumn = "class",
    path_column: PathColumn = None,
    cluster_column: ClusterColumn = None,
    targets: options.TargetsOption = [],  # noqa: B006
    sensitive: options.SensitiveOption = [],  # noqa: B006
    rename: Rename = [],  # noqa: B006
    harmful: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help="Classes that nobody should be answered with, 'crime: thief,criminal'; they are "
            "added to the targets. Reported by group.",
        ),
    ] = [],  # noqa: B006
    skip_unknown: SkipUnknown = False,
    template: options.Template = None,
    model: options.Model = "miniature",
    adapters: options.Adapters = ["zero-shot", "association-correction", "logit-balance"],  # noqa: B006
    reference: options.ReferenceDir = None,
    reference_is_data: options.ReferenceIsData = False,
    features: options.Features = None,
    id_column: options.IdColumn = None,
    by_position: options.ByPosition = False,
    text_features: options.TextFeatures = None,
    scale: options.Scale = None,
    seed: options.Seed = 0,
    views: options.ViewCount = 64,
    batch_size: options.BatchSize = 16,
    device: options.Device = None,
    dtype: options.Precision = None,
    limit: options.Limit = None,
    sample: options.Sample = None,
    fail_if: FailIf = [],  # noqa: B006
    fail_on: FailOn = "zero-shot",
    workers: options.Workers = 1,
    restart: options.Restart = False,
    embed_images: options.EmbedImages = False,
    progress: options.ShowProgress = None,
) -> None:
    """Measure answers group by group, for several methods on the same images.

    Without --targets or --sensitive the names are the values in the columns. Finished rows are on
    disk: after Ctrl-C or a kill the same command goes on. Rows and images that cannot be used
    are listed and do not stop the run; the exit code is then 4, or 5 if a --fail-if holds.
    """
    idle = {} if fail_if else {"fail_on": "there is no --fail-if."}
    if labels is None:
        why = "there is no --labels: the folders are the labels."
        idle |= dict.fromkeys(("path_column", "cluster_column"), why)
    options.refuse_idle(context, **idle)
    done = 0

    def stopped() -> str:
        return f"Stopped; {done} rows are finished. {options.GOES_ON}"

    with exits(context, stopped, images_dir="--images", labels_csv="--labels"):
        values, asked, groups = read_labels(context)  # before PyTorch is imported
        from fair_tta.auditing._judge import read_thresholds
        from fair_tta.lab._folder import audit_folder
        from fair_tta.lab._terminal import progress_bars
        from fair_tta.lab.runs._local import Local
        from fair_tta.methods._registry import parse_adapters

        methods = usage("--adapters", parse_adapters, adapters)
        options.check_methods(context, "--adapters", methods, reference, has_labels=True)
        usage("--fail-if / --fail-on", read_thresholds, fail_if, fail_on, methods)
        sets = usage("--harmful", harmful_option, harmful)
        for classes in sets.values():
            asked |= {name: phrase for name, phrase in classes.items() if name not in asked}
        classifier = options.make_classifier(context, asked, groups)
        log_prompts(classifier)
        with progress_bars(progress) as bars:
            rows = bars("rows")

            def count(finished: int, total: int) -> None:
                nonlocal done
                done = finished
                rows(finished, total)

            result = audit_folder(
                classifier,
                methods,
                values,
                out,
                skip_unknown=skip_unknown,
                limit=limit,
                sample=sample,
                harmful={name: list(classes) for name, classes in sets.items()},
                engine=Local(workers),
                model=None if text_features else model,
                restart=restart,
                embed_images=embed_images,
                reference=reference,
                reference_is_data=reference_is_data,
                fail_if=fail_if,
                fail_on=fail_on,
                notes=embedded_notes(context),
                progress=count,
                fitting=bars("reference images"),
            )
        conclude(result)


def conclude(result: FolderAudit) -> None:
    """Print an audit, and end with the exit code of its thresholds and of rows left out."""
    from fair_tta.lab.cli._tables import print_audit
    from fair_tta.lab.report._sentences import of_thresholds

    print_audit(result)
    document = result.audit.document
    for sentence in of_thresholds(document):
        log(sentence)
    if any(threshold.outcome == "failed" for threshold in document.thresholds):
        raise typer.Exit(FAILED)
    if result.problems.lost or any(run.no_class for run in document.runs):
        raise typer.Exit(LEFT_OUT)


def read_labels(
    context: typer.Context,
) -> tuple[LabelValues, dict[str, str], dict[str, dict[str, str]]]:
    """What the options of a command name: the labels, without --labels those of the folders, and
    names and phrases of classes and attribute values."""
    from fair_tta.datasets._labels import Labels, write_labels_of_folders

    given = context.params
    stored = options.stored_features(context)
    images, labels, target = given["images"], given["labels"], given["target_column"]
    sensitive = tuple(given["sensitive_column"])
    renames = usage("--rename", parse_renames, given["rename"])
    left_out: tuple[Problem, ...] = ()
    if labels is None and stored is not None:
        raise typer.BadParameter("it is needed with --features.", param_hint="--labels")
    if labels is None:
        levels = (target, *sensitive)
        labels, n, left_out = write_labels_of_folders(images, levels, given["out"])
        log(f"No --labels: {n} images have the names of their folders ({' / '.join(levels)}).")
    path, cluster = given["path_column"], given["cluster_column"]
    images = images if stored is None else stored.path
    columns = target, sensitive, path, renames, left_out, cluster
    found = Labels(images, labels, *columns, stored, given["by_position"])
    values = found.scan(skip_unknown=given["skip_unknown"])
    if given["targets"]:
        asked = usage("--targets", targets_option, given["targets"])
    else:
        asked = column_names(values, target)
    written = usage("--sensitive", attributes_option, given["sensitive"], sensitive)
    groups = {column: written.get(column) or column_names(values, column) for column in sensitive}
    return values, asked, groups


def log_prompts(classifier: FairTPTClassifier) -> None:
    """What the model is asked: names such as 0 and 1 make no sentence, and nobody would notice."""
    task = classifier._task
    sets = {"targets": task.templates._target_prompts(task.targets)}
    sets |= {a: task.templates._sensitive_prompts(names) for a, names in task.sensitive.items()}
    for name, prompts in sets.items():
        more = ", ..." if len(prompts) > 6 else ""
        if task.templates._others:
            more += f", and those of {len(task.templates._others)} further templates"
        log(f"Prompts, {name}: {', '.join(repr(p.text) for p in prompts[:6])}{more}")
    asked = {"--targets '": task.targets}
    asked |= {f"--sensitive '{name}: ": names for name, names in task.sensitive.items()}
    for option, names in asked.items():
        for phrase, why in prompt_problems(names.values()).items():
            text = f"{phrase!r} is {why} and is inserted into the prompt as is. Give it a phrase: "
            log(f"{text}{option}{phrase}=...'.")


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
    sensitive_column: SensitiveColumn,
    labels: Annotated[
        Path | None, typer.Option(help="CSV file.", show_default="columns of the first FILE")
    ] = None,
    target_column: TargetColumn = "class",
    answer_column: Annotated[
        list[str], typer.Option(metavar="COLUMN", help="Column of the answers; or one for each.")
    ] = ["label"],  # noqa: B006
    path_column: PathColumn = None,
    cluster_column: ClusterColumn = None,
    targets: Annotated[
        list[str],
        typer.Option(
            metavar="NAMES",
            help="All classes, 'cat,dog', if some have no row in the labels.",
            show_default="the labels",
        ),
    ] = [],  # noqa: B006
    rename: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help="'column: value=label' for values of the labels and of the answers.",
        ),
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Folder for audit and report.")] = None,
    fail_if: FailIf = [],  # noqa: B006
    fail_on: FailOn = "the last FILE",
) -> None:
    """Compare files of predictions on the same images, group by group, without a model.

    Rows are matched by path or id. Those that are not in all files are left out and counted.
    Answers that are no class are counted and are wrong; it is an error if no answer of a FILE is
    one. The exit code is 4 if there are such rows or answers, or 5 if a --fail-if holds. One FILE
    alone is measured.
    """
    if len(answer_column) not in (1, len(files)):
        raise typer.BadParameter("give one, or one for each FILE.", param_hint="--answer-column")
    with exits(context, labels_csv="--labels"):
        from msgspec import structs

        from fair_tta.auditing._judge import judge, read_thresholds
        from fair_tta.datasets._labels import Labels, rename_values
        from fair_tta.lab._folder import AUDIT, CARD, REPORT
        from fair_tta.lab.report import write_report

        pairs = [*zip(files, answer_column * len(files), strict=False)]
        names = [file.stem for file, _ in pairs]
        if len(set(names)) < len(names):
            names = [f"{file}: {column}" for file, column in pairs]
        judged = names[-1] if fail_on == "the last FILE" else fail_on
        limits = usage("--fail-if / --fail-on", read_thresholds, fail_if, judged, names)
        renames = usage("--rename", parse_renames, rename)
        classes = usage("--targets", targets_option, targets) if targets else {}
        values = Labels(
            Path(),
            labels or files[0],
            target_column,
            (*sensitive_column,),
            path_column,
            cluster=cluster_column,
        ).scan()
        runs = [Labels(Path(), *pair, (), path_column).scan() for pair in pairs]
        values, *runs = rename_values([values, *runs], renames)
        known = {*values.names(target_column), *classes}
        for column in sensitive_column:
            values.check_spellings(column)
        for run in runs:
            _check_answers(run, known)
        found = _measured(values, dict(zip(names, runs, strict=True)), known)
        document = found.audit.document
        document = structs.replace(document, thresholds=tuple(judge(t, document) for t in limits))
        found = replace(found, audit=replace(found.audit, document=document), out=out)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            found.audit.save(out / AUDIT)
            for name in (REPORT, CARD):
                write_report(found.audit, out / name)
        conclude(found)


def _check_answers(run: LabelValues, classes: Collection[str]) -> None:
    """Log how to rename answers that may mean a class.

    Raises:
        DatasetError: no answer of the file is one of the classes.
    """
    from fair_tta._spelling import escaped, likely_labels
    from fair_tta.datasets._labels import rename_option
    from fair_tta.errors import DatasetError
    from fair_tta.metrics._estimates import listed

    column, file = run.labels.target, run.labels.file.name
    counts = run.raw[column]
    # `predict --csv` writes names as spreadsheets and terminals can take them
    as_written = {*classes, *(text_cell(name) for name in classes)}
    renamed = run.labels.rename.get(column, {})
    unknown = [answer for answer in counts if renamed.get(answer, answer) not in as_written]
    unknown.sort(key=lambda answer: -counts[answer])
    meant = likely_labels(unknown, sorted(classes))
    if not unknown or len(unknown) < len(counts):
        if meant:
            options = [rename_option(column, answer, label) for answer, label in meant.items()]
            log(f"Some answers of {file!r} read like labels: {' '.join(options)}")
        return
    answers = [f"{escaped(answer)!r} ({counts[answer]} rows)" for answer in unknown]
    labels = [repr(escaped(label)) for label in sorted(classes)]
    some = unknown[:_MOST_RENAMED]
    options = [rename_option(column, answer, meant.get(answer, "LABEL")) for answer in some]
    placeholder = "" if len(meant) == len(unknown) else ", with a label in place of LABEL"
    raise DatasetError(
        f"no answer of {file!r} is among the labels: column {column!r} holds {listed(answers)}; "
        f"labels are {listed(labels)}. Choose another --answer-column, or rename the "
        f"answers{placeholder}:\n{' '.join(options)}"
    )


def _measured(
    values: LabelValues, runs: Mapping[str, LabelValues], classes: Collection[str]
) -> FolderAudit:
    """All runs on the rows that every file has, and what was left out."""
    from fair_tta.auditing import audit, compare
    from fair_tta.datasets._records import Problem, ProblemKind, collect
    from fair_tta.errors import FairTTAError, SmallGroupWarning, UnknownAnswerWarning
    from fair_tta.lab._folder import FolderAudit

    sources = {values.labels.file.name: values, **runs}
    records, problems = collect(values.records(check_images=False))
    answers = [collect(of.records(check_images=False))[0] for of in runs.values()]
    # `predict --csv` writes names as spreadsheets and terminals can take them
    names = {text_cell(record.target): record.target for record in records}
    answers = [
        tuple(replace(row, target=names.get(row.target, row.target)) for row in of)
        for of in answers
    ]
    labels = _by_key(records, [_path(record) for record in answers[0]])
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
    used = {table[key].target for table in tables for key in keys}
    targets = sorted(used.intersection(classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)  # the audit has both
        warnings.simplefilter("ignore", UnknownAnswerWarning)
        measured = [
            audit(
                [labels[key].target for key in keys],
                [of[key].target for key in keys],
                {a: [labels[key].sensitive[a] for key in keys] for a in values.labels.sensitive},
                name=name,
                targets=targets,
                clusters=[labels[key].cluster for key in keys],
                provenance={"problems": problems.to_dict()},
            )
            for name, of in zip(runs, tables[1:], strict=True)
        ]
    return FolderAudit(compare(measured), problems, None, {})


def _by_key(records: Sequence[Record], known: Collection[str]) -> dict[str, Record]:
    """Records by path, without the folders that all of them begin with where more are known so."""
    known = set(known)
    parts = [_path(record).split("/") for record in records]
    shared = len(os.path.commonprefix([part[:-1] for part in parts]))  # noqa: RUF071, of lists
    cut = [["/".join(part[depth:]) for part in parts] for depth in range(shared + 1)]
    best = max(cut, key=lambda keys: len(known.intersection(keys)))
    return dict(zip(best, records, strict=True))


def _path(record: Record) -> str:
    """As `predict --csv` writes it, but for the sign before a formula: folders may stand before."""
    path = printable(record.key)
    return path[1:] if path[:1] == "'" and text_cell(path[1:]) == path else path
