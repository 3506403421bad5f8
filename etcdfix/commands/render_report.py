"""A saved report in another form: nothing is examined again, and nothing is added to it.

Whoever wrote the file may have written anything into it. The renderer makes its text safe, and what no report of
etcdfix can hold is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import msgspec

from etcdfix.inputs.inputfile import Readable
from etcdfix.model.storagekey import DEFAULT_PREFIX
from etcdfix.report.model import API_VERSION, Finding, Status, other_version, read_command
from etcdfix.report.render import CASE_FORMS, FORMS, SCAN_FORMS, Report, Writer
from etcdfix.report.saved_report import CUT, ReportFile, kind_of, reading
from etcdfix.report.scan import ScanReport
from etcdfix.report.schema import KINDS
from etcdfix.text.commands import RunOptions
from etcdfix.text.safetext import safe_text

_MOST_BYTES: Final = 256 << 20
"""A document that is decoded as a whole; a scan is read piece by piece."""

MakeWriter = Callable[[RunOptions], Writer]


class SavedDocument:
    """A published document that was saved as JSON, a scan also as lines.

    Raises:
        msgspec.MsgspecError: It is no report, or of another version.
    """

    def __init__(self, raw: Readable) -> None:
        self._raw = raw
        found = kind_of(raw)
        kind = "ScanReport" if found.kind == "ScanHeader" else found.kind
        if kind not in KINDS:
            raise msgspec.ValidationError(f"its kind is {safe_text(kind) or 'missing'}")
        if found.api_version != API_VERSION:
            raise msgspec.ValidationError(other_version(found.api_version))
        self.struct = KINDS[kind]

    @property
    def forms(self) -> Collection[str]:
        """The forms that it has."""
        if self.struct is ScanReport:
            return SCAN_FORMS
        return CASE_FORMS if hasattr(self.struct, "cases") else FORMS

    def write(self, make: MakeWriter) -> Report:
        """Write it, a scan one finding at a time; return it, a scan without its findings.

        Raises:
            msgspec.MsgspecError: It is not as its kind has to be.
        """
        if self.struct is ScanReport:
            return _write_scan(ReportFile(self._raw), make)
        if len(self._raw) > _MOST_BYTES:
            raise msgspec.ValidationError(f"it is larger than {_MOST_BYTES} bytes")
        report: Any = msgspec.json.decode(self._raw, type=self.struct, dec_hook=read_command)
        checked = _checked(report)
        make(run_of(report)).end(checked)
        return checked


def open_saved(path: Path) -> AbstractContextManager[SavedDocument]:
    """Open a saved document; it is a copy that nobody else can change.

    Raises:
        NoReport: It cannot be read, or what is read of it is not as it has to be.
    """
    return reading(path, str(path), SavedDocument)


def _checked(report: Report) -> Report:
    """Return a report of which a document can be made: its types alone do not say that its words are known."""
    try:
        report.document()
    except (LookupError, ValueError) as exc:
        raise msgspec.ValidationError(f"it has a word or a list that no {type(report).__name__} has") from exc
    return report


def _write_scan(file: ReportFile, make: MakeWriter) -> ScanReport:
    decode = msgspec.json.Decoder(Finding, dec_hook=read_command).decode
    for raw in file.findings:  # nothing is written of a file that is not whole
        decode(raw)
    head, end = file.header, file.ending
    if end is None:
        raise msgspec.DecodeError(CUT)
    fields = {name: getattr(part, name) for part in (end, head) for name in part.__struct_fields__}
    statuses = [msgspec.json.decode(raw, type=Status) for raw in file.statuses]
    report = ScanReport(**fields, findings=[], statuses=statuses)
    _checked(report)
    writer = make(run_of(report))
    writer.begin(head)
    for raw in file.findings:
        writer.row(decode(raw))
    writer.end(report)
    return report


def run_of(report: Any) -> RunOptions:
    """Return the options that read the same data again, as far as a report tells."""
    source: Any = getattr(report, "source", None)
    configuration: Any = getattr(report, "encryption_config", None)
    kind: str = getattr(source, "type", "")
    where: tuple[str, ...] = ()
    if kind in {"snapshot", "kine"} and source.path:
        where = (f"--{kind}", source.path)
    elif kind == "etcd" and source.endpoints:
        where = ("--endpoints", ",".join(source.endpoints))
    scope: Any = getattr(report, "scope", None)
    prefix: str = getattr(scope, "etcd_prefix", DEFAULT_PREFIX)
    release: str | None = getattr(scope, "kubernetes_version", None)
    return RunOptions(
        source=where,
        layout=("--etcd-prefix", prefix) if prefix != DEFAULT_PREFIX else (),
        reading=(
            *(("--encryption-config", configuration.path) if configuration is not None else ()),
            *(("--kubernetes-version", release) if release else ()),
        ),
    )
