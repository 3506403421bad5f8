from __future__ import annotations

import base64
import gzip
import hashlib
import os
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from etcdfix.commands.plan import build_plan
from etcdfix.model.errors import ConfigurationError, RefusedByRule
from etcdfix.model.model import StoredValue
from etcdfix.model.rules import Rule
from etcdfix.remediation.checks.plan import Expectation, expectation_of
from etcdfix.remediation.cluster import Acceptances, Cluster
from etcdfix.report.plan import DeletionPlan, LeftOut
from etcdfix.report.planfile import load_plan, sealed
from etcdfix.report.render.machine import JSONWriter
from etcdfix.text.commands import RunOptions
from tests.support.fixtures import Patch
from tests.support.lost_key import (
    CONFIGURATION,
    LOST,
    base,
    examiner_of,
    lose,
    request_for,
    scan_to,
)
from tests.support.memory_source import LiveMemory

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


OTHER_ETCD = Acceptances(words=(Rule.OTHER_CLUSTER_ID,), key_lost=LOST)


def write(path: Path, plan: DeletionPlan) -> Path:
    with path.open("wb") as stream:
        JSONWriter(stream, RunOptions()).end(plan)
    return path


def asked(plan: DeletionPlan, key: bytes, **other: Any) -> Expectation:
    """Ask what the plan expects; everything is as in the plan but for what is named."""
    here = SimpleNamespace(
        cluster_id=other.get("cluster_id", plan.source.cluster_id),
        revision=other.get("revision", plan.source.revision),
    )
    examiner = SimpleNamespace(
        layout=SimpleNamespace(prefix=other.get("etcd_prefix", "/registry")),
        assumed_release=other.get("assumed_release", ""),
    )
    cluster = SimpleNamespace(
        source=SimpleNamespace(describe=lambda: here),
        examiner=examiner,
        config_sha256=other.get("config_sha256", CONFIGURATION.sha256),
        is_kine=other.get("is_kine", False),
    )
    return expectation_of(
        plan, key, cast("Cluster", cluster), other.get("accepted", Acceptances(key_lost=LOST)),
        again="etcdfix plan AGAIN", now=other.get("now", NOON + timedelta(minutes=15)),
    )  # fmt: skip


def accepting(*flags: str) -> Acceptances:
    given = [flag.partition(" ") for flag in flags]
    lost = next((value for option, _, value in given if option == "--declare-key-lost"), "")
    return Acceptances(
        key_lost=lost, words=tuple(value for option, _, value in given if option == "--accept")
    )


def refused(plan: DeletionPlan, key: bytes, **other: Any) -> RefusedByRule:
    with pytest.raises(RefusedByRule) as caught:
        asked(plan, key, **other)
    assert caught.value.rule == Rule.PLAN
    return caught.value


def rewritten(path: Path, change: Callable[[DeletionPlan], dict[str, Any]]) -> DeletionPlan:
    """Change a plan, seal it anew as whoever owns the file can, and load it."""
    plan = load_plan(path)
    return load_plan(write(path, sealed(msgspec.structs.replace(plan, **change(plan)))))


def test_what_a_fresh_plan_of_this_cluster_expects(made: tuple[Path, StoredValue]) -> None:
    path, value = made
    assert asked(load_plan(path), value.key) == Expectation(
        kube_system_uid="uid-kube-system",
        mod_revision=value.mod_revision,
        value_sha256=f"sha256:{hashlib.sha256(value.value).hexdigest()}",
        outcome="decrypt-failure",
        cause="key-name-missing",
        transformer=LOST,
        kms_key_id_sha256="",
        again="etcdfix plan AGAIN",
    )


