"""One or many shown objects on a stream: YAML, JSON, names, or a table. Nothing is kept but a page of the table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from operator import itemgetter
from typing import BinaryIO, Final

from etcdfix.model import Outcome
from etcdfix.report.base import fit
from etcdfix.report.printers.objects import Form, Shown
from etcdfix.report.printers.text import INDENT, json_text, yaml_text
from etcdfix.report.tables import table_lines, width_for
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import short_duration


class Writer(ABC):
    """Takes shown objects one after the other; never closes the stream.

    Attributes:
        contents: Whether documents are written; a listing needs none.
        ages: Whether it is shown when each object was made.

    Args:
        stream: Binary output.
        many: A list was asked for: objects that are not whole are left to standard error.
    """

    contents = False
    ages = False

    def __init__(self, stream: BinaryIO, *, many: bool) -> None:
        self._stream = stream
        self._many = many
        self._count = 0

    @abstractmethod
    def write(self, shown: Shown) -> bool:
        """Take one; return whether anything of it is shown here."""

    def comes(self, key: bytes) -> None:  # noqa: B027 - most write in the order in which they get them
        """Hear of the key of one, in the order that was asked for; one that has to wait is written later."""

    def end(self) -> None:  # noqa: B027 - most have nothing to finish
        """Finish the output; only called when nothing was lost midway."""


_SERVED: Final = frozenset({Outcome.READABLE, Outcome.INCONSISTENT, Outcome.NOT_AN_OBJECT})


class YAMLWriter(Writer):
    """One document for each object, ``---`` between them."""

    contents = True

    def write(self, shown: Shown) -> bool:
        """Write one document."""
        if not _has_document(shown, many=self._many):
            return False
        if self._count:
            self._stream.write(b"---\n")
        self._stream.write(yaml_text(shown.document).encode())
        self._count += 1
        return True


class JSONWriter(Writer):
    """The object itself, or a ``v1 List`` that is written as objects come.

    A list that was cut, by an interruption or a lost source, is no JSON: nobody takes it for the whole.
    """

    contents = True

    def write(self, shown: Shown) -> bool:
        """Write one object."""
        if not _has_document(shown, many=self._many):
            return False
        if self._many:
            start = f'{{\n{INDENT}"apiVersion": "v1",\n{INDENT}"items": [' if not self._count else ","
            self._stream.write(f"{start}\n{INDENT * 2}".encode())
            self._stream.write(json_text(shown.document, margin=INDENT * 2))
        else:
            self._stream.write(json_text(shown.document) + b"\n")
        self._count += 1
        return True

    def end(self) -> None:
        """Close the list."""
        if not self._many:
            return
        if not self._count:
            self._stream.write(f'{{\n{INDENT}"apiVersion": "v1",\n{INDENT}"items": ['.encode())
        tail = f'\n{INDENT}],\n{INDENT}"kind": "List",\n{INDENT}"metadata": {{\n{INDENT * 2}"resourceVersion": ""\n'
        self._stream.write((tail if self._count else tail[len(INDENT) + 1 :]).encode())
        self._stream.write(f"{INDENT}}}\n}}\n".encode())


class NameWriter(Writer):
    """``kind.group/name`` for each object that decodes, as kubectl has it; names are those of the keys."""

    def write(self, shown: Shown) -> bool:
        """Write one line."""
        if shown.found.verdict.outcome not in _SERVED:
            return False
        kind = shown.kind.kind.lower() or shown.found.directory.resource or "unknown"
        group = f".{shown.kind.group}" if shown.kind.group else ""
        self._stream.write(f"{safe_text(f'{kind}{group}/{shown.found.name}')}\n".encode())
        return True


_PAGE = 500
_MAX_CELL = 260  # a name of Kubernetes has at most 253 characters


_COLUMNS: Final = ("NAMESPACE", "NAME", "OUTCOME", "CAUSE", "KIND", "MOD REVISION", "AGE")
_SPARE: Final = ("MOD REVISION", "AGE")


class TableWriter(Writer):
    """A row for each key, unreadable ones included; columns grow where a later page needs it.

    Those of the first page stand in the order that was asked for, further ones as they come.
    """

    ages = True

    def __init__(self, stream: BinaryIO, *, many: bool) -> None:
        super().__init__(stream, many=many)
        self._rows: list[tuple[str, ...]] = [_COLUMNS]
        self._turns: dict[bytes, int] = {}
        self._keys: list[bytes] | None = []  # None once a page was printed
        self._widths = [0] * len(_COLUMNS)

    def comes(self, key: bytes) -> None:
        """Remember the turns of the first page."""
        if len(self._turns) < _PAGE:
            self._turns.setdefault(key, len(self._turns))

    def write(self, shown: Shown) -> bool:
        """Take one row."""
        if self._keys is not None:
            self._keys.append(shown.found.stored.key)
        self._rows.append(tuple(fit(safe_text(cell), _MAX_CELL) or "-" for cell in _cells(shown)))
        if len(self._rows) >= _PAGE:
            self._print()
        return shown.found.verdict.outcome in _SERVED

    def end(self) -> None:
        """Print the last page."""
        if self._rows != [_COLUMNS]:
            self._print()

    def _print(self) -> None:
        if self._keys is not None:
            turns = [self._turns.get(key, _PAGE) for key in self._keys]
            in_turn = sorted(zip(turns, self._rows[1:], strict=True), key=itemgetter(0))
            self._rows[1:] = [row for _, row in in_turn]
            self._keys = None
        columns = zip(*self._rows, strict=True)
        self._widths = [
            max(width, *map(len, column)) for width, column in zip(self._widths, columns, strict=True)
        ]
        most = width_for(self._stream)
        if most and sum(self._widths) + 3 * (len(self._widths) - 1) > most:
            for line in table_lines(
                self._rows[0],
                self._rows[1:],
                most,
                key="NAME",
                spare=_SPARE,
            ):
                self._stream.write(f"{line}\n".encode())
            self._rows = [_COLUMNS]
            return
        for row in self._rows:
            line = "   ".join(cell.ljust(width) for cell, width in zip(row, self._widths, strict=True))
            self._stream.write(f"{line.rstrip()}\n".encode())
        self._rows = []


def _cells(shown: Shown) -> tuple[str, ...]:
    """Return a row, "" for an empty cell."""
    found = shown.found
    return (
        found.namespace,
        found.name,
        found.verdict.outcome.value,
        found.verdict.cause.value if found.verdict.cause is not None else "",
        _kind(shown),
        str(found.stored.mod_revision),
        _age(shown.created),
    )


def _kind(shown: Shown) -> str:
    kind = shown.kind
    hidden = shown.secret and not (kind.kind + kind.version + kind.group).isprintable()
    return f"{kind.api_version}/{kind.kind}" if kind.kind and not hidden else ""


def _age(created: datetime | None) -> str:
    """Return how long ago a time was; "" where nobody knows, or where it is yet to come."""
    if created is None:
        return ""
    seconds = int((datetime.now(UTC) - created).total_seconds())
    return short_duration(seconds) if seconds >= 0 else ""


WRITERS: Final[dict[str, type[Writer]]] = {
    "table": TableWriter,
    "yaml": YAMLWriter,
    "json": JSONWriter,
    "name": NameWriter,
}


def _has_document(shown: Shown, *, many: bool) -> bool:
    """Say whether there is something to write: in a list only objects, alone also what is left of one."""
    return shown.whole or (shown.form is not Form.NOTHING and (not many or shown.form is Form.NOTE))
