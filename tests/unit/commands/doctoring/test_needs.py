"""Configuration, backup directories and audit log (written to, and left as they were), and the API server's word."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.apiserver import client as api_client
from etcdfix.apiserver.client import AuthorizationRefused
from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.commands.doctoring import needs as module
from etcdfix.commands.doctoring.needs import (
    check_audit_log,
    check_configuration,
    check_directory,
    check_kubeconfig,
)
from etcdfix.model.model import ClusterIdentity
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import RecordType
from etcdfix.remediation.durable import Filesystem
from etcdfix.remediation.errors import AuditLogUnreadable, NotDurable
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.doctor import Check
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.text.commands import RunOptions
from tests.support.audit_logs import entry, own_directory, write_log
from tests.support.doctoring import states
from tests.support.fixtures import Patch
from tests.support.kubernetes_api import ACCESS_REVIEW, KUBE_SYSTEM, UID, KubernetesAPI
from tests.support.objects import KEY_1, configuration, provider


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "own")


def test_the_configuration() -> None:
    given = configuration(provider("aescbc", key1=KEY_1))
    (check,) = check_configuration(given, told_none=False)
    assert check.what == f"{given.path} {given.sha256}"
    odd = configuration(
        {"kms": {"apiVersion": "v1", "name": "old", "endpoint": "unix:///k.sock"}}, {"identity": {}}
    )
    assert states(check_configuration(odd, told_none=False)) == ["ok", "warn"]
    assert states(check_configuration(None, told_none=False)) == ["warn"]
    assert states(check_configuration(None, told_none=True)) == ["ok"]


def kept(path: Path, *, named: bool = True) -> list[str]:
    return states(check_directory(path, named=named))


def test_a_directory_of_ours_will_do_and_stays_empty(own: Path, monkeypatch: Patch) -> None:
    assert kept(own) == ["ok"]
    monkeypatch.setattr(module, "LEAST_FREE_BYTES", 1 << 60)
    assert kept(own) == ["warn", "ok"]
    assert list(own.iterdir()) == []


def test_a_directory_that_is_missing_is_a_failure_with_the_command_to_make_it(own: Path) -> None:
    (check,) = check_directory(own / "a b", named=True)
    assert (check.state, check.command.line(RunOptions())) == ("fail", f"mkdir -m 0700 '{own / 'a b'}'")
    assert not (own / "a b").exists()


def test_directories_of_others_and_one_that_cannot_keep_a_file(own: Path, monkeypatch: Patch) -> None:
    (own / "link").symlink_to(own)
    shared = own_directory(own / "shared")
    shared.chmod(0o777)
    for path in (own / "link", shared):
        with pytest.raises(NotDurable):
            kept(path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    empty = own_directory(own / "empty")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotDurable, match="No space left on device"):
        kept(empty)
    assert list(empty.iterdir()) == []


def test_a_default_that_is_not_there_yet_is_not_made(own: Path, monkeypatch: Patch) -> None:
    assert kept(own / "a" / "b", named=False) == ["ok"]
    assert list(own.iterdir()) == []
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert kept(own / "a" / "b", named=False) == ["fail"]
    kind = Filesystem("tmpfs", "tmpfs", "/")
    monkeypatch.setattr("etcdfix.remediation.places.filesystem_kind", lambda _: kind)
    assert kept(own) == ["warn", "ok"]
    for default in (own, own / "not-there"):
        with pytest.raises(NotDurable, match="a restart of this machine empties it"):
            kept(default, named=False)


def log(path: Path) -> list[Check]:
    """What is said of the log itself, behind that of its directory."""
    first, *others = check_audit_log(RecordPaths(audit_log=path))
    assert states([first]) == ["ok"]
    states(others)
    return others


def test_a_whole_log_is_left_as_it_is(own: Path) -> None:
    assert states(log(own / "log")) == ["ok"]
    write_log(own / "log")
    before = sorted((path.name, path.read_bytes()) for path in own.iterdir())
    assert states(log(own / "log")) == ["ok"]
    assert sorted((path.name, path.read_bytes()) for path in own.iterdir()) == before


def test_an_open_intent(own: Path) -> None:
    with AuditLog.open(own / "log") as opened:
        opened.append(entry(RecordType.INTENT))
    check, *_ = log(own / "log")
    settle = f"etcdfix log settle {own / 'log'} --dry-run"
    assert (check.state, check.command.line(RunOptions())) == ("warn", settle)


def test_a_log_that_was_tampered_with_and_one_without_half_of_it(own: Path) -> None:
    write_log(own / "log")
    raw = (own / "log").read_bytes()
    (own / "log").write_bytes(raw.replace(b"mod_revision", b"mod-revision", 1).replace(b"41", b"42", 1))
    (check,) = log(own / "log")
    assert (check.state, check.command.line(RunOptions())) == ("fail", f"etcdfix log verify {own / 'log'}")
    (own / "log").write_bytes(raw)
    (own / "log.head").rename(own / "kept")
    assert states(log(own / "log")) == ["fail"]
    (own / "kept").rename(own / "log.head")
    (own / "log").unlink()
    assert states(log(own / "log")) == ["fail"]


def test_what_is_no_log_of_ours(own: Path, monkeypatch: Patch) -> None:
    write_log(own / "log")
    (own / "link").symlink_to(own / "log")
    os.mkfifo(own / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(NotDurable):
            log(own / name)
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.05)
    with AuditLog.open(own / "busy") as opened:
        opened.append(entry(RecordType.INTENT))
        with pytest.raises(AuditLogUnreadable):
            log(own / "busy")


HERE = ClusterIdentity.by_uid(UID)


@pytest.fixture
def api(authority: CertificateAuthority) -> Iterator[KubernetesAPI]:
    with KubernetesAPI(authority) as server:
        yield server


def look(api: KubernetesAPI, folder: Path, cluster: ClusterIdentity | None = HERE) -> Iterator[Check]:
    return check_kubeconfig(APIAccess(api.kubeconfig(folder)), cluster)


def test_who_may_do_both(api: KubernetesAPI, tmp_path: Path) -> None:
    assert states(look(api, tmp_path)) == ["ok", "ok"]
    assert {request.method for request in api.requests if request.path != KUBE_SYSTEM} == {"POST"}
    assert states(look(api, tmp_path, None)) == ["unknown", "ok"]


def test_who_may_not_is_told_how_to_ask(api: KubernetesAPI, tmp_path: Path) -> None:
    api.denied = {"delete"}
    checks = look(api, tmp_path)
    assert states([next(checks)]) == ["ok"]
    with pytest.raises(AuthorizationRefused) as refused:
        next(checks)
    assert "auth can-i delete secrets --all-namespaces" in refused.value.hint


def test_a_server_of_another_cluster_is_asked_nothing_more(api: KubernetesAPI, tmp_path: Path) -> None:
    with pytest.raises(AuthorizationRefused):
        list(look(api, tmp_path, ClusterIdentity.by_uid("another")))
    assert api.asked(ACCESS_REVIEW) == []


def test_a_server_that_does_not_answer(api: KubernetesAPI, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(api_client, "REQUEST_SECONDS", 0.2)
    api.stall = {ACCESS_REVIEW}
    for _ in range(2):
        with pytest.raises(AuthorizationRefused):
            list(look(api, tmp_path))
        api.stop()
