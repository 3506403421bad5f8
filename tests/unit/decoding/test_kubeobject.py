"""Objects with their contents, whole and damaged."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.decoding.errors import KindUnknown
from etcdfix.decoding.kubeobject import KubeObject, ObjectReader
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.model.errors import DecodeError
from etcdfix.testing.protobytes import block, entry, object_meta, unknown
from tests.support.objects import crd, json_object, widget

decoder = Decoder(36)
reader = ObjectReader(decoder)
WIDGETS = decoder.crd(crd())

DATA = entry(2, b"password", b"hunter2")
RAW = (
    block(1, object_meta(b"web", b"shop", b"u-1", block(17, block(1, b"kubectl"))))
    + DATA
    + block(3, b"Opaque")
)
SECRET = unknown(b"v1", b"Secret", RAW)
SERVED = {
    "kind": "Secret",
    "apiVersion": "v1",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "managedFields": [{"manager": "kubectl"}]},
    "data": {"password": "aHVudGVyMg=="},
    "type": "Opaque",
}


def left_of(data: bytes, group: str = "", kind: str = "Secret") -> KubeObject:
    with pytest.raises(DecodeError) as refused:
        reader.builtin(data, group, kind)
    left = reader.salvage(data, refused.value, group, kind)
    assert left is not None
    assert left.damage is not None
    return left


# -- whole objects


AS_YAML = b"""
apiVersion: v1
kind: Secret
metadata: {name: web, namespace: shop, uid: u-1, managedFields: [{manager: kubectl}]}
data: {password: aHVudGVyMg==}
type: Opaque
"""


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (SECRET, "protobuf"),
        (base64.b64encode(SECRET), "base64+protobuf"),
        (json.dumps(SERVED).encode(), "json"),
        (base64.b64encode(json.dumps(SERVED).encode()), "base64+json"),
        (AS_YAML, "yaml"),
    ],
)
def test_one_object_in_every_encoding(data: bytes, encoding: str) -> None:
    found = reader.builtin(data, "", "Secret")
    assert found.value == SERVED
    assert (found.encoding, found.empty, found.partial, found.damage) == (encoding, False, False, None)
    assert found.to_json() == json.dumps(SERVED, separators=(",", ":")).encode()
    assert found.to_json(indent="    ") == json.dumps(SERVED, indent=4).encode()


def test_managed_fields_can_be_left_out() -> None:
    found = reader.builtin(SECRET, "", "Secret")
    less = found.without_managed_fields()
    assert less.value["metadata"] == {"name": "web", "namespace": "shop", "uid": "u-1"}
    assert list(less.value) == list(found.value)
    assert "managedFields" in found.value["metadata"]
    assert less.without_managed_fields() is less
    assert KubeObject({}, "json").without_managed_fields().value == {}


def test_contents_stay_out_of_the_repr() -> None:
    assert repr(reader.builtin(SECRET, "", "Secret")) == "KubeObject(encoding='protobuf', partial=False)"


@pytest.mark.parametrize(("data", "value"), [(b"{}", {}), (b"", {}), (b'{"a":1}', {"a": 1}), (b"null", {})])
def test_what_the_server_shows_as_empty(data: bytes, value: dict[str, object]) -> None:
    found = reader.builtin(data, "", "Secret")
    assert found.empty
    assert found.value == value


def test_json_builtins_are_served_as_stored() -> None:
    stored = crd()
    found = reader.json_builtin(stored, "apiextensions.k8s.io", "CustomResourceDefinition")
    assert found.value["metadata"]["name"] == "widgets.example.com"
    assert found.value["spec"]["versions"] == [{"name": "v1", "served": True, "storage": True}]


def test_custom_resources_in_cbor() -> None:
    # {apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, a: 1.0, b: <not UTF-8>}, text as byte strings
    def text(value: bytes) -> bytes:
        return bytes([0x40 | len(value)]) + value

    members = (
        text(b"kind") + text(b"Widget") + text(b"apiVersion") + text(b"example.com/v1")
        + text(b"metadata") + b"\xa1" + text(b"name") + text(b"w")
        + text(b"a") + b"\xf9\x3c\x00" + text(b"b") + text(b"\xff")
    )  # fmt: skip
    found = reader.custom_resource(b"\xd9\xd9\xf7\xa5" + members, WIDGETS)
    assert (found.encoding, found.value["metadata"]) == ("cbor", {"name": "w"})
    assert found.value["b"] == "\ufffd"
    assert b'"a":1,' in found.to_json()
    assert found.inconsistencies


def test_values_whose_owner_is_not_known() -> None:
    assert reader.foreign(SECRET).value == SERVED
    assert reader.foreign(widget()).value == json.loads(widget())
    with pytest.raises(KindUnknown):
        reader.foreign(unknown(b"route.openshift.io/v1", b"Route", RAW))
    with pytest.raises(DecodeError):
        reader.foreign(b"nothing")


# -- damaged ones


def test_nothing_is_made_up_for_what_is_lost() -> None:
    data = unknown(b"v1", b"Pod", block(1, object_meta(b"web") + b"\x00"))
    left = left_of(data, "", "Pod")
    assert left.value == {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}}


def test_a_damaged_magic_hides_a_whole_object() -> None:
    left = left_of(b"k9s\x00" + SECRET[4:])
    assert not left.partial
    assert left.value == SERVED
    assert left.damage is not None
    assert left.damage.message.startswith("illegal base64 data")


@pytest.mark.parametrize(
    ("api_version", "kind", "shown"),
    [(b"v7", b"Secret", "Secret"), (b"v1", b"Sekret", "Secret"), (b"v1", b"ConfigMap", "ConfigMap")],
)
def test_a_kind_that_is_wrong_here(api_version: bytes, kind: bytes, shown: str) -> None:
    left = left_of(unknown(api_version, kind, block(1, object_meta(b"web"))))
    assert not left.partial
    assert (left.value["kind"], left.value["apiVersion"]) == (shown, "v1")
    assert left.guessed is (kind == b"Sekret")


@pytest.mark.parametrize(
    ("found", "guessed"),
    [
        (reader.builtin(SECRET, "", "Secret"), False),
        (reader.builtin(unknown(b"v1", b"", RAW), "", "Secret"), True),
        (reader.builtin(b'{"data":{}}', "", "Secret"), True),
        (reader.foreign(json_object("v1", "Secret", "web")), False),
        (reader.foreign(json_object("v1", "Sekret", "web")), True),
        (reader.custom_resource(widget(), WIDGETS), False),
    ],
)
def test_whole_objects_say_what_they_are(found: KubeObject, guessed: bool) -> None:
    assert found.guessed is guessed


@pytest.mark.parametrize(
    ("kind", "expected", "guessed"),
    [("Widget", "Widget", False), ("Wodget", "Widget", True), ("", "Widget", True), ("Widget", "", True)],
)
def test_damaged_custom_resources_say_what_they_are(kind: str, expected: str, guessed: bool) -> None:
    data = json_object("example.com/v1", kind, "w-0")[:-3]
    left = reader.salvage(data, DecodeError("refused"), "example.com", expected)
    assert left is not None
    assert left.guessed is guessed


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"nothing", "Secret"),
        (b"k8s\x00", "Secret"),
        (b"[]", "Secret"),
        (b"\x0b{}", "Secret"),  # white space to the recogniser, not to JSON
        (unknown(b"v9", b"Sekret", RAW), ""),
    ],
)
def test_nothing_left(data: bytes, kind: str) -> None:
    assert reader.salvage(data, DecodeError("refused"), "", kind) is None


@given(st.data())
def test_any_damage(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from([SECRET, json.dumps(SERVED).encode()]))
    value = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(value)))
        if data.draw(st.booleans()):
            value[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        else:
            del value[at:]
    try:
        found: KubeObject | None = reader.builtin(bytes(value), "", "Secret")
    except DecodeError as error:
        found = reader.salvage(bytes(value), error, "", "Secret")
    if found is not None:
        json.loads(found.to_json())
