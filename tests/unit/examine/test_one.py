"""The road that every key takes, with real ciphers and real decoders on objects written by hand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.transformer import ResourceTransformers, Transformers, TransformFailed
from etcdfix.examine import readers
from etcdfix.examine.one import Examiner
from etcdfix.examine.readers import ResourceReaders
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import Deletability, deletability_of
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.model.model import GroupResource, Outcome, StoredValue
from etcdfix.model.storagekey import StorageCodec, StorageLayout
from etcdfix.testing.protobytes import unknown
from tests.support.decoders import shared_decoder
from tests.support.encoders import aescbc_body
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    KMS_V2,
    KUBE_SYSTEM_UID,
    aescbc,
    aesgcm,
    allocation,
    config_map,
    configuration,
    crd,
    json_object,
    namespace_object,
    provider,
    secret,
    widget,
)

KEY = "/registry/secrets/shop/web"
CRD_KEY = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
WIDGET_KEY = "/registry/example.com/widgets/shop/w-0"

UNTOUCHABLE = {Deletability.NOT_BROKEN, Deletability.NEVER, Deletability.UNPROVEN}


def examiner(
    config: EncryptionConfiguration | None = None,
    *,
    prefix: str = "/registry",
    minor: int | None = 36,
    holds: Mapping[str, bytes] | None = None,
) -> Examiner:
    transformers = Transformers.from_configuration(config) if config is not None else None
    found = Examiner(
        StorageLayout(prefix),
        transformers,
        shared_decoder(minor),
        assumed_release=f"1.{minor}" if minor else "",
    )
    found.learn_custom_resources(MemorySource(holds or {}))
    return found


def look(
    value: bytes, config: EncryptionConfiguration | None = None, key: str | bytes = KEY, **settings: Any
) -> Examination:
    return examiner(config, **settings).examine(stored(key, value))


def verdict(found: Examination) -> tuple[Outcome, Cause | None]:
    return found.verdict.outcome, found.verdict.cause


ELSEWHERE = configuration(IDENTITY, resources=("pods",))
CONFIG = configuration(provider("aescbc", key1=KEY_1), provider("aesgcm", key1=KEY_1), KMS_V2)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (KEY, secret("other"), "metadata.name differs"),
        (KEY, secret("web", "pay"), "metadata.namespace differs"),
        (KEY, secret(""), "metadata.name is missing"),
        (KEY, secret("web", ""), "metadata.namespace differs"),
        ("/registry/secrets/web", secret("web", ""), "path segments"),
        ("/registry/secrets/shop/web/more", secret(), "path segments"),
        ("/registry/secrets/", secret("", ""), "path segments"),
        ("/registry/namespaces/a/b", namespace_object("b"), "path segments"),
        ("/registry/namespaces/shop", namespace_object("pay"), "metadata.name differs"),
    ],
)
def test_objects_that_contradict_their_key(key: str, value: bytes, words: str) -> None:
    found = look(value, key=key)
    assert verdict(found) == (Outcome.INCONSISTENT, Cause.IDENTITY_MISMATCH)
    assert words in found.verdict.message
    assert deletability_of(found) in UNTOUCHABLE


@pytest.mark.parametrize(
    "key", ["compact_rev_key", "/registry/masterleases/10.0.0.1", "/other/secrets/shop/web", "x"]
)
@pytest.mark.parametrize("value", [b"", b"77", secret(), aescbc(secret())])
def test_keys_that_are_not_objects(key: str, value: bytes) -> None:
    under_test = examiner(CONFIG)
    for _again in range(2):
        found = under_test.examine(stored(key, value))
        assert verdict(found) == (Outcome.NOT_AN_OBJECT, None)


@pytest.mark.parametrize("value", [b"", b"junk", aescbc(allocation()), allocation()[:-3]])
def test_a_damaged_allocator_is_never_deletable(value: bytes) -> None:
    found = look(value, CONFIG, key="/registry/ranges/servicenodeports")
    assert verdict(found) == (Outcome.DECODE_FAILURE, Cause.ALLOCATOR_DAMAGED)
    assert deletability_of(found) in UNTOUCHABLE


def test_custom_resources_need_a_readable_definition() -> None:
    broken, whole = widget()[:-9], widget()
    without = examiner()
    assert verdict(without.examine(stored(WIDGET_KEY, broken))) == (Outcome.UNDETERMINED, Cause.OWNER_UNKNOWN)
    assert verdict(without.examine(stored(WIDGET_KEY, whole))) == (Outcome.READABLE, Cause.OWNER_UNKNOWN)
    with_crd = examiner(holds={CRD_KEY: crd()})
    assert with_crd.readers.custom_resources["example.com", "widgets"].kind == "Widget"
    assert verdict(with_crd.examine(stored(WIDGET_KEY, broken))) == (
        Outcome.DECODE_FAILURE,
        Cause.VALUE_TRUNCATED,
    )
    assert verdict(with_crd.examine(stored(WIDGET_KEY, whole))) == (Outcome.READABLE, None)


@pytest.mark.parametrize(
    ("key", "definition"),
    [
        (CRD_KEY, b"junk"),
        (CRD_KEY, b"{}"),
        (CRD_KEY, crd("gadgets")),
        (CRD_KEY, aescbc(crd())),
        (CRD_KEY.replace("widgets", "moved"), crd()),
    ],
)
def test_definitions_that_do_not_count(key: str, definition: bytes) -> None:
    assert examiner(holds={key: definition}).readers.custom_resources == {}


def test_scope_of_a_definition_decides_what_a_key_is() -> None:
    cluster = examiner(holds={CRD_KEY: crd(scope="Cluster")})
    found = cluster.examine(stored("/registry/example.com/widgets/w-0", widget(namespace="")))
    assert verdict(found) == (Outcome.READABLE, None)
    assert (found.namespace, found.name) == ("", "w-0")
    odd = cluster.examine(stored(WIDGET_KEY, widget()))
    assert verdict(odd) == (Outcome.INCONSISTENT, Cause.IDENTITY_MISMATCH)
    namespaced = examiner(holds={CRD_KEY: crd()})
    odd = namespaced.examine(stored("/registry/example.com/widgets/w-0", widget(namespace="")))
    assert verdict(odd) == (Outcome.INCONSISTENT, Cause.IDENTITY_MISMATCH)


@pytest.mark.parametrize("tail", [b"\xff/w", b"secrets/\xff/\xfe", b"a.b/\xff/c/d", b"ranges/\xff", b"\xff"])
@pytest.mark.parametrize("value", [b"", secret(), b"junk"])
def test_keys_of_any_bytes_are_examined(tail: bytes, value: bytes) -> None:
    found = look(value, CONFIG, key=b"/registry/" + tail)
    assert found.verdict.outcome is not Outcome.NOT_AN_OBJECT
    (found.namespace + found.name + found.directory.resource + found.verdict.message).encode()


def test_a_key_that_is_not_utf8_is_compared_by_its_bytes() -> None:
    key = b"/registry/secrets/shop/\xff"
    name = key.rpartition(b"/")[2]
    value = secret("X").replace(b"\n\x01X", b"\n\x01" + name)
    found = examiner().examine(stored(key, value))
    assert found.verdict.cause is Cause.INVALID_UTF8
    assert "identity-mismatch" not in [e.check for e in found.verdict.evidence]


def test_neighbouring_keys_are_read_by_their_own_rules() -> None:
    """Readers are kept from key to key; one that fits only a single key must not be used for the next."""
    holds = {
        "/registry/namespaces/shop": namespace_object("shop"),
        "/registry/pods": b"junk",
        "/registry/pods-and-more/x": b"junk",
        "/registry/ranges/servicenodeports": allocation(),
        "/registry/ranges/servicenodeports2": allocation(),
        "/registry/secrets/shop/web": secret(),
        "/registry/services/specs/shop/web": b"",
        "/registry/secretsx/shop/web": secret(),
        "compact_rev_key": b"7",
        "compact_rev_key2": b"7",
    }
    source = MemorySource(holds)
    under_test = examiner()
    found = {s.key.decode(): under_test.examine(s) for s in source.current(b"")}
    assert list(found) == sorted(holds)
    assert {key: e.directory.codec for key, e in found.items()} == {
        "/registry/namespaces/shop": StorageCodec.BUILTIN,
        "/registry/pods": StorageCodec.NOT_AN_OBJECT,
        "/registry/pods-and-more/x": StorageCodec.UNKNOWN,
        "/registry/ranges/servicenodeports": StorageCodec.ALLOCATOR,
        "/registry/ranges/servicenodeports2": StorageCodec.UNKNOWN,
        "/registry/secrets/shop/web": StorageCodec.BUILTIN,
        "/registry/services/specs/shop/web": StorageCodec.BUILTIN,
        "/registry/secretsx/shop/web": StorageCodec.UNKNOWN,
        "compact_rev_key": StorageCodec.NOT_AN_OBJECT,
        "compact_rev_key2": StorageCodec.NOT_AN_OBJECT,
    }


@pytest.mark.parametrize(
    ("holds", "uid"),
    [
        ({"/registry/namespaces/kube-system": namespace_object("kube-system")}, KUBE_SYSTEM_UID),
        ({}, None),
        ({"/registry/namespaces/kube-system": b"junk"}, None),
        ({"/registry/namespaces/kube-system": namespace_object("kube-system", "")}, None),
        ({"/registry/namespaces/kube-system": namespace_object("other")}, None),
        ({"/registry/namespaces/kube-system": aescbc(namespace_object("kube-system"))}, None),
        ({"/other/namespaces/kube-system": namespace_object("kube-system")}, None),
    ],
)
def test_the_cluster_is_named_by_kube_system(holds: dict[str, bytes], uid: str | None) -> None:
    assert examiner().kube_system_uid(MemorySource(holds)) == uid


def test_kube_system_below_another_prefix_and_encrypted() -> None:
    source = MemorySource({"/namespaces/kube-system": aescbc(namespace_object("kube-system"))})
    config = configuration(provider("aescbc", key1=KEY_1), resources=("namespaces",))
    assert examiner(config, prefix="/").kube_system_uid(source) == KUBE_SYSTEM_UID


def test_hostile_directories_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_MOST_READERS", 64)
    under_test = examiner()
    for number in range(200):
        under_test.examine(stored(f"/registry/g{number}.example.com/things/x/y", b"{}"))
    assert len(under_test.readers._made) <= 64


def test_the_plaintext_of_the_last_value_is_kept_only_where_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = []
    original = ResourceReaders.plaintext_of

    def counting(self: ResourceReaders, value: StoredValue) -> bytes | None:
        opened.append(value)
        return original(self, value)

    monkeypatch.setattr(ResourceReaders, "plaintext_of", counting)
    under_test = examiner(CONFIG)
    first, second = (under_test.examine(stored(KEY, aescbc(secret()))) for _ in range(2))
    assert under_test.plaintext(second) == secret()
    assert opened == []
    assert under_test.plaintext(first) == secret()
    assert opened == [first.stored]


RULES = parse_configuration(
    b"""
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZg==}, {name: key2, secret: MTExMTExMTExMTExMTExMQ==}]}
- resources: [configmaps]
  providers:
  - aesgcm: {keys: [{name: key1, secret: ZmVkY2JhOTg3NjU0MzIxMA==}]}
