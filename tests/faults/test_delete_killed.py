"""Changes killed at every step, against a real etcd: untouched, or done with a valid backup; never anything else."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.model import Outcome as Verdict
from etcdfix.model import StoredValue
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Subject
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.rules import Rule
from etcdfix.testing.servers import EtcdServer
from tests.faults.dying_delete import Mortals, Order
from tests.support import objects
from tests.support.audit_logs import entry, write_log
from tests.support.change_deaths import ANSWERED, SENT, Aftermath, Captured, Scene, die_everywhere
from tests.support.durable_steps import (
    APPEND_STEPS,
    CONFIRM_STEPS,
    CREATE_STEPS,
    RELEASE_STEPS,
    RESERVE_STEPS,
    TORN_STEPS,
    WRITE_STEPS,
)
from tests.support.lossy_etcd import TXN, LossyProxy, Withheld
from tests.support.objects import KUBE_SYSTEM_UID
from tests.support.remediation_ground import Ground, delete, fix, reached, stands, undo

pytestmark = pytest.mark.etcd

Lay = Callable[..., Ground]


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals() as found:
        yield found


@pytest.fixture
def lay(etcd: EtcdServer, prefix: bytes) -> Lay:
    """Lay a ground in etcd; it has no folder yet."""

    def make(encryption: str, **fields: Any) -> Ground:
        name = prefix.decode().rstrip("/")
        ground = Ground(endpoints=(etcd.endpoint,), prefix=name, encryption=encryption, folder="", **fields)
        etcd.put_all(ground.furniture().items())
        return ground

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where nothing waits for a disk: a process that is killed loses nothing that it wrote, fsync or not."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="etcdfix-test-", dir=memory) as made:
        yield Path(made)


def expected_steps(*, fresh: bool, torn: bool) -> set[str]:
    """The steps at which a deletion must have died for the test to have shown anything."""
    names = {
        SENT,
        ANSWERED,
        "confirm",
        *WRITE_STEPS,
        *CONFIRM_STEPS,
        *APPEND_STEPS,
        *RESERVE_STEPS,
        *RELEASE_STEPS,
    }
    if fresh:
        names |= {"check: read the key", "check: members", "check: everything else", "preview", *CREATE_STEPS}
    if torn:
        names |= {*TORN_STEPS, "reconcile: open intent of the same key"}
    return names


@pytest.mark.parametrize(
    ("encryption", "directories", "key_lost", "log"),
    [
        pytest.param("plain", ("one",), "", "fresh", id="plaintext"),
        pytest.param("lost", ("one", "two"), "aesgcm/v1/key1", "existing", id="key declared lost"),
        pytest.param("plain", ("one", "two"), "", "unfinished", id="an attempt before"),
    ],
)
def test_deletion_killed_at_every_step(
    etcd: EtcdServer,
    mortals: Mortals,
    lay: Lay,
    folder: Path,
    capfd: Captured,
    encryption: str,
    directories: tuple[str, ...],
    key_lost: str,
    log: str,
) -> None:
    base = lay(encryption, directories=directories, key_lost=key_lost)

    def prepare(ground: Ground, cluster: Cluster, name: str) -> Scene:
        scene = deletion(etcd, ground, cluster, name)
        if log != "fresh":
            write_log(ground.log, pairs=1)
        if log == "unfinished":
            assert scene.before is not None
            leave_unfinished(ground, scene.before)
        return scene

    steps = die_everywhere(
        mortals,
        base,
        folder,
        capfd,
        prepare,
        first="" if log == "fresh" else "confirm",
        reconcile=log != "unfinished",
        of=2 if log == "fresh" else 4,
    )
    assert set(steps) >= expected_steps(fresh=log == "fresh", torn=log == "unfinished")


def deletion(etcd: EtcdServer, ground: Ground, cluster: Cluster, name: str) -> Scene:
    """Put what nobody can read, to be deleted."""
    key = ground.key(name)
    etcd.put(key, ground.broken(name))
    return Scene(
        key=key,
        change="delete",
        subject=key.decode(),
        again=lambda: delete(ground, key),
        before=stands(cluster, key),
        is_done=lambda now: now is None,
        done="deleted",
        refused=Rule.GONE,
    )


def leave_unfinished(ground: Ground, stored: StoredValue) -> None:
    """Leave what an attempt on the same key leaves that died twice: an open intent, and a torn line after it."""
    with AuditLog.open(ground.log) as opened:
        opened.append(
            entry(
                subject=Subject(
                    key=stored.key,
                    group="",
                    api_version="v1",
                    resource="secrets",
                    namespace="shop",
                    name="target",
                    mod_revision=stored.mod_revision,
                ),
                cluster_uid=KUBE_SYSTEM_UID,
                value_sha256=digest(stored.value),
                header_revision=stored.mod_revision,
            )
        )
    with ground.log.open("ab") as file:
        file.write(b'{"kind":"Event","torn')


def test_undo_killed_at_every_step(
    etcd: EtcdServer, mortals: Mortals, lay: Lay, folder: Path, capfd: Captured
) -> None:
    base = lay("plain")

    def prepare(ground: Ground, cluster: Cluster, name: str) -> Scene:
        key, backup = deleted(etcd, ground, name)
        value = ground.broken(name)
        return Scene(
            key=key,
            change="undo",
            subject=str(backup),
            again=lambda: undo(ground, backup),
            before=None,
            is_done=lambda now: now is not None and (now.value, now.version, now.lease) == (value, 1, 0),
            done="undone",
            refused=Rule.PRESENT,
            reconciled="undone",
        )

    steps = die_everywhere(mortals, base, folder, capfd, prepare, clear=rewrite(etcd), first="confirm")
    assert set(steps) >= {SENT, ANSWERED, *APPEND_STEPS}


def rewrite(etcd: EtcdServer) -> Callable[[bytes], object]:
    """Return what puts something at a key that the API server would serve; faster than deleting it."""
    return lambda key: etcd.put(key, objects.secret())


def deleted(etcd: EtcdServer, ground: Ground, name: str) -> tuple[bytes, Path]:
    """Put what nobody can read, and delete it; return its key, and the backup."""
    key = ground.key(name)
    etcd.put(key, ground.broken(name))
    return key, Path(delete(ground, key).backups[0])


def test_fix_from_a_revision_killed_at_every_step(
    etcd: EtcdServer, mortals: Mortals, lay: Lay, folder: Path, capfd: Captured
) -> None:
    base = lay("plain", directories=("one", "two"))

    def prepare(ground: Ground, cluster: Cluster, name: str) -> Scene:
        key, value = ground.key(name), ground.readable(name)
        source = f"revision:{etcd.put(key, value)}"
        etcd.put(key, ground.broken(name))
        return Scene(
            key=key,
            change="fix",
            subject=f"{key.decode()}@{source}",
            again=lambda: fix(ground, key, source),
            before=stands(cluster, key),
            is_done=lambda now: now is not None and (now.value, now.version) == (value, 3),
            done="fixed",
            refused=Rule.READABLE,
            reconciled="fixed",
        )

    steps = die_everywhere(mortals, base, folder, capfd, prepare, clear=rewrite(etcd), first="confirm")
    assert set(steps) >= {SENT, ANSWERED, *WRITE_STEPS, *CONFIRM_STEPS, *APPEND_STEPS}


def test_fix_from_a_candidate_killed_at_every_step(
    etcd: EtcdServer, mortals: Mortals, lay: Lay, folder: Path, capfd: Captured
) -> None:
    base = lay("rotated")

    def prepare(ground: Ground, cluster: Cluster, name: str) -> Scene:
        key = ground.key(name)
        etcd.put(key, ground.broken(name))
        # The newest Secret shows that the API servers hold the write key.
        etcd.put(ground.key("other-2"), ground.readable("other-2"))

        def is_done(now: StoredValue | None) -> bool:
            if now is None or now.version != 2:
                return False
            found = cluster.examiner.examine(now)
            assert found.verdict.outcome is Verdict.READABLE
            return cluster.examiner.plaintext(found) == objects.secret(name)

        return Scene(
            key=key,
            change="fix",
            subject=f"{key.decode()}@candidate",
            again=lambda: fix(ground, key, "candidate"),
            before=stands(cluster, key),
            is_done=is_done,
            done="fixed",
            refused=Rule.READABLE,
            reconciled="fixed",
        )

    steps = die_everywhere(mortals, base, folder, capfd, prepare, first="confirm")
    assert set(steps) >= {SENT, ANSWERED, *WRITE_STEPS, *CONFIRM_STEPS, *APPEND_STEPS}


def test_fix_of_a_bit_killed_at_every_step(
    etcd: EtcdServer, mortals: Mortals, lay: Lay, folder: Path, capfd: Captured
) -> None:
    base = lay("flipped")

    def prepare(ground: Ground, cluster: Cluster, name: str) -> Scene:
        key = ground.key(name)
        etcd.put(key, ground.broken(name))

        def is_done(now: StoredValue | None) -> bool:
            return now is not None and now.version == 2 and now.value == ground.readable(name)

        return Scene(
            key=key,
            change="fix",
            subject=f"{key.decode()}@bit",
            again=lambda: fix(ground, key, "bit"),
            before=stands(cluster, key),
            is_done=is_done,
            done="fixed",
            refused=Rule.READABLE,
            reconciled="fixed",
        )

    steps = die_everywhere(mortals, base, folder, capfd, prepare, first="confirm")
    assert set(steps) >= {SENT, ANSWERED, *WRITE_STEPS, *CONFIRM_STEPS, *APPEND_STEPS}


def test_fix_killed_before_its_outcome_can_be_undone_once_it_is_settled(
    etcd: EtcdServer, mortals: Mortals, lay: Lay, folder: Path, capfd: Captured
) -> None:
    ground = lay("flipped").at(folder / "undone")
    key = ground.key("undone")
    etcd.put(key, ground.broken("undone"))
    with reached(ground) as cluster:
        after = Aftermath(ground, cluster, key, capfd)
        mortals.start(Order(change="fix", ground=ground, subject=f"{key.decode()}@bit", at=ANSWERED))
        assert mortals.end().signal == signal.SIGKILL
        assert list(after.reconcile().values()) == ["fixed"]
        (backup,) = (path for folder in ground.places.backup_directories for path in folder.glob("*.json"))
        assert undo(ground, backup).result == "undone"
        undone = after.now()
        assert undone is not None
        assert undone.value == ground.broken("undone")


# While the transaction is on its way.


@pytest.fixture
def target(etcd: EtcdServer, lay: Lay, folder: Path) -> Iterator[tuple[Ground, Cluster, Scene]]:
    """A deletion that goes through a proxy."""
    ground = lay("plain", directories=("one", "two")).at(folder / "places")
    with reached(ground) as cluster:
        yield ground, cluster, deletion(etcd, ground, cluster, "target")


def test_killed_after_etcd_did_it_and_before_the_answer(
    etcd: EtcdServer, mortals: Mortals, target: tuple[Ground, Cluster, Scene], capfd: Captured
) -> None:
    ground, cluster, scene = target
    after = Aftermath(ground, cluster, scene.key, capfd)
    with LossyProxy(etcd.endpoint) as proxy:
        proxy.held = {TXN}
        pid = mortals.start(
            Order(change="delete", ground=ground.through(proxy.endpoint), subject=scene.subject, at=None)
        )
        assert proxy.holding.wait(30)
        os.kill(pid, signal.SIGKILL)
        answer = mortals.end()
        assert proxy.calls.count(TXN) == 1
    assert (answer.signal, answer.steps[-1]) == (signal.SIGKILL, SENT)
    assert after.now() is None
    assert after.kept() == [scene.before] * 2
    (intent,) = after.verify()
    assert after.reconcile() == {intent: "applied-or-gone"}
    assert after.verify() == []
    assert undo(ground, backup_of(ground)).result == "undone"
    now = after.now()
    assert now is not None
    assert scene.before is not None
    assert now.value == scene.before.value


@pytest.mark.parametrize("intruded", [False, True])
def test_killed_before_the_transaction_arrived(
    etcd: EtcdServer,
    mortals: Mortals,
    target: tuple[Ground, Cluster, Scene],
    capfd: Captured,
    *,
    intruded: bool,
) -> None:
    """What is on its way when its sender dies may arrive later: then it deletes what is in a backup, or nothing."""
    ground, cluster, scene = target
    after = Aftermath(ground, cluster, scene.key, capfd)
    with LossyProxy(etcd.endpoint) as proxy:
        withheld = Withheld(proxy)
        pid = mortals.start(
            Order(change="delete", ground=ground.through(proxy.endpoint), subject=scene.subject, at=None)
        )
        assert withheld.holding.wait(30)
        os.kill(pid, signal.SIGKILL)
        assert mortals.end().signal == signal.SIGKILL
        assert after.now() == scene.before
        assert after.kept() == [scene.before] * 2
        assert len(after.verify()) == 1
        if intruded:
            etcd.put(scene.key, objects.secret("target"))
        withheld.release.set()
        assert withheld.passed.wait(30)
        assert proxy.calls.count(TXN) == 1
    now = after.now()
    if intruded:
        assert now is not None
        assert now.value == objects.secret("target")
    else:
        assert now is None
    assert list(after.reconcile().values()) == ["not-applied" if intruded else "applied-or-gone"]
    assert after.verify() == []


def backup_of(ground: Ground) -> Path:
    """Return the backup in the first directory."""
    (found,) = ground.places.backup_directories[0].glob("*.json")
    return found


# Signals that ask for the end.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "at",
    [
        "backup: before create file",
        "backup: after fsync directory",
        "backup marker: after unlink file",
        SENT,
        ANSWERED,
        "audit log: after write record",
        "audit reserve: before unlink file",
    ],
)
def test_signal_between_intent_and_outcome_waits_for_it(
    etcd: EtcdServer,
    mortals: Mortals,
    target: tuple[Ground, Cluster, Scene],
    capfd: Captured,
    number: signal.Signals,
    at: str,
) -> None:
    ground, cluster, scene = target
    answer = mortals.run(Order(change="delete", ground=ground, subject=scene.subject, at=at, sent=number))
    assert (answer.signal, answer.error, answer.result) == (0, "", "deleted")
    assert f"{number.name} arrived meanwhile and waited for the outcome" in answer.warnings
    after = Aftermath(ground, cluster, scene.key, capfd)
    assert after.now() is None
    assert after.verify() == []
    assert list(after.outcomes().values()) == ["deleted"]


def test_signal_while_etcd_does_not_answer_waits_for_it(
    etcd: EtcdServer, mortals: Mortals, target: tuple[Ground, Cluster, Scene], capfd: Captured
) -> None:
    ground, cluster, scene = target
    holding, release = threading.Event(), threading.Event()

    def hold(path: str, answer: bytes) -> bytes:
        if path == TXN:
            holding.set()
            assert release.wait(30)
        return answer

    with LossyProxy(etcd.endpoint) as proxy:
        proxy.rewrite = hold
        pid = mortals.start(
            Order(change="delete", ground=ground.through(proxy.endpoint), subject=scene.subject)
        )
        assert holding.wait(30)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        release.set()
        answer = mortals.end()
    assert (answer.signal, answer.error, answer.result) == (0, "", "deleted")
    assert Aftermath(ground, cluster, scene.key, capfd).verify() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("at", ["check: everything else", "confirm", "audit log: before create file"])
def test_signal_before_the_intent_ends_it_and_nothing_was_changed(
    etcd: EtcdServer,
    mortals: Mortals,
    target: tuple[Ground, Cluster, Scene],
    capfd: Captured,
    number: signal.Signals,
    at: str,
) -> None:
    ground, cluster, scene = target
    revision = etcd.revision()
    answer = mortals.run(Order(change="delete", ground=ground, subject=scene.subject, at=at, sent=number))
    assert (answer.signal, answer.error) == (
        (0, "KeyboardInterrupt") if number == signal.SIGINT else (signal.SIGTERM, "")
    )
    after = Aftermath(ground, cluster, scene.key, capfd)
    assert (etcd.revision(), after.now()) == (revision, scene.before)
    assert not ground.log.exists()
    assert after.kept() == []
