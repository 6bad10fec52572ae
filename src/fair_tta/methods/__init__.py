"""Methods, one file each, and their text form; no loops over images."""

from fair_tta.methods.base import Adapter, AdaptsPixels, Chained, Outcome, Texts
from fair_tta.methods.field.bend_vlm import BendVLM
from fair_tta.methods.field.deyo import DeYO
from fair_tta.methods.field.entropy_baselines import MEMO, SAR, Tent
from fair_tta.methods.field.partial_projection import PartialProjection
from fair_tta.methods.field.perception_clip import PerceptionCLIP
from fair_tta.methods.field.roboshot import RoboShot
from fair_tta.methods.field.sage import SAGE
from fair_tta.methods.field.seraser import KLFromUniform, KLToUniform, SEraser
from fair_tta.methods.field.tie import TIE, EpisodicTIE, TIEStar
from fair_tta.methods.field.umfc import UMFC
from fair_tta.methods.fitted import (
    FitsImages,
    FitsLabelledImages,
    ReferenceBatch,
    SmallReferenceWarning,
)
from fair_tta.methods.own.association_correction import AssociationCorrection
from fair_tta.methods.own.logit_balance import BalanceStream, LogitBalance, StreamGuard
from fair_tta.methods.own.view_control import ViewControl
from fair_tta.methods.paper.fair_tpt import FairTPT, FairTPTMO
from fair_tta.methods.paper.orthcali import OrthCali
from fair_tta.methods.paper.tpt import TPT
from fair_tta.methods.paper.zero import Zero
from fair_tta.methods.paper.zero_shot import ZeroShot
from fair_tta.methods.reference import Reference

__all__ = [
    "MEMO",
    "SAGE",
    "SAR",
    "TIE",
    "TPT",
    "UMFC",
    "Adapter",
    "AdaptsPixels",
    "AssociationCorrection",
    "BalanceStream",
    "BendVLM",
    "Chained",
    "DeYO",
    "EpisodicTIE",
    "FairTPT",
    "FairTPTMO",
    "FitsImages",
    "FitsLabelledImages",
    "KLFromUniform",
    "KLToUniform",
    "LogitBalance",
    "OrthCali",
    "Outcome",
    "PartialProjection",
    "PerceptionCLIP",
    "Reference",
    "ReferenceBatch",
    "RoboShot",
    "SEraser",
    "SmallReferenceWarning",
    "StreamGuard",
    "TIEStar",
    "Tent",
    "Texts",
    "ViewControl",
    "Zero",
    "ZeroShot",
]
