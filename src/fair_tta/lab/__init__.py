"""Folders, runs, reports, the command line and the app: all that is built around the core."""
