"""From labelled images to a method that is ready to use, if one is shown to help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs
from PIL.Image import Image

from fair_tta.auditing._audit import Audit
from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._judge import not_measurable, recommended, verdict_on
from fair_tta.auditing._measure import audit_classifier, compare
from fair_tta.classifier import FairTPTClassifier, checked_images
from fair_tta.errors import FairTTAError
from fair_tta.images._stored import Features
from fair_tta.images._vision import image_digest
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.methods._cross_fit import CrossFitted, cross_fit
from fair_tta.methods._fitting import encoded
from fair_tta.methods._registry import parse_adapters
from fair_tta.metrics._answer_table import Column, Sensitive, check_clusters, parse_columns

COMPARED = ("zero-shot", "association-correction", "logit-balance")
"""What labels decide between; the first is what the others are compared with."""


@dataclass(frozen=True, eq=False)
class Mitigation:
    """What `FairTPTClassifier.mitigate` found.

    Attributes:
        classifier: the same classifier with the method that was chosen, ready to use; with
            `ZeroShot` if none is shown to help.
        adapter: the method, fitted on all images; None if none is shown to help.
        reason: why this one, or why none, in a sentence.
        audit: the comparison that chose it, by fits that had not seen the image.
    """

    classifier: FairTPTClassifier
    adapter: Adapter | None
    reason: str
    audit: Audit


def mitigate_classifier(
    classifier: FairTPTClassifier,
    images: Any,
    labels: Column | None = None,
    sensitive: Sensitive | None = None,
    *,
    clusters: Column | None = None,
    progress: bool = False,
) -> Mitigation:
    """See `FairTPTClassifier.mitigate`."""
    if labels is None:
        raise FairTTAError(
            "`labels` should be the classes of the images, by which `mitigate` chooses a method "
            "(got none): fit one on purpose, `clf.with_adapter('logit-balance').fit(images)`, or "
            "label about a hundred images."
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
            image = classifier._vision.load(one)
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
    reason = " ".join([*not_measurable(audit.document), reason])
    adapter = None if chosen is None else fitted_on_all(methods[chosen])
    ready = classifier.with_adapter(ZeroShot() if adapter is None else adapter)
    return Mitigation(ready, adapter, reason, audit)


def fitted_on_all(method: Adapter) -> Adapter:
    """A method as it is used on other images."""
    return method.fits.of_all if isinstance(method, CrossFitted) else method


def conclusion(document: AuditDocument) -> tuple[str | None, str]:
    """The method that labels choose, None if there is none, and why, in a sentence."""
    found = recommended(document)
    if found is None:
        reasons = "; ".join(
            f"{c.run} {verdict_on(document, c).objection}" for c in document.comparisons
        )
        return None, f"No method is chosen: {reasons}."
    change = found.adjusted.typical_gap.to_text("+", "")
    balanced = found.adjusted.balanced_accuracy.to_text("+", "")
    level, n = f"{100 * document.settings.level:g} %", len(document.comparisons)
    return found.run, (
        f"{found.run} is chosen: it changes the typical gap by {change} points ({level} CI, "
        f"allowing for {n} candidates) and balanced accuracy by {balanced}, answers better than "
        "chance, and costs neither accuracy nor any group significantly."
    )
