"""The other methods, the losses of FairTPT, and how a saved method is loaded."""

from fair_tta.methods._registry import load_adapter
from fair_tta.methods.corrections._association_correction import (
    AssociationCorrection as AssociationCorrection,
)
from fair_tta.methods.corrections._balanced_head import BalancedHead
from fair_tta.methods.corrections._logit_balance import LogitBalance as LogitBalance
from fair_tta.methods.field._bend_vlm import BendVLM
from fair_tta.methods.field._deyo import DeYO
from fair_tta.methods.field._entropy_baselines import MEMO, SAR, Tent
from fair_tta.methods.field._partial_projection import PartialProjection
from fair_tta.methods.field._perception_clip import PerceptionCLIP
from fair_tta.methods.field._roboshot import RoboShot
from fair_tta.methods.field._sage import SAGE
from fair_tta.methods.field._sem import SEM
from fair_tta.methods.field._seraser import SEraser
from fair_tta.methods.field._tie import TIE, EpisodicTIE, TIEStar
from fair_tta.methods.field._ttr import TTR
from fair_tta.methods.field._umfc import UMFC
from fair_tta.methods.paper._fair_tpt import FairTPT as FairTPT
from fair_tta.methods.paper._fair_tpt import FairTPTMO as FairTPTMO
from fair_tta.methods.paper._orthcali import OrthCali as OrthCali
from fair_tta.methods.paper._tpt import TPT as TPT
from fair_tta.methods.paper._zero import Zero as Zero
from fair_tta.methods.paper._zero_shot import ZeroShot as ZeroShot
from fair_tta.methods.tuning._losses import SLoss, SuperTSLoss, TSLoss

__all__ = [
    "MEMO",
    "SAGE",
    "SAR",
    "SEM",
    "TIE",
    "TTR",
    "UMFC",
    "BalancedHead",
    "BendVLM",
    "DeYO",
    "EpisodicTIE",
    "PartialProjection",
    "PerceptionCLIP",
    "RoboShot",
    "SEraser",
    "SLoss",
    "SuperTSLoss",
    "TIEStar",
    "TSLoss",
    "Tent",
    "load_adapter",
]