""",
    path="test",
)


def fingerprints(config: EncryptionConfiguration, rule: str) -> list[str]:
    transformers = Transformers.from_configuration(config)
    found = transformers.for_resource(GroupResource("", rule))
    return [key.key_fingerprint for key in found.keys]


def test_a_value_counts_under_the_key_of_its_rule() -> None:
    of_secrets, second = fingerprints(RULES, "secrets")
    (of_config_maps,) = fingerprints(RULES, "configmaps")
    config_map_key = "/registry/configmaps/shop/settings"
    opened = look(aesgcm(secret(), KEY), RULES)
    assert opened.encryption_keys == (KeyName("secrets", "aesgcm/v1/key1", of_secrets),)
    unopened = look(aesgcm(secret(), KEY, b"0" * 16), RULES)
    assert unopened.encryption_keys == opened.encryption_keys
    other = look(aesgcm(config_map(), config_map_key, KEY_2), RULES, key=config_map_key)
    assert other.encryption_keys == (KeyName("configmaps", "aesgcm/v1/key1", of_config_maps),)
    assert len({of_secrets, second, of_config_maps}) == 3
    missing = look(aesgcm(secret(), KEY, b"0" * 16, name="gone"), RULES)
    assert missing.encryption_keys == (KeyName("secrets", "aesgcm/v1/gone", ""),)
    plain = look(config_map(), ELSEWHERE, key=config_map_key)
    assert plain.encryption_keys == (KeyName("", "identity", ""),)


def noise(key: str, name: str = "key1") -> bytes:
    return aesgcm(secret(), key, b"0" * 16, name=name)


def test_values_around_one_show_that_its_key_is_right() -> None:
    """Only what was written before and after it counts: a key replaced in place has neither, or nothing after it."""
    under_test = examiner(RULES)
    target = stored(KEY, noise(KEY), mod_revision=50)

    def cause() -> Cause | None:
        return under_test.examine(target).verdict.cause

    def opens(name: str, mod_revision: int) -> None:
        key = f"/registry/secrets/shop/{name}"
        found = under_test.examine(stored(key, aesgcm(secret(name), key), mod_revision=mod_revision))
        assert found.verdict.outcome is Outcome.READABLE

    assert cause() is Cause.WRONG_KEY
    opens("later", 60)
    opens("latest", 90)
    assert cause() is Cause.WRONG_KEY
    opens("earlier", 40)
    assert cause() is Cause.NONCE_DAMAGED
    assert under_test.examine(target).verdict.damage is Damage.LIKELY
    assert under_test.examine(stored(KEY, noise(KEY), mod_revision=91)).verdict.cause is Cause.WRONG_KEY
    assert under_test.examine(stored(KEY, noise(KEY), mod_revision=40)).verdict.cause is Cause.WRONG_KEY
    under_test.start_over()
    assert cause() is Cause.WRONG_KEY


def test_values_under_another_key_of_the_rule_say_nothing() -> None:
    under_test = examiner(RULES)
    for name, mod_revision in (("a", 10), ("b", 90)):
        key = f"/registry/secrets/shop/{name}"
        value = aesgcm(secret(name), key, b"1" * 16, name="key2")
        assert under_test.examine(stored(key, value, mod_revision=mod_revision)).opened
    assert under_test.examine(stored(KEY, noise(KEY), mod_revision=50)).verdict.cause is Cause.WRONG_KEY
    second = under_test.examine(stored(KEY, noise(KEY, "key2"), mod_revision=50))
    assert second.verdict.cause is Cause.NONCE_DAMAGED


def test_an_object_without_a_name_names_no_place() -> None:
    config = configuration(provider("aesgcm", key1=KEY_1), resources=("*.*",))
    for plaintext in (secret(""), unknown(b"v1", b"ConfigMap", b"\xff" * 40)):
        found = examiner(config).examine(stored(KEY, aesgcm(plaintext, "/elsewhere")), thorough=True)
        assert found.verdict.belongs_to == b""


API_SERVICE = "/registry/apiregistration.k8s.io/apiservices/v1.example.com"


def api_service(**spec: Any) -> bytes:
    return json_object(
        "apiregistration.k8s.io/v1", "APIService", "v1.example.com", "",
        spec={"group": "example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1, **spec},
    )  # fmt: skip


BY_A_SERVICE = {"service": {"namespace": "ns", "name": "server"}}


@pytest.mark.parametrize(
    ("value", "aggregated"),
    [
        (api_service(), False),
        (api_service(**BY_A_SERVICE), True),
        (b"junk", True),
        (b"", True),
        (aescbc(api_service()), True),
    ],
)
def test_another_server_may_own_a_group_whatever_definition_is_left(
    value: bytes, *, aggregated: bool
) -> None:
    config = configuration(
        provider("aescbc", key1=KEY_2), IDENTITY, resources=("apiservices.apiregistration.k8s.io",)
    )
    under_test = examiner(config, holds={CRD_KEY: crd(), API_SERVICE: value})
    assert under_test.readers.aggregated_groups == ({"example.com"} if aggregated else set())
    broken = under_test.examine(stored(WIDGET_KEY, widget()[:-9]))
    whole = under_test.examine(stored(WIDGET_KEY, widget()))
    if aggregated:
        assert verdict(broken) == (Outcome.UNDETERMINED, Cause.OWNER_UNKNOWN)
        assert verdict(whole) == (Outcome.READABLE, Cause.OWNER_UNKNOWN)
        assert deletability_of(broken) is Deletability.UNPROVEN
    else:
        assert verdict(broken) == (Outcome.DECODE_FAILURE, Cause.VALUE_TRUNCATED)
        assert verdict(whole) == (Outcome.READABLE, None)


def test_an_aggregated_group_takes_nothing_from_built_in_types() -> None:
    holds = {"/registry/apiregistration.k8s.io/apiservices/v1.apps": b"junk"}
    under_test = examiner(holds=holds)
    assert under_test.readers.aggregated_groups == {"apps"}
    value = json_object("apps/v1", "Deployment", "web")
    assert verdict(under_test.examine(stored("/registry/deployments/shop/web", value))) == (
        Outcome.READABLE,
        None,
    )


APISERVICE_KEY = "/registry/apiregistration.k8s.io/apiservices/v1.x"
CBC, CBC_OR_PLAIN = (
    configuration(provider("aescbc", key1=KEY_1), *more, resources=("*.*",)) for more in ((), (IDENTITY,))
)


def test_padding_that_fits_by_chance_under_an_earlier_key_of_the_name_proves_nothing() -> None:
    """The API server looks no further than the first key whose padding fits; another one of that name opens it."""
    twice = (
        provider("aescbc", key1=KEY_2)["aescbc"]["keys"] + provider("aescbc", key1=KEY_1)["aescbc"]["keys"]
    )
    both = configuration({"aescbc": {"keys": twice}}, resources=("secrets",))
    values = (
        b"k8s:enc:aescbc:v1:key1:" + aescbc_body(secret(), KEY_1, n.to_bytes(16)) for n in itertools.count()
    )
    first = Transformers.from_configuration(configuration(provider("aescbc", key1=KEY_2)))
    rule = first.for_resource(GroupResource("", "secrets"))
    found = look(next(value for value in values if opens(rule, value)), both)
    assert verdict(found) == (Outcome.DECODE_FAILURE, Cause.KEY_RENAMED)
    assert deletability_of(found) is Deletability.CURABLE


def opens(rule: ResourceTransformers, value: bytes) -> bool:
    try:
        rule.from_storage(value, KEY.encode())
    except TransformFailed:
        return False
    return True


def test_values_of_another_key_of_the_name_are_no_neighbours() -> None:
    """The key that wrote the value is known, and it opened nothing."""
    twice = (
        provider("aesgcm", key1=KEY_2)["aesgcm"]["keys"] + provider("aesgcm", key1=KEY_1)["aesgcm"]["keys"]
    )
    for neighbours, cause in ((KEY_2, Cause.ASSOCIATED_DATA_UNKNOWN), (KEY_1, Cause.CIPHERTEXT_DAMAGED)):
        both = configuration({"aesgcm": {"keys": twice}}, resources=("secrets",))
        under_test = examiner(both)
        for revision in (3, 8, 9):
            key = f"/registry/secrets/shop/at-{revision}"
            value = aesgcm(secret(f"at-{revision}"), key, neighbours)
            assert under_test.examine(stored(key, value, mod_revision=revision)).opened
        value = aesgcm(secret(), "/elsewhere", KEY_1)
        found = under_test.examine(stored(KEY, value, mod_revision=5))
        assert verdict(found) == (Outcome.DECRYPT_FAILURE, cause)


@pytest.mark.parametrize("minor", [17, 36, None])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (APISERVICE_KEY, secret("v1.x", "")),
        (APISERVICE_KEY, json_object("v1", "Secret", "v1.x", "")),
        (CRD_KEY, json_object("v1", "Pod", "widgets.example.com", "")),
        (APISERVICE_KEY, crd()),
        (KEY, crd()),
        (KEY, json_object("apiregistration.k8s.io/v1", "APIService", "web", "")),
        (KEY, config_map("web")),
    ],
)
def test_a_kind_of_another_api_server_is_the_wrong_kind(key: str, value: bytes, minor: int | None) -> None:
    found = look(value, key=key, minor=minor, holds={CRD_KEY: crd()})
    assert verdict(found) == (Outcome.DECODE_FAILURE, Cause.WRONG_KIND_FOR_KEY)


@pytest.mark.parametrize("number", [b"1e9999", b"-4711471147114711e999"])
@pytest.mark.parametrize(
    ("key", "start"),
    [
        (WIDGET_KEY, b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w-0"},"x":'),
        (KEY, b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"web","namespace":"shop","generation":'),
    ],
)  # fmt: skip
def test_numbers_are_withheld(key: str, start: bytes, number: bytes) -> None:
    value = start + number + b"}" * (start.count(b"{") - start.count(b"}"))
    found = look(value, key=key, holds={CRD_KEY: crd()})
    assert verdict(found) == (Outcome.DECODE_FAILURE, Cause.JSON_DAMAGED)
    assert f"number <{len(number)} bytes withheld>" in found.verdict.upstream_message
    assert number.decode() not in repr(found.verdict)


def test_a_kind_of_any_length_is_echoed_in_part() -> None:
    for key, version in ((KEY, "v1"), (WIDGET_KEY, "example.com/v1")):
        found = look(json_object(version, "K" * 200_000, "web"), key=key, holds={CRD_KEY: crd()})
        assert found.verdict.outcome in {Outcome.DECODE_FAILURE, Outcome.INCONSISTENT}
        details = (evidence.detail for evidence in found.verdict.evidence)
        assert all(
            len(text) < 5000 for text in (found.verdict.message, found.verdict.upstream_message, *details)
        )


@pytest.mark.parametrize("config", [None, CBC, CBC_OR_PLAIN])
@pytest.mark.parametrize("value", [b"x", aescbc(b"x"), aescbc(b"{}")])
def test_strange_keys_among_the_allocators_are_never_decrypted(
    value: bytes, config: EncryptionConfiguration | None
) -> None:
    found = look(value, config, "/registry/ranges/foo")
    assert verdict(found) == (Outcome.UNDETERMINED, Cause.OWNER_UNKNOWN)
    assert found.verdict.message.startswith("no known type is stored under ranges")
    assert found.transformer != "aescbc/v1/key1" or not found.opened
