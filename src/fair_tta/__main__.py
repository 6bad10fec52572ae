"""``python -m fair_tta`` is ``fair-tta``."""

from __future__ import annotations

if __name__ == "__main__":
    from fair_tta.lab.cli import app

    app(prog_name="fair-tta")
