"""List the licences of what users of fair-tta install, and fail on copyleft.

fair-tta is MIT: whoever installs it, with or without an extra, should get nothing whose licence
reaches his own code. Followed are the dependencies in pyproject.toml and theirs, as installed here,
and the extras that users may ask for; not those of developers. A licence is what the package's
metadata says: expression, classifiers and the first line of the licence field.

Refused are GPL, AGPL and others of their kind, LGPL too: it asks for more than most who bundle an
application know. MPL-2.0 is weak copyleft for its own files, which nobody here changes: it is
allowed, as are NVIDIA's proprietary libraries, which torch brings for CUDA. Whatever says nothing
is refused unless it is named below.

    python tools/licences.py [pyproject.toml]
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DEVELOPERS = {"test-core", "test", "lint", "docs", "release", "dev"}
COPYLEFT = re.compile(
    r"\b(A?GPL|LGPL|GNU\b.*\bPublic License|EUPL|SSPL|OSL|RPL|CECILL|EPL|CDDL|QPL|CC[- ]BY[- ]SA)",
    re.IGNORECASE,
)
SAYS_NOTHING = {
    "cuda-toolkit": "NVIDIA Proprietary (an empty package that asks for nvidia-*)"
}


@dataclass(frozen=True)
class Package:
    """What the metadata of an installed package say."""

    name: str
    requires: tuple[str, ...] = ()
    expression: str = ""
    others: tuple[str, ...] = ()

    @property
    def licence(self) -> str:
        """In one line; empty if the metadata say nothing."""
        known = self.expression or " / ".join(self.others[:1])
        return known or SAYS_NOTHING.get(canonicalize_name(self.name), "")

    @property
    def problem(self) -> str:
        """Why users should not get this package; empty if they may."""
        if not self.licence:
            return "says nothing of its licence"
        # of "A OR B" one may be chosen; with parentheses it is not that simple
        choices = (
            [self.expression]
            if "(" in self.expression
            else self.expression.split(" OR ")
        )
        if all(COPYLEFT.search(choice) for choice in choices):
            return "is copyleft"
        return "is copyleft" if any(map(COPYLEFT.search, self.others)) else ""


def read_package(name: str) -> Package | None:
    """The installed package of this name."""
    try:
        metadata: Any = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    classifiers = metadata.get_all("Classifier") or []
    kinds = [
        c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License :: ")
    ]
    lines = [line.strip() for line in (metadata.get("License") or "").splitlines()]
    first = next((line for line in lines if re.search(r"\w", line)), "")
    return Package(
        metadata["Name"],
        tuple(metadata.get_all("Requires-Dist") or ()),
        metadata.get("License-Expression") or "",
        tuple(
            licence
            for licence in (*kinds, first[:60])
            if licence and licence != "UNKNOWN"
        ),
    )


def closure(
    requirements: Iterable[str], find: Callable[[str], Package | None] = read_package
) -> dict[str, Package | None]:
    """Everything that is installed for these requirements; None for what is not there."""
    packages: dict[str, Package | None] = {}
    done: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in done:
                continue
            done.add((name, extra))
            package = packages.setdefault(name, find(name))
            inner = map(Requirement, package.requires if package else ())
            waiting += [
                r
                for r in inner
                if r.marker is None or r.marker.evaluate({"extra": extra})
            ]
    return packages


def read_pyproject(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """What every user installs, and what comes with each extra for users."""
    project = tomllib.loads(path.read_text("utf-8"))["project"]
    extras: Mapping[str, list[str]] = project["optional-dependencies"]
    return project["dependencies"], {
        e: r for e, r in extras.items() if e not in DEVELOPERS
    }


def main(path: Path, find: Callable[[str], Package | None] = read_package) -> int:
    """Print what was found; 1 if there is a problem."""
    base, extras = read_pyproject(path)
    installed = [
        r for r in map(Requirement, base) if r.marker is None or r.marker.evaluate()
    ]
    always = closure(map(str, installed), find)
    problems = []
    for title, packages in [("every user", always)] + [
        (f"[{extra}]", _add_requirements(requirements, extras, find, always))
        for extra, requirements in extras.items()
    ]:
        kinds = defaultdict(list)
        for name, package in sorted(packages.items()):
            kinds[package.licence if package else "not installed here"].append(name)
            problem = (
                package.problem if package else "is not installed here: run `make lint`"
            )
            problems += [f"{name} ({title}) {problem}"] if problem else []
        print(f"licences, {title}: {sum(map(len, kinds.values()))} packages")
        for licence, names in sorted(kinds.items()):
            print(f"  {licence or '?'}: {', '.join(names)}")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return int(bool(problems))


def _add_requirements(
    requirements: list[str],
    extras: dict[str, list[str]],
    find: Callable[[str], Package | None],
    always: dict[str, Package | None],
) -> dict[str, Package | None]:
    """What an extra adds; it may name others of ours."""
    waiting, accepted = list(requirements), []
    while waiting:
        requirement = Requirement(waiting.pop())
        if canonicalize_name(requirement.name) == "fair-tta":
            waiting += [text for extra in requirement.extras for text in extras[extra]]
        elif requirement.marker is None or requirement.marker.evaluate():
            accepted.append(str(requirement))
    return {
        name: p for name, p in closure(accepted, find).items() if name not in always
    }


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "pyproject.toml")))
