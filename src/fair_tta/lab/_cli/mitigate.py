"""``fair-tta mitigate``: from a folder to a method that is ready to use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fair_tta.errors import FairTTAError
from fair_tta.lab._cli import audit as labelled
from fair_tta.lab._cli import options
from fair_tta.lab._cli.console import LEFT_OUT, embedded_notes, exits, log, usage

if TYPE_CHECKING:
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
    labels: Annotated[
        Path | None, typer.Option(help="CSV file with a header.", show_default="no labels")
    ] = None,
    target_column: labelled.TargetColumn = "class",
    sensitive_column: labelled.SensitiveColumn = [],  # noqa: B006
    path_column: labelled.PathColumn = None,
    cluster_column: labelled.ClusterColumn = None,
    targets: options.TargetsOption = [],  # noqa: B006
    sensitive: options.SensitiveOption = [],  # noqa: B006
    rename: labelled.Rename = [],  # noqa: B006
    skip_unknown: labelled.SkipUnknown = False,
    class_shares: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="How frequent the classes will be, if that is known from elsewhere: "
            "'doctor=0.3,nurse=0.7'. share-balance with these shares is compared too.",
            show_default="not known",
        ),
    ] = None,
    use_labels: labelled.UseLabels = False,
    template: options.Template = None,
    model: options.Model = "miniature",
    features: options.Features = None,
    id_column: options.IdColumn = None,
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
    """Fit a method to the images of a folder, and write it to a file that is ready to use.

    With labels methods are cross-fitted, and the one with the lowest typical gap is taken among
    those that significantly narrow it and do not significantly cost accuracy or the worst group; if
    there is none, the report says why. They are fitted without labels; with --use-labels
    share-balance and, from 200 labels on, balanced-head are compared too. Without labels
    logit-balance is fitted (with --class-shares share-balance), and a page shows what it would
    change. After Ctrl-C or a kill the same command goes on. Images that cannot be
    used are listed; the exit code is then 4.
    """
    has_labels = labels is not None or bool(sensitive_column)
    idle = [] if labels else ["path_column", "cluster_column"]
    idle += [] if has_labels else ["target_column", "rename", "skip_unknown", "use_labels"]
    options.refuse_idle(context, **dict.fromkeys(idle, "there is no --labels."))
    needed = {"--targets": targets, "--sensitive": sensitive}
    for option, given in ({"--sensitive-column": sensitive_column} if labels else needed).items():
        if not given and (labels or not has_labels):
            where = "with" if labels else "without"
            raise typer.BadParameter(f"it is needed {where} --labels.", param_hint=option)
    with exits(context, lambda: f"Stopped. {options.GOES_ON}", labels_csv="--labels"):
        data = labelled.read_labels(context) if has_labels else (None, None, None)
        values, asked, groups = data  # before PyTorch is imported
        from fair_tta._io import images_below
        from fair_tta.auditing import _mitigate as core
        from fair_tta.lab import folder
        from fair_tta.lab._cli.tables import images_inside, print_audit, print_examination
        from fair_tta.lab._runs.local import Local
        from fair_tta.lab._terminal import progress_bars, show
        from fair_tta.methods._fitted import save_adapter
        from fair_tta.methods._reference import Reference

        file = out / ADAPTER
        if file.exists() and not Reference.is_in(file):
            text = f"{str(file)!r} is not a file of fair-tta: choose another place (--out)."
            raise FairTTAError(text)
        classifier = options.make_classifier(context, asked, groups)
        count = 0 if values is None else values.rows
        methods = usage("--class-shares", core.candidates, count, class_shares, use_labels)
        for one in methods.values():
            usage("--class-shares", one.check_task, classifier.task)
        labelled.log_prompts(classifier)
        lines, fits = _python(text_features or model, classifier, out / ADAPTER), list[Any]()
        stored = options.stored_features(context)

        def about(chosen: str | None, reason: str) -> dict[str, Any]:
            return {"mitigation": {"chosen": chosen, "reason": reason, "python": chosen and lines}}

        with progress_bars(progress) as bars:
            common: dict[str, Any] = {
                "engine": Local(workers),
                "model": None if text_features else model,
                "restart": restart,
                "embed_images": embed_images and (has_labels or features is None),
                "notes": embedded_notes(context),
                "fitting": bars("images to fit on"),
            }
            if values is None:
                (name,) = methods
                reason = core.not_shown(name)
                examination, lost = folder.examine_folder(
                    classifier,
                    methods,
                    lambda: (
                        map(stored.source, stored.places) if stored else images_below(str(images))
                    ),
                    out,
                    provenance=about(name, reason),
                    fitted=fits.append,
                    problem=log,
                    progress=bars("images"),
                    **common,
                )
                method = fits[0].adapters.get(name)
                reason = core.without_labels(name, examination.document)
            else:
                result = folder.audit_folder(
                    classifier,
                    methods,
                    values,
                    out,
                    skip_unknown=skip_unknown,
                    use_labels=use_labels,
                    conclude=lambda document: about(*core.conclusion(document)),
                    progress=bars("rows"),
                    **common,
                )
                chosen, reason = core.conclusion(result.audit.document)
                method, lost = result.adapters.get(chosen or ""), result.problems.lost
        if method is None:
            file.unlink(missing_ok=True)  # of an earlier run
        else:
            save_adapter(core.fitted_on_all(method), file, classifier.task)
        examined, audited = (folder.EXAMINATION, folder.EXAMINATION_PAGE), folder.WRITTEN
        _remove_earlier(out, audited if values is None else examined)
        if values is None:
            print_examination(examination)
        else:
            print_audit(result)
        show(f"\n{reason}")
        if method is not None:
            page = folder.REPORT
            if values is None:
                page = f"{folder.EXAMINATION_PAGE} {images_inside(len(examination.images))}"
            show(f"Written to {out}: {ADAPTER}, {page}\n\n{lines}", wrap=False)
    if lost:
        raise typer.Exit(LEFT_OUT)


def _remove_earlier(out: Path, files: tuple[str, ...]) -> None:
    """Files of an earlier run of the other kind, unless another command wrote them."""
    import json

    try:
        document = json.loads((out / files[0]).read_bytes())
    except (OSError, ValueError):
        return
    if isinstance(document, dict) and "mitigation" in document.get("provenance", {}):
        for name in files:
            (out / name).unlink(missing_ok=True)


def _python(model: str | Path, classifier: FairTPTClassifier, file: Path) -> str:
    """The lines that use the method of a file; a `model` that is a path is one of text features."""
    task = classifier.task
    sensitive = {attribute: dict(names) for attribute, names in task.sensitive.items()}
    names = dict(task.targets), sensitive, task.templates.sentences["joint"]
    read, of = "", f"({model!r}"
    if isinstance(model, Path):
        read = "from fair_tta.lab.data import read_text_features\n"
        of = f".from_features(read_text_features({os.path.abspath(model)!r})[0]"
    last = f", scale={task.scale!r}" if read else ""
    return (
        f"from fair_tta import FairTPTClassifier, load_adapter\n{read}"
        f"method = load_adapter({str(file)!r})\n"
        f"clf = FairTPTClassifier{of}, {', '.join(map(repr, names))}{last}, adapter=method)"
    )
