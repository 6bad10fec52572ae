"""``fair-tta examine``: look at images without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fair_tta.lab.cli._console import (
    EXIT_LEFT_OUT,
    errors_as_exit_codes,
    log,
    parse_option,
)
from fair_tta.lab.cli._expand import with_shared_options
from fair_tta.lab.cli._inputs import (
    RESUME_HINT,
    check_methods,
    image_lister,
    log_fitted,
    make_classifier,
    run_notes,
)
from fair_tta.lab.cli._methods import ExaminedMethodsOption
from fair_tta.lab.cli._options import (
    AttributePromptOptions,
    ImageOptions,
    ReferenceOptions,
    ReportRunOptions,
    ViewEncoderOptions,
)


@with_shared_options
def examine_command(
    context: typer.Context,
    *,
    prompts: AttributePromptOptions,
    adapters: ExaminedMethodsOption = ["association-correction"],  # noqa: B006
    reference_set: ReferenceOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the examination as JSON.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for examine.json, examine.html and predictions; the same command resumes "
            "from there.",
            show_default="save nothing",
        ),
    ] = None,
    images: ImageOptions,
    encoder: ViewEncoderOptions,
    run: ReportRunOptions,
) -> None:
    """Show what the model perceives in unlabelled images, and what methods would change.

    This is the model's own perception, not a measurement of people. An image or folder that cannot
    be read is listed and does not stop the others; the exit code is then 4.
    """
    encoder.require_one_source(images.images)
    run.require_out(out)

    def stopped() -> str:
        return "Stopped." if out is None else f"Stopped. {RESUME_HINT}"

    with errors_as_exit_codes(context, stopped):
        import json

        from fair_tta.lab._folder_options import FolderExaminationOptions
        from fair_tta.lab._terminal import print_text, progress_bars
        from fair_tta.lab._unlabelled import (
            EXAMINATION_FILE,
            EXAMINATION_PAGE,
            examine_folder,
        )
        from fair_tta.lab.cli._tables import embedded_images_text, print_examination
        from fair_tta.lab.runs._local import Local
        from fair_tta.lab.runs._store import ROWS_FILE
        from fair_tta.methods._registry import parse_adapters

        # Wrong options are refused before the model is loaded
        methods = parse_option("--adapters", parse_adapters, adapters)
        check_methods("--adapters", methods, encoder.features, reference_set.reference)
        classifier = make_classifier(
            prompts.parse(),
            encoder,
            seed=encoder.seed,
            views=encoder.views,
        )

        # The report says which part of the images it is about
        notes = run_notes(encoder)
        if images.limit is not None:
            notes.append(f"Not all images were used: the first {images.limit}.")
        if images.sample is not None:
            notes.append(f"Not all images were used: a sample of {images.sample}.")

        # Methods that are not fitted yet read the images a first time
        is_fitted = all(method.is_fitted for method in methods.values())
        list_images = image_lister(images, encoder, is_read_twice=not is_fitted)
        with progress_bars(run.progress) as bars:
            options = FolderExaminationOptions(
                engine=Local(run.workers),
                model=encoder.loadable_model,
                restart=run.restart,
                # People who type paths wait for the answer to each line
                read_ahead=not images.has_stdin,
                embed_images=run.embed_images and encoder.features is None,
                reference=reference_set.reference,
                reference_is_data=reference_set.reference_is_data,
                notes=notes,
                fitted=log_fitted,
                problem=log,
                progress=bars("images"),
                fitting=bars("reference images"),
            )
            examination, n_failed = examine_folder(
                classifier, methods, list_images, out, options
            )
        # JSON is printed alone, so that programs can read it
        if as_json:
            print_text(json.dumps(examination.to_dict(), indent=1), wrap=False)
        else:
            print_examination(examination)
            if out is not None:
                inside = embedded_images_text(len(examination.images))
                files = f"{EXAMINATION_FILE}, {EXAMINATION_PAGE} {inside}, {ROWS_FILE}"
                print_text(f"Written to {out}: {files}", wrap=False)
    if n_failed:
        n_images = examination.document.n + n_failed
        log(f"{n_failed} of {n_images} images could not be used.")
    if n_failed or encoder.has_left_out:
        raise typer.Exit(EXIT_LEFT_OUT)
