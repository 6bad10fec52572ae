"""Run the tests with other versions, another Python, or another form of the package.

    python tools/versions.py lowest --python 3.11   what pyproject.toml promises at least
    python tools/versions.py newest --python 3.13   the newest of everything
    python tools/versions.py wheel --python 3.13    the wheel in place of the tree
    python tools/versions.py sdist --python 3.12    the wheel and the tests of the sdist
    python tools/versions.py base --python 3.11     the wheel without extras: tools/smoke.py
    python tools/versions.py audit --python 3.11    known holes in the lowest and the newest

What else is given goes to pytest, such as `-k prompts`. Each run has a copy of the tree and an
environment of its own, which go away at the end (`--keep FOLDER` keeps them). It needs uv, which
finds Pythons by their number or path, and hatchling by way of build: `make versions ARGS=...`.
`audit` installs nothing; it needs pip-audit, which asks its service about every package.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
NOT_COPIED = (
    ".git",
    ".venv",
    ".hard",
    ".*_cache",
    ".hypothesis",
    "site",
    "dist",
    "__pycache__",
)
# Of extras, not of what torch and transformers bring themselves (tqdm).
EXTRAS = ("pandas", "pyarrow", "fairlearn", "sklearn", "gradio", "hypothesis", "pytest")
# Old versions next to new ones of what they need warn that this will end one day. The app needs a
# newer transformers than the rest (pyproject.toml).
OLD = (
    "-W",
    "ignore::DeprecationWarning",
    "-W",
    "ignore::FutureWarning",
    "--ignore=tests/lab/app",
)


@dataclass(frozen=True)
class Form:
    """A way to install the package and to try it.

    Attributes:
        built: what is built first: nothing, the wheel of the tree, or that of the sdist.
        extra: what is installed with it.
        resolution: which versions, in the words of uv.
        also: more requirements. uv may choose the newest torchvision first, and the torch it needs.
        pytest: its options; None for `tools/smoke.py` in its place.
    """

    built: str = ""
    extra: str = "[test]"
    resolution: str = "highest"
    also: tuple[str, ...] = ()
    pytest: tuple[str, ...] | None = ()


FORMS = {
    "lowest": Form(
        extra="[test-core]",
        resolution="lowest-direct",
        also=("torch==2.10.0",),
        pytest=OLD,
    ),
    "newest": Form(),
    "wheel": Form("wheel"),
    "sdist": Form("sdist"),
    "base": Form("wheel", extra="", pytest=None),
}
FOR_USERS = ("plot", "fairlearn", "tables", "app")
ACCEPTED = (
    "CVE-2025-53644",
)  # OpenCV before 4.12 reads JPEG files unsafely; it reads none here


def commands(
    form: Form, home: Path, python: str, pytest_options: list[str]
) -> list[tuple[Path, list[str | Path]]]:
    """What to run after the package was built, and where."""
    tree, python_of = (
        home / "tree",
        home / "env" / ("Scripts" if os.name == "nt" else "bin") / "python",
    )
    uv = [sys.executable, "-m", "uv"]
    package = f"{next((home / 'dist').glob('*.whl'))}" if form.built else "."
    editable, requirements = [] if form.built else ["--editable"], package + form.extra
    versions = ["--resolution", form.resolution, "--python", python_of]
    tests = ["-m", "pytest", "-n", "2", *(form.pytest or ()), *pytest_options]
    smoke = [tree / "tools" / "smoke.py", *(f"--without={name}" for name in EXTRAS)]
    import_root = "site-packages" if form.built else str(tree)
    check = f"import fair_tta; assert {import_root!r} in fair_tta.__file__, fair_tta.__file__"
    return [
        (tree, [*uv, "venv", "--quiet", "--python", python, home / "env"]),
        (
            tree,
            [
                *uv,
                "pip",
                "install",
                "--quiet",
                *versions,
                *form.also,
                *editable,
                requirements,
            ],
        ),
        (tree, [*uv, "pip", "list", "--python", python_of]),
        (tree, [python_of, "-c", check]),
        (
            home if form.pytest is None else tree,
            [python_of, *(smoke if form.pytest is None else tests)],
        ),
    ]


def audits(home: Path, python: str) -> list[tuple[Path, list[str | Path]]]:
    """What looks for known holes in what users may get: at the lower bounds, and now."""
    extras = [f"--extra={extra}" for extra in FOR_USERS]
    accepted = [f"--ignore-vuln={name}" for name in ACCEPTED]
    commands: list[tuple[Path, list[str | Path]]] = []
    for resolution in ("lowest-direct", "highest"):
        listed = home / f"{resolution}.txt"
        compiled = [
            "pyproject.toml",
            *extras,
            "--python",
            python,
            "--output-file",
            str(listed),
        ]
        checked = [
            "--no-deps",
            "--disable-pip",
            *accepted,
            "--requirement",
            str(listed),
        ]
        uv = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "compile",
            "--quiet",
            "--resolution",
            resolution,
        ]
        tree = home / "tree"
        commands += [
            (tree, [*uv, *compiled]),
            (tree, [sys.executable, "-m", "pip_audit", *checked]),
        ]
    return commands


def build(form: Form, home: Path) -> None:
    """Fill `home / "dist"`; of the sdist the tree too, which then has what the sdist has."""
    if not form.built:
        return
    tree, dist = home / "tree", home / "dist"
    kinds = (
        ["--wheel"] if form.built == "wheel" else []
    )  # without a kind: sdist, wheel from it
    run(tree, [sys.executable, "-m", "build", "--outdir", dist, *kinds])
    if form.built == "sdist":
        (archive,) = dist.glob("*.tar.gz")
        shutil.rmtree(tree)
        with tarfile.open(archive) as packed:
            packed.extractall(home / "unpacked", filter="data")
        next((home / "unpacked").iterdir()).rename(tree)


def run(folder: Path, command: list[str | Path], needed: bool = True) -> int:
    """Run it there; the end if it fails and is `needed`, else its exit code."""
    print("$", *command, flush=True)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment.setdefault("OMP_NUM_THREADS", "1")
    for foreign in ("PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(foreign, None)
    ended = subprocess.run([*map(str, command)], cwd=folder, env=environment).returncode
    if ended and needed:
        sys.exit(ended)
    return ended


def main() -> None:
    """One form, from a copy of the tree to the tests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("form", choices=[*FORMS, "audit"])
    parser.add_argument("--python", default=sys.executable, help="a number or a path")
    parser.add_argument("--keep", type=Path, help="a new folder for what is made")
    known_options, pytest_options = parser.parse_known_args()
    start = time.monotonic()
    with (
        nullcontext(known_options.keep)
        if known_options.keep
        else TemporaryDirectory() as folder
    ):
        home = Path(folder).resolve()
        shutil.copytree(ROOT, home / "tree", ignore=shutil.ignore_patterns(*NOT_COPIED))
        if known_options.form == "audit":
            planned = audits(home, known_options.python)
        else:
            build(FORMS[known_options.form], home)
            planned = commands(
                FORMS[known_options.form], home, known_options.python, pytest_options
            )
        failed = [
            run(folder, command, known_options.form != "audit")
            for folder, command in planned
        ]
    if any(failed):
        sys.exit(1)
    print(f"{known_options.form}: passed in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
