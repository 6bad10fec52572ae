"""The app: one model in a browser, on this machine; nothing that a Python user would miss.

Gradio is imported here alone, and when the app is built.
"""

from fair_tta.app.limits import UploadLimits
from fair_tta.app.serving import serve

__all__ = ["UploadLimits", "serve"]
