"""``fair-tta audit``: measure methods on labelled images, group by group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fair_tta.lab.cli._console import errors_as_exit_codes, parse_option
from fair_tta.lab.cli._expand import with_shared_options
from fair_tta.lab.cli._inputs import (
    RESUME_HINT,
    check_methods,
    make_classifier,
    run_notes,
)
from fair_tta.lab.cli._labels import labels_from_options, log_prompts, print_and_exit
from fair_tta.lab.cli._methods import AuditedMethodsOption
from fair_tta.lab.cli._names import parse_harmful_sets
from fair_tta.lab.cli._options import (
    LabelOptions,
    LabelPromptOptions,
    ReferenceOptions,
    ReportRunOptions,
    SampleOptions,
    ThresholdOptions,
    ViewEncoderOptions,
)

DEFAULT_METHODS = ["zero-shot", "association-correction", "logit-balance"]


@with_shared_options
def audit_command(
    context: typer.Context,
    *,
    images: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the images.", show_default=False),
    ] = None,
    label_file: LabelOptions,
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder for predictions, audit and report."),
    ],
    prompts: LabelPromptOptions,
    harmful: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help="Classes that harm people, such as 'crime: thief,criminal'. They are added to the "
            "targets, and their rates are reported for each group.",
        ),
    ] = [],  # noqa: B006
    adapters: AuditedMethodsOption = DEFAULT_METHODS,
    reference_set: ReferenceOptions,
    encoder: ViewEncoderOptions,
    rows: SampleOptions,
    thresholds: ThresholdOptions,
    run: ReportRunOptions,
) -> None:
    """Measure several methods on the same labelled images, group by group.

    Without --targets or --sensitive the values in the columns are the names. Finished predictions
    are saved: after Ctrl-C or a crash the same command resumes. Rows and images that cannot be used
    are listed and do not stop the run; the exit code is then 4, or 5 if a --fail-if threshold is
    exceeded.
    """
    encoder.require_one_source(images)
    n_finished = 0

    def stopped() -> str:
        return f"Stopped; {n_finished} rows are finished. {RESUME_HINT}"

    with errors_as_exit_codes(
        context, stopped, images_dir="--images", labels_csv="--labels"
    ):
        # A wrong label file is refused before PyTorch is imported
        values, parsed = labels_from_options(images, label_file, prompts, encoder, out)

        from fair_tta.auditing._judge import read_thresholds
        from fair_tta.lab._folder import FolderRun
        from fair_tta.lab._folder_options import FolderAuditOptions
        from fair_tta.lab._terminal import progress_bars
        from fair_tta.lab.runs._local import Local
        from fair_tta.methods._registry import parse_adapters

        # Wrong options are refused before the model is loaded
        methods = parse_option("--adapters", parse_adapters, adapters)
        check_methods(
            "--adapters",
            methods,
            encoder.features,
            reference_set.reference,
            has_labels=True,
        )
        fail_on = thresholds.fail_on or "zero-shot"
        fail_if = thresholds.fail_if
        parse_option(
            "--fail-if / --fail-on", read_thresholds, fail_if, fail_on, methods
        )

        # Harmful classes are targets too, so that the model can predict them
        harmful_sets = parse_option("--harmful", parse_harmful_sets, harmful)
        targets = dict(parsed.targets)
        for classes in harmful_sets.values():
            for name, phrase in classes.items():
                targets.setdefault(name, phrase)

        classifier = make_classifier(
            replace(parsed, targets=targets),
            encoder,
            seed=encoder.seed,
            views=encoder.views,
        )
        log_prompts(classifier)
        with progress_bars(run.progress) as bars:
            # The number of rows is also that of the message after Ctrl-C
            update_rows = bars("rows")

            def count(finished: int, total: int) -> None:
                nonlocal n_finished
                n_finished = finished
                update_rows(finished, total)

            options = FolderAuditOptions(
                skip_unknown=label_file.skip_unknown,
                limit=rows.limit,
                sample=rows.sample,
                harmful={name: list(classes) for name, classes in harmful_sets.items()},
                engine=Local(run.workers),
                model=encoder.loadable_model,
                restart=run.restart,
                embed_images=run.embed_images,
                reference=reference_set.reference,
                reference_is_data=reference_set.reference_is_data,
                fail_if=fail_if,
                fail_on=fail_on,
                notes=run_notes(encoder),
                progress=count,
                fitting=bars("reference images"),
            )
            result = FolderRun(classifier, methods, values, out, options).audit()
        print_and_exit(result)
