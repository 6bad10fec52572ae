"""Documents from and to JSON text. Nothing but a whole audit or examination is read."""

from __future__ import annotations

import json
import math
from functools import cache
from os import PathLike, fspath
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.json import schema_components

from fair_tta._io import open_file
from fair_tta.auditing._document import SCHEMA_ID, AuditDocument, Provenance
from fair_tta.errors import FairTTAError

_DEEPEST = 100  # lists and objects inside one another
_MOST_BYTES = 2**28
_DIGITS = 300  # of an integer; it is still a float then

T = TypeVar("T", bound=Struct)


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of audits."""
    (top, _), parts = schema_components([AuditDocument, Provenance], ref_template="#/$defs/{name}")
    for part in parts.values():
        part["description"] = " ".join(part["description"].split())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fair-tta audit, version 1",
        **top,
        "$defs": parts,
    }


def dump_document(document: Struct) -> str:
    """As JSON, floats in full."""
    plain = to_builtins(document)
    text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a file name that is not Unicode
        text = json.dumps(plain, indent=1, allow_nan=False)
    return text


def read_file(path: str | PathLike[str]) -> bytes:
    """The content of a file of JSON, which is no device and not larger than 256 MiB.

    Raises:
        OSError: it cannot be read.
        FairTTAError: it is too large.
    """
    with open_file(path) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise FairTTAError(f"{fspath(path)!r} has more than {_MOST_BYTES} bytes.")
    return content


def parse_document(text: str | bytes) -> AuditDocument:
    """Read what `dump_document` wrote of an audit."""
    return parse_struct(text, AuditDocument, SCHEMA_ID, "audit")


def parse_struct(text: str | bytes, kind: type[T], schema_id: str, what: str) -> T:
    """Read what `dump_document` wrote.

    Args:
        text: JSON.
        kind: the document.
        schema_id: what its field ``schema`` should be.
        what: it is called in messages.

    Raises:
        FairTTAError: it is not such a document, and where it fails.
    """
    if not isinstance(text, str | bytes):
        raise FairTTAError(f"`text` should be JSON as a string (got {type(text).__name__}).")
    try:
        plain = json.loads(
            text if isinstance(text, str) else text.decode(),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_number,
        )
        _check_depth(plain, _DEEPEST)
    except RecursionError:
        raise FairTTAError("this is not JSON: it is nested too deep.") from None
    except ValueError as error:
        raise FairTTAError(f"this is not JSON: {error}.") from error
    if isinstance(plain, dict) and plain.get("schema", schema_id) != schema_id:
        raise FairTTAError(
            f"this {what} has the schema {plain['schema']!r:.60}, but this version of fair-tta "
            f"reads {schema_id!r}."
        )
    try:
        return convert(plain, kind)
    except (ValidationError, UnicodeEncodeError) as error:  # the latter for an unknown odd name
        raise FairTTAError(f"this is not an {what} of schema {schema_id!r}: {error}.") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice in one object")
    return found


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"an integer has {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a number of JSON")
    return value


def _check_depth(value: Any, left: int) -> None:
    if left == 0:
        raise RecursionError
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inside:
        _check_depth(item, left - 1)
