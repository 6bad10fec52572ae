"""Pin the actions of the workflows to commits: `python tools/pin_actions.py` (asks github.com).

`uses: owner/name@v5` becomes `uses: owner/name@<40 hex digits> # v5.2.1`: of all tags that begin
with v5 the highest. What is pinned already is brought to the newest tag of the same major version.
An action from a branch is an error. `--check` asks nobody, and fails if an action is not pinned.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

WORKFLOWS = Path(__file__).resolve().parents[1] / ".github" / "workflows"
USES = re.compile(r"(?P<head>uses: *)(?P<name>[\w.-]+/[\w.-]+)(?P<path>[/\w.-]*)@(?P<ref>[^\s#]+)"
                  r"(?: *# *(?P<tag>\S+))?")  # fmt: skip
PINNED, TAG = re.compile(r"[0-9a-f]{40}"), re.compile(r"v\d+(\.\d+)*")


def ask_github(name: str) -> dict[str, str]:
    """The commit of each tag of a repository."""
    address = f"https://github.com/{name}"
    command = ["git", "ls-remote", "--tags", address]
    lines = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    pairs = [line.split("\trefs/tags/", 1) for line in lines]
    tags = {tag: commit for commit, tag in pairs}
    # of an annotated tag, "^{}" has the commit
    return {
        tag: tags.get(tag + "^{}", commit)
        for tag, commit in tags.items()
        if "^" not in tag
    }


def pinned(text: str, tags_of: Callable[[str], dict[str, str]]) -> str:
    """The text of a workflow with a commit for every action."""

    def pin(match: re.Match[str]) -> str:
        tag = match["tag"] if PINNED.fullmatch(match["ref"]) else match["ref"]
        if not TAG.fullmatch(tag or ""):
            sys.exit(
                f"error: {match[0]!r} names neither a version nor a commit and its version"
            )
        tags = {}
        for candidate, commit in tags_of(match["name"]).items():
            if TAG.fullmatch(candidate) and _numbers(candidate)[0] == _numbers(tag)[0]:
                tags[candidate] = commit
        if not tags:
            sys.exit(f"error: {match['name']} has no tag like {tag}")
        newest = max(tags, key=lambda name: (_numbers(name), name))
        return (
            f"{match['head']}{match['name']}{match['path']}@{tags[newest]} # {newest}"
        )

    return USES.sub(pin, text)


def _numbers(tag: str) -> tuple[int, ...]:
    return tuple(map(int, tag[1:].split(".")))


def unpinned(text: str) -> list[str]:
    """The actions of a workflow that are not a commit."""
    return [
        match[0] for match in USES.finditer(text) if not PINNED.fullmatch(match["ref"])
    ]


def main(
    folder: Path = WORKFLOWS, tags_of: Callable[[str], dict[str, str]] = ask_github
) -> int:
    """Write all workflows again, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing, ask nobody"
    )
    if parser.parse_args().check:
        workflows = [path.read_text("utf-8") for path in sorted(folder.glob("*.yml"))]
        loose = [action for text in workflows for action in unpinned(text)]
        print(*loose, f"{len(loose)} actions are not pinned", sep="\n")
        return 1 if loose else 0
    for path in sorted(folder.glob("*.yml")):
        path.write_text(pinned(path.read_text("utf-8"), tags_of), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
