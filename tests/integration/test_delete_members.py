"""Deletions on a cluster of three: members that differ, hold a readable copy, or are down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from etcdfix.model.errors import RefusedByRule
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.record import RecordType
from etcdfix.remediation.audit.verify import read_records
from tests.support import objects
from tests.support.etcd_members import EtcdMembers, broken, etcd_members
from tests.support.remediation_ground import Ground, delete, reached, stands, undo

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("short_pauses")]

ODD = "member-2"
"""The member whose data was changed while it was down."""


def odd_one(name: str) -> bytes:
    return broken(name).replace(b"never-to-be-shown", b"never-to-be-SHOWN")


def put_all(members: EtcdMembers, ground: Ground) -> None:
    values = {name: broken(name) for name in ("differs", "healthy-copy", "same", "down", "undone")}
    values["broken-copy"] = objects.secret("broken-copy")
    server = members.server("member-0")
    server.put_all(
        [*ground.furniture().items(), *((ground.key(name), value) for name, value in values.items())]
    )
    server.stop()


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMembers]:
    with etcd_members(tmp_path_factory.mktemp("etcd-members")) as started:
        put_all(started, ground_on(started))
        started.stop(ODD)
        started.tamper(ODD, broken("differs"), odd_one("differs"))
        started.tamper(ODD, broken("healthy-copy"), objects.secret("healthy-copy"))
        started.tamper(ODD, objects.secret("broken-copy"), broken("broken-copy"))
        started.start(ODD, state="existing")
        yield started


def ground_on(members: EtcdMembers, *, first: str = "member-0") -> Ground:
    names = [first, *(name for name in members.names if name != first)]
    return Ground(
        endpoints=tuple(members.endpoint(name) for name in names),
        prefix="/registry",
        encryption="plain",
        folder="",
    )


def refusal(ground: Ground, key: bytes) -> RefusedByRule:
    with reached(ground) as cluster:
        before = stands(cluster, key)
        with pytest.raises(RefusedByRule) as refused:
            delete(ground, key)
        assert stands(cluster, key) == before
    assert refused.value.exit_code == 4
    assert not ground.log.exists()
    return refused.value


def test_member_with_another_value_is_named(members: EtcdMembers, tmp_path: Path) -> None:
    ground = ground_on(members, first="member-1").at(tmp_path / "places")
    found = refusal(ground, ground.key("differs"))
    assert found.rule == Rule.MEMBERS_DISAGREE
    assert [name in found.message for name in members.names] == [False, False, True]


@pytest.mark.parametrize("first", ["member-0", ODD])
@pytest.mark.parametrize("name", ["healthy-copy", "broken-copy"])
def test_member_with_a_readable_copy_saves_the_object(
    members: EtcdMembers, tmp_path: Path, name: str, first: str
) -> None:
    """One alone reads, or one alone does not: whoever is asked first, another knows better."""
    ground = ground_on(members, first=first).at(tmp_path / "places")
    found = refusal(ground, ground.key(name))
    assert found.rule in (Rule.MEMBERS_DISAGREE, Rule.READABLE)  # readable where that one was asked first
    if (name, found.rule) == ("healthy-copy", Rule.MEMBERS_DISAGREE) and first != ODD:
        assert ODD in found.message
        assert f"{ODD} " in found.hint
        assert "do not remove, wipe or restart that member" in found.hint


def test_members_that_agree_let_it_go(members: EtcdMembers, tmp_path: Path) -> None:
    ground = ground_on(members).at(tmp_path / "places")
    key = ground.key("same")

    def values() -> set[bytes | None]:
        found = set[bytes | None]()
        for name in members.names:
            with reached(ground.through(members.endpoint(name))) as cluster:
                now = stands(cluster, key)
                found.add(None if now is None else now.value)
        return found

    outcome = delete(ground, key)
    assert (outcome.result, values()) == ("deleted", {None})
    assert undo(ground, Path(outcome.backups[0])).result == "undone"
    assert values() == {broken("same")}


def test_member_that_is_down_has_to_be_accepted_by_name(members: EtcdMembers, tmp_path: Path) -> None:
    ground = ground_on(members).at(tmp_path / "places")
    key = ground.key("down")
    members.stop("member-1")
    try:
        for unchecked in ((), (ODD,), ("member-9",)):
            found = refusal(msgspec.structs.replace(ground, unchecked=unchecked), key)
            assert found.rule == Rule.UNCHECKED_MEMBER
            assert "member-1" in found.message
            assert found.hint.endswith("--accept unchecked-member=member-1")
        # It says nothing for a member that does answer, and differs.
        accepting = msgspec.structs.replace(ground, unchecked=("member-1",))
        assert refusal(accepting, ground.key("differs")).rule == Rule.MEMBERS_DISAGREE
        assert delete(accepting, key).result == "deleted"
    finally:
        members.start("member-1", state="existing")
    (intent,) = (event for event in read_records(ground.log) if event.type == RecordType.INTENT)
    assert intent.accepted == ("--accept unchecked-member=member-1",)
    (backup,) = ground.backups()
    assert backup.content.stored.value == broken("down")
