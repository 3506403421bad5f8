"""Corners of strict decoding that need no fixture."""

from __future__ import annotations

import json

import pytest

from etcdfix.encryption.config_decode import decode_document
from etcdfix.encryption.config_document import read_json
from etcdfix.errors import ConfigurationError

KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
META = '"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"'


def problem(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        decode_document(read_json(text.encode()), file_size=len(text))
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"KIND": "X", "APIVERSION": "v9"}', 'no kind "X" is registered for version "v9"'),
        ('{"kind": "X", "Kind": "Y", "apiVersion": "v9"}', 'no kind "Y" is registered for version "v9"'),
        ('{"kind": null, "apiVersion": "v1"}', "Object 'Kind' is missing in '<34 bytes withheld>'"),
        ('{"kind": "X", "apiVersion": "/"}', "Object 'apiVersion' is missing in '<32 bytes withheld>'"),
        (
            '{"kind": "X", "apiVersion": ["v1"]}',
            (
                "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go struct field "
                ".apiVersion of type string"
            ),
        ),
        (
            f'{{"kind": "{KEY}", "apiVersion": "v1"}}',
            'no kind <44 bytes withheld> is registered for version "v1"',
        ),
        (
            f'{{"kind": "X", "apiVersion": "a/{KEY}/b"}}',
            "unexpected GroupVersion string: <48 bytes withheld>",
        ),
        (f'{{{META}, "{KEY}": 1}}', 'strict decoding error: unknown field "<44 bytes withheld>"'),
        (
            f'{{{META}, "resources": [{{"{KEY}": 1}}]}}',
            'strict decoding error: unknown field "resources[0].<44 bytes withheld>"',
        ),
        (
            f'{{{META}, "x": 1, "x": 2, "kind": "EncryptionConfiguration", "y": 3}}',
            'strict decoding error: unknown field "x", duplicate field "kind", unknown field "y"',
        ),
        # A type error wins over strict errors, and the first type error over later ones.
        (
            f'{{{META}, "x": 1, "resources": [{{"resources": 5, "providers": "y"}}]}}',
            (
                "json: cannot unmarshal number into Go struct field ResourceConfiguration.resources.resources "
                "of type []string"
            ),
        ),
        # A duration is read by a decoder of its own, whose errors win over everything.
        (
            f'{{{META}, "resources": [{{"resources": 5, "providers": [{{"kms": {{"timeout": {{}}}}}}]}}]}}',
            (
                "json: cannot unmarshal object into Go struct field KMSConfiguration.resources.providers.kms.timeout "
                "of type string"
            ),
        ),
        (
            f'{{{META}, "resources": [{{"providers": [{{"kms": {{"cachesize": {"9" * 30}}}}}]}}]}}',
            (
                "json: cannot unmarshal number <30 bytes withheld> into Go struct field "
                "KMSConfiguration.resources.providers.kms.cachesize of type int32"
            ),
        ),
        (
            f'{{{META}, "resources": [{{"providers": [{{"kms": {{"cachesize": -2147483649}}}}]}}]}}',
            (
                "json: cannot unmarshal number -2147483649 into Go struct field "
                "KMSConfiguration.resources.providers.kms.cachesize of type int32"
            ),
        ),
        (
            f'{{{META}, "resources": {{}}}}',
            (
                "json: cannot unmarshal object into Go struct field EncryptionConfiguration.resources of type "
                "[]v1.ResourceConfiguration"
            ),
        ),
        (
            f'{{{META}, "resources": [[]]}}',
            (
                "json: cannot unmarshal array into Go struct field EncryptionConfiguration.resources of type "
                "v1.ResourceConfiguration"
            ),
        ),
    ],
)
def test_messages(text: str, message: str) -> None:
    assert problem(text) == message


def test_not_more_than_a_hundred_strict_problems() -> None:
    fields = ", ".join(f'"x{n}": 0' for n in range(200))
    assert problem(f"{{{META}, {fields}}}").count("unknown field") == 100


def test_nulls_are_zero_values() -> None:
    text = {
        "apiVersion": "v1",
        "kind": "EncryptionConfig",
        "resources": [
            None,
            {"resources": None, "providers": None},
            {
                "resources": [None],
                "providers": [
                    None,
                    {"aescbc": None, "aesgcm": {"keys": None}, "secretbox": {"keys": [None, {"name": None}]}},
                    {"kms": {"apiVersion": None, "name": None, "cachesize": None, "timeout": None}},
                ],
            },
        ],
    }
    raw = json.dumps(text).encode()
    first, second, third = decode_document(read_json(raw), file_size=len(raw))
    assert (first.resources, first.providers, second.resources, second.providers) == ([], [], [], [])
    assert third.resources == [""]
    nothing, keyed, kms = third.providers
    assert nothing.members == frozenset()
    assert keyed.members == {"aesgcm", "secretbox"}
    assert keyed.keys["aesgcm"] == []
    assert [(key.name, key.secret) for key in keyed.keys["secretbox"]] == [("", ""), ("", "")]
    assert kms.kms is not None
    assert (kms.kms.api_version, kms.kms.name, kms.kms.cache_size, kms.kms.timeout) == (
        "v1",
        "",
        1000,
        3_000_000_000,
    )
