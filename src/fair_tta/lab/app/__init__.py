"""The app: one model in a browser, on this machine; nothing that a Python user would miss.

Gradio is imported here alone, and when the app is built.
"""
