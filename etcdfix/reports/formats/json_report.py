"""``-o json`` and ``-o yaml``: one document; ``-o jsonl``: one object per line, as the scan goes on.

One document starts with ``source``, and a compaction in the middle of a scan changes what has to stand there.
So findings wait in an unlinked temporary file, already encoded, and the document is put together at the end:
memory stays flat whatever the number of findings.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Any, BinaryIO

import msgspec

from etcdfix.reports.formats.document import yaml_of
from etcdfix.reports.model import API_VERSION, Conclusion, Finding, Header
from etcdfix.text.safetext import safe_json


class _Encoder:
    """JSON on one line, in which nothing acts upon a terminal."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()

    def __call__(self, value: Any) -> bytes:
        return safe_json(self._encoder.encode(value))


class _Spool:
    """Encoded findings, one per line, in an unlinked temporary file that is made when the first one comes."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def append(self, line: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives until take()
        self._file.write(line + b"\n")

    def take(self) -> Iterator[bytes]:
        """Yield every line, without its end, and let go of the file."""
        if self._file is None:
            return
        with self._file as file:
            file.seek(0)
            for line in file:
                yield line[:-1]


class _DocumentReporter:
    """What the two one-document formats share: everything waits for the source's last word.

    Args:
        stream: Binary output.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._encode = _Encoder()
        self._spool = _Spool()
        self._header: Header | None = None

    def begin(self, header: Header) -> None:
        """Keep the header until the source's last word is known."""
        self._header = header

    def finding(self, finding: Finding) -> None:
        """Encode one finding into the temporary file."""
        self._spool.append(self._encode(finding))


class JSONReporter(_DocumentReporter):
    """Writes a ScanReport as a single JSON document, indented by one finding per line."""

    def end(self, conclusion: Conclusion) -> None:
        """Write the document."""
        assert self._header is not None  # begin() comes first
        write, encode = self._stream.write, self._encode
        header = self._header
        write(b"{\n")
        for name, value in (
            ("apiVersion", API_VERSION),
            ("kind", "ScanReport"),
            ("tool", header.tool),
            ("generated_at", header.generated_at),
            ("source", conclusion.source),
            ("encryption_config", header.encryption_config),
            ("scope", header.scope),
        ):
            write(b'  "%s": %s,\n' % (name.encode(), encode(value)))
        self._list("findings", self._spool.take())
        self._list("statuses", (encode(status) for status in conclusion.statuses))
        summary = msgspec.json.format(encode(conclusion.summary), indent=2)
        write(b'  "summary": %s,\n' % summary.replace(b"\n", b"\n  "))
        write(b'  "complete": %s,\n' % encode(conclusion.complete))
        write(b'  "incomplete_reasons": %s,\n' % encode(conclusion.incomplete_reasons))
        write(b'  "finished_at": %s\n}\n' % encode(conclusion.finished_at))

    def _list(self, name: str, items: Iterator[bytes]) -> None:
        write = self._stream.write
        write(b'  "%s": [' % name.encode())
        before = b"\n    "
        for item in items:
            write(before)
            write(item)
            before = b",\n    "
        write(b"\n  ],\n" if before.startswith(b",") else b"],\n")


class JSONLinesReporter:
    """Writes a ``ScanHeader``, each ``Finding`` as it is found, each ``Status``, and a ``ScanSummary``.

    A file without a ``ScanSummary`` was cut short.

    Args:
        stream: Binary output.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._encode = _Encoder()

    def _line(self, kind: str, value: Any) -> None:
        head = b'{"apiVersion":"%s","kind":"%s",' % (API_VERSION.encode(), kind.encode())
        self._stream.write(head + self._encode(value)[1:] + b"\n")

    def begin(self, header: Header) -> None:
        """Write the ScanHeader line."""
        self._line("ScanHeader", header)

    def finding(self, finding: Finding) -> None:
        """Write one Finding line."""
        self._line("Finding", finding)

    def end(self, conclusion: Conclusion) -> None:
        """Write the Status lines, which are Kubernetes' own objects, and the ScanSummary."""
        for status in conclusion.statuses:
            self._stream.write(self._encode(status) + b"\n")
        self._line(
            "ScanSummary",
            {
                "source": conclusion.source,
                "summary": conclusion.summary,
                "complete": conclusion.complete,
                "incomplete_reasons": conclusion.incomplete_reasons,
                "finished_at": conclusion.finished_at,
            },
        )


class YAMLReporter(_DocumentReporter):
    """Writes the same document as :class:`JSONReporter`, as YAML."""

    def end(self, conclusion: Conclusion) -> None:
        """Write the document, one finding at a time."""
        assert self._header is not None  # begin() comes first
        header = self._header
        self._dump(
            {
                "apiVersion": API_VERSION,
                "kind": "ScanReport",
                "tool": header.tool,
                "generated_at": header.generated_at,
                "source": conclusion.source,
                "encryption_config": header.encryption_config,
                "scope": header.scope,
            }
        )
        name = b"findings:\n"
        for line in self._spool.take():
            self._stream.write(name)
            name = b""
            self._dump([msgspec.json.decode(line)])
        self._stream.write(b"findings: []\n" if name else b"")
        self._dump(
            {
                "statuses": conclusion.statuses,
                "summary": conclusion.summary,
                "complete": conclusion.complete,
                "incomplete_reasons": conclusion.incomplete_reasons,
                "finished_at": conclusion.finished_at,
            }
        )

    def _dump(self, value: Any) -> None:
        self._stream.write(yaml_of(msgspec.json.decode(self._encode(value))).encode())
