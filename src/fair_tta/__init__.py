"""Wrap a CLIP model so that its zero-shot answers depend less on an attribute that you name.

Names are imported when they are asked for: PyTorch takes seconds, and ``fair-tta --help`` needs
none of it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fair_tta.adapters import (
        MEMO,
        SAGE,
        SAR,
        TIE,
        TPT,
        UMFC,
        Adapter,
        AdaptsPixels,
        AssociationCorrection,
        BalanceStream,
        BendVLM,
        Chained,
        DeYO,
        EpisodicTIE,
        FairTPT,
        FairTPTMO,
        FitsImages,
        FitsLabelledImages,
        KLFromUniform,
        KLToUniform,
        LogitBalance,
        OrthCali,
        Outcome,
        PartialProjection,
        PerceptionCLIP,
        Reference,
        ReferenceBatch,
        RoboShot,
        SEraser,
        SmallReferenceWarning,
        StreamGuard,
        Tent,
        Texts,
        TIEStar,
        ViewControl,
        Zero,
        ZeroShot,
    )
    from fair_tta.adapters.loading import load_adapter
    from fair_tta.auditing import (
        Associations,
        Audit,
        Examination,
        Scores,
        audit,
        audit_classifier,
        compare,
        examine_classifier,
        predictions_to_dataframe,
    )
    from fair_tta.backends import Backend, Tokens
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.errors import FairTTAError, ImageError, ModelError, PromptError, TowerError
    from fair_tta.metrics import Bootstrap, Estimate, Over, SmallGroupWarning
    from fair_tta.pipeline import FairPipeline
    from fair_tta.prediction import Prediction
    from fair_tta.text.cache import Cache
    from fair_tta.text.prompts import Templates
    from fair_tta.text.task import Task
    from fair_tta.tuning.directions import Direction
    from fair_tta.tuning.objectives import Loss, Objective, SLoss, SuperTSLoss, Term, TSLoss
    from fair_tta.tuning.rates import ELRA, FixedRate, RatePolicy, Stepper
    from fair_tta.vision.auxiliary import DistortedViews, NoisyViews
    from fair_tta.vision.renderers import Renderer
    from fair_tta.vision.views import AugMix, CropFlip, Identity, Views

__version__ = "0.2.0"

__all__ = [
    "ELRA",
    "MEMO",
    "SAGE",
    "SAR",
    "TIE",
    "TPT",
    "UMFC",
    "Adapter",
    "AdaptsPixels",
    "AssociationCorrection",
    "Associations",
    "Audit",
    "AugMix",
    "Backend",
    "BalanceStream",
    "BendVLM",
    "Bootstrap",
    "Cache",
    "Chained",
    "CropFlip",
    "DeYO",
    "Direction",
    "DistortedViews",
    "EpisodicTIE",
    "Estimate",
    "Examination",
    "FairPipeline",
    "FairTPT",
    "FairTPTClassifier",
    "FairTPTMO",
    "FairTTAError",
    "FitsImages",
    "FitsLabelledImages",
    "FixedRate",
    "Identity",
    "ImageError",
    "KLFromUniform",
    "KLToUniform",
    "LogitBalance",
    "Loss",
    "ModelError",
    "NoisyViews",
    "Objective",
    "OrthCali",
    "Outcome",
    "Over",
    "PartialProjection",
    "PerceptionCLIP",
    "Prediction",
    "PromptError",
    "RatePolicy",
    "Reference",
    "ReferenceBatch",
    "Renderer",
    "RoboShot",
    "SEraser",
    "SLoss",
    "Scores",
    "SmallGroupWarning",
    "SmallReferenceWarning",
    "Stepper",
    "StreamGuard",
    "SuperTSLoss",
    "TIEStar",
    "TSLoss",
    "Task",
    "Templates",
    "Tent",
    "Term",
    "Texts",
    "Tokens",
    "TowerError",
    "ViewControl",
    "Views",
    "Zero",
    "ZeroShot",
    "__version__",
    "audit",
    "audit_classifier",
    "compare",
    "examine_classifier",
    "load_adapter",
    "predictions_to_dataframe",
]

_MODULES = (
    "errors", "text.prompts", "metrics",  # these do without PyTorch
    "adapters", "adapters.loading", "auditing", "backends", "classifier", "text.cache", "text.task",
    "tuning.directions", "tuning.objectives", "tuning.rates", "prediction", "vision.auxiliary",
    "vision.views", "pipeline",
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
