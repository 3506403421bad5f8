"""A run over a plan: one log for all of it, and a look around for each object."""

from __future__ import annotations

import pytest

from etcdfix.commands.planning import run as module
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.errors import AuditLogLocked
from etcdfix.remediation.surroundings import look_around
from tests.support.fixtures import Patch
from tests.support.plan_runs import DECLARED, Planned

pytestmark = pytest.mark.etcd


def test_one_log_and_a_look_for_each(planned: Planned, monkeypatch: Patch) -> None:
    planned.to_delete("a", "b", "c")
    looks: list[int] = []
    locked: list[bool] = []
    change = module._Work._change

    def looked(cluster: object, *arguments: object, **named: object) -> object:
        looks.append(len(cluster.gone))  # type: ignore[attr-defined]
        return look_around(cluster, *arguments, **named)  # type: ignore[arg-type]

    def changed(self: module._Work, task: object, log: object) -> object:
        try:
            AuditLog.open(planned.log, wait_seconds=0).close()
        except AuditLogLocked:
            locked.append(True)
        return change(self, task, log)  # type: ignore[arg-type]

    monkeypatch.setattr("etcdfix.remediation.present.look_around", looked)
    monkeypatch.setattr(module._Work, "_change", changed)
    assert planned.work(*DECLARED, "--dry-run").code == 0
    assert planned.work(*DECLARED).code == 0
    assert looks == [0, 0, 0, 0, 1, 2]
    assert locked == [True] * 6
    assert not list(planned.log.parent.glob("*.reserve"))
    planned.agree()
