"""Corrections of our own."""
