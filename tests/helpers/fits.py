"""Fitting a method without a classifier of its own, with what it needs to know of the images."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from internals import fit_encoded, fit_method, settings_of

from fair_tta.extend import Adapter

M = TypeVar("M", bound=Adapter)


def fit_on(
    method: M,
    classifier: Any,
    images: Any,
    known: Any = None,
    *,
    progress: bool = False,
) -> M:
    """What `FairTPTClassifier.fit` makes of a method; `known` are the labels that it needs."""
    labels, sensitive = _by_need(method, known)
    fitted: M = fit_method(
        classifier, method, images, labels, sensitive, progress=progress
    )
    return fitted


def fit_on_features(method: M, classifier: Any, features: Any, known: Any = None) -> M:
    """The same from arrays of features, or batches of them, as runs over folders do it."""
    labels, sensitive = _by_need(method, known)
    fitted: M = fit_encoded(classifier, method, features, sensitive, labels)
    return fitted


def save(method: Any, path: Path) -> None:
    """What `FairTPTClassifier.save` does with a method that has learnt something."""
    method._checked_reference()._save(path, settings_of(method))


def _by_need(method: Adapter, known: Any) -> tuple[Any, Any]:
    return (known, None) if method.needs.reference_labels else (None, known)
