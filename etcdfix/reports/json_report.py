"""``-o json`` and ``-o yaml``: one document; ``-o jsonl``: one object per line, as the scan goes on.

One document starts with ``source``, and a compaction in the middle of a scan changes what has to stand there.
So findings wait in an unlinked temporary file, already encoded, and the document is put together at the end:
memory stays flat whatever the number of findings.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from etcdfix.reports.model import API_VERSION, Conclusion, Finding, Header


class JSONReporter:
    """Writes a ScanReport as a single JSON document, indented by one finding per line.

    Args:
        stream: Binary output.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._encoder = msgspec.json.Encoder()
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115 - lives until end()
        self._count = 0
        self._header: Header | None = None

    def begin(self, header: Header) -> None:
        """Keep the header until the source's last word is known."""
        self._header = header

    def finding(self, finding: Finding) -> None:
        """Encode one finding into the temporary file."""
        self._spool.write(b",\n    " if self._count else b"\n    ")
        self._spool.write(self._encoder.encode(finding))
        self._count += 1

    def end(self, conclusion: Conclusion) -> None:
        """Write the document."""
        assert self._header is not None  # begin() comes first
        write, encode = self._stream.write, self._encoder.encode
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
        write(b'  "findings": [')
        with self._spool:
            self._spool.seek(0)
            shutil.copyfileobj(self._spool, self._stream)
        write(b"\n  ],\n" if self._count else b"],\n")
        write(b'  "statuses": %s,\n' % _one_per_line(conclusion.statuses, encode))
        write(
            b'  "summary": %s,\n'
            % msgspec.json.format(encode(conclusion.summary), indent=2).replace(b"\n", b"\n  ")
        )
        write(b'  "complete": %s,\n' % encode(conclusion.complete))
        write(b'  "incomplete_reasons": %s,\n' % encode(conclusion.incomplete_reasons))
        write(b'  "finished_at": %s\n}\n' % encode(conclusion.finished_at))


def _one_per_line(items: list[Any], encode: Any) -> bytes:
    if not items:
        return b"[]"
    return b"[\n    " + b",\n    ".join(encode(item) for item in items) + b"\n  ]"


class JSONLinesReporter:
    """Writes a ``ScanHeader``, each ``Finding`` as it is found, each ``Status``, and a ``ScanSummary``.

    A file without a ``ScanSummary`` was cut short.

    Args:
        stream: Binary output.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._encoder = msgspec.json.Encoder()

    def _line(self, kind: str, value: Any) -> None:
        body = self._encoder.encode(value)
        head = b'{"apiVersion":"%s","kind":"%s",' % (API_VERSION.encode(), kind.encode())
        self._stream.write(head + body[1:] + b"\n")

    def begin(self, header: Header) -> None:
        """Write the ScanHeader line."""
        self._line("ScanHeader", header)

    def finding(self, finding: Finding) -> None:
        """Write one Finding line."""
        self._line("Finding", finding)

    def end(self, conclusion: Conclusion) -> None:
        """Write the Status lines, which are Kubernetes' own objects, and the ScanSummary."""
        for status in conclusion.statuses:
            self._stream.write(self._encoder.encode(status) + b"\n")
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


class YAMLReporter:
    """Writes the same document as :class:`JSONReporter`, as YAML.

    Args:
        stream: Binary output.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._encoder = msgspec.json.Encoder()
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115 - lives until end()
        self._count = 0
        self._header: Header | None = None

    def begin(self, header: Header) -> None:
        """Keep the header until the source's last word is known."""
        self._header = header

    def finding(self, finding: Finding) -> None:
        """Keep one finding in the temporary file."""
        self._spool.write(self._encoder.encode(finding) + b"\n")
        self._count += 1

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
        self._stream.write(b"findings:\n" if self._count else b"findings: []\n")
        for finding in self._findings():
            self._dump([finding])
        self._dump(
            {
                "statuses": conclusion.statuses,
                "summary": conclusion.summary,
                "complete": conclusion.complete,
                "incomplete_reasons": conclusion.incomplete_reasons,
                "finished_at": conclusion.finished_at,
            }
        )

    def _findings(self) -> Iterator[Any]:
        with self._spool:
            self._spool.seek(0)
            for line in self._spool:
                yield msgspec.json.decode(line)

    def _dump(self, value: Any) -> None:
        import yaml  # noqa: PLC0415 - only this format pays for it

        plain = msgspec.json.decode(self._encoder.encode(value))
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        text = yaml.dump(plain, Dumper=dumper, sort_keys=False, width=2**31 - 1, default_flow_style=False)
        self._stream.write(text.encode())
