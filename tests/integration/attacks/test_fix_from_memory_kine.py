"""Attacks on ``fix --from memory --kine``: a file that API servers do not read, or that changes meanwhile."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcdfix.apiserver import client as api_client
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.apiserver import Answer, Request, StandIn
from tests.support.change_runs import Ran
from tests.support.healing import NEW, LostKeyKineCluster, beside, lost_key_kine_cluster

NAMESPACES = "/api/v1/namespaces?limit=1"
LEASES = "/apis/coordination.k8s.io/v1/leases?limit=1"


@pytest.fixture
def cluster(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], authority: CertificateAuthority
) -> Iterator[LostKeyKineCluster]:
    with lost_key_kine_cluster(tmp_path, capfd, authority) as cluster:
        cluster.rescue()
        cluster.p1.requests.clear()
        yield cluster


@pytest.fixture
def copied(cluster: LostKeyKineCluster, tmp_path: Path) -> Path:
    (tmp_path / "copy").mkdir()
    path = tmp_path / "copy" / "state.db"
    with sqlite3.connect(path) as other:
        cluster.store.writer.connection.backup(other)
    other.close()
    return path


def _refused(cluster: LostKeyKineCluster, *options: str, rule: str, says: str = "") -> dict[str, object]:
    with cluster.unwritten(), cluster.untouched():
        told = cluster.told("one", *options, code=4)
    assert (told["refusal"]["rule"], cluster.patches()) == (rule, []), told["refusal"]
    assert says in told["refusal"]["message"], told["refusal"]
    return dict(told["refusal"])


def test_a_copy_that_nobody_writes(cluster: LostKeyKineCluster, copied: Path) -> None:
    cluster.put("other", b"of another program", resource="elsewhere")
    cluster.file = copied
    _refused(cluster, rule="other-cluster")


def test_a_copy_of_this_very_moment(cluster: LostKeyKineCluster, copied: Path) -> None:
    """Nothing tells it from the file; the first object shows it, and is written nonetheless."""
    cluster.file = copied
    told = cluster.told("one", code=3)
    assert told["result"] == "anomaly"
    assert len(cluster.patches()) == 1


def test_the_file_of_another_k3s_that_was_made_from_a_copy(cluster: LostKeyKineCluster, copied: Path) -> None:
    """It has gone on by itself, further than ours."""
    with sqlite3.connect(copied) as other:
        other.execute(
            "INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value) "
            "VALUES ('/registry/elsewhere/x', 1, 0, 0, 0, 0, x'00')"
        )
    other.close()
    cluster.file = copied
    _refused(cluster, rule="other-cluster", says=f"at {cluster.store.revision()}")


def _says(server: StandIn, answer: Answer) -> None:
    for path in (NAMESPACES, LEASES):
        server.behaviour.instead[path] = answer


def test_a_server_that_reads_another_store(cluster: LostKeyKineCluster) -> None:
    with beside(cluster, NEW) as p2:
        body = {"kind": "NamespaceList", "metadata": {"resourceVersion": "1"}}
        p2.behaviour.instead[NAMESPACES] = Answer(200, json.dumps(body).encode())
        _refused(cluster, rule="other-cluster", says=p2.url)


def test_writes_of_others_are_no_surprise(cluster: LostKeyKineCluster) -> None:
    """A server that answers a little later stands a little further on."""

    def write(_request: Request) -> None:
        cluster.put("busy", b"of another program", resource="elsewhere")

    cluster.p1.before.append(write)
    assert cluster.told("one")["result"] == "fixed"


@pytest.mark.parametrize("status", [403, 500])
def test_a_server_that_does_not_say_where_it_stands(cluster: LostKeyKineCluster, status: int) -> None:
    _says(cluster.p1, Answer(status, b'{"kind": "Status"}'))
    _refused(cluster, rule="unchecked-server")
    accepted = "--accept", f"unchecked-server={cluster.p1.url}"
    _refused(cluster, *accepted, rule="unchecked-server")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seconds: list[int] = []
    monkeypatch.setattr(api_client, "sleep", seconds.append)
    return seconds


def test_a_server_that_has_too_much_to_do_to_say_it(cluster: LostKeyKineCluster, slept: list[int]) -> None:
    _says(cluster.p1, Answer(429, b"too many", headers=(("Retry-After", "2"),)))
    refusal = _refused(cluster, rule="unchecked-server")
    assert (refusal["next_step"], slept) == ("run the same again in a moment", [2] * 10)


def test_a_server_that_says_it_a_little_later(
    cluster: LostKeyKineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read again after the answer: what was written meanwhile is no surprise."""
    _says(cluster.p1, Answer(429, b"too many"))

    def sleep(_seconds: int) -> None:
        cluster.p1.behaviour.instead.clear()
        cluster.put("busy", b"of another program", resource="elsewhere")

    monkeypatch.setattr(api_client, "sleep", sleep)
    assert cluster.told("one")["result"] == "fixed"


def test_one_of_two_that_need_not_say_it(cluster: LostKeyKineCluster) -> None:
    with beside(cluster, NEW) as p2:
        _says(p2, Answer(403, b'{"kind": "Status"}'))
        _refused(cluster, rule="unchecked-server", says=p2.url)
        told = cluster.told("one", "--accept", f"unchecked-server={p2.url}")
    assert told["result"] == "fixed"


def test_namespaces_that_cannot_be_listed(cluster: LostKeyKineCluster) -> None:
    cluster.p1.behaviour.instead[NAMESPACES] = Answer(500, b'{"kind": "Status"}')
    assert cluster.told("one")["result"] == "fixed"


