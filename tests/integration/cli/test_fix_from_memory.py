"""``fix --from memory`` against stand-ins of API servers and a real etcd: what it does, and what it tells."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.copies.rescued import read_index
from etcdfix.remediation.saved_objects import RescueStore
from tests.support.apiserver.https import TOKEN
from tests.support.apiserver.requests import Request
from tests.support.change_runs import ACKNOWLEDGED, Ran
from tests.support.healing import OLD, LoseKey, LostKeyCluster

pytestmark = pytest.mark.etcd

LOST = ("--declare-key-lost", "aescbc/v1/key1")


@pytest.fixture
def cluster(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    with lose_key() as cluster:
        cluster.rescue()
        cluster.p1.requests.clear()
        yield cluster


def test_one_object(cluster: LostKeyCluster) -> None:
    key = cluster.key("shop/one")
    before = cluster.stored_value(key)
    ran = cluster.fix("one")
    assert ran.code == 0, ran
    cluster.shows_nothing(ran)
    after = cluster.stored_value(key)
    assert f"{key.decode()} at revision {after.mod_revision}" in ran.out
    assert "Undo" not in ran.out
    assert after.value.startswith(b"k8s:enc:aescbc:v1:key2:")
    assert (after.create_revision, after.version) == (before.create_revision, before.version + 1)
    (patch,) = cluster.patches()
    assert set(patch["metadata"]) == {"uid", "resourceVersion", "annotations"}
    assert patch["metadata"]["resourceVersion"] == str(before.mod_revision)
    assert list(patch["metadata"]["annotations"]) == ["etcdfix.io/fixed-at"]
    assert [event.verb for event in cluster.records()] == ["fix", "fix"]
    assert cluster.outcomes() == ["fixed"]
    (backup,) = cluster.kept()
    assert backup.content.stored.value == before.value


@pytest.fixture
def ended(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    with lose_key(()) as cluster:
        RescueStore.open(cluster.saved).close()
        yield cluster


@pytest.mark.parametrize("kept_in", ["etcd", "backup"])
def test_the_uid_is_said_by_what_is_still_kept(ended: LostKeyCluster, kept_in: str) -> None:
    first = ended.written_twice("one")
    uid, origin = ended.uid("one"), f"mod_revision {first.mod_revision} in etcd"
    if kept_in == "backup":
        origin = f"backup {ended.back_up(first)}"
        ended.etcd.compact()
    ended.p1.lose_cache("secrets")
    shown = ended.fix("one", "--dry-run", yes=False)
    assert (shown.code, ended.patches()) == (0, []), shown
    assert f" as {origin} says" in shown.err
    assert ended.told("one")["result"] == "fixed"
    assert [patch["metadata"]["uid"] for patch in ended.patches()] == [uid]


def test_from_scan_to_scan_as_it_is_printed(cluster: LostKeyCluster) -> None:
    """Each command is pasted from the one before; FILE, DIR and REASON are filled in, and nothing is refused."""
    cluster.saved = cluster.folder / "made-by-rescue"
    filled = {"FILE": str(cluster.kubeconfig), "DIR": str(cluster.saved), "REASON": "drill"}
    places = ["--audit-log", str(cluster.log)]
    backups = ["--backup-dir", str(cluster.backups)]

    def paste(line: str, *more: str) -> Ran:
        words = [filled.get(word, word) for word in shlex.split(line)]
        assert words[0] == "etcdfix"
        ran = cluster.run(*words[1:], *more)
        cluster.shows_nothing(ran)
        return ran

    reading = ["--etcd-prefix", cluster.prefix, "--encryption-config", str(cluster.config)]
    scan = ["scan", *cluster.where, *reading, "-o", "json"]
    first = json.loads(cluster.run(*scan).out)["summary"]["next"]["command"]
    assert first.startswith("etcdfix rescue secrets ")
    ran = paste(first, *places, "-o", "json")
    assert ran.code == 0, ran.err
    (step,) = json.loads(ran.out)["next"]
    for key in cluster.keys:
        line = step["command"].replace(cluster.keys[0].decode(), key.decode())
        assert paste(line, *backups).code == 0
        ran = paste(line.replace(" --dry-run", ""), *backups, "--yes")
        assert ran.code == 0, ran.err
    assert cluster.run(*scan).code == 0
    assert len(cluster.patches()) == 2


def files(cluster: LostKeyCluster) -> dict[bytes, Path]:
    return {saved.key: cluster.saved / saved.file for saved in read_index(cluster.saved).objects}


def from_file(cluster: LostKeyCluster, key: bytes, file: Path, *arguments: str) -> Ran:
    asked = ("--kubeconfig", str(cluster.kubeconfig), "--accept", "unknown-uid")
    ran = cluster.put_back(key, f"object:{file}", *asked, *arguments)
    cluster.shows_nothing(ran)
    return ran


def test_what_was_rescued_is_served_again(cluster: LostKeyCluster) -> None:
    by_key = files(cluster)
    assert set(by_key) == set(cluster.keys)
    cluster.p1.restart()
    one, two = by_key
    with cluster.untouched():
        ran = from_file(cluster, one, by_key[two], *LOST)
        cluster.refused(ran, 'its name is "two"', hint="this very object")
        ran = from_file(cluster, one, by_key[one])
        cluster.refused(
            ran, "the configuration alone can cure this", hint="--declare-key-lost aescbc/v1/key1"
        )
        ran = from_file(cluster, one, by_key[one], *LOST)
        cluster.refused(
            ran, "nothing shows that the API servers hold the key of aescbc/v1/key2", hint="create a new one"
        )
    cluster.p1.create("v1", "Secret", "etcdfix-write-key", "shop")
    for key, file in by_key.items():
        ran = from_file(cluster, key, file, *LOST)
        assert ran.code == 0, ran.err
    assert cluster.p1.methods <= {"GET", "POST"}  # reviews of what oneself may do are posted
    cluster.p1.restart()
    for key, file in by_key.items():
        saved = json.loads(file.read_bytes())
        path = f"/api/v1/namespaces/shop/secrets/{saved['metadata']['name']}"
        now = json.loads(cluster.p1.answer(Request("GET", path, authorization=f"Bearer {TOKEN}")).body)
        assert now["metadata"].pop("resourceVersion") == str(cluster.mod_revision(key))
        del saved["metadata"]["resourceVersion"]
        assert now == saved


def test_what_was_rescued_never_stands_in_for_what_is_named(cluster: LostKeyCluster) -> None:
    (one, whole), (_, other) = files(cluster).items()
    assert whole.exists()
    cluster.p1.restart()
    cluster.p1.create("v1", "Secret", "etcdfix-write-key", "shop")
    asked = (
        "--kubeconfig", str(cluster.kubeconfig), "--rescued", str(cluster.saved), "--accept", "unknown-uid",
    )  # fmt: skip
    with cluster.untouched():
        for named in (f"object:{other}", "bit"):
            assert cluster.put_back(one, named, *asked, *LOST).code != 0


def test_what_a_server_remembers_is_the_best_copy(lose_key: LoseKey) -> None:
    with lose_key() as cluster:
        key = cluster.key("shop/one").decode()
        cluster.rescue("one")
        asked = ["--kubeconfig", str(cluster.kubeconfig), "--rescued", str(cluster.saved), "-o", "json"]
        with cluster.unwritten():
            ran = cluster.run("copies", key, *asked, *cluster.common(reason=None))
        cluster.shows_nothing(ran)
        assert cluster.p1.methods <= {"GET"}
        (one,) = json.loads(ran.out)["objects"]
        best, saved = one["copies"]
        assert (best["place"], best["grade"], best["later_writes"]) == ("memory", "good", 0)
        assert best["mod_revision"] == saved["mod_revision"] == one["mod_revision"]
        assert best["fix"].startswith(f"etcdfix fix {key} --from memory ")
        assert one["next"]["verb"] == "rescue"  # the whole kind is saved before one is written


def decided(cluster: LostKeyCluster, *rescued: str) -> dict[str, tuple[str, str]]:
    common = [*cluster.where, "--etcd-prefix", cluster.prefix, "--encryption-config", str(cluster.config)]
    plan = cluster.folder / "plan.json"
    plan.unlink(missing_ok=True)
    into = ["-o", "json", "--output-file", str(plan)]
    ran = cluster.run("plan", "--from-report", str(cluster.report()), *rescued, *common, *into)
    assert ran.code in {1, 3}, ran
    document = json.loads(plan.read_bytes())
    pairs = zip(document["entries"], document["decisions"], strict=True)
    return {entry["name"]: (decision["decision"], entry["from"]) for entry, decision in pairs}


def work(cluster: LostKeyCluster, *more: str) -> Ran:
    words = ["plan", "--run", str(cluster.folder / "plan.json"), ACKNOWLEDGED]
    words += ["--rescued", str(cluster.saved), "--kubeconfig", str(cluster.kubeconfig), *cluster.common()]
    dry = cluster.run(*words, "--dry-run", "-o", "json")
    if "--dry-run" in more or dry.code:
        return dry
    digest = json.loads(dry.out)["plan_sha256"]
    return cluster.run(*words, "--yes", "--expect-plan", digest, *more)


def test_every_object_that_was_rescued_is_written_anew(cluster: LostKeyCluster) -> None:
    assert set(decided(cluster).values()) == {("leave", "")}  # the key may turn up
    assert decided(cluster, "--rescued", str(cluster.saved)) == dict.fromkeys(
        ("one", "two"), ("fix", "memory")
    )
    before = {key: cluster.stored_value(key) for key in cluster.keys}
    with cluster.unwritten():
        assert work(cluster, "--dry-run").code == 0
    assert cluster.patches() == []
    ran = work(cluster)
    assert ran.code == 0, ran
    cluster.shows_nothing(ran)
    for key, old in before.items():
        new = cluster.stored_value(key)
        assert new.value.startswith(b"k8s:enc:aescbc:v1:key2:")
        assert (new.create_revision, new.version) == (old.create_revision, old.version + 1)
    assert len(cluster.patches()) == len(cluster.kept()) == 2
    assert len(set(cluster.outcomes())) == 1
    assert work(cluster, "--dry-run").code == 0  # nothing is left


def test_what_is_not_remembered_any_more_stops_the_run(cluster: LostKeyCluster) -> None:
    """A server that has loaded the old key shows that the configuration is wrong, and nothing is written."""
    decided(cluster, "--rescued", str(cluster.saved))
    cluster.p1.reload(OLD)
    with cluster.unwritten():
        ran = work(cluster)
    assert ran.code == 4, ran
    assert cluster.patches() == []


def test_what_was_written_since_it_was_reviewed_is_left(cluster: LostKeyCluster) -> None:
    decided(cluster, "--rescued", str(cluster.saved))
    key = cluster.key("shop/one")
    cluster.place(key, cluster.stored_value(key).value)
    with cluster.unwritten():
        ran = work(cluster)
    assert ran.code == 4, ran
    assert "; the plan has" in ran.err
