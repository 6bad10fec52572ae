"""From images to a method that is ready to use, if one is shown to help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from msgspec import structs
from PIL.Image import Image

from fair_tta._images.stored import Features
from fair_tta._images.vision import image_digest
from fair_tta.auditing._audit import Audit
from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._examination import Examination, ExaminationDocument
from fair_tta.auditing._examine import examine_classifier
from fair_tta.auditing._judge import objection, recommended, stop_signs
from fair_tta.auditing._measure import audit_classifier, compare
from fair_tta.classifier import FairTPTClassifier, checked_images
from fair_tta.errors import FairTTAError
from fair_tta.methods import ShareBalance
from fair_tta.methods._base import Adapter
from fair_tta.methods._cross_fit import CrossFitted, cross_fit
from fair_tta.methods._fitted import encoded, save_adapter
from fair_tta.methods._registry import parse_adapters
from fair_tta.metrics._columns import (
    Column,
    Sensitive,
    check_clusters,
    parse_columns,
    read_column,
)

COMPARED = ("zero-shot", "association-correction", "logit-balance")
"""What labels decide between; the first is what the others are compared with."""

WITH_LABELS = {"share-balance:overall=labels": 1, "balanced-head": 200}
"""What else is compared if labels may be used for fitting, and from how many labels on."""


def candidates(
    labels: int, class_shares: Mapping[str, float] | str | None = None, use_labels: bool = False
) -> dict[str, Adapter]:
    """The methods to compare, by name; without labels the one that is fitted."""
    names = [*(COMPARED if labels else COMPARED[-1:])]
    names += [name for name, least in WITH_LABELS.items() if use_labels and labels >= least]
    found = parse_adapters(names)
    if class_shares is None:
        return found
    stated: dict[str, Adapter] = {"share-balance": ShareBalance(overall=class_shares)}
    return {**found, **stated} if labels else stated


def not_shown(name: str) -> str:
    """What is to be said of a method where nothing can be compared."""
    return f"{name} is fitted. Without labels nothing shows that it helps."


@dataclass(frozen=True, eq=False)
class Mitigation:
    """What `mitigate_classifier` found.

    Attributes:
        adapter: the method, fitted on all images; None if none is shown to help.
        reason: why this one, or why none, in a sentence.
        audit: with labels the comparison that chose it, by fits that had not seen the image.
        examination: without labels what the method would change.
    """

    adapter: Adapter | None
    reason: str
    audit: Audit | None
    examination: Examination | None
    _classifier: FairTPTClassifier

    def save(self, path: str | PathLike[str]) -> None:
        """Write the method to a file, which `load_adapter` reads.

        Raises:
            FairTTAError: there is no method.
        """
        if self.adapter is None:
            raise FairTTAError(f"there is no method to save: {self.reason}")
        save_adapter(self.adapter, path, self._classifier.task)


def mitigate_classifier(
    classifier: FairTPTClassifier,
    images: Any,
    labels: Column | None = None,
    sensitive: Sensitive | None = None,
    *,
    class_shares: Mapping[str, float] | None = None,
    use_labels: bool = False,
    clusters: Column | None = None,
    progress: bool = False,
) -> Mitigation:
    """A method that is ready to use, chosen by labels if there are any.

    Methods are fitted without labels, unless `use_labels` allows it. With labels the methods of
    `COMPARED` are cross-fitted, and the one with the lowest typical gap is taken among those that
    significantly narrow it and do not significantly cost accuracy or the worst group; it is then
    fitted on all images. What the audit reports are the cross-fitted answers. Without labels it is
    `LogitBalance`, or with `class_shares` `ShareBalance`, and nothing shows that it helps.

    Args:
        classifier: with sensitive names; its adapter does not matter.
        images: a list or any iterable; 300 or more, of the groups that will be met.
        labels: their true labels, in the words of ``classifier.targets``.
        sensitive: their sensitive values, or ``{attribute: values}``, if there are labels.
        class_shares: ``{class: share}`` among the images to come, if that is known from elsewhere:
            `ShareBalance` with these shares is compared too.
        use_labels: compare methods fitted with class labels too (never with sensitive values),
            those of `WITH_LABELS`; the labels come from the other folds than the image.
        clusters: the person or source of each image, see `fair_tta.audit`, if there are labels.
        progress: show progress bars.
    """
    if (labels is None) != (sensitive is None):
        raise FairTTAError("`labels` and `sensitive` should both be given, or neither.")
    if labels is None and clusters is not None:
        raise FairTTAError("`clusters` are for intervals, which need `labels`.")
    if use_labels and labels is None:
        raise FairTTAError("`use_labels` goes with `labels` (got none).")
    several = images if isinstance(images, Features) else list(checked_images(images))
    tried = candidates(0 if labels is None else len(several), class_shares, use_labels)
    for one in tried.values():
        one.check_task(classifier.task)
    if labels is not None:  # before any work is done
        columns = parse_columns(labels, [labels], sensitive, classifier.targets, None, clusters)
        check_clusters(columns.clusters)
        if columns.n != len(several):
            raise FairTTAError(
                f"`labels` should be as many as images, {len(several)} (got {columns.n})."
            )
    digests: list[str] = []

    def loaded() -> Iterator[Image]:
        for one in several:
            image = classifier.vision.load(one)
            digests.append(image_digest(image))
            yield image

    features = [some.cpu() for some in encoded(classifier, loaded(), progress)]
    known = read_column("labels", labels) if use_labels and labels is not None else ()
    methods = cross_fit(classifier, tried, features, digests, [*map(str, known)])
    if labels is None or sensitive is None:
        examination = examine_classifier(classifier, several, methods, progress=progress)
        ((name, method),) = methods.items()
        reason = without_labels(name, examination.document)
        adapter = fitted_on_all(method)
        return Mitigation(adapter, reason, None, examination, classifier)
    audits = [
        audit_classifier(
            classifier,
            several,
            labels,
            sensitive,
            adapter=one,
            name=name,
            clusters=clusters,
            progress=progress,
        )
        for name, one in methods.items()
    ]
    audit = compare(audits)
    crossed = {name: one for name, one in methods.items() if isinstance(one, CrossFitted)}
    notes = (*(f"{name}: {one.note}" for name, one in crossed.items()), *audit.warnings)
    audit = replace(audit, document=structs.replace(audit.document, warnings=notes))
    chosen, reason = conclusion(audit.document)
    reason = " ".join([*stop_signs(audit.document), reason])
    chosen_adapter = None if chosen is None else fitted_on_all(methods[chosen])
    return Mitigation(chosen_adapter, reason, audit, None, classifier)


def without_labels(name: str, document: ExaminationDocument) -> str:
    """What is to be said of a method that no labels speak for."""
    if any(of.stop_signs for of in document.attributes.values()):
        return f"{not_shown(name)} The examination says STOP: let labels decide."
    return not_shown(name)


def fitted_on_all(method: Adapter) -> Adapter:
    """A method as it is used on other images."""
    return method.fits.of_all if isinstance(method, CrossFitted) else method


def conclusion(document: AuditDocument) -> tuple[str | None, str]:
    """The method that labels choose, None if there is none, and why, in a sentence."""
    found = recommended(document)
    if found is None:
        reasons = "; ".join(f"{c.run} {objection(c)}" for c in document.comparisons)
        return None, f"No method is chosen: {reasons}."
    change = found.adjusted.typical_gap.shown("+", "")
    level, n = f"{100 * document.settings.level:g} %", len(document.comparisons)
    return found.run, (
        f"{found.run} is chosen: it changes the typical gap by {change} points ({level} CI, "
        f"allowing for {n} candidates), and costs neither accuracy nor the worst group "
        "significantly."
    )
