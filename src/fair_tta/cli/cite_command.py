"""``fair-tta cite``: how to cite."""

from __future__ import annotations

import typer

from fair_tta import __version__

# The facts of CITATION.cff, which is not part of an installed package; a test compares them.
PAPER = """\
@misc{launay2026fairness,
  title  = {Fairness-Aware Test-Time Prompt Tuning},
  author = {Launay, Yoann and Kamalaruban, Parameswaran and Kempton, Tom and Burrell, Stuart
            and Sutton, David},
  year   = {2026},
  note   = {Preprint}
}
"""
PACKAGE = f"""\
@software{{fair_tta,
  title   = {{fair-tta}},
  author  = {{{{fair-tta contributors}}}},
  version = {{{__version__}}},
  license = {{MIT}}
}}
"""


def cite_command() -> None:
    """BibTeX of the paper whose method this implements, and of this package."""
    typer.echo(PAPER)
    typer.echo(PACKAGE, nl=False)
