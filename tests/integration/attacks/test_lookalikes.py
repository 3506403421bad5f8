"""Healthy values among many of a lost key that look like them: same envelope, same size, same nonce. None may go.

What was said of one value, in a scan, a plan, a dry run or a pass over everything, must never be said of another.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from etcdfix.model.rules import Rule
from etcdfix.report.planfile import load_plan
from tests.support.attacks import (
    EVERY_FLAG,
    OTHER,
    TRUE,
    WRONG,
    Attacked,
    config_map,
    declared,
    every_flag_but,
    of_one_name,
    seal,
    secret,
)
from tests.support.change_runs import Ran, candidate_config
from tests.support.etcd_proxy import EtcdProxy
from tests.support.objects import IDENTITY, provider
from tests.support.plan_runs import planned
from tests.support.thorough import THOROUGH

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

LOST = [f"db-{number}" for number in range(4)]
PLACES = {"first": ("aa-0", 0), "in the middle": ("db-2a", 2), "last": ("zz-0", 4)}
"""Name of the healthy value, and how many of the others are written before it."""


class Crowd(NamedTuple):
    """Values that nothing reads, and one among them that is healthy."""

    lost: list[bytes]
    healthy: bytes


def written(registry: Attacked, kind: str, name: str, key: bytes) -> bytes:
    at = registry.key(f"shop/{name}")
    registry.etcd.put(at, seal(kind, secret(name), at, key))
    return at


def crowd(registry: Attacked, kind: str, place: str) -> Crowd:
    name, before = PLACES[place]
    lost = [written(registry, kind, one, OTHER) for one in LOST[:before]]
    healthy = written(registry, kind, name, TRUE)
    return Crowd(lost + [written(registry, kind, one, OTHER) for one in LOST[before:]], healthy)


def configure(registry: Attacked, kind: str, how: str) -> None:
    wrong = provider(kind, key1=WRONG)
    match how:
        case "under another name":
            registry.rules(("secrets", (provider(kind, key1=WRONG, key2=TRUE), IDENTITY)))
        case "in another rule":
            registry.rules(
                ("secrets", (wrong, IDENTITY)), ("configmaps", (provider(kind, key1=TRUE), IDENTITY))
            )
        case "under the same name":
            registry.rules(("secrets", (of_one_name(kind, WRONG, TRUE), IDENTITY)))
        case _:
            registry.rules(("secrets", (wrong, IDENTITY)))


READABLE = "under the same name"
HAD = {
    "under another name": "curable-by-configuration",
    "in another rule": "curable-by-configuration",
    READABLE: "readable",
}


@pytest.mark.parametrize(
    ("place", "kind", "how"),
    [
        ("first", "aesgcm", "under another name"),
        ("in the middle", "aescbc", "in another rule"),
        ("last", "secretbox", READABLE),
        ("in the middle", "aesgcm", READABLE),
    ],
)
def test_one_whose_key_is_there_among_those_whose_key_is_not(
    registry: Attacked, kind: str, place: str, how: str
) -> None:
    found = crowd(registry, kind, place)
    configure(registry, kind, how)
    plan = planned(registry)
    assert {entry.key.encode() for entry in load_plan(plan).entries} == set(found.lost)
    lost = declared(f"{kind}/v1/key1")
    every = (*EVERY_FLAG, *lost)
    registry.refuses([found.healthy], *EVERY_FLAG, rule=HAD[how])
    for more in ((), ("--plan", str(plan))):
        registry.refuses([found.healthy], *every, *more)
    # The last one may have been written under either of two keys of one name, and the other one opens something.
    for at in found.lost[: -1 if how == READABLE else None]:
        ran = registry.delete(at, *lost, "--accept", "unproven-damage", "--plan", str(plan))
        assert (ran.code, registry.stored(at)) == (0, None), ran.err
        # With each that goes it looks more like the rest.
        registry.refuses([found.healthy], *every, "--plan", str(plan))
    registry.refuses([found.healthy], *every)


@pytest.mark.parametrize(("kind", "how"), [("aesgcm", READABLE), ("aescbc", "under another name")])
def test_replaced_between_dry_run_and_deletion(registry: Attacked, kind: str, how: str) -> None:
    """By a healthy one with the same envelope, nonce and size; nothing tells them apart but what comes out."""
    found = crowd(registry, kind, "in the middle")
    configure(registry, kind, how)
    plan = planned(registry)
    flags = (*EVERY_FLAG, *declared(f"{kind}/v1/key1"))
    at = found.lost[2]
    before = registry.stored(at) or b""
    for more in ((), ("--plan", str(plan))):
        assert registry.delete(at, *flags, *more, "--dry-run").code == 0
    written(registry, kind, LOST[2], TRUE)
    after = registry.stored(at) or b""
    assert (len(after), after[:35], after == before) == (len(before), before[:35], False)
    registry.refuses([at], *flags, "--plan", str(plan))
    registry.refuses([at], *flags)
    registry.refuses([at], *EVERY_FLAG, rule=HAD[how])


@pytest.mark.parametrize("moment", range(40) if THOROUGH else random.Random(5).sample(range(40), 6))
def test_replaced_while_a_deletion_looks(registry: Attacked, moment: int) -> None:
    """Before any of the questions that a deletion asks etcd; what was put there stays, whatever the command says."""
    found = crowd(registry, "aesgcm", "in the middle")
    configure(registry, "aesgcm", "under the same name")
    at, healthy = found.lost[2], seal("aesgcm", secret(LOST[2]), found.lost[2])
    asked: list[str] = []

    def before(path: str, _request: bytes) -> None:
        if len(asked) == moment:
            registry.etcd.put(at, healthy)
        asked.append(path)

    with EtcdProxy(registry.etcd.endpoint, before=before) as proxy:
        registry.endpoints = proxy.endpoint
        ran = registry.delete(at, *EVERY_FLAG, *declared("aesgcm/v1/key1"))
    if len(asked) <= moment:
        assert (ran.code, registry.stored(at)) == (0, None), ran.err
        return
    assert registry.stored(at) == healthy
    (sent,) = [number for number, path in enumerate(asked) if path.endswith("/Txn")][-1:] or [len(asked)]
    if moment <= sent:
        assert ran.code == 4, ran


@pytest.mark.parametrize(("kind", "how"), [("secretbox", "under another name"), ("aescbc", READABLE)])
def test_a_key_that_comes_back_between_dry_run_and_deletion(registry: Attacked, kind: str, how: str) -> None:
    keys = registry.secrets(kind, LOST)
    configure(registry, kind, "nowhere")
    plan = planned(registry)
    flags = (*EVERY_FLAG, *declared(f"{kind}/v1/key1"))
    assert registry.delete(keys[0], *flags, "--plan", str(plan), "--dry-run").code == 0
    configure(registry, kind, how)
    registry.refuses(keys[:2], *flags, "--plan", str(plan))
    registry.refuses(keys[:2], *flags)


def test_one_that_can_be_repaired_among_those_of_a_lost_key(registry: Attacked) -> None:
    """Its nonce is off by a bit: noise under every key, as all around it, and whole once that is put back."""
    found = crowd(registry, "aesgcm", "in the middle")
    registry.keyed("aesgcm", TRUE)
    value = bytearray(registry.stored(found.healthy) or b"")
    value[len("k8s:enc:aesgcm:v1:key1:") + 5] ^= 8
    registry.etcd.put(found.healthy, bytes(value))
    lost = declared("aesgcm/v1/key1")
    plan = planned(registry)
    for more in ((), ("--plan", str(plan))):
        flags = (*every_flag_but(Rule.ONLY_COPY), *lost, *more)
        registry.refuses([found.healthy], *flags, hint="put it right: etcdfix fix")
    for at in found.lost:
        assert registry.delete(at, *lost, "--dry-run").code == 0
        with registry.nothing_changes():
            assert registry.put_back(at, "bit").code == 4
    ran = registry.put_back(found.healthy, "bit")
    assert ran.code == 0, ran.err
    registry.refuses([found.healthy], *EVERY_FLAG, *lost, rule="readable")


def test_equal_envelopes_in_two_resources(registry: Attacked) -> None:
    """One rule has the bytes, one has not; names, sizes, nonces and even stored bytes are the same."""
    kind = "secretbox"
    registry.rules(
        ("secrets", (provider(kind, key1=WRONG), IDENTITY)),
        ("configmaps", (provider(kind, key1=TRUE), IDENTITY)),
    )
    lost, healthy = [], []
    for name in LOST:
        at, there = registry.key(f"shop/{name}"), registry.key(f"shop/{name}", "configmaps")
        sealed = seal(kind, config_map(name), there)
        registry.etcd.put_all([(there, sealed), (at, sealed)])
        lost.append(at)
        healthy.append(there)
    plan = planned(registry)
    assert load_plan(plan).entries == ()
    flags = (*EVERY_FLAG, *declared(f"{kind}/v1/key1"), "--plan", str(plan))
    registry.refuses(healthy[:2], *flags)
    registry.refuses(healthy[2:], *EVERY_FLAG, rule="readable")
    # The copies are under a key that is there, if in another rule: nothing makes them go.
    registry.refuses(lost[:2], *EVERY_FLAG, cause="key-renamed")


def test_a_fix_over_a_healthy_one(registry: Attacked) -> None:
    """An earlier revision reads; the present value looks as those around it, and its key is only named otherwise."""
    name, at = "db-2a", registry.key("shop/db-2a")
    registry.etcd.put(at, seal("aesgcm", secret(name), at, WRONG))
    earlier = registry.mod_revision(at)
    found = crowd(registry, "aesgcm", "in the middle")
    assert found.healthy == at
    newest = written(registry, "aesgcm", "newest", WRONG)
    configure(registry, "aesgcm", "under another name")
    given = (at, f"revision:{earlier}")
    with registry.nothing_changes():
        refused(registry.put_back(*given, *every_flag_but(of=())))
    registry.rules(("secrets", (provider("aesgcm", key1=WRONG), IDENTITY)))
    # Only where its key is nowhere any more may it make room.
    registry.etcd.delete(newest)
    with registry.nothing_changes():
        refused(registry.put_back(*given, *every_flag_but(of=())))


@pytest.mark.parametrize("how", ["under the same name", "nowhere"])
def test_a_candidate_among_many(registry: Attacked, tmp_path: Path, how: str) -> None:
    """Only what a candidate opens and today's configuration does not is written anew."""
    found = crowd(registry, "aesgcm", "last")
    configure(registry, "aesgcm", how)
    written(registry, "aesgcm", "zz-newest", WRONG)
    candidate = candidate_config(tmp_path, provider("aesgcm", key1=TRUE))
    with registry.nothing_changes():
        for at in found.lost[:2]:
            refused(registry.put_back(at, f"candidate:{candidate}", "--accept", "no-api-server"))
        if how == "under the same name":
            ran = registry.put_back(found.healthy, f"candidate:{candidate}", "--accept", "no-api-server")
            registry.refused(ran, hint="kubectl edit")
    if how == "nowhere":
        kept = [registry.stored(at) for at in found.lost]
        ran = registry.put_back(found.healthy, f"candidate:{candidate}", "--accept", "no-api-server")
        assert ran.code == 0, ran.err
        assert [registry.stored(at) for at in found.lost] == kept
        registry.refuses([found.healthy], *EVERY_FLAG, *declared("aesgcm/v1/key1"), rule="readable")


def refused(ran: Ran) -> None:
    assert (ran.code, ran.out) == (4, ""), ran
