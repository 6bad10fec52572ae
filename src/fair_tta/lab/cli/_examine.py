"""``fair-tta examine``: what can be seen without labels?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fair_tta.lab.cli import _options as options
from fair_tta.lab.cli._console import LEFT_OUT, embedded_notes, exits, log, usage


def examine_command(
    context: typer.Context,
    *,
    images: options.Images = [],  # noqa: B006
    targets: options.TargetsOption,
    sensitive: options.SensitiveOption,
    template: options.Template = None,
    model: options.Model = "miniature",
    adapters: Annotated[
        list[str],
        typer.Option(
            metavar="METHODS",
            help="Methods to try, with commas between them, written as for `fair-tta predict "
            "--adapter`; each is compared with zero-shot, and zero-shot alone looks only.",
            autocompletion=options.complete_adapters,
        ),
    ] = ["association-correction"],  # noqa: B006
    reference: options.ReferenceDir = None,
    reference_is_data: options.ReferenceIsData = False,
    as_json: Annotated[bool, typer.Option("--json", help="The examination as JSON.")] = False,
    null: options.Null = False,
    features: options.Features = None,
    id_column: options.IdColumn = None,
    text_features: options.TextFeatures = None,
    scale: options.Scale = None,
    seed: options.Seed = 0,
    views: options.ViewCount = 64,
    batch_size: options.BatchSize = 16,
    device: options.Device = None,
    dtype: options.Precision = None,
    limit: options.Limit = None,
    sample: options.Sample = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for examine.json, examine.html and finished answers; the same command "
            "goes on after a stop.",
            show_default="keep none",
        ),
    ] = None,
    embed_images: options.EmbedImages = False,
    restart: options.Restart = False,
    workers: options.Workers = 1,
    progress: options.ShowProgress = None,
) -> None:
    """Look at images without labels: what the model perceives, and what methods would change.

    It is the model's own perception, not a measurement on people. An image or folder that cannot
    be read is listed and does not stop the others; the exit code is then 4.
    """
    options.refuse_idle(context)

    def stopped() -> str:
        return "Stopped." if out is None else f"Stopped. {options.GOES_ON}"

    with exits(context, stopped):
        import json

        from fair_tta.lab._terminal import progress_bars, show
        from fair_tta.lab._unlabelled import EXAMINATION, EXAMINATION_PAGE, examine_folder
        from fair_tta.lab.cli._tables import images_inside, print_examination
        from fair_tta.lab.runs._local import Local
        from fair_tta.lab.runs._store import ROWS
        from fair_tta.methods import ZeroShot
        from fair_tta.methods._registry import parse_adapters

        methods = usage("--adapters", parse_adapters, adapters)
        options.check_methods(context, "--adapters", methods, reference)
        classifier = options.make_classifier(context, adapter=ZeroShot())
        is_fitted = all(method.is_fitted for method in methods.values())
        some = [f"Not all images were used: {name} {number}." for name, number in
                (("the first", limit), ("a sample of", sample)) if number is not None]  # fmt: skip
        with progress_bars(progress) as bar:
            examination, failed = examine_folder(
                classifier,
                methods,
                options.chosen_images(context, is_read_twice=not is_fitted),
                out,
                engine=Local(workers),
                model=None if text_features else model,
                restart=restart,
                read_ahead="-" not in images,
                embed_images=embed_images and features is None,
                reference=reference,
                reference_is_data=reference_is_data,
                notes=[*embedded_notes(context), *some],
                fitted=options.log_fitted,
                problem=log,
                progress=bar("images"),
                fitting=bar("reference images"),
            )
        if as_json:
            show(json.dumps(examination.to_dict(), indent=1), wrap=False)
        else:
            print_examination(examination)
            if out is not None:
                inside = images_inside(len(examination.images))
                files = f"{EXAMINATION}, {EXAMINATION_PAGE} {inside}, {ROWS}"
                show(f"Written to {out}: {files}", wrap=False)
    if failed:
        log(f"{failed} of {examination.document.n + failed} images could not be used.")
        raise typer.Exit(LEFT_OUT)
