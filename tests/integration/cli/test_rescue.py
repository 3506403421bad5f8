"""``etcdfix rescue`` against a stand-in API server: what is saved, what is not, and what ends it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from etcdfix.apiserver.client import Pace
from etcdfix.cli.root import run
from etcdfix.commands import rescue as rescue_module
from etcdfix.copies.rescued import INDEX_NAME, file_name, read_index, read_saved
from etcdfix.model.model import digest_of
from etcdfix.remediation.audit.search import saved_digests
from etcdfix.remediation.audit.verify import read_records, trouble_with
from etcdfix.remediation.errors import AuditError
from etcdfix.remediation.saved_objects import RescueRecord
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.apiserver import TOKEN, Answer, MemoryStore, Request, StandIn
from tests.support.fixtures import Captured, Patch
from tests.support.objects import IDENTITY, KEY_1, KEY_2, configuration_yaml, provider
from tests.support.saved_scans import write_report

OLD = configuration_yaml(provider("aescbc", key1=KEY_1), IDENTITY)
NEW = configuration_yaml(provider("aescbc", key2=KEY_2), IDENTITY)
CONTENTS = "bmV2ZXIgc2hvd24gYW55d2hlcmU="
SECRETS = "/api/v1/namespaces/shop/secrets"


class Out(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def report(self) -> Any:
        return json.loads(self.out)

    def states(self) -> dict[str, str]:
        return {one["name"]: one["state"] for one in self.report["objects"]}


class Ground:
    def __init__(self, authority: CertificateAuthority, folder: Path, capfd: Captured) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.servers: list[StandIn] = []
        self.saved = folder / "rescued"
        self.log = folder / "audit" / "audit.jsonl"
        self.log.parent.mkdir(mode=0o700)
        self._authority = authority
        self._capfd = capfd
        self.server = self.start()

    def start(self, configuration: bytes = OLD) -> StandIn:
        server = StandIn(self._authority, store=self.store, configuration=configuration, given_up_after=0.2)
        self.servers.append(server)
        return server

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def fill(self, *names: str, kind: str = "Secret") -> list[bytes]:
        return [self.server.create("v1", kind, name, "shop", data={"password": CONTENTS}) for name in names]

    def lose_key(self) -> None:
        for server in self.servers:
            server.wait()
            server.reload(NEW)

    def lost(self, *names: str) -> Path:
        keys = self.fill(*names)
        self.lose_key()
        return self.report(keys)

    def report(self, keys: list[bytes]) -> Path:
        path = self.folder / "report.json"
        findings = []
        for key in sorted(keys):
            entry = self.store.get(key)
            assert entry is not None
            findings.append(
                {
                    "key": key.decode("utf-8", "backslashreplace"), "outcome": "decrypt-failure",
                    "cause": "key-name-missing", "mod_revision": entry.mod_revision,
                    "value_sha256": f"sha256:{hashlib.sha256(entry.value).hexdigest()}",
                    "transformer": "aescbc/v1/key1", "rule": "secrets",
                }
            )  # fmt: skip
        origin = {"type": "etcd", "path": None, "revision": self.store.revision()}
        write_report(path, uid=self.server.uid, head={"encryption_config": None}, origin=origin)
        document = json.loads(path.read_text()) | {"findings": findings}
        path.write_text(json.dumps(document))
        return path

    def rescue(self, report: Path) -> Out:
        kubeconfig = self.server.kubeconfig(self.folder, token=TOKEN)
        code = run(
            ["rescue", "--from-report", str(report), "--kubeconfig", str(kubeconfig), "--rescued", str(self.saved),
             "--audit-log", str(self.log), "-o", "json"]
        )  # fmt: skip
        out, err = self._capfd.readouterr()
        assert CONTENTS not in out + err
        assert "Traceback" not in err
        if self.log.exists():
            assert CONTENTS not in self.log.read_text()
            assert trouble_with(self.log) == ""
        for server in self.servers:
            assert server.methods <= {"GET"}
        return Out(code, out, err)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.saved.iterdir() if path.name != INDEX_NAME)

    def asked(self) -> list[str]:
        paths = [request.path for request in self.server.requests]
        return [path for path in paths if path.endswith("?resourceVersion=0") and "kube-system" not in path]


@pytest.fixture
def ground(
    authority: CertificateAuthority, tmp_path: Path, capfd: Captured, monkeypatch: Patch, no_variables: None
) -> Iterator[Ground]:
    monkeypatch.setattr(rescue_module, "Pace", lambda: Pace(1000))
    found = Ground(authority, tmp_path, capfd)
    yield found
    found.stop()


def test_everything_that_a_report_names_is_saved_byte_for_byte(ground: Ground) -> None:
    keys = ground.fill("one", "two", "three")
    ground.fill("settings", kind="ConfigMap")
    ground.lose_key()
    found = ground.rescue(ground.report(keys))
    assert (found.code, found.report["complete"]) == (0, True)
    assert found.states() == dict.fromkeys(["one", "two", "three"], "saved")
    index = read_index(ground.saved)
    assert sorted(saved.key for saved in index.objects) == sorted(keys)
    for saved in index.objects:
        entry = ground.store.get(saved.key)
        assert entry is not None
        raw = read_saved(ground.saved, saved)
        assert json.loads(raw)["data"] == {"password": CONTENTS}
        assert saved.mod_revision == entry.mod_revision
        assert stat.S_IMODE((ground.saved / saved.file).stat().st_mode) == 0o600
    assert saved_digests(ground.log, ground.server.uid) == {saved.sha256 for saved in index.objects}
    assert sorted(ground.asked()) == sorted(
        f"{SECRETS}/{name}?resourceVersion=0" for name in ("one", "two", "three")
    )


def test_the_record_comes_before_the_first_object_is_asked_for(ground: Ground) -> None:
    report = ground.lost("one")
    seen: list[int] = []

    def look(request: Request) -> None:
        if request.path == f"{SECRETS}/one?resourceVersion=0":
            seen.append(sum(1 for _ in read_records(ground.log)))

    ground.server.before.append(look)
    assert ground.rescue(report).code == 0
    assert seen == [1]
    first, second = read_records(ground.log)
    assert [first.type, second.type] == ["reveal", "rescued"]
    assert first.verb == second.verb == "rescue"


@pytest.mark.parametrize("another", [False, True])
def test_a_server_that_reads_the_object_ends_it_before_anything_is_revealed(
    ground: Ground, another: bool
) -> None:
    keys = ground.fill("one")
    report, reads = ground.report(keys), ground.server
    if another:
        reads = ground.start(OLD)
        reads.wait()
        ground.server.wait()
        ground.server.reload(NEW)
        ground.server.behaviour.listed = [("127.0.0.1", reads.port)]
    found = ground.rescue(report)
    assert found.code == 4
    assert reads.url in found.err
    assert ground.files() == []
    assert ground.asked() == []
    assert not ground.log.exists()


def test_a_second_run_asks_for_nothing_that_is_saved(ground: Ground) -> None:
    report = ground.lost("one", "two")
    assert ground.rescue(report).code == 0
    before, files = len(ground.asked()), ground.files()
    found = ground.rescue(report)
    assert found.code == 0
    assert set(found.states().values()) == {"saved"}
    assert (len(ground.asked()), ground.files()) == (before, files)
    assert len(read_index(ground.saved).objects) == 2


def test_a_server_that_dies_midway_leaves_what_was_saved_and_the_next_run_goes_on(ground: Ground) -> None:
    names = [f"secret-{number:02}" for number in range(12)]
    report = ground.lost(*names)
    ground.server.die_after(2 + 3 + 4 + 1)  # kube-system, endpoints, samples, objects
    found = ground.rescue(report)
    assert found.code == 3
    saved = [name for name, state in found.states().items() if state == "saved"]
    assert 0 < len(saved) < 12
    assert set(found.states().values()) == {"saved", "not-asked"}
    assert len(ground.files()) == len(saved)
    assert "given up after 3 objects" in found.report["servers"][0]["detail"]
    assert saved_digests(ground.log, "") == {one.sha256 for one in read_index(ground.saved).objects}


def test_another_server_gives_what_the_first_has_lost(ground: Ground) -> None:
    keys = ground.fill("one", "two", "three")
    other = ground.start()
    ground.lose_key()
    ground.server.restart()
    ground.server.behaviour.listed = [("127.0.0.1", other.port)]
    found = ground.rescue(ground.report(keys))
    assert found.code == 0
    first, second = found.report["servers"]
    assert (first["given"], second["given"]) == (0, 3)
    assert "lost its memory" in first["detail"]
    objects = [path for path in ground.asked() if path.startswith(SECRETS)]
    assert len(objects) == 1  # and a LIST, which told that it has lost the kind


def test_an_answer_that_is_another_object_is_not_kept(ground: Ground) -> None:
    report = ground.lost("one", "two")
    other = json.dumps(
        {"kind": "Secret", "apiVersion": "v1", "data": {"p": CONTENTS},
         "metadata": {"name": "two", "namespace": "shop", "uid": "u", "resourceVersion": "7"}}
    )  # fmt: skip
    ground.server.behaviour.instead[f"{SECRETS}/one?resourceVersion=0"] = Answer(200, other.encode())
    found = ground.rescue(report)
    assert found.code == 3
    assert found.states() == {"one": "refused", "two": "saved"}


def test_servers_of_another_cluster_are_refused(ground: Ground) -> None:
    report = ground.lost("one")
    report.write_text(report.read_text().replace(ground.server.uid, "another-cluster"))
    assert ground.rescue(report).code == 4
    assert ground.files() == []


def test_a_signal_ends_it_with_what_is_saved_on_record(ground: Ground) -> None:
    report = ground.lost("one", "three", "two")

    def end(request: Request) -> None:
        if request.path == f"{SECRETS}/three?resourceVersion=0":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.5)

    ground.server.before.append(end)
    found = ground.rescue(report)
    assert found.code == 143
    assert found.states() == {"one": "saved", "three": "not-asked", "two": "not-asked"}
    assert found.report["incomplete_reasons"][0] == "ended by SIGTERM"
    (saved,) = read_index(ground.saved).objects
    assert saved_digests(ground.log, "") == {saved.sha256}


def test_digests_that_could_not_be_recorded_are_told_and_recorded_by_the_next_run(
    ground: Ground, monkeypatch: Patch
) -> None:
    report = ground.lost("one", "two")

    def fail(_record: RescueRecord, _objects: object) -> None:
        raise AuditError("audit log: no space", path=ground.log)

    monkeypatch.setattr(RescueRecord, "saved", fail)
    found = ground.rescue(report)
    assert found.code == 3
    assert "2 saved objects are not on record" in found.report["incomplete_reasons"][0]
    assert saved_digests(ground.log, "") == set()
    monkeypatch.undo()
    assert ground.rescue(report).code == 0
    assert len(saved_digests(ground.log, "")) == 2


def test_a_forged_file_is_never_put_on_record(ground: Ground) -> None:
    """Somebody changes a file, and its line in the index, before the next run: it is asked for again."""
    report = ground.lost("one")
    assert ground.rescue(report).code == 0
    (true,) = read_index(ground.saved).objects
    raw = (ground.saved / true.file).read_bytes().replace(CONTENTS.encode(), b"Zm9yZ2Vk")
    sha256 = digest_of(raw)
    forged = msgspec.structs.replace(
        true, sha256=sha256, size=len(raw), file=file_name(true.key, true.resource_version, sha256)
    )
    (ground.saved / forged.file).write_bytes(raw)
    (ground.saved / true.file).unlink()
    (ground.saved / INDEX_NAME).write_bytes(msgspec.json.encode(forged) + b"\n")
    found = ground.rescue(report)
    assert found.code == 0
    assert found.report["objects"][0]["sha256"] == true.sha256
    assert saved_digests(ground.log, "") == {true.sha256}
    (ground.saved / true.file).unlink()
    (ground.saved / INDEX_NAME).write_bytes(msgspec.json.encode(forged) + b"\n")
    ground.server.restart()
    found = ground.rescue(report)
    assert found.code == 3
    assert "are not on record, and no server" in found.report["incomplete_reasons"][0]
    assert saved_digests(ground.log, "") == {true.sha256}


def test_a_log_that_cannot_take_the_record_ends_it_before_anything_is_revealed(ground: Ground) -> None:
    report = ground.lost("one")
    ground.log.parent.chmod(0o777)
    found = ground.rescue(report)
    assert found.code == 4
    assert ground.asked() == []
    assert ground.files() == []


def test_a_full_disk_ends_it_with_what_is_whole(ground: Ground, monkeypatch: Patch) -> None:
    from etcdfix.remediation import durable

    keys = ground.fill("one", "three", "two")
    ground.lose_key()
    write = durable.write_fully
    written: list[int] = []

    def full(descriptor: int, data: bytes) -> None:
        if data.startswith(b'{"kind":"Secret"'):
            written.append(len(data))
            if len(written) == 2:
                os.write(descriptor, data[:10])
                raise OSError(errno.ENOSPC, "No space left on device")
        write(descriptor, data)

    monkeypatch.setattr(durable, "write_fully", full)
    found = ground.rescue(ground.report(keys))
    assert found.code == 3
    assert found.states() == {"one": "saved", "three": "not-asked", "two": "not-asked"}
    assert "No space left" in found.report["incomplete_reasons"][0]
    assert len(ground.files()) == 1
    assert f"{SECRETS}/two?resourceVersion=0" not in ground.asked()
    monkeypatch.undo()
    again = ground.rescue(ground.report(keys))
    assert again.states() == {"one": "saved", "three": "saved", "two": "saved"}
