"""What candidates open and another configuration would do; with keys behind KMS plugins too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.encryption.try_ import NamedCandidate, TryRequest, try_candidates
from etcdfix.commands.encryption.usage import UsageRequest, encryption_usage
from etcdfix.commands.encryption.what_if import WhatIfRequest, what_if
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.model.errors import ConfigurationError, EndedEarly
from etcdfix.model.model import key_id_digest
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.encryption import EncryptionTryReport, EncryptionUsageReport, FindingGroup, WhatIfReport
from etcdfix.report.render.text import text_lines
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions
from tests.support.kms_plugin import KMSPlugin
from tests.support.memory_source import MemorySource
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    aesgcm,
    configuration,
    crd,
    namespace_object,
    provider,
    secret,
    widget,
)
from tests.support.reports import line

KEY_3 = b"3" * 16
BASE = {"/registry/namespaces/kube-system": namespace_object("kube-system")}
TODAY = configuration(provider("aesgcm", new=KEY_1), IDENTITY)
KMS = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///nowhere.sock"}}


def name(number: int) -> str:
    return f"/registry/secrets/shop/web-{number}"


def sealed(*numbers: int, key: bytes = KEY_2, called: str = "old") -> dict[str, bytes]:
    return {name(n): aesgcm(secret(f"web-{n}"), name(n), key=key, name=called) for n in numbers}


def config(label: str, *providers: Any, resources: tuple[str, ...] = ("secrets",)) -> NamedCandidate:
    return NamedCandidate(label, configuration(*providers, resources=resources))


def tried(
    values: Mapping[str, bytes] | MemorySource,
    *candidates: NamedCandidate,
    today: EncryptionConfiguration | None = TODAY,
    **settings: Any,
) -> EncryptionTryReport:
    source = values if isinstance(values, MemorySource) else MemorySource({**BASE, **values})
    request = TryRequest(layout=StorageLayout(), configuration=today, candidates=candidates, **settings)
    return try_candidates(source, request)[0]


def opened_by(group: FindingGroup) -> list[str]:
    return [name for name, opens in group.opened_by.items() if opens == group.findings]


def counts(report: EncryptionTryReport) -> list[tuple[str, int, int, int]]:
    return [(c.name, c.opens, c.right_key, c.undetermined) for c in report.candidates]


RIGHT = config("right.yaml", provider("aesgcm", old=KEY_2))
WRONG = config("wrong.yaml", provider("aesgcm", old=KEY_3), IDENTITY)


def test_each_candidate_is_told_what_it_opens() -> None:
    report = tried({**sealed(1, 2, 3), **sealed(4, key=KEY_1, called="new")}, WRONG, RIGHT)
    assert (report.findings, report.opened, report.complete) == (3, 3, True)
    assert counts(report) == [("wrong.yaml", 0, 0, 0), ("right.yaml", 3, 0, 0)]
    wrong, right = report.candidates
    assert (wrong.opened, wrong.not_opened) == ([], [name(1), name(2), name(3)])
    assert (right.opened, right.not_opened) == ([name(1), name(2), name(3)], [])
    (group,) = report.groups
    assert (group.transformer, group.resources, group.findings) == ("aesgcm/v1/old", ["secrets"], 3)
    assert opened_by(group) == ["right.yaml"]
    assert group.next is not None
    assert line(group.next).startswith(f"etcdfix fix {name(1)} --from candidate:")
    assert report.next is not None
    assert line(report.next).startswith("etcdfix encryption merge")


def test_no_rewrite_is_offered_for_kine() -> None:
    (group,) = tried(sealed(1), RIGHT, run=RunOptions(source=("--kine", "state.db"))).groups
    assert group.next is not None
    assert not group.next.command


def test_groups_that_several_candidates_open_are_told_apart() -> None:
    values = {
        **sealed(1, 2),
        **sealed(3, key=KEY_3, called="older"),
        **sealed(4, key=b"4" * 16, called="gone"),
    }
    older = config("older.yaml", provider("aesgcm", older=KEY_3))
    report = tried(values, RIGHT, older)
    found = {group.transformer: (group.opened, opened_by(group), group.not_opened) for group in report.groups}
    assert found == {
        "aesgcm/v1/old": (2, ["right.yaml"], []),
        "aesgcm/v1/older": (1, ["older.yaml"], []),
        "aesgcm/v1/gone": (0, [], [name(4)]),
    }
    assert len([*text_lines(report.document(), RunOptions(), 100)]) <= 24
    assert [group.next is None for group in report.groups] == [False, True, False]
    assert (report.findings, report.opened) == (4, 3)


def damaged(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])


@pytest.mark.parametrize(
    ("values", "keys", "expected"),
    [
        pytest.param(sealed(1, 2), provider("aesgcm", mine=KEY_2), (0, 2, 0), id="under another name"),
        pytest.param(
            {name(1): damaged(sealed(1)[name(1)]), **sealed(2)}, provider("aesgcm", old=KEY_2), (1, 1, 0), id="damaged"
        ),
        pytest.param(
            {name(7): aescbc(secret("web-1"), KEY_2, name="old")}, provider("aescbc", old=KEY_2), (0, 1, 0), id="moved"
        ),
    ],
)  # fmt: skip
def test_the_right_key_is_seen_where_it_opens_nothing(
    values: dict[str, bytes], keys: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    report = tried(values, config("c.yaml", keys))
    assert counts(report) == [("c.yaml", *expected)]
    assert report.opened == expected[0]


def test_damage_that_is_proven_today_is_told() -> None:
    value = sealed(1, key=KEY_1, called="new")[name(1)]
    (group,) = tried({name(1): damaged(value), **sealed(2, key=KEY_1, called="new")}, RIGHT).groups
    assert (group.findings, group.damaged, group.opened) == (1, 1, 0)


def test_values_that_must_not_be_plain_are_opened_by_a_configuration_with_identity() -> None:
    strict = configuration(provider("aesgcm", new=KEY_1))
    report = tried({name(1): secret("web-1")}, WRONG, RIGHT, today=strict)
    assert [row[1] for row in counts(report)] == [1, 0]


def test_without_a_configuration_everything_that_is_encrypted_is_tried() -> None:
    report = tried({**sealed(1, 2), name(3): secret("web-3")}, WRONG, RIGHT, today=None)
    assert (report.findings, report.opened) == (2, 2)
    assert report.next is not None
    assert line(report.next).startswith("etcdfix scan")


def test_what_a_plugin_that_is_not_asked_would_open_is_undetermined() -> None:
    value = {name(1): b"k8s:enc:kms:v2:prov:" + b"\x0a\x20" + b"c" * 32 + b"\x12\x02id\x1a\x03dek"}
    report = tried(value, config("kms.yaml", KMS), RIGHT)
    assert counts(report) == [("kms.yaml", 0, 0, 1), ("right.yaml", 0, 0, 0)]
    assert not report.complete
    (group,) = report.groups
    assert group.kms_key_id_sha256 is not None


def test_custom_resources_whose_definition_only_the_candidate_reads() -> None:
    place = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
    thing = "/registry/example.com/widgets/shop/w-0"
    values = {
        place: aesgcm(crd(), place, key=KEY_2, name="old"),
        thing: aesgcm(widget(), thing, key=KEY_2, name="old"),
    }
    everything = config("all.yaml", provider("aesgcm", old=KEY_2), resources=("*.*",))
    today = configuration(provider("aesgcm", new=KEY_1), resources=("*.*",))
    report = tried(MemorySource(values), everything, today=today)
    assert (report.findings, report.opened) == (2, 2)


def test_an_interruption_gives_what_was_tried() -> None:
    def interrupted(items: Any, label: str, _estimate: int | None) -> Any:
        for count, item in enumerate(items):
            if label == "values to try" and count == 2:
                raise EndedEarly("interrupted", 130, 130)
            yield item

    request = TryRequest(layout=StorageLayout(), configuration=TODAY, candidates=(RIGHT,))
    report, ended = try_candidates(
        MemorySource({**BASE, **sealed(1, 2, 3, 4)}), request, progress=interrupted
    )
    assert ended is not None
    assert (report.findings, report.opened) == (2, 2)
    assert "after 2 of 4 values" in report.incomplete_reasons[0]


def plain(*numbers: int) -> dict[str, bytes]:
    return {name(n): secret(f"web-{n}") for n in numbers}


def under_one(*numbers: int, key: bytes = KEY_1, called: str = "one") -> dict[str, bytes]:
    return {name(n): aesgcm(secret(f"web-{n}"), name(n), key=key, name=called) for n in numbers}


def compared(
    values: Mapping[str, bytes] | MemorySource,
    today: EncryptionConfiguration | None,
    new: EncryptionConfiguration,
    **settings: Any,
) -> WhatIfReport:
    source = values if isinstance(values, MemorySource) else MemorySource({**BASE, **values})
    request = WhatIfRequest(layout=StorageLayout(), configuration=today, new=new, **settings)
    return what_if(source, request)[0]


def told(report: WhatIfReport) -> list[tuple[str, str, int, str | None]]:
    return [
        (change.change.value, change.transformer, change.count, change.cause) for change in report.changes
    ]


ONE = configuration(provider("aesgcm", one=KEY_1), IDENTITY)


def test_a_stale_value_can_be_written_again_before_its_key_goes() -> None:
    today = configuration(provider("aesgcm", two=KEY_2, one=KEY_1))
    report = compared(under_one(1), today, configuration(provider("aesgcm", two=KEY_2)))
    assert told(report) == [("becomes-unreadable", "aesgcm/v1/one", 1, "key-name-missing")]
    assert report.next is not None
    assert line(report.next) == "kubectl get secrets -A -o json | kubectl replace -f -"


ENVELOPED = {name(1): b"k8s:enc:kms:v2:prov:" + b"\x0a\x20" + b"c" * 32 + b"\x12\x02id\x1a\x03dek"}


def test_what_a_plugin_that_was_not_asked_would_say_is_not_told() -> None:
    with_kms = configuration(provider("aesgcm", one=KEY_1), KMS, IDENTITY)
    report = compared(ENVELOPED, ONE, with_kms)
    assert [(one.change.value, one.count) for one in report.changes] == [("undetermined", 1)]
    assert not report.complete
    # What its plugin may open today, the new configuration has nothing for.
    report = compared(ENVELOPED, with_kms, ONE)
    assert told(report) == [("becomes-unreadable", "kms/v2/prov", 1, "provider-missing")]
    assert (report.complete, report.counts["undetermined"]) == (True, 0)
    assert report.next is not None
    assert (report.next.action[:13], line(report.next)) == ("Do not deploy", "")


@pytest.mark.parametrize(
    ("providers", "resources"),
    [
        ((IDENTITY,), ("secrets",)),
        ((provider("aesgcm", one=KEY_1), IDENTITY), ("secrets",)),
        (({"kms": {**KMS["kms"], "name": "other"}}, IDENTITY), ("secrets",)),
        ((KMS, IDENTITY), ("configmaps",)),
    ],
)
def test_what_nobody_could_judge_and_the_new_configuration_has_nothing_for_is_lost(
    providers: tuple[dict[str, Any], ...], resources: tuple[str, ...]
) -> None:
    """A version, a name, a provider, an entry of the resource: whatever lacks, an API server could not read it then."""
    today = configuration(KMS, IDENTITY)
    report = compared({**ENVELOPED, **plain(2)}, today, configuration(*providers, resources=resources))
    assert (report.counts["becomes-unreadable"], report.counts["undetermined"], report.complete) == (
        1, 0, True,
    )  # fmt: skip
    assert any("has nothing that opens them" in warning for warning in report.warnings)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(EndedEarly("interrupted", 130, 130), "interrupted before the end"), (None, "lost midway")],
)
def test_what_ends_early_gives_what_was_seen(failure: BaseException | None, reason: str) -> None:
    source = MemorySource({**BASE, **under_one(1, 2, 3)}, fails_after=3, failure=failure)
    found = compared(source, ONE, configuration(provider("aesgcm", two=KEY_2)))
    assert reason in found.incomplete_reasons[0]
    assert (found.values, found.counts["becomes-unreadable"]) == (3, 2)


TWO = configuration(provider("aesgcm", two=KEY_2, one=KEY_1), IDENTITY)
OTHER = "/kubernetes.io/secrets/shop/x"
OVERRIDES = {"secrets": ("https://10.0.0.9:2379",), "events": ("https://10.0.0.8:2379",)}


@pytest.mark.parametrize(
    ("values", "new", "settings", "reason"),
    [
        (MemorySource({**BASE, **under_one(1)}, limited_to="/registry/"), ONE, {}, "keys outside /registry/"),
        (plain(1), TWO, {"overrides": OVERRIDES}, "the etcd of secrets was not read: https://10.0.0.9:2379"),
        (plain(1), ONE, {"main_not_read": True}, "the main etcd was not read, but another one"),
        ({**under_one(1), OTHER: aesgcm(secret("x"), OTHER, name="one"), "/other/thing": b"x"}, ONE, {},
         "1 encrypted value outside the storage prefix /registry"),
    ],
    ids=["a user who may not read everything", "an etcd whose providers change", "not the main one", "another prefix"],
)  # fmt: skip
def test_what_was_not_seen_is_not_called_safe(
    values: Mapping[str, bytes] | MemorySource,
    new: EncryptionConfiguration,
    settings: dict[str, Any],
    reason: str,
) -> None:
    (told,) = compared(values, ONE, new, **settings).incomplete_reasons
    assert reason in told


def test_today_s_configuration_has_to_be_named() -> None:
    with pytest.raises(ConfigurationError, match="today's configuration"):
        compared(plain(1), None, ONE)


def test_an_etcd_whose_providers_stay_need_not_be_read() -> None:
    assert compared(plain(1), ONE, ONE, overrides=OVERRIDES).complete


WITHOUT_ONE = configuration(provider("aesgcm", two=KEY_2), IDENTITY)


@pytest.mark.parametrize(
    "at", [3, 9, 16, 19, -30, -1], ids=["colon", "provider", "version", "name", "ciphertext", "tag"]
)
def test_a_value_that_a_key_of_today_alone_can_repair_loses_its_way_back(at: int) -> None:
    value = bytearray(under_one(1)[name(1)])
    value[at] ^= 1
    damaged = {name(1): bytes(value)}
    report = compared({**damaged, **under_one(2, key=KEY_2, called="two")}, TWO, WITHOUT_ONE)
    kinds = ("loses-its-way-back", "stays-unreadable", "becomes-unreadable")
    assert [report.counts[kind] for kind in kinds] == [1, 0, 0]
    assert report.changes[0].change == "loses-its-way-back"
    assert report.next is not None
    assert report.next.action.startswith("Do not deploy")
    assert name(1) in line(report.next)
    kept = compared(damaged, TWO, TWO)
    assert (kept.counts["loses-its-way-back"], kept.counts["stays-unreadable"]) == (0, 1)


KEKS = {"kek-old": b"1" * 32, "kek-new": b"2" * 32}
LOCAL = configuration(provider("aesgcm", local=KEY_1), IDENTITY)


@pytest.fixture(params=["v1", "v2"])
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin(request.param, tmp_path / "kms.sock", KEKS) as running:
        yield running


def config_of(plugin: KMSPlugin, *after: dict[str, object]) -> EncryptionConfiguration:
    kms = {"kms": {"apiVersion": plugin.api_version, "name": "prov", "endpoint": plugin.endpoint}}
    return configuration(kms, *after, IDENTITY)


def values(plugin: KMSPlugin, ids: list[str]) -> dict[str, bytes]:
    store = plugin.stored_v1 if plugin.api_version == "v1" else plugin.stored_v2
    return {name(n): store(secret(f"web-{n}"), name(n).encode(), key_id=kek) for n, kek in enumerate(ids)}


def asked() -> KMSPlugins:
    return KMSPlugins(max_rate=0, patience_seconds=0.5)


def no_snapshot(_path: Path) -> Source:
    raise AssertionError("no other snapshot was named")


def used(plugin: KMSPlugin, found: dict[str, bytes]) -> EncryptionUsageReport:
    request = UsageRequest(
        layout=StorageLayout(), configuration=config_of(plugin, provider("aesgcm", local=KEY_1))
    )
    with asked() as plugins:
        source = MemorySource({**BASE, **found})
        return encryption_usage(source, request, open_snapshot=no_snapshot, plugins=plugins)[0]


def foreseen(
    today: EncryptionConfiguration, new: EncryptionConfiguration, found: dict[str, bytes]
) -> WhatIfReport:
    request = WhatIfRequest(layout=StorageLayout(), configuration=today, new=new)
    with asked() as plugins:
        return what_if(MemorySource({**BASE, **found}), request, plugins=plugins)[0]


def tried_with(plugin: KMSPlugin, found: dict[str, bytes]) -> EncryptionTryReport:
    candidate = NamedCandidate("kms.yaml", config_of(plugin))
    request = TryRequest(layout=StorageLayout(), configuration=LOCAL, candidates=(candidate,))
    with asked() as plugins:
        return try_candidates(MemorySource({**BASE, **found}), request, plugins=plugins)[0]


def test_usage_tells_the_key_ids_apart(plugin: KMSPlugin) -> None:
    report = used(plugin, values(plugin, ["kek-old", "kek-old", "kek-new"]))
    keys = {
        key.kms_key_id_sha256: (key.objects, key.stale, key.write_key, key.safe_to_remove)
        for key in report.keys
        if key.transformer.startswith("kms/")
    }
    old, new = key_id_digest("kek-old"), key_id_digest("kek-new")
    apart = {old: (2, 2, False, False), new: (1, 0, True, False)}
    assert keys == ({None: (3, 0, True, False)} if plugin.api_version == "v1" else apart)
    assert (report.safe_to_remove, report.complete) == (1, True)  # the local one
    plugin.stop()
    report = used(plugin, values(plugin, ["kek-old"]))
    assert (report.safe_to_remove, report.complete) == (0, False)


def test_what_if_asks_a_plugin_of_both_configurations_once(plugin: KMSPlugin) -> None:
    found = values(plugin, ["kek-new"] * 5)
    both = config_of(plugin, provider("aesgcm", local=KEY_1))
    report = foreseen(config_of(plugin), both, found)
    assert (report.changes, report.complete) == ([], True)
    assert plugin.count("Decrypt") == 5


def test_what_if_a_plugin_is_away_what_the_new_file_has_nothing_for_is_lost(plugin: KMSPlugin) -> None:
    """And what the new one alone has a provider for cannot be told."""
    found = values(plugin, ["kek-new"] * 3)
    plugin.stop()
    for today, new, change in (
        (config_of(plugin), LOCAL, "becomes-unreadable"),
        (LOCAL, config_of(plugin), "undetermined"),
    ):
        report = foreseen(today, new, found)
        assert [(one.change.value, one.count) for one in report.changes] == [(change, 3)]


def test_try_asks_the_plugin_of_a_candidate(plugin: KMSPlugin) -> None:
    report = tried_with(plugin, values(plugin, ["kek-new"] * 20))
    assert (report.findings, report.opened, report.complete) == (20, 20, True)
    assert plugin.count("Decrypt") == 20


def test_try_a_plugin_that_refuses_is_undetermined(plugin: KMSPlugin) -> None:
    found = values(plugin, ["kek-new"] * 3)
    del plugin.keks["kek-new"]
    report = tried_with(plugin, found)
    assert (report.opened, report.candidates[0].undetermined, report.complete) == (0, 3, False)
