"""One deletion ends the cached reads of its kind: it is refused while others of the kind are held and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.options import DELETION_RULES
from etcdfix.copies.rescued import INDEX_NAME, file_name, read_index
from etcdfix.model.model import digest_of
from tests.support.audit_logs import own_directory
from tests.support.change_runs import Ran
from tests.support.healing import DATA, LoseKey, LostKeyCluster
from tests.support.objects import secret

pytestmark = pytest.mark.etcd

LOST = "aescbc/v1/key1"
ACCEPTED = ("--accept", "ends-cached-reads")


def lost(cluster: LostKeyCluster, key: bytes, *arguments: str | Path) -> Ran:
    given = ["--declare-key-lost", LOST, "--kubeconfig", str(cluster.kubeconfig)]
    ran = cluster.delete(key, *given, *map(str, arguments))
    cluster.shows_nothing(ran)
    return ran


def refused_for_others(cluster: LostKeyCluster, key: bytes, *arguments: str | Path) -> Ran:
    with cluster.untouched():
        ran = lost(cluster, key, *arguments)
    assert ran.code == 4, ran
    assert " not open (" in ran.err
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
    """No other word lifts it, another cause does not make the deletion harmless, and one that reads does not count."""
    ground.p1.behaviour.given_up_after = 60  # the server cannot read what is written here
    ground.put("shop/plain", secret("plain"))
    others = [
        word for risk in DELETION_RULES if risk.value not in ACCEPTED for word in ("--accept", risk.value)
    ]
    more = ("--accept", "no-api-server", "--accept", "unknown-cluster")
    ran = refused_for_others(ground, ground.keys[0], *others, *more)
    assert f"2 other values of secrets that do not open ({ground.prefix}/secrets/shop/three" in ran.err
    broken = ground.put("shop/broken", b"k8s:enc:aescbc:v1:key2:short")
    with ground.untouched():
        assert "--accept ends-cached-reads" in ground.delete(broken).err
    assert ground.delete(broken, *ACCEPTED).code == 0


def test_accepted_it_is_a_warning_and_on_record(ground: LostKeyCluster) -> None:
    ran = lost(ground, ground.keys[0], *ACCEPTED)
    assert ran.code == 0, ran.err
    assert "give all of them up with this deletion" in ran.err
    assert "--accept ends-cached-reads" in ground.records()[0].accepted


def test_the_last_of_its_kind_ends_nothing(ground: LostKeyCluster) -> None:
    for key in ground.keys[1:]:
        ground.etcd.delete(key)
    ran = lost(ground, ground.keys[0])
    assert ran.code == 0, ran.err
    assert "give all of them up" not in ran.err


def _write_again(ground: LostKeyCluster) -> None:
    """Leave copies of an earlier write."""
    ground.p1.behaviour.given_up_after = 60  # what follows is a change that the server cannot read
    value = ground.stored(ground.keys[1])
    assert value is not None
    ground.etcd.put(ground.keys[1], value)


def _change_and_remove(ground: LostKeyCluster) -> None:
    by_key = read_index(ground.saved).by_key()
    (one,), (two,) = by_key[ground.keys[1]], by_key[ground.keys[2]]
    path = ground.saved / one.file
    path.write_bytes(path.read_bytes().replace(DATA.encode(), DATA[::-1].encode()))
    (ground.saved / two.file).unlink()


def _edit_index(ground: LostKeyCluster, edit: Callable[[dict[str, Any]], None]) -> None:
    index = ground.saved / INDEX_NAME
    lines = [json.loads(line) for line in index.read_bytes().splitlines()]
    for line in lines:
        edit(line)
    index.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _forge(ground: LostKeyCluster) -> None:
    """Files of the right shape, with digests that fit: but nothing says that an API server gave them."""

    def forge(line: dict[str, Any]) -> None:
        (saved,) = (one for one in saved_objects if one.file == line["file"])
        raw = (ground.saved / saved.file).read_bytes().replace(DATA.encode(), b"Zm9yZ2Vk")
        name = file_name(saved.key, saved.resource_version, digest_of(raw))
        (ground.saved / name).write_bytes(raw)
        line |= {"sha256": digest_of(raw), "file": name, "size": len(raw)}

    saved_objects = read_index(ground.saved).objects
    _edit_index(ground, forge)


def _old_under_a_new_revision(ground: LostKeyCluster) -> None:
    """Its digest is on record; but the index says that it is of the value that stands there now."""
    _write_again(ground)
    now = str(ground.mod_revision(ground.keys[1]))

    def renew(line: dict[str, Any]) -> None:
        if line["name"] == "three":
            old, new = line["file"], line["file"].replace(f"-{line['resource_version']}-", f"-{now}-")
            line |= {"file": new, "resource_version": now}
            (ground.saved / old).rename(ground.saved / new)

    _edit_index(ground, renew)


def _of_another_cluster(ground: LostKeyCluster) -> None:
    index = ground.saved / INDEX_NAME
    index.write_bytes(index.read_bytes().replace(ground.p1.uid.encode(), b"another-cluster"))


@pytest.mark.parametrize(
    ("spoil", "left"),
    [
        (_write_again, 1),
        (_change_and_remove, 2),
        (_forge, 2),
        (_old_under_a_new_revision, 1),
        (_of_another_cluster, 2),
    ],
)
def test_a_copy_that_was_not_saved_from_an_api_server_does_not_count(
    ground: LostKeyCluster, spoil: Callable[[LostKeyCluster], None], left: int
) -> None:
    rescue(ground)
    spoil(ground)
    ran = refused_for_others(ground, ground.keys[0], "--rescued", ground.saved)
    assert f"{left} other value" in ran.err


def test_once_they_are_saved_one_may_go(ground: LostKeyCluster) -> None:
    """Digests that are on another log do not count; nor does a directory without an index."""
    with ground.untouched():
        assert lost(ground, ground.keys[0], "--rescued", ground.saved).code == 2
    rescue(ground, log=own_directory(ground.folder / "elsewhere") / "audit.jsonl")
    refused_for_others(ground, ground.keys[0], "--rescued", ground.saved)
    rescue(ground)  # asks anew: only what a server gives goes on a log
    assert lost(ground, ground.keys[0], "--rescued", ground.saved).code == 0
