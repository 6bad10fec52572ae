"""The app: one model in a browser, on this machine.

Gradio is imported here only, and only when the app is built.
"""
