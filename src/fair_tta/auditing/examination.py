"""The examination as an object: read, written, and shown in words."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from fair_tta.auditing.changed_pictures import ChangedPicture
from fair_tta.auditing.document import EstimateFields
from fair_tta.auditing.examination_document import EXAMINATION_ID, ExaminationDocument
from fair_tta.auditing.json_form import dump_document, parse_struct, read_file
from fair_tta.files.whole_files import write_whole


@dataclass(frozen=True, repr=False)
class Examination:
    """What can be seen of a classifier without labels: its own perception, no measurement.

    `examine_classifier` makes it.

    Args:
        document: all figures; its fields are those of `examine.json`.
        pictures: some whose answer would change, for the page; none after `load`.
    """

    document: ExaminationDocument
    pictures: tuple[ChangedPicture, ...] = field(default=(), compare=False)

    @property
    def stop_signs(self) -> tuple[str, ...]:
        """Why an attribute should not be corrected by, in words; empty if nothing speaks against
        it.
        """
        return tuple(sign for of in self.document.attributes.values() for sign in of.stop_signs)

    def to_json(self) -> str:
        """The document as JSON."""
        return dump_document(self.document)

    @classmethod
    def from_json(cls, text: str | bytes) -> Examination:
        """Read and check what `to_json` wrote."""
        return cls(parse_struct(text, ExaminationDocument, EXAMINATION_ID, "examination"))

    def to_dict(self) -> dict[str, Any]:
        """The document as plain dictionaries and lists."""
        plain: dict[str, Any] = json.loads(self.to_json())
        return plain

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document to a file."""
        write_whole(path, f"{self.to_json()}\n".encode())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Examination:
        """Read and check a file that `save` wrote."""
        return cls.from_json(read_file(path))

    def to_html(self, *, title: str | None = None, pictures: bool = True) -> str:
        """One HTML page that needs nothing else: see `fair_tta.report.examination_html`."""
        from fair_tta.report import examination_html  # an outer room, so only when asked

        return examination_html(self, title=title, pictures=pictures)

    def save_html(
        self, path: str | PathLike[str], *, title: str | None = None, pictures: bool = True
    ) -> None:
        """Write the page to a file."""
        write_whole(path, self.to_html(title=title, pictures=pictures).encode())

    def __repr__(self) -> str:
        names = [adapter.name for adapter in self.document.adapters]
        return f"Examination(n={self.document.n}, adapters={names})"

    def __str__(self) -> str:
        document = self.document
        lines = [f"{document.n} images, without labels"]
        for attribute, of in document.attributes.items():
            shares = ", ".join(f"{name} {_show(share)}" for name, share in of.shares.items())
            lines += [f"{attribute}: perceived as {shares}; entropy {_show(of.entropy)}"]
            lines += [f"  {'zero-shot':27}{_show(of.pseudo_eod)}"]
            by_name = {adapter.name: adapter for adapter in document.adapters}
            for adapter in (by_name[name] for name in document.ranking[attribute]):
                change = adapter.pseudo_eod[attribute].change
                lines += [f"  {adapter.name:27}{_show(change, '+')}  {adapter.changed} changed"]
            lines += [f"  Stop: {sign}" for sign in of.stop_signs]
        if document.adapters:
            lines += ["Pseudo-EOD of zero-shot and its change, with intervals.", document.notice]
        return "\n".join([*lines, *document.warnings])


def _show(figure: EstimateFields, sign: str = "") -> str:
    if figure.value is None:
        return f"{figure.reason}"
    text = f"{figure.value:{sign}.1%}"
    if figure.low is None or figure.high is None:
        return text
    return f"{text} [{figure.low:{sign}.1%}, {figure.high:{sign}.1%}]"
