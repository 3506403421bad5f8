"""What tests may destroy: servers that were started for them, and one that says so itself."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from etcdfix.testing import (
    Damage,
    EtcdServer,
    NotDisposable,
    config_map,
    disposable_etcd,
    plant,
    store,
)
from etcdfix.testing.places import find_tools
from etcdfix.testing.servers import MARKER, MARKER_VALUE

pytestmark = pytest.mark.etcd

KEY = "/registry/configmaps/shop/a"


def keys(server: EtcdServer) -> list[bytes]:
    return server.etcdctl("get", "", "--prefix", "--keys-only").split()


def test_an_empty_one_is_taken_and_left_empty(fresh_etcd: EtcdServer) -> None:
    with disposable_etcd(f"http://{fresh_etcd.endpoint}") as server:
        assert server.kind == "given"
        store(server, KEY, config_map("a", "shop"))
        plant(server, KEY, Damage.EMPTY)
        server.delete(KEY.encode())
        assert keys(fresh_etcd) == [MARKER]
    assert keys(fresh_etcd) == []


def test_one_with_keys_is_not_taken(fresh_etcd: EtcdServer) -> None:
    fresh_etcd.put(KEY.encode(), b"the only copy")
    before = fresh_etcd.revision()
    for value in (None, b"yes"):
        if value is not None:
            fresh_etcd.put(MARKER, value)
            before = fresh_etcd.revision()
        with pytest.raises(NotDisposable, match="holds keys"), disposable_etcd(fresh_etcd.endpoint):
            raise AssertionError("was taken")
        assert fresh_etcd.revision() == before


def test_one_with_the_marker_is_taken_and_keeps_it(fresh_etcd: EtcdServer) -> None:
    fresh_etcd.put_all([(KEY.encode(), b"of an earlier run"), (MARKER, MARKER_VALUE)])
    with disposable_etcd(fresh_etcd.endpoint) as server:
        server.put(b"/registry/more", b"x")
    assert keys(fresh_etcd) == [MARKER]
    assert fresh_etcd.get(MARKER) == MARKER_VALUE


def test_without_its_marker_nothing_is_written(fresh_etcd: EtcdServer) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(disposable_etcd(fresh_etcd.endpoint))
        store(server, KEY, config_map("a", "shop"))
        fresh_etcd.delete(MARKER)  # somebody else's cluster moved in
        before = fresh_etcd.revision()
        for write in (
            lambda: server.put(KEY.encode(), b"x"),
            lambda: plant(server, KEY, Damage.EMPTY),
            lambda: server.delete(KEY.encode()),
            lambda: server.etcdctl("del", "", "--prefix"),
            stack.close,
        ):
            with pytest.raises(NotDisposable, match="nothing was changed"):
                write()
        assert fresh_etcd.revision() == before
    assert keys(fresh_etcd) == [KEY.encode()]


def test_one_that_was_made_from_an_address_is_not_taken_either(fresh_etcd: EtcdServer) -> None:
    fresh_etcd.put(KEY.encode(), b"the only copy")
    before = fresh_etcd.revision()
    server = EtcdServer(fresh_etcd.endpoint, "given", find_tools().ctl)
    for write in (
        lambda: store(server, KEY, config_map("a", "shop")),
        lambda: plant(server, KEY, Damage.EMPTY),
        lambda: server.delete(KEY.encode()),
        lambda: server.empty(marked=False),
        server.compact,
    ):
        with pytest.raises(NotDisposable, match="nothing was changed"):
            write()
    server.stop()
    assert fresh_etcd.revision() == before


def test_what_moves_in_between_the_question_and_the_deletion_stays(
    fresh_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EtcdServer, "is_marked", lambda _self: True)  # and then it is not any more
    fresh_etcd.put(KEY.encode(), b"the only copy")
    before = fresh_etcd.revision()
    with pytest.raises(NotDisposable, match="nothing was changed"), disposable_etcd(fresh_etcd.endpoint):
        pass
    assert fresh_etcd.revision() == before


@pytest.mark.parametrize("where", ["127.0.0.1:2379", b"127.0.0.1:2379", ["https://etcd-0:2379"]])
def test_no_address_is_written_to(where: object) -> None:
    with pytest.raises(TypeError, match="no address"):
        plant(where, KEY, Damage.EMPTY)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no address"):
        store(where, KEY, b"")  # type: ignore[arg-type]


def test_no_variable_leads_elsewhere(
    etcd: EtcdServer, etcd_prefix: str, fresh_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "ETCDCTL_ENDPOINTS",
        "ETCDFIX_ENDPOINTS",
        "ETCDFIX_TEST_ENDPOINTS",
        "ETCD_LISTEN_CLIENT_URLS",
    ):
        monkeypatch.setenv(name, fresh_etcd.endpoint)
    monkeypatch.setenv("http_proxy", f"http://{fresh_etcd.endpoint}")
    key = f"{etcd_prefix}/configmaps/shop/a"
    store(etcd, key, config_map("a", "shop"), etcd_prefix=etcd_prefix)
    plant(etcd, key, Damage.EMPTY, etcd_prefix=etcd_prefix)
    etcd.delete(key.encode())
    assert fresh_etcd.revision() == 1
