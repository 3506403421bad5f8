"""Messages as JSON: the forms and emission rules that differ from type to type."""

from __future__ import annotations

import struct
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.decoding.protobuf.strict import StrictDecoder
from etcdfix.decoding.render.typed import Renderer
from etcdfix.decoding.schema import SCALAR_TYPES, Field, load_schema
from etcdfix.errors import ProtobufMalformed
from etcdfix.golang.gojsontext import encode_json, parse_exactly
from etcdfix.testing.protobytes import block, entry, number, tag

CORE = "k8s.io.api.core.v1."
META = "k8s.io.apimachinery.pkg.apis.meta.v1."
CRD = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1."

schema = load_schema(36)
decoder = StrictDecoder(schema)
renderer = Renderer(schema)


def render(message: str, *fields: bytes) -> Any:
    return renderer.render(message, decoder.decode(message, b"".join(fields)).node)


def test_an_empty_message_shows_what_is_always_shown() -> None:
    assert render(CORE + "Secret") == {"metadata": {}}
    assert render(CORE + "Pod") == {"metadata": {}, "spec": {"containers": None}, "status": {}}
    assert render(META + "OwnerReference") == {"apiVersion": "", "kind": "", "name": "", "uid": ""}
    assert render("k8s.io.api.apps.v1.DaemonSet")["spec"]["selector"] is None
    assert render(CORE + "ObjectReference") == {}


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ([], 0),
        ([number(1, 0), number(2, 80)], 80),
        ([number(1, 1), number(2, 80), block(3, b"http")], "http"),
        ([number(1, 1)], ""),
        ([number(1, 2), number(2, 80)], None),
    ],
)
def test_int_or_string(fields: list[bytes], shown: int | str | None) -> None:
    assert render(CORE + "HTTPGetAction", block(2, b"".join(fields)))["port"] == shown


def test_times() -> None:
    created = block(8, number(1, 1) + number(2, 999))
    assert render(META + "ObjectMeta", created) == {"creationTimestamp": "1970-01-01T00:00:01Z"}
    assert render(META + "ObjectMeta", block(8, b"")) == {}
    assert render(META + "ObjectMeta", block(9, b"")) == {"deletionTimestamp": None}
    renewed = block(4, number(1, 1) + number(2, 1_999))
    assert render("k8s.io.api.coordination.v1.LeaseSpec", renewed) == {
        "renewTime": "1970-01-01T00:00:01.000001Z"
    }
    assert render("k8s.io.api.coordination.v1.LeaseSpec", block(4, b"")) == {"renewTime": None}
    disrupted = block(2, block(1, b"pod"))
    shown = render("k8s.io.api.policy.v1.PodDisruptionBudgetStatus", disrupted)
    assert shown["disruptedPods"] == {"pod": None}
    assert render(META + "Duration", number(1, 1_500_000_000)) == "1.5s"


def test_raw_json() -> None:
    raw = b'{"f:spec" : {"n": 1.50, "big": 123456789012345678901234567890}}'
    shown = render(META + "ManagedFieldsEntry", block(7, block(1, raw)))
    assert encode_json(shown) == b'{"fieldsV1":{"f:spec":{"n":1.50,"big":123456789012345678901234567890}}}'
    assert render(META + "ManagedFieldsEntry", block(7, b"")) == {"fieldsV1": None}
    assert render(META + "ManagedFieldsEntry", block(7, block(1, b"{"))) == {"fieldsV1": None}
    assert render("k8s.io.api.apps.v1.ControllerRevision") == {"metadata": {}, "data": None, "revision": 0}


def test_unions() -> None:
    def shown(*fields: bytes) -> Any:
        return render(CRD + "JSONSchemaProps", *fields)

    schema_ref = block(3, b"#/x")
    assert shown(block(24, block(1, schema_ref)))["items"] == {"$ref": "#/x"}
    assert shown(block(24, block(2, schema_ref) + block(2, b"")))["items"] == [{"$ref": "#/x"}, {}]
    assert shown(block(24, b""))["items"] is None
    assert shown(block(30, number(1, 1)))["additionalProperties"] is True
    assert shown(block(30, b""))["additionalProperties"] is False
    assert shown(block(30, number(1, 1) + block(2, schema_ref)))["additionalProperties"] == {"$ref": "#/x"}
    assert shown(entry(32, b"a", block(2, b"x") + block(2, b"y")))["dependencies"] == {"a": ["x", "y"]}
    assert shown(entry(32, b"a", block(1, schema_ref)))["dependencies"] == {"a": {"$ref": "#/x"}}


