"""A saved report in another form: what was found is not looked at again, and nothing is added to it.

Whoever wrote the file may have written anything into it. Text that a terminal could act upon is spelled out where a
form is made for one, and what a report of etcdfix cannot hold is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

from etcdfix.errors import ConfigurationError, why
from etcdfix.inputs.inputfile import MAX_REPORT_BYTES, SPOILED, Readable, mapped_input, read_input, spoiled
from etcdfix.inputs.jsonparts import CUT, MOST_PIECE_BYTES, DocumentCut, beginning, members, piece
from etcdfix.inputs.ownfiles import PLAN_KIND
from etcdfix.model import Outcome
from etcdfix.report.advice.whole import PLUGIN_REMEDIES, WELL
from etcdfix.report.formats.of_saved import SAVED_KINDS
from etcdfix.report.model import (
    API_VERSION,
    Finding,
    Status,
    Summary,
    other_version,
    read_command,
    written_command,
)
from etcdfix.report.render import Writer
from etcdfix.report.report_file import ReportFile
from etcdfix.report.scan import ScanReport
from etcdfix.text.safetext import safe_text
from etcdfix.verdicts.causes import Cause

S = TypeVar("S", bound=msgspec.Struct)

SCAN_KIND: Final = "ScanReport"
FOR_TERMINALS: Final = frozenset({"table", "wide"})
"""Forms in which text is spelled out that a terminal could act upon; the others escape it, each in its way."""
_SCAN_LINES: Final = "ScanHeader"
_MOST_BYTES: Final = 256 << 20


class _Kind(msgspec.Struct, rename={"api_version": "apiVersion"}):
    kind: str = ""
    api_version: str = ""


def kind_of(path: Path) -> str:
    """Return the kind of a saved document; that of a scan, in either form, is ``ScanReport``.

    Raises:
        ConfigurationError: It cannot be read, or is no document of etcdfix.
    """
    with _refusing(path, OSError), mapped_input(path, most_bytes=MAX_REPORT_BYTES) as raw:
        found = _kind_in(raw)
    kind = SCAN_KIND if found.kind == _SCAN_LINES else found.kind
    if kind not in {SCAN_KIND, PLAN_KIND, *SAVED_KINDS}:
        known = ", ".join((SCAN_KIND, PLAN_KIND, *SAVED_KINDS))
        raise ConfigurationError(
            f"{path}: its kind is {safe_text(kind) or 'missing'}, which is shown in no other form",
            hint=f"these are: {known}",
        )
    if found.api_version != API_VERSION:
        raise ConfigurationError(
            f"{path}: {other_version(safe_text(found.api_version))}",
            hint="make it anew, with this version",
        )
    return kind


def _kind_in(raw: Readable) -> _Kind:
    start, end = beginning(raw), raw.find(b"\n")
    first = bytes(raw[start : min(end if end >= 0 else len(raw), MOST_PIECE_BYTES)])
    try:
        line = msgspec.json.decode(first, type=_Kind)
    except msgspec.DecodeError:
        pass
    else:
        return line
    spans = members(raw)
    head = [
        b'"%s":%s' % (name, piece(raw, spans[name])) for name in (b"kind", b"apiVersion") if name in spans
    ]
    return msgspec.json.decode(b"{%s}" % b",".join(head), type=_Kind)


def render_scan(path: Path, writer: Writer) -> ScanReport:
    """Write a saved report of a scan, one finding at a time; return it without its findings.

    Args:
        path: Its file.
        writer: Gets the report, once the file has proven to be whole.

    Raises:
        ConfigurationError: It cannot be read, is cut, or is no report.
    """
    with _refusing(path), mapped_input(path, most_bytes=MAX_REPORT_BYTES) as raw:
        return _render(ReportFile(raw), writer)


def _render(report: ReportFile, writer: Writer) -> ScanReport:
    decode = msgspec.json.Decoder(Finding, dec_hook=read_command).decode
    for _at, raw in report.findings():
        decode(raw)
    head, end = report.header(), report.ending()
    if end is None:
        raise DocumentCut(CUT)
    statuses = [msgspec.json.decode(raw, type=Status) for raw in report.statuses()]
    _check_words(end.summary)
    writer.begin(head)
    for _at, raw in report.findings():
        writer.row(decode(raw))
    whole = ScanReport(
        tool=head.tool,
        generated_at=head.generated_at,
        source=end.source,
        encryption_config=head.encryption_config,
        scope=head.scope,
        baseline=head.baseline or msgspec.UNSET,
        findings=[],
        statuses=statuses,
        summary=end.summary,
        complete=end.complete,
        incomplete_reasons=end.incomplete_reasons,
        finished_at=end.finished_at,
        interrupted=end.interrupted,
    )
    writer.end(whole)
    return whole


def _check_words(summary: Summary) -> None:
    """Look at the words of closed catalogues, which say what to do next.

    Raises:
        msgspec.ValidationError: One is not known.
    """
    states = {*PLUGIN_REMEDIES, *WELL}
    plugins = summary.kms.plugins if summary.kms is not None else []
    words = [
        *(cause.cause for cause in summary.by_cause if cause.cause not in set(Cause)),
        *(cause.outcome for cause in summary.by_cause if cause.outcome not in set(Outcome)),
        *(plugin.state for plugin in plugins if plugin.state not in states),
    ]
    if words:
        raise msgspec.ValidationError(f"nobody knows its word {words[0]}")


def render_document(path: Path, kind: str, form: str, stream: BinaryIO, max_rows: int) -> list[str]:
    """Write a saved document of one piece in another form; return why it is not complete.

    Raises:
        ConfigurationError: It cannot be read, or is not what its kind says.
    """
    saved = SAVED_KINDS[kind]
    with _refusing(path, OSError):
        raw = read_input(path, most_bytes=_MOST_BYTES)
        document: Any = msgspec.json.decode(raw[beginning(raw) :], type=saved.type, dec_hook=read_command)
        if form in FOR_TERMINALS:
            document = _plain(document)
    saved.formats[form](document, stream, max_rows)
    reasons: list[str] = getattr(document, "incomplete_reasons", [])
    return reasons


def _plain(value: S) -> S:
    """Return the same with nothing in it that acts upon a terminal."""
    plain = _spelled_out(msgspec.to_builtins(value, enc_hook=written_command))
    return msgspec.convert(plain, type(value), dec_hook=read_command)


def _spelled_out(value: Any) -> Any:
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, dict):
        return {_spelled_out(name): _spelled_out(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled_out(item) for item in value]
    return value


@contextmanager
def _refusing(path: Path, *unreadable: type[OSError]) -> Iterator[None]:
    """Refuse a file that is not what it says; or that cannot be read, where nothing else is read or written here."""
    try:
        yield
    except unreadable as exc:
        raise ConfigurationError(f"{path}: {why(exc)}") from exc
    except SPOILED as exc:
        raise ConfigurationError(
            f"{path} is no report that can be shown again: {safe_text(spoiled(exc))}",
            hint="name a file that was written with -o json or -o jsonl",
        ) from exc
