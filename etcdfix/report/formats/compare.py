"""Formats of compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import BinaryIO, Final

from etcdfix.report.base import Output
from etcdfix.report.compare_model import Change, ComparisonReport, CopyOfKey, KeyDifference
from etcdfix.report.formats.text import aligned, shown
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

_MEANINGS: Final[Mapping[str, str]] = {
    Change.READABLE_ON_SOME: "some members can read it, and others cannot",
    Change.READABLE_ON_NONE: "no member can read it, and they differ",
    Change.READABLE_ON_ALL: "every member can read it, and they differ",
    Change.UNREADABLE_NOW: "the earlier value could be read, and the later one cannot",
    Change.SAME_REVISION_OTHER_BYTES: "other bytes at the same mod_revision: no write did that",
    Change.REMOVED: "not there any more",
    Change.CHANGED: "written since",
    Change.ADDED: "not there before",
}
_DIGEST_SHOWN: Final = len("sha256:") + 12


def write_table(report: ComparisonReport, stream: BinaryIO, max_rows: int) -> None:
    """Write the _verdict, what to do, what was compared, and up to ``max_rows`` keys."""
    output = Output(stream)
    line = output.line
    output.prose(_verdict(report))
    for warning in report.warnings:
        output.prose(f"Warning: {safe_text(warning)}.")
    for remedy in report.advice:
        output.prose(f"Next: {safe_text(remedy.action)}" if remedy.command else safe_text(remedy.action))
        if remedy.command:
            line(f"  {safe_text(remedy.command.text)}")
            break
    line()
    rows = [("COPY", "WHERE", "REVISION", "HASH", "STATE")]
    for copy in report.copies:
        told = "-"
        if copy.hash is not None:
            compacted = copy.hash.compact_revision
            told = f"{copy.hash.hash} ({f'compacted {compacted}' if compacted > 0 else 'never compacted'})"
        state = "compared" if copy.compared else f"NOT COMPARED: {shown(copy.reason)}"
        where = shown(copy.path or copy.endpoint or "-")
        rows.append((shown(copy.label), where, str(copy.revision or "-"), told, state))
    output.lines(aligned(rows))
    if report.method == "hash":
        line("  By hash (HashKV): a CRC-32 of all that a member stores.")
    elif report.why_keys:
        output.prose(f"The keys were read, because {safe_text(report.why_keys)}.", "  ")
    if report.differing:
        _differences(report, output, max_rows)
    if not report.complete:
        line()
        line("INCOMPLETE: not everything could be compared.")
        for reason in report.incomplete_reasons:
            output.prose(f"- {shown(reason)}", "  ")
    if report.advice:
        line()
        line("What to do next")
        for number, remedy in enumerate(report.advice, start=1):
            output.prose(f"{number}. {safe_text(remedy.action)}", "  ")
            if remedy.note:
                output.prose(safe_text(remedy.note), "     ")
            if remedy.command:
                line(f"       {safe_text(remedy.command.text)}")


def _verdict(report: ComparisonReport) -> str:
    """Return in one sentence whether there is a difference."""
    what = f"{report.differing} of {counted(report.keys, 'key')}"
    unasked = [copy for copy in report.copies if not copy.compared]
    asked = len(report.copies) - len(unasked)
    if report.mode == "members":
        if report.differing:
            worse = [copy for copy in report.copies if copy.unreadable_here]
            told = "; ".join(
                f"{shown(copy.label)} lacks or cannot read {copy.unreadable_here} that another member can read"
                for copy in worse
            )
            return (
                f"MEMBERS DIFFER: {what} differ on {counted(asked, 'member')}{f': {told}' if told else ''}."
            )
        if report.hashes_differ and report.complete:
            return f"MEMBERS DIFFER: their hashes do; none of {counted(report.keys, 'key')} that were compared does."
        if unasked or not report.complete:
            seen = f"{asked} of {counted(len(report.copies), 'member')} answered"
            rest = "these agree" if asked > 1 and not report.hashes_differ else "nothing could be compared"
            return f"COULD NOT BE TOLD: {seen}; {rest}."
        if asked == 1:
            return "There is one member: nothing to compare."
        how = (
            "by the hash of all they store"
            if report.method == "hash"
            else f"{counted(report.keys, 'key')} compared"
        )
        return f"MEMBERS AGREE: {counted(asked, 'member')}, {how}."
    lost = report.changes.get(Change.UNREADABLE_NOW, 0)
    if lost:
        return f"UNREADABLE NOW: {counted(lost, 'key')} could be read in the earlier one; {what} differ."
    if report.differing:
        return f"DIFFERENT: {what} differ; none that could be read became unreadable."
    if not report.complete:
        return f"COULD NOT BE TOLD: no difference in {counted(report.keys, 'key')} that were compared."
    return f"NO DIFFERENCE in {counted(report.keys, 'key')}."


def _differences(report: ComparisonReport, output: Output, max_rows: int) -> None:
    output.line()
    for change in Change:
        count = report.changes.get(change, 0)
        if count:
            output.line(f"  {count:>7}  {change.value}: {_MEANINGS[change]}")
    last = ""
    for row in islice(report.differences, max_rows):
        if row.change != last:
            output.line()
            output.line(f"{row.change.value.upper()}")
            last = row.change
        output.lines(_row(row))
    if report.differing > max_rows:
        output.line(
            f"  … {report.differing - max_rows} of {counted(report.differing, 'key')} not shown; "
            f"--max-rows {report.differing} or -o json shows them"
        )


def _row(row: KeyDifference) -> Iterator[str]:
    key = f"base64:{row.key_base64}" if row.key_base64 else row.key
    yield f"  {shown(key)}"
    yield from aligned([(shown(copy.label), *_told(copy)) for copy in row.copies], "    ")


def _told(copy: CopyOfKey) -> tuple[str, str, str]:
    if copy.state != "present":
        return (copy.state, "", "")
    cause = f" ({copy.cause})" if copy.cause else ""
    return (
        f"{copy.outcome}{cause}",
        f"mod_revision {copy.mod_revision}",
        f"{counted(copy.value_size, 'byte')} {copy.value_sha256[:_DIGEST_SHOWN]}",
    )
