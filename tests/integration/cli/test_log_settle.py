"""``etcdfix log settle`` against a real etcd."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from etcdfix.model.model import digest_of
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Record, Verb
from etcdfix.remediation.audit.verify import read_records
from etcdfix.testing.servers import EtcdServer
from tests.support.audit_logs import LOST, audit, entry, own_directory, subject
from tests.support.fixtures import Captured
from tests.support.objects import namespace_object


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "log") / "audit.jsonl"


def _cluster(etcd: EtcdServer, prefix: bytes) -> None:
    etcd.put(prefix + b"namespaces/kube-system", namespace_object("kube-system", uid="d4c1"))


def _open_intent(path: Path, key: bytes, mod_revision: int, **changes: object) -> Record:
    given: dict[str, object] = {
        "subject": subject(key, mod_revision), "header_revision": mod_revision, "value_sha256": digest_of(LOST),
        "backups": ("/backups/a b.json",),
    }  # fmt: skip
    with AuditLog.open(path) as log:
        return log.intent(log.append(msgspec.structs.replace(entry(), **(given | changes))).sequence)


def _gone(etcd: EtcdServer, path: Path, key: bytes, **changes: object) -> Record:
    """Leave an intent open about a value that was there, and is gone."""
    revision = etcd.put(key, LOST)
    etcd.delete(key)
    return _open_intent(path, key, revision, **changes)


@pytest.fixture
def settle(
    capfd: Captured, etcd: EtcdServer, prefix: bytes, path: Path
) -> Callable[..., tuple[int, str, str]]:
    def call(*words: str) -> tuple[int, str, str]:
        where = ["--endpoints", etcd.endpoint, "--etcd-prefix", prefix.decode().rstrip("/")]
        patience = ["--command-timeout", "10s", "--dial-timeout", "10s"]
        return audit(capfd, "settle", path, *where, *patience, *words)

    return call


Settle = Callable[..., tuple[int, str, str]]


@pytest.mark.etcd
def test_settle(etcd: EtcdServer, prefix: bytes, path: Path, settle: Settle) -> None:
    _cluster(etcd, prefix)
    key = prefix + b"secrets/shop/gone"
    gone = _gone(etcd, path, key)
    moved = _gone(etcd, path, prefix + b"secrets/shop/\xe2\x80\xae")
    written = path.read_bytes()
    revision = etcd.revision()

    code, out, err = settle("--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith("2 intents would be settled\n")
    assert "  applied-or-gone  " in out
    assert key.decode() in out
    assert "Recorded" not in out
    assert path.read_bytes() == written

    code, out, err = settle("-o", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert [(i["sequence"], i["outcome"]) for i in document["intents"]] == [
        (gone.link.sequence, "applied-or-gone"),
        (moved.link.sequence, "applied-or-gone"),
    ]
    assert document["intents"][1]["record"].startswith("4:")
    assert etcd.revision() == revision
    assert [event.type for event in read_records(path)][2:] == ["settled"] * 2
    assert settle() == (0, "no open intents\n", "")


@pytest.mark.etcd
def test_settle_refuses_another_cluster_and_does_the_rest(
    etcd: EtcdServer, prefix: bytes, path: Path, settle: Settle
) -> None:
    _cluster(etcd, prefix)
    _open_intent(path, prefix + b"secrets/shop/db", 1, cluster_uid="another")
    _gone(etcd, path, prefix + b"secrets/shop/db", verb=Verb.FIX)
    code, out, _ = settle()
    assert code == 4
    assert out.startswith("1 intent settled, 1 refused\nNext: name the etcd of that cluster")
    assert len(list(read_records(path))) == 3
    code, out, _ = settle("-o", "json")
    assert code == 4
    assert [(item["sequence"], item["outcome"]) for item in json.loads(out)["intents"]] == [(1, "refused")]
