"""Every command that talks to API servers, against one that writes down what it is asked: only a
``fix --from memory`` writes.

And etcd, behind a proxy that does the same: one transaction for each change that was made, and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from etcdfix.cli.plan import run_command
from etcdfix.cli.root import cli
from etcdfix.copies.rescued import read_index
from etcdfix.model.model import GroupResource
from etcdfix.remediation.patcher import FIXED_AT
from etcdfix.report.planfile import decided_digest, load_plan
from etcdfix.testing.servers import EtcdServer
from etcdfix.wire.etcd import ALARM, READ_METHODS
from tests.support.apiserver import Request
from tests.support.change_runs import ACKNOWLEDGED, BROKEN, Ran, Registry, candidate_config
from tests.support.etcd_proxy import EtcdProxy
from tests.support.healing import NEW, LoseKey, LostKeyCluster, beside
from tests.support.k3s_bootstrap import PASSWORD, TOKEN, bootstrap, path
from tests.support.lossy_etcd import TXN
from tests.support.objects import KEY_2, aescbc, provider, secret

pytestmark = pytest.mark.etcd

_MADE = r"^(?:\[1/1\] )?(DELETED|FIXED|UNDONE) "
KEY_3 = b"abcdefghijklmnop"
REVIEWS = {
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
}


def _delete(cluster: LostKeyCluster) -> Iterator[Ran]:
    lost = cluster.key("shop/one")
    more = [*_api(cluster), "--declare-key-lost", "aescbc/v1/key1"]
    yield cluster.delete(lost, *_api(cluster))
    yield cluster.delete(lost, *more)
    yield cluster.delete(lost, *more, "--accept", "ends-cached-reads", "--dry-run", yes=False)
    yield cluster.delete(lost, *more, "--accept", "ends-cached-reads")


def _undo(cluster: LostKeyCluster) -> Iterator[Ran]:
    *_, done = _delete(cluster)
    yield done
    backup = str(next(cluster.backups.glob("*.json"), "none"))
    yield cluster.undo(backup, *_api(cluster), "--dry-run", yes=False)
    yield cluster.undo(backup, *_api(cluster))


def _from_object(cluster: LostKeyCluster) -> Iterator[Ran]:
    if not any(cluster.saved.iterdir()):
        cluster.rescue()
    saved = {one.key: cluster.saved / one.file for one in read_index(cluster.saved).objects}
    lost = cluster.key("shop/one")
    # What is stored newest shows which key API servers write with.
    cluster.p1.create("v1", "Secret", "newest", "shop", data={"password": "YQ=="})
    cluster.p1.requests.clear()
    words = ["--declare-key-lost", "aescbc/v1/key1", "--accept", "unknown-uid", *_api(cluster)]
    yield cluster.put_back(lost, f"object:{saved[lost]}", *words, "--dry-run", yes=False)
    yield cluster.put_back(lost, f"object:{saved[lost]}", *words)


def _from_key(cluster: LostKeyCluster) -> Iterator[Ran]:
    cluster.configure(provider("aesgcm", key2=KEY_2))
    cluster.p1.reload(cluster.config.read_bytes())
    cluster.p1.create("v1", "Secret", "home", "shop", data={"password": "YQ=="})
    home = cluster.key("shop/home")
    value = cluster.stored(home)
    assert value is not None
    moved = cluster.put("shop/moved", value)
    cluster.etcd.delete(home)
    cluster.p1.requests.clear()
    words = ["--accept", "unknown-uid", *_api(cluster)]
    yield cluster.put_back(home, f"key:{moved.decode()}", *words, "--dry-run", yes=False)
    yield cluster.put_back(home, f"key:{moved.decode()}", *words)


def _from_candidate(cluster: LostKeyCluster) -> Iterator[Ran]:
    key = cluster.put("shop/other", aescbc(secret("other"), KEY_3, name="key3"))
    cluster.p1.create("v1", "Secret", "newest", "shop", data={"password": "YQ=="})
    candidate = candidate_config(cluster.folder, provider("aescbc", key3=KEY_3))
    yield cluster.put_back(key, f"candidate:{candidate}", *_api(cluster), "--dry-run", yes=False)
    yield cluster.put_back(key, f"candidate:{candidate}", *_api(cluster))


def _from_bit(cluster: LostKeyCluster) -> Iterator[Ran]:
    cluster.configure(provider("aesgcm", key2=KEY_2))
    cluster.p1.reload(cluster.config.read_bytes())
    cluster.p1.create("v1", "Secret", "flipped", "shop", data={"password": "YQ=="})
    key = cluster.key("shop/flipped")
    value = bytearray(cluster.stored(key) or b"")
    value[60] ^= 1
    cluster.etcd.put(key, bytes(value))
    yield cluster.put_back(key, "bit", *_api(cluster), "--dry-run", yes=False)
    yield cluster.put_back(key, "bit", *_api(cluster))


def _rescue(cluster: LostKeyCluster) -> Iterator[Ran]:
    words = [*_api(cluster), "--rescued", str(cluster.saved), "--audit-log", str(cluster.log)]
    yield cluster.run("rescue", "secrets", *words, *_reading(cluster))
    yield cluster.run("rescue", "--from-report", str(cluster.report()), *words)
    yield cluster.run("rescue", cluster.key("shop/one").decode(), *words, "--etcd-prefix", cluster.prefix)


def _doctor(cluster: LostKeyCluster) -> Iterator[Ran]:
    yield cluster.run("doctor", *cluster.common(reason=None), *_api(cluster))


def _explain(cluster: LostKeyCluster) -> Iterator[Ran]:
    yield cluster.run("explain", cluster.key("shop/one").decode(), *_reading(cluster), *_api(cluster))


def _copies(cluster: LostKeyCluster) -> Iterator[Ran]:
    for output in ("text", "json"):
        words = ["--backup-dir", str(cluster.backups), "-o", output]
        yield cluster.run("copies", *_reading(cluster), *words, *_api(cluster))


def _from_memory(cluster: LostKeyCluster) -> Iterator[Ran]:
    cluster.rescue()
    cluster.p1.requests.clear()
    yield cluster.fix("one", "--dry-run", yes=False)
    assert cluster.p1.methods == {"GET"}
    yield cluster.fix("one")
    yield cluster.fix("two")


def _plan_run(cluster: LostKeyCluster) -> Iterator[Ran]:
    lost, plan = cluster.key("shop/one"), cluster.folder / "plan.json"
    into = ["-o", "json", "--output-file", str(plan)]
    cluster.run("plan", "--from-report", str(cluster.report()), *_reading(cluster), *into)
    document = json.loads(plan.read_bytes())
    for decision in document["decisions"]:
        decision["decision"] = "delete" if decision["key"] == lost.decode() else "leave"
    plan.write_text(json.dumps(document))
    words = ["plan", "--run", str(plan), ACKNOWLEDGED, *_api(cluster), "--declare-key-lost", "aescbc/v1/key1"]
    words += ["--accept", "ends-cached-reads", *cluster.common()]
    yield cluster.run(*words)
    yield cluster.run(*words, "--dry-run")
    yield cluster.run(*words, "--yes", "--expect-plan", decided_digest(load_plan(plan)))


def _api(cluster: LostKeyCluster) -> list[str]:
    return ["--kubeconfig", str(cluster.kubeconfig)]


def _reading(cluster: LostKeyCluster) -> list[str]:
    return cluster.common(places=False, reason=None)


ATTEMPTS: dict[str, Callable[[LostKeyCluster], Iterator[Ran]]] = {
    "delete": _delete,
    "undo": _undo,
    "fix --from object": _from_object,
    "fix --from key": _from_key,
    "fix --from candidate": _from_candidate,
    "fix --from bit": _from_bit,
    "rescue": _rescue,
    "doctor": _doctor,
    "copies": _copies,
    "plan --run": _plan_run,
    "explain": _explain,
    "fix --from memory": _from_memory,
}


LOOKS: dict[str, list[str]] = {
    "explain --in": ["explain", "KEY", "--history", "--in", "log:WAL"],
    "copies --in": ["copies", "KEY", "--in", "log:WAL"],
    "encryption recover": ["encryption", "recover", "--token-file", "TOKEN"],
    "encryption recover --in": ["encryption", "recover", "--token-file", "TOKEN", "--in", "log:WAL"],
}
"""Commands that ask no API server."""


class Asked:
    def __init__(self) -> None:
        self.writing: list[str] = []
        self.reads = 0

    def __call__(self, path: str, first: bytes) -> None:
        reads = path in READ_METHODS and (
            path != ALARM.path or not first
        )  # empty, it asks which alarms there are
        self.reads += reads
        if not reads:
            self.writing.append(path)


@pytest.fixture
def asked(cluster: LostKeyCluster) -> Iterator[Asked]:
    found = Asked()
    with EtcdProxy(cluster.etcd.endpoint, before=found) as proxy:
        cluster.endpoints = proxy.endpoint
        yield found


@pytest.fixture
def cluster(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    with lose_key() as cluster:
        yield cluster


def _commands(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, *path, name)
        elif command is not None:
            yield " ".join((*path, name)), command


def test_every_command_that_asks_api_servers_is_tried_here() -> None:
    asking = {
        name
        for name, command in (*_commands(cli), ("plan", run_command))
        if any("--kubeconfig" in parameter.opts for parameter in command.params)
    }
    assert asking == {name.partition(" --")[0] for name in ATTEMPTS}


@pytest.mark.parametrize("command", sorted(set(ATTEMPTS) - {"fix --from memory"}))
def test_nothing_else_changes_anything_through_the_api(
    cluster: LostKeyCluster, asked: Asked, command: str
) -> None:
    runs = []
    for ran in ATTEMPTS[command](cluster):
        runs.append(ran)
        # A transaction for each change that was made, and none for a dry run or a refusal.
        made = sum(one.code == 0 and re.search(_MADE, one.out, re.MULTILINE) is not None for one in runs)
        assert asked.writing == [TXN] * made
    assert bool(asked.writing) is (command.partition(" ")[0] in {"delete", "fix", "undo", "plan"})
    assert runs[-1].code == (1 if command in {"doctor", "explain"} else 0), runs[-1]
    assert cluster.p1.requests, "no API server was asked: nothing is shown"
    for request in cluster.p1.requests:
        _only_asks(request)


@pytest.mark.parametrize("command", sorted(set(ATTEMPTS) - {"fix --from memory"}))
def test_nor_where_servers_are_in_trouble(cluster: LostKeyCluster, command: str) -> None:
    """Lost caches, overload, a death midway, refused rights: no other way is tried than to ask."""
    if command == "fix --from object":
        cluster.rescue()  # while it could be
    with beside(cluster, NEW) as p2:
        cluster.p1.lose_cache("secrets")
        cluster.p1.behaviour.overloaded = 2
        cluster.p1.behaviour.denied.add(("delete", "secrets"))
        p2.die_after(2)
        list(ATTEMPTS[command](cluster))
        for request in [*cluster.p1.requests, *p2.requests]:
            _only_asks(request)


def test_one_patch_for_each_object_and_nothing_else(cluster: LostKeyCluster, asked: Asked) -> None:
    before = {key: json.loads(_served(cluster, key)) for key in cluster.keys}
    runs = list(_from_memory(cluster))
    assert [ran.code for ran in runs] == [0, 0, 0], runs
    assert asked.reads
    assert asked.writing == []  # API servers write, not we
    patches = [request for request in cluster.p1.requests if request.method == "PATCH"]
    for request in cluster.p1.requests:
        if request.method != "PATCH":
            _only_asks(request)
    assert len(patches) == len(before)
    for request in patches:
        (old,) = (o for o in before.values() if request.place.endswith(f"/{o['metadata']['name']}"))
        assert request.content_type == "application/merge-patch+json"
        assert set(request.query) <= {"fieldManager"}
        assert set(request.body) == {"metadata"}
        metadata: dict[str, Any] = request.body["metadata"]
        assert set(metadata) == {"uid", "resourceVersion", "annotations"}
        assert metadata["uid"] == old["metadata"]["uid"]
        assert metadata["resourceVersion"] == old["metadata"]["resourceVersion"]
        assert set(metadata["annotations"]) == {FIXED_AT}


@pytest.fixture
def logged(
    start_local_etcd: Callable[..., EtcdServer],
    prefix: bytes,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> Registry:
    data = tmp_path / "data"
    registry = Registry(start_local_etcd(flags=(f"--data-dir={data}",)), prefix, tmp_path, capfd)
    registry.put("shop/lost", aescbc(secret("lost")))
    registry.put("shop/lost", BROKEN)
    for number in range(6):
        registry.put(f"shop/later-{number}", aescbc(secret(f"later-{number}")))
    registry.etcd.put(path().encode(), bootstrap(registry.config.read_bytes(), PASSWORD))
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    return registry


@pytest.mark.parametrize("name", sorted(LOOKS))
def test_a_look_writes_nothing(logged: Registry, name: str) -> None:
    asked, before = Asked(), _files(logged)
    with EtcdProxy(logged.etcd.endpoint, before=asked) as proxy:
        logged.endpoints = proxy.endpoint
        ran = logged.run(*_filled(logged, LOOKS[name]), *logged.common(reason=None, places=False))
    assert ran.code in {0, 1, 3}, ran.err
    assert asked.reads
    assert asked.writing == []
    assert _files(logged) == before


def test_a_fix_from_a_log_is_one_transaction(logged: Registry) -> None:
    asked = Asked()
    (source,) = _filled(logged, ["log:WAL"])
    words = ("--accept", "unknown-uid")
    lost = logged.key("shop/lost")
    with EtcdProxy(logged.etcd.endpoint, before=asked) as proxy:
        logged.endpoints = proxy.endpoint
        dry = logged.put_back(lost, source, *words, "--dry-run", yes=False)
        assert (dry.code, asked.writing) == (0, []), dry.err
        ran = logged.put_back(lost, source, *words)
    assert (ran.code, asked.writing) == (0, [TXN]), ran.err


def _filled(registry: Registry, words: list[str]) -> list[str]:
    found = {
        "KEY": registry.key("shop/lost").decode(),
        "WAL": str(registry.folder / "data" / "member" / "wal"),
        "TOKEN": str(registry.folder / "token"),
    }
    return [found.get(word, word.replace("log:WAL", f"log:{found['WAL']}")) for word in words]


def _files(registry: Registry) -> set[str]:
    return {str(file) for file in (registry.folder / "data").rglob("*")}


def _served(cluster: LostKeyCluster, key: bytes) -> str:
    cached = cluster.p1.process.caches[GroupResource("", "secrets")].memory[key]
    return json.dumps(cached.value)


def _only_asks(request: Request) -> None:
    if request.method == "POST":
        assert request.place in REVIEWS, request.path
    else:
        assert request.method == "GET", (request.method, request.path)
    assert "dryRun" not in request.query
