"""Choose a method by labelled images, if one is shown to help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs
from PIL.Image import Image

from fair_tta.auditing._audit import Audit
from fair_tta.auditing._classify import audit_classifier, check_label_count
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
from fair_tta.metrics._answer_table import read_answer_table
from fair_tta.metrics._clusters import check_clusters
from fair_tta.metrics._types import Column, Sensitive

DEFAULT_CANDIDATES = ("zero-shot", "association-correction", "logit-balance")
"""The methods that labels choose between; the others are compared with the first."""


@dataclass(frozen=True, eq=False)
class Mitigation:
    """The result of `FairTPTClassifier.mitigate`.

    Attributes:
        classifier: the same classifier with the method that was chosen, ready to use; with
            `ZeroShot` if none is shown to help.
        adapter: the method, fitted on all images; None if none is shown to help.
        reason: why this one, or why none, in a sentence.
        audit: the comparison that chose it; each image is answered by a fit that has not seen it.
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
            "(got none): label about a hundred images, or choose a method yourself, such as "
            "`clf.with_adapter('logit-balance').fit(images)`.",
            argument="labels",
        )
    if sensitive is None:
        raise FairTTAError(
            "`sensitive` should be the attribute values of the images, between which `mitigate` "
            "measures gaps (got none): a value for each image, or {attribute: values}.",
            argument="sensitive",
        )
    # Wrong arguments are refused before any image is encoded
    all_images = images if isinstance(images, Features) else list(check_images(images))
    table = read_answer_table(
        labels, [labels], sensitive, classifier.targets, None, clusters
    )
    check_clusters(table.clusters)
    check_label_count(table.n, len(all_images))

    # Candidates are cross-fitted: no image is answered by a fit that has seen it
    digests: list[str] = []

    def load_with_digests() -> Iterator[Image]:
        for image_like in all_images:
            image = classifier._load(image_like)
            digests.append(image_digest(image))
            yield image

    batches = encode_in_batches(classifier, load_with_digests(), progress)
    features = [batch.cpu() for batch in batches]
    methods = cross_fit(classifier, candidates(), features, digests)

    # Each candidate is audited by itself; the notes say how it was cross-fitted
    audits = []
    notes = []
    for name, method in methods.items():
        audits.append(
            audit_classifier(
                classifier,
                all_images,
                labels,
                sensitive,
                adapter=method,
                name=name,
                clusters=clusters,
                progress=progress,
            )
        )
        if isinstance(method, CrossFitted):
            notes.append(f"{name}: {method.note}")
    audit = compare(audits)
    document = structs.replace(audit.document, warnings=(*notes, *audit.warnings))
    audit = replace(audit, document=document)

    chosen, reason = conclusion(document)
    reason = " ".join([*label_cautions(document), reason])
    return make_mitigation(classifier, audit, methods, chosen, reason)


def candidates() -> dict[str, Adapter]:
    """Return new methods for labels to choose from, by their names."""
    return parse_adapters(DEFAULT_CANDIDATES)


def conclusion(document: AuditDocument) -> tuple[str | None, str]:
    """Return the method that labels choose, None if there is none, and why, in a sentence."""
    comparison = recommended_comparison(document)
    if comparison is None:
        objections = []
        for each in document.comparisons:
            objections.append(f"{each.run} {verdict_on(document, each).objection}")
        return None, f"No method is chosen: {'; '.join(objections)}."
    # Intervals allow for the number of candidates, as the choice did
    gap_change = comparison.adjusted.typical_gap.to_text("+", "")
    accuracy_change = comparison.adjusted.balanced_accuracy.to_text("+", "")
    return comparison.run, (
        f"{comparison.run} is chosen: it changes the typical gap by {gap_change} points "
        f"({100 * document.settings.level:g} % CI, allowing for {len(document.comparisons)} "
        f"candidates) and balanced accuracy by {accuracy_change}, answers better than chance, and "
        "costs neither accuracy nor any group significantly."
    )


def make_mitigation(
    classifier: FairTPTClassifier,
    audit: Audit,
    methods: Mapping[str, Adapter],
    chosen: str | None,
    reason: str,
) -> Mitigation:
    """Return the mitigation with the chosen candidate, fitted on all images.

    Args:
        classifier: that was audited.
        audit: the comparison of the candidates.
        methods: the candidates as they answered, by their names.
        chosen: the name of the method of choice, None if there is none.
        reason: why, in a sentence.
    """
    if chosen is None:
        return Mitigation(classifier.with_adapter(ZeroShot()), None, reason, audit)
    adapter = methods[chosen]
    if isinstance(adapter, CrossFitted):
        adapter = adapter.fits.on_all_images
    return Mitigation(classifier.with_adapter(adapter), adapter, reason, audit)
