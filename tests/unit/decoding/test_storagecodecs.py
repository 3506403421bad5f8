"""The three decoder stacks: order, fallbacks, and whose error is the last word."""

from __future__ import annotations

import base64
import json

import cbor2
import pytest

from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.decoding.errors import KindUnknown, ProtobufMalformed
from etcdfix.decoding.layout import plaintext_layout
from etcdfix.decoding.recognise import CBOR_TAG, is_json
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.golang.errors import JSONMalformed, UnknownEncoding
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject, GroupVersionKind
from etcdfix.testing.protobytes import block, number, object_meta, unknown
from tests.support.objects import config_map, secret, widget

DECODER = Decoder(36)
SECRET = unknown(b"v1", b"Secret", block(1, object_meta(b"s", b"ns", b"u")))
SECRET_JSON = b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","namespace":"ns","uid":"u"}}'
SECRET_YAML = b"kind: Secret\napiVersion: v1\nmetadata:\n  name: s\n  namespace: ns\n  uid: u\n"
CRD = {
    "kind": "CustomResourceDefinition",
    "apiVersion": "apiextensions.k8s.io/v1beta1",
    "metadata": {"name": "widgets.example.com", "uid": "u"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget"},
        "scope": "Cluster",
        "versions": [{"name": "v1", "served": True, "storage": True}],
        "preserveUnknownFields": False,
    },
}
WIDGETS = CustomResourceInfo("example.com", "widgets", "Widget", "Cluster", ("v1",), ("v1",), "v1")
NO_STRUCT = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct"
)
CRD_KEY = ("apiextensions.k8s.io", "CustomResourceDefinition")


@pytest.mark.parametrize(
    ("data", "encoding", "notes"),
    [
        (SECRET, "protobuf", []),
        (SECRET_JSON, "json", []),
        (SECRET_YAML, "yaml", ["yaml-fallback"]),
        (b"--- # comment\n" + SECRET_YAML + b"---\nother: document\n", "yaml", ["yaml-fallback"]),
        (base64.b64encode(SECRET), "base64+protobuf", ["base64-fallback"]),
        (base64.encodebytes(SECRET), "base64+protobuf", ["base64-fallback"]),
        (base64.b64encode(SECRET_JSON), "base64+json", ["base64-fallback"]),
        (base64.b64encode(SECRET_YAML), "base64+yaml", ["base64-fallback", "yaml-fallback"]),
    ],
)
def test_builtins_in_every_form(data: bytes, encoding: str, notes: list[str]) -> None:
    decoded = DECODER.builtin(data, "", "Secret")
    assert DECODER.builtin_reader("", "Secret")(data) == decoded
    assert decoded.gvk == GroupVersionKind("", "v1", "Secret")
    assert (decoded.name, decoded.namespace, decoded.uid) == (b"s", b"ns", b"u")
    assert decoded.encoding == encoding
    assert [note.check for note in decoded.warnings] == notes


