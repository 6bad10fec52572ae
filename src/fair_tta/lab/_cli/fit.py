"""``fair-tta fit``: fit a method on reference images once and use the file often."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fair_tta.errors import FairTTAError
from fair_tta.lab._cli import options
from fair_tta.lab._cli.console import LEFT_OUT, exits, log, progress_bar, usage


def fit_command(
    context: typer.Context,
    adapter: Annotated[
        str,
        typer.Option(
            "--adapter",
            metavar="METHOD",
            help="Method that needs a reference, with its settings: 'logit-balance:strength=1'.",
            autocompletion=options.complete_adapters,
        ),
    ],
    images: Annotated[
        Path, typer.Option("--images", metavar="DIR", help="Folder of the reference images.")
    ],
    targets: options.TargetsOption,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write.")],
    sensitive: options.SensitiveOption = [],  # noqa: B006
    template: options.Template = None,
    model: options.Model = "miniature",
    batch_size: options.BatchSize = 16,
    device: options.Device = None,
    dtype: options.Precision = None,
    progress: options.ShowProgress = None,
) -> None:
    """Fit a method on reference images without labels and write it to a file.

    The file is used as --adapter 'METHOD:reference=FILE', with the same model and the same names. A
    image that cannot be read is listed and does not stop the others; the exit code is then 4.
    """
    with exits(context, reference="--images"):
        _check_out(out)
        from fair_tta.lab._runs.reference import ReferenceFolder, check_fittable

        method = usage("--adapter", options.read_adapter, adapter)
        assert method is not None
        usage("--adapter", check_fittable, {adapter: method})
        classifier = options.make_classifier(context, adapter=method)
        folder = ReferenceFolder.scan(images)
        with progress_bar(progress, "images") as update:
            fitted = folder.fit(classifier, {adapter: method}, progress=update)
        (found,) = fitted.adapters.values()
        found.save(out)  # type: ignore[attr-defined]
        options.log_fitted(fitted)
        log(f"Written: {str(out)!r}.")
    if fitted.left_out:
        raise typer.Exit(LEFT_OUT)


def _check_out(out: Path) -> None:
    """Before any work: there is a place for the file, and what is there is an earlier one."""
    from fair_tta.methods._reference import Reference

    if not out.parent.is_dir():
        raise FairTTAError(f"`out` should be in a folder that exists (got {str(out)!r}).")
    if out.is_dir():
        raise FairTTAError(f"`out` should be a file, not a folder (got {str(out)!r}).")
    if out.is_file() and out.stat().st_size and not Reference.is_in(out):
        raise FairTTAError(
            f"`out` should be a new file, or one of `fair-tta fit` (got {str(out)!r}, which is "
            "something else): choose another name."
        )
