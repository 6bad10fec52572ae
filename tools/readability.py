"""Measure how readable a Python tree is, beside codebases that engineers admire.

    python tools/readability.py [FOLDER] [--folders] [--worst N]

It only counts. A figure that falls because code was hidden, joined or split to please it is not an
improvement: the real test is a reader who has seen none of it.
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


def row(name: str, counts: collections.Counter[str]) -> str:
    """Format one line of the table."""
    code = max(1, counts["code"])
    names = max(1, counts["names"])
    docstrings = max(1, counts["docstrings"])
    cells = (
        f"{name:28s}",
        f"{counts['files']:5d}",
        f"{counts['lines']:7d}",
        f"{counts['code']:7d}",
        f"{counts['tokens']:8d}",
        f"{counts['tokens'] / code:6.2f}",
        f"{100 * counts['comprehensions'] / code:7.2f}",
        f"{1000 * counts['packed'] / code:7.1f}",
        f"{100 * counts['comments'] / code:8.1f}",
        f"{100 * counts['vague'] / names:6.2f}",
        f"{100 * counts['clause_docstrings'] / docstrings:7.1f}",
    )
    return " ".join(cells)


def main() -> None:
    """Print the counts of a tree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", default="src/fair_tta", type=Path)
    parser.add_argument("--folders", action="store_true", help="a row for each folder")
    parser.add_argument(
        "--worst",
        type=int,
        default=0,
        help="the files with the most tokens per line and the most vague names",
    )
    options = parser.parse_args()
    files = {path: measure(path) for path in sorted(options.folder.rglob("*.py"))}
    total: collections.Counter[str] = collections.Counter()
    folders: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    for path, counts in files.items():
        total.update(counts)
        folders[str(path.parent.relative_to(options.folder))].update(counts)
    print(
        f"{'':28s} files   lines    code   tokens tok/ln compr/100 pack/1000 comm/100 "
        "vague% clause%"
    )
    if options.folders:
        for name, counts in sorted(folders.items()):
            print(row(name, counts))
    print(row("total", total))
    print(ANCHORS)
    if options.worst:
        by_density = sorted(
            files, key=lambda p: -files[p]["tokens"] / max(1, files[p]["code"])
        )[: options.worst]
        by_vagueness = sorted(files, key=lambda p: -files[p]["vague"])[: options.worst]
        print(
            "densest:",
            ", ".join(str(p.relative_to(options.folder)) for p in by_density),
        )
        print(
            "vaguest:",
            ", ".join(str(p.relative_to(options.folder)) for p in by_vagueness),
        )


if __name__ == "__main__":
    main()
