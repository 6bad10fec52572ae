"""From labelled images to a method that is ready to use, if one is shown to help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from msgspec import structs
from PIL.Image import Image

from fair_tta._images.stored import Features
from fair_tta._images.vision import image_digest
from fair_tta.auditing._audit import Audit
from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._judge import objection, recommended, stop_signs
from fair_tta.auditing._measure import audit_classifier, compare
from fair_tta.classifier import FairTPTClassifier, checked_images
from fair_tta.errors import FairTTAError
from fair_tta.methods._base import Adapter
from fair_tta.methods._cross_fit import CrossFitted, cross_fit
from fair_tta.methods._fitted import encoded, save_adapter
from fair_tta.methods._registry import parse_adapters
from fair_tta.metrics._columns import Column, Sensitive, check_clusters, parse_columns

COMPARED = ("zero-shot", "association-correction", "logit-balance")
"""What labels decide between; the first is what the others are compared with."""


@dataclass(frozen=True, eq=False)
class Mitigation:
    """What `mitigate_classifier` found.

    Attributes:
        adapter: the method, fitted on all images; None if none is shown to help.
        reason: why this one, or why none, in a sentence.
        audit: the comparison that chose it, by fits that had not seen the image.
    """

    adapter: Adapter | None
    reason: str
    audit: Audit
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
    clusters: Column | None = None,
    progress: bool = False,
) -> Mitigation:
    """A method that is ready to use, chosen by labels.

    The methods of `COMPARED` are cross-fitted without labels, and the one with the lowest typical
    gap is taken among those that significantly narrow it and do not significantly cost accuracy or
    the worst group; it is then fitted on all images. What the audit reports are the cross-fitted
    answers.

    Args:
        classifier: with sensitive names; its adapter does not matter.
        images: a list or any iterable; 300 or more, of the groups that will be met.
        labels: their true labels, in the words of ``classifier.targets``.
        sensitive: their attribute values, or ``{attribute: values}``.
        clusters: the person or source of each image, see `fair_tta.audit`.
        progress: show progress bars.

    Raises:
        FairTTAError: there are no labels or no attribute values, or they cannot be used.
    """
    if labels is None:
        raise FairTTAError(
            "`labels` should be the classes of the images, by which `mitigate` chooses a method "
            "(got none): fit one on purpose, `LogitBalance().fit(clf, images)`, or label about a "
            "hundred images."
        )
    if sensitive is None:
        raise FairTTAError(
            "`sensitive` should be the attribute values of the images, between which `mitigate` "
            "measures gaps (got none): a value for each image, or {attribute: values}."
        )
    several = images if isinstance(images, Features) else list(checked_images(images))
    columns = parse_columns(labels, [labels], sensitive, classifier.targets, None, clusters)
    check_clusters(columns.clusters)
    if columns.n != len(several):  # before any work is done
        raise FairTTAError(
            f"`labels` should be as many as images, {len(several)} (got {columns.n})."
        )
    digests: list[str] = []

    def loaded() -> Iterator[Image]:
        for one in several:
            image = classifier._load(one)
            digests.append(image_digest(image))
            yield image

    features = [some.cpu() for some in encoded(classifier, loaded(), progress)]
    methods = cross_fit(classifier, parse_adapters(COMPARED), features, digests)
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
    return Mitigation(chosen_adapter, reason, audit, classifier)


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
