"""Built-ins as JSON: the verdict and the message of a GET, the identity, and what is wrong inside.

The expected outcomes come from running the storage codec of the API server."""

from __future__ import annotations

import json

import msgspec
import pytest

from etcdfix.decoding.errors import ConversionFailed, KindUnknown
from etcdfix.decoding.kubejson.codec import JSONDecoder, TypeMeta, interpret
from etcdfix.decoding.kubejson.fast import Structs
from etcdfix.decoding.kubejson.gotypes import GoTypes
from etcdfix.decoding.registry import Registry, SchemeName
from etcdfix.decoding.schema import load_schema
from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.gojson import tokenize
from etcdfix.model.model import DecodedObject, Evidence, GroupVersionKind, Inconsistency

DECODER = JSONDecoder(load_schema(36), Registry(36))
CRDS = JSONDecoder(load_schema(36), Registry(36, SchemeName.APIEXTENSIONS))
V1_SECRET = GroupVersionKind("", "v1", "Secret")
SCHEME = 'in scheme "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"'
INTO = "json: cannot unmarshal number into Go struct field {} of type {}"
SNIFFING = "couldn't get version/kind; json parse error: "


def secret(text: bytes = b"", metadata: bytes = b'"name":"s","namespace":"n","uid":"u"') -> bytes:
    return b'{"kind":"Secret","apiVersion":"v1","metadata":{' + metadata + b"}" + text + b"}"


def both_ways(data: bytes, group: str = "", kind: str = "Secret") -> DecodedObject:
    decoded = DECODER.decode(data, group, kind)
    assert DECODER.decode_strictly(data, group, kind) == decoded
    return decoded


HEALTHY = [
    secret(),
    secret(b',"data":{"a":"YQ==","b":null},"type":"Opaque"'),
    secret(b',"stringData":{"a":"b"},"immutable":true'),
    b" \n" + secret() + b" ",
    secret(metadata=b'"name":"s","namespace":"n","uid":"u","labels":{"a":"\\u003cb\\u003e"}'),
    # things that only the strict path judges
    secret(metadata=b'"name":"s","namespace":"n"}, "metadata":{"uid":"u"'),
    secret(metadata=b'"name":"s","namespace":"n","uid":"u","namespace":null'),
    secret(metadata=b'"n\\u0061me":"s","namespace":"n","uid":"u"'),
    secret(metadata=b'"name":"s","namespace":"n","uid":"u","creationTimestamp":"2024-02-29T01:02:03+01:00"'),
    b'{"KIND":"Secret","apiversion":"v1","metadata":{"name":"s","namespace":"n","uid":"u"}}',
    b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"s","namespace":"n","uid":"u"},"Kind":"Secret"}',
    '{"\u212aind":"Secret","apiVer\u017fion":"v1","metadata":{"name":"s","namespace":"n","uid":"u"}}'.encode(),
    b'{"kind":"Secret","apiVersion":"/v1","metadata":{"name":"s","namespace":"n","uid":"u"}}',
]


@pytest.mark.parametrize("data", HEALTHY)
def test_healthy_secrets(data: bytes) -> None:
    decoded = both_ways(data)
    if decoded.warnings:
        assert decoded.warnings[0].check == "unknown-fields"
    assert decoded == DecodedObject(V1_SECRET, b"s", b"n", b"u", "json", warnings=decoded.warnings)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"kind":"Secret","metadata":{"name":"x"}}',
        b'{"kind":"","apiVersion":"","data":{"a":"not checked"}}',
        b'{"kind":"Secret","apiVersion":"__internal","metadata":{"name":"x"}}',
        b'{"apiVersion":"/"}',
    ],
)
def test_without_a_version_the_server_serves_an_empty_object(data: bytes) -> None:
    decoded = DECODER.decode(data, "", "Secret")
    assert decoded.empty
    assert (decoded.name, decoded.namespace, decoded.uid) == (None, None, None)


def test_without_a_kind_the_key_completes_it_and_the_data_is_served() -> None:
    decoded = DECODER.decode(b'{"apiVersion":"v1","metadata":{"name":"x"},"data":{"a":"YQ=="}}', "", "Secret")
    assert not decoded.empty
    assert decoded.name == b"x"
    assert decoded.gvk == GroupVersionKind("", "v1", "")
    assert [wrong.cause for wrong in decoded.inconsistencies] == ["kind-missing"]


def no_kind(kind: str, version: str) -> str:
    return f'no kind "{kind}" is registered for {version} {SCHEME}'


