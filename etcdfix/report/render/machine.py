"""What programs read: ``json``, ``jsonl`` and ``yaml``. Nothing in it acts upon a terminal.

Rows that come one by one are written as they come: memory stays flat whatever their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

import msgspec

from etcdfix.report.model import API_VERSION
from etcdfix.report.render.rows import EndWriter, rows_field
from etcdfix.text.commands import Command, RunOptions
from etcdfix.text.safetext import safe_json

_LONGEST_LINE: Final = 120


class Encoder:
    """Encodes values as JSON on one line, commands with the options of this run."""

    def __init__(self, run: RunOptions) -> None:
        self._run = run
        self._encoder = msgspec.json.Encoder(enc_hook=self._written)

    def _written(self, value: object) -> object:
        if isinstance(value, Command):
            return value.line(self._run)
        if isinstance(value, Sequence):  # on disk, one by one
            return [*value]
        raise TypeError(f"no JSON for {type(value).__name__}")

    def encode(self, value: object) -> bytes:
        """Return the value, in which nothing acts upon a terminal."""
        return safe_json(self._encoder.encode(value))


class JSONWriter(EndWriter):
    """Writes a report as one JSON document, one row per line."""

    def __init__(self, stream: BinaryIO, run: RunOptions) -> None:
        super().__init__(stream, run)
        self._encoder = Encoder(run)
        self._written: set[str] = set()
        self._before, self._items = b"{\n", 0

    def begin(self, header: msgspec.Struct) -> None:
        """Write the fields that stand before the rows."""
        for field, name, value in _fields(header):
            self._field(name, value)
            self._written.add(field)
        self._open(rows_field(header))
        self._written.add(rows_field(header))

    def row(self, row: object) -> None:
        """Write one row."""
        self._item(row)

    def end(self, report: msgspec.Struct) -> None:
        """Write the other fields."""
        if self._written:
            self._close()
        for field, name, value in _fields(report):
            if field not in self._written:
                self._field(name, value)
        self._finish()

    def _field(self, name: str, value: Any) -> None:
        if not _is_list(value):
            self._plain(name, value)
            return
        self._open(name)
        for item in value:
            self._item(item)
        self._close()

    def _name(self, name: str) -> None:
        self._stream.write(b'%b  "%b": ' % (self._before, name.encode()))
        self._before = b",\n"

    def _plain(self, name: str, value: object) -> None:
        text = self._encoder.encode(value)
        if len(text) > _LONGEST_LINE:
            text = msgspec.json.format(text, indent=2).replace(b"\n", b"\n  ")
        self._name(name)
        self._stream.write(text)

    def _open(self, name: str) -> None:
        self._name(name)
        self._stream.write(b"[")
        self._items = 0

    def _item(self, item: object) -> None:
        self._stream.write((b",\n    " if self._items else b"\n    ") + self._encoder.encode(item))
        self._items += 1

    def _close(self) -> None:
        self._stream.write(b"\n  ]" if self._items else b"]")

    def _finish(self) -> None:
        self._stream.write(b"\n}\n")


class YAMLWriter(JSONWriter):
    """Writes the same document as YAML."""

    _list = ""

    def _write(self, value: object) -> None:
        from etcdfix.golang.yamltext import yaml_text  # noqa: PLC0415 - only this form pays for it

        plain = msgspec.json.decode(self._encoder.encode(value))
        self._stream.write(yaml_text(plain, sort_keys=False).encode())

    def _plain(self, name: str, value: object) -> None:
        self._write({name: value})

    def _open(self, name: str) -> None:
        self._list, self._items = name, 0

    def _item(self, item: object) -> None:
        if not self._items:
            self._stream.write(f"{self._list}:\n".encode())
        self._write([item])
        self._items += 1

    def _close(self) -> None:
        if not self._items:
            self._write({self._list: []})

    def _finish(self) -> None:
        """Write nothing: the last field ends the document."""


class JSONLinesWriter(EndWriter):
    """Writes one object per line: a header, each row as it comes, and a summary; without that the file was cut.

    Their kinds are those of a scan (``ScanHeader``, ``Finding``, ``ScanSummary``); a report whose rows did not come one
    by one has a line for each row, and then its other fields as ``<kind>Summary``.
    """

    def __init__(self, stream: BinaryIO, run: RunOptions) -> None:
        super().__init__(stream, run)
        self._encoder = Encoder(run)
        self._written = {"api_version", "kind"}
        self._begun = False

    def _line(self, kind: str, value: object) -> None:
        head = b'{"apiVersion":"%s","kind":"%s",' % (API_VERSION.encode(), kind.encode())
        self._stream.write(b"%b%b\n" % (head, self._encoder.encode(value)[1:]))

    def _rest(self, kind: str, value: msgspec.Struct) -> None:
        """Write the fields that were not written yet as one line."""
        fields = [one for one in _fields(value) if one[0] not in self._written]
        self._line(kind, {name: what for _field, name, what in fields})
        self._written.update(field for field, _name, _what in fields)

    def begin(self, header: msgspec.Struct) -> None:
        """Write the header."""
        self._begun = True
        self._rest("ScanHeader", header)

    def row(self, row: msgspec.Struct) -> None:
        """Write one row."""
        self._line(type(row).__name__, row)

    def end(self, report: Any) -> None:
        """Write the rows that the report holds, and its other fields."""
        rows = rows_field(report)
        if self._begun:
            self._written.remove("source")  # tells that the end belongs to the header
            for status in report.statuses:  # Kubernetes' own objects, which have a kind
                self._stream.write(self._encoder.encode(status) + b"\n")
            self._written.add("statuses")
        else:
            for row in getattr(report, rows) if rows else ():
                self.row(row)
        self._written.add(rows)
        self._rest(f"{getattr(report, 'kind', type(report).__name__).removesuffix('Report')}Summary", report)


def _fields(report: msgspec.Struct) -> Iterator[tuple[str, str, Any]]:
    """Yield field, its name in JSON, and value; not those that are left out where they have their default."""
    omits = type(report).__struct_config__.omit_defaults
    for field in msgspec.structs.fields(type(report)):
        value = getattr(report, field.name)
        default = field.default if field.default is not msgspec.NODEFAULT else None
        if value is msgspec.UNSET or (omits and not field.required and value == default):
            continue
        yield field.name, field.encode_name, value


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, msgspec.Struct))
