"""Inputs of the checks that all modules share, and the messages' names of arguments."""

from __future__ import annotations

from fair_tta.errors import check_count, check_number, require

CASES = {
    "a text instead of a number": lambda _: check_number(
        "x", "1", "be above 0", lambda x: x > 0
    ),
    "a count below its minimum": lambda _: check_count("n", 0),
    "a package that is not installed": lambda _: require("no_such_package", "lab"),
}
