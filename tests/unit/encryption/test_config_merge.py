"""The union of configurations reads what any of them reads, and writes as the first."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from etcdfix.encryption.config import NOT_DEPLOYED, parse_configuration
from etcdfix.encryption.config_merge import Merged, merge, merged_file
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.transformer import Transformers
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import GroupResource
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aesgcm,
    configuration,
    configuration_of_rules,
    configuration_yaml,
    provider,
)
from tests.support.thorough import THOROUGH

KEY_3 = bytes(range(100, 132))
SECRETS = GroupResource("", "secrets")
NAMES = ("secrets", "configmaps", "deployments.apps", "*.apps", "*.", "*.*")
RESOURCES = [
    GroupResource(group, name)
    for group, name in product(("", "apps", "x.io"), ("secrets", "deployments", "*"))
]
Rule = tuple[tuple[str, ...], tuple[dict[str, Any], ...]]


def kms(name: str = "prov", version: str = "v2", endpoint: str = "unix:///run/kms.sock") -> dict[str, Any]:
    return {"kms": {"apiVersion": version, "name": name, "endpoint": endpoint}}


def config(*rules: Rule, path: str = "a.yaml") -> EncryptionConfiguration:
    return parse_configuration(configuration_of_rules(*rules), path=path)


def only(*providers: dict[str, Any], path: str = "a.yaml") -> EncryptionConfiguration:
    return config((("secrets",), providers), path=path)


def read_back(*files: EncryptionConfiguration) -> tuple[Merged, EncryptionConfiguration]:
    merged = merge(files)
    return merged, parse_configuration(merged_file(merged, files, made_at="now"), path="merged.yaml")


def keys(found: EncryptionConfiguration, resource: GroupResource = SECRETS) -> list[tuple[str, str]]:
    return [
        (key.transformer, key.key_fingerprint)
        for key in Transformers.from_configuration(found).for_resource(resource).keys
    ]


def names(found: EncryptionConfiguration, resource: GroupResource = SECRETS) -> list[str]:
    return [name for name, _ in keys(found, resource)]


def kinds(merged: Merged) -> set[str]:
    return {decision.kind for decision in merged.decisions}


@pytest.mark.parametrize(
    ("today", "other", "tried", "decided"),
    [
        (
            [provider("aescbc", new=KEY_1)],
            [provider("aescbc", old=KEY_2), IDENTITY, provider("secretbox", box=KEY_3)],
            ["aescbc/v1/new", "aescbc/v1/old", "secretbox/v1/box", "identity"],
            {"identity-kept"},
        ),
        ([provider("aesgcm", k=KEY_1), IDENTITY],) * 2 + (["aesgcm/v1/k", "identity"], set()),
        (
            [IDENTITY, provider("aesgcm", k=KEY_1)], [provider("aesgcm", j=KEY_2)],
            ["identity", "aesgcm/v1/k", "aesgcm/v1/j"], {"identity-writes"},
        ),
        ([provider("aesgcm", k=KEY_1)], [provider("aesgcm", j=KEY_1)], ["aesgcm/v1/k", "aesgcm/v1/j"], {"renamed-key"}),
    ],
    ids=["identity-last", "once", "identity-writes", "renamed"],
)  # fmt: skip
def test_todays_come_first_as_they_are(
    today: list[dict[str, Any]], other: list[dict[str, Any]], tried: list[str], decided: set[str]
) -> None:
    merged, found = read_back(only(*today), only(*other, path="b.yaml"))
    assert (names(found), kinds(merged)) == (tried, decided)


def test_one_name_with_other_bytes_is_kept_twice_and_both_are_tried() -> None:
    merged, found = read_back(
        only(provider("aesgcm", k=KEY_1)), only(provider("aesgcm", k=KEY_2), path="b.yaml")
    )
    assert names(found) == ["aesgcm/v1/k", "aesgcm/v1/k"]
    key = "/registry/secrets/a/b"
    reader = Transformers.from_configuration(found).for_resource(SECRETS)
    for bytes_of_key in (KEY_1, KEY_2):
        assert reader.from_storage(aesgcm(b"text", key, bytes_of_key, "k"), key.encode()).data == b"text"
    (decision,) = merged.decisions
    assert decision.kind == "same-name-other-bytes"
    assert [word in decision.message for word in ("a.yaml", "b.yaml", "256")] == [True, True, False]
    # Without a tag the first key opens some values of the second to noise.
    merged, _ = read_back(only(provider("aescbc", k=KEY_1)), only(provider("aescbc", k=KEY_2)))
    assert "1 in 256" in merged.decisions[0].message


def test_a_kms_provider_that_several_entries_need_stands_once() -> None:
    merged, found = read_back(
        config((("secrets", "configmaps"), (kms(),))), only(provider("aescbc", old=KEY_1), path="b.yaml")
    )
    assert names(found) == ["kms/v2/prov", "aescbc/v1/old", "identity"]
    assert names(found, GroupResource("", "configmaps"))[0] == "kms/v2/prov"
    assert "kms-shared" in kinds(merged)
    _, found = read_back(config((("*.*",), (kms(),))), only(provider("aescbc", old=KEY_1), path="b.yaml"))
    assert names(found)[0] == "kms/v2/prov"
    assert "aescbc/v1/old" in names(found)


@pytest.mark.parametrize(
    "files",
    [
        # A wildcard cannot stand twice, and another provider writes for it.
        [config((("secrets",), (kms(),))), config((("*.*",), (kms(),)))],
        # Secrets cannot stand beside the wildcard, and the provider cannot stand before it too.
        [
            config((("secrets",), (provider("aescbc", k=KEY_1),)), (("*.*",), (kms(),))),
            config((("secrets",), (kms(),))),
        ],
        # v2 after v1 of one name.
        [only(kms(version="v1")), only(kms(version="v2"))],
        # Each writes with what the other one only reads.
        [
            config((("secrets",), (kms("a"),)), (("configmaps",), (kms("b"),))),
            config((("secrets",), (kms("b"),)), (("configmaps",), (kms("a"),))),
        ],
        [only(kms()), only(kms(endpoint="unix:///two.sock"), path="b.yaml")],
    ],
)
def test_what_no_single_file_can_say_is_refused(files: list[EncryptionConfiguration]) -> None:
    with pytest.raises(ConfigurationError, match="cannot be one") as raised:
        merge(files)
    assert "candidate:FILE" in raised.value.hint


@pytest.mark.parametrize(
    "name", ["a:b", "on", "1", 'q"\\', "ü\u2028\U0001f511\x85", "- x: #", "2026-05-12T18:43:18+02:00"]
)
def test_every_name_of_a_key_comes_through(name: str) -> None:
    file = only({"aesgcm": {"keys": [{"name": name, "secret": "MDEyMzQ1Njc4OWFiY2RlZg=="}]}})
    _, found = read_back(file)
    assert keys(found) == keys(file)


def test_a_path_stays_in_its_comment() -> None:
    file = msgspec.structs.replace(only(IDENTITY), path="x\nresources: []\u202e")
    merged = merge([file])
    text = merged_file(merged, [file], made_at="now")
    assert b"\nresources: []" not in text
    assert text.isascii()
    parse_configuration(text, path="f")


_PROVIDERS = st.lists(
    st.sampled_from(
        [
            IDENTITY, provider("aescbc", a=KEY_1), provider("aescbc", a=KEY_2),
            provider("aescbc", b=KEY_1, a=KEY_3), provider("aesgcm", a=KEY_1), provider("secretbox", c=KEY_3),
            kms("p"), kms("q"), kms("r", "v1"),
        ]
    ),
    min_size=1,
    max_size=4,
)  # fmt: skip


@st.composite
def configurations(draw: st.DrawFn) -> EncryptionConfiguration:
    rules = draw(st.lists(st.tuples(st.sampled_from(NAMES), _PROVIDERS), min_size=1, max_size=4))
    rules.sort(key=lambda rule: NAMES.index(rule[0]))
    try:
        return config(*(((name,), tuple(providers)) for name, providers in rules))
    except ConfigurationError:  # a wildcard or a KMS name twice
        return only(IDENTITY)


@settings(max_examples=2000 if THOROUGH else 20)
@given(st.lists(configurations(), min_size=1, max_size=3))
def test_any_union_reads_what_any_reads_and_writes_as_the_first(files: list[EncryptionConfiguration]) -> None:
    try:
        _, found = read_back(*files)
    except ConfigurationError as error:
        if "cannot be one" not in error.message:
            raise
        return
    for resource in RESOURCES:
        served = keys(found, resource)
        assert served[0] == keys(files[0], resource)[0]
        for file in files:
            assert set(keys(file, resource)) <= set(served)


TODAY = configuration(provider("aesgcm", key1=KEY_1), IDENTITY)
OLDER = configuration(provider("aescbc", old=KEY_2), resources=("*.*",))
MERGED = merged_file(merge([TODAY, OLDER]), [TODAY, OLDER], made_at="now")
TREE = yaml.safe_load(MERGED)


def made_by(raw: bytes) -> str:
    return parse_configuration(raw, path="f").made_by


@pytest.mark.parametrize(
    ("changed", "maker"),
    [
        (MERGED, "merge"),
        (MERGED.replace(b"\n", b"\r\n"), "merge"),
        (re.sub(rb"(?m)^", b"  ", MERGED), "merge"),
        (MERGED.upper().partition(b"APIVERSION")[0] + MERGED[MERGED.index(b"apiVersion") :], "merge"),
        (yaml.safe_dump(TREE).encode() + b"# merge." + NOT_DEPLOYED.encode(), "merge"),
        (json.dumps(TREE).encode(), ""),
        (re.sub(rb"(?m)^#.*\n", b"", MERGED), ""),
        (configuration_yaml(provider("aesgcm", key1=KEY_1)), ""),
    ],
    ids=["as-it-is", "crlf", "indented", "capitals", "at-the-end", "json", "no-comments", "another"],
)
def test_it_stays_as_long_as_the_comments_do(changed: bytes, maker: str) -> None:
    assert made_by(changed) == maker


def test_it_is_no_part_of_what_api_servers_read() -> None:
    entries = [entry for rule in TREE["resources"] for entry in rule["resources"]]
    assert entries == ["secrets", "*.*"]
    assert NOT_DEPLOYED not in json.dumps(TREE)
