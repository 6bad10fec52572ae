"""Measure how readable a Python tree is, beside codebases that engineers admire.

    python tools/readability.py [FOLDER ...] [--folders] [--worst N]
    python tools/readability.py --check

It only counts. `--check` is what `make lint` calls: it fails where a limit is exceeded. A
figure that falls because code was hidden, joined or split to please it is not an improvement:
the real test is a reader who has seen none of it.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import tokenize
from pathlib import Path

VAGUE_NAMES = set(
    """
    found some of one own every made given kind others other more here there now then asked
    wanted seen each both rest left what where who how many few apart far near read said shown
    once so such same way place places whole begun held back told was sure worth taken wide
    quiet alone around ends facts looks
    """.split()
)
CLAUSE_STARTS = set("What Whether How Where Why Who Which Of From That Whoever".split())
ANCHORS = (
    "anchors (TorchJD, diffrax, fairlearn, httpx, cleanlab, setfit): tokens/line 6.0-7.6, "
    "comprehensions 0.6-1.6, packed 0-1.0, comments 5.5-11.9, vague names of variables, "
    "parameters, functions 0-0.5 %, clause docstrings 0-1 %"
)
PACKAGE = "src/fair_tta"
LOOSE = {"tokens per line": 9.4, "% vague names": 3.0}
# Above what any of the anchors has, so that a limit is met by writing plainly and no figure
# has to be pleased.
MOST = {
    PACKAGE: {
        "tokens per line": 8.0,
        "comprehensions per 100 lines": 3.0,
        "packed assignments per 1,000 lines": 1.5,
        "% vague names": 1.0,
        "% clause docstrings": 1.0,
    },
    "tests": LOOSE,
    "benchmarks": LOOSE,
    "tools": LOOSE,
    "examples": LOOSE,
}
LEAST_COMMENTS = 4.0
MOST_DOUBLED = 10
IGNORED_TOKENS = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.COMMENT,
}
COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def measure(path: Path) -> collections.Counter[str]:
    """Count one file."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    counts: collections.Counter[str] = collections.Counter(
        files=1, lines=len(source.splitlines())
    )
    docstring_lines: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, WITH_DOCSTRING)
            and ast.get_docstring(node, clean=False) is not None
        ):
            expression = node.body[0]
            docstring_lines.update(
                range(
                    expression.lineno, (expression.end_lineno or expression.lineno) + 1
                )
            )
            first_words = (ast.get_docstring(node) or "").split()
            counts["docstrings"] += 1
            counts["clause_docstrings"] += (
                bool(first_words) and first_words[0].strip("`.,:") in CLAUSE_STARTS
            )
        elif isinstance(node, COMPREHENSIONS):
            counts["comprehensions"] += 1
        elif isinstance(node, ast.Assign):
            pair = isinstance(node.targets[0], ast.Tuple) and isinstance(
                node.value, (ast.Tuple, ast.GeneratorExp)
            )
            counts["packed"] += pair
        name = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = node.name
        if name is not None:
            counts["names"] += 1
            counts["vague"] += name.strip("_") in VAGUE_NAMES
    code_lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            counts["comments"] += 1
        if token.type in IGNORED_TOKENS or token.start[0] in docstring_lines:
            continue
        counts["tokens"] += 1
        code_lines.update(range(token.start[0], token.end[0] + 1))
    counts["code"] = len(code_lines)
    return counts


def rates(counts: collections.Counter[str]) -> dict[str, float]:
    """Return the figures that have limits."""
    code = max(1, counts["code"])
    names = max(1, counts["names"])
    docstrings = max(1, counts["docstrings"])
    return {
        "tokens per line": counts["tokens"] / code,
        "comprehensions per 100 lines": 100 * counts["comprehensions"] / code,
        "packed assignments per 1,000 lines": 1000 * counts["packed"] / code,
        "comment lines per 100 lines": 100 * counts["comments"] / code,
        "% vague names": 100 * counts["vague"] / names,
        "% clause docstrings": 100 * counts["clause_docstrings"] / docstrings,
    }


