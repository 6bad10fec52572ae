"""Wrap a CLIP model so that its zero-shot predictions depend less on an attribute that you name.

Names are imported on first use: PyTorch takes seconds, and ``fair-tta --help`` needs none of it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fair_tta.auditing import audit, compare
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.errors import FairTTAError
    from fair_tta.images._stored import Features
    from fair_tta.methods import (
        TPT,
        AssociationCorrection,
        FairTPT,
        FairTPTMO,
        LogitBalance,
        OrthCali,
        Zero,
        ZeroShot,
    )
    from fair_tta.methods.tuning._rates import ELRA, FixedRate
    from fair_tta.pipeline import FairPipeline
    from fair_tta.prediction import Prediction
    from fair_tta.prompts._templates import Templates

__version__ = "0.3.0"

__all__ = [
    "ELRA",
    "TPT",
    "AssociationCorrection",
    "FairPipeline",
    "FairTPT",
    "FairTPTClassifier",
    "FairTPTMO",
    "FairTTAError",
    "Features",
    "FixedRate",
    "LogitBalance",
    "OrthCali",
    "Prediction",
    "Templates",
    "Zero",
    "ZeroShot",
    "__version__",
    "audit",
    "compare",
]

_NAMES = {
    "images._stored": "Features",
    "prompts._templates": "Templates",
    "auditing": "audit compare",
    "classifier": "FairTPTClassifier",
    "errors": "FairTTAError",
    "methods": "ZeroShot TPT Zero OrthCali FairTPT FairTPTMO AssociationCorrection LogitBalance",
    "methods.tuning._rates": "ELRA FixedRate",
    "pipeline": "FairPipeline",
    "prediction": "Prediction",
}
_MODULE = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # otherwise a type checker accepts any name

    def __getattr__(name: str) -> object:
        if name in _MODULE:
            value = getattr(import_module(f"fair_tta.{_MODULE[name]}"), name)
            return globals().setdefault(name, value)
        if not name.startswith("_") and find_spec(f"fair_tta.{name}") is not None:
            return import_module(f"fair_tta.{name}")
        raise AttributeError(f"module 'fair_tta' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
