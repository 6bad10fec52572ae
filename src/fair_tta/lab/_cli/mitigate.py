"""``fair-tta mitigate``: from a folder to a method that is ready to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from fair_tta.errors import FairTTAError
from fair_tta.lab._cli import audit as labelled
from fair_tta.lab._cli import options
from fair_tta.lab._cli.console import LEFT_OUT, embedded_notes, exits, log, progress_bars

if TYPE_CHECKING:
    from fair_tta.classifier import FairTPTClassifier

ADAPTER = "adapter.safetensors"


def mitigate_command(
    context: typer.Context,
    images: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", exists=True, file_okay=False, help="Folder of the images."
        ),
    ],
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
    template: options.Template = None,
    model: options.Model = "miniature",
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 16,
    device: options.Device = None,
    dtype: options.Precision = None,
    engine: options.WhichEngine = options.EngineName.LOCAL,
    workers: options.Workers = None,
    cores: options.Cores = 1,
    address: options.Address = None,
    restart: options.Restart = False,
    no_pictures: options.NoPictures = False,
    progress: options.ShowProgress = None,
) -> None:
    """Fit a method to the images of a folder, and write it to a file that is ready to use.

    With labels methods are cross-fitted, and the one with the lowest typical gap is taken among
    those that significantly narrow it and do not significantly cost accuracy or the worst group; if
    there is none, the report says why. Without labels logit-balance is fitted, and a page shows
    what it would change. After Ctrl-C or a kill the same command goes on. Images that cannot be
    used are listed; the exit code is then 4.
    """
    has_labels = labels is not None or bool(sensitive_column)
    idle = [] if labels else ["path_column", "cluster_column"]
    idle += [] if has_labels else ["target_column", "rename", "skip_unknown"]
    options.refuse_idle(context, **dict.fromkeys(idle, "there is no --labels."))
    needed = {"--targets": targets, "--sensitive": sensitive}
    for option, given in ({"--sensitive-column": sensitive_column} if labels else needed).items():
        if not given and (labels or not has_labels):
            where = "with" if labels else "without"
            raise typer.BadParameter(f"it is needed {where} --labels.", param_hint=option)
    with exits(context, lambda: f"Stopped. {options.GOES_ON}", labels_csv="--labels"):
        from fair_tta._io import images_below, printable
        from fair_tta.auditing import _mitigate as core
        from fair_tta.lab._cli.tables import print_audit, print_examination
        from fair_tta.lab.folder import EXAMINATION_PAGE, REPORT, audit_folder, examine_folder
        from fair_tta.methods._fitted import save_adapter
        from fair_tta.methods._reference import Reference
        from fair_tta.methods._registry import parse_adapters

        file = out / ADAPTER
        if file.exists() and not Reference.is_in(file):
            text = f"{str(file)!r} is not a file of fair-tta: choose another place (--out)."
            raise FairTTAError(text)
        data = labelled.read_labels(context) if has_labels else (None, None, None)
        values, asked, groups = data
        classifier = options.make_classifier(context, asked, groups)
        labelled.log_prompts(classifier)
        lines, fits = _python(model, classifier), list[Any]()

        def about(chosen: str | None, reason: str) -> dict[str, Any]:
            return {"mitigation": {"chosen": chosen, "reason": reason, "python": chosen and lines}}

        with progress_bars(progress) as bars:
            common: dict[str, Any] = {
                "engine": options.make_engine(context),
                "model": model,
                "restart": restart,
                "pictures": not no_pictures,
                "notes": embedded_notes(context),
                "fitting": bars("images to fit on"),
            }
            if values is None:
                name, reason = core.WITHOUT_LABELS, core.NOT_SHOWN
                examination, lost = examine_folder(
                    classifier,
                    parse_adapters([name]),
                    lambda: images_below(str(images)),
                    out,
                    provenance=about(name, reason),
                    fitted=fits.append,
                    problem=log,
                    progress=bars("images"),
                    **common,
                )
                method = fits[0].adapters.get(name)
                reason = core.without_labels(examination.document)
            else:
                result = audit_folder(
                    classifier,
                    parse_adapters(core.COMPARED),
                    values,
                    out,
                    skip_unknown=skip_unknown,
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
        if values is None:
            print_examination(examination)
        else:
            print_audit(result)
        Console().print(Text(f"\n{printable(reason)}"))
        if method is not None:
            files = f"{ADAPTER}, {EXAMINATION_PAGE if values is None else REPORT}"
            typer.echo(f"Written to {printable(str(out))}: {files}\n\n{lines}")
    if lost:
        raise typer.Exit(LEFT_OUT)


def _python(model: str, classifier: FairTPTClassifier) -> str:
    """The lines that use the method, in the folder of its file."""
    task = classifier.task
    sensitive = {attribute: dict(names) for attribute, names in task.sensitive.items()}
    names = model, dict(task.targets), sensitive, task.templates.sentences["joint"]
    return (
        "from fair_tta import FairTPTClassifier, load_adapter\n"
        f"method = load_adapter({ADAPTER!r})\n"
        f"clf = FairTPTClassifier({', '.join(map(repr, names))}, adapter=method)"
    )
