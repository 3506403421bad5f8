"""Formats of explain, for one key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Final

from etcdfix.model import RepairProof
from etcdfix.report.base import Output
from etcdfix.report.explain_model import (
    AttemptResult,
    ExplainReport,
    KeyAttempt,
    LayoutPart,
    PeekShown,
    Siblings,
    Where,
)
from etcdfix.report.formats.machine import write_document, write_yaml
from etcdfix.report.formats.text import aligned, incomplete, introduction, shown, shown_transformer, steps
from etcdfix.report.head import head_lines
from etcdfix.report.model import Finding, Remedy
from etcdfix.report.tables import table_lines
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted
from etcdfix.verdicts.damage import PEEK_CHECKS
from etcdfix.verdicts.judge import ATTEMPT_CHECK

_MOST_PARTS: Final = 40
_INDENT: Final = "  "
_TITLES: Final = {
    Where.STORED: "The value as it is stored",
    Where.DECRYPTED: "What it decrypts to",
}
_RESULTS: Final = {
    AttemptResult.OPENED: "opens it",
    AttemptResult.FAILED: "does not open it",
    AttemptResult.NO_ANSWER: "no answer",
    AttemptResult.NOT_TRIED: "not tried",
}
_PROOFS: Final = {
    RepairProof.TAG: "its tag fits then",
    RepairProof.DECODES: "a whole object decodes then, of its own etcd key",
    RepairProof.NONE: "nothing proves it: other bytes may be wrong too, or another key may have that name",
}
_DOUBTS: Final = {
    "none-opens": "none opens: that points at the key or the configuration, not at this value",
    "most-fail": "most fail: that points at the key or the configuration, not at this value",
    "in-between": "others fail like this one: the key may have had other bytes for a time",
    "unfitting": "others fail like this one: they may have been written under other etcd keys",
    "mass-damage": "each of them is proven damaged: something damages values",
}


def write_table(report: ExplainReport, stream: BinaryIO) -> None:
    """Write what is wrong and what to do first; then everything that this rests on, and every way out."""
    output = Output(stream)
    line = output.line
    output.prose(_headline(report))
    output.lines(head_lines(report.at_stake, report.do_not_restart, report.next))
    line()
    line(introduction(report))
    for title, lines in _sections(report, max(output.width - len(_INDENT), 0)):
        told = list(lines)
        if not told:
            continue
        line()
        line(title)
        for text in told:
            if isinstance(text, _Prose):
                output.prose(text, _INDENT)
            else:
                line(text)
    if not report.complete:
        line()
        output.lines(incomplete(report))
    remedies = _remedies(report)
    if remedies:
        line()
        line("What to do, the least destructive first")
        output.lines(steps((way.action, way.command.text, way.note) for way in remedies))
    if report.deletion_withheld:
        output.prose(f"No deletion: {safe_text(report.deletion_withheld)}.", "  ")
    if report.cause_page:
        line()
        line(f"What the cause means, and how to undo what was done: {safe_text(report.cause_page)}")


class _Prose(str):
    """Sentences, which fold."""

    __slots__ = ()


def _headline(report: ExplainReport) -> str:
    key, finding = shown(report.key), report.finding
    if finding is None:
        return f"{key} is gone: it was deleted at revision {report.deleted_at}."
    cause = f" ({finding.cause}, {finding.confidence})" if finding.cause else ""
    match finding.outcome:
        case "readable":
            return f"{key} can be read{cause}."
        case "not-an-object":
            return f"{key} is no object of the API."
        case "undetermined":
            return f"{key} could not be judged{cause}."
        case "inconsistent":
            return f"{key} is inconsistent{cause}."
    return f"{key} cannot be read{cause}."


def _sections(report: ExplainReport, width: int) -> Iterator[tuple[str, Iterator[str]]]:
    finding = report.finding
    if finding is not None:
        yield "What it is", _identity(finding)
    for where, title in _TITLES.items():
        parts = [part for part in report.layout if part.where is where]
        damage = report.damage_offset if _holds_damage(report, where) else None
        yield title, _layout(parts, damage, report.damage_field, width)
    yield "Encryption keys, in the order in which API servers try them", _attempts(report.attempts, width)
    if report.peek is not None:
        yield "A look without tag or padding", _peek(report.peek)
    if finding is not None:
        yield "What else was checked", _checks(finding)
    yield "What it is not", _ruled_out(report)
    yield "Its own bytes, put right", _repair(report)
    yield "Other values of the resource under its encryption key", _siblings(report.siblings)
    yield "What is kept of it", _kept(report)


def _holds_damage(report: ExplainReport, where: Where) -> bool:
    decrypted = any(part.where is Where.DECRYPTED for part in report.layout)
    return (where is Where.DECRYPTED) == decrypted


def _identity(finding: Finding) -> Iterator[str]:
    if finding.outcome != "readable" or finding.cause:
        yield _Prose(safe_text(finding.message))
    server = {
        "corrupt": "an API server calls it corrupt",
        "serves": "an API server serves it",
        "serves-empty": "an API server serves an empty object in its place",
        "breaks-list": "an API server serves it, and JSON answers that contain it fail",
    }.get(finding.apiserver)
    if server is not None:
        words = f": {safe_text(finding.upstream_message)}" if finding.upstream_message else ""
        yield _Prose(f"{server}{words}")
    kind = finding.group_version_kind
    said = f"{kind.group}/{kind.version} {kind.kind}".lstrip("/") if kind else "not known"
    rows = [
        ("resource", shown(f"{finding.resource}.{finding.group}".rstrip("."))),
        ("says it is", shown(said)),
        ("written under", shown_transformer(finding.transformer or "unknown")),
        (
            "revisions",
            f"mod {finding.mod_revision}, create {finding.create_revision}, version {finding.version or 'unknown'}"
            + (f", lease {finding.lease}" if finding.lease else ""),
        ),
        ("stored", f"{counted(finding.value_size, 'byte')}, {finding.value_sha256}"),
    ]
    if finding.kms_key_id_sha256:
        rows.append(("KMS key id", finding.kms_key_id_sha256))
    yield from aligned(rows)


def _layout(parts: list[LayoutPart], damage: int | None, field: str, width: int) -> Iterator[str]:
    rows = [
        (str(part.offset), str(part.length), part.name, shown(part.detail)) for part in parts[:_MOST_PARTS]
    ]
    if rows:
        yield from _indented(table_lines(("OFFSET", "SIZE", "PART", "WHAT"), rows, width))
    if len(parts) > _MOST_PARTS:
        yield f"  and {counted(len(parts) - _MOST_PARTS, 'further part')}: -o json has all"
    if damage is not None and parts:
        where = f", in {shown(field)}" if field else ""
        yield _Prose(f"Decoding breaks at byte {damage}{where}.")


def _attempts(attempts: list[KeyAttempt], width: int) -> Iterator[str]:
    if not attempts:
        return
    rule = attempts[0].rule
    yield f"  rule: {shown(rule)}" if rule else "  no rule of the configuration holds for the resource"
    rows = [
        (
            shown_transformer(attempt.transformer),
            attempt.key_fingerprint or "-",
            _RESULTS[attempt.result],
            shown(attempt.detail),
        )
        for attempt in attempts
    ]
    yield from _indented(table_lines(("KEY", "FINGERPRINT", "RESULT", "WHY"), rows, width))


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"{_INDENT}{line}" for line in lines)


def _peek(peek: PeekShown) -> Iterator[str]:
    tried = f"{counted(peek.candidates, 'attempt')}, keys, starts and single bits counted"
    if peek.state == "not-possible":
        yield _Prose("Not possible: too little to see, or no key that could be tried.")
        return
    if peek.state == "noise":
        yield _Prose(f"Noise under every key that was tried ({tried}).")
        return
    key = f"{shown_transformer(peek.transformer)} {peek.key_fingerprint or ''}".rstrip()
    named = (
        "which the value names" if peek.named else f"of the rule {shown(peek.rule)}, which it does not name"
    )
    seen = (
        f"the start of {peek.encoding} stands where it belongs, {counted(peek.wrong_bits, 'bit')} of it wrong"
        if peek.encoding
        else "the tag fits"
    )
    yield _Prose(
        f"Right key: {key}, {named}: {seen}. By chance less often than once in 2^{peek.odds_bits} ({tried})."
    )
    if peek.plaintext:
        yield _Prose(f"What is seen so: {peek.plaintext}.")
    if peek.undone is not None:
        yield _Prose(f"It opens once this is put right: {peek.undone} ({safe_text(peek.undone_detail)}).")


def _checks(finding: Finding) -> Iterator[str]:
    """Yield the evidence that stands nowhere else."""
    for one in finding.evidence:
        if one.check in PEEK_CHECKS or one.check.startswith(ATTEMPT_CHECK):
            continue
        detail = f" ({safe_text(one.detail)})" if one.detail else ""
        yield _Prose(f"{safe_text(one.check)}: {safe_text(one.result)}{detail}")


def _ruled_out(report: ExplainReport) -> Iterator[str]:
    for one in report.ruled_out:
        likely = "" if one.confidence == "certain" else f" ({one.confidence})"
        yield _Prose(f"{one.cause}{likely}: {safe_text(one.why)}")


def _repair(report: ExplainReport) -> Iterator[str]:
    repair = report.repair
    if repair is not None:
        yield _Prose(
            f"It reads with {safe_text(repair.words)} ({repair.confidence}: {_PROOFS[repair.proof]})."
        )
    elif report.no_repair:
        yield _Prose(f"No way: {safe_text(report.no_repair)}.")


def _siblings(siblings: list[Siblings]) -> Iterator[str]:
    for one in siblings:
        key = shown_transformer(one.transformer)
        for name in (one.key_fingerprint, one.kms_key_id_sha256):
            key += f" {name}" if name else ""
        counts = f"{one.opened} opened, {one.failed} failed"
        counts += f" ({one.damaged} proven damaged)" if one.failed else ""
        counts += f", {one.undetermined} undetermined" if one.undetermined else ""
        yield f"  {key}: {counted(one.keys, 'value')}, this one counted: {counts}"
        yield f"    mod revisions {one.first_mod_revision} to {one.last_mod_revision}"
        if one.newest_opened is not None:
            yield f"    newest that opens: {one.newest_opened.mod_revision}, {shown(one.newest_opened.key)}"
        if one.doubt in _DOUBTS:
            yield _Prose(f"  {_DOUBTS[one.doubt]}")


def _kept(report: ExplainReport) -> Iterator[str]:
    kept = report.kept
    if kept is None:
        return
    deleted = f", {counted(kept.deletions, 'deletion')} among them" if kept.deletions else ""
    yield f"  {counted(kept.count, 'revision')}{deleted}, from {kept.oldest_mod_revision} on"
    newest = kept.newest_readable
    broken = report.finding is None or report.finding.outcome in {"decrypt-failure", "decode-failure"}
    if newest is not None:
        until = f", up to revision {newest.at}" if newest.at else ""
        same = "" if newest.same_object else "; it may be of another object"
        yield f"  newest that reads: mod revision {newest.mod_revision}{until}{same}"
    elif broken:
        yield _Prose(
            f"none that reads was found{f': {safe_text(kept.not_sought)}' if kept.not_sought else ''}"
        )
    yield f"  each of them: {safe_text(kept.command)}"


def _remedies(report: ExplainReport) -> list[Remedy]:
    return report.finding.remedies if report.finding is not None else report.remedies_when_gone


EXPLAIN_FORMATS: Mapping[str, Callable[[ExplainReport, BinaryIO], None]] = {
    "table": write_table,
    "json": write_document,
    "yaml": write_yaml,
}
