"""Wrap a CLIP model so that its zero-shot answers depend less on an attribute that you name.

Names are imported when they are asked for: PyTorch takes seconds, and ``fair-tta --help`` needs
none of it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_MODULES = (
    "errors", "prompts", "metrics",  # these do without PyTorch
    "adapters", "auditing", "backends", "classifier", "learning_rate", "objectives", "prediction",
    "views",
)  # fmt: skip

if not TYPE_CHECKING:  # or a type checker would believe in any name

    def __getattr__(name: str) -> object:
        if name in __all__:
            homes = (vars(import_module(f"fair_tta.{module}")) for module in _MODULES)
            return globals().setdefault(name, next(home[name] for home in homes if name in home))
        if find_spec(f"fair_tta.{name}") is not None:
            return import_module(f"fair_tta.{name}")
        raise AttributeError(f"module 'fair_tta' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
