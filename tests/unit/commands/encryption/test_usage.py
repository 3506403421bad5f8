"""Which encryption key is safe to remove, and which configuration writes what another cannot read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.encryption.check import check_files
from etcdfix.commands.encryption.usage import UsageRequest, encryption_usage
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.keyring import fingerprint
from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeyOfRule, StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.configurations import CheckFinding
from etcdfix.report.encryption import EncryptionUsageReport, KeyUsage
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions
from tests.support.audit_logs import content, own_directory
from tests.support.backups import Ground
from tests.support.fixtures import Patch
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    TWO_RULES,
    aescbc,
    aesgcm,
    config_map,
    configuration,
    configuration_of_rules,
    namespace_object,
    provider,
    secret,
)
from tests.support.reports import line

KEY_3 = b"3" * 16
CONFIGURATION = configuration(provider("aescbc", new=KEY_1, old=KEY_2), IDENTITY)
KUBE_SYSTEM = {"/registry/namespaces/kube-system": namespace_object("kube-system")}


def under(name: str, key: bytes, count: int = 1, prefix: str = "web") -> dict[str, bytes]:
    names = [f"{prefix}-{number}" for number in range(count)]
    return {f"/registry/secrets/shop/{n}": aescbc(secret(n), key, name=name) for n in names}


class KeptSource(MemorySource):
    """Keeps earlier values too."""

    def __init__(self, values: Mapping[str, bytes], earlier: Iterable[StoredValue]) -> None:
        super().__init__(values)
        self._earlier = list(earlier)

    def superseded(self) -> Iterator[StoredValue]:
        return iter(self._earlier)


class Unkept(MemorySource):
    """Cannot say what it keeps."""

    def superseded(self) -> Iterator[StoredValue]:
        raise SourceError("the watch ended early")


def no_snapshot(_path: Path) -> Source:
    raise AssertionError("no other snapshot was named")


def usage(
    source: MemorySource | Mapping[str, bytes],
    config: EncryptionConfiguration | None = CONFIGURATION,
    **settings: Any,
) -> EncryptionUsageReport:
    found = source if isinstance(source, MemorySource) else MemorySource({**KUBE_SYSTEM, **source})
    opened = settings.pop("open_snapshot", no_snapshot)
    request = UsageRequest(layout=StorageLayout(), configuration=config, **settings)
    return encryption_usage(found, request, open_snapshot=opened)[0]


def key_of(report: EncryptionUsageReport, transformer: str, rule: str = "secrets") -> KeyUsage:
    (found,) = [
        key for key in report.keys if (key.transformer, ",".join(key.resources)) == (transformer, rule)
    ]
    return found


def test_a_key_that_nothing_needs_is_safe_to_remove_and_the_write_key_never() -> None:
    report = usage(under("new", KEY_1, 3))
    old, new = key_of(report, "aescbc/v1/old"), key_of(report, "aescbc/v1/new")
    assert (old.objects, old.kept_revisions) == (0, 0)
    assert (old.safe_to_remove, old.reasons, report.complete) == (True, [], True)
    assert (new.objects, new.stale, new.safe_to_remove) == (3, 0, False)
    assert report.safe_to_remove == 1  # identity is no key
    assert report.next is not None
    assert "what-if" in line(report.next)
    unused = key_of(usage({}), "aescbc/v1/new")
    assert (unused.write_key, unused.reasons) == (True, ["API servers write with it"])
    assert usage({**under("new", KEY_1), "/other/thing": b"x"}).safe_to_remove == 1


OLD = under("old", KEY_2, 2)
EARLIER = [stored("/registry/secrets/shop/gone", aescbc(secret("gone"), KEY_2, name="old"), mod_revision=5)]
NEW = {**KUBE_SYSTEM, **under("new", KEY_1)}
UNREAD = "1 value that cannot be read, and may need it"
ELSEWHERE = "/other-cluster/secrets/shop/web"
OLDER = {"snapshots": (Path("o.db"),), "open_snapshot": lambda _: KeptSource(KUBE_SYSTEM | OLD, EARLIER)}


@pytest.mark.parametrize(
    ("source", "settings", "reason"),
    [
        (NEW | OLD, {}, "2 values under it"),
        (KeptSource(NEW, EARLIER), {}, "1 earlier value under it, which etcd keeps until it compacts"),
        (NEW, OLDER, "3 values under it in the other snapshots"),
        (NEW | {ELSEWHERE: aescbc(secret("web"), KEY_2, name="old")}, {}, UNREAD),
        (NEW | {ELSEWHERE: b"k8s;enc:aescbc:v1:old:" + bytes(64)}, {}, UNREAD),
    ],
    ids=["stored", "kept", "in a snapshot", "below another prefix", "damaged below another prefix"],
)
def test_what_needs_a_key(
    source: MemorySource | Mapping[str, bytes], settings: dict[str, Any], reason: str
) -> None:
    old = key_of(usage(source, **settings), "aescbc/v1/old")
    assert (old.safe_to_remove, old.reasons) == (False, [reason])


def test_what_cannot_be_read_speaks_against_every_key() -> None:
    report = usage({**under("new", KEY_1, 2), **under("lost", KEY_3, 2, "lost")})
    old = key_of(report, "aescbc/v1/old")
    assert (old.objects, old.safe_to_remove) == (0, False)
    assert old.reasons == ["2 values that cannot be read, and may need it"]
    lost = key_of(report, "aescbc/v1/lost")
    assert (lost.configured, lost.failing, lost.reasons) == (False, 2, ["the configuration does not have it"])
    assert report.next is not None
    assert line(report.next).startswith("etcdfix scan")


@pytest.mark.parametrize("key", [KEY_2, KEY_3], ids=["of-the-other-rule", "unknown"])
def test_it_speaks_against_the_keys_of_other_rules_too(key: bytes) -> None:
    config = parse_configuration(TWO_RULES.replace(b"configmaps]", b"pods]"), path="two.yaml")
    place = "/registry/secrets/shop/web"
    report = usage({place: aesgcm(secret(), place, key=key)}, config)
    assert UNREAD in key_of(report, "aesgcm/v1/key1", "pods").reasons


def test_what_ends_the_look_at_what_else_needs_a_key_leaves_what_was_counted() -> None:
    """Every current value was looked at by then; that nobody looked at the rest makes nothing safe."""

    def interrupted(_: Path) -> Any:
        raise KeyboardInterrupt

    request = UsageRequest(layout=StorageLayout(), configuration=CONFIGURATION, snapshots=(Path("other.db"),))
    report, ended = encryption_usage(MemorySource(NEW), request, open_snapshot=interrupted)
    assert ended is not None
    assert (ended.exit_code, key_of(report, "aescbc/v1/new").objects) == (130, 1)
    assert (report.complete, report.safe_to_remove) == (False, 0)


def test_an_etcd_that_was_not_read_speaks_against_the_keys_of_its_rule() -> None:
    first = b"{name: a, secret: QUFBQUFBQUFBQUFBQUFBQQ==}, {name: key1"
    config = parse_configuration(TWO_RULES.replace(b"{name: key1", first), path="two.yaml")
    report = usage({}, config, overrides={"configmaps": ("https://10.0.0.9:2379",)})
    assert key_of(report, "aesgcm/v1/key1", "secrets").safe_to_remove
    assert key_of(report, "aesgcm/v1/key1", "configmaps").reasons == [
        "the etcd of configmaps was not read: https://10.0.0.9:2379"
    ]


def test_without_a_configuration_keys_are_names_and_none_is_safe() -> None:
    report = usage({**under("new", KEY_1, 2), **under("old", KEY_2, 1, "older")}, None)
    found = {key.transformer: (key.objects, key.safe_to_remove) for key in report.keys}
    assert found == {"aescbc/v1/new": (2, False), "aescbc/v1/old": (1, False)}
    assert not report.complete


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(own_directory(tmp_path / "state"))


BACKED_UP_UID = content().cluster.kube_system_uid or ""


def test_backups_need_their_keys_and_those_of_another_cluster_do_not(ground: Ground) -> None:
    value = aescbc(secret("gone"), KEY_2, name="old")
    path = ground.directories[0] / ground.change(key=b"/registry/secrets/shop/gone", value=value)

    def old(uid: str) -> KeyUsage:
        found = {
            "/registry/namespaces/kube-system": namespace_object("kube-system", uid),
            **under("new", KEY_1),
        }
        report = usage(MemorySource(found), backup_directories=ground.directories[:1])
        return key_of(report, "aescbc/v1/old")

    assert (old(BACKED_UP_UID).safe_to_remove, old(BACKED_UP_UID).reasons) == (False, ["1 backup under it"])
    assert old("another-uid").safe_to_remove
    path.write_bytes(path.read_bytes()[:-20])
    assert not old(BACKED_UP_UID).safe_to_remove


ENVELOPED = aescbc(secret("web"), KEY_2, name="old")
WITH_ENVELOPE_DAMAGED = {
    "provider": ENVELOPED.replace(b"aescbc", b"adscbc"),
    "version": ENVELOPED.replace(b":v1:", b":v0:"),
    "colon": ENVELOPED.replace(b"k8s:", b"k8s;"),
    "magic-of-protobuf": ENVELOPED.replace(b"k8s:", b"k8s\0"),
    "name": ENVELOPED.replace(b":old:", b":omd:"),
    "colon-after-name": ENVELOPED.replace(b":old:", b":old;"),
    "line-in-front": b"\r\n" + ENVELOPED,
    "byte-in-front": b"x" + ENVELOPED,
    "brace-in-front": b"{" + ENVELOPED.replace(b"k8s:enc:aescbc:v1:old:", b""),
    "first-byte-cut": ENVELOPED[1:],
    "eight-zeroed": bytes(8) + ENVELOPED[8:],
    "envelope-cut": ENVELOPED[23:],
    "name-cut": ENVELOPED[:20],
    "both-ends-cut": ENVELOPED[1:22],
}


@pytest.mark.parametrize(
    ("damaged", "place"),
    [
        *((damaged, "current") for damaged in WITH_ENVELOPE_DAMAGED),
        *itertools.product(["name", "magic-of-protobuf", "envelope-cut"], ["kept", "snapshot", "backup"]),
    ],
)
def test_a_value_whose_envelope_is_damaged_may_need_any_key(damaged: str, place: str, ground: Ground) -> None:
    key, value = "/registry/secrets/shop/web", WITH_ENVELOPE_DAMAGED[damaged]
    settings: dict[str, Any] = {}
    source = MemorySource(KUBE_SYSTEM)
    match place:
        case "current":
            source = MemorySource({**KUBE_SYSTEM, key: value})
        case "kept":
            source = KeptSource(KUBE_SYSTEM, [stored(key, value)])
        case "snapshot":
            settings = {"snapshots": (Path("x.db"),), "open_snapshot": lambda _: MemorySource({key: value})}
        case _:
            ground.change(key=key.encode(), value=value)
            own = namespace_object("kube-system", BACKED_UP_UID)
            source = MemorySource({"/registry/namespaces/kube-system": own})
            settings = {"backup_directories": ground.directories[:1]}
    for last in ([IDENTITY], []):
        config = configuration(provider("aescbc", new=KEY_1, old=KEY_2), *last)
        old = key_of(usage(source, config, **settings), "aescbc/v1/old")
        assert (old.objects, old.safe_to_remove, UNREAD in old.reasons) == (0, False, True)


@pytest.mark.parametrize("value", [secret("web")[:-9], b'{"kind":"Secret","apiVersion":"v1","met'])
def test_a_damaged_value_that_begins_as_an_object_needs_no_key(value: bytes) -> None:
    report = usage({**under("new", KEY_1), "/registry/secrets/shop/web": value})
    assert key_of(report, "identity").failing == 1
    assert key_of(report, "aescbc/v1/old").safe_to_remove


def test_a_damaged_value_that_names_a_key_of_another_rule_speaks_against_it() -> None:
    pods = (("pods",), (provider("aescbc", p=KEY_1, old=KEY_2), IDENTITY))
    rules = configuration_of_rules((("secrets",), (provider("aescbc", s=KEY_3), IDENTITY)), pods)
    config = parse_configuration(rules, path="two.yaml")
    report = usage({"/registry/secrets/shop/web": ENVELOPED[:40]}, config)
    assert not key_of(report, "aescbc/v1/old", "pods").safe_to_remove


@pytest.mark.parametrize("needed", [True, False])
def test_a_key_that_stands_in_the_file_once_for_two_rules_is_needed_by_both(needed: bool) -> None:
    both = (("secrets", "configmaps"), (provider("aesgcm", new=KEY_1, old=KEY_2), IDENTITY))
    config = parse_configuration(
        configuration_of_rules(both, (("configmaps",), (provider("aescbc", more=KEY_3),))), path="x.yaml"
    )
    settings = "/registry/configmaps/shop/settings"
    values = {settings: aesgcm(config_map(), settings, key=KEY_2, name="old")} if needed else {}
    report = usage(values, config)
    ours = key_of(report, "aesgcm/v1/old", "secrets")
    reason = "configmaps needs it too, and it may stand in the file once for both"
    assert (ours.safe_to_remove, ours.reasons) == (not needed, [reason] if needed else [])
    assert key_of(report, "aesgcm/v1/old", "configmaps").safe_to_remove is not needed
    assert key_of(report, "aescbc/v1/more", "configmaps").safe_to_remove


LOST = MemorySource(NEW, fails_after=1)
DAMAGED = MemorySource(KUBE_SYSTEM, problems=["page 7"])


@pytest.mark.parametrize(
    ("source", "settings", "reason"),
    [
        (LOST, {}, "the source was lost midway"),
        (MemorySource(NEW, problems=["page 7"]), {}, "page 7"),
        (Unkept(NEW), {}, "the earlier values that are still kept could not all be read"),
        (MemorySource(NEW, limited_to="/registry/"), {}, "keys outside /registry/ were not looked at"),
        (NEW, {"run": RunOptions(source=("--snapshot", "x", "--revision", "7"))}, "named by --revision"),
        (NEW, {"main_not_read": True}, "the main etcd was not read, but another one"),
        (NEW, {"snapshots": (Path("o.db"),), "open_snapshot": lambda _: DAMAGED}, "o.db: page 7"),
    ],
    ids=["lost", "damaged", "unkept", "limited", "older", "not-main", "damaged-snapshot"],
)
def test_what_was_not_seen_makes_nothing_safe(
    source: MemorySource | dict[str, bytes], settings: dict[str, Any], reason: str
) -> None:
    report = usage(source, **settings)
    assert report.safe_to_remove == 0
    assert any(reason in one for one in key_of(report, "aescbc/v1/old").reasons)


A, B = provider("aesgcm", a=KEY_1), provider("aesgcm", b=KEY_2)
DIFFERENCES = {"written-not-read", "key-missing", "write-key-differs", "kms-endpoint-differs"}


def kms_at(endpoint: str = "unix:///run/kms.sock") -> dict[str, Any]:
    return {"kms": {"apiVersion": "v2", "name": "p", "endpoint": endpoint}}


def only_of(*providers: dict[str, Any], resource: str = "secrets") -> bytes:
    return configuration_of_rules(((resource,), providers))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)


def differences(*texts: bytes) -> list[CheckFinding]:
    paths = [Path(f"{number}.yaml") for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text)
    return [one for one in check_files(paths).findings if one.check in DIFFERENCES]


def kinds(*texts: bytes) -> list[str]:
    return [difference.check for difference in differences(*texts)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (only_of(A, IDENTITY), configuration_of_rules((("secrets",), (A,)), (("secrets",), (IDENTITY,)))),
        (only_of(A, B, kms_at()), only_of(A, kms_at(), B)),
        (only_of(A, IDENTITY, B), only_of(A, B, IDENTITY)),
    ],
)
def test_files_that_write_and_read_alike_do_not_differ(one: bytes, other: bytes) -> None:
    assert kinds(one, other) == []


def test_who_writes_what_another_cannot_read_is_dangerous_in_that_direction() -> None:
    (found,) = differences(only_of(A), only_of(B, A))
    key = KeyOfRule("aesgcm/v1/b", fingerprint(KEY_2))
    assert (found.check, found.level, found.key) == ("written-not-read", "error", key)
    assert (found.files, found.lacks) == ([1], [0])
    assert [one.files for one in differences(only_of(A), only_of(B))] == [[0], [1]]


def test_another_write_key_that_all_can_read_is_a_rotation() -> None:
    (found,) = differences(only_of(A, B), only_of(B, A), only_of(B, A))
    assert (found.check, found.files, found.lacks) == ("write-key-differs", [0], [1, 2])


def test_a_wildcard_serves_what_another_file_names() -> None:
    assert kinds(only_of(A, resource="*."), only_of(A)) == ["written-not-read"] * 2


@pytest.mark.parametrize(
    ("mine", "theirs", "instead"),
    [
        (provider("aescbc", old=KEY_1), provider("aescbc", old=KEY_2), "aescbc/v1/old"),
        (provider("aescbc", x=KEY_2), provider("aescbc", y=KEY_2), "aescbc/v1/y"),
        (provider("aescbc", x=KEY_2), B, ""),
    ],
    ids=["other-bytes", "other-name", "other-provider"],
)
def test_what_stands_in_the_place_of_a_key_is_told(
    mine: dict[str, Any], theirs: dict[str, Any], instead: str
) -> None:
    found, back = differences(only_of(A, mine), only_of(A, theirs))
    assert (found.check, back.check, found.level) == ("key-missing", "key-missing", "warning")
    assert (f"It has {instead}" in found.message) is ("instead" in found.message) is bool(instead)
    written, _ = differences(only_of(mine, A), only_of(theirs, A))
    assert (written.check, "instead" in written.message) == ("written-not-read", bool(instead))


@pytest.mark.parametrize(("missing", "transformer"), [(IDENTITY, "identity"), (kms_at(), "kms/v2/p")])
def test_what_a_file_lacks(missing: dict[str, Any], transformer: str) -> None:
    (found,) = differences(only_of(A, missing), only_of(A))
    assert (found.check, found.key) == ("key-missing", KeyOfRule(transformer, ""))
    assert (found.files, found.lacks) == ([0], [1])


def test_another_endpoint_is_a_note() -> None:
    (found,) = differences(only_of(kms_at()), only_of(kms_at("unix:///other")), only_of(kms_at()))
    assert (found.check, found.level) == ("kms-endpoint-differs", "advice")
    assert (found.files, found.lacks) == ([0, 2], [1])