def test_an_expectation_holds_nothing_that_permits(made: tuple[Path, StoredValue]) -> None:
    """Counts, risk and reasons stand in a plan for people to read; a deletion gets none of them."""
    path, value = made
    before = asked(load_plan(path), value.key)
    plan = rewritten(
        path,
        lambda p: {
            "complete": True,
            "groups": [msgspec.structs.replace(g, opened=1000, pattern=False, advice="") for g in p.groups],
            "entries": [msgspec.structs.replace(e, risk="low", reasons=[], protected="") for e in p.entries],
        },
    )
    assert asked(plan, value.key) == before


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"now": NOON + timedelta(minutes=15, seconds=1)}, "the plan is 15 minutes old; it holds for 15"),
        ({"now": NOON - timedelta(seconds=1)}, "the plan is from the future (2026-03-01T12:00:00Z)"),
        ({"etcd_prefix": "/registry2/"}, "the plan is of keys below /registry, and here they are below /registry2/"),
        ({"config_sha256": "sha256:00"}, "another encryption configuration"),
        ({"config_sha256": ""}, "another encryption configuration"),
        ({"assumed_release": "1.30"}, "another --kubernetes-version"),
    ],
)  # fmt: skip
def test_a_plan_does_not_fit_elsewhere_or_later(
    made: tuple[Path, StoredValue], other: dict[str, Any], reason: str
) -> None:
    path, value = made
    error = refused(load_plan(path), value.key, **other)
    assert reason in error.message
    assert error.hint == "make a new plan: etcdfix plan AGAIN"


@pytest.mark.parametrize(
    ("other", "reason"), [({"cluster_id": "abc"}, "this one has abc"), ({"revision": 1}, "this one is at 1")]
)
def test_a_plan_of_another_etcd(made: tuple[Path, StoredValue], other: dict[str, Any], reason: str) -> None:
    """It may be accepted where the plan names the cluster, which the live read then has to be of."""
    path, value = made
    plan = load_plan(path)
    with pytest.raises(RefusedByRule, match=reason) as caught:
        asked(plan, value.key, **other)
    assert caught.value.rule == Rule.OTHER_CLUSTER_ID
    assert "etcdfix plan AGAIN; " in caught.value.hint
    assert "--accept other-cluster-id" in caught.value.hint
    assert asked(plan, value.key, accepted=OTHER_ETCD, **other)
    nameless = rewritten(path, lambda p: {"source": msgspec.structs.replace(p.source, kube_system_uid=None)})
    assert reason in refused(nameless, value.key, accepted=OTHER_ETCD, **other).message


@pytest.mark.parametrize(
    "other",
    [
        {"revision": 0},  # not known
        {"etcd_prefix": "/registry/"},
        # Whether it names the key of the value, the deletion looks at itself.
        {"accepted": Acceptances(key_lost="kms/v2/prov/kek-1")},
    ],
)
def test_what_does_not_matter(made: tuple[Path, StoredValue], other: dict[str, Any]) -> None:
    path, value = made
    assert asked(load_plan(path), value.key, **other)


def test_a_plan_of_a_snapshot_or_of_a_release_does_not_fit_any(made: tuple[Path, StoredValue]) -> None:
    path, value = made
    named = rewritten(path, lambda _: {"kubernetes_version": "1.30"})
    assert "another --kubernetes-version" in refused(named, value.key).message
    assert asked(named, value.key, assumed_release="1.30")
    old = rewritten(path, lambda _: {"newest": False})
    for kine in (False, True):  # the plan is not of kine's file
        assert "a snapshot or an old revision" in refused(old, value.key, is_kine=kine).message


def test_a_key_that_the_plan_does_not_list(made: tuple[Path, StoredValue]) -> None:
    error = refused(load_plan(made[0]), b"/registry/secrets/shop/nobody")
    assert error.message == "the plan does not list /registry/secrets/shop/nobody"


def test_a_key_that_the_plan_leaves_out(made: tuple[Path, StoredValue]) -> None:
    """Even where it lists the key as well."""
    path, value = made
    encoded = base64.b64encode(value.key).decode()
    left = LeftOut(key="else", key_base64=encoded, why="readable", detail="it can be read now")
    plan = rewritten(path, lambda _: {"left_out": [left]})
    error = refused(plan, value.key)
    assert error.message == f"the plan leaves {value.key.decode()} out (readable): it can be read now"


