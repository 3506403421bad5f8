"""Formats of copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import BinaryIO, Final

from etcdfix.report.base import Output
from etcdfix.report.copies_model import (
    CopiesReport,
    CopyPlace,
    Fit,
    Grade,
    ObjectCopies,
    ObjectState,
    PlaceKind,
    SurvivingCopy,
)
from etcdfix.report.formats.text import incomplete, introduction, shown
from etcdfix.report.head import head_lines
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

_PLACES: Final[Mapping[PlaceKind, str]] = {
    PlaceKind.REVISION: "earlier revision",
    PlaceKind.API_SERVER: "memory of API server",
    PlaceKind.RESCUED: "rescued object",
    PlaceKind.LOG: "write-ahead log",
    PlaceKind.SNAPSHOT: "snapshot",
    PlaceKind.BACKUP: "backup",
    PlaceKind.OLD_VALUE: "kine's old_value",
}
_OPTIONS: Final[Mapping[PlaceKind, str]] = {
    PlaceKind.API_SERVER: "API servers (--kubeconfig FILE)",
    PlaceKind.LOG: "etcd's write-ahead log (--wal DIR)",
    PlaceKind.SNAPSHOT: "older snapshots (--older-snapshot FILE)",
}
_HISTORIES: Final[Mapping[Fit, str]] = {
    Fit.SAME: "same history",
    Fit.OTHER: "OTHER HISTORY",
    Fit.UNKNOWN: "history not known",
}
_STATES: Final[Mapping[ObjectState, str]] = {
    ObjectState.UNREADABLE: "UNREADABLE",
    ObjectState.UNDETERMINED: "UNDETERMINED",
    ObjectState.DELETED: "DELETED",
    ObjectState.READABLE: "READABLE",
    ObjectState.INCONSISTENT: "INCONSISTENT",
}


def write_table(report: CopiesReport, stream: BinaryIO, max_rows: int) -> None:
    """Write the counts, what to do next, what was looked into, and up to ``max_rows`` objects with their copies."""
    output = Output(stream)
    line = output.line
    output.prose(_counts_line(report))
    output.lines(head_lines(report.at_stake, report.do_not_restart, report.next))
    line()
    line(introduction(report))
    for place in report.places:
        output.prose(_place_line(place), "  ")
    if report.with_good_copy < report.count:
        _elsewhere(report, output)
    for one in islice(report.objects, max_rows):
        line()
        _object(one, output)
    if report.count > max_rows:
        line()
        line(f"{report.count - max_rows} of {counted(report.count, 'object')} not shown:")
        line(f"  --max-rows {report.count} or -o json shows them")
    if report.expired:
        line()
        output.prose(
            f"{counted(report.expired, 'deleted key')} with a lease (events, as a rule) left out: name one to see it."
        )
    if not report.complete:
        line()
        for text in incomplete(report):
            output.prose(text)


def _counts_line(report: CopiesReport) -> str:
    """Return in one sentence how many objects have which copies."""
    if not report.count:
        seen = "" if report.complete else " in what was seen"
        return (
            f"NOTHING TO LOOK FOR: nothing is unreadable{seen}, and nothing that is still known was deleted."
        )
    readable = report.count - report.unreadable - report.undetermined - report.deleted
    states = [
        f"{number} {text}"
        for number, text in (
            (readable, "readable"),
            (report.unreadable, "cannot be read"),
            (report.undetermined, "not judged"),
            (report.deleted, "deleted"),
        )
        if number
    ]
    copies = [
        f"{number} {text}"
        for number, text in (
            (report.with_good_copy, "with a good copy"),
            (report.with_doubtful_copy, "with a doubtful one alone"),
            (report.without_copy, "without any other" if readable == report.count else "WITHOUT ANY"),
        )
        if number
    ]
    told = f" ({', '.join(states)})" if states else ""
    not_seen = sum(not place.searched for place in report.places)
    lacks = f"; {counted(not_seen, 'place')} NOT LOOKED INTO" if not_seen else ""
    return f"{counted(report.count, 'object')}{told}: {', '.join(copies)}{lacks}."


def _place_line(place: CopyPlace) -> str:
    """Return what a place is, and whether it was looked into."""
    what = f"{_PLACES[place.kind]}{'s' if place.kind is PlaceKind.REVISION else ''}"
    where = f" {shown(place.path)}" if place.path else ""
    if not place.searched:
        return f"NOT LOOKED INTO: {what}{where}: {shown(place.detail)}"
    parts = [f"revision {place.revision}"] if place.revision and place.path else []
    if place.path and place.kind not in {PlaceKind.BACKUP, PlaceKind.API_SERVER}:
        parts.append(_HISTORIES[place.history])
    if place.detail:
        parts.append(shown(place.detail))
    return f"looked into: {what}{where}" + (f": {'; '.join(parts)}" if parts else "")


def _elsewhere(report: CopiesReport, output: Output) -> None:
    """Name the places that nobody named."""
    named = {place.kind for place in report.places}
    kine = report.source.type == "kine"
    others = [
        text
        for kind, text in _OPTIONS.items()
        if kind not in named and not (kine and kind is not PlaceKind.API_SERVER)
    ]
    if others:
        output.prose(f"not named, so not looked into: {', '.join(others)}", "  ")


def _object(one: ObjectCopies, output: Output) -> None:
    key = f"base64:{one.key_base64}" if one.key_base64 else one.key
    output.line(f"{_STATES[one.state]}  {shown(key)}")
    facts = [part for part in (one.cause, _revision(one.mod_revision, one.version), _uid(one.uid)) if part]
    if facts:
        output.prose(", ".join(facts), "  ")
    if one.next is not None and one.next.command.text.startswith("etcdfix repair "):
        output.prose(f"first: {safe_text(one.next.action)}", "  ")
        output.line(f"     {safe_text(one.next.command.text)}")
    if not one.copies:
        output.line("  no copy was found")
    for number, copy in enumerate(one.copies, start=1):
        output.prose(f"{number}. {copy.grade.value.upper()}: {', '.join(_copy_facts(copy))}", "  ")
        if copy.why:
            output.prose(f"why: {safe_text(copy.why)}", "     ")
        for label, command in (("put back", copy.put_back), ("save", "" if copy.put_back else copy.save)):
            if command:
                output.line(f"     {label}: {safe_text(command)}")
        if copy.note:
            output.prose(safe_text(copy.note), "     ")
    if one.left_out:
        output.line(f"  and {counted(one.left_out, 'older copy').replace('copys', 'copies')}")


def _revision(mod_revision: int | None, version: int | None) -> str:
    if mod_revision is None:
        return ""
    return f"mod_revision {mod_revision}" + (f" (version {version})" if version else "")


def _uid(uid: str) -> str:
    return f"uid {shown(uid)}" if uid else ""


def _copy_facts(copy: SurvivingCopy) -> Iterator[str]:
    """Yield what is known of a copy, a clause each."""
    path = f" {shown(copy.path)}" if copy.path else ""
    entry = f" entry {copy.log_index}" if copy.log_index else ""
    yield f"{_PLACES[copy.place]}{path}{entry}"
    revision = _revision(copy.mod_revision, copy.version)
    if revision:
        yield revision
    if copy.grade is Grade.UNUSABLE:
        return
    if copy.later_writes is not None:
        yield f"{copy.later_writes or 'no'} later write{'s' if copy.later_writes != 1 else ''} lost"
    if copy.uid_fits is Fit.SAME:
        yield "same uid"
