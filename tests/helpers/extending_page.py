"""Classes of docs/extending.md as a file of one's own."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
HEAD = """
from dataclasses import dataclass, field
from typing import ClassVar
from fair_tta import FairTPTMO, TPT, ZeroShot
from fair_tta.extend import Adapter, Needs, Outcome, UsesTexts
from fair_tta.methods._base import FindsTexts
"""


def documented(*names: str) -> str:
    """Classes of the page, with what they import."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    classes = [
        re.search(
            rf"^@dataclass[^\n]*\nclass {name}\(.*?(?=^\S|\Z)",
            block,
            re.DOTALL | re.MULTILINE,
        )
        for name in names
        for block in blocks
        if f"class {name}(" in block
    ]
    return HEAD + "\n\n".join(actual[0] for actual in classes if actual)
