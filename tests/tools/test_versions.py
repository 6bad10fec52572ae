"""The runs with other versions: each installs and asks what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import smoke
from versions import EXTRAS, FORMS, ROOT, commands, run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "fair_tta-1-py3-none-any.whl").touch()
    return tmp_path


def words(form: str, home: Path, *arguments: str) -> list[str]:
    command_list = commands(FORMS[form], home, "3.11", [*arguments])
    return [" ".join(map(str, command)) for _, command in command_list]


def test_every_form_has_a_python_of_its_own(home: Path) -> None:
    for form in FORMS:
        venv, *later = words(form, home)
        assert venv.endswith(f"venv --quiet --python 3.11 {home / 'env'}")
        assert all(str(home / "env") in command for command in later)


def test_lowest_takes_the_lower_bounds_of_the_tree(home: Path) -> None:
    _, install, _, python, tests = words("lowest", home, "-k", "prompts")
    assert "--resolution lowest-direct" in install
    (also,) = FORMS["lowest"].also
    assert install.endswith(f"{also} --editable .[test-core]")
    bound = also.replace("==", ">=").removesuffix(".0")
    assert f'"{bound}"' in (ROOT / "pyproject.toml").read_text("utf-8")
    assert repr(str(home / "tree")) in python
    assert "-W ignore::DeprecationWarning" in tests
    assert tests.endswith("-k prompts")


@pytest.mark.parametrize("form", ["wheel", "sdist"])
def test_what_is_built_is_not_the_tree(form: str, home: Path) -> None:
    _, install, _, python, tests = words(form, home)
    assert "--editable" not in install
    assert install.endswith("fair_tta-1-py3-none-any.whl[test]")
    assert "'site-packages'" in python
    assert "-m pytest -n 2" in tests
    assert "-W" not in tests


def test_base_has_no_extra_and_no_pytest(home: Path) -> None:
    _, install, _, _, last = words("base", home)
    assert install.endswith("fair_tta-1-py3-none-any.whl")
    assert "smoke.py" in last
    assert all(f"--without={name}" in last for name in EXTRAS)


def test_a_command_that_fails_is_the_end(tmp_path: Path) -> None:
    run(
        tmp_path,
        [sys.executable, "-c", "import os; assert os.environ['HF_HUB_OFFLINE'] == '1'"],
    )
    with pytest.raises(SystemExit) as caught:
        run(tmp_path, [sys.executable, "-c", "raise SystemExit(7)"])
    assert caught.value.code == 7


def test_smoke_knows_what_should_not_be_there() -> None:
    smoke.check_absent(["no_such_package_as_this"])
    with pytest.raises(
        SystemExit, match="error: numpy, torch should not be installed here"
    ):
        smoke.check_absent(["numpy", "no_such_package_as_this", "torch"])