def no_conversion(go_type: str) -> str:
    return f"converting ({go_type}) to (core.Secret): unknown conversion"


@pytest.mark.parametrize(
    ("data", "message", "reason"),
    [
        (b'{"kind":"Foo","apiVersion":"v1"}', no_kind("Foo", 'version "v1"'), "not-registered"),
        (
            b'{"kind":"S\x7f","apiVersion":"a\x7f/v1"}',
            no_kind(r"S\x7f", r'version "a\x7f/v1"'),
            "not-registered",
        ),
        (b'{"kind":"Foo"}', no_kind("Foo", 'the internal version of group ""'), "missing"),
        (b'{"kind":"Pod"}', no_conversion("core.Pod"), "wrong-kind"),
        (b'{"kind":"Pod","apiVersion":"v1"}', no_conversion("v1.Pod"), "wrong-kind"),
        (b'{"apiVersion":"a/b/c"}', "unexpected GroupVersion string: a/b/c", "not-registered"),
        (b'{"apiVersion":"apps/"}', "Object 'apiVersion' is missing in '<22 bytes withheld>'", "missing"),
    ],
)
def test_types_that_do_not_fit(data: bytes, message: str, reason: str) -> None:
    with pytest.raises(KindUnknown) as caught:
        DECODER.decode(data, "", "Secret")
    assert (caught.value.message, caught.value.reason) == (message, reason)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b'{"kind":"Secret",}',
            SNIFFING + "invalid character '}' looking for beginning of object key string",
        ),
        (b'{"kind":5}', SNIFFING + "json: cannot unmarshal number into Go struct field .kind of type string"),
        (
            b'{"apiVersion":[],"KIND":{},"kind":"Secret"}',
            SNIFFING + "json: cannot unmarshal array into Go struct field .apiVersion of type string",
        ),
        (secret(b',"data":{"a":"!!"}'), "illegal base64 data at input byte 0"),
        # the wrong kind is filled first, so its own errors come first
        (b'{"kind":"Pod","apiVersion":"v1","spec":5}', INTO.format("Pod.spec", "v1.PodSpec")),
        (b"{" + b'"a":{' * 10_000 + b"}" * 10_001, SNIFFING + "invalid character '{' exceeded max depth"),
    ],
)
def test_malformed(data: bytes, message: str) -> None:
    with pytest.raises(JSONMalformed) as caught:
        DECODER.decode(data, "", "Secret")
    assert caught.value.message == message
    assert caught.value.offset is not None


def test_the_rollback_annotation_takes_part_in_conversion() -> None:
    metadata = {"name": "d", "uid": "u", "annotations": {"deprecated.deployment.rollback.to": "abc"}}
    data = json.dumps({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": metadata}).encode()
    with pytest.raises(ConversionFailed) as caught:
        DECODER.decode(data, "apps", "Deployment")
    assert "abc" not in caught.value.message
    assert DECODER.decode(data.replace(b"abc", b"7"), "apps", "Deployment").name == b"d"


def test_numbers_of_a_schema_must_fit_a_float64() -> None:
    schema = b'{"openAPIV3Schema":{"default":1e999}}'
    data = (
        b'{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1beta1","metadata":{"name":"c","uid":"u"},'
        b'"spec":{"validation":' + schema + b"}}"
    )
    with pytest.raises(
        ConversionFailed, match="cannot unmarshal number <5 bytes withheld> into Go value of type float64"
    ):
        CRDS.decode(data, "apiextensions.k8s.io", "CustomResourceDefinition")
    healthy = data.replace(b"1e999", b"1e99")
    decoded = CRDS.decode(healthy, "apiextensions.k8s.io", "CustomResourceDefinition")
    assert decoded.name == b"c"
    assert not decoded.warnings


def test_unknown_fields_are_a_note() -> None:
    decoded = both_ways(secret(b',"dataa":{}'))
    assert decoded.warnings == (Evidence("unknown-fields", "1", "dataa"),)


def test_text_that_is_not_utf_8_keeps_its_bytes() -> None:
    decoded = both_ways(secret(metadata=b'"name":"s\xff","namespace":"n","uid":"u"'))
    assert decoded.name == b"s\xff"
    assert decoded.inconsistencies == (
        Inconsistency("invalid-utf8", "metadata.name", "byte 1 of 2 is not UTF-8"),
    )


def test_raw_json_that_is_not_utf_8_breaks_answers() -> None:
    managed = b'"name":"s","namespace":"n","uid":"u","managedFields":[{"fieldsV1":{"f:\xff":{}}}]'
    decoded = both_ways(secret(metadata=managed))
    assert [(wrong.cause, wrong.breaks_responses) for wrong in decoded.inconsistencies] == [
        ("raw-json-invalid", True)
    ]


def test_names_from_damaged_values_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etcdfix.decoding.kubejson.codec._MAX_PATHS", 10)
    decoder = JSONDecoder(load_schema(36), Registry(36))
    for number in range(50):
        with pytest.raises(KindUnknown):
            decoder.decode(b'{"kind":"K%d","apiVersion":"v1"}' % number, "", "Secret")
    assert len(decoder._paths) == 10
    assert decoder.decode(secret(), "", "Secret").name == b"s"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"null", TypeMeta("", "", "", "")),
        (b'{"kind":"A","kind":"B","apiVersion":"g/v"}', TypeMeta("g", "v", "B", "g/v")),
        (b'{"kind":"A","kind":null,"apiVersion":"v"}', TypeMeta("", "v", "A", "v")),
        (b'{"kinds":5,"apiVersions":5,"other":{"kind":5}}', TypeMeta("", "", "", "")),
        (b'{"kind":"\\u0041\xff"}', TypeMeta("", "", "A\ufffd", "")),
    ],
)
def test_kind_and_version_are_found_as_go_finds_them(data: bytes, found: TypeMeta) -> None:
    assert interpret(data, tokenize(data)) == found


