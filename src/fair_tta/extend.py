"""Base classes and types for authors of methods, losses, rates, views and models."""

from fair_tta._images.draw import Renderer
from fair_tta._images.views import Identity, Views
from fair_tta._models import Backend, Tokens
from fair_tta._prompts.task import Task
from fair_tta.methods._base import (
    Adapter,
    FindsTexts,
    Needs,
    Outcome,
    PixelAdapter,
    Texts,
    UsesTexts,
)
from fair_tta.methods._fitted import FitsImages, FitsLabelledImages, ReferenceBatch
from fair_tta.methods._reference import Reference
from fair_tta.methods._tuning.losses import Loss, Objective, Term
from fair_tta.methods._tuning.prompt import PromptTuning
from fair_tta.methods._tuning.rates import RatePolicy, Stepper
from fair_tta.methods._tuning.weights import WeightTuning

__all__ = [
    "Adapter",
    "Backend",
    "FindsTexts",
    "FitsImages",
    "FitsLabelledImages",
    "Identity",
    "Loss",
    "Needs",
    "Objective",
    "Outcome",
    "PixelAdapter",
    "PromptTuning",
    "RatePolicy",
    "Reference",
    "ReferenceBatch",
    "Renderer",
    "Stepper",
    "Task",
    "Term",
    "Texts",
    "Tokens",
    "UsesTexts",
    "Views",
    "WeightTuning",
]
