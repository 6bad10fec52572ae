"""Make the relative links of README.md absolute, in place, for the page of the package index.

    python tools/readme_links.py https://HOST/OWNER/NAME v0.2.0

The repository shows relative links and pictures, the index does not. The release workflow knows
where the repository is; the file itself does not have to.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)\s]+)\)")


def absolute(text: str, repository: str, revision: str) -> str:
    """The same text, its files at this revision of a repository, pictures as raw files."""

    def link(match: re.Match[str]) -> str:
        kind = "raw" if match[1] else "blob"
        return f"{match[1]}[{match[2]}]({repository}/{kind}/{revision}/{match[3]})"

    return LINK.sub(link, text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    README.write_text(absolute(README.read_text("utf-8"), *sys.argv[1:]), "utf-8")
