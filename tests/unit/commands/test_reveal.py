"""What is looked at leaves a record, and nothing is looked at without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.get import GetRequest, NamedObjects, record_reveal
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.audit.verify import ChainState, read_records, verify
from etcdfix.remediation.errors import UnsafePlace


def reveal(log: Path, wanted: dict[str, Any]) -> object:
    request = GetRequest(layout=StorageLayout("/registry"), **wanted, reveal=True)
    return record_reveal(log, request, form="yaml", file=Path("old.db"), etcd_user="root")


@pytest.mark.parametrize(
    ("wanted", "namespace", "name"),
    [
        ({"key": b"/registry/secrets/shop/web"}, "shop", "web"),
        ({"objects": (NamedObjects("secret", ("a", "b")),), "namespace": "shop"}, "shop", "a,b"),
        ({"objects": (NamedObjects("Secret"),)}, "default", ""),
        ({"objects": (NamedObjects("secrets"),), "all_namespaces": True}, "", ""),
    ],
)
def test_a_reveal_is_a_record_of_its_own(
    tmp_path: Path, wanted: dict[str, Any], namespace: str, name: str
) -> None:
    tmp_path.chmod(0o700)
    log = tmp_path / "audit.jsonl"
    link = reveal(log, wanted)
    (event,) = read_records(log)
    assert event.link == link
    assert (event.verb, event.type) == ("reveal", "reveal")
    assert event.detail == "contents revealed, as yaml, from file old.db"
    subject = event.subject
    assert (subject.resource, subject.namespace, subject.name) == ("secrets", namespace, name)
    assert verify(log).state is ChainState.WHOLE


def test_no_record_no_reveal(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UnsafePlace):
        reveal(tmp_path / "audit.jsonl", {"objects": (NamedObjects("secrets"),)})
