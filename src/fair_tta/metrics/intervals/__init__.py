"""Intervals of rates, extremes, gaps and resamples."""
