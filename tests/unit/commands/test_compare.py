"""Two points in time held against each other, and what is advised where members differ."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from etcdfix.commands.compare import CompareRequest, CompareResult, compare_sources
from etcdfix.commands.comparing.advice import member_advice
from etcdfix.commands.comparing.differences import Differences, Differing, Side
from etcdfix.examine import Examiner
from etcdfix.model import StoredValue
from etcdfix.report.compare import ComparedCopy
from etcdfix.report.render import write
from etcdfix.report.render.text import text_lines
from etcdfix.scope import ScopeRequest
from etcdfix.storagekey import StorageLayout
from etcdfix.text.commands import RunOptions
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aesgcm,
    configuration,
    namespace_object,
    provider,
    secret,
)

LAYOUT = StorageLayout("/registry")
CONFIG = configuration(provider("aesgcm", key1=KEY_1), IDENTITY)
AT = "/registry/secrets/shop/"
RUN = RunOptions(source=("--endpoints", "e:1"), reading=("--encryption-config", "c.yaml"))


def sealed(name: str, key: bytes = KEY_1) -> bytes:
    return aesgcm(secret(name), AT + name, key)


def request(*words: str) -> CompareRequest:
    return CompareRequest(layout=LAYOUT, configuration=CONFIG, scope=ScopeRequest(words), run=RUN)


def compared(earlier: MemorySource, later: MemorySource, *words: str) -> CompareResult:
    return compare_sources(earlier, later, request(*words), earlier_path="old.db")


def document(result: CompareResult) -> dict[str, Any]:
    out = io.BytesIO()
    write(result.report, "json", out, RUN)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def screen(result: CompareResult) -> list[str]:
    return [*text_lines(result.report.document(), RUN, 100)]


EARLIER = MemorySource(
    [
        stored(AT + "gone", sealed("gone")),
        stored(AT + "rotten", sealed("rotten")),
        stored(AT + "same", sealed("same")),
        stored(AT + "updated", sealed("updated")),
        stored(AT + "wrong-key", sealed("wrong-key")),
    ]
)
LATER = MemorySource(
    [
        stored(AT + "new", sealed("new")),
        stored(AT + "rotten", sealed("rotten")[:-1] + b"\x00" + b""),
        stored(AT + "same", sealed("same")),
        stored(AT + "updated", sealed("updated"), mod_revision=9, version=3),
        stored(AT + "wrong-key", sealed("wrong-key", KEY_2), mod_revision=9),
    ]
)


def test_what_became_unreadable_comes_first() -> None:
    result = compared(EARLIER, LATER)
    rows = [(row["key"].removeprefix(AT), row["change"]) for row in document(result)["differences"]]
    assert rows == [
        ("rotten", "unreadable-now"),
        ("wrong-key", "unreadable-now"),
        ("gone", "removed"),
        ("updated", "changed"),
        ("new", "added"),
    ]
    assert result.report.changes == {"unreadable-now": 2, "removed": 1, "changed": 1, "added": 1}
    lines = screen(result)
    assert lines[0] == "UNREADABLE NOW: 2 keys could be read in the earlier one; 5 of 6 keys differ"
    assert len(lines) <= 24
    scan, get = (remedy.command.line(RUN) for remedy in result.report.advice[:2])
    assert f"  {scan}" in lines
    assert scan == f"etcdfix scan --endpoints e:1 --encryption-config c.yaml {AT}rotten"
    assert get == f"etcdfix get --snapshot old.db --encryption-config c.yaml {AT}rotten"


def test_other_bytes_at_one_revision_are_no_change() -> None:
    result = compared(
        MemorySource([stored(AT + "x", sealed("x"))]), MemorySource([stored(AT + "x", secret("x"))])
    )
    assert result.report.changes == {"same-revision-other-bytes": 1}
    assert result.report.advice[0].command.line(RUN).startswith("etcdfix compare --endpoints e:1")


def test_what_a_damaged_file_does_not_show_is_not_called_removed() -> None:
    later = MemorySource([stored(AT + "same", sealed("same"))], problems=["page 7 is damaged"])
    result = compared(EARLIER, later)
    assert (result.report.differing, result.report.unknown, result.report.complete) == (0, 4, False)
    assert "page 7" in result.report.incomplete_reasons[0]
    assert screen(result)[0].startswith("COULD NOT BE TOLD")


def test_all_reasons_are_shown_and_agreement_claims_no_history() -> None:
    report = compared(EARLIER, EARLIER).report
    silent = [f"member m{at} did not answer" for at in range(4)]
    told = msgspec.structs.replace(
        report, mode="members", complete=False, incomplete_reasons=silent, warnings=["m0 has raised CORRUPT"]
    ).document()
    assert told.stakes == [
        f"INCOMPLETE: {silent[0]}",
        f"INCOMPLETE: {silent[1]}",
        "4 more: -o wide lists them",
    ]
    wide = [*text_lines(told, RUN, 100, wide=True)]
    assert any(silent[3] in line for line in wide)
    assert any("CORRUPT" in line for line in wide)
    agree = [*text_lines(msgspec.structs.replace(report, mode="members").document(), RUN, 100)]
    assert agree[:2] == [
        "MEMBERS AGREE on 5 keys at revision 1000: 2 members compared",
        "Older revisions of the keys were not compared.",
    ]
    assert "  etcdctl --endpoints e:1 endpoint hashkv --cluster" in agree


def test_a_source_that_is_lost_midway_makes_nothing_up() -> None:
    later = MemorySource(EARLIER.current(b""), fails_after=2)
    result = compared(EARLIER, later)
    assert (result.report.differing, result.report.unknown) == (0, 3)
    assert "lost midway" in result.report.incomplete_reasons[0]


def test_other_clusters_and_the_order_of_time_are_told() -> None:
    one, two = (
        MemorySource({"/registry/namespaces/kube-system": namespace_object("kube-system", uid)})
        for uid in ("u-1", "u-2")
    )
    assert "different clusters" in compared(one, two).report.warnings[0]


# What is advised


Value = Callable[[str], bytes | StoredValue | None]


def members(*copies: tuple[Value, ...]) -> tuple[list[ComparedCopy], Differences]:
    """Return what is known after keys whose copies on the members are these."""
    count = len(copies[0])
    examiner = Examiner.of(request())
    differences = Differences(
        [Side(f"m{at}", examiner, MemorySource()) for at in range(count)], in_time=False
    )
    for number, values in enumerate(copies):
        name = f"s-{number}"
        held = [value(name) for value in values]
        records = tuple(stored(AT + name, one) if isinstance(one, bytes) else one for one in held)
        differences.add(Differing((AT + name).encode(), records, frozenset()))
    found = [
        ComparedCopy(
            label=f"m{at}",
            type="member",
            member_id=f"{at}",
            endpoint=f"host-{at}:2379",
            only_readable_here=differences.only_readable[f"m{at}"],
            unreadable_here=differences.unreadable[f"m{at}"],
        )
        for at in range(count)
    ]
    return found, differences


def advised(*copies: tuple[Value, ...], whole: bool = True) -> list[str]:
    found, differences = members(*copies)
    return [
        f"{remedy.action} {remedy.command.line(RUN)}"
        for remedy in member_advice(found, differences, whole=whole)
    ]


BAD = b"k8s\x00\xff"
HELD: tuple[Value, ...] = (secret, sealed, lambda _: BAD, lambda _: b"k8s\x00\xfe", lambda _: None)
good, also_good, bad, worse, absent = HELD


def newer(name: str) -> StoredValue:
    return stored(AT + name, secret(name), mod_revision=20, version=2)


def newer_bad(name: str) -> StoredValue:
    return stored(AT + name, BAD, mod_revision=20, version=2)


def test_a_minority_that_is_damaged_and_nothing_else_is_named() -> None:
    told = advised((good, bad, good), (good, worse, good))
    assert "Save a snapshot of m0" in told[1]
    assert "--endpoints host-0:2379 snapshot save good.db" in told[1]
    assert "Then replace m1, one at a time" in told[2]


@pytest.mark.parametrize(
    "copies",
    [
        pytest.param([(good, newer, newer), (good, bad, good)], id="newer on others, one of them damaged elsewhere"),
        pytest.param([(good, absent, absent)], id="a deletion that one missed"),
        pytest.param([(absent, good, good)], id="a write that one missed"),
        pytest.param([(good, bad, good), (good, absent, good)], id="one absent besides damage"),
        pytest.param([(good, newer_bad, good)], id="the unreadable copy is newer"),
        pytest.param([(newer, bad, newer)], id="the unreadable copy is older"),
        pytest.param([(good, newer, bad)], id="two readable values"),
        pytest.param([(good, also_good, bad)], id="two readable values at one mod_revision"),
        pytest.param([(good, bad, good), (bad, worse, bad)], id="another key that nobody reads"),
        pytest.param([(bad, bad, good)], id="a majority is damaged"),
        pytest.param([(good, bad)], id="half is damaged"),
        pytest.param([(good, bad, good), (good, good, bad)], id="a majority is damaged, each another key"),
        pytest.param([(good, bad, good), (bad, good, good)], id="each lacks a key"),
        pytest.param([(good, bad, good), (good, also_good, good)], id="another key that all read"),
    ],
)  # fmt: skip
def test_no_member_is_to_be_replaced_where_damage_is_not_all(copies: list[tuple[Value, ...]]) -> None:
    told = advised(*copies)
    count = len(copies[0])
    for at in range(count):
        assert f"Save a snapshot of m{at}" in told[1 + at]
        assert f"--endpoints host-{at}:2379 snapshot save member-{at}.db" in told[1 + at]
    assert "go on as the runbook says" in told[-1]
    assert not any("replace" in one for one in told)


def test_no_member_is_to_be_replaced_where_not_everything_was_compared() -> None:
    told = advised((good, bad, good), whole=False)
    assert not any("replace" in one for one in told)
    assert "compare again, every key on every member" in told[-1]


def test_what_only_one_member_can_read_is_told() -> None:
    assert "m2: 1 key can be read there and not on every other member" in advised((bad, bad, good))[3]