def test_depth_costs_no_stack() -> None:
    data = b""
    for _ in range(3000):
        data = block(28, data)
    message = CRD + "JSONSchemaProps"
    (field,) = [field for field in schema.message(message).fields if field.number == 28]
    assert field.type == message
    assert sys.getrecursionlimit() < 3000
    value = render(message, data)
    assert encode_json(value).count(field.json_name.encode()) == 3000


def test_fields_of_another_release_are_not_made_up() -> None:
    """A field that is always shown is not, where no release is assumed and the writer did not know it."""
    message = "k8s.io.api.storage.v1.CSINode"
    later = [field for field in load_schema().message(message).fields if field.since > 36]
    assert [field.emit for field in later] == ["always"]
    for minor, shown in ((36, False), (37, True), (None, False)):
        value = Renderer(load_schema(minor)).render(message, {})
        assert (later[0].json_name in value) is shown
        assert value["spec"] == {"drivers": None}


def test_what_is_lost_is_not_made_up() -> None:
    salvaging = Renderer(load_schema(36), only_stored=True)
    assert salvaging.render(CORE + "Pod", {1: {}, 2: {1: []}}) == {"metadata": {}, "spec": {}}
    assert salvaging.render("k8s.io.api.apps.v1.DaemonSetSpec", {}) == {}


def test_messages_that_are_not_known() -> None:
    with pytest.raises(KeyError):
        renderer.render("k8s.io.api.core.v1.NoSuch", {})


# -- any message


ROOTS = [
    CORE + "Pod",
    CORE + "PersistentVolume",
    "k8s.io.api.autoscaling.v2.HorizontalPodAutoscaler",
    CRD + "JSONSchemaProps",
]
SMALL = st.integers(-2, 300) | st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.binary(max_size=6) | st.sampled_from([b"{}", b"1", b"1Gi", b"1.5", b'{"a":[1e400]}', b"Always"])


def wire(draw: st.DrawFn, field: Field, type_: str, depth: int) -> bytes:
    if type_ in {"string", "bytes"}:
        return block(field.number, draw(TEXTS))
    if type_ == "double":
        return tag(field.number, 1) + struct.pack("<d", draw(st.floats()))
    if type_ in SCALAR_TYPES:
        return number(field.number, draw(SMALL))
    return block(field.number, draw(messages(type_, depth + 1)))


@st.composite
def messages(draw: st.DrawFn, message: str, depth: int = 0) -> bytes:
    fields = schema.message(message).fields
    if not fields or depth > 6:
        return b""
    out = []
    for field in draw(st.lists(st.sampled_from(fields), max_size=4)):
        if field.label != "map":
            out.append(wire(draw, field, field.type, depth))
        elif field.value_type in SCALAR_TYPES:
            out.append(entry(field.number, draw(TEXTS), draw(TEXTS)))
        else:
            out.append(entry(field.number, draw(TEXTS), draw(messages(field.value_type, depth + 1))))
    return b"".join(out)


@given(st.data())
def test_any_message_that_decodes_is_rendered(data: st.DataObject) -> None:
    message = data.draw(st.sampled_from(ROOTS))
    encoded = data.draw(messages(message))
    try:
        node = decoder.decode(message, encoded).node
    except ProtobufMalformed:
        node = decoder.salvage(message, encoded)[0].node
    value = renderer.render(message, node)
    text = encode_json(value)
    assert encode_json(parse_exactly(text)) == text


@given(st.data())
def test_any_bytes_are_rendered_as_far_as_they_go(data: st.DataObject) -> None:
    message = data.draw(st.sampled_from(ROOTS))
    encoded = bytearray(data.draw(messages(message)) + data.draw(st.binary(max_size=8)))
    if encoded:
        encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(0, 255))
    cut_off = data.draw(st.booleans())
    decoded, error = decoder.salvage(message, bytes(encoded), cut_off=cut_off)
    encode_json(renderer.render(message, decoded.node))
    assert (error is None) is not is_refused(message, bytes(encoded))
    if error is None:
        # by their text: NaN is not equal to itself
        assert repr(decoded.node) == repr(decoder.decode(message, bytes(encoded)).node)


def is_refused(message: str, data: bytes) -> bool:
    try:
        decoder.decode(message, data)
    except ProtobufMalformed:
        return True
    return False
