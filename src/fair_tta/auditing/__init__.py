"""Answers, with labels or without, to a document of figures with intervals; no pages."""

from fair_tta.auditing._audit import Audit, predictions_to_dataframe
from fair_tta.auditing._json import schema
from fair_tta.auditing.associations import Associations
from fair_tta.auditing.classifier import audit_classifier
from fair_tta.auditing.document import SCHEMA_ID, AuditDocument
from fair_tta.auditing.examination import ChangedPicture, Examination
from fair_tta.auditing.examine import examine_classifier
from fair_tta.auditing.measure import audit, compare
from fair_tta.auditing.scores import Scores

__all__ = [
    "SCHEMA_ID",
    "Associations",
    "Audit",
    "AuditDocument",
    "ChangedPicture",
    "Examination",
    "Scores",
    "audit",
    "audit_classifier",
    "compare",
    "examine_classifier",
    "predictions_to_dataframe",
    "schema",
]
