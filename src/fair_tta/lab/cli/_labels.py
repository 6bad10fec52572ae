"""Labels, names and exit codes of the commands that have labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fair_tta.lab.cli._console import (
    EXIT_LEFT_OUT,
    EXIT_THRESHOLD_FAILED,
    log,
    parse_option,
)
from fair_tta.lab.cli._expand import reject_ineffective_options
from fair_tta.lab.cli._names import (
    column_names,
    parse_column_attributes,
    parse_renames,
    parse_target_texts,
    prompt_problems,
)
from fair_tta.lab.cli._options import (
    ImageEncoderOptions,
    LabelOptions,
    LabelPromptOptions,
    ParsedPrompts,
)

if TYPE_CHECKING:
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.datasets._label_values import LabelValues
    from fair_tta.datasets._records import Problem
    from fair_tta.lab._folder import FolderAudit

_SHOWN_PROMPTS = 6  # of each set, enough to see how names are inserted


def labels_from_options(
    images: Path | None,
    labels: LabelOptions,
    prompts: LabelPromptOptions,
    encoder: ImageEncoderOptions,
    out: Path,
) -> tuple[LabelValues, ParsedPrompts]:
    """Return the labels and the prompts, whose names are by default the values of the labels.

    Without --labels the folders of the images are their labels, and are written to a file in `out`.
    """
    from fair_tta.datasets._folder_labels import write_labels_of_folders
    from fair_tta.datasets._labels import Labels

    if encoder.features is None:
        reject_ineffective_options("without --features", by_position=labels.by_position)

    # Labels are those of a file, or the names of folders
    stored = encoder.stored
    source = images if stored is None else stored.path
    assert source is not None  # there are images or features: `require_one_source`
    columns = tuple(labels.sensitive_column)
    renames = parse_option("--rename", parse_renames, labels.rename)
    left_out: tuple[Problem, ...] = ()
    if labels.labels is not None:
        file = labels.labels
    elif stored is not None:
        raise typer.BadParameter("it is needed with --features.", param_hint="--labels")
    else:
        levels = (labels.target_column, *columns)
        file, n, left_out = write_labels_of_folders(source, levels, out)
        log(
            f"No --labels: {n} images are labelled by their folders ({' / '.join(levels)})."
        )
    values = Labels(
        images=source,
        file=file,
        target=labels.target_column,
        sensitive=columns,
        path=labels.path_column,
        rename=renames,
        left_out=left_out,
        cluster=labels.cluster_column,
        features=stored,
        by_position=labels.by_position,
    ).scan(skip_unknown=labels.skip_unknown)
    if labels.labels is not None:
        log_path_column(values)

    # Names without an option are the values in the columns
    if prompts.targets:
        targets = parse_option("--targets", parse_target_texts, prompts.targets)
    else:
        targets = column_names(values, labels.target_column)
    named = parse_option(
        "--sensitive", parse_column_attributes, prompts.sensitive, columns
    )
    sensitive = {
        column: named.get(column) or column_names(values, column) for column in columns
    }
    return values, ParsedPrompts(
        targets, sensitive, prompts.parse_templates(bool(sensitive))
    )


def log_path_column(values: LabelValues) -> None:
    """Log the column of the paths if it was found, not named."""
    column = values.path_column
    if column is not None and values.labels.path is None:
        subject = "images" if values.labels.features is None else "features"
        log(
            f"The column {column!r} of {values.labels.file.name!r} names the {subject}."
        )


def log_prompts(classifier: FairTPTClassifier) -> None:
    """Log the prompts, and names such as 0 and 1 that make no sentence."""
    task = classifier._task
    templates = task.templates
    prompt_sets = {"targets": templates._target_prompts(task.targets)}
    for attribute, names in task.sensitive.items():
        prompt_sets[attribute] = templates._sensitive_prompts(names)
    for name, prompts in prompt_sets.items():
        listing = ", ".join(repr(prompt.text) for prompt in prompts[:_SHOWN_PROMPTS])
        if len(prompts) > _SHOWN_PROMPTS:
            listing += ", ..."
        if templates._further:
            listing += f", and those of {len(templates._further)} more templates"
        log(f"Prompts, {name}: {listing}")

    # A phrase that describes nothing visible is used all the same
    options = {"--targets '": task.targets}
    for attribute, names in task.sensitive.items():
        options[f"--sensitive '{attribute}: "] = names
    for option, names in options.items():
        for phrase, problem in prompt_problems(names.values()).items():
            log(
                f"{phrase!r} is {problem} and is inserted into the prompt unchanged. Give it a "
                f"phrase: {option}{phrase}=...'."
            )


def print_and_exit(result: FolderAudit) -> None:
    """Print an audit, and exit with a code for failed thresholds or for rows left out."""
    from fair_tta.lab.cli._tables import print_audit
    from fair_tta.lab.report._legends import threshold_sentences

    print_audit(result)
    document = result.audit.document
    for sentence in threshold_sentences(document):
        log(sentence)
    # A failed threshold matters more than rows that were left out
    if any(threshold.outcome == "failed" for threshold in document.thresholds):
        raise typer.Exit(EXIT_THRESHOLD_FAILED)
    if result.problems.lost or any(run.no_class for run in document.runs):
        raise typer.Exit(EXIT_LEFT_OUT)
