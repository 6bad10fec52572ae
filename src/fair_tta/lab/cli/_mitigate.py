"""``fair-tta mitigate``: from a folder and labels to a method that is ready to use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fair_tta.errors import FairTTAError
from fair_tta.lab.cli._console import EXIT_LEFT_OUT, errors_as_exit_codes
from fair_tta.lab.cli._expand import reject_unused_options, with_shared_options
from fair_tta.lab.cli._inputs import RESUME_HINT, make_classifier, run_notes
from fair_tta.lab.cli._labels import labels_from_options, log_prompts
from fair_tta.lab.cli._options import (
    EncoderOptions,
    ImageEncoderOptions,
    LabelPromptOptions,
    MitigationLabelOptions,
    ReportRunOptions,
)

if TYPE_CHECKING:
    from fair_tta.auditing._document import AuditDocument
    from fair_tta.classifier import FairTPTClassifier

ADAPTER = "adapter.safetensors"


@with_shared_options
def mitigate_command(
    context: typer.Context,
    *,
    images: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="Folder of the images.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(file_okay=False, help="Folder for the method, page and answers."),
    ],
    label_file: MitigationLabelOptions,
    prompts: LabelPromptOptions,
    encoder: ImageEncoderOptions,
    run: ReportRunOptions,
) -> None:
    """Choose a method by labelled images, and write it to a file that is ready to use.

    Methods are cross-fitted without labels, and the one with the lowest typical gap is taken among
    those that significantly narrow it, answer better than chance and cost neither accuracy nor any
    group significantly; if there is none, the report gives the reason. After Ctrl-C or a kill the
    same command goes on. Images that cannot be used are listed; the exit code is then 4.
    """
    if label_file.labels is None and not label_file.sensitive_column:
        raise typer.BadParameter(
            "a method is chosen by labels: name their file, fit a method on purpose (fair-tta fit "
            "--adapter logit-balance), or label about a hundred images.",
            param_hint="--labels",
        )
    if not label_file.sensitive_column:
        raise typer.BadParameter(
            "it is needed, for the attribute values between which gaps are measured.",
            param_hint="--sensitive-column",
        )
    reject_unused_options(
        context, label_file.unused(), encoder.unused(images is not None)
    )

    with errors_as_exit_codes(
        context, lambda: f"Stopped. {RESUME_HINT}", labels_csv="--labels"
    ):
        # A wrong label file is refused before PyTorch is imported
        values, asked = labels_from_options(images, label_file, prompts, encoder, out)

        from fair_tta.auditing._mitigate import candidates, conclusion, make_mitigation
        from fair_tta.lab._folder import REPORT_FILE, FolderRun
        from fair_tta.lab._folder_options import FolderAuditOptions
        from fair_tta.lab._terminal import print_text, progress_bars
        from fair_tta.lab.cli._tables import print_audit
        from fair_tta.lab.runs._local import Local
        from fair_tta.methods._reference import Reference

        file = out / ADAPTER
        if file.exists() and not Reference._is_in(file):
            raise FairTTAError(
                f"{str(file)!r} is not a file of fair-tta: choose another place (--out)."
            )
        classifier = make_classifier(context, asked, encoder, seed=encoder.seed)
        log_prompts(classifier)
        lines = _python_lines(encoder, classifier, file)

        def provenance(document: AuditDocument) -> Mapping[str, Any]:
            chosen, reason = conclusion(document)
            return {
                "mitigation": {
                    "chosen": chosen,
                    "reason": reason,
                    "python": chosen and lines,
                }
            }

        with progress_bars(run.progress) as bars:
            options = FolderAuditOptions(
                skip_unknown=label_file.skip_unknown,
                engine=Local(run.workers),
                model=encoder.loadable_model,
                restart=run.restart,
                embed_images=run.embed_images,
                notes=run_notes(context, encoder),
                conclude=provenance,
                progress=bars("rows"),
                fitting=bars("images to fit on"),
            )
            result = FolderRun(classifier, candidates(), values, out, options).audit()
        concluded = result.audit.document.provenance["mitigation"]
        mitigation = make_mitigation(
            classifier,
            result.audit,
            result.adapters,
            concluded["chosen"],
            concluded["reason"],
        )
        if mitigation.adapter is None:
            file.unlink(missing_ok=True)  # of an earlier run
        else:
            mitigation.classifier.save(file)
        print_audit(result)
        print_text(f"\n{mitigation.reason}")
        if mitigation.adapter is not None:
            print_text(
                f"Written to {out}: {ADAPTER}, {REPORT_FILE}\n\n{lines}", wrap=False
            )
    if result.problems.lost:
        raise typer.Exit(EXIT_LEFT_OUT)


def _python_lines(
    encoder: EncoderOptions, classifier: FairTPTClassifier, file: Path
) -> str:
    """Return the lines that use the method of a file."""
    task = classifier._task
    sensitive = {attribute: dict(names) for attribute, names in task.sensitive.items()}
    names = (
        f"{dict(task.targets)!r}, {sensitive!r}, {task.templates.sentences['joint']!r}"
    )
    if encoder.text_features is None:
        return (
            "from fair_tta import FairTPTClassifier\n"
            f"clf = FairTPTClassifier({encoder.model!r}, {names}, adapter={str(file)!r})"
        )
    path = os.path.abspath(encoder.text_features)
    return (
        "from fair_tta import FairTPTClassifier\n"
        "from fair_tta.datasets import read_text_features\n"
        f"clf = FairTPTClassifier.from_features(read_text_features({path!r})[0], {names}, "
        f"scale={task.scale!r}, adapter={str(file)!r})"
    )
