"""What programs read: ``-o json``, ``yaml``, ``jsonl``, ``status`` and ``name``; nothing in it acts upon a terminal.

``jsonl`` writes one object per line, as the scan goes on. The one document of ``json`` and ``yaml`` starts with
``source``, and a compaction in the middle of a scan changes what has to stand there. So findings wait in an unlinked
temporary file, already encoded, and the document is put together at the end: memory stays flat whatever their number.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, BinaryIO, Final

import msgspec

from etcdfix.report.base import Output, Reporter
from etcdfix.report.model import API_VERSION, Conclusion, Finding, Header, SharedWords
from etcdfix.report.render.machine import Encoder
from etcdfix.temporary import temporary_directory, temporary_file
from etcdfix.text.commands import RunOptions
from etcdfix.text.safetext import WITHHELD, key_word

_encoder: Final = Encoder(RunOptions())
_PIECE_BYTES: Final = 1 << 20


def _encode(value: Any) -> bytes:
    """Return JSON on one line, in which nothing acts upon a terminal."""
    return _encoder.encode(value)


@functools.cache
def _line_head(kind: str) -> bytes:
    return b'{"apiVersion":"%s","kind":"%s",' % (API_VERSION.encode(), kind.encode())


class _Spool:
    """Encoded findings, one per line, in an unlinked temporary file that is made when the first one comes."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def append(self, line: bytes) -> None:
        if self._file is None:
            self._file = temporary_file()
        try:
            self._file.write(line + b"\n")
        except OSError as exc:  # not that of the report itself, which may lie on another disk
            raise OSError(exc.errno, exc.strerror, temporary_directory()) from exc

    def take_joined(self, between: bytes) -> Iterator[bytes]:
        """Yield all lines in large pieces, with this in the place of what ends a line, and let go of the file."""
        if self._file is None:
            return
        with self._file as file:
            file.seek(0)
            end = b""  # of the last line: nothing stands behind that
            while piece := file.read(_PIECE_BYTES):
                lines = end + piece
                end = b"\n" if lines.endswith(b"\n") else b""
                yield lines.removesuffix(end).replace(b"\n", between)

    def take(self) -> Iterator[bytes]:
        """Yield every line, without its end, and let go of the file."""
        if self._file is None:
            return
        with self._file as file:
            file.seek(0)
            for line in file:
                yield line[:-1]


class _DocumentReporter(Reporter):
    """What the two one-document formats share: everything waits for the source's last word."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._spool = _Spool()
        self._header: Header | None = None

    def begin(self, header: Header) -> None:
        """Keep the header until the source's last word is known."""
        self._header = header

    def finding(self, finding: Finding) -> None:
        """Encode one finding into the temporary file."""
        self._spool.append(_encode(finding))

    def finding_of_lost_key(self, finding: Finding, _shared: SharedWords) -> None:
        """Encode one as it is: the summary has the rest."""
        self.finding(finding)

    def _before(self, conclusion: Conclusion) -> dict[str, Any]:
        """Return the fields that stand before the findings."""
        assert self._header is not None  # begin() comes first
        header = self._header
        return {
            "apiVersion": API_VERSION,
            "kind": "ScanReport",
            "tool": header.tool,
            "generated_at": header.generated_at,
            "source": conclusion.source,
            "encryption_config": header.encryption_config,
            "scope": header.scope,
            **({"baseline": header.baseline} if header.baseline is not None else {}),
        }


def _after(conclusion: Conclusion) -> dict[str, Any]:
    """Return the fields that stand after findings and statuses."""
    return {
        "summary": conclusion.summary,
        "complete": conclusion.complete,
        "incomplete_reasons": conclusion.incomplete_reasons,
        "finished_at": conclusion.finished_at,
    }


class JSONReporter(_DocumentReporter):
    """Writes a ScanReport as a single JSON document, indented by one finding per line."""

    def end(self, conclusion: Conclusion) -> None:
        """Write the document."""
        write = self._stream.write
        write(b"{")
        for name, value in self._before(conclusion).items():
            write(b'\n  "%s": %s,' % (name.encode(), _encode(value)))
        write(b'\n  "findings": [')
        before = b"\n    "
        for piece in self._spool.take_joined(b",\n    "):
            write(before + piece)
            before = b""
        write(b"],\n" if before else b"\n  ],\n")
        write(b'  "statuses": ')
        _write_list(self._stream, map(_encode, conclusion.statuses))
        for name, value in _after(conclusion).items():
            text = _encode(value)
            if name == "summary":
                text = msgspec.json.format(text, indent=2).replace(b"\n", b"\n  ")
            write(b',\n  "%s": %s' % (name.encode(), text))
        write(b"\n}\n")


