"""One deletion ends the cached reads of its kind: it is refused while others of the kind are held and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.cli.options import DELETION_RULES
from etcdfix.copies.rescued import INDEX_NAME, read_index
from tests.support.audit_logs import own_directory
from tests.support.change_runs import Ran
from tests.support.healing import DATA, LoseKey, LostKeyCluster
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


def test_the_last_of_its_kind_ends_nothing(ground: LostKeyCluster) -> None:
    for key in ground.keys[1:]:
        ground.etcd.delete(key)
    ran = lost(ground, ground.keys[0])
    assert ran.code == 0, ran.err
    assert "give all of them up" not in ran.err


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


def test_another_cause_does_not_make_the_deletion_harmless(ground: LostKeyCluster) -> None:
    broken = ground.put("shop/broken", b"k8s:enc:aescbc:v1:key2:short")
    with ground.untouched():
        ran = ground.delete(broken)
    assert ran.code == 4
    assert "--accept ends-cached-reads" in ran.err
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