@pytest.mark.parametrize(
    "data", [b"", b"null", b" \n\t"[:2], b"a: b", b"# comment", b"{}", b"\xff\xfe", b"apiVersion: ''"]
)
def test_builtins_that_are_served_as_empty_objects(data: bytes) -> None:
    decoded = DECODER.builtin(data, "", "Secret")
    assert decoded.empty
    assert decoded.warnings == ()
    assert decoded.name is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        # what nobody recognises ends with base64's complaint, whatever YAML said
        (b"\x00" * 10, "illegal base64 data at input byte 0"),
        (b"hello", "illegal base64 data at input byte 4"),
        (b"k8s:enc:aescbc:v1:key1:" + bytes(16), "illegal base64 data at input byte 3"),
        (b"kind: Sekret\napiVersion: v1\n", "illegal base64 data at input byte 4"),
        # inside base64 there is no base64, so YAML has the last word
        (base64.b64encode(base64.b64encode(SECRET)), NO_STRUCT),
        (base64.b64encode(b"\xff"), "yaml: invalid leading UTF-8 octet"),
        (base64.b64encode(b'{"kind":'), "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        # a recognised form is final
        (b"k8s\x00", "empty body"),
    ],
)  # fmt: skip
def test_builtins_that_fail(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        DECODER.builtin(data, "", "Secret")
    assert caught.value.message.startswith(message)


def test_withheld_sizes_are_those_of_the_stored_yaml() -> None:
    data = b"kind: Secret   \napiVersion: apps/\n"
    with pytest.raises(KindUnknown, match="is missing in '<34 bytes withheld>'"):
        DECODER.json_builtin(data, "", "Secret")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xff", "yaml: invalid leading UTF-8 octet"),
        (b"hello", NO_STRUCT),
        (base64.b64encode(json.dumps(CRD).encode()), NO_STRUCT),
        (b"a: b: c", "yaml: mapping values are not allowed in this context"),
        (b"k8s\x00", "empty body"),
        (b"{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
    ],
)
def test_definitions_have_no_base64_step(data: bytes, message: str) -> None:
    for decode in (lambda: DECODER.json_builtin(data, *CRD_KEY), lambda: DECODER.crd(data)):
        with pytest.raises(DecodeError) as caught:
            decode()
        assert caught.value.message.startswith(message)


def crd_as_protobuf() -> bytes:
    names = block(1, b"widgets") + block(4, b"Widget")
    version = block(1, b"v1") + number(2, 1) + number(3, 1)
    spec = block(1, b"example.com") + block(3, names) + block(4, b"Cluster") + block(7, version)
    raw = block(1, object_meta(b"widgets.example.com", b"", b"u")) + block(2, spec)
    return unknown(b"apiextensions.k8s.io/v1", b"CustomResourceDefinition", raw)


@pytest.mark.parametrize(
    "data", [json.dumps(CRD).encode(), b"# as YAML\n" + json.dumps(CRD).encode(), crd_as_protobuf()]
)
def test_definitions_are_understood_in_every_form(data: bytes) -> None:
    assert DECODER.crd(data) == WIDGETS


@pytest.mark.parametrize("data", [b"", b"{}", b'{"kind":"CustomResourceDefinition"}'])
def test_an_empty_definition_defines_nothing(data: bytes) -> None:
    assert DECODER.json_builtin(data, *CRD_KEY).empty
    with pytest.raises(KindUnknown, match=f"is missing in '<{len(data)} bytes withheld>'"):
        DECODER.crd(data)


@pytest.mark.parametrize(
    ("data", "gvk", "encoding"),
    [
        (unknown(b"a.io/v1", b"Route", block(1, b"x")), ("a.io", "v1", "Route"), "protobuf"),
        (unknown(b"v1", b"Any\xff", b""), ("", "v1", "Any\\xff"), "protobuf"),
        (b'{"kind":"Route","apiVersion":"route.openshift.io/v1"}', ("route.openshift.io", "v1", "Route"), "json"),
        (b'{"kind":"Old"}', ("", "", "Old"), "json"),
        (CBOR_TAG + cbor2.dumps({"kind": "A", "apiVersion": "b/v1"}), ("b", "v1", "A"), "cbor"),
    ],
)  # fmt: skip
def test_values_of_unknown_owners_that_parse(data: bytes, gvk: tuple[str, str, str], encoding: str) -> None:
    assert DECODER.parses(data) == DecodedObject(GroupVersionKind(*gvk), None, None, None, encoding)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", UnknownEncoding),
        (b"\x00\x01", UnknownEncoding),
        (b"k8s\x00", ProtobufMalformed),
        (unknown(b"v1", b"Any", b"\x0a\x05x"), ProtobufMalformed),
        (unknown(b"v1", b"", b""), KindUnknown),
        (b'{"kind":', JSONMalformed),
        (b'{"kind":5,"apiVersion":7}', KindUnknown),
        (CBOR_TAG + b"\xa0", KindUnknown),
    ],
)
def test_values_of_unknown_owners_that_do_not(data: bytes, error: type[DecodeError]) -> None:
    with pytest.raises(error):
        DECODER.parses(data)


