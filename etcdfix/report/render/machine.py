"""What programs read: ``json``, ``jsonl`` and ``yaml``. Nothing in it acts upon a terminal.

``json`` and ``yaml`` are one document, which begins with what is only certain at the end (a compaction in the middle of
a scan changes the source). So rows that come one by one wait in an unlinked temporary file, already encoded: memory
stays flat whatever their number. ``jsonl`` writes each row as it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final

import msgspec

from etcdfix.report.model import API_VERSION
from etcdfix.report.render.rows import EndWriter, WaitingLines, rows_field
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
        super().__init__(stream)
        self._encoder, self._spool = Encoder(run), WaitingLines()

    def row(self, row: msgspec.Struct) -> None:
        """Encode one row into the temporary file."""
        self._spool.append(self._encoder.encode(row))

    def end(self, report: msgspec.Struct) -> None:
        """Write the document."""
        write, before = self._stream.write, b"{\n"
        for field, name, value in _fields(report):
            write(before + b'  "%s": ' % name.encode())
            before = b",\n"
            if field == rows_field(report) and self._spool.file is not None:
                write(b"[\n    ")
                for piece in self._spool.joined(b",\n    "):
                    write(piece)
                write(b"\n  ]")
            elif _is_list(value):
                self._list(value)
            else:
                text = self._encoder.encode(value)
                if len(text) > _LONGEST_LINE:
                    text = msgspec.json.format(text, indent=2).replace(b"\n", b"\n  ")
                write(text)
        write(b"\n}\n")

    def _list(self, items: Iterable[object]) -> None:
        before = b"[\n    "
        for item in items:
            self._stream.write(before + self._encoder.encode(item))
            before = b",\n    "
        self._stream.write(b"\n  ]" if before.startswith(b",") else b"[]")


class YAMLWriter(JSONWriter):
    """Writes the same document as YAML, one row at a time."""

    def end(self, report: msgspec.Struct) -> None:
        """Write the document."""
        from etcdfix.golang.yamltext import yaml_text  # noqa: PLC0415 - only this form pays for it

        for field, name, value in _fields(report):
            encoded: Iterable[bytes] = ()
            if field == rows_field(report) and self._spool.file is not None:
                encoded = self._spool.lines()
            elif _is_list(value) and value:
                encoded = map(self._encoder.encode, value)
            else:
                plain = msgspec.json.decode(self._encoder.encode(value))
                self._stream.write(yaml_text({name: plain}, sort_keys=False).encode())
                continue
            self._stream.write(f"{name}:\n".encode())
            for item in encoded:
                self._stream.write(yaml_text([msgspec.json.decode(item)], sort_keys=False).encode())


class JSONLinesWriter(EndWriter):
    """Writes one object per line: a header, each row as it comes, and a summary; without that the file was cut.

    Their kinds are those of a scan (``ScanHeader``, ``Finding``, ``ScanSummary``); a report whose rows did not come one
    by one has a line for each row, and then its other fields as ``<kind>Summary``.
    """

    def __init__(self, stream: BinaryIO, run: RunOptions) -> None:
        super().__init__(stream)
        self._encoder = Encoder(run)
        self._begun = False

    def _line(self, kind: str, value: object) -> None:
        head = b'{"apiVersion":"%s","kind":"%s",' % (API_VERSION.encode(), kind.encode())
        self._stream.write(b"%b%b\n" % (head, self._encoder.encode(value)[1:]))

    def begin(self, header: msgspec.Struct) -> None:
        """Write the header."""
        self._begun = True
        self._line("ScanHeader", header)

    def row(self, row: msgspec.Struct) -> None:
        """Write one row."""
        self._line(type(row).__name__, row)

    def end(self, report: msgspec.Struct) -> None:
        """Write the rows that the report holds, and its other fields."""
        rows = rows_field(report)
        if not self._begun:
            for row in getattr(report, rows) if rows else ():
                self.row(row)
        left_out = {rows, "api_version", "kind"}
        if self._begun:
            for status in getattr(report, "statuses", ()):  # Kubernetes' own objects, which have a kind
                self._stream.write(self._encoder.encode(status) + b"\n")
            left_out |= {"statuses", "tool", "generated_at", "encryption_config", "scope", "baseline"}
        kind = getattr(report, "kind", type(report).__name__).removesuffix("Report")
        self._line(
            f"{kind}Summary", {name: value for field, name, value in _fields(report) if field not in left_out}
        )


WRITERS: Final[Mapping[str, Callable[[BinaryIO, RunOptions], EndWriter]]] = {
    "json": JSONWriter,
    "jsonl": JSONLinesWriter,
    "yaml": YAMLWriter,
}


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
