"""All that can be checked before a tag is pushed, in one command: `make release-check`.

The version is the same in the package, CITATION.cff and CHANGELOG.md; sdist and wheel are built
into dist/, the wheel from the sdist; `twine check`; the wheel is small and has what it needs; in an
empty environment it does by itself what tools/smoke.py asks; what that environment holds is
written to sbom.cdx.json (CycloneDX).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from versions import EXTRAS, ROOT, run

LARGEST = 3_000_000
NEEDED = ("py.typed", "miniature/weights/", "lab/report/templates/")
SBOM = ROOT / "sbom.cdx.json"


def package_version(root: Path) -> str:
    """What `fair_tta.__version__` is, without importing it."""
    text = (root / "src" / "fair_tta" / "__init__.py").read_text("utf-8")
    versions: list[str] = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return versions[0]


def check_version(root: Path, version: str) -> None:
    """Exit unless citation and changelog have this version."""
    if f"\nversion: {version}\n" not in (root / "CITATION.cff").read_text("utf-8"):
        sys.exit(f"error: CITATION.cff has another version than {version}")
    headings = re.findall(
        r"^## \[(.+?)\]", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    if next((h for h in headings if h != "Unreleased"), None) != version:
        sys.exit(
            f"error: the newest version of CHANGELOG.md is not {version} (it has {headings})"
        )


def check_wheel(wheel: Path) -> None:
    """Exit unless it is small, has what the package needs, and nothing beside the package."""
    size = wheel.stat().st_size
    with ZipFile(wheel) as packed:
        names = packed.namelist()
    missing = [
        entry
        for entry in NEEDED
        if not any(n.startswith(f"fair_tta/{entry}") for n in names)
    ]
    foreign = [n for n in names if not re.match(r"fair_tta(-[^/]+\.dist-info)?/", n)]
    print(f"{wheel.name}: {size / 1e6:.2f} MB, {len(names)} files")
    if size > LARGEST or missing or foreign:
        sys.exit(
            f"error: {wheel.name} has {size} bytes, lacks {missing}, has {foreign} beside"
        )


def check_sbom(path: Path) -> None:
    """Exit unless it is a list of components with ours and torch among them."""
    document = json.loads(path.read_text("utf-8"))
    names = {component["name"] for component in document["components"]}
    print(
        f"{path.name}: {document['bomFormat']} {document['specVersion']}, {len(names)} components"
    )
    if document["bomFormat"] != "CycloneDX" or not {"fair-tta", "torch"} <= names:
        sys.exit(f"error: {path.name} is no list of what was installed")


def main() -> None:
    """Do it all."""
    python, dist = sys.executable, ROOT / "dist"
    check_version(ROOT, package_version(ROOT))
    shutil.rmtree(dist, ignore_errors=True)
    run(ROOT, [python, "-m", "build", "--outdir", dist])
    (wheel,) = dist.glob("*.whl")
    run(ROOT, [python, "-m", "twine", "check", "--strict", *dist.iterdir()])
    check_wheel(wheel)
    with TemporaryDirectory() as folder:
        home = Path(folder)
        new_python = home / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
        run(
            home,
            [python, "-m", "uv", "venv", "--quiet", "--python", python, home / "env"],
        )
        run(
            home,
            [
                python,
                "-m",
                "uv",
                "pip",
                "install",
                "--quiet",
                "--python",
                new_python,
                wheel,
            ],
        )
        run(
            home,
            [
                python,
                "-m",
                "cyclonedx_py",
                "environment",
                new_python,
                "--output-file",
                SBOM,
            ],
        )
        check_sbom(SBOM)
        absent = [f"--without={name}" for name in EXTRAS]
        run(home, [new_python, ROOT / "tools" / "smoke.py", *absent])
    print(f"release-check: fair-tta {package_version(ROOT)} may be tagged")


if __name__ == "__main__":
    main()
