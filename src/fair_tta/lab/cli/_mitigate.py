"""``fair-tta mitigate``: choose a method on labelled images and save it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fair_tta.errors import FairTTAError
from fair_tta.lab.cli._console import EXIT_LEFT_OUT, errors_as_exit_codes
from fair_tta.lab.cli._expand import with_shared_options
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

ADAPTER_FILE = "adapter.safetensors"


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
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Folder for the method, the report and predictions.",
        ),
    ],
    label_file: MitigationLabelOptions,
    prompts: LabelPromptOptions,
    encoder: ImageEncoderOptions,
    run: ReportRunOptions,
) -> None:
    """Choose a method on labelled images and save it to a file that is ready to use.

    Methods are cross-fitted without labels. Among those that significantly narrow the typical gap,
    are better than chance, and significantly lower neither accuracy nor the accuracy of any group,
    the one with the smallest gap is chosen; if there is none, the report gives the reason. After
    Ctrl-C or a crash the same command resumes. Images that cannot be used are listed; the exit code
    is then 4.
    """
    if label_file.labels is None and not label_file.sensitive_column:
        raise typer.BadParameter(
            "labels are needed to choose a method: name their file, label about a hundred images, "
            "or fit a method of your choice (fair-tta fit --adapter logit-balance).",
            param_hint="--labels",
        )
    if not label_file.sensitive_column:
        raise typer.BadParameter(
            "it is required: gaps are measured between the values of this column.",
            param_hint="--sensitive-column",
        )
    encoder.require_one_source(images)

    with errors_as_exit_codes(
        context, lambda: f"Stopped. {RESUME_HINT}", labels_csv="--labels"
    ):
        # A wrong label file is refused before PyTorch is imported
        values, parsed = labels_from_options(images, label_file, prompts, encoder, out)

        from fair_tta.auditing._mitigate import candidates, conclusion, make_mitigation
        from fair_tta.lab._folder import REPORT_FILE, FolderRun
        from fair_tta.lab._folder_options import FolderAuditOptions
        from fair_tta.lab._terminal import print_text, progress_bars
        from fair_tta.lab.cli._tables import print_audit
        from fair_tta.lab.runs._local import Local
        from fair_tta.methods._reference import Reference

        # An earlier method may be replaced, but not a file of another program
        file = out / ADAPTER_FILE
        if file.exists() and not Reference._is_in(file):
            raise FairTTAError(
                f"{str(file)!r} was not written by fair-tta: choose another folder (--out)."
            )
        classifier = make_classifier(parsed, encoder, seed=encoder.seed)
        log_prompts(classifier)

        # The choice is part of the report, which is written at the end of the run
        code = _code_to_use(file, encoder, classifier)

        def conclude(document: AuditDocument) -> Mapping[str, Any]:
            chosen, reason = conclusion(document)
            mitigation = {
                "chosen": chosen,
                "reason": reason,
                "python": chosen and code,
            }
            return {"mitigation": mitigation}

        with progress_bars(run.progress) as bars:
            options = FolderAuditOptions(
                skip_unknown=label_file.skip_unknown,
                engine=Local(run.workers),
                model=encoder.loadable_model,
                restart=run.restart,
                embed_images=run.embed_images,
                notes=run_notes(encoder),
                conclude=conclude,
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
            # The method of an earlier run would look like the result of this one
            file.unlink(missing_ok=True)
        else:
            mitigation.classifier.save(file)
        print_audit(result)
        print_text(f"\n{mitigation.reason}")
        if mitigation.adapter is not None:
            print_text(
                f"Written to {out}: {ADAPTER_FILE}, {REPORT_FILE}\n\n{code}", wrap=False
            )
    if result.problems.lost:
        raise typer.Exit(EXIT_LEFT_OUT)


def _code_to_use(
    file: Path, encoder: EncoderOptions, classifier: FairTPTClassifier
) -> str:
    """Return Python code that makes a classifier with the saved method."""
    task = classifier._task
    sensitive = {name: dict(phrases) for name, phrases in task.sensitive.items()}
    template = task.templates.sentences["joint"]
    prompts = f"{dict(task.targets)!r}, {sensitive!r}, {template!r}"
    if encoder.text_features is None:
        return (
            "from fair_tta import FairTPTClassifier\n"
            f"clf = FairTPTClassifier({encoder.model_name!r}, {prompts}, adapter={str(file)!r})"
        )
    path = os.path.abspath(encoder.text_features)
    return (
        "from fair_tta import FairTPTClassifier\n"
        "from fair_tta.datasets import read_text_features\n"
        f"clf = FairTPTClassifier.from_features(read_text_features({path!r})[0], {prompts}, "
        f"scale={task.scale!r}, adapter={str(file)!r})"
    )
