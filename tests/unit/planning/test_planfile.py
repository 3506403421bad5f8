from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.errors import ConfigurationError
from etcdfix.model import StoredValue
from etcdfix.planning import planfile
from etcdfix.planning.plan import build_plan
from etcdfix.planning.planfile import entry_for, load_plan, proof_for, sealed
from etcdfix.remediation.pattern import Pattern, Tally
from etcdfix.reports.plan_json import write_plan_json
from etcdfix.reports.plan_model import DeletionPlan
from tests.support.lost_key import (
    CONFIGURATION,
    LOST,
    LiveMemory,
    base,
    examiner_of,
    lose,
    request_for,
    scan_to,
)
from tests.support.objects import KEY_2, aescbc

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def three_lost() -> LiveMemory:
    """Return a cluster of three Secrets under a lost key."""
    cluster = base()
    lose(cluster, *[cluster.secret(f"web-{number}") for number in range(3)])
    return LiveMemory(cluster.values)


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, StoredValue]:
    """The plan of three Secrets under a lost key, as a file, and the value of the second."""
    cluster, source = base(), three_lost()
    path = scan_to(tmp_path / "report.json", cluster, source=source)
    plan = build_plan(source, examiner_of(cluster, source), request_for(path), now=lambda: NOON)
    value = source.get(b"/registry/secrets/shop/web-1")
    assert value is not None
    return write(tmp_path / "plan.json", plan), value


def write(path: Path, plan: DeletionPlan) -> Path:
    with path.open("wb") as stream:
        write_plan_json(stream, plan)
    return path


def asked(plan: DeletionPlan, stored: StoredValue, **other: Any) -> Pattern | str:
    """Ask for the proof; everything is as in the plan but for what is named."""
    settings: dict[str, Any] = {
        "stored": stored,
        "transformer": LOST,
        "kms_key_id_sha256": "",
        "cluster_uid": "uid-kube-system",
        "cluster_id": plan.source.cluster_id,
        "etcd_prefix": "/registry",
        "config_sha256": CONFIGURATION.sha256,
        "assumed_release": "",
        "now": NOON + timedelta(minutes=15),
    }
    return proof_for(plan, **(settings | other))


def test_a_fresh_plan_of_this_cluster_proves_the_pattern(made: tuple[Path, StoredValue]) -> None:
    path, value = made
    proof = asked(load_plan(path), value)
    assert isinstance(proof, Pattern)
    assert (
        proof.all
        == proof.same_key_id
        == Tally(opened=0, failed=3, undetermined=0, last_failing=proof.all.last_failing)
    )
    assert proof.all.last_failing >= value.mod_revision
    assert proof.all.is_pattern
    assert proof.keys == 8
    assert proof.target is None
    assert proof.transformer == LOST


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"now": NOON + timedelta(minutes=15, seconds=1)}, "the plan is 15 minutes old; its counts hold for 15"),
        ({"now": NOON + timedelta(hours=2)}, "the plan is 120 minutes old; its counts hold for 15"),
        ({"now": NOON - timedelta(seconds=1)}, "from the future"),
        ({"cluster_uid": "another"}, "of the cluster uid-kube-system, this one is another"),
        ({"cluster_uid": ""}, "this one is unknown"),
        ({"cluster_id": "abc"}, "this one is abc"),
        ({"etcd_prefix": "/registry2/"}, "the plan is of keys below /registry"),
        ({"config_sha256": "sha256:00"}, "another encryption configuration"),
        ({"assumed_release": "1.30"}, "another --kubernetes-version"),
        ({"transformer": "aescbc/v1/key1"}, "another transformer"),
        ({"kms_key_id_sha256": "sha256:00"}, "another transformer"),
    ],
)  # fmt: skip
def test_a_plan_proves_nothing_elsewhere_or_later(
    made: tuple[Path, StoredValue], other: dict[str, Any], reason: str
) -> None:
    path, value = made
    proof = asked(load_plan(path), value, **other)
    assert isinstance(proof, str)
    assert reason in proof


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mod_revision": 999}, "was changed"),
        ({"value": aescbc(b"another", KEY_2, name="lost")}, "was changed"),
        ({"key": b"/registry/secrets/shop/web-9"}, "does not list the key"),
    ],
)
def test_a_plan_proves_nothing_for_another_value(
    made: tuple[Path, StoredValue], change: dict[str, Any], reason: str
) -> None:
    path, value = made
    proof = asked(load_plan(path), msgspec.structs.replace(value, **change))
    assert isinstance(proof, str)
    assert reason in proof


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda p: {"source": msgspec.structs.replace(p.source, newest=False)},
            "a snapshot or an old revision",
        ),
        (lambda p: {"source": msgspec.structs.replace(p.source, complete=False)}, "did not see everything"),
        (
            lambda p: {"source": msgspec.structs.replace(p.source, unreached=3)},
            "3 values waited for a KMS plugin",
        ),
        (
            lambda p: {"proofs": [msgspec.structs.replace(p.proofs[0], undetermined=2)]},
            f"2 values under {LOST} could not be judged",
        ),
        (
            lambda p: {"entries": [msgspec.structs.replace(e, outcome="undetermined") for e in p.entries]},
            "nothing proven against the value",
        ),
        (lambda _: {"kube_system_uid": None}, "of the cluster unknown"),
        (lambda _: {"proofs": []}, f"no counts for {LOST}"),
    ],
)
def test_a_plan_that_could_not_see_proves_nothing(
    made: tuple[Path, StoredValue], change: Callable[[DeletionPlan], dict[str, Any]], reason: str
) -> None:
    path, value = made
    plan = load_plan(path)
    plan = sealed(msgspec.structs.replace(plan, **change(plan)))
    proof = asked(load_plan(write(path, plan)), value)
    assert isinstance(proof, str)
    assert reason in proof


