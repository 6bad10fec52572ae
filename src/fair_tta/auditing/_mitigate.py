"""From labelled images to a method that is ready to use, if one is shown to help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs
from PIL.Image import Image

from fair_tta.auditing._audit import Audit
from fair_tta.auditing._classify import audit_classifier
from fair_tta.auditing._compare import compare
from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._judge import label_cautions, recommended_comparison, verdict_on
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.images._inputs import check_images
from fair_tta.images._stored import Features
from fair_tta.images._vision import image_digest
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.methods._cross_fit import CrossFitted, cross_fit
from fair_tta.methods._fitting import encode_in_batches
from fair_tta.methods._registry import parse_adapters
from fair_tta.metrics._answer_table import check_clusters, read_answer_table
from fair_tta.metrics._types import Column, Sensitive

DEFAULT_CANDIDATES = ("zero-shot", "association-correction", "logit-balance")
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
            "label about a hundred images.",
            argument="labels",
        )
    if sensitive is None:
        raise FairTTAError(
            "`sensitive` should be the attribute values of the images, between which `mitigate` "
            "measures gaps (got none): a value for each image, or {attribute: values}.",
            argument="sensitive",
        )
    several = images if isinstance(images, Features) else list(check_images(images))
    columns = read_answer_table(
        labels, [labels], sensitive, classifier.targets, None, clusters
    )
    check_clusters(columns.clusters)
    if columns.n != len(several):  # before any work is done
        raise FairTTAError(
            f"`labels` should be as many as images, {len(several)} (got {columns.n}).",
            argument="labels",
        )
    digests: list[str] = []

    def loaded() -> Iterator[Image]:
        for image_like in several:
            image = classifier._load(image_like)
            digests.append(image_digest(image))
            yield image

    # No image is answered by a fit that has seen it
    features = [
        batch.cpu() for batch in encode_in_batches(classifier, loaded(), progress)
    ]
    methods = cross_fit(classifier, candidates(), features, digests)
    audits = [
        audit_classifier(
            classifier,
            several,
            labels,
            sensitive,
            adapter=method,
            name=name,
            clusters=clusters,
            progress=progress,
        )
        for name, method in methods.items()
    ]
    audit = compare(audits)
    notes = [
        f"{name}: {method.note}"
        for name, method in methods.items()
        if isinstance(method, CrossFitted)
    ]
    warnings = (*notes, *audit.warnings)
    audit = replace(audit, document=structs.replace(audit.document, warnings=warnings))

    mitigation = choose_method(classifier, audit, methods)
    reason = " ".join([*label_cautions(audit.document), mitigation.reason])
    return replace(mitigation, reason=reason)


def candidates() -> dict[str, Adapter]:
    """Return new methods for labels to choose from, by their names."""
    return parse_adapters(DEFAULT_CANDIDATES)


def choose_method(
    classifier: FairTPTClassifier, audit: Audit, methods: Mapping[str, Adapter]
) -> Mitigation:
    """Return the candidate that labels choose, fitted on all images.

    Args:
        classifier: that was audited.
        audit: the comparison of the candidates.
        methods: the candidates as they answered, by their names.
    """
    chosen, reason = conclusion(audit.document)
    if chosen is None:
        return Mitigation(classifier.with_adapter(ZeroShot()), None, reason, audit)
    adapter = methods[chosen]
    if isinstance(adapter, CrossFitted):
        adapter = adapter.fits.on_all_images
    return Mitigation(classifier.with_adapter(adapter), adapter, reason, audit)


def conclusion(document: AuditDocument) -> tuple[str | None, str]:
    """Return the method that labels choose, None if there is none, and why, in a sentence."""
    comparison = recommended_comparison(document)
    if comparison is None:
        objections = [
            f"{each.run} {verdict_on(document, each).objection}"
            for each in document.comparisons
        ]
        return None, f"No method is chosen: {'; '.join(objections)}."
    gap_change = comparison.adjusted.typical_gap.to_text("+", "")
    accuracy_change = comparison.adjusted.balanced_accuracy.to_text("+", "")
    return comparison.run, (
        f"{comparison.run} is chosen: it changes the typical gap by {gap_change} points "
        f"({100 * document.settings.level:g} % CI, allowing for {len(document.comparisons)} "
        f"candidates) and balanced accuracy by {accuracy_change}, answers better than chance, and "
        "costs neither accuracy nor any group significantly."
    )
