"""Every message that a user may meet, beside the input that causes it: `messages.txt`.

`tests/messages/*_inputs.py` hold the inputs. After a deliberate change of a text, write the file
anew and review the difference:

    FAIR_TTA_WRITE_MESSAGES=1 make test ARGS="tests/test_every_message.py -n 0"
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from internals import ADAPTERS

from fair_tta import FairTTAError
from fair_tta.metrics.definitions import METRICS

TESTS = Path(__file__).parent
MESSAGES_FILE = TESTS / "messages.txt"
Case = Callable[[Path], object]


def cases_of(module_path: Path) -> dict[str, Case]:
    spec = importlib.util.spec_from_file_location(
        f"messages_{module_path.stem}", module_path
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.CASES)


def message_of(case: Case, folder: Path) -> str:
    """Return what the input raises or warns of, or the text that the case returns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = case(folder)
        except (FairTTAError, ImportError, TypeError, OSError) as error:
            argument = getattr(error, "argument", None)
            argument_text = "" if argument is None else f"({argument})"
            text = f"{type(error).__name__}{argument_text}: {error}"
        else:
            caught_texts = [f"{w.category.__name__}: {w.message}" for w in caught]
            text = "\n".join([result] if isinstance(result, str) else caught_texts)
    # A new metric should not change the messages that list all of them.
    compared = [name for name, metric in METRICS.items() if metric.is_compared]
    text = text.replace(str(list(METRICS)), "[METRICS]")
    text = text.replace(str(compared), "[COMPARED METRICS]")
    text = text.replace(", ".join(METRICS), "METRICS")
    # A new method should change no message here.
    text = text.replace(", ".join(ADAPTERS), "METHODS")
    return text.replace(str(folder), "FOLDER")


def section(module_path: Path, tmp_path: Path) -> str:
    lines = [f"# {module_path.stem.removesuffix('_inputs')}"]
    for number, (title, case) in enumerate(cases_of(module_path).items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = message_of(case, folder)
        assert text, f"{module_path.stem}: {title!r} causes no message"
        lines.append(f"\n{title}")
        lines += [f"    {line}".rstrip() for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def test_messages_are_those_of_the_file(tmp_path: Path) -> None:
    sections = []
    for module_path in sorted((TESTS / "messages").glob("*_inputs.py")):
        folder = tmp_path / module_path.stem
        folder.mkdir()
        sections.append(section(module_path, folder))
    text = "\n\n".join(sections)
    if os.environ.get("FAIR_TTA_WRITE_MESSAGES"):
        MESSAGES_FILE.write_text(text, encoding="utf-8")
        pytest.skip("messages.txt was written anew: review the difference")
    assert text == MESSAGES_FILE.read_text(encoding="utf-8")
