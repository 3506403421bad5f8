"""Formats of history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Final

from etcdfix.report.base import Output
from etcdfix.report.formats.machine import write_document, write_yaml
from etcdfix.report.formats.text import incomplete, introduction, shown, shown_transformer
from etcdfix.report.head import head_lines
from etcdfix.report.history_model import (
    ChangeKind,
    Event,
    HistoryLog,
    HistoryReport,
    HistoryRevision,
    LoggedRevision,
)
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

_MOST_PATHS: Final = 8
_LABEL: Final = 13


def write_table(report: HistoryReport, stream: BinaryIO) -> None:
    """Write what is kept in numbers, what to do next, and a paragraph for each revision, the newest first."""
    output = Output(stream)
    line = output.line
    line(_counts(report))
    output.lines(head_lines(report.at_stake, report.do_not_restart, report.next))
    line()
    line(introduction(report))
    line(_bounds(report))
    if report.log is not None:
        output.lines(_about_log(report.log))
    for paragraph in _merged(report):
        line()
        output.lines(paragraph)
    if report.left_out:
        line()
        line(
            f"{counted(report.left_out, 'older revision')} not shown: --limit {report.count} shows all "
            f"{report.count}"
        )
    if not report.complete:
        line()
        output.lines(incomplete(report))


def _about_log(log: HistoryLog) -> Iterator[str]:
    yield (
        f"Write-ahead log {', '.join(map(shown, log.directories))}: entries {log.first_index} to {log.last_index}, "
        f"agreed on up to {log.committed_index}; {log.agreement}."
    )
    if log.replayed:
        yield f"Replayed from {shown(log.replayed)}."
    else:
        yield "It could not be replayed from a known state, so that nothing of it is certain."
    if log.refused:
        yield f"{counted(log.refused, 'write')} of the key changed nothing, by the replay, and stand not below."
    if log.left_out:
        yield f"{counted(log.left_out, 'older write')} of the log not shown: --limit N shows more."
    yield from map(safe_text, log.notes)


def _merged(report: HistoryReport) -> Iterator[Iterator[str]]:
    """Yield a paragraph for each revision and each write of the log that is not kept, the newest first."""
    logged = [one for one in report.log.writes if not one.kept] if report.log is not None else []
    source = "  etcd" if report.log is not None else ""
    told = [((one.mod_revision, 0), _paragraph(one, source)) for one in report.revisions]
    least = 0
    for entry in reversed(logged):  # those of unknown revision stand where they stand in the log
        least = max(least, entry.mod_revision or entry.after_revision or 0)
        told.append(((entry.mod_revision or least, entry.entry_index), _of_log(entry)))
    told.sort(key=lambda pair: pair[0], reverse=True)
    yield from (paragraph for _, paragraph in told)


def _of_log(one: LoggedRevision) -> Iterator[str]:
    where = f"entry {one.entry_index}" + (f".{one.operation}" if one.operation else "")
    yield f"{_revision_of(one)}  log  {_what(one)}, {one.confidence}, {where}"
    if one.doubt:
        yield _row("not certain", safe_text(one.doubt))
    if one.range_end:
        yield _row("range", f"it is one of a range that ends before {shown(one.range_end)}")
    if one.keeps_value:
        yield _row("value", "the one before it stood on: the write names none")
    if one.cause:
        yield _row("what", safe_text(one.message))
    if one.outcome is not None:
        yield _row("stored", f"{counted(one.value_size, 'byte')}, {one.value_sha256}")
        under = (
            shown_transformer(one.transformer) or "unknown",
            one.key_fingerprint or one.kms_key_id_sha256 or "",
        )
        yield _row("under", " ".join(part for part in under if part))
    if one.user:
        yield _row("by", f"etcd user {shown(one.user)}")
    if one.restore:
        yield _row("put it back", safe_text(one.restore))
    if one.restore_note:
        yield _row("before that" if one.restore else "not back", safe_text(one.restore_note))


def _revision_of(one: LoggedRevision) -> str:
    if one.mod_revision is not None:
        return str(one.mod_revision)
    if one.after_revision is not None and one.before_revision is not None:
        return f"between {one.after_revision} and {one.before_revision}"
    if one.after_revision is not None:
        return f"after {one.after_revision}"
    return f"before {one.before_revision}" if one.before_revision is not None else "revision unknown"


def _what(one: LoggedRevision) -> str:
    if one.event is Event.DELETE:
        return "deleted"
    if one.event is Event.LEASE_REVOCATION:
        return f"deleted with lease {one.lease}"
    return (one.outcome or "put").upper() + (f" ({one.cause})" if one.cause else "")


def _counts(report: HistoryReport) -> str:
    key = shown(report.key)
    values = report.count - report.deletions
    parts = [f"{report.readable} of {counted(values, 'value')} can be read"] if values else []
    if report.deletions:
        parts.append(counted(report.deletions, "deletion"))
    state = "" if report.exists else "; it does not exist any more"
    if report.log is not None:
        logged = sum(not one.kept for one in report.log.writes) + report.log.left_out
        parts.append(f"{counted(logged, 'more write')} in the log")
    told = f" ({', '.join(parts)})" if parts else ""
    return f"{counted(report.count, 'revision')} kept of {key}{state}{told}."


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


def _paragraph(one: HistoryRevision, source: str) -> Iterator[str]:
    if one.event is Event.DELETE:
        yield f"{one.mod_revision}{source}  deleted"
        return
    cause = f" ({one.cause}, {one.confidence})" if one.cause and one.confidence else ""
    state = "stands now" if one.present else f"stood up to revision {one.stands_until}"
    again = ", created anew" if one.after_deletion else ", created" if one.version == 1 else ""
    version = f"version {one.version or 'unknown'}{again}"
    yield f"{one.mod_revision}{source}  {(one.outcome or '').upper()}{cause}, {version}, {state}"
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
