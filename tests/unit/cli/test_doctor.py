"""``etcdfix doctor`` as a whole, on an etcd that is played and on files; a real one: tests/integration/cli."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from etcdfix.cli.root import run
from etcdfix.report.schema import SCHEMAS
from etcdfix.wire.etcd import ALARM, MEMBER_LIST, STATUS, message
from tests.support.audit_logs import own_directory
from tests.support.cluster_index_runs import assert_harmless
from tests.support.doctoring import lease
from tests.support.fixtures import Captured, Patch
from tests.support.objects import KEY_1, KEY_2, aescbc, configuration_yaml, namespace_object, provider, secret
from tests.support.scripted_etcd import Call, ScriptedEtcd

pytestmark = pytest.mark.usefixtures("no_variables")


class Ran(NamedTuple):
    """What a run came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        found = json.loads(self.out)
        Draft202012Validator(SCHEMAS["doctor"]()).validate(found)
        return found

    def of(self, name: str) -> list[str]:
        return [check["state"] for check in self.document["checks"] if check["name"] == name]


class Doctor:
    """Runs the command against an etcd that is played, with a configuration and places of its own."""

    def __init__(self, etcd: ScriptedEtcd, folder: Path, capfd: Captured) -> None:
        self.etcd = etcd
        self.folder = folder
        self.config = folder / "config.yaml"
        self.config.write_bytes(configuration_yaml(provider("aescbc", key1=KEY_1), {"identity": {}}))
        self.log = folder / "log"
        self._capfd = capfd

    def __call__(self, *words: str, source: list[str] | None = None, form: str = "json") -> Ran:
        where = ["--endpoints", self.etcd.endpoint] if source is None else source
        places = ["--backup-dir", str(self.folder), "--audit-log", str(self.log)]
        reading = [] if "--no-encryption" in words else ["--encryption-config", str(self.config)]
        self._capfd.readouterr()
        code = run(["doctor", *where, *reading, *places, "--dial-timeout", "1s", *words, "-o", form])
        told = self._capfd.readouterr()
        assert_harmless(told.out + told.err)
        return Ran(code, told.out, told.err)


@pytest.fixture
def etcd() -> Iterator[ScriptedEtcd]:
    values = {
        "/registry/namespaces/kube-system": namespace_object("kube-system"),
        "/registry/secrets/shop/a": aescbc(secret()),
        "/registry/leases/kube-node-lease/n": lease(datetime.now(UTC) - timedelta(seconds=3)),
        "compact_rev_key": b"2",
    }
    with ScriptedEtcd({key.encode(): value for key, value in values.items()}) as server:
        healthy(server)
        yield server


def healthy(server: ScriptedEtcd, **instead: Any) -> None:
    """Have a member answer all that is asked; ``instead`` by the last word of a method."""

    def answer(call: Call) -> Any:
        name = call.path.rpartition("/")[2]
        if name in instead:
            return instead[name]
        header = message("ResponseHeader")(
            cluster_id=server.cluster_id, member_id=1, revision=server.store.revision
        )
        if call.path == STATUS.path:
            return message("StatusResponse")(header=header, version="3.6.8", leader=1, dbSize=4096)
        if call.path == ALARM.path:
            return message("AlarmResponse")(header=header)
        if call.path == MEMBER_LIST.path:
            member = message("Member")(ID=1, name="m1", clientURLs=["http://m1:2379"])
            return message("MemberListResponse")(header=header, members=[member])
        return None

    server.script = answer


@pytest.fixture
def doctor(etcd: ScriptedEtcd, tmp_path: Path, capfd: Captured) -> Doctor:
    return Doctor(etcd, own_directory(tmp_path / "own"), capfd)


def test_a_warning_alone_is_0_and_what_cannot_be_told_is_3(doctor: Doctor) -> None:
    doctor.etcd.store.put(b"compact_rev_key", b"junk")
    ran = doctor()
    assert (ran.code, ran.of("revision")) == (0, ["warn"])
    doctor.etcd.store.delete(b"/registry/leases/kube-node-lease/n")
    ran = doctor()
    assert (ran.code, ran.of("clock")) == (3, ["unknown"])
    doctor.etcd.store.put(b"/registry/secrets/shop/b", aescbc(secret(), KEY_2))
    doctor.etcd.store.put(b"/registry/secrets/shop/a", aescbc(secret(), KEY_2))
    ran = doctor()
    assert (ran.code, ran.of("keys")) == (1, ["fail", "ok"])
    missing = doctor("--backup-dir", str(doctor.folder / "none"), form="text").out.splitlines()
    assert len(missing) <= 24
    assert missing[1] == ran.document["do_not_restart"] != ""
    assert f"  etcdfix scan --endpoints {doctor.etcd.endpoint} " in "\n".join(missing[:6])
    assert f"mkdir -m 0700 {doctor.folder / 'none'}" in "\n".join(missing)


def test_an_etcd_that_is_not_there_is_a_failure_and_nothing_that_rests_on_it_is_told(doctor: Doctor) -> None:
    ran = doctor(source=["--endpoints", "127.0.0.1:1", "--user", "ada:not-to-be-shown"])
    assert (ran.code, ran.of("members"), ran.of("keys")) == (1, [], [])
    assert (ran.of("reach"), ran.of("backup-dir"), ran.of("tls")) == (["fail"], ["ok"], ["warn", "ok"])
    assert ran.document["source"]["endpoints"] == ["127.0.0.1:1"]
    assert "not-to-be-shown" not in ran.out + ran.err


def test_endpoints_of_two_clusters(doctor: Doctor) -> None:
    with ScriptedEtcd(cluster_id=0xC2) as other:
        healthy(other)
        ran = doctor(source=["--endpoints", f"{other.endpoint},{doctor.etcd.endpoint}"])
    assert (ran.code, ran.of("reach"), ran.of("cluster")) == (1, ["ok", "ok"], ["fail"])
    assert ran.of("keys") == []


def test_an_interruption_gives_what_there_is(doctor: Doctor, monkeypatch: Patch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("etcdfix.commands.doctoring.etcd.check_alarms", interrupted)
    ran = doctor()
    assert (ran.code, ran.document["ended"]) == (130, "interrupted")
    assert (ran.of("members"), ran.of("alarms"), ran.of("audit-log")) == (["ok"], [], [])
