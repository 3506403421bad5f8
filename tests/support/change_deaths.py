"""Changes to make, to lose and to kill, and what an operator finds afterwards."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from etcdfix.cli.root import run
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import Outcome as Verdict
from etcdfix.model.model import StoredValue
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.record import RecordType
from etcdfix.remediation.audit.verify import read_records
from etcdfix.remediation.backup.file import MARKER_SUFFIX, read_backup
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.testing.servers import EtcdServer
from tests.faults.dying_delete import Answer, Mortals, Order
from tests.support import objects
from tests.support.remediation_ground import Ground, delete, fix, reached, stands, undo
from tests.support.thorough import THOROUGH

Captured = pytest.CaptureFixture[str]

SENT, ANSWERED = "transaction: before send", "transaction: after answer"


class Scene(NamedTuple):
    """One change that is about to be made, and to die.

    Attributes:
        subject: What the order says it is about.
        make: Makes it, by the way that a ground names; the last argument has it tried out only.
        is_done: Whether what stands there is what the change was for.
        refused: By which rule it is refused where it was made already.
        reconciled: What ``log settle`` says of an open intent where it was made.
    """

    key: bytes
    change: str
    subject: str
    make: Callable[[Ground, Step, bool], ChangeOutcome]
    ground: Ground
    before: StoredValue | None
    is_done: Callable[[StoredValue | None], bool]
    done: str
    refused: Rule
    reconciled: str = "applied-or-gone"

    def again(self) -> ChangeOutcome:
        """Make the same change once more."""
        return self.make(self.ground, no_step, False)


Prepare = Callable[[EtcdServer, Ground, Cluster, str], Scene]
"""Puts a target of a name on a ground, and says what is to be done to it."""


def deletion(etcd: EtcdServer, ground: Ground, cluster: Cluster, name: str) -> Scene:
    key = ground.key(name)
    etcd.put(key, ground.broken(name))
    return Scene(
        key=key,
        change="delete",
        subject=key.decode(),
        make=lambda where, step, dry: delete(where, key, step, dry_run=dry),
        ground=ground,
        before=stands(cluster, key),
        is_done=lambda now: now is None,
        done="deleted",
        refused=Rule.GONE,
    )


def undoing(etcd: EtcdServer, ground: Ground, cluster: Cluster, name: str) -> Scene:
    key, value = ground.key(name), ground.broken(name)
    etcd.put(key, value)
    backup = Path(delete(ground, key).backups[0])
    return Scene(
        key=key,
        change="undo",
        subject=str(backup),
        make=lambda where, step, dry: undo(where, backup, step, dry_run=dry),
        ground=ground,
        before=None,
        is_done=lambda now: now is not None and (now.value, now.version, now.lease) == (value, 1, 0),
        done="undone",
        refused=Rule.PRESENT,
        reconciled="undone",
    )


def fixing(source: str) -> Prepare:
    """Return what prepares a fix from a source; ``revision`` stands for the revision that is made there."""

    def prepare(etcd: EtcdServer, ground: Ground, cluster: Cluster, name: str) -> Scene:
        key, good, place, writes = ground.key(name), ground.readable(name), source, 2
        if source == "revision":
            place, writes = f"revision:{etcd.put(key, good)}", 3
        etcd.put(key, ground.broken(name))
        if source == "candidate":  # the newest Secret shows that the API servers hold the write key
            etcd.put(ground.key("other-2"), ground.readable("other-2"))

        def is_done(now: StoredValue | None) -> bool:
            if now is None or now.version != writes:
                return False
            found = cluster.examiner.examine(now)
            assert found.verdict.outcome is Verdict.READABLE
            return now.value == good or cluster.examiner.plaintext(found) == objects.secret(name)

        return Scene(
            key=key,
            change="fix",
            subject=f"{key.decode()}@{place}",
            make=lambda where, step, dry: fix(where, key, place, step, dry_run=dry),
            ground=ground,
            before=stands(cluster, key),
            is_done=is_done,
            done="fixed",
            refused=Rule.READABLE,
            reconciled="fixed",
        )

    return prepare


class Aftermath:
    """What a death left behind, as an operator sees it: etcd, the backups, and ``etcdfix log``."""

    def __init__(self, ground: Ground, cluster: Cluster, key: bytes, capfd: Captured) -> None:
        self.ground = ground
        self._cluster = cluster
        self._key = key
        self._capfd = capfd
        self.kept_before = self.kept()

    def now(self) -> StoredValue | None:
        return stands(self._cluster, self._key)

    def verify(self) -> list[int]:
        """Run ``log verify`` against the head file; return the open intents. Never is it ``tampered``."""
        code, report = self._audit("verify")
        unfinished = bool(report["open_intents"] or report["torn_size"] or report["head_missing"])
        assert (code, report["findings"]) == (3 if unfinished else 0, [])
        assert report["state"] == ("unfinished" if unfinished else "whole")
        found: list[int] = report["open_intents"]
        return found

    def reconcile(self) -> dict[int, str]:
        """Run ``log settle``; return what became of each open intent."""
        code, report = self._audit(
            "settle", f"--endpoints={self.ground.endpoints[0]}", f"--etcd-prefix={self.ground.prefix}"
        )
        assert code == 0
        return {item["sequence"]: item["outcome"] for item in report["intents"]}

    def outcomes(self) -> dict[int, str]:
        """What each intent about the key came to by the word of the log; "" for open ones."""
        found: dict[int, str] = {}
        for event in read_records(self.ground.log):
            if event.type is RecordType.INTENT and event.subject.key == self._key:
                found[event.link.sequence] = ""
            elif event.intent in found and event.outcome:
                found[event.intent] = event.outcome
        return found

    def kept(self) -> list[StoredValue]:
        """What each backup directory keeps for sure: backups that no marker calls doubtful, all of them whole."""
        in_each = [
            read_backup(path).content.stored
            for directory in self.ground.places.backup_directories
            for path in directory.glob("*.json")
            if not os.path.lexists(f"{path}{MARKER_SUFFIX}")
        ]
        return sorted(in_each, key=lambda stored: stored.mod_revision)

    def _audit(self, name: str, *words: str) -> tuple[int, dict[str, Any]]:
        self._capfd.readouterr()
        code = run(["log", name, str(self.ground.log), "-o", "json", *words])
        out, err = self._capfd.readouterr()
        assert out, err
        report: dict[str, Any] = json.loads(out)
        return code, report


def check_death(scene: Scene, after: Aftermath, answer: Answer, *, reconcile: bool = True) -> None:
    """Hold what a death left behind against the only two possibilities, then repair and try again.

    Args:
        reconcile: Before it is tried again; else the second attempt does.
    """
    # A death while the transaction was on its way: etcd alone knows.
    on_its_way = SENT in answer.steps[-1:] and scene.is_done(after.now())
    changed = ANSWERED in answer.steps or on_its_way
    check_key(scene, after, changed=changed)
    kept = [scene.before] * len(after.ground.directories) if scene.before is not None else []
    before = after.kept_before
    if not after.ground.log.exists():
        assert not changed
        assert after.kept() == []
    else:
        check_log(scene, after, changed=changed)
        assert answer.signal or not after.verify()
        if changed:
            assert after.kept() == before + kept
        if reconcile or changed:
            check_reconciled(scene, after, changed=changed)
    if changed:
        with pytest.raises(RefusedByRule) as refused:
            scene.again()
        assert refused.value.rule == scene.refused
    else:
        assert scene.again().result == scene.done
    assert scene.is_done(after.now())
    assert after.verify() == []
    assert "" not in after.outcomes().values()
    # Once more at most: an attempt that died before its transaction has kept the same bytes.
    found = after.kept()
    assert set(found) == set(before + kept)
    assert len(found) in (len(before + kept), len(before + kept * 2))


def check_key(scene: Scene, after: Aftermath, *, changed: bool) -> None:
    """The change was made just when the transaction was sent; else nothing happened at all."""
    now = after.now()
    if changed:
        assert scene.is_done(now)
    else:
        assert now == scene.before


def check_log(scene: Scene, after: Aftermath, *, changed: bool) -> None:
    """The log is whole, tells of every open intent, and there is no change without an intent."""
    open_intents, outcomes = after.verify(), after.outcomes()
    assert [number for number, outcome in outcomes.items() if not outcome] == open_intents
    if changed:
        assert outcomes[max(outcomes)] in ("", scene.done)


def check_reconciled(scene: Scene, after: Aftermath, *, changed: bool) -> None:
    """What became of each open intent is found out; then the log is whole."""
    outcomes = after.outcomes()
    newest = max(outcomes, default=0)
    found = after.reconcile()
    assert list(found) == [number for number, outcome in outcomes.items() if not outcome]
    for number, outcome in found.items():
        assert outcome == (scene.reconciled if changed and number == newest else "not-applied")
    assert after.verify() == []


def die_everywhere(
    mortals: Mortals,
    base: Ground,
    folder: Path,
    capfd: Captured,
    prepare: Callable[[Ground, Cluster, str], Scene],
    *,
    clear: Callable[[bytes], object] = bytes,
    first: str = "",
    reconcile: bool = True,
    of: int = 3,
) -> list[str]:
    """Make a change until it lives, each time on a key and in folders of its own; return the steps that it has.

    Args:
        prepare: Puts a target of this name on the ground, and says what is to be done to it.
        clear: Takes a value away that stands at a key in the end.
        first: Begin with this step; "" begins with the first of all. Up to ``confirm`` nothing is written anywhere.
        of: Die at one in so many steps; at each of them where tests are thorough.
    """
    stride = 1 if THOROUGH else of
    died_at: list[str] = []
    with reached(base) as cluster:

        def begin(at: int | str) -> tuple[Scene, Aftermath]:
            name = f"target-{len(died_at):03}"
            ground = base.at(folder / name)
            scene = prepare(ground, cluster, name)
            after = Aftermath(ground, cluster, scene.key, capfd)
            mortals.start(Order(change=scene.change, ground=ground, subject=scene.subject, at=at))
            return scene, after

        begun = begin(first or 0)
        while True:
            scene, after = begun
            answer = mortals.end()
            assert (answer.error, answer.message) == ("", "")
            if answer.signal:
                assert answer.signal == signal.SIGKILL
                died_at.append(answer.steps[-1])
                # The next one lives and dies while we look at what this one left.
                begun = begin(len(answer.steps) - 1 + stride)
            check_death(scene, after, answer, reconcile=reconcile)
            if after.now() is not None:
                clear(scene.key)  # too many that cannot be read would be a pattern
            if not answer.signal:
                break
    assert answer.result == scene.done
    steps = answer.steps[answer.steps.index(first) if first else 0 :]
    assert died_at == steps[::stride]
    return steps


def die_at_random(
    mortals: Mortals,
    base: Ground,
    folder: Path,
    capfd: Captured,
    prepare: Callable[[Ground, Cluster, str], Scene],
    *,
    clear: Callable[[bytes], object],
    times: int,
) -> None:
    """Make a change until so many were killed, each at a moment of the time that one takes which lives."""
    moments = random.Random(times)
    whole, deaths = 60.0, 0
    with reached(base) as cluster:
        for number in range(10 * times):
            name = f"random-{number:03}"
            ground = base.at(folder / name)
            scene = prepare(ground, cluster, name)
            after = Aftermath(ground, cluster, scene.key, capfd)
            began = time.monotonic()
            pid = mortals.start(Order(change=scene.change, ground=ground, subject=scene.subject))
            if number:
                time.sleep(moments.uniform(0, whole))
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            answer = mortals.end()
            if not answer.signal:  # the first ones find nothing prepared, and take longer
                whole = min(whole, time.monotonic() - began)
            assert (answer.error, answer.message) == ("", "")
            if SENT in answer.steps[-1:]:
                time.sleep(0.1)  # what is on its way arrives
            deaths += bool(answer.signal)
            check_death(scene, after, answer)
            if after.now() is not None:
                clear(scene.key)
            if deaths == times:
                return
    raise AssertionError(f"only {deaths} of {times} were killed")
