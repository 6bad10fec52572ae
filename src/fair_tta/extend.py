"""Base classes and types for authors of methods, losses, rates, views, models and caches."""

from fair_tta._cache import Cache
from fair_tta.classifier import FairTPTClassifier
from fair_tta.images._views import AugMix, Views
from fair_tta.methods._base import (
    Adapter,
    Needs,
    Outcome,
    PixelAdapter,
    UsesTexts,
)
from fair_tta.methods._fitting import FittedMethod
from fair_tta.methods._reference import Reference
from fair_tta.methods.tuning._losses import Loss, Objective, Term
from fair_tta.methods.tuning._rates import RatePolicy
from fair_tta.models import Backend, Tokens
from fair_tta.models._onnx import OnnxBackend
from fair_tta.prompts._task import Task

__all__ = [
    "Adapter",
    "AugMix",
    "Backend",
    "Cache",
    "FittedMethod",
    "Loss",
    "Needs",
    "Objective",
    "OnnxBackend",
    "Outcome",
    "PixelAdapter",
    "RatePolicy",
    "Reference",
    "Task",
    "Term",
    "Tokens",
    "UsesTexts",
    "Views",
    "task_of",
]


def task_of(classifier: FairTPTClassifier) -> Task:
    """Return the text side of a classifier, as its method gets it.

    It belongs to the weights at the last call: after they have changed there is another one.

    Example:
        >>> task = task_of(FairTPTClassifier("miniature", ["a circle", "a square"]))
        >>> task.target_features.shape[0]
        2
    """
    return classifier._task
