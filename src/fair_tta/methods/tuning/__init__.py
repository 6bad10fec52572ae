"""Losses, directions, rates and the one loop that tunes a context; no particular method."""
