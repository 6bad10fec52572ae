"""Fitting a method without a classifier of its own, with what it needs to know of the images."""

from __future__ import annotations

from typing import Any

from fair_tta.extend import Adapter
from fair_tta.methods._fitted import fit_encoded, fit_method


def fit_on(
    method: Adapter, classifier: Any, images: Any, known: Any = None, *, progress: bool = False
) -> Any:
    """What `FairTPTClassifier.fit` makes of a method; `known` are the labels that it needs."""
    labels, sensitive = _by_need(method, known)
    return fit_method(classifier, method, images, labels, sensitive, progress=progress)


def fit_on_features(method: Adapter, classifier: Any, features: Any, known: Any = None) -> Any:
    """The same from arrays of features, or batches of them, as runs over folders do it."""
    labels, sensitive = _by_need(method, known)
    return fit_encoded(classifier, method, features, sensitive, labels)


def _by_need(method: Adapter, known: Any) -> tuple[Any, Any]:
    return (known, None) if method.needs.class_labels else (None, known)
