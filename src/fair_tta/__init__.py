"""Wrap a CLIP model so that its zero-shot answers depend less on an attribute that you name."""

from fair_tta.adapters import (
    TPT,
    Adapter,
    FairTPT,
    FairTPTMO,
    OrthCali,
    Outcome,
    Projected,
    Zero,
    ZeroShot,
)
from fair_tta.auditing import (
    Audit,
    Scores,
    audit,
    audit_classifier,
    compare,
    predictions_to_dataframe,
)
from fair_tta.backends import Backend, Tokens
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError, ImageError, ModelError, PromptError, TowerError
from fair_tta.learning_rate import ELRA, FixedRate
from fair_tta.metrics import Bootstrap, Estimate, Over, SmallGroupWarning
from fair_tta.objectives import SLoss, SuperTSLoss, TSLoss
from fair_tta.prediction import Prediction
from fair_tta.prompts import Templates
from fair_tta.views import AugMix, CropFlip, Identity, Views

__version__ = "0.1.0"

__all__ = [
    "ELRA",
    "TPT",
    "Adapter",
    "Audit",
    "AugMix",
    "Backend",
    "Bootstrap",
    "CropFlip",
    "Estimate",
    "FairTPT",
    "FairTPTClassifier",
    "FairTPTMO",
    "FairTTAError",
    "FixedRate",
    "Identity",
    "ImageError",
    "ModelError",
    "OrthCali",
    "Outcome",
    "Over",
    "Prediction",
    "Projected",
    "PromptError",
    "SLoss",
    "Scores",
    "SmallGroupWarning",
    "SuperTSLoss",
    "TSLoss",
    "Templates",
    "Tokens",
    "TowerError",
    "Views",
    "Zero",
    "ZeroShot",
    "__version__",
    "audit",
    "audit_classifier",
    "compare",
    "predictions_to_dataframe",
]
