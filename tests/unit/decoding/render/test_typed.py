"""Messages as JSON: the forms and emission rules that differ from type to type."""

from __future__ import annotations

import json
import struct
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.decoding.errors import ProtobufMalformed
from etcdfix.decoding.protobuf.strict import StrictDecoder
from etcdfix.decoding.render.fromjson import node_from_json
from etcdfix.decoding.render.salvage import is_protobuf, salvage_envelope, salvage_json
from etcdfix.decoding.render.typed import Renderer
from etcdfix.decoding.schema import SCALAR_TYPES, Field, load_schema
from etcdfix.golang.gojsontext import NumberLiteral, encode_json, parse_exactly
from etcdfix.testing.protobytes import block, entry, number, tag, unknown
from tests.support.secret_message import secret

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


def served(message: str, stored: dict[str, Any]) -> tuple[Any, int]:
    node, misfits = node_from_json(schema, message, stored)
    return renderer.render(message, node), misfits


@pytest.mark.parametrize(
    ("message", "stored", "shown"),
    [
        (
            CORE + "Secret",
            {"data": {"a": "AP8=", "b": None, "c": [1, 255]}},
            {"data": {"a": "AP8=", "b": "", "c": "Af8="}},
        ),
        (
            CORE + "ResourceRequirements",
            {"limits": {"cpu": 1.5, "b": " 1.5Gi ", "c": 2, "d": NumberLiteral("0.50"), "e": None}},
            {"limits": {"b": "1536Mi", "c": "2", "cpu": "1500m", "d": "500m", "e": "0"}},
        ),
        (
            META + "ObjectMeta",
            {"creationTimestamp": "2020-01-01T01:00:00.5+01:00"},
            {"creationTimestamp": "2020-01-01T00:00:00Z"},
        ),
        (
            CRD + "JSONSchemaProps",
            {"maximum": 1, "items": [{}], "additionalProperties": False, "nullable": True},
            {"maximum": 1.0, "items": [{}], "additionalProperties": False, "nullable": True},
        ),
        (
            "k8s.io.api.certificates.v1.CertificateSigningRequestSpec",
            {"request": "", "signerName": "s", "extra": {"a": ["x"]}},
            {"request": "", "signerName": "s", "extra": {"a": ["x"]}},
        ),
    ],
)
def test_values(message: str, stored: dict[str, Any], shown: dict[str, Any]) -> None:
    value, misfits = served(message, stored)
    value = {name: value[name] for name in shown}
    assert (value, misfits) == (shown, 0)


@pytest.mark.parametrize(
    ("message", "stored"),
    [
        (CORE + "Secret", {"type": 1}),
        (CORE + "Secret", {"immutable": "yes"}),
        (CORE + "Secret", {"data": {"a": "?"}}),
        (CORE + "Secret", {"data": {"a": [256]}}),
        (CORE + "PodSpec", {"priority": 1 << 31}),
        (CORE + "PodSpec", {"containers": {}}),
        (CORE + "ResourceRequirements", {"limits": {"cpu": "much"}}),
        (CORE + "HTTPGetAction", {"port": 1 << 31}),
        (META + "ObjectMeta", {"creationTimestamp": "yesterday"}),
        (META + "APIResource", {"verbs": "get"}),
    ],
)
def test_what_does_not_fit_is_left_out(message: str, stored: dict[str, Any]) -> None:
    value, misfits = served(message, stored)
    empty = served(message, {})[0]
    assert misfits == 1
    for name, shown in value.items():
        assert shown in ([], {}) or shown == empty.get(name)


def test_depth_of_json_costs_no_stack() -> None:
    stored = parse_exactly(b'{"not":' * 3000 + b"{}" + b"}" * 3000)
    assert sys.getrecursionlimit() < 3000
    value, misfits = served(CRD + "JSONSchemaProps", stored)
    depth = 0
    while value:
        value = value["not"]
        depth += 1
    assert (depth, misfits) == (3000, 0)


RAW = secret(b"s1")
STORED = unknown(b"v1", b"Secret", RAW)
START = STORED.index(RAW)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"k8s\x00anything", True), (b"k9s\x00\x0a\x00", True), (b"\x00\x00s\x00\x0a", True),
        (b"\x00\x00\x00\x00\x0a", False), (b"k9s\x00", False), (b"", False),
    ],
)  # fmt: skip
def test_half_a_magic_is_enough(data: bytes, expected: bool) -> None:
    assert is_protobuf(data) is expected


def test_an_envelope_that_was_cut_off() -> None:
    found = salvage_envelope(STORED[:-10])
    assert found == (b"v1", b"Secret", START, len(STORED) - 10, True, False)
    assert salvage_envelope(STORED[:-1]) == (b"v1", b"Secret", START, START + len(RAW), False, False)


def test_a_wrong_length_of_the_object() -> None:
    longer = STORED[: START - 1] + bytes([STORED[START - 1] + 5]) + STORED[START:]
    assert salvage_envelope(longer) == (b"v1", b"Secret", START, START + len(RAW), False, False)


@pytest.mark.parametrize("data", [STORED[:10], b"k8s\x00", b"k8s\x00\x0a\x7f", b"k8s\x00" + b"\xff" * 12])
def test_no_object_in_it(data: bytes) -> None:
    assert salvage_envelope(data) is None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"a":1,"b":{"c":[1,"x"]}}', '{"a":1,"b":{"c":[1,"x"]}}'),
        ('{"a":1,"b":{"c":[1,"x"', '{"a":1,"b":{"c":[1,"x"]}}'),
        ('{"a":1,"b":{"c":[1,"x', '{"a":1,"b":{"c":[1]}}'),
        ('{"a":1,"b":{"c"', '{"a":1,"b":{}}'),
        ('{"a":1,"b":{"c":', '{"a":1,"b":{}}'),
        ('{"a":1,"b":', '{"a":1}'),
        ('{"a":12', "{}"),
        ('{"a":true,"b":fals', '{"a":true}'),
        ('{"a":"x\\', "{}"),
        ('{"a":[[],[{}],{"b"', '{"a":[[],[{}],{}]}'),
        ('{"a":1}x', '{"a":1}'),
        ('{"a":"b" "c":1}', '{"a":"b"}'),
        ('{"a":1x', "{}"),
    ],
)
def test_json_up_to_its_damage(text: str, left: str) -> None:
    found = salvage_json(text.encode())
    assert found.value == json.loads(left)
    assert found.whole is (text == left)


@given(st.binary(max_size=80) | st.text('{}[],:"\\ truefalsn0123456789.eE-x').map(str.encode))
def test_any_bytes(data: bytes) -> None:
    for text in (data, b"{" + data, b'{"a":' + data):
        salvage_json(text)
    for value in (data, b"k8s\x00" + data, STORED[:8] + data):
        if is_protobuf(value):
            found = salvage_envelope(value)
            assert found is None or found.start <= found.end <= len(value)
