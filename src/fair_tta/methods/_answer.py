"""One batch of features, one method: its predictions, each beside the zero-shot answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fair_tta.images._vision import Vision
from fair_tta.methods._base import Adapter, Outcome, PixelAdapter, non_finite_error
from fair_tta.methods._cross_fit import CrossFitted
from fair_tta.methods._predictions import to_predictions
from fair_tta.methods.paper._zero_shot import ZeroShot
from fair_tta.prediction import Prediction
from fair_tta.prompts._task import Task


def predict_from_features(
    adapter: Adapter,
    task: Task,
    vision: Vision,
    features: Tensor,
    images: Sequence[Any] = (),
) -> list[Prediction]:
    """Return the method's predictions from unit features ``[images, views, dim]``.

    Only methods of pixels and cross-fitted methods look at the loaded `images`.
    """
    if isinstance(adapter, CrossFitted) and images:
        return _predict_by_folds(adapter, task, vision, features, images)
    zero_shot = ZeroShot().adapt(task, features)
    try:
        adapted = _adapt(adapter, task, vision, features, images, zero_shot)
    except Exception:
        # Features that are not finite explain whatever error a method runs into.
        if not zero_shot.probabilities.isfinite().all():
            raise non_finite_error(task) from None
        raise
    return to_predictions(task, zero_shot, adapted, adapter)


def _adapt(
    adapter: Adapter,
    task: Task,
    vision: Vision,
    features: Tensor,
    images: Sequence[Any],
    zero_shot: Outcome,
) -> Outcome:
    if isinstance(adapter, PixelAdapter) and images:
        return adapter.adapt_pixels(task, vision, images)
    if adapter == ZeroShot():
        return zero_shot
    return adapter.adapt(task, features)


def _predict_by_folds(
    adapter: CrossFitted,
    task: Task,
    vision: Vision,
    features: Tensor,
    images: Sequence[Any],
) -> list[Prediction]:
    """Let each image be answered by the fit that has not seen it."""
    predictions: dict[int, Prediction] = {}
    for fitted, indices in adapter.folds(images):
        fold_images = [images[index] for index in indices]
        answers = predict_from_features(
            fitted, task, vision, features[indices], fold_images
        )
        predictions.update(zip(indices, answers, strict=True))
    return [predictions[index] for index in range(len(images))]
