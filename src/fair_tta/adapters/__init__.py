"""Methods, one file each."""

from fair_tta.adapters.base import Adapter, Outcome
from fair_tta.adapters.fair_tpt import FairTPT
from fair_tta.adapters.fair_tpt_mo import FairTPTMO
from fair_tta.adapters.orthcali import OrthCali
from fair_tta.adapters.prompt_tuning import Projected
from fair_tta.adapters.tpt import TPT
from fair_tta.adapters.zero import Zero
from fair_tta.adapters.zero_shot import ZeroShot

__all__ = [
    "TPT",
    "Adapter",
    "FairTPT",
    "FairTPTMO",
    "OrthCali",
    "Outcome",
    "Projected",
    "Zero",
    "ZeroShot",
]
