"""``etcdfix doctor`` on a real etcd: what it reads there, and that it only reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.testing.servers import READER, ROOT_USER, EtcdServer
from etcdfix.wire.etcd import READ_METHODS
from tests.support.audit_logs import own_directory
from tests.support.doctoring import lease
from tests.support.etcd_proxy import EtcdProxy
from tests.support.fixtures import Captured, Patch, StartEtcd
from tests.support.objects import namespace_object, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

Found = dict[str, list[dict[str, Any]]]


@pytest.fixture
def doctor(tmp_path: Path, capfd: Captured) -> Callable[..., tuple[int, Found]]:
    own = own_directory(tmp_path / "own")
    places = ["--backup-dir", str(own), "--audit-log", str(own / "log")]

    def look(*words: str) -> tuple[int, Found]:
        capfd.readouterr()
        code = run(["doctor", "--no-encryption", *places, *words, "-o", "json"])
        found: Found = {}
        for check in json.loads(capfd.readouterr().out)["checks"]:
            found.setdefault(check["name"], []).append(check)
        assert list(own.iterdir()) == []
        return code, found

    return look


def states(checks: list[dict[str, Any]]) -> list[str]:
    return [check["state"] for check in checks]


def fill(etcd: EtcdServer) -> None:
    etcd.put(b"/registry/namespaces/kube-system", namespace_object("kube-system"))
    etcd.put(b"/registry/secrets/shop/a", secret())
    etcd.put(b"/registry/leases/kube-node-lease/n", lease(datetime.now(UTC) - timedelta(seconds=2)))
    etcd.put(b"compact_rev_key", b"2")


@pytest.fixture(scope="module")
def etcd(start_etcd: StartEtcd) -> EtcdServer:
    server = start_etcd()
    fill(server)
    return server


def test_a_healthy_etcd_and_nothing_is_written(
    etcd: EtcdServer, doctor: Callable[..., tuple[int, Found]]
) -> None:
    before = etcd.revision()
    with EtcdProxy(etcd.endpoint) as proxy:
        code, found = doctor("--endpoints", proxy.endpoint)
        told = [check for checks in found.values() for check in checks]
        # The etcd of these tests may be one with known faults.
        assert {check["state"] for check in told if "can come to hold" not in check["what"]} == {"ok"}
        assert code == 0
        assert set(proxy.calls) <= set(READ_METHODS)
    assert etcd.revision() == before


@pytest.fixture(scope="module")
def limited(start_etcd: StartEtcd) -> EtcdServer:
    server = start_etcd()
    fill(server)
    server.require_login(b"/registry/")
    return server


def test_what_users_may_do(
    limited: EtcdServer, doctor: Callable[..., tuple[int, Found]], monkeypatch: Patch
) -> None:
    for (name, password), expected in ((ROOT_USER, ["ok"]), (READER, ["warn"])):
        monkeypatch.setenv("ETCDCTL_PASSWORD", password)
        code, found = doctor("--endpoints", limited.endpoint, "--user", name)
        assert states(found["etcd-user"]) == expected
        assert code == (0 if name == ROOT_USER[0] else 3), found
    assert "etcd may deny changes" in found["etcd-user"][0]["what"]
    assert states(found["revision"]) == ["unknown"]
    assert "never compacted: every revision is kept" in found["revision"][0]["what"]
    monkeypatch.setenv("ETCDCTL_PASSWORD", "wrong")
    code, found = doctor("--endpoints", limited.endpoint, "--user", READER[0])
    assert (code, states(found["reach"])) == (1, ["fail"])
    monkeypatch.delenv("ETCDCTL_PASSWORD")
    code, found = doctor("--endpoints", limited.endpoint)
    assert (code, states(found["cluster"])) == (1, ["fail"])
