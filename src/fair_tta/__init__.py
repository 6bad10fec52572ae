"""Wrap a CLIP model so that its zero-shot answers depend less on an attribute that you name."""

from fair_tta.adapters import Adapter, Outcome, ZeroShot
from fair_tta.backends import Backend, Tokens
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError, ImageError, ModelError, PromptError, TowerError
from fair_tta.prediction import Prediction
from fair_tta.prompts import Templates

__version__ = "0.1.0"

__all__ = [
    "Adapter",
    "Backend",
    "FairTPTClassifier",
    "FairTTAError",
    "ImageError",
    "ModelError",
    "Outcome",
    "Prediction",
    "PromptError",
    "Templates",
    "Tokens",
    "TowerError",
    "ZeroShot",
    "__version__",
]
