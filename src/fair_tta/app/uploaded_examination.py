"""Pictures without labels: the page and the files of an examination."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fair_tta.adapters import Adapter, ZeroShot
from fair_tta.app.sweeping import mark_used
from fair_tta.app.uploads import UploadedFile, plain_name
from fair_tta.auditing.changed_pictures import ChangedPictures
from fair_tta.auditing.perceptions import Perceptions
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.metrics.bootstrap import DEFAULT
from fair_tta.runs.answer import to_prediction
from fair_tta.runs.job import job_of
from fair_tta.runs.local import Local
from fair_tta.runs.picture_files import AskedPicture
from fair_tta.runs.provenance import classifier_provenance
from fair_tta.runs.runner import Runner, batched

Progress = Callable[[int, int], None]
"""Is told how many are finished, and of how many."""

_SHOWN = 5  # problems


def examine_uploads(
    classifier: FairTPTClassifier,
    methods: Mapping[str, Adapter],
    files: Sequence[UploadedFile],
    out: Path,
    *,
    notes: Sequence[str] = (),
    progress: Progress = lambda done, total: None,
) -> list[Path]:
    """Look at pictures; the page first, then the document.

    Args:
        classifier: with sensitive names.
        methods: to be compared with zero-shot, which is left out.
        files: pictures. Those that cannot be used are told on the page.
        out: a folder.
        notes: sentences to begin the warnings with.
        progress: is told after each picture.
    """
    if not classifier.sensitive:
        raise FairTTAError("`What should not matter` should name at least two values (got none).")
    tried = {name: one for name, one in methods.items() if not isinstance(one, ZeroShot)}
    for method in tried.values():
        classifier.with_adapter(method)  # what cannot be used is told before anything is done
    perceptions = Perceptions(classifier.associations(), tried)
    changed = ChangedPictures(tried)
    left_out = []
    job = job_of(classifier, [ZeroShot(), *tried.values()], is_kept=False)
    size = classifier.batch_size

    def in_use() -> Iterator[UploadedFile]:
        for some in batched(files, size):
            mark_used(file.path for file in files)  # also those that the page shows at the end
            yield from some

    runner, seed = Runner(job, Local()), classifier.vision.seed
    answered = runner.stream(in_use(), _asked, size=size, seed=seed)
    for done, (file, answers) in enumerate(answered, start=1):
        if isinstance(answers, str):
            left_out.append(answers.replace(repr(file.path), repr(plain_name(file.name))))
        else:
            names = classifier.targets, classifier.sensitive
            predictions = [to_prediction(answer, *names) for answer in answers]
            perceptions.add(predictions)
            changed.add(predictions, plain_name(file.name), file.path)
        progress(done, len(files))
    if not len(perceptions):
        raise FairTTAError(f"no picture could be used: {left_out[0]}")
    examination = perceptions.examine(
        DEFAULT, classifier_provenance(classifier), [*notes, *_told(left_out, len(files))]
    )
    examination = replace(examination, pictures=changed.pictures(classifier.vision.load))
    out.mkdir(parents=True, exist_ok=True)
    examination.save_html(out / "examine.html")
    examination.save(out / "examine.json")
    return [out / "examine.html", out / "examine.json"]


def _asked(file: UploadedFile) -> AskedPicture:
    return AskedPicture(plain_name(file.name), file.path)


def _told(left_out: Sequence[str], count: int) -> list[str]:
    if not left_out:
        return []
    more = [f"and {len(left_out) - _SHOWN} more."] if len(left_out) > _SHOWN else []
    return [f"{len(left_out)} of {count} pictures could not be used.", *left_out[:_SHOWN], *more]
