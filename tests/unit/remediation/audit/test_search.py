"""What a log says of an intent and of a key: which values are ours, and which are not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from etcdfix.model.model import StoredValue, digest_of
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Record, RecordType, Result, Verb
from etcdfix.remediation.audit.search import outcomes_of, own_writes, wrote
from etcdfix.remediation.audit.verify import LOG_IS_GONE, NO_HEAD_FILE, is_there, trouble_with
from etcdfix.remediation.errors import AuditLogUnreadable
from tests.support.audit_logs import OPERATOR, entry, subject

KEY = b"/registry/secrets/shop/db"
VALUE = b"k8s:enc:aescbc:v1:new:written"
WRITTEN = StoredValue(KEY, VALUE, 90, 7, 3, 0)


def record(path: Path, *results: tuple[Result, int], verb: Verb = Verb.FIX, uid: str = "d4c1") -> Record:
    """Record one intent, and what became of it."""
    with AuditLog.open(path) as log:
        link = log.append(
            entry(verb=verb, subject=subject(KEY), detail=f"from a to b, {digest_of(VALUE)}", cluster_uid=uid)
        )
        intent = log.intent(link.sequence)
        for result, revision in results:
            log.append(intent.closed_by(result, operator=OPERATOR, header_revision=revision))
    return intent


def test_a_log_in_trouble_is_what_a_writer_would_refuse(path: Path) -> None:
    head = path.with_name("audit.jsonl.head")
    assert trouble_with(path) == ""
    AuditLog.open(path).close()
    head.unlink()
    assert trouble_with(path) == ""  # the next writer makes the head file
    record(path)
    assert trouble_with(path) == ""
    told = head.read_bytes()
    head.unlink()
    assert trouble_with(path) == NO_HEAD_FILE
    head.write_bytes(told)
    written = path.read_bytes()
    path.write_bytes(written[:-1])
    assert "cut off the end" in trouble_with(path)
    path.unlink()
    assert trouble_with(path) == LOG_IS_GONE
    with pytest.raises(AuditLogUnreadable, match="File name too long"):
        is_there(path.with_name("a" * 300))


def test_outcomes_of_one_intent(path: Path) -> None:
    record(path, (Result.REFUSED, 5))
    intent = record(path, (Result.UNKNOWN, 0), (Result.ANOMALY, 8))
    assert [notes.outcome for notes in outcomes_of(path, intent)] == ["unknown", "anomaly"]
    other = msgspec.structs.replace(intent, audit_id="another")
    with AuditLog.open(path) as log:
        same = log.intent(log.append(entry(audit_id=intent.audit_id)).sequence)
        log.append(same.closed_by(Result.DELETED, operator=OPERATOR))
        again = log.intent(log.append(entry()).sequence)
        told = again.closed_by(Result.UNDONE, operator=OPERATOR)
        log.append(msgspec.structs.replace(told, type=RecordType.DRY_RUN))
    assert [notes.outcome for notes in outcomes_of(path, intent)] == ["unknown", "anomaly"]
    assert list(outcomes_of(path, again)) == []
    assert list(outcomes_of(path, other)) == []


@pytest.mark.parametrize(("verb", "result"), [(Verb.UNDO, Result.UNDONE), (Verb.FIX, Result.FIXED)])
def test_exactly_what_was_written(path: Path, verb: Verb, result: Result) -> None:
    for doubt in (Result.REFUSED, Result.APPLIED_OR_GONE, Result.ANOMALY, Result.NOT_APPLIED):
        assert not wrote(path, record(path, (doubt, 90), verb=verb), WRITTEN)
    intent = record(path, (result, 90), verb=verb)
    assert wrote(path, intent, WRITTEN)
    for change in ({"mod_revision": 91}, {"value": VALUE + b"!"}, {"key": KEY + b"!"}):
        assert not wrote(path, intent, msgspec.structs.replace(WRITTEN, **change))


def test_a_deletion_writes_nothing(path: Path) -> None:
    intent = record(path, (Result.UNDONE, 90), verb=Verb.DELETE)
    assert not wrote(path, intent, WRITTEN)
    assert own_writes(path, "d4c1") == {}


@pytest.mark.parametrize(
    ("results", "found"),
    [
        ([(Result.FIXED, 90)], {KEY: 90}),
        ([(Result.APPLIED_OR_GONE, 90)], {KEY: 90}),
        ([(Result.ANOMALY, 90)], {KEY: 90}),
        ([(Result.ANOMALY, 0)], {KEY: 0}),
        ([(Result.UNKNOWN, 0), (Result.UNDONE, 90)], {KEY: 90}),
        ([(Result.REFUSED, 90)], {}),
        ([(Result.NOT_APPLIED, 90)], {}),
        # Nobody knows: it may be ours whenever it was written.
        ([(Result.UNKNOWN, 0)], {KEY: 1 << 63}),
        ([], {KEY: 1 << 63}),
    ],
)
def test_keys_that_may_be_ours(
    path: Path, results: list[tuple[Result, int]], found: dict[bytes, int]
) -> None:
    with AuditLog.open(path) as log:
        log.append(entry(RecordType.DRY_RUN, verb=Verb.FIX, subject=subject(KEY)))
    assert own_writes(path, "d4c1") == {}
    record(path, *results)
    assert own_writes(path, "d4c1") == found
    if found == {KEY: 90}:  # the latest write counts
        record(path, (Result.FIXED, 80))
        assert own_writes(path, "d4c1") == found


@pytest.mark.parametrize(
    ("told", "asked", "counts"),
    [("d4c1", "d4c1", True), ("d4c1", "", True), ("", "d4c1", True), ("beef", "d4c1", False)],
)
def test_the_same_key_of_another_cluster(path: Path, told: str, asked: str, counts: bool) -> None:
    record(path, (Result.UNDONE, 90), uid=told)
    assert own_writes(path, asked) == ({KEY: 90} if counts else {})
