"""Methods, one file each, and their text form; no loops over images."""

from fair_tta.methods._base import Adapter, AdaptsPixels, Chained, Outcome, Texts
from fair_tta.methods._field.bend_vlm import BendVLM
from fair_tta.methods._field.deyo import DeYO
from fair_tta.methods._field.entropy_baselines import MEMO, SAR, Tent
from fair_tta.methods._field.partial_projection import PartialProjection
from fair_tta.methods._field.perception_clip import PerceptionCLIP
from fair_tta.methods._field.roboshot import RoboShot
from fair_tta.methods._field.sage import SAGE
from fair_tta.methods._field.seraser import KLFromUniform, KLToUniform, SEraser
from fair_tta.methods._field.tie import TIE, EpisodicTIE, TIEStar
from fair_tta.methods._field.umfc import UMFC
from fair_tta.methods._fitted import (
    FitsImages,
    FitsLabelledImages,
    ReferenceBatch,
    SmallReferenceWarning,
)
from fair_tta.methods._own.association_correction import AssociationCorrection
from fair_tta.methods._own.logit_balance import BalanceStream, LogitBalance, StreamGuard
from fair_tta.methods._own.view_control import ViewControl
from fair_tta.methods._paper.fair_tpt import FairTPT, FairTPTMO
from fair_tta.methods._paper.orthcali import OrthCali
from fair_tta.methods._paper.tpt import TPT
from fair_tta.methods._paper.zero import Zero
from fair_tta.methods._paper.zero_shot import ZeroShot
from fair_tta.methods._reference import Reference

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
