"""Audits of a folder of pictures with a CSV file of labels, of any size, that survive a kill."""

from fair_tta.folders.labels import Labels, Values
from fair_tta.folders.result import FolderAudit
from fair_tta.folders.run import audit_folder
from fair_tta.folders.tally import Tally

__all__ = ["FolderAudit", "Labels", "Tally", "Values", "audit_folder"]
