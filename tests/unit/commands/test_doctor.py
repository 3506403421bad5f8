"""What stored objects say: which release this is, what the time is, how much history is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from etcdfix.commands.doctor import check_clock, check_revision
from etcdfix.commands.doctoring.needs import check_kubernetes
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.one import Examiner
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.doctor import Check
from etcdfix.text.commands import Part, scan
from tests.support.decoders import shared_decoder
from tests.support.doctoring import lease, states
from tests.support.memory_source import REVISION, MemorySource
from tests.support.objects import KEY_1, KEY_2, aescbc, configuration, json_object, provider

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)


def examiner(minor: int | None = None) -> Examiner:
    config = configuration(
        provider("aescbc", key1=KEY_1), {"identity": {}}, resources=("leases.coordination.k8s.io",)
    )
    transformers = Transformers.from_configuration(config)
    return Examiner(
        StorageLayout(), transformers, shared_decoder(minor), assumed_release=f"1.{minor}" if minor else ""
    )


def node(version: str) -> MemorySource:
    found = json_object("v1", "Node", "n", "", status={"nodeInfo": {"kubeletVersion": version}})
    return MemorySource({"/registry/minions/n": found})


@pytest.mark.parametrize(
    ("source", "named", "state"),
    [
        (node("v1.34.2"), None, "ok"), (MemorySource(), None, "ok"), (node("v1.34.2"), 34, "ok"),
        (node("v1.34.2"), 36, "ok"), (node("v1.34.2"), 33, "refused"), (node("v1.30.2"), 34, "refused"),
        (MemorySource(), 34, "warn"), (node("v1.99.0"), None, "warn"), (node("v1.99.0"), 36, "warn"),
    ],
)  # fmt: skip
def test_the_release_and_the_nodes(source: MemorySource, named: int | None, state: str) -> None:
    if state == "refused":
        with pytest.raises(RefusedByRule):
            list(check_kubernetes(source, examiner(named)))
    else:
        assert states(check_kubernetes(source, examiner(named))) == [state]


def clock(**leases: bytes) -> Check:
    folders = {name: "kube-system" if name == "kcm" else "kube-node-lease" for name in leases}
    values = {f"/registry/leases/{folders[name]}/{name}": value for name, value in leases.items()}
    check = check_clock(MemorySource(values), examiner(), NOW)
    states([check])
    return check


def ago(**time: float) -> datetime:
    return NOW - timedelta(**time)


def test_what_the_newest_renewal_says() -> None:
    for renewed in (ago(seconds=4), ago(minutes=5), ago(seconds=-59), NOW):
        check = clock(a=lease(ago(hours=3)), b=lease(renewed))
        assert check.state == "ok", check
    assert clock(a=lease(ago(hours=3)), kcm=lease(ago(seconds=3), "kcm", "kube-system")).state == "ok"
    assert clock(a=aescbc(lease(ago(seconds=3)))).state == "ok"
    silent = clock(a=lease(ago(hours=3)), b=lease(ago(days=9)))
    assert (silent.state, silent.what.partition(":")[0]) == ("warn", "no Lease was renewed for 10,800 s")
    behind = clock(a=lease(ago(minutes=-10)), b=lease(ago(seconds=1)))
    assert (behind.state, "600 s in the future" in behind.what) == ("warn", True)


@pytest.mark.parametrize(
    "value",
    [
        b"junk", aescbc(lease(NOW), KEY_2), lease(None), lease("never"), lease("0001-01-01T00:00:00.000000Z"),
        lease("9999-12-31T23:59:59.999999-23:59"), json_object("coordination.k8s.io/v1", "Lease", "x", "", spec=7),
        json_object("coordination.k8s.io/v1", "Lease", "x", ""), json_object("v1", "Pod", "x", ""),
        json_object("coordination.k8s.io/v1", "Lease", "x", "", spec={"renewTime": ["2026"]}),
    ],
)  # fmt: skip
def test_what_says_no_time_counts_for_nothing(value: bytes) -> None:
    assert clock(a=value).state in {"unknown", "warn"}
    assert clock(a=value, b=lease(ago(seconds=1))).state in {"ok", "warn"}


@pytest.mark.parametrize(
    ("value", "compacted", "state", "words"),
    [
        (None, 0, "ok", "never compacted: every revision is kept"),
        (None, 990, "ok", "compacted up to 990: the last 10 revisions are kept"),
        (None, None, "ok", "could not be told"),
        (b"300", 990, "ok", "the last 10 revisions are kept; API servers compacted up to 300"),
        (b"1000", 1000, "ok", "the last 0 revisions"),
        (b"2000", 0, "warn", "an earlier state"),
        (b"", 990, "warn", "no number"), (b"", 990, "warn", "the last 10 revisions"), (b"-5", 0, "warn", "no number"),
        ("٣".encode(), 0, "warn", "no number"), (b"9" * 5000, 0, "warn", "no number"),
    ],
)  # fmt: skip
def test_how_much_history_is_kept(value: bytes | None, compacted: int | None, state: str, words: str) -> None:
    source = MemorySource({"compact_rev_key": value} if value is not None else {}, compacted=compacted)
    check = check_revision(source)
    assert states([check]) == [state]
    assert check.what.startswith(f"revision {REVISION}")
    assert words in check.what
    if "earlier state" in words:
        assert "first scan, and only if nothing is wrong restart them" in check.next_step
        assert check.command == scan(source=[Part.NOW])
