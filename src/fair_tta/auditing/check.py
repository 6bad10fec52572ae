"""Does a document have the shape of an audit? The shipped JSON Schema, read by fifty lines.

Only what the schema uses is understood; a test holds this against the package jsonschema.
"""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.resources import files
from typing import Any

from fair_tta.errors import FairTTAError

SCHEMA_ID = "fair-tta/audit/1"

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of audits, as shipped with the package."""
    text = (files("fair_tta") / "schemas" / "audit-1.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def check_document(document: Any) -> None:
    """Raise if this is not an audit, and say where it fails."""
    if isinstance(document, dict) and document.get("schema", SCHEMA_ID) != SCHEMA_ID:
        raise FairTTAError(
            f"this audit has the schema {document['schema']!r}, but this version of fair-tta reads "
            f"{SCHEMA_ID!r}."
        )
    problem = _problem(document, schema(), "the audit")
    if problem:
        raise FairTTAError(f"this is not an audit of schema {SCHEMA_ID!r}: {problem}.")


def _problem(value: Any, rule: dict[str, Any], path: str) -> str | None:
    if "$ref" in rule:
        rule = schema()["$defs"][rule["$ref"].rpartition("/")[2]]
    allowed = rule.get("type")
    if allowed is not None:
        names = [allowed] if isinstance(allowed, str) else allowed
        if not any(_is(value, name) for name in names):
            return f"{path} should be {' or '.join(names)} (got {_short(value)})"
    if "const" in rule and value != rule["const"]:
        return f"{path} should be {rule['const']!r} (got {_short(value)})"
    if isinstance(value, dict):
        return _problem_inside(value, rule, path)
    if isinstance(value, list) and "items" in rule:
        found = (_problem(v, rule["items"], f"{path}[{i}]") for i, v in enumerate(value))
        return next(filter(None, found), None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = rule.get("minimum", -math.inf), rule.get("maximum", math.inf)
        if not low <= value <= high:
            return f"{path} should lie from {low} to {high} (got {value})"
    return None


def _problem_inside(value: dict[str, Any], rule: dict[str, Any], path: str) -> str | None:
    for key in rule.get("required", ()):
        if key not in value:
            return f"{path} lacks {key!r}"
    rules, others = rule.get("properties", {}), rule.get("additionalProperties", True)
    for key, item in value.items():
        if key not in rules and others is False:
            return f"{path} has the unknown entry {key!r}"
        inner = rules.get(key, others if isinstance(others, dict) else {})
        problem = _problem(item, inner, f"{path}.{key}")
        if problem:
            return problem
    return None


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return False
    return isinstance(value, _TYPES[name])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
