"""Audits: group-wise figures with intervals and provenance, for one or more runs."""

from fair_tta.auditing.check import SCHEMA_ID, check_document, schema
from fair_tta.auditing.classifier import audit_classifier
from fair_tta.auditing.frames import predictions_to_dataframe
from fair_tta.auditing.making import audit, compare
from fair_tta.auditing.result import Audit
from fair_tta.auditing.scores import Scores

__all__ = [
    "SCHEMA_ID",
    "Audit",
    "Scores",
    "audit",
    "audit_classifier",
    "check_document",
    "compare",
    "predictions_to_dataframe",
    "schema",
]
