"""``fair-tta mitigate``: from a folder and labels to a method that is ready to use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fair_tta.errors import FairTTAError
from fair_tta.lab.cli import _audit as labelled
from fair_tta.lab.cli import _options as options
from fair_tta.lab.cli._console import LEFT_OUT, embedded_notes, exits

if TYPE_CHECKING:
    from fair_tta.auditing._document import AuditDocument
    from fair_tta.classifier import FairTPTClassifier

ADAPTER = "adapter.safetensors"


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
        Path, typer.Option(file_okay=False, help="Folder for the method, page and answers.")
    ],
    labels: labelled.LabelsFile = None,
    target_column: labelled.TargetColumn = "class",
    sensitive_column: labelled.SensitiveColumn = [],  # noqa: B006
    path_column: labelled.PathColumn = None,
    cluster_column: labelled.ClusterColumn = None,
    targets: options.TargetsOption = [],  # noqa: B006
    sensitive: options.SensitiveOption = [],  # noqa: B006
    rename: labelled.Rename = [],  # noqa: B006
    skip_unknown: labelled.SkipUnknown = False,
    template: options.Template = None,
    model: options.Model = "miniature",
    features: options.Features = None,
    id_column: options.IdColumn = None,
    by_position: options.ByPosition = False,
    text_features: options.TextFeatures = None,
    scale: options.Scale = None,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 16,
    device: options.Device = None,
    dtype: options.Precision = None,
    workers: options.Workers = 1,
    restart: options.Restart = False,
    embed_images: options.EmbedImages = False,
    progress: options.ShowProgress = None,
) -> None:
    """Choose a method by labelled images, and write it to a file that is ready to use.

    Methods are cross-fitted without labels, and the one with the lowest typical gap is taken among
    those that significantly narrow it, answer better than chance and cost neither accuracy nor any
    group significantly; if there is none, the report gives the reason. After Ctrl-C or a kill the
    same command goes on. Images that cannot be used are listed; the exit code is then 4.
    """
    if labels is None and not sensitive_column:
        raise typer.BadParameter(
            "a method is chosen by labels: name their file, fit a method on purpose (fair-tta fit "
            "--adapter logit-balance), or label about a hundred images.",
            param_hint="--labels",
        )
    if not sensitive_column:
        raise typer.BadParameter(
            "it is needed, for the attribute values between which gaps are measured.",
            param_hint="--sensitive-column",
        )
    idle = [] if labels else ["path_column", "cluster_column"]
    why = "there is no --labels: the folders are the labels."
    options.refuse_idle(context, **dict.fromkeys(idle, why))
    with exits(context, lambda: f"Stopped. {options.GOES_ON}", labels_csv="--labels"):
        values, asked, groups = labelled.read_labels(context)  # before PyTorch is imported
        from fair_tta.auditing import _mitigate as core
        from fair_tta.lab import _folder
        from fair_tta.lab._terminal import progress_bars, show
        from fair_tta.lab.cli._tables import print_audit
        from fair_tta.lab.runs._local import Local
        from fair_tta.methods._fitting import save_adapter
        from fair_tta.methods._reference import Reference
        from fair_tta.methods._registry import parse_adapters

        file = out / ADAPTER
        if file.exists() and not Reference._is_in(file):
            text = f"{str(file)!r} is not a file of fair-tta: choose another place (--out)."
            raise FairTTAError(text)
        classifier = options.make_classifier(context, asked, groups)
        labelled.log_prompts(classifier)
        lines = _python(text_features or model, classifier, file)

        def provenance(document: AuditDocument) -> dict[str, Any]:
            chosen, reason = core.conclusion(document)
            return {"mitigation": {"chosen": chosen, "reason": reason, "python": chosen and lines}}

        with progress_bars(progress) as bars:
            result = _folder.audit_folder(
                classifier,
                parse_adapters(core.COMPARED),
                values,
                out,
                skip_unknown=skip_unknown,
                engine=Local(workers),
                model=None if text_features else model,
                restart=restart,
                embed_images=embed_images,
                notes=embedded_notes(context),
                conclude=provenance,
                progress=bars("rows"),
                fitting=bars("images to fit on"),
            )
        chosen, reason = core.conclusion(result.audit.document)
        if chosen is None:
            file.unlink(missing_ok=True)  # of an earlier run
        else:
            method = core.fitted_on_all(result.adapters[chosen])
            save_adapter(method, file, classifier._task)
        print_audit(result)
        show(f"\n{reason}")
        if chosen is not None:
            show(f"Written to {out}: {ADAPTER}, {_folder.REPORT}\n\n{lines}", wrap=False)
    if result.problems.lost:
        raise typer.Exit(LEFT_OUT)


def _python(model: str | Path, classifier: FairTPTClassifier, file: Path) -> str:
    """The lines that use the method of a file; a `model` that is a path is one of text features."""
    task = classifier._task
    sensitive = {attribute: dict(names) for attribute, names in task.sensitive.items()}
    names = dict(task.targets), sensitive, task.templates.sentences["joint"]
    read, of = "", f"({model!r}"
    if isinstance(model, Path):
        read = "from fair_tta.datasets import read_text_features\n"
        of = f".from_features(read_text_features({os.path.abspath(model)!r})[0]"
    last = f", scale={task.scale!r}" if read else ""
    return (
        f"from fair_tta import FairTPTClassifier\n{read}"
        f"clf = FairTPTClassifier{of}, {', '.join(map(repr, names))}{last}, "
        f"adapter={str(file)!r})"
    )
