"""Methods, one file each."""

from fair_tta.adapters.base import Adapter, Outcome
from fair_tta.adapters.zero_shot import ZeroShot

__all__ = ["Adapter", "Outcome", "ZeroShot"]