def row(name: str, counts: collections.Counter[str]) -> str:
    """Format one line of the table."""
    tokens, comprehensions, packed, comments, vague, clauses = rates(counts).values()
    cells = (
        f"{name:28s}",
        f"{counts['files']:5d}",
        f"{counts['lines']:7d}",
        f"{counts['code']:7d}",
        f"{counts['tokens']:8d}",
        f"{tokens:6.2f}",
        f"{comprehensions:7.2f}",
        f"{packed:7.1f}",
        f"{comments:8.1f}",
        f"{vague:6.2f}",
        f"{clauses:7.1f}",
    )
    return " ".join(cells)


def doubled_names(folder: Path) -> dict[str, list[Path]]:
    """Return functions and classes whose name two or more modules define."""
    modules: dict[str, list[Path]] = collections.defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        defined = {
            node.name
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }
        for name in sorted(defined):
            modules[name].append(path.relative_to(folder))
    return {name: paths for name, paths in modules.items() if len(paths) > 1}


def problems_of(folder: str, total: collections.Counter[str]) -> list[str]:
    """Return a sentence for each limit that a tree exceeds."""
    problems = []
    measured = rates(total)
    for rate, limit in MOST[folder].items():
        if measured[rate] > limit:
            problems.append(f"{folder}: {measured[rate]:.2f} {rate}, at most {limit}")
    if folder == PACKAGE:
        comments = measured["comment lines per 100 lines"]
        if comments < LEAST_COMMENTS:
            problems.append(
                f"{folder}: {comments:.1f} comment lines per 100 lines, "
                f"at least {LEAST_COMMENTS}"
            )
        doubled = doubled_names(Path(folder))
        if len(doubled) > MOST_DOUBLED:
            problems.append(
                f"{folder}: {len(doubled)} names are defined in several modules, "
                f"at most {MOST_DOUBLED}: {', '.join(sorted(doubled))}"
            )
    return problems


def measure_tree(
    folder: Path,
) -> tuple[collections.Counter[str], dict[Path, collections.Counter[str]]]:
    """Count all files of a folder: the sum, and each of them."""
    files = {path: measure(path) for path in sorted(folder.rglob("*.py"))}
    total: collections.Counter[str] = collections.Counter()
    for counts in files.values():
        total.update(counts)
    return total, files


def print_folders(folder: Path, files: dict[Path, collections.Counter[str]]) -> None:
    """Print a row for each folder of a tree."""
    folders: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    for path, counts in files.items():
        folders[str(path.parent.relative_to(folder))].update(counts)
    for name, counts in sorted(folders.items()):
        print(row(name, counts))


def print_worst(
    folder: Path, files: dict[Path, collections.Counter[str]], number: int
) -> None:
    """Print the densest files and those with the most vague names."""

    def density(path: Path) -> float:
        return files[path]["tokens"] / max(1, files[path]["code"])

    densest = sorted(files, key=density, reverse=True)[:number]
    vaguest = sorted(files, key=lambda path: files[path]["vague"], reverse=True)
    print("densest:", ", ".join(str(p.relative_to(folder)) for p in densest))
    print("vaguest:", ", ".join(str(p.relative_to(folder)) for p in vaguest[:number]))


def main() -> None:
    """Print the counts of trees, or check their limits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", default=[PACKAGE])
    parser.add_argument(
        "--folders",
        action="store_true",
        dest="each_folder",
        help="a row for each folder",
    )
    parser.add_argument(
        "--worst",
        type=int,
        default=0,
        help="the files with the most tokens per line and the most vague names",
    )
    parser.add_argument(
        "--check", action="store_true", help="fail where a tree exceeds its limits"
    )
    options = parser.parse_args()
    print(
        f"{'':28s} files   lines    code   tokens tok/ln compr/100 pack/1000 comm/100 "
        "vague% clause%"
    )
    problems = []
    for folder in MOST if options.check else options.folders:
        total, files = measure_tree(Path(folder))
        if options.each_folder:
            print_folders(Path(folder), files)
        print(row(folder, total))
        if options.worst:
            print_worst(Path(folder), files, options.worst)
        if options.check:
            problems += problems_of(folder, total)
    print(ANCHORS)
    for problem in problems:
        print(problem)
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
