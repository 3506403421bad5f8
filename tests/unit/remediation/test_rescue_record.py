"""What the audit log holds of a rescue."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.remediation.audit.search import saved_digests
from etcdfix.remediation.audit.verify import read_records, verify
from etcdfix.remediation.errors import UnsafePlace
from etcdfix.remediation.places import RecordPaths
from etcdfix.remediation.saved_objects import BATCH, RescueRecord
from tests.support.audit_logs import own_directory
from tests.unit.copies.test_rescued import saved_object


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "log") / "audit.jsonl"


def record(log: Path, *, uid: str = "c-1", resources: tuple[str, ...] = ("secrets",)) -> RescueRecord:
    return RescueRecord(
        RecordPaths(audit_log=log), Path("/saved"), cluster_uid=uid, resources=resources,
    )  # fmt: skip


def test_digests_are_recorded_in_batches_after_the_announcement(log: Path) -> None:
    one = record(log, resources=tuple(f"kind{number}" for number in range(30)))
    assert one.announce("contents of 250 secrets asked of API servers") == frozenset()
    objects = [saved_object(body=str(number).encode()) for number in range(2 * BATCH + 50)]
    one.saved(objects)
    one.saved([])
    events = list(read_records(log))
    assert [event.type for event in events] == ["reveal", "rescued", "rescued", "rescued"]
    assert [len(event.saved) for event in events] == [0, BATCH, BATCH, 50]
    assert {event.verb for event in events} == {"rescue"}
    assert events[0].detail == "contents of 250 secrets asked of API servers, to be saved in /saved"
    assert events[0].subject.resource.endswith("kind19,…")
    assert verify(log).findings == []
    digests = {saved.sha256 for saved in objects}
    assert record(log).announce("again") == digests


def test_digests_are_those_of_one_cluster(log: Path) -> None:
    first, second = saved_object(body=b"1"), saved_object(body=b"2")
    record(log).saved([first])
    record(log, uid="").saved([second])
    assert saved_digests(log, "c-1") == {first.sha256, second.sha256}
    assert saved_digests(log, "c-2") == {second.sha256}
    assert saved_digests(log, "") == {first.sha256, second.sha256}
    assert saved_digests(log.with_name("none"), "") == frozenset()


def test_a_log_that_is_not_safe(log: Path) -> None:
    log.parent.chmod(0o777)
    with pytest.raises(UnsafePlace):
        record(log).announce("contents")
    assert not log.exists()
