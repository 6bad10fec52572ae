"""The tables of the FairTPT paper, with its printed figures beside ours; see paper/run.py."""
