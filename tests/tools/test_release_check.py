"""What `make release-check` refuses."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from release_check import (
    NEEDED,
    check_sbom,
    check_version,
    check_wheel,
    package_version,
)

ROOT = Path(__file__).parents[2]


def test_the_version_is_read_without_an_import() -> None:
    import fair_tta

    assert package_version(ROOT) == fair_tta.__version__


def test_versions_that_differ(tmp_path: Path) -> None:
    citation, changelog = tmp_path / "CITATION.cff", tmp_path / "CHANGELOG.md"
    citation.write_text("a: b\nversion: 1.2.3\n")
    changelog.write_text("## [Unreleased]\n\n## [1.2.3] - 2026-01-01\n\n## [1.2.2]\n")
    check_version(tmp_path, "1.2.3")
    with pytest.raises(
        SystemExit, match=r"error: CITATION.cff has another version than 1.2"
    ):
        check_version(tmp_path, "1.2")
    changelog.write_text("## [Unreleased]\n\n## [1.2.2]\n")
    with pytest.raises(
        SystemExit, match=r"newest version of CHANGELOG.md is not 1.2.3 .*'1.2.2'"
    ):
        check_version(tmp_path, "1.2.3")


def wheel(path: Path, names: list[str], size: int = 1) -> Path:
    with ZipFile(path / "a.whl", "w") as packed:
        for name in names:
            packed.writestr(name, b"x" * size)
    return path / "a.whl"


def test_wheels_that_lack_something_or_have_too_much(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert all((ROOT / "src" / "fair_tta" / name).exists() for name in NEEDED)
    names = [f"fair_tta/{name}{'x' if name.endswith('/') else ''}" for name in NEEDED]
    names.append("fair_tta-1.0.dist-info/RECORD")
    check_wheel(wheel(tmp_path, names))
    assert f"a.whl: 0.00 MB, {len(names)} files" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"lacks \['py.typed'\], has \[\] beside"):
        check_wheel(wheel(tmp_path, names[1:]))
    with pytest.raises(SystemExit, match=r"lacks \[\], has \['tests/x.py'\] beside"):
        check_wheel(wheel(tmp_path, [*names, "tests/x.py"]))
    with pytest.raises(SystemExit, match=r"error: a.whl has 3\d{6} bytes"):
        check_wheel(wheel(tmp_path, names, 3_000_000 // len(names) + 1))


def test_a_list_of_components(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sbom.json"
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "components": [{"name": "fair-tta"}, {"name": "torch"}],
    }
    path.write_text(json.dumps(document))
    check_sbom(path)
    assert capsys.readouterr().out == "sbom.json: CycloneDX 1.6, 2 components\n"
    path.write_text(json.dumps(document | {"components": [{"name": "torch"}]}))
    with pytest.raises(
        SystemExit, match=r"error: sbom.json is no list of what was installed"
    ):
        check_sbom(path)
