"""Runs: images x methods -> rows in a store, on this machine."""
