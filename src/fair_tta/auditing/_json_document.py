"""Documents that are kept as JSON: the base of `Audit` and `Examination`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, ClassVar, Self

from msgspec import Struct, ValidationError, convert, to_builtins

from fair_tta._io import open_file, write_atomically
from fair_tta.errors import FairTTAError

# Documents have a constant size of well below a megabyte for each run: a larger file is refused
# before it fills the memory.
_MAX_FILE_BYTES = 2**28


@dataclass(frozen=True, eq=False)
class JsonDocument:
    """Base of objects that hold a document; the schema is named after the class."""

    document: Any

    _document_type: ClassVar[type[Struct]]

    def to_json(self) -> str:
        """Return the document as JSON, with all digits."""
        plain = to_builtins(self.document)
        text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
        try:
            text.encode()
        except UnicodeEncodeError:
            # A file name that is not Unicode: escapes keep it
            text = json.dumps(plain, indent=1, allow_nan=False)
        return text

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read and check what `to_json` returned.

        Raises:
            FairTTAError: it is not such a document; the message says where it fails.
        """
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FairTTAError(f"this is not JSON: {error}.") from error
        return cls.from_dict(plain)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read and check what `to_dict` returned."""
        name = cls.__name__.lower()
        schema_id = f"fair-tta/{name}/1"

        # Of another version the reader should learn that, not its first unknown field
        if isinstance(document, Mapping):
            document = dict(document)
            schema_of_document = document.get("schema", schema_id)
            if schema_of_document != schema_id:
                raise FairTTAError(
                    f"this {name} has the schema {schema_of_document!r:.60}, but this version of "
                    f"fair-tta reads {schema_id!r}."
                )
        try:
            return cls(convert(document, cls._document_type))
        except (ValidationError, UnicodeError) as error:
            # UnicodeError: msgspec fails to print an unknown field that is not Unicode
            raise FairTTAError(
                f"this is not an {name} of schema {schema_id!r}: {error}."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain dictionaries and lists."""
        plain: dict[str, Any] = json.loads(self.to_json())
        return plain

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document to a file."""
        write_atomically(path, f"{self.to_json()}\n".encode())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read and check a file that `save` wrote, of at most 256 MiB."""
        with open_file(path) as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise FairTTAError(
                f"{fspath(path)!r} has more than {_MAX_FILE_BYTES} bytes."
            )
        return cls.from_json(content)
