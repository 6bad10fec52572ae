"""Wrap a CLIP model so that its zero-shot answers depend less on an attribute that you name.

Names are imported when they are asked for: PyTorch takes seconds, and ``fair-tta --help`` needs
none of it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fair_tta._cache import Cache
    from fair_tta._images.draw import Renderer
    from fair_tta._images.views import AugMix, CropFlip, Identity, Views
    from fair_tta._models import Backend, Tokens
    from fair_tta._prompts.task import Task
    from fair_tta._prompts.templates import Templates
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
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.errors import FairTTAError, ImageError, ModelError, PromptError, TowerError
    from fair_tta.methods import (
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
    from fair_tta.methods._field.seraser import DistortedViews, NoisyViews
    from fair_tta.methods._registry import load_adapter
    from fair_tta.methods._tuning.directions import Direction
    from fair_tta.methods._tuning.losses import Loss, Objective, SLoss, SuperTSLoss, Term, TSLoss
    from fair_tta.methods._tuning.rates import ELRA, FixedRate, RatePolicy, Stepper
    from fair_tta.metrics import Bootstrap, Estimate, Over, SmallGroupWarning
    from fair_tta.pipeline import FairPipeline
    from fair_tta.prediction import Prediction

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

_MODULE_OF = {
    "Cache": "_cache",
    "Renderer": "_images.draw",
    "AugMix": "_images.views",
    "CropFlip": "_images.views",
    "Identity": "_images.views",
    "Views": "_images.views",
    "Backend": "_models",
    "Tokens": "_models",
    "Task": "_prompts.task",
    "Templates": "_prompts.templates",
    "Associations": "auditing",
    "Audit": "auditing",
    "Examination": "auditing",
    "Scores": "auditing",
    "audit": "auditing",
    "audit_classifier": "auditing",
    "compare": "auditing",
    "examine_classifier": "auditing",
    "predictions_to_dataframe": "auditing",
    "FairTPTClassifier": "classifier",
    "FairTTAError": "errors",
    "ImageError": "errors",
    "ModelError": "errors",
    "PromptError": "errors",
    "TowerError": "errors",
    "MEMO": "methods",
    "SAGE": "methods",
    "SAR": "methods",
    "TIE": "methods",
    "TPT": "methods",
    "UMFC": "methods",
    "Adapter": "methods",
    "AdaptsPixels": "methods",
    "AssociationCorrection": "methods",
    "BalanceStream": "methods",
    "BendVLM": "methods",
    "Chained": "methods",
    "DeYO": "methods",
    "EpisodicTIE": "methods",
    "FairTPT": "methods",
    "FairTPTMO": "methods",
    "FitsImages": "methods",
    "FitsLabelledImages": "methods",
    "KLFromUniform": "methods",
    "KLToUniform": "methods",
    "LogitBalance": "methods",
    "OrthCali": "methods",
    "Outcome": "methods",
    "PartialProjection": "methods",
    "PerceptionCLIP": "methods",
    "Reference": "methods",
    "ReferenceBatch": "methods",
    "RoboShot": "methods",
    "SEraser": "methods",
    "SmallReferenceWarning": "methods",
    "StreamGuard": "methods",
    "Tent": "methods",
    "Texts": "methods",
    "TIEStar": "methods",
    "ViewControl": "methods",
    "Zero": "methods",
    "ZeroShot": "methods",
    "DistortedViews": "methods._field.seraser",
    "NoisyViews": "methods._field.seraser",
    "load_adapter": "methods._registry",
    "Direction": "methods._tuning.directions",
    "Loss": "methods._tuning.losses",
    "Objective": "methods._tuning.losses",
    "SLoss": "methods._tuning.losses",
    "SuperTSLoss": "methods._tuning.losses",
    "Term": "methods._tuning.losses",
    "TSLoss": "methods._tuning.losses",
    "ELRA": "methods._tuning.rates",
    "FixedRate": "methods._tuning.rates",
    "RatePolicy": "methods._tuning.rates",
    "Stepper": "methods._tuning.rates",
    "Bootstrap": "metrics",
    "Estimate": "metrics",
    "Over": "metrics",
    "SmallGroupWarning": "metrics",
    "FairPipeline": "pipeline",
    "Prediction": "prediction",
}

if not TYPE_CHECKING:  # or a type checker would believe in any name

    def __getattr__(name: str) -> object:
        if name in __all__:
            value = getattr(import_module(f"fair_tta.{_MODULE_OF[name]}"), name)
            return globals().setdefault(name, value)
        if find_spec(f"fair_tta.{name}") is not None:
            return import_module(f"fair_tta.{name}")
        raise AttributeError(f"module 'fair_tta' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
