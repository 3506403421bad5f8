"""One deletion ends the cached reads of its kind: it is refused while others of the kind are held and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from etcdfix.apiserver.client import Reply, Server
from etcdfix.apiserver.memory import Memory
from etcdfix.apiserver.objects import APIObject
from etcdfix.cli.options import DELETION_RULES
from etcdfix.copies.rescued import INDEX_NAME, read_index
from etcdfix.remediation.checks import cached_reads
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.apiserver import Answer, StandIn
from tests.support.audit_logs import own_directory
from tests.support.change_runs import Ran
from tests.support.healing import DATA, NEW, LoseKey, LostKeyCluster
from tests.support.objects import secret

pytestmark = pytest.mark.etcd

LOST = "aescbc/v1/key1"
ACCEPTED = ("--accept", "ends-cached-reads")


def lost(cluster: LostKeyCluster, key: bytes, *arguments: str | Path, api: bool = True) -> Ran:
    given = ["--declare-key-lost", LOST, *map(str, arguments)]
    given += ["--kubeconfig", str(cluster.kubeconfig)] if api else ["--accept", "no-api-server"]
    ran = cluster.delete(key, *given)
    cluster.shows_nothing(ran)
    return ran


def refused_for_others(cluster: LostKeyCluster, key: bytes, *arguments: str | Path) -> Ran:
    with cluster.untouched():
        ran = lost(cluster, key, *arguments)
    assert ran.code == 4, ran
    assert "whose encryption key is lost" in ran.err
    assert "--accept ends-cached-reads" in ran.err
    return ran


def rescue(cluster: LostKeyCluster, *, log: Path | None = None) -> None:
    """Save what the server holds, as the command does: the digests go on a log."""
    ran = cluster.run(
        "rescue", "--from-report", str(cluster.report()), "--kubeconfig", str(cluster.kubeconfig),
        "--rescued", str(cluster.saved), "--audit-log", str(log or cluster.log),
    )  # fmt: skip
    assert ran.code == 0, ran


@pytest.fixture
def ground(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    with lose_key(("one", "three", "two")) as cluster:
        yield cluster


def test_while_others_are_held_and_not_saved_nothing_is_deleted(ground: LostKeyCluster) -> None:
    ran = refused_for_others(ground, ground.keys[0])
    assert (
        f"2 other values of secrets whose encryption key is lost ({ground.prefix}/secrets/shop/three, "
        in ran.err
    )
    assert f"{ground.p1.url} holds them" in ran.err
    assert "etcdfix rescue" in ran.err


def test_once_they_are_saved_one_may_go(ground: LostKeyCluster) -> None:
    rescue(ground)
    ran = lost(ground, ground.keys[0], "--rescued", ground.saved)
    assert ran.code == 0, ran.err


def test_no_other_flag_lifts_it(ground: LostKeyCluster) -> None:
    others = [
        word for risk in DELETION_RULES if risk.value not in ACCEPTED for word in ("--accept", risk.value)
    ]
    refused_for_others(
        ground, ground.keys[0], *others, "--accept", "no-api-server", "--accept", "unknown-cluster"
    )


def test_accepted_it_is_a_warning_and_on_record(ground: LostKeyCluster) -> None:
    ran = lost(ground, ground.keys[0], *ACCEPTED)
    assert ran.code == 0, ran.err
    assert "give all of them up with this deletion" in ran.err
    assert "--accept ends-cached-reads" in ground.records()[0].accepted


def test_that_no_api_server_can_be_asked_is_another_rule(ground: LostKeyCluster) -> None:
    ran = lost(ground, ground.keys[0], api=False)
    assert ran.code == 4
    assert "no API server was asked whether it holds them" in ran.err
    ran = lost(ground, ground.keys[0], *ACCEPTED, api=False)
    assert ran.code == 0, ran.err


def test_the_last_of_its_kind_ends_nothing(ground: LostKeyCluster) -> None:
    for key in ground.keys[1:]:
        ground.etcd.delete(key)
    ran = lost(ground, ground.keys[0])
    assert ran.code == 0, ran.err
    assert "give all of them up" not in ran.err


def test_a_server_that_has_lost_the_kind_holds_nothing(ground: LostKeyCluster) -> None:
    ground.p1.lose_cache("secrets")
    ran = lost(ground, ground.keys[0])
    assert ran.code == 0, ran.err
    assert "holds them" not in ran.err


def test_a_server_that_does_not_say_may_hold_them(ground: LostKeyCluster) -> None:
    path = "/api/v1/namespaces/shop/secrets/one?resourceVersion=0"
    ground.p1.behaviour.instead[path] = Answer(
        429, b"Too many requests, please try again later.\n", "text/plain"
    )
    ran = refused_for_others(ground, ground.keys[0])
    assert "may hold them: it is overloaded (429)" in ran.err


def test_a_server_that_does_not_know_the_user_may_hold_them(
    ground: LostKeyCluster, authority: CertificateAuthority
) -> None:
    with StandIn(authority, store=ground.p1.store, configuration=NEW, prefix=ground.prefix) as other:
        other.behaviour.users.clear()
        ran = refused_for_others(ground, ground.keys[0], "--server", other.url)
        ground.p1.lose_cache("secrets")
        assert f"{other.url} may hold them" in ran.err
        assert refused_for_others(ground, ground.keys[0], "--server", other.url)


def test_an_object_that_is_too_new_for_the_memory_is_no_proof(ground: LostKeyCluster) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "details": {"name": "one"}, "code": 404}
    path = "/api/v1/namespaces/shop/secrets/one?resourceVersion=0"
    ground.p1.behaviour.instead[path] = Answer(404, json.dumps(status).encode())
    ran = refused_for_others(ground, ground.keys[0])
    assert f"{ground.p1.url} holds them" in ran.err


def test_only_some_are_named_and_those_that_can_be_read_do_not_count(ground: LostKeyCluster) -> None:
    key = ground.keys[0]
    value = ground.stored(key)
    assert value is not None
    ground.p1.behaviour.given_up_after = 60  # the server cannot read what is written here
    for number in range(3):
        ground.put(f"shop/more-{number}", value)
    ground.put("shop/plain", secret("plain"))
    ran = refused_for_others(ground, key)
    assert "5 other values of secrets" in ran.err
    assert "shop/more-2, …)" in ran.err


class Replies:
    def __init__(self, **replies: Reply) -> None:
        self.replies = replies

    def ask(self, path: str, **_how: Any) -> Reply:
        version = path.removeprefix("/apis/example.com/").partition("/")[0]
        return self.replies.get(version) or self.replies.get(path.rpartition("/")[2], Reply(404, b""))


def test_a_kind_in_the_version_that_the_server_serves() -> None:
    """Of a custom resource only the server can tell the version; one that does not tell may hold the kind."""
    thing = APIObject("example.com", "", "widgets", "shop", "w1")
    group = b'{"kind":"APIGroup","versions":[{"version":"v1"}]}'
    name = "w1?resourceVersion=0"
    two = b'{"kind":"APIGroup","preferredVersion":{"version":"v2"},"versions":[{"version":"v2"},{"version":"v1"}]}'
    widget = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'
    widget += b'{"name":"w1","namespace":"shop","uid":"u","resourceVersion":"4"}}'
    for replies, word in (
        ({"example.com": Reply(200, two), "v1": Reply(200, widget), "v2": Reply(500, b"")}, Memory.HELD),
        ({"example.com": Reply(200, two), "v1": Reply(404, b""), "v2": Reply(500, b"")}, Memory.READ_ERROR),
        ({"example.com": Reply(500, b"")}, Memory.NO_ANSWER),
        ({"example.com": Reply(200, group), name: Reply(500, b"")}, Memory.READ_ERROR),
        ({"example.com": Reply(200, group)}, Memory.NOT_SERVED),
    ):
        assert cached_reads._kind_of(cast("Server", Replies(**replies)), thing).word is word


def test_a_server_that_cannot_be_reached_is_told(ground: LostKeyCluster) -> None:
    ground.p1.lose_cache("secrets")
    ran = lost(ground, ground.keys[0], "--server", "https://127.0.0.1:9")
    assert ran.code == 0, ran.err
    assert "https://127.0.0.1:9 may hold secrets in memory" in ran.err


def test_a_server_that_runs_and_cannot_be_asked_may_hold_them(ground: LostKeyCluster, tmp_path: Path) -> None:
    """It answers, and nothing proves who it is: its memory ends with the deletion all the same."""
    ground.p1.lose_cache("secrets")
    others = CertificateAuthority(tmp_path / "others")
    with StandIn(
        others, store=ground.p1.store, configuration=NEW, prefix=ground.prefix, furnished=False
    ) as other:
        ran = refused_for_others(ground, ground.keys[0], "--server", other.url)
    assert f"{other.url} may hold them: the TLS connection failed" in ran.err


def test_another_cause_does_not_make_the_deletion_harmless(ground: LostKeyCluster) -> None:
    broken = ground.put("shop/broken", b"k8s:enc:aescbc:v1:key2:short")
    with ground.untouched():
        ran = ground.delete(broken)
    assert ran.code == 4
    assert "no API server was asked whether it holds them" in ran.err
    assert ground.delete(broken, "--accept", "no-api-server").code == 4
    assert ground.delete(broken, *ACCEPTED).code == 0


def test_digests_that_are_on_another_log_do_not_count(ground: LostKeyCluster) -> None:
    rescue(ground, log=own_directory(ground.folder / "elsewhere") / "audit.jsonl")
    refused_for_others(ground, ground.keys[0], "--rescued", ground.saved)
    rescue(ground)  # asks anew: only what a server gives goes on a log
    assert lost(ground, ground.keys[0], "--rescued", ground.saved).code == 0


def test_a_copy_of_an_earlier_write_does_not_count(ground: LostKeyCluster) -> None:
    rescue(ground)
    ground.p1.behaviour.given_up_after = 60  # what follows is a change that the server cannot read
    value = ground.stored(ground.keys[1])
    assert value is not None
    ground.etcd.put(ground.keys[1], value)
    ran = refused_for_others(ground, ground.keys[0], "--rescued", ground.saved)
    assert "1 other value of secrets" in ran.err


def test_a_file_that_was_changed_or_removed_does_not_count(ground: LostKeyCluster) -> None:
    rescue(ground)
    by_key = read_index(ground.saved).by_key()
    (one,), (two,) = by_key[ground.keys[1]], by_key[ground.keys[2]]
    path = ground.saved / one.file
    path.write_bytes(path.read_bytes().replace(DATA.encode(), DATA[::-1].encode()))
    (ground.saved / two.file).unlink()
    ran = refused_for_others(ground, ground.keys[0], "--rescued", ground.saved)
    assert "2 other values of secrets" in ran.err


def test_an_index_that_somebody_wrote_does_not_count(ground: LostKeyCluster) -> None:
    """A file of the right shape, with a digest that fits it: but nothing says that an API server gave it."""
    from etcdfix.copies.rescued import file_name
    from etcdfix.model.model import digest_of

    rescue(ground)
    lines: list[str] = []
    for saved in read_index(ground.saved).objects:
        raw = (ground.saved / saved.file).read_bytes().replace(DATA.encode(), b"Zm9yZ2Vk")
        sha256 = digest_of(raw)
        name = file_name(saved.key, saved.resource_version, sha256)
        (ground.saved / name).write_bytes(raw)
        line = json.loads((ground.saved / INDEX_NAME).read_bytes().splitlines()[len(lines)])
        lines.append(json.dumps(line | {"sha256": sha256, "file": name, "size": len(raw)}))
    (ground.saved / INDEX_NAME).write_text("\n".join(lines) + "\n")
    refused_for_others(ground, ground.keys[0], "--rescued", ground.saved)


def test_an_old_copy_under_a_new_revision_does_not_count(ground: LostKeyCluster) -> None:
    """Its digest is on record; but the index was edited to say that it is of the value that stands there now."""
    rescue(ground)
    ground.p1.behaviour.given_up_after = 60
    value = ground.stored(ground.keys[1])
    assert value is not None
    ground.etcd.put(ground.keys[1], value)
    now = str(ground.mod_revision(ground.keys[1]))
    index = ground.saved / INDEX_NAME
    lines = []
    for line in map(json.loads, index.read_bytes().splitlines()):
        if line["name"] == "three":
            old = line["file"]
            line["file"] = old.replace(f"-{line['resource_version']}-", f"-{now}-")
            line["resource_version"] = now
            (ground.saved / old).rename(ground.saved / line["file"])
        lines.append(json.dumps(line))
    index.write_text("\n".join(lines) + "\n")
    ran = refused_for_others(ground, ground.keys[0], "--rescued", ground.saved)
    assert "1 other value of secrets" in ran.err


def test_copies_of_another_cluster_do_not_count(ground: LostKeyCluster) -> None:
    rescue(ground)
    index = ground.saved / INDEX_NAME
    index.write_bytes(index.read_bytes().replace(ground.p1.uid.encode(), b"another-cluster"))
    refused_for_others(ground, ground.keys[0], "--rescued", ground.saved)


def test_a_directory_without_an_index_is_an_error(ground: LostKeyCluster) -> None:
    with ground.untouched():
        ran = lost(ground, ground.keys[0], "--rescued", ground.saved)
    assert ran.code == 2
    assert "--rescued" in ran.err
