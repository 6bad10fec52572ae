"""Answers, with labels or without, to a document of figures with intervals; no pages."""

from fair_tta.auditing._audit import Audit
from fair_tta.auditing._compare import compare as compare
from fair_tta.auditing._examination import Examination
from fair_tta.auditing._measure import audit as audit
from fair_tta.auditing._mitigate import Mitigation
from fair_tta.metrics._scores import Scores

__all__ = [
    "Audit",
    "Examination",
    "Mitigation",
    "Scores",
]
