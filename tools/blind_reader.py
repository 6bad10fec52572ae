"""Draw functions for a reader who has seen none of the project.

    python tools/blind_reader.py --seed 1 > functions.md
    python tools/blind_reader.py --seed 1 --key

Each function is shown alone. The reader writes down what it does, what goes in and comes out, with
shapes and units, and one thing that could go wrong; somebody with the code open marks the answers.
At least 26 of 30 should be right. `--key` lists where each function is, for whoever marks.
"""

from __future__ import annotations

import argparse
import ast
import random
import textwrap
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path("src/fair_tta")
# Half of the functions come from where readers got lost before.
HARD_FOLDERS = ("metrics", "methods", "lab/runs")
MIN_STATEMENTS = 4


@dataclass(frozen=True)
class Function:
    """A function or method of the package."""

    path: Path
    class_name: str
    node: ast.FunctionDef
    source: str

    @property
    def place(self) -> str:
        """File, line and name."""
        name = ".".join(filter(None, (self.class_name, self.node.name)))
        return f"{self.path}:{self.node.lineno} {name}"


def count_statements(node: ast.FunctionDef) -> int:
    """Count the statements of a function, at any depth, without its docstring."""
    statements = [inner for inner in ast.walk(node) if isinstance(inner, ast.stmt)]
    has_docstring = ast.get_docstring(node) is not None
    return len(statements) - 1 - has_docstring


def functions_of(path: Path) -> list[Function]:
    """Return the functions and methods of a file that are long enough to be read."""
    text = path.read_text(encoding="utf-8")
    functions = []
    for parent in ast.walk(ast.parse(text)):
        if not isinstance(parent, ast.Module | ast.ClassDef):
            continue
        class_name = parent.name if isinstance(parent, ast.ClassDef) else ""
        for node in parent.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            if count_statements(node) < MIN_STATEMENTS:
                continue
            source = ast.get_source_segment(text, node, padded=True) or ""
            function = Function(path, class_name, node, textwrap.dedent(source))
            functions.append(function)
    return functions


def draw(number: int, seed: int) -> list[Function]:
    """Draw functions, half of them from the hard folders."""
    hard: list[Function] = []
    rest: list[Function] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        folder = path.relative_to(PACKAGE).as_posix()
        is_hard = folder.startswith(HARD_FOLDERS)
        (hard if is_hard else rest).extend(functions_of(path))
    generator = random.Random(seed)
    drawn = generator.sample(hard, number // 2)
    drawn += generator.sample(rest, number - number // 2)
    generator.shuffle(drawn)
    return drawn


def main() -> None:
    """Print drawn functions, or where they are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--key", action="store_true", help="list the places instead")
    options = parser.parse_args()
    for index, function in enumerate(draw(options.number, options.seed), start=1):
        if options.key:
            print(f"{index}. {function.place}")
            continue
        print(f"## {index}\n\n```python")
        if function.class_name:
            print(f"# a method of {function.class_name}")
        print(f"{function.source}\n```\n")


if __name__ == "__main__":
    main()
