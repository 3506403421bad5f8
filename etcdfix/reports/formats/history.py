"""Formats of history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Final

from etcdfix.reports.base import Output
from etcdfix.reports.formats.machine import write_document, write_yaml
from etcdfix.reports.formats.text import incomplete, introduction, shown, shown_transformer
from etcdfix.reports.head import head_lines
from etcdfix.reports.history_model import ChangeKind, Event, HistoryReport, HistoryRevision
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

_MOST_PATHS: Final = 8
_LABEL: Final = 13


def write_table(report: HistoryReport, stream: BinaryIO) -> None:
    """Write what is kept in numbers, what to do next, and a paragraph for each revision, the newest first."""
    output = Output(stream)
    line = output.line
    line(_counts(report))
    for text in head_lines(report.at_stake, report.do_not_restart, report.next):
        line(text)
    line()
    line(introduction(report))
    line(_bounds(report))
    for revision in report.revisions:
        line()
        for text in _paragraph(revision):
            line(text)
    if report.left_out:
        line()
        line(
            f"{counted(report.left_out, 'older revision')} not shown: --limit {report.count} shows all "
            f"{report.count}"
        )
    if any(one.written is not None for one in report.revisions):
        line()
        line("etcd keeps no times: those above are stated by the object itself.")
    if not report.complete:
        line()
        for text in incomplete(report):
            line(text)


def _counts(report: HistoryReport) -> str:
    key = shown(report.key)
    values = report.count - report.deletions
    parts = [f"{report.readable} of {counted(values, 'value')} can be read"] if values else []
    if report.deletions:
        parts.append(counted(report.deletions, "deletion"))
    state = "" if report.exists else "; it does not exist any more"
    return f"{counted(report.count, 'revision')} kept of {key}{state} ({', '.join(parts)})."


def _bounds(report: HistoryReport) -> str:
    compacted = report.compacted_revision
    gone = counted(report.older_versions, "earlier version")
    older = (
        f"{gone} of it {'is' if report.older_versions == 1 else 'are'} gone" if report.older_versions else ""
    )
    if compacted is None:
        bound = "how far back revisions are kept is not known"
    elif compacted:
        bound = f"compacted up to revision {compacted}"
    else:
        bound = "nothing was compacted"
    return "; ".join(part for part in (bound, older) if part) + "."


def _paragraph(one: HistoryRevision) -> Iterator[str]:
    if one.event is Event.DELETE:
        yield f"{one.mod_revision}  deleted"
        return
    cause = f" ({one.cause}, {one.confidence})" if one.cause and one.confidence else ""
    state = "stands now" if one.present else f"stood up to revision {one.stands_until}"
    again = ", created anew" if one.after_deletion else ", created" if one.version == 1 else ""
    version = one.version or "unknown"
    yield f"{one.mod_revision}  {(one.outcome or '').upper()}{cause}, version {version}{again}, {state}"
    if one.cause or one.outcome != "readable":
        yield _row("what", safe_text(one.message))
    where = ", kept as the old_value of the next" if one.from_old_value else ""
    yield _row("stored", f"{counted(one.value_size, 'byte')}, {one.value_sha256}{where}")
    under = [
        shown_transformer(one.transformer) or "unknown",
        one.key_fingerprint or one.kms_key_id_sha256 or "",
    ]
    stale = ", not today's write key" if one.stale else ""
    yield _row("under", " ".join(part for part in under if part) + stale)
    if one.written is not None:
        by = f" by {shown(one.written.by)}" if one.written.by else ""
        yield _row(
            "written",
            f"about {one.written.time}{by}" if one.written.exact else f"{one.written.time}{by}, or later",
        )
    yield _row("changed", _changes(one))
    if one.same_object is False:
        yield _row("object", "another one than the last: it has another uid")
    for label, command in (("see it", one.get), ("save it", one.save), ("put it back", one.restore)):
        if command:
            yield _row(label, safe_text(command))
    if one.restore_note and not one.present:
        label = "before that" if one.restore else "not back"
        yield _row(label, safe_text(one.restore_note))


def _changes(one: HistoryRevision) -> str:
    if one.changes is None:
        return f"not compared: {one.not_compared}"
    if one.same_value:
        return "nothing: the same bytes as before"
    if not one.changes:
        return "nothing in the object: it was written again"
    parts = []
    for kind in ChangeKind:
        paths = [safe_text(change.path) for change in one.changes if change.change is kind]
        if paths:
            more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
            parts.append(f"{kind}: {', '.join(paths[:_MOST_PATHS])}{more}")
    if one.changes_left_out:
        parts.append(f"{counted(one.changes_left_out, 'further field')}")
    return "; ".join(parts)


def _row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}"


HISTORY_FORMATS: Mapping[str, Callable[[HistoryReport, BinaryIO], None]] = {
    "table": write_table,
    "json": write_document,
    "yaml": write_yaml,
}
