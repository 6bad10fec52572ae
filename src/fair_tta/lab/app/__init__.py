"""The app: one model in a browser, on this machine; nothing that a Python user would miss.

Gradio is imported here alone, and when the app is built.
"""

from fair_tta.lab.app._server import UploadLimits, serve

__all__ = ["UploadLimits", "serve"]