def test_a_report_that_was_incomplete_does_not_spoil_the_proof(made: tuple[Path, StoredValue]) -> None:
    path, value = made
    plan = sealed(
        msgspec.structs.replace(load_plan(path), complete=False, problems=["the report is incomplete"])
    )
    assert isinstance(asked(load_plan(write(path, plan)), value), Pattern)


# ------------------------------------------------------------------------------------------------ files not to trust


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"opened":0', b'"opened":9'),
        (b"/registry/secrets/shop/web-1", b"/registry/secrets/shop/web-7"),
        (b"2026-03-01T12:00:00Z", b"2026-03-01T12:30:00Z"),
        (b"--dry-run", b"--yes    "),
        (b"uid-kube-system", b"uid-kube-systen"),
    ],
)
def test_an_edited_plan_is_refused(made: tuple[Path, StoredValue], old: bytes, new: bytes) -> None:
    path, _ = made
    raw = path.read_bytes()
    assert old in raw
    path.write_bytes(raw.replace(old, new, 1))
    with pytest.raises(ConfigurationError, match="its digest does not fit") as caught:
        load_plan(path)
    assert "etcdfix plan --from-report" in caught.value.hint


def test_spaces_and_the_order_of_fields_do_not_matter(made: tuple[Path, StoredValue]) -> None:
    path, _ = made
    plan = load_plan(path)
    fields: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.format(msgspec.json.encode(dict(reversed(fields.items()))), indent=4))
    assert load_plan(path) == plan


def _cut(raw: bytes) -> bytes:
    return raw[:-200]


def _unknown_field(raw: bytes) -> bytes:
    return raw.replace(b"{\n", b'{\n  "more": 1,\n', 1)


def _report(raw: bytes) -> bytes:
    return raw.replace(b"DeletionPlan", b"ScanReport", 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_cut, "is not a plan of etcdfix"),
        (_unknown_field, "is not a plan of etcdfix: Object contains unknown field `more`"),
        (_report, "says etcdfix/v1alpha1 ScanReport, expected etcdfix/v1alpha1 DeletionPlan"),
        (lambda _: b"", "is not a plan of etcdfix"),
        (lambda _: b"\xff\xfe{}", "is not a plan of etcdfix"),
        (lambda _: b"[" * 100_000, "is not a plan of etcdfix"),
    ],
)
def test_what_is_no_plan_is_refused(
    made: tuple[Path, StoredValue], change: Callable[[bytes], bytes], message: str
) -> None:
    path, _ = made
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ConfigurationError, match="plan ") as caught:
        load_plan(path)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: {"generated_at": "yesterday"}, "generated_at 'yesterday' is no time"),
        (
            lambda p: {"entries": [msgspec.structs.replace(p.entries[0], key_base64="%%%")]},
            "the key_base64 of /registry/secrets/shop/web-0 is not base64",
        ),
    ],
)
def test_a_sealed_plan_that_cannot_be_read_is_refused(
    made: tuple[Path, StoredValue], change: Callable[[DeletionPlan], dict[str, Any]], message: str
) -> None:
    path, _ = made
    plan = load_plan(path)
    write(path, sealed(msgspec.structs.replace(plan, **change(plan))))
    with pytest.raises(ConfigurationError, match=message):
        load_plan(path)


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_plan_that_others_may_write_is_refused(made: tuple[Path, StoredValue], mode: int) -> None:
    path, _ = made
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"others may write to it .mode {mode:04o}"):
        load_plan(path)


def test_a_plan_of_somebody_else_is_refused(
    made: tuple[Path, StoredValue], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = made
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        assert load_plan(path)  # root may do anything anyway
        os.chown(path, 65534, 65534)
        owner = 65534
    with pytest.raises(ConfigurationError, match=f"belongs to somebody else .uid {owner}"):
        load_plan(path)


def test_a_link_to_a_plan_is_refused(made: tuple[Path, StoredValue], tmp_path: Path) -> None:
    path, _ = made
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(ConfigurationError, match="it is a symbolic link"):
        load_plan(tmp_path / "link")


def test_no_file_no_plan(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_plan(tmp_path / "nowhere.json")
    with pytest.raises(ConfigurationError, match="Is a directory"):
        load_plan(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigurationError, match="no regular file"):
        load_plan(tmp_path / "pipe")


def test_a_plan_that_is_too_large_is_refused(
    made: tuple[Path, StoredValue], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = made
    monkeypatch.setattr(planfile, "_MOST_BYTES", 100)
    with pytest.raises(ConfigurationError, match="larger than any plan"):
        load_plan(path)


def test_when_others_failed_last_is_not_told_by_the_value_itself(made: tuple[Path, StoredValue]) -> None:
    plan = load_plan(made[0])
    revisions = sorted(entry.mod_revision for entry in plan.entries)
    newest = next(entry for entry in plan.entries if entry.mod_revision == revisions[-1])
    value = three_lost().get(newest.key.encode())
    assert value is not None
    proof = asked(plan, value)
    assert isinstance(proof, Pattern)
    assert proof.all.last_failing == revisions[-2]
    proof = asked(plan, made[1])
    assert isinstance(proof, Pattern)
    assert proof.all.last_failing == revisions[-1]


def test_what_a_plan_says_of_a_key(made: tuple[Path, StoredValue]) -> None:
    plan = load_plan(made[0])
    entry = entry_for(plan, made[1].key)
    assert entry is not None
    assert (entry.name, entry.mod_revision) == ("web-1", made[1].mod_revision)
    assert entry_for(plan, b"/registry/secrets/shop/nobody") is None
