"""An etcd that is put back to an older state while a plan is worked through: what is told as done has to be true."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from etcdfix.commands.planning.run import run_plan
from etcdfix.testing.servers import EtcdServers
from tests.support.etcd_proxy import EtcdProxy
from tests.support.plan_runs import DECLARED, Planned

pytestmark = pytest.mark.etcd


@pytest.mark.parametrize("before", ["run: next object", "preview"])
def test_a_snapshot_of_the_same_etcd_that_is_restored_in_the_middle(
    etcd_servers: EtcdServers,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    before: str,
) -> None:
    """Same cluster id, same keys, and all that was deleted is there again: at the second object, or in its middle."""
    tmp_path.chmod(0o700)
    first = etcd_servers.start(token="put-back")
    planned = Planned(first, b"/registry", tmp_path, capfd)
    keys = planned.furnish("a", "b", "c")
    snapshot = tmp_path / "snapshot.db"
    first.etcdctl("snapshot", "save", snapshot)
    second = etcd_servers.start(snapshot=snapshot, token="put-back")
    proxy = EtcdProxy(first.endpoint)
    planned.endpoints = proxy.endpoint
    planned.make_plan(all="delete")
    seen = 0

    def step(name: str) -> None:
        nonlocal seen
        seen += name == before
        if name == before and seen == 2:
            proxy.turn(second.endpoint)

    monkeypatch.setattr("etcdfix.cli.plan.run_plan", partial(run_plan, step=step))
    try:
        ran = planned.work(*DECLARED, "--command-timeout", "5s")
        assert ran.code == 4, ran
        assert ("it was put back to an older state" in ran.err) or ("a restored copy" in ran.err)
        assert all(second.get(key) is not None for key in keys)
        assert planned.outcomes() == {"a": "deleted", "b": "", "c": ""}
    finally:
        proxy.stop()
        first.stop()
        second.stop()


@pytest.mark.parametrize("later", ["at once", "gone on", "another id", "gone on and written"])
def test_what_was_done_before_a_snapshot_was_restored_is_looked_at_again(
    etcd_servers: EtcdServers, tmp_path: Path, capfd: pytest.CaptureFixture[str], later: str
) -> None:
    """The plan and the log say that it was deleted, and it stands there: that is no outcome of this etcd."""
    tmp_path.chmod(0o700)
    first = etcd_servers.start(token="put-back")
    planned = Planned(first, b"/registry", tmp_path, capfd)
    keys = planned.furnish("a", "b", "c")
    planned.make_plan(a="delete", b="delete")
    snapshot = tmp_path / "snapshot.db"
    first.etcdctl("snapshot", "save", snapshot)
    assert planned.work(*DECLARED).code == 0
    assert planned.outcomes()["a"] == "deleted"
    second = etcd_servers.start(snapshot=snapshot, token="other" if later == "another id" else "put-back")
    planned.etcd, planned.endpoints = second, second.endpoint
    accepted = ("--accept", "other-cluster-id") if later == "another id" else ()
    if "gone on" in later:
        for turn in range(40):
            second.put(b"elsewhere", str(turn).encode())
    if later == "gone on and written":
        second.put(keys[0], b"k8s:enc:aescbc:v1:key2:" + bytes(64))
    ran = planned.work(*DECLARED, *accepted, "--dry-run")
    second_run = planned.work(*DECLARED, *accepted)
    if later == "gone on and written":
        assert (ran.code, second_run.code) == (4, 4)
        assert planned.there(keys) == [True, True, True]
        return
    assert (ran.code, second_run.code) == (0, 0), (ran, second_run)
    assert planned.there(keys) == [False, False, True]
    assert planned.outcomes()["a"] == "deleted"
    once_more = planned.work(*DECLARED, *accepted)
    assert once_more.code == 0, once_more
    planned.agree()