@pytest.mark.parametrize(
    ("flags", "needs", "missing"),
    [
        ((), (f"--declare-key-lost {LOST}",), f"--declare-key-lost {LOST}"),
        (("--accept mass-damage",), ("--accept cluster-breaking",), "--accept cluster-breaking"),
        (
            (f"--declare-key-lost {LOST}",),
            (f"--declare-key-lost {LOST}", "--accept cluster-breaking"),
            "--accept cluster-breaking",
        ),
        (("--accept unknown-cluster",), ("--accept what-nobody-knows",), "--accept what-nobody-knows"),
    ],
)  # fmt: skip
def test_a_flag_that_the_plan_asks_for(
    made: tuple[Path, StoredValue], flags: tuple[str, ...], needs: tuple[str, ...], missing: str
) -> None:
    path, value = made
    plan = rewritten(
        path, lambda p: {"entries": [msgspec.structs.replace(e, needs=list(needs)) for e in p.entries]}
    )
    error = refused(plan, value.key, accepted=accepting(*flags))
    assert error.message == f"the plan says that the deletion of {value.key.decode()} needs {missing}"
    assert error.hint.startswith("add it, if ")
    assert asked(plan, value.key, accepted=accepting(*needs))


def test_spaces_and_the_order_of_fields_do_not_matter(made: tuple[Path, StoredValue]) -> None:
    path, _ = made
    plan = load_plan(path)
    fields: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.format(msgspec.json.encode(dict(reversed(fields.items()))), indent=4))
    assert load_plan(path) == plan


