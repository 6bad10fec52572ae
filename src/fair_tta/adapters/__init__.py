"""Methods, one file each, and their text form; no loops over images."""

from fair_tta.adapters.association_correction import AssociationCorrection
from fair_tta.adapters.balance_stream import BalanceStream
from fair_tta.adapters.bend_vlm import BendVLM
from fair_tta.adapters.chain import Chained, Texts
from fair_tta.adapters.contract import Adapter, AdaptsPixels, Outcome
from fair_tta.adapters.deyo import DeYO
from fair_tta.adapters.episodic_tie import EpisodicTIE
from fair_tta.adapters.fair_tpt import FairTPT
from fair_tta.adapters.fair_tpt_mo import FairTPTMO
from fair_tta.adapters.fitting import FitsImages, FitsLabelledImages, SmallReferenceWarning
from fair_tta.adapters.logit_balance import LogitBalance
from fair_tta.adapters.memo import MEMO
from fair_tta.adapters.orthcali import OrthCali
from fair_tta.adapters.partial_projection import PartialProjection
from fair_tta.adapters.perception_clip import PerceptionCLIP
from fair_tta.adapters.reference import Reference
from fair_tta.adapters.reference_batches import ReferenceBatch
from fair_tta.adapters.roboshot import RoboShot
from fair_tta.adapters.sage import SAGE
from fair_tta.adapters.sar import SAR
from fair_tta.adapters.seraser import KLFromUniform, KLToUniform, SEraser
from fair_tta.adapters.stream_guard import StreamGuard
from fair_tta.adapters.tent import Tent
from fair_tta.adapters.tie import TIE
from fair_tta.adapters.tie_star import TIEStar
from fair_tta.adapters.tpt import TPT
from fair_tta.adapters.umfc import UMFC
from fair_tta.adapters.view_control import ViewControl
from fair_tta.adapters.zero import Zero
from fair_tta.adapters.zero_shot import ZeroShot

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
