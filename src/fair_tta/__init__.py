"""Wrap a CLIP model so that its zero-shot predictions depend less on an attribute that you name.

Names are imported on first use: PyTorch takes seconds, and ``fair-tta --help`` needs none of it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fair_tta._cache import Cache
    from fair_tta._images.stored import Features
    from fair_tta._images.views import AugMix
    from fair_tta._onnx import OnnxBackend
    from fair_tta._prompts.templates import Templates
    from fair_tta.auditing import Audit, Examination, audit, compare
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.errors import (
        DamagedRowWarning,
        DatasetError,
        FairTTAError,
        FeatureMismatchWarning,
        ImageError,
        ModelError,
        PromptError,
        SmallGroupWarning,
        SmallReferenceWarning,
        StoreError,
        TowerError,
        UnknownAnswerWarning,
    )
    from fair_tta.methods import (
        TPT,
        AssociationCorrection,
        BalancedHead,
        FairTPT,
        FairTPTMO,
        LogitBalance,
        OrthCali,
        Zero,
        ZeroShot,
    )
    from fair_tta.methods._registry import load_adapter
    from fair_tta.methods._tuning.rates import ELRA, FixedRate
    from fair_tta.pipeline import FairPipeline
    from fair_tta.prediction import Prediction

__version__ = "0.3.0"

__all__ = [
    "ELRA",
    "TPT",
    "AssociationCorrection",
    "Audit",
    "AugMix",
    "BalancedHead",
    "Cache",
    "DamagedRowWarning",
    "DatasetError",
    "Examination",
    "FairPipeline",
    "FairTPT",
    "FairTPTClassifier",
    "FairTPTMO",
    "FairTTAError",
    "FeatureMismatchWarning",
    "Features",
    "FixedRate",
    "ImageError",
    "LogitBalance",
    "ModelError",
    "OnnxBackend",
    "OrthCali",
    "Prediction",
    "PromptError",
    "SmallGroupWarning",
    "SmallReferenceWarning",
    "StoreError",
    "Templates",
    "TowerError",
    "UnknownAnswerWarning",
    "Zero",
    "ZeroShot",
    "__version__",
    "audit",
    "compare",
    "load_adapter",
]


def _by_name(names_of: dict[str, str]) -> dict[str, str]:
    return {name: module for module, names in names_of.items() for name in names.split()}


_MODULE = _by_name(
    {
        "_cache": "Cache",
        "_images.stored": "Features",
        "_images.views": "AugMix",
        "_onnx": "OnnxBackend",
        "_prompts.templates": "Templates",
        "auditing": "Audit Examination audit compare",
        "classifier": "FairTPTClassifier",
        "errors": "FairTTAError ImageError PromptError ModelError TowerError DatasetError "
        "StoreError SmallGroupWarning SmallReferenceWarning DamagedRowWarning "
        "FeatureMismatchWarning UnknownAnswerWarning",
        "methods": "ZeroShot TPT Zero OrthCali FairTPT FairTPTMO LogitBalance "
        "BalancedHead AssociationCorrection",
        "methods._registry": "load_adapter",
        "methods._tuning.rates": "ELRA FixedRate",
        "pipeline": "FairPipeline",
        "prediction": "Prediction",
    }
)

if not TYPE_CHECKING:  # otherwise a type checker accepts any name

    def __getattr__(name: str) -> object:
        if name in _MODULE:
            value = getattr(import_module(f"fair_tta.{_MODULE[name]}"), name)
        elif not name.startswith("_") and find_spec(f"fair_tta.{name}") is not None:
            return import_module(f"fair_tta.{name}")
        else:
            raise AttributeError(f"module 'fair_tta' has no attribute {name!r}")
        return globals().setdefault(name, value)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