STRUCTS = Structs(GoTypes(load_schema(36)))
POD = STRUCTS.decoder("k8s.io.api.core.v1.Pod", "v1", "Pod")
SECRET = STRUCTS.decoder("k8s.io.api.core.v1.Secret", "v1", "Secret")
CRD = STRUCTS.decoder(
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
)


def pod(text: bytes) -> bytes:
    return b'{"kind":"Pod","apiVersion":"v1",' + text + b"}"


def crd(text: bytes) -> bytes:
    head = b'{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":['
    return head + b'{"schema":{"openAPIV3Schema":{' + text + b"}}}]}}"


@pytest.mark.parametrize(
    ("decoder", "data"),
    [
        (POD, pod(b'"metadata":{"name":"a","uid":"u","creationTimestamp":"2024-02-28T23:59:59Z"}')),
        (POD, pod(b'"spec":{"containers":[null,{"resources":{"limits":{"cpu":"100m","x":5}}}]}')),
        (POD, pod(b'"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]},"spec":{"volumes":[{"emptyDir":{}}]}')),
        (SECRET, b'{"apiVersion":"v1","kind":"Secret","data":{"a":"YQ==","b":null}}'),
        (CRD, crd(b'"properties":{"a":{"items":{"type":"x"}},"b":{"items":[{"not":{}}]}}')),
        (CRD, crd(b'"default":{"a":[1]},"$ref":"x","dependencies":{"a":["b"],"c":{}},"maximum":5')),
    ],
)  # fmt: skip
def test_healthy_objects_decode(decoder: msgspec.json.Decoder[object], data: bytes) -> None:
    decoder.decode(data)


@pytest.mark.parametrize(
    ("decoder", "data"),
    [
        (POD, pod(b'"unknown":1')),
        (POD, b'{"kind":"Pod","apiVersion":"v2"}'),
        (POD, b'{"kind":"Pod"}'),
        (POD, pod(b'"spec":{"priority":2147483648}')),
        (POD, pod(b'"spec":{"priority":1.0}')),
        (POD, pod(b'"spec":{"containers":[{"resources":{"limits":{"cpu":"1 "}}}]}')),
        (POD, pod(b'"spec":{"containers":[{"resources":{"limits":{"cpu":"1\\n"}}}]}')),
        (POD, pod(b'"metadata":{"creationTimestamp":"2023-02-29T00:00:00Z"}')),
        (SECRET, b'{"apiVersion":"v1","kind":"Secret","data":{"a":"YQ"}}'),
        (CRD, crd(b'"default":1e999')),
        (CRD, crd(b'"additionalProperties":5')),
    ],
)
def test_whatever_is_not_plainly_healthy_is_left_to_the_exact_way(
    decoder: msgspec.json.Decoder[object], data: bytes
) -> None:
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(data)


@pytest.mark.thorough
def test_every_message_of_every_release_can_be_made() -> None:
    schema = load_schema()
    structs = Structs(GoTypes(schema))
    for message in schema:
        if not schema.message(message).special:
            assert structs.decoder(message, "v1", "Any")