def put(before: bytes, after: bytes) -> Callable[[bytes], bytes]:
    return lambda raw: raw.replace(before, after, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[:-200], "is not a plan of etcdfix"),
        (put(b"{\n", b'{\n  "more": 1,\n'), "Object contains unknown field `more`"),
        (put(b'  "not_in_report"', b'  "proofs": [],\n  "not_in_report"'), "unknown field `proofs`"),
        (put(b"DeletionPlan", b"ScanReport"), "its kind is ScanReport, expected DeletionPlan"),
        (put(b"etcdfix/v1", b"etcdfix/v2"), "its apiVersion is etcdfix/v2, and"),
        (lambda _: b"\xff\xff{}", "is not a plan of etcdfix: JSON is malformed"),
        (lambda _: b"[]", "is not a plan of etcdfix: Expected `object`, got `array`"),
        (gzip.compress, "is not a plan of etcdfix: it begins with 1f 8b: it is compressed (gzip)"),
        (lambda _: b"[" * 100_000, "is not a plan of etcdfix"),
        (put(b'"entries": [', b'"entries": 7, "x": ['), "is not a plan of etcdfix"),
        (put(b"uid-kube-system", b"uid-kube-systen"), "its digest does not fit"),
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
        (
            lambda _: {"left_out": [LeftOut(key="/k", key_base64="%%%", why="gone", detail="")]},
            "the key_base64 of /k is not base64",
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


def test_a_plan_of_somebody_else_is_refused(made: tuple[Path, StoredValue], monkeypatch: Patch) -> None:
    path, _ = made
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        assert load_plan(path)  # root may do anything anyway
        os.chown(path, 65534, 65534)
        owner = 65534
    with pytest.raises(ConfigurationError, match=f"belongs to somebody else .uid {owner}"):
        load_plan(path)


def grown(path: Path, count: int, *, wrong: tuple[bytes, bytes] = (b"", b"")) -> Path:
    """Put as many rows as wanted in the place of the first, sealed as the owner can; one in the middle is changed."""
    raw = path.read_bytes()
    start = raw.index(b'  "entries": [') + len(b'  "entries": [')
    end = raw.index(b"\n  ]", start)
    row = raw[start:end].split(b",\n")[0]
    rows = [
        row.replace(b"web-0", b"web-%d" % number).replace(b'"order":1,', b'"order":%d,' % number, 1)
        for number in range(count)
    ]
    middle = rows[count // 2]
    rows[count // 2] = middle.replace(*wrong, 1) if wrong[0] else middle
    path.write_bytes(raw[:start] + b",".join(rows) + raw[end:])
    return path


def what_is_sealed(fields: dict[str, Any]) -> bytes:
    """Return what the digest of a plan is made of: decisions are not."""
    sealed = {name: value for name, value in fields.items() if name != "decisions"}
    return msgspec.json.encode(sealed | {"content_sha256": ""})


def reseal(path: Path) -> None:
    """Seal a file without reading it as a plan: as somebody does who owns it."""
    fields: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    digest = hashlib.sha256(what_is_sealed(fields)).hexdigest()
    old = fields["content_sha256"].encode()
    path.write_bytes(path.read_bytes().replace(old, f"sha256:{digest}".encode()))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((b'"mod_revision":', b'"mod_revision":1'), "its digest does not fit"),
        ((b'"users":0', b'"users":"0"'), "Expected `int`"),
        ((b'"users":0', b'"users":0,"more":1'), "unknown field `more`"),
        ((b'"users":0,', b""), "missing required field `users`"),
        ((b'"users":0', b'"users":0}x{'), "is not a plan"),
        ((b'"users":0,', b'"users":0},{"a":1,'), "is not a plan"),
        ((b'"users":0,', b'"users":0\n  ],\n'), "is not a plan"),
        ((b'"key_base64":null', b'"key_base64":"%"'), "is not base64"),
    ],
    ids=range(8),
)
def test_one_wrong_row_among_very_many(
    made: tuple[Path, StoredValue], wrong: tuple[bytes, bytes], said: str
) -> None:
    path = grown(made[0], 1_000)
    reseal(path)
    assert len(load_plan(path).entries) == 1_000
    grown(path, 1_000, wrong=wrong)
    with pytest.raises(ConfigurationError, match=said):
        load_plan(path)


@pytest.mark.parametrize("moved", ["doubled", "dropped", "swapped", "last dropped"])
def test_rows_that_were_moved_are_an_edit(made: tuple[Path, StoredValue], moved: str) -> None:
    path = grown(made[0], 300)
    reseal(path)
    load_plan(path)
    lines = path.read_bytes().split(b"\n")
    at = next(number for number, line in enumerate(lines) if b"/web-150" in line)
    if moved == "doubled":
        lines.insert(at, lines[at])
    elif moved == "dropped":
        del lines[at]
    elif moved == "swapped":
        lines[at], lines[at + 1] = lines[at + 1], lines[at]
    else:
        entries = lines[: next(number for number, line in enumerate(lines) if b'"decisions"' in line)]
        last = max(number for number, line in enumerate(entries) if b"/web-" in line)
        del lines[last]
        lines[last - 1] = lines[last - 1].removesuffix(b",")
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(ConfigurationError, match="its digest does not fit"):
        load_plan(path)


def test_a_plan_that_ends_anywhere_before_its_end_is_none(made: tuple[Path, StoredValue]) -> None:
    path, _ = made
    raw = path.read_bytes()
    load_plan(path)
    for end in (*range(0, len(raw) - 2, 97), len(raw) - 3, len(raw) - 2):
        path.write_bytes(raw[:end])
        with pytest.raises(ConfigurationError, match="is not a plan of etcdfix"):
            load_plan(path)


def test_a_key_that_is_listed_twice(made: tuple[Path, StoredValue]) -> None:
    """Sealed anew by its owner: which of the two counts, nobody can say."""
    path, value = made
    encoded = base64.b64encode(value.key).decode()
    others: list[dict[str, Any]] = [{}, {"mod_revision": 1}, {"key": "/else", "key_base64": encoded}]
    once = list(load_plan(path).entries)
    for other in others:
        twice = [*once, msgspec.structs.replace(once[1], **other)]
        plan = rewritten(path, partial(lambda entries, _plan: {"entries": entries}, twice))
        error = refused(plan, value.key)
        assert error.message == f"the plan lists {value.key.decode()} more than once"


def test_a_plan_that_changes_after_it_was_read_changes_nothing(made: tuple[Path, StoredValue]) -> None:
    path, value = made
    plan = load_plan(path)
    expected, rows = asked(plan, value.key), list(plan.entries)
    raw = path.read_bytes()
    with path.open("r+b") as same_file:
        same_file.write(raw.replace(b"web-1", b"web-7"))
    assert (asked(plan, value.key), list(plan.entries)) == (expected, rows)
    path.write_bytes(b"")
    assert (asked(plan, value.key), list(plan.entries)) == (expected, rows)


@pytest.mark.thorough
def test_very_many_rows_take_little_memory(made: tuple[Path, StoredValue]) -> None:
    path, value = grown(made[0], 12_000), made[1]
    reseal(path)
    load_plan(path)
    tracemalloc.start()
    try:
        plan = load_plan(path)
        assert refused(plan, value.key + b"-else")
        assert sum(1 for _ in plan.entries) == 12_000
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 4 << 20  # the file is 11 MB
