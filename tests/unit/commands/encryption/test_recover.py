"""What is found without an etcd: the order of configurations, what cannot be read, and what Nodes say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from etcdfix.commands.encryption.recover import RecoverRequest, recover_configurations
from etcdfix.copies.finder import Named, OtherHistory
from etcdfix.copies.model import Place
from etcdfix.encryption.bootstrap import EMPTY_TOKEN, forms_of
from etcdfix.model.model import KeptRevision
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.recover import EncryptionRecoverReport
from tests.support.k3s_bootstrap import (
    TOKEN,
    bootstrap,
    encryption_config,
    key_element,
    path,
    stage_line,
)
from tests.support.k3s_cluster import NEW, NEW_KEY, OLD, OLD_KEY, OLD_NAME, node
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import aescbc, namespace_object, secret
from tests.support.wal_writer import ModelEtcd

TOKENS = (*forms_of(TOKEN.encode()), EMPTY_TOKEN)
KUBE_SYSTEM = {"/registry/namespaces/kube-system": namespace_object("kube-system")}


def request() -> RecoverRequest:
    return RecoverRequest(layout=StorageLayout(), tokens=TOKENS, token_files=("token",))


def report(source: MemorySource) -> EncryptionRecoverReport:
    return recover_configurations(source, request(), lambda *_: nullcontext())[0]


class Kept(MemorySource):
    """Keeps other values of a bootstrap key too, by the revision of each."""

    def __init__(self, now: bytes, others: dict[int, bytes], **more: bytes) -> None:
        super().__init__({**KUBE_SYSTEM, path(): now, **more})
        self._others = others

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        for kept in super().history(key):
            found = {kept.revision.main: kept} | {
                main: KeptRevision(kept.revision._replace(main=main), stored(key, value, mod_revision=main))
                for main, value in self._others.items()
            }
            yield from (found[main] for main in sorted(found))


def test_the_current_one_comes_first_whatever_the_others_claim() -> None:
    found = report(Kept(bootstrap(OLD), {900: bootstrap(NEW)}))
    assert [(one.current, one.last_mod_revision) for one in found.configurations] == [
        (True, 11),
        (False, 900),
    ]


def test_one_file_in_several_stages_is_one_configuration() -> None:
    found = report(Kept(bootstrap(OLD, stage="prepare"), {5: bootstrap(OLD, stage="start")}))
    (one,) = found.configurations
    assert (one.first_mod_revision, one.last_mod_revision, one.stage) == (5, 11, "prepare")


@pytest.mark.parametrize(
    "value", [b"", b"no node", node("n", None), json.dumps({"apiVersion": "v1", "kind": "Node"}).encode()]
)
def test_nodes_that_say_nothing(value: bytes) -> None:
    found = report(MemorySource({**KUBE_SYSTEM, path(): bootstrap(OLD), "/registry/minions/n": value}))
    assert found.nodes == []
    assert found.configurations[0].nodes == []
    assert found.unread_nodes == (value == b"no node")
    assert found.complete == (value != b"no node")


def test_without_a_storage_prefix_nothing_is_claimed_of_what_opens() -> None:
    found = report(MemorySource({path(): bootstrap(OLD)}))
    assert (found.tried, found.complete) == (None, False)
    assert "no key starts with /registry" in " ".join(found.incomplete_reasons)


def test_two_providers_during_a_change_of_provider_are_both_kept() -> None:
    config = encryption_config(
        {"secretbox": {"keys": [key_element("secretboxkey", NEW_KEY)]}},
        {"aescbc": {"keys": [key_element(OLD_NAME, OLD_KEY)]}},
        {"identity": {}},
    )
    values = {"/registry/secrets/shop/web": aescbc(secret("web"), OLD_KEY, OLD_NAME)}
    found = report(MemorySource({**KUBE_SYSTEM, **values, path(): bootstrap(config)}))
    assert (found.tried, found.opened) == (1, 1)
    assert [key.transformer for key in found.configurations[0].rules[0].keys] == [
        "secretbox/v1/secretboxkey", "aescbc/v1/aescbckey", "identity",
    ]  # fmt: skip


def test_nodes_that_disagree_are_said_and_a_request_names_nothing() -> None:
    nodes = {
        "/registry/minions/a": node("a", stage_line(OLD)),
        "/registry/minions/b": node("b", stage_line(NEW), "rke2.io/encryption-config-hash"),
        "/registry/minions/c": node("c", stage_line(NEW, "reencrypt_request")),
    }
    found = report(Kept(bootstrap(NEW), {5: bootstrap(OLD)}, **nodes))
    assert [one.nodes for one in found.configurations] == [["b"], ["a"]]
    assert "name different configurations" in " ".join(found.notes)


def test_a_log_of_another_history_is_refused_and_one_that_is_none_is_told(tmp_path: Path) -> None:
    here, there = ModelEtcd(), ModelEtcd()
    for etcd, value, config in ((here, b"here", OLD), (there, b"elsewhere", NEW)):
        etcd.put(path().encode(), bootstrap(config))
        for number in range(8):
            etcd.update(f"/registry/leases/n/{number}".encode(), value)
        etcd.log.commit()

    def recovered(directory: Path) -> EncryptionRecoverReport:
        place = Named(place=Place.LOG, what=str(directory))
        looking = msgspec.structs.replace(request(), places=(place,))
        return recover_configurations(here.store(), looking, lambda *_: nullcontext())[0]

    with pytest.raises(OtherHistory):
        recovered(there.log.write(tmp_path / "wal"))
    found = recovered(tmp_path)
    assert [one.current for one in found.configurations] == [True]
    assert not found.complete
