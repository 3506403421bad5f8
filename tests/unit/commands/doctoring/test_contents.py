"""What stored objects say: which cluster, which release, what the time is, how much history is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from etcdfix.commands.doctoring.contents import (
    check_clock,
    check_configuration,
    check_identity,
    check_kubernetes,
    check_revision,
)
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine import Examiner
from etcdfix.report.doctor import Check
from etcdfix.storagekey import StorageLayout
from etcdfix.text.commands import Part, scan
from tests.support.decoders import shared_decoder
from tests.support.doctoring import lease, states
from tests.support.memory_source import REVISION, MemorySource
from tests.support.objects import KEY_1, KEY_2, aescbc, configuration, json_object, provider

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
NODES = "/registry/leases/kube-node-lease/"
SYSTEM = "/registry/leases/kube-system/"


def examiner(minor: int | None = None) -> Examiner:
    config = configuration(
        provider("aescbc", key1=KEY_1), {"identity": {}}, resources=("leases.coordination.k8s.io",)
    )
    transformers = Transformers.from_configuration(config)
    return Examiner(
        StorageLayout(), transformers, shared_decoder(minor), assumed_release=f"1.{minor}" if minor else ""
    )


# Which cluster, which release


def test_a_cluster_without_a_name_is_warned_of() -> None:
    assert states([check_identity("some-uid"), check_identity(None)]) == [
        ("cluster", "ok"),
        ("cluster", "warn"),
    ]


def node(version: str) -> MemorySource:
    found = json_object("v1", "Node", "n", "", status={"nodeInfo": {"kubeletVersion": version}})
    return MemorySource({"/registry/minions/n": found})


@pytest.mark.parametrize(
    ("source", "named", "state"),
    [
        (node("v1.34.2"), None, "ok"), (MemorySource(), None, "ok"), (node("v1.34.2"), 34, "ok"),
        (node("v1.34.2"), 36, "ok"), (node("v1.34.2"), 33, "fail"), (node("v1.30.2"), 34, "fail"),
        (MemorySource(), 34, "warn"), (node("v1.99.0"), None, "warn"), (node("v1.99.0"), 36, "warn"),
    ],
)  # fmt: skip
def test_the_release_and_the_nodes(source: MemorySource, named: int | None, state: str) -> None:
    assert states(check_kubernetes(source, examiner(named), 37)) == [("version", state)]


# The clock


def clock(**leases: bytes) -> Check:
    source = MemorySource(
        {(SYSTEM if name == "kcm" else NODES) + name: value for name, value in leases.items()}
    )
    (check,) = check_clock(source, examiner(), now=NOW)
    states([check])
    return check


def ago(**time: float) -> datetime:
    return NOW - timedelta(**time)


def test_a_lease_renewed_just_now_is_fine() -> None:
    for renewed in (ago(seconds=4), ago(minutes=5), ago(seconds=-59), NOW):
        check = clock(a=lease(ago(hours=3)), b=lease(renewed))
        assert check.state == "ok", check


def test_leases_of_controllers_count_too_and_encrypted_ones() -> None:
    assert clock(a=lease(ago(hours=3)), kcm=lease(ago(seconds=3), "kcm", "kube-system")).state == "ok"
    assert clock(a=aescbc(lease(ago(seconds=3)))).state == "ok"


def test_nobody_has_renewed_for_long() -> None:
    check = clock(a=lease(ago(hours=3)), b=lease(ago(days=9)))
    assert check.state == "warn"
    assert check.what.startswith("no controller has renewed a Lease for 3 hours")


def test_this_clock_is_behind() -> None:
    check = clock(a=lease(ago(minutes=-10)), b=lease(ago(seconds=-61)), c=lease(ago(seconds=1)))
    assert check.state == "warn"
    assert check.what.startswith("2 Leases of 3 renewed in the future, the farthest 10 minutes from now")


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


# History


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
    (check,) = check_revision(source)
    assert states([check]) == [("revision", state)]
    assert check.what.startswith(f"revision {REVISION}")
    assert words in check.what


def test_before_a_restart_comes_a_scan() -> None:
    (check,) = check_revision(MemorySource({"compact_rev_key": b"2000"}))
    assert "first etcdfix scan; only where it finds nothing wrong, restart them" in check.next_step
    assert check.command == scan(source=[Part.NOW])


# The configuration


def test_the_configuration() -> None:
    given = configuration(provider("aescbc", key1=KEY_1))
    (check,) = check_configuration(given, no_encryption=False)
    assert check.what == f"{given.path} {given.sha256}"
    odd = configuration(
        {"kms": {"apiVersion": "v1", "name": "old", "endpoint": "unix:///k.sock"}}, {"identity": {}}
    )
    assert states(check_configuration(odd, no_encryption=False)) == [
        ("configuration", "ok"), ("configuration", "warn"),
    ]  # fmt: skip
    assert states(check_configuration(None, no_encryption=False)) == [("configuration", "warn")]
    assert states(check_configuration(None, no_encryption=True)) == [("configuration", "ok")]
