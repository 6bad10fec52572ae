"""The check of `make lint`: users get nothing that is copyleft."""

from __future__ import annotations

from pathlib import Path

import pytest

from licences import Package, closure, main, read_package, read_pyproject

ROOT = Path(__file__).parents[2]
WORLD = {
    package.name: package
    for package in (
        Package("free", ("deep>=1", "solver; extra == 'exact'"), "MIT"),
        Package("deep", ("Free", "old; python_version < '3'"), others=("BSD License",)),
        Package(
            "solver", (), others=("GNU General Public License v2 or later (GPLv2+)",)
        ),
        Package("bar", ("certs",), others=("MPL-2.0 AND MIT",)),
        Package(
            "certs", (), others=("Mozilla Public License 2.0 (MPL 2.0)", "MPL-2.0")
        ),
        Package("cuda-toolkit"),
        Package("cuda", ("cuda-toolkit",), "LicenseRef-NVIDIA-Proprietary"),
        Package("silent"),
        Package("lesser", (), "LGPL-3.0-or-later"),
        Package("affero", (), others=("AGPL-3.0",)),
        Package("both", (), "MIT OR GPL-2.0-only"),
        Package("nested", (), "(MIT OR BSD-3-Clause) AND GPL-2.0-only"),
        Package("contradicting", (), "MIT", ("GNU Affero General Public License v3",)),
    )
}


def write(folder: Path, base: str, **extras: str) -> Path:
    path = folder / "pyproject.toml"
    tables = "".join(f"{name} = [{texts}]\n" for name, texts in extras.items())
    path.write_text(
        f'[project]\nname = "fair-tta"\ndependencies = [{base}]\n'
        f"[project.optional-dependencies]\n{tables}"
    )
    return path


def test_dependencies_are_followed_with_the_extras_that_are_asked_for() -> None:
    assert set(closure(["free"], WORLD.get)) == {"free", "deep"}
    assert set(closure(["deep", "free[exact]"], WORLD.get)) == {
        "free",
        "deep",
        "solver",
    }
    assert closure(["absent"], WORLD.get) == {"absent": None}


@pytest.mark.parametrize(
    ("name", "problem"),
    [("free", ""), ("deep", ""), ("bar", ""), ("certs", ""), ("cuda", ""), ("cuda-toolkit", ""),
     ("both", ""), ("silent", "says nothing of its licence"), ("solver", "is copyleft"),
     ("lesser", "is copyleft"), ("affero", "is copyleft"), ("nested", "is copyleft"),
     ("contradicting", "is copyleft")],
)  # fmt: skip
def test_what_is_refused(name: str, problem: str) -> None:
    assert WORLD[name].problem == problem


def test_copyleft_fails_wherever_a_user_gets_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(write(tmp_path, '"free", "cuda"', more='"bar"'), WORLD.get) == 0
    out = capsys.readouterr().out
    assert "licences, every user: 4 packages" in out
    assert "LicenseRef-NVIDIA-Proprietary: cuda" in out
    assert "licences, [more]: 2 packages" in out
    assert main(write(tmp_path, '"free[exact]"'), WORLD.get) == 1
    assert "error: solver (every user) is copyleft" in capsys.readouterr().err
    assert (
        main(write(tmp_path, '"deep"', more='"fair-tta[x]"', x='"lesser"'), WORLD.get)
        == 1
    )
    assert "error: lesser ([more]) is copyleft" in capsys.readouterr().err
    assert main(write(tmp_path, '"absent"'), WORLD.get) == 1
    assert "error: absent (every user) is not installed here" in capsys.readouterr().err
    # what the tests alone need is nobody's business
    assert main(write(tmp_path, '"free"', test='"solver"'), WORLD.get) == 0
    assert (
        main(write(tmp_path, '"free; python_version < \'3\'", "deep"'), WORLD.get) == 0
    )


def test_it_holds_here() -> None:
    pytest.importorskip("gradio")
    assert main(ROOT / "pyproject.toml") == 0
    base, extras = read_pyproject(ROOT / "pyproject.toml")
    assert set(extras) == {"app", "plot", "fairlearn", "tables", "onnx"}
    assert not {"quadprog", "qpsolvers"} & set(closure(base))


def test_metadata_of_installed_packages() -> None:
    numpy, oracle, torchjd = (
        read_package(name) for name in ("numpy", "quadprog", "torchjd")
    )
    assert numpy is not None
    assert numpy.licence.startswith("BSD")
    assert oracle is not None
    assert oracle.problem == "is copyleft"  # which is why it is an oracle only
    assert torchjd is not None
    assert torchjd.licence.startswith("MIT")
    assert read_package("no-such-package") is None
