"""Any sequence of deletions, restores and foreign writes on one key: no value is lost that is not in a backup."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from etcdfix.examine.verdicts.deletability import Deletability, deletability_of, risks_of
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import StoredValue
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.verify import ChainState, verify
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.datastore import EtcdNow, KeyReading
from etcdfix.testing.servers import EtcdServer
from tests.support import objects
from tests.support.remediation_ground import Ground, Recorded, delete, reached, undo
from tests.support.thorough import THOROUGH

pytestmark = pytest.mark.etcd

SENT = "transaction: before send"

READABLE = objects.secret("target")
VALUES = {
    "readable": READABLE,
    "of another object": objects.secret("other"),
    "truncated": READABLE[:-3],
    "truncated more": READABLE[:20],
    "maybe of a newer release": READABLE[4:],
    "empty": b"",
}
_values = st.sampled_from(sorted(VALUES))
Intrusion = tuple[str, str | None] | None
"""At which step somebody writes which value; None for a value deletes."""

_intrusions: st.SearchStrategy[Intrusion] = st.none() | st.tuples(
    st.sampled_from(["check: examine", "check: everything else", "confirm", SENT]), st.none() | _values
)


class OneKey(RuleBasedStateMachine):
    """One key of a real etcd, operators, and others who write to it; ``etcd`` and ``ground`` are set by the test."""

    etcd: EtcdServer
    ground: Ground

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="etcdfix-test-")
        self._places = self.ground.at(Path(self._folder.name) / "places")
        self._key = self.ground.key("target")
        self._connection = reached(self.ground)
        self._cluster = self._connection.__enter__()
        self.etcd.put(self._key, VALUES["truncated"])

    def teardown(self) -> None:
        self._connection.__exit__(None, None, None)
        self._folder.cleanup()

    # Others.

    @rule(value=_values)
    def somebody_writes(self, value: str) -> None:
        self.etcd.put(self._key, VALUES[value])

    @precondition(lambda self: self._read().stored is not None)
    @rule()
    def somebody_deletes(self) -> None:
        self._etcd_delete()

    # Operators.

    @precondition(lambda self: self._read().stored is not None)
    @rule(intrusion=_intrusions)
    def delete(self, intrusion: Intrusion) -> None:
        before, deletable = self._read(), self._is_deletable()
        ended = self._attempt(lambda step: delete(self._places, self._key, step), intrusion)
        if isinstance(ended, RefusedByRule):
            self._check_refusal(ended, before)
            # What is not there, or might be read, is refused; and nothing else here, unless somebody came between.
            assert self._intruded is not None or not deletable
            return
        assert self._intruded is None
        assert ended.result == "deleted"
        assert deletable
        assert self._read().stored is None
        assert before.stored in self._kept()

    @precondition(lambda self: self._read().stored is not None)
    @rule()
    def preview_only(self) -> None:
        before, deletable = self._read(), self._is_deletable()
        ended = self._attempt(lambda step: delete(self._places, self._key, step, dry_run=True), None)
        assert isinstance(ended, RefusedByRule) != deletable
        assert self._read() == before

    @precondition(lambda self: self._places.backups())
    @rule(data=st.data(), intrusion=_intrusions)
    def undo(self, data: st.DataObject, *, intrusion: Intrusion) -> None:
        # In an order that is the same when a failure is run again: the names hold the time.
        backups = sorted(self._places.backups(), key=lambda backup: backup.intent.sequence)
        backup = data.draw(st.sampled_from(backups))
        before = self._read()
        ended = self._attempt(lambda step: undo(self._places, backup.path, step), intrusion)
        if isinstance(ended, RefusedByRule):
            self._check_refusal(ended, before)
            if self._intruded is None:
                assert before.stored is not None
                assert ended.rule == Rule.PRESENT
            return
        assert self._intruded is None
        assert ended.result == "undone"
        assert before.stored is None  # nothing is ever replaced
        now = self._read().stored
        assert now is not None
        assert now.value == backup.content.stored.value

    # What holds all the time.

    @invariant()
    def every_backup_and_the_log_are_whole(self) -> None:
        self._kept()
        if self._places.log.exists():
            assert verify(self._places.log).state is ChainState.WHOLE

    def _etcd_delete(self) -> None:
        self.etcd.delete(self._key)

    def _read(self) -> KeyReading:
        return EtcdNow(self._cluster.client).read_key(self._key)

    def _is_deletable(self) -> bool:
        stored = self._read().stored
        if stored is None:
            return False
        found = self._cluster.examiner.examine(stored)
        return deletability_of(found) is Deletability.DELETABLE and not risks_of(found)

    def _kept(self) -> list[StoredValue]:
        return [backup.content.stored for backup in self._places.backups()]

    def _attempt(
        self, change: Callable[[Recorded], ChangeOutcome], intrusion: Intrusion
    ) -> ChangeOutcome | RefusedByRule:
        self._intruded: KeyReading | None = None

        def intrude() -> None:
            assert intrusion is not None
            value, before = intrusion[1], self._read()
            if value is None:
                self._etcd_delete()
            else:
                self.etcd.put(self._key, VALUES[value])
            if self._read() != before:  # what is not there cannot be deleted
                self._intruded = self._read()

        try:
            return change(Recorded({intrusion[0]: intrude} if intrusion is not None else {}))
        except RefusedByRule as exc:
            return exc

    def _check_refusal(self, refusal: RefusedByRule, before: KeyReading) -> None:
        assert refusal.exit_code == 4
        assert self._read() == (self._intruded or before)


def test_no_value_is_lost_that_is_not_in_a_backup(etcd: EtcdServer, prefix: bytes) -> None:
    name = prefix.decode().rstrip("/")
    ground = Ground(endpoints=(etcd.endpoint,), prefix=name, encryption="plain", folder="")
    etcd.put_all(ground.furniture().items())
    machine = type("OneKeyHere", (OneKey,), {"etcd": etcd, "ground": ground})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=1000 if THOROUGH else 25,
            stateful_step_count=14,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
