"""What a log says of backups."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from etcdfix.errors import AuditLogUnreadable
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import RecordType, Result, Verb
from etcdfix.remediation.audit.verify import read_records
from etcdfix.remediation.backup.account import Account
from etcdfix.remediation.backup.file import read_backup
from tests.support.audit_logs import OPERATOR, entry, own_directory
from tests.support.backups import Ground


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(own_directory(tmp_path / "state"))


def account(ground: Ground) -> Account:
    return Account.of(ground.log, read_records(ground.log))


def test_results_and_files(ground: Ground) -> None:
    for result in (Result.DELETED, None, Result.UNKNOWN, Result.REFUSED):
        ground.change(result)
    assert [listed.result for listed in account(ground).in_order()] == [
        Result.DELETED,
        None,
        None,
        Result.REFUSED,
    ]
    assert all(len(listed.paths) == 2 for listed in account(ground).in_order())


def test_what_came_back_by_an_anomaly_is_known(ground: Ground) -> None:
    ground.change(Result.ANOMALY)
    first, second = account(ground).in_order()
    assert (first.second, second.second) == (False, True)
    assert first.result is second.result is Result.ANOMALY
    assert set(first.paths + second.paths) == {
        str(file) for path in ground.directories for file in path.iterdir()
    }
    for path in ground.directories[0].iterdir():
        assert account(ground).listing(read_backup(path)) is not None


@pytest.mark.parametrize("what", ["key_base64", "mod_revision", "value_sha256", "cluster", "link"])
def test_a_file_that_says_otherwise_is_not_the_one(ground: Ground, what: str) -> None:
    name = ground.change()
    backup = read_backup(ground.directories[0] / name)
    assert account(ground).listing(backup) is not None
    if what == "link":
        backup = msgspec.structs.replace(backup, intent=msgspec.structs.replace(backup.intent, sequence=9))
    else:
        other = {
            "key_base64": b"/x", "mod_revision": 7, "value_sha256": "sha256:00",
            "cluster": msgspec.structs.replace(backup.content.cluster, kube_system_uid=None),
        }[what]  # fmt: skip
        backup = msgspec.structs.replace(
            backup, content=msgspec.structs.replace(backup.content, **{what: other})
        )
    assert account(ground).listing(backup) is None


def test_a_file_that_no_record_names(ground: Ground) -> None:
    name = ground.change()
    backup = read_backup(ground.directories[0] / name)
    assert account(ground).listing(msgspec.structs.replace(backup, content_sha256="sha256:00")) is None


def test_pruned_files_and_open_prunes(ground: Ground) -> None:
    ground.change()
    ground.prune()
    (listed,) = account(ground).in_order()
    assert set(listed.pruned) == set(listed.paths)
    assert {link.sequence for link in listed.pruned.values()} == {4}
    about = listed.intent
    with AuditLog.open(ground.log) as log:
        link = log.append(
            entry(
                verb=Verb.PRUNE,
                backups=listed.paths,
                backup_sha256=listed.content_sha256,
                subject=about.subject,
            )
        )
        assert list(account_of(log).open_prunes) == [link.sequence]
        intent = log.intent(link.sequence)
        log.append(intent.closed_by(Result.UNKNOWN, operator=OPERATOR, reconciled=True))
        assert list(account_of(log).open_prunes) == [link.sequence]
        log.append(intent.closed_by(Result.NOT_APPLIED, operator=OPERATOR, reconciled=True))
        assert list(account_of(log).open_prunes) == []
        other = entry(
            verb=Verb.PRUNE, backups=listed.paths, backup_sha256="sha256:other", subject=about.subject
        )
        stray = log.intent(log.append(other).sequence)
        log.append(stray.closed_by(Result.PRUNED, operator=OPERATOR))
        assert account_of(log).open_prunes == {}


def account_of(log: AuditLog) -> Account:
    return Account.of(log.path, log.records())


def test_what_was_written_since_counts_in_its_own_cluster(ground: Ground) -> None:
    ground.change()
    with AuditLog.open(ground.log) as log:
        for uid in ("", "other"):
            restore = entry(verb=Verb.UNDO, cluster_uid=uid)
            intent = log.intent(log.append(restore).sequence)
            log.append(intent.closed_by(Result.UNDONE, operator=OPERATOR))
        (listed,) = account_of(log).in_order()
        assert not account_of(log).written_since(listed)
        # Another value at the same key may be another object.
        for value, counts in (("sha256:00", False), (listed.intent.value_sha256, True)):
            restore = entry(verb=Verb.UNDO, cluster_uid="d4c1", value_sha256=value)
            intent = log.intent(log.append(restore).sequence)
            log.append(intent.closed_by(Result.UNDONE, operator=OPERATOR))
            assert account_of(log).written_since(listed) is counts
    assert ClusterIdentity.by_uid("d4c1").is_same(listed.intent.cluster) is True


def test_records_of_other_types_say_nothing(ground: Ground) -> None:
    ground.change()
    with AuditLog.open(ground.log) as log:
        log.append(entry(RecordType.DRY_RUN))
        log.append(entry(RecordType.REVEAL, verb=Verb.REVEAL))
        assert [listed.result for listed in account_of(log).in_order()] == [Result.DELETED]


def test_an_anomaly_of_which_nothing_could_be_kept(ground: Ground) -> None:
    ground.change(None)
    with AuditLog.open(ground.log) as log:
        log.append(log.intent(1).closed_by(Result.ANOMALY, operator=OPERATOR))
        (listed,) = account_of(log).in_order()
    assert (listed.second, listed.result) == (False, Result.ANOMALY)


def test_a_record_that_makes_no_sense(ground: Ground) -> None:
    ground.change()
    ground.log.write_bytes(ground.log.read_bytes().replace(b'"outcome":"deleted"', b'"outcome":"removed"').replace(
        b'io/outcome":"deleted"', b'io/outcome":"vanished"'))  # fmt: skip
    with pytest.raises(AuditLogUnreadable, match="record 2"):
        account(ground)
