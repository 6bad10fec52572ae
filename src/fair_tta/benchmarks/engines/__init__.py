"""Who does the work: this machine, or a Ray cluster."""