def _at_patch(cluster: LostKeyKineCluster, action: Callable[[], object]) -> None:
    def arrived(request: Request) -> None:
        if request.method == "PATCH" and len(cluster.patches()) <= 1:
            action()

    cluster.p1.before.append(arrived)


def _left_open(cluster: LostKeyKineCluster) -> None:
    away = cluster.store.path.with_name("away.db")
    _at_patch(cluster, lambda: cluster.store.path.rename(away))
    assert cluster.told("one", code=3)["result"] == "unknown"
    away.rename(cluster.store.path)


def _settle(cluster: LostKeyKineCluster, *words: str) -> Ran:
    reading = ["--etcd-prefix", cluster.prefix, "--encryption-config", str(cluster.config)]
    return cluster.run("log", "settle", *words, *reading, str(cluster.log))


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_copy_settles_nothing(cluster: LostKeyKineCluster, copied: Path, dry_run: bool) -> None:
    """It was made before the request, and would say that nothing was done."""
    _left_open(cluster)
    recorded = cluster.log.read_bytes()
    ran = _settle(cluster, "--kine", str(copied), *(["--dry-run"] if dry_run else []))
    assert ran.code == 4, ran
    assert f"--kine {cluster.store.path}" in ran.out
    assert cluster.log.read_bytes() == recorded
    ran = _settle(cluster, *cluster.where)
    assert (ran.code, "fixed" in ran.out) == (0, True), ran


def test_the_same_file_by_another_name(
    cluster: LostKeyKineCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cluster.store.path.parent)
    cluster.file = Path(cluster.store.path.name)
    _left_open(cluster)
    monkeypatch.chdir(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(cluster.store.path.parent)
    ran = _settle(cluster, "--kine", str(link / cluster.store.path.name))
    assert (ran.code, "fixed" in ran.out) == (0, True), ran


def test_reconciling_asks_no_other_etcd(cluster: LostKeyKineCluster) -> None:
    _left_open(cluster)
    ran = _settle(cluster, *cluster.where, "--main-endpoints", "127.0.0.1:1")
    assert (ran.code, "--kine and --main-endpoints" in ran.err) == (2, True), ran


def test_a_file_that_does_not_name_its_cluster(cluster: LostKeyKineCluster) -> None:
    cluster.remove(cluster.key("kube-system", "namespaces"))
    removed = cluster.store.writer.newest
    cluster.place(cluster.key("other", "namespaces"), b"later")
    cluster.store.writer.compact(removed)
    refusal = _refused(cluster, rule="unknown-cluster")
    assert "--etcd-prefix" in str(refusal["next_step"])
    for other in ("--main-endpoints", "--accept", "unknown-cluster"):
        assert other not in str(refusal["next_step"])


@pytest.mark.parametrize("what", ["compaction", "checkpoint", "vacuum"])
def test_what_kine_does_by_itself_moves_nothing(cluster: LostKeyKineCluster, what: str) -> None:
    """Between the look and the request, and between the request and the look after it."""
    writer = cluster.store.writer

    def tidy(_request: Request) -> None:
        with cluster.store.lock:
            match what:
                case "compaction":
                    writer.compact(writer.newest)
                case "checkpoint":
                    writer.checkpoint("TRUNCATE")
                case "vacuum":
                    writer.connection.execute("VACUUM")

    cluster.written_twice("three")
    cluster.rescue("three")
    cluster.p1.before.append(tidy)
    assert [cluster.told(name)["result"] for name in ("one", "two", "three")] == ["fixed"] * 3


def test_a_damaged_file_decides_nothing(cluster: LostKeyKineCluster, copied: Path) -> None:
    raw = bytearray(copied.read_bytes())
    page = int.from_bytes(raw[16:18], "big")
    root = (
        sqlite3.connect(copied)
        .execute("SELECT rootpage FROM sqlite_master WHERE name = 'kine'")
        .fetchone()[0]
    )
    raw[(root - 1) * page + 8 : root * page] = bytes(page - 8)
    copied.write_bytes(raw)
    cluster.file = copied
    with cluster.unwritten(), cluster.untouched():
        ran = cluster.fix("one")
    assert ran.code == 5, ran
    assert cluster.patches() == []
    assert str(copied) in ran.err


@pytest.mark.parametrize("option", ["--endpoints", "--main-endpoints"])
def test_another_source_beside_it(cluster: LostKeyKineCluster, option: str) -> None:
    with cluster.unwritten(), cluster.untouched():
        ran = cluster.fix("one", option, "127.0.0.1:1")
    assert (ran.code, cluster.patches(), option in ran.err) == (2, [], True), ran


def test_nothing_is_left_beside_the_file_or_in_the_temporary_directory(
    cluster: LostKeyKineCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    beside_it = sorted(path.name for path in cluster.store.path.parent.iterdir())
    cluster.told("one")
    assert list(place.iterdir()) == []
    assert sorted(path.name for path in cluster.store.path.parent.iterdir()) == beside_it


def test_no_room_for_a_copy(
    cluster: LostKeyKineCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At the look after the request: what became of it is not known, and the intent stays open."""
    full = shutil.Error("no")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device") from full

    _at_patch(cluster, lambda: monkeypatch.setattr("tempfile.mkdtemp", refuse))
    told = cluster.told("one", code=3)
    assert told["result"] == "unknown"
    (settle,) = [step for step in told["follow_ups"] if "log settle" in step["command"]]
    assert str(cluster.log) in settle["command"]
    monkeypatch.undo()