def test_without_a_release_all_known_ones_decode() -> None:
    gone = b'{"kind":"PodSecurityPolicy","apiVersion":"policy/v1beta1","metadata":{"name":"p","uid":"u"}}'
    assert Decoder().builtin(gone, "policy", "PodSecurityPolicy").readable_until.startswith("1.")
    with pytest.raises(KindUnknown):
        DECODER.builtin(gone, "policy", "PodSecurityPolicy")


@pytest.mark.parametrize(
    ("spec", "aggregated"), [({"service": {"name": "a"}}, True), ({}, False), (None, False)]
)
def test_an_apiservice_with_a_service_is_aggregated(spec: object, aggregated: bool) -> None:
    service = {"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1", "spec": spec}
    assert DECODER.is_aggregated(json.dumps(service).encode()) is aggregated


@pytest.mark.parametrize(
    ("data", "claimed"),
    [
        (b"k8s\x00{", False),
        (b" \t\r\n\v\f{}", True),
        ("\u0085\u00a0\u1680\u2000\u2028\u205f\u3000{".encode(), True),
        (b"\xef\xbb\xbf{}", False),
        (b"\x1c{}", False),
    ],
)
def test_first_bytes_decide(data: bytes, claimed: bool) -> None:
    assert is_json(data) is claimed


def told(value: bytes) -> str:
    return " ".join(f"{part.name} {part.detail}" for part in plaintext_layout(value))


def test_a_protobuf_object() -> None:
    value = secret()
    parts = plaintext_layout(value)
    assert [part.name for part in parts] == ["magic", "type", "object", "content encoding", "content type"]
    assert parts[1].detail == "apiVersion v1, kind Secret"
    assert parts[-1].offset + parts[-1].length == len(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b'{"kind":"Widget"}\n', "text begins as JSON does"),
        (b"[1]", "text begins as JSON does"),
        (b"\xd9\xd9\xf7\xa0", "bytes begins as CBOR does"),
        (bytes(9), "bytes all zero"),
        (b"k8t\x00rest", "bytes begins as no known encoding does; 3 bits of the protobuf magic are wrong"),
        (b"?", "bytes begins as no known encoding does"),
        (b"something else", "bytes begins as no known encoding does"),
    ],
)
def test_what_a_value_begins_as(value: bytes, words: str) -> None:
    assert told(value) == words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\xff", "rest no field of the envelope begins here"),
        (b"\x10\x01", "rest no field that the envelope has"),
        (b"\x12\x7fabc", "object says 127 bytes, 3 are left"),
        (b"\x0a\x02\x0a\xff", "type 2 bytes that are not only these"),
        (b"\x0a\x06\x0a\x01a\x0a\x01b", "type apiVersion a, 6 bytes that are not only these"),
        (b"\x0a\x04\x0a\x02\x00\x01", "type apiVersion <2 bytes withheld>"),
    ],
)
def test_an_envelope_that_is_not_as_it_should_be(body: bytes, words: str) -> None:
    assert told(b"k8s\x00" + body) == f"magic k8s and a zero byte: protobuf {words}"


@pytest.mark.parametrize("whole", [secret(), config_map(), widget()], ids=["secret", "config map", "widget"])
def test_nothing_of_an_object_is_told_wherever_it_is_cut_or_damaged(whole: bytes) -> None:
    values = [whole[:size] for size in range(len(whole))]
    values += [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        for at in range(len(whole))
        for bit in range(8)
    ]
    for value in values:
        parts = plaintext_layout(value)
        assert sum(part.length for part in parts) == len(value)
        shown = told(value)
        assert "never-to" not in shown
        assert "password" not in shown
