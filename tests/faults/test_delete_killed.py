"""Changes killed at every step, against a real etcd: untouched, or done with a valid backup; never anything else."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from etcdfix.model.model import digest_of
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Subject
from etcdfix.remediation.cluster import Cluster
from etcdfix.testing.servers import EtcdServer
from tests.faults.dying_delete import Answer, Mortals, Order
from tests.support import objects
from tests.support.audit_logs import entry, write_log
from tests.support.change_deaths import (
    ANSWERED,
    SENT,
    Aftermath,
    Captured,
    Prepare,
    Scene,
    deletion,
    die_at_random,
    die_everywhere,
    fixing,
    undoing,
)
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
from tests.support.remediation_ground import Ground, lay_ground, reached, undo
from tests.support.thorough import THOROUGH

pytestmark = pytest.mark.etcd

Lay = Callable[..., Ground]


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals() as found:
        yield found


@pytest.fixture
def lay(etcd: EtcdServer, prefix: bytes) -> Lay:
    return partial(lay_ground, etcd, prefix)


def deletion_with_a_log(etcd: EtcdServer, ground: Ground, cluster: Cluster, name: str) -> Scene:
    write_log(ground.log, pairs=1)
    return deletion(etcd, ground, cluster, name)


def second_deletion(etcd: EtcdServer, ground: Ground, cluster: Cluster, name: str) -> Scene:
    """An attempt on the same key died twice: it left an open intent, and a torn line after it."""
    scene = deletion_with_a_log(etcd, ground, cluster, name)
    stored = scene.before
    assert stored is not None
    where = Subject(
        key=stored.key, group="", api_version="v1", resource="secrets", namespace="shop", name="target",
        mod_revision=stored.mod_revision,
    )  # fmt: skip
    with AuditLog.open(ground.log) as opened:
        opened.append(
            entry(
                subject=where,
                cluster_uid=KUBE_SYSTEM_UID,
                value_sha256=digest_of(stored.value),
                header_revision=stored.mod_revision,
            )
        )
    with ground.log.open("ab") as file:
        file.write(b'{"kind":"Event","torn')
    return scene


class Case(NamedTuple):
    """A change, the ground for it, and steps at which it must have died for the test to have shown anything.

    Attributes:
        first: Begin with this step; up to ``confirm`` nothing is written anywhere.
        of: Die at one in so many steps.
    """

    prepare: Prepare
    ground: dict[str, Any]
    steps: tuple[str, ...] = (*WRITE_STEPS, *CONFIRM_STEPS)
    first: str = "confirm"
    of: int = 6


_TWO: Final = ("one", "two")
_ROOM: Final = (*WRITE_STEPS, *CONFIRM_STEPS, *RESERVE_STEPS, *RELEASE_STEPS, "confirm")
_CHECKS: Final = ("check: read the key", "check: members", "check: everything else", "preview")
CASES: Final = {
    "delete": Case(deletion, {"encryption": "plain"}, (*_ROOM, *_CHECKS, *CREATE_STEPS), "", 4),
    "delete under a key declared lost": Case(
        deletion_with_a_log,
        {"encryption": "lost", "directories": _TWO, "key_lost": "aesgcm/v1/key1"},
        _ROOM,
        of=6,
    ),
    "delete after an attempt": Case(
        second_deletion,
        {"encryption": "plain", "directories": _TWO},
        (*_ROOM, *TORN_STEPS, "reconcile: open intent of the same key"),
        of=6,
    ),
    "undo": Case(undoing, {"encryption": "plain"}, ()),
    "fix from a revision": Case(fixing("revision"), {"encryption": "plain", "directories": _TWO}),
    "fix from a candidate": Case(fixing("candidate"), {"encryption": "rotated"}),
    "fix of a bit": Case(fixing("bit"), {"encryption": "flipped"}),
}


def rewrite(etcd: EtcdServer) -> Callable[[bytes], object]:
    """Return what puts something at a key that the API server would serve: too many unread would be a pattern."""
    return lambda key: etcd.put(key, objects.secret())


@pytest.mark.parametrize("name", CASES)
def test_killed_at_every_step(
    etcd: EtcdServer, mortals: Mortals, lay: Lay, tmp_path: Path, capfd: Captured, name: str
) -> None:
    case = CASES[name]
    steps = die_everywhere(
        mortals,
        lay(**case.ground),
        tmp_path,
        capfd,
        partial(case.prepare, etcd),
        clear=rewrite(etcd),
        first=case.first,
        reconcile=case.prepare is not second_deletion,
        of=case.of,
    )
    assert set(steps) >= {SENT, ANSWERED, *APPEND_STEPS, *case.steps}


@pytest.mark.parametrize("name", ["delete", "fix of a bit"])
def test_killed_at_random(
    etcd: EtcdServer, mortals: Mortals, lay: Lay, tmp_path: Path, capfd: Captured, name: str
) -> None:
    """Between any two instructions, not only at steps: while a request is on its way, or within a write."""
    case = CASES[name]
    die_at_random(
        mortals,
        lay(**case.ground),
        tmp_path,
        capfd,
        partial(case.prepare, etcd),
        clear=rewrite(etcd),
        times=50 if THOROUGH else 6,
    )


def test_fix_killed_before_its_outcome_can_be_undone_once_it_is_settled(
    etcd: EtcdServer, mortals: Mortals, lay: Lay, tmp_path: Path, capfd: Captured
) -> None:
    ground = lay("flipped").at(tmp_path / "undone")
    key = ground.key("undone")
    etcd.put(key, ground.broken("undone"))
    with reached(ground) as cluster:
        after = Aftermath(ground, cluster, key, capfd)
        answer = mortals.run(Order(change="fix", ground=ground, subject=f"{key.decode()}@bit", at=ANSWERED))
        assert answer.signal == signal.SIGKILL
        assert list(after.reconcile().values()) == ["fixed"]
        assert undo(ground, backup_of(ground)).result == "undone"
        undone = after.now()
    assert undone is not None
    assert undone.value == ground.broken("undone")


def backup_of(ground: Ground) -> Path:
    """Return the backup in the first directory."""
    (found,) = ground.places.backup_directories[0].glob("*.json")
    return found


# While the transaction is on its way.


class Target(Aftermath):
    """A deletion in a process of its own, and what it left."""

    def __init__(
        self, ground: Ground, cluster: Cluster, scene: Scene, mortals: Mortals, capfd: Captured
    ) -> None:
        super().__init__(ground, cluster, scene.key, capfd)
        self.scene, self.mortals = scene, mortals

    def order(self, *endpoints: str, **given: Any) -> Order:
        ground = self.ground.through(*endpoints) if endpoints else self.ground
        return Order(change="delete", ground=ground, subject=self.scene.subject, **given)

    def killed_once(self, proxy: LossyProxy, waits: threading.Event) -> Answer:
        """Have it begun through a proxy, and kill it once something there has happened."""
        pid = self.mortals.start(self.order(proxy.endpoint))
        assert waits.wait(30)
        os.kill(pid, signal.SIGKILL)
        answer = self.mortals.end()
        assert (answer.signal, answer.steps[-1]) == (signal.SIGKILL, SENT)
        return answer


@pytest.fixture
def target(etcd: EtcdServer, lay: Lay, tmp_path: Path, mortals: Mortals, capfd: Captured) -> Iterator[Target]:
    ground = lay("plain", directories=("one", "two")).at(tmp_path / "places")
    with reached(ground) as cluster:
        yield Target(ground, cluster, deletion(etcd, ground, cluster, "target"), mortals, capfd)


def test_killed_after_etcd_did_it_and_before_the_answer(etcd: EtcdServer, target: Target) -> None:
    before = target.scene.before
    assert before is not None
    with LossyProxy(etcd.endpoint) as proxy:
        proxy.held = {TXN}
        target.killed_once(proxy, proxy.holding)
        assert proxy.calls.count(TXN) == 1
    assert (target.now(), target.kept()) == (None, [before] * 2)
    (intent,) = target.verify()
    assert target.reconcile() == {intent: "applied-or-gone"}
    assert target.verify() == []
    assert undo(target.ground, backup_of(target.ground)).result == "undone"
    now = target.now()
    assert now is not None
    assert now.value == before.value


@pytest.mark.parametrize("intruded", [False, True])
def test_killed_before_the_transaction_arrived(etcd: EtcdServer, target: Target, *, intruded: bool) -> None:
    """What is on its way when its sender dies may arrive later: then it deletes what is in a backup, or nothing."""
    scene = target.scene
    with LossyProxy(etcd.endpoint) as proxy:
        withheld = Withheld(proxy)
        target.killed_once(proxy, withheld.holding)
        assert (target.now(), target.kept()) == (scene.before, [scene.before] * 2)
        assert len(target.verify()) == 1
        if intruded:
            etcd.put(scene.key, objects.secret("target"))
        withheld.release.set()
        assert withheld.passed.wait(30)
        assert proxy.calls.count(TXN) == 1
    now = target.now()
    assert (now and now.value) == (objects.secret("target") if intruded else None)
    assert list(target.reconcile().values()) == ["not-applied" if intruded else "applied-or-gone"]
    assert target.verify() == []


# Signals that ask for the end.


@pytest.mark.parametrize(
    ("number", "at"),
    [
        (signal.SIGINT, "backup: before create file"),
        (signal.SIGTERM, "backup marker: after unlink file"),
        (signal.SIGTERM, SENT),
        (signal.SIGINT, ANSWERED),
        (signal.SIGTERM, "audit log: after write record"),
    ],
)
def test_signal_between_intent_and_outcome_waits_for_it(
    target: Target, number: signal.Signals, at: str
) -> None:
    answer = target.mortals.run(target.order(at=at, sent=number))
    assert (answer.signal, answer.error, answer.result) == (0, "", "deleted")
    assert f"{number.name} arrived meanwhile and waited for the outcome" in answer.warnings
    assert (target.now(), target.verify()) == (None, [])
    assert list(target.outcomes().values()) == ["deleted"]


def test_signal_while_etcd_does_not_answer_waits_for_it(etcd: EtcdServer, target: Target) -> None:
    holding, release = threading.Event(), threading.Event()

    def hold(path: str, answer: bytes) -> bytes:
        if path == TXN:
            holding.set()
            assert release.wait(30)
        return answer

    with LossyProxy(etcd.endpoint) as proxy:
        proxy.rewrite = hold
        pid = target.mortals.start(target.order(proxy.endpoint))
        assert holding.wait(30)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        release.set()
        answer = target.mortals.end()
    assert (answer.signal, answer.error, answer.result) == (0, "", "deleted")
    assert target.verify() == []


@pytest.mark.parametrize(
    ("number", "at"),
    [
        (signal.SIGINT, "check: everything else"),
        (signal.SIGTERM, "confirm"),
        (signal.SIGINT, "audit log: before create file"),
    ],
)
def test_signal_before_the_intent_ends_it_and_nothing_was_changed(
    etcd: EtcdServer, target: Target, number: signal.Signals, at: str
) -> None:
    revision = etcd.revision()
    answer = target.mortals.run(target.order(at=at, sent=number))
    interrupted = (0, "KeyboardInterrupt") if number == signal.SIGINT else (signal.SIGTERM, "")
    assert (answer.signal, answer.error) == interrupted
    assert (etcd.revision(), target.now()) == (revision, target.scene.before)
    assert (target.ground.log.exists(), target.kept()) == (False, [])
