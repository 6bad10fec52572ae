"""Runs: images x methods -> rows in a store, on one machine or a Ray cluster."""
