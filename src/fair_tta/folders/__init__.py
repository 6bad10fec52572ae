"""Audits of folders of any size that survive a kill: rows, then files; no metrics of its own."""

from fair_tta.data.folder_labels import Labels, LabelValues
from fair_tta.folders.audit_folder import audit_folder
from fair_tta.folders.outputs import FolderAudit

__all__ = ["FolderAudit", "LabelValues", "Labels", "audit_folder"]
