"""The library's run over a plan: one look, one log, and the functions of the single commands."""

from __future__ import annotations

import pytest

from etcdfix.commands.planning import run as module
from etcdfix.commands.planning.live_cluster_view import LiveClusterView
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.errors import AuditLogLocked
from tests.support.fixtures import Patch
from tests.support.plan_runs import DECLARED, Planned

pytestmark = pytest.mark.etcd


def test_one_look_and_one_log(planned: Planned, monkeypatch: Patch) -> None:
    planned.to_delete("a", "b", "c")
    looks: list[LiveClusterView] = []
    locked: list[bool] = []
    change = module._Work._change

    def changed(self: module._Work, cluster: object, task: object, log: object) -> object:
        looks.append(cluster.surroundings)  # type: ignore[attr-defined]
        try:
            AuditLog.open(planned.log, wait_seconds=0).close()
        except AuditLogLocked:
            locked.append(True)
        return change(self, cluster, task, log)  # type: ignore[arg-type]

    monkeypatch.setattr(module._Work, "_change", changed)
    assert planned.work(*DECLARED, "--dry-run").code == 0
    assert planned.work(*DECLARED).code == 0
    assert [look.looks for look in looks] == [1] * 6
    assert locked == [True] * 6
    assert not list(planned.log.parent.glob("*.reserve"))
    planned.agree()
