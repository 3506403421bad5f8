"""Members are only said to differ where each was asked for the same, and answered twice with another hash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import chain, repeat
from typing import Any

import pytest

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd import hashes
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.wire.etcd import HASH_KV, message
from tests.support.etcd_proxy import Refusal
from tests.support.scripted_etcd import (
    COMPACTED,
    FUTURE_REVISION,
    NO_LEADER,
    PERMISSION_DENIED,
    TIMED_OUT,
    Call,
    ScriptedEtcd,
)


def told(number: int, member: int, *, compacted: int = 0, revision: int = 5, newest: int = 9) -> Any:
    header = message("ResponseHeader")(cluster_id=0xC1, member_id=member, revision=newest)
    return message("HashKVResponse")(
        header=header, hash=number, compact_revision=compacted, hash_revision=revision
    )


SAME = [told(1, 1)]
OTHER = [told(2, 2)]
CASES: dict[str, tuple[list[Any], dict[str, Any], bool]] = {
    "other data": (OTHER, {}, True),
    "the same data": ([told(1, 2)], {}, False),
    "one that catches up, and differs": ([FUTURE_REVISION, told(2, 2)], {}, True),
    "one that catches up": ([FUTURE_REVISION, told(1, 2)], {}, False),
    "one that lags for good": ([FUTURE_REVISION], {}, False),
    "other data at another revision": ([told(2, 2, revision=4)], {}, False),
    "compacted further": ([told(2, 2, compacted=3)], {}, False),
    "a write in between": ([told(1, 2, newest=10)], {}, False),
    "compacted past the revision": ([COMPACTED], {}, False),
    "compacted past the revision, and at the newest": ([COMPACTED, told(2, 2)], {}, False),
    "a compaction under way": ([told(2, 2), told(1, 2)], {}, False),
    "one that may not be asked": ([PERMISSION_DENIED], {}, False),
    "one that knows no such call": ([Refusal("UNIMPLEMENTED", "unknown method")], {}, False),
    "one without a leader": ([NO_LEADER], {}, False),
    "one that answers too late": ([TIMED_OUT], {}, False),
    "a learner": (OTHER, {"learner": True}, False),
    "a large one": (OTHER, {"size": 3 << 30}, False),
    "another release": (OTHER, {"version": "3.5.1"}, False),
    "the same member at two addresses": ([told(2, 1)], {}, False),
}


def scripted(answers: Iterator[Any]) -> Callable[[Call], Any]:
    return lambda call: next(answers) if call.path == HASH_KV.path else None


@pytest.fixture
def members() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(("answers", "options", "differs"), CASES.values(), ids=CASES)
def test_only_what_is_proven(
    members: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[Any],
    options: dict[str, Any],
    *,
    differs: bool,
) -> None:
    monkeypatch.setattr(hashes, "_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(hashes, "_PAUSE_SECONDS", 0.05)
    etcds = [members.enter_context(ScriptedEtcd(**each)) for each in ({}, {}, options)]
    for etcd, script in zip(etcds, (SAME, [told(1, 3)], answers), strict=True):
        etcd.script = scripted(chain(script, repeat(script[-1])))
    endpoints = tuple(etcd.endpoint for etcd in etcds)
    client = EtcdClient(EtcdConnection(endpoints=endpoints), on_notice=print)
    with closing(client):
        said = hashes.members_differ(client, 5)
    expected = (
        f"the members differ at revision 5: {endpoints[0]} was read, and other data is at {endpoints[2]}"
    )
    assert said == (expected if differs else "")
    asked = [call.request.revision for etcd in etcds for call in etcd.calls if call.path == HASH_KV.path]
    assert set(asked) <= {5, 0}


@pytest.mark.parametrize(("newest", "differs"), [(5, True), (6, False)])
def test_compacted_at_the_revision_itself(members: ExitStack, newest: int, *, differs: bool) -> None:
    """As after etcdctl compact with the newest revision; what is written meanwhile is no difference."""
    etcds = [members.enter_context(ScriptedEtcd()) for _ in range(2)]
    for etcd, answer in zip(etcds, (told(1, 1, newest=5), told(2, 2, newest=newest)), strict=True):

        def script(call: Call, answer: Any = answer) -> Any:
            if call.path != HASH_KV.path:
                return None
            return COMPACTED if call.request.revision else answer

        etcd.script = script
    endpoints = tuple(etcd.endpoint for etcd in etcds)
    with closing(EtcdClient(EtcdConnection(endpoints=endpoints), on_notice=print)) as client:
        assert bool(hashes.members_differ(client, 5)) == differs


def test_two_others_that_differ_are_named(members: ExitStack) -> None:
    etcds = [members.enter_context(ScriptedEtcd()) for _ in range(3)]
    for etcd, answer in zip(etcds, (COMPACTED, told(1, 2), told(2, 3)), strict=True):
        etcd.script = scripted(repeat(answer))
    first, second, third = (etcd.endpoint for etcd in etcds)
    with closing(EtcdClient(EtcdConnection(endpoints=(first, second, third)), on_notice=print)) as client:
        said = hashes.members_differ(client, 5)
    assert said.endswith(f"{first} was read, {second} has one state, and other data is at {third}")
