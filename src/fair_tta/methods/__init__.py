"""The other methods, the losses and parts that are passed to them, and how they are loaded."""

from fair_tta.methods._base import Chained
from fair_tta.methods._field.bend_vlm import BendVLM
from fair_tta.methods._field.deyo import DeYO
from fair_tta.methods._field.entropy_baselines import MEMO, SAR, Tent
from fair_tta.methods._field.partial_projection import PartialProjection
from fair_tta.methods._field.perception_clip import PerceptionCLIP
from fair_tta.methods._field.roboshot import RoboShot
from fair_tta.methods._field.sage import SAGE
from fair_tta.methods._field.sem import SEM
from fair_tta.methods._field.seraser import DistortedViews, KLFromUniform, SEraser
from fair_tta.methods._field.tie import TIE, EpisodicTIE, TIEStar
from fair_tta.methods._field.ttr import TTR
from fair_tta.methods._field.umfc import UMFC
from fair_tta.methods._own.association_correction import (
    AssociationCorrection as AssociationCorrection,
)
from fair_tta.methods._own.balanced_head import BalancedHead
from fair_tta.methods._own.logit_balance import LogitBalance as LogitBalance
from fair_tta.methods._paper.fair_tpt import FairTPT as FairTPT
from fair_tta.methods._paper.fair_tpt import FairTPTMO as FairTPTMO
from fair_tta.methods._paper.orthcali import OrthCali as OrthCali
from fair_tta.methods._paper.tpt import TPT as TPT
from fair_tta.methods._paper.zero import Zero as Zero
from fair_tta.methods._paper.zero_shot import ZeroShot as ZeroShot
from fair_tta.methods._registry import load_adapter
from fair_tta.methods._tuning.losses import SLoss, SuperTSLoss, TSLoss

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
    "Chained",
    "DeYO",
    "DistortedViews",
    "EpisodicTIE",
    "KLFromUniform",
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