class YAMLReporter(_DocumentReporter):
    """Writes the same document as :class:`JSONReporter`, as YAML."""

    def end(self, conclusion: Conclusion) -> None:
        """Write the document, one finding at a time."""
        self._dump(self._before(conclusion))
        name = b"findings:\n"
        for line in self._spool.take():
            self._stream.write(name)
            name = b""
            self._dump([msgspec.json.decode(line)])
        self._stream.write(b"findings: []\n" if name else b"")
        self._dump({"statuses": conclusion.statuses, **_after(conclusion)})

    def _dump(self, value: Any) -> None:
        self._stream.write(yaml_of(msgspec.json.decode(_encode(value))).encode())


class JSONLinesReporter(Reporter):
    """Writes a ``ScanHeader``, each ``Finding`` as it is found, each ``Status``, and a ``ScanSummary``.

    A file without a ``ScanSummary`` was cut short.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def _line(self, kind: str, value: Any) -> None:
        """Write a struct or a mapping with at least one field."""
        self._stream.write(b"%b%b\n" % (_line_head(kind), _encode(value)[1:]))

    def begin(self, header: Header) -> None:
        """Write the ScanHeader line."""
        self._line("ScanHeader", header)

    def finding(self, finding: Finding) -> None:
        """Write one Finding line."""
        self._line("Finding", finding)

    def finding_of_lost_key(self, finding: Finding, _shared: SharedWords) -> None:
        """Write one as it is: the summary has the rest."""
        self.finding(finding)

    def end(self, conclusion: Conclusion) -> None:
        """Write the Status lines, which are Kubernetes' own objects, and the ScanSummary."""
        for status in conclusion.statuses:
            self._stream.write(_encode(status) + b"\n")
        self._line("ScanSummary", {"source": conclusion.source, **_after(conclusion)})


def write_document(report: msgspec.Struct, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the whole report as JSON, indented; lists are never cut."""
    stream.write(document_text(report, "json").encode())


def write_yaml(report: msgspec.Struct, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the whole report as YAML; lists are never cut."""
    stream.write(document_text(report, "yaml").encode())


def document_text(report: msgspec.Struct, form: str) -> str:
    """Return a report as ``json`` or ``yaml``, with a line feed at its end."""
    encoded = _encode(report)
    if form == "yaml":
        return yaml_of(msgspec.json.decode(encoded))
    return (msgspec.json.format(encoded, indent=2) + b"\n").decode()


def yaml_of(value: Any) -> str:
    """Return plain values as YAML."""
    import yaml  # noqa: PLC0415 - only this format pays for it

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(value, Dumper=dumper, sort_keys=False, width=2**31 - 1, default_flow_style=False))


class NameReporter(Reporter):
    """Writes the key of each finding; ``base64:`` and the encoded bytes where a key is not plain text."""

    def __init__(self, stream: BinaryIO) -> None:
        self._output = Output(stream)

    def finding(self, finding: Finding) -> None:
        """Write one key. Readable objects with a warning are left out: nothing has to be done about them."""
        if finding.outcome != "readable":
            self._output.line(_word(finding))


def _word(finding: Finding) -> str:
    """Return one word that names the key on the command line of every command that takes one."""
    if finding.key_base64:
        return f"base64:{finding.key_base64}"
    return finding.key if finding.key.endswith(WITHHELD) else key_word(finding.key.encode())


class StatusReporter(Reporter):
    """Writes, for each resource with objects that the API server calls corrupt, its Status on one line."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def end(self, conclusion: Conclusion) -> None:
        """Write the statuses, in which the findings stand again; nothing at all where nothing is corrupt."""
        for status in conclusion.statuses:
            self._stream.write(_encode(status) + b"\n")


def write_rows_json(report: msgspec.Struct, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write a report whose lists may be longer than memory: one document, one item of a list per line."""
    before = b"{\n"
    for field in msgspec.structs.fields(type(report)):
        value: Any = getattr(report, field.name)
        stream.write(before + b'  "%s": ' % field.encode_name.encode())
        if isinstance(value, Sequence) and not isinstance(value, str):
            _write_list(stream, map(_encode, value))
        else:
            stream.write(_encode(value))
        before = b",\n"
    stream.write(b"\n}\n")


def write_rows_yaml(report: msgspec.Struct, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the same document as :func:`write_rows_json`, as YAML."""
    for field in msgspec.structs.fields(type(report)):
        value: Any = getattr(report, field.name)
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            plain = value if value or not isinstance(value, Sequence) or isinstance(value, str) else []
            stream.write(yaml_of({field.encode_name: msgspec.json.decode(_encode(plain))}).encode())
            continue
        stream.write(f"{field.encode_name}:\n".encode())
        stream.writelines(yaml_of([msgspec.json.decode(_encode(item))]).encode() for item in value)


def _write_list(stream: BinaryIO, items: Iterable[bytes]) -> None:
    """Write a list, one item per line."""
    before = b"[\n    "
    for item in items:
        stream.write(before + item)
        before = b",\n    "
    stream.write(b"\n  ]" if before.startswith(b",") else b"[]")
