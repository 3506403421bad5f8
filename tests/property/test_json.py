"""JSON, YAML and base64 on any bytes: a result or the documented error, and the quick ways prove what they claim."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import cbor2
import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from etcdfix.decoding.cbor import decode_map
from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.decoding.errors import CBORMalformed
from etcdfix.decoding.kubejson.codec import JSONDecoder
from etcdfix.decoding.recognise import CBOR_TAG
from etcdfix.decoding.registry import Registry
from etcdfix.decoding.schema import load_schema
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.golang import gojson, goyaml
from etcdfix.golang.errors import JSONMalformed, UnknownEncoding
from etcdfix.golang.gobase64 import decode, illegal_byte
from etcdfix.golang.gojson import loads
from etcdfix.golang.gojsontext import encode_json
from etcdfix.model.errors import DecodeError

DECODER = Decoder(36)
JSON = JSONDecoder(load_schema(36), Registry(36))
WIDGETS = CustomResourceInfo("example.com", "widgets", "Widget", "Cluster", ("v1",), ("v1",), "v1")
MARKER = "confidentialmarker"
Outcome = TypeVar("Outcome")

META = {
    "name": "n",
    "namespace": "ns",
    "uid": "u",
    "creationTimestamp": "2024-01-31T01:02:03Z",
    "labels": {"a": MARKER},
    "managedFields": [{"manager": "m", "time": "2024-01-31T01:02:03Z", "fieldsV1": {"f:x": {}}}],
}
CONTAINER = {
    "name": "c",
    "ports": [{"containerPort": 80}],
    "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}},
    "livenessProbe": {"httpGet": {"port": "http"}, "timeoutSeconds": 1},
}
SAMPLES = [
    ("", {"kind": "Secret", "apiVersion": "v1", "metadata": META, "data": {"a": "Y29uZmlkZW50aWFs"}}),
    ("", {"kind": "Pod", "apiVersion": "v1", "metadata": META, "spec": {"containers": [CONTAINER], "priority": 5}}),
    (
        "apps",
        {
            "kind": "Deployment",
            "apiVersion": "apps/v1",
            "metadata": META,
            "spec": {"replicas": 1, "template": {"metadata": {"name": MARKER}, "spec": {"containers": [CONTAINER]}}},
        },
    ),
    ("example.com", {"kind": "Widget", "apiVersion": "example.com/v1", "metadata": META, "spec": {"a": [1, MARKER]}}),
]  # fmt: skip
SPLICES = [
    b"null", b"true", b"1", b"-1.5e3", b"1e999", b"5000000000", b'"x"', b"[]", b"{}", b"[1]", b'{"a":1}', b",", b":",
    b'"', b"\\", b"\\u00", b"\\ud800", b"\xff", b"\xc3", b"}", b"]", b"{", b"[", b" ", b"\n", b"\x00",
    b'"kind":', b"Kind",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, str, bytes]:
    group, value = draw(st.sampled_from(SAMPLES))
    data = bytearray(json.dumps(value, separators=(",", ":")).encode())
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 12))
        data[start : start + size] = draw(st.sampled_from(SPLICES) | st.binary(max_size=4))
    return group, str(value["kind"]), bytes(data)


@st.composite
def retyped(draw: st.DrawFn) -> tuple[str, str, bytes]:
    group, value = draw(st.sampled_from(SAMPLES))
    value = json.loads(json.dumps(value))
    kind = value["kind"]
    holder = value
    while isinstance(holder, (dict, list)) and holder:
        key = draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
        inner = holder[key]
        if not isinstance(inner, (dict, list)) or not inner or draw(st.booleans()):
            holder[key] = draw(JSON_VALUES)
            break
        holder = inner
    return group, kind, json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "1Gi", "2024-01-01T00:00:00Z", "YQ=="]) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
INT64_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)
NEARLY_JSON = st.lists(st.sampled_from(SPLICES) | st.binary(max_size=3), max_size=12).map(b"".join)


def outcome_of(call: Callable[[], Outcome]) -> Outcome | DecodeError:
    try:
        return call()
    except DecodeError as raised:
        return raised


@given(st.binary(max_size=40) | NEARLY_JSON | damaged().map(lambda case: case[2]))
def test_the_scanner_always_has_a_verdict(data: bytes) -> None:
    error = gojson._scan(data)
    assert gojson.check_json(data) == error
    if error is None:
        tokens = gojson.tokenize(data)
        assert tokens[0].next == len(tokens)
        for index, token in enumerate(tokens):
            assert index < token.next <= len(tokens)
            assert 0 <= token.start < token.end <= len(data)
    else:
        assert 0 <= error.offset <= len(data)
    loaded = outcome_of(lambda: gojson.loads(data))
    if isinstance(loaded, JSONMalformed):
        overflow = loaded.message.endswith("into Go value of type float64")
        assert overflow if error is None else loaded.message == error.message
    else:
        assert error is None


@given(NEARLY_JSON | damaged().map(lambda case: case[2]))
def test_msgspec_never_accepts_what_go_refuses(data: bytes) -> None:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    assert gojson._scan(data) is None


@given(INT64_VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_values_survive_a_round_trip(value: object, ascii_only: bool, indent: int | str | None) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert gojson.check_json(data) is None
    assert gojson.loads(data) == value
    # the same through the parser of our own, which the quick one would otherwise spare
    assert gojson.build(data) == value


@given(damaged() | retyped())
def test_objects_are_judged_without_surprises_and_both_ways_agree(case: tuple[str, str, bytes]) -> None:
    group, kind, data = case
    outcome = outcome_of(lambda: DECODER.builtin(data, group, kind))
    healthy = JSON._prove_healthy(data, group, kind)
    if healthy is not None:
        assert JSON.decode_strictly(data, group, kind) == healthy == outcome
    for told in (outcome, outcome_of(lambda: DECODER.custom_resource(data, WIDGETS))):
        if isinstance(told, DecodeError):
            assert told.message
            assert told.offset is None or 0 <= told.offset <= len(data)
            assert MARKER not in told.message + told.field_path


@given(
    st.binary(max_size=60)
    | NEARLY_JSON
    | damaged().map(lambda case: case[2])
    | retyped().map(lambda case: case[2])
)
@example(b"[" * 1_000_000)
@example(b'{"a":' * 100_000)
@example(
    b"{" + b'"kind":"Secret","apiVersion":"v1","metadata":{"managedFields":[{"fieldsV1":' + b"[" * 200_000
)
@example(b"- " * 100_000)
@example(b"\xd9\xd9\xf7" + b"\x81" * 1_000_000)
@example(b"k8s\x00" + b"\x0a" * 1_000_000)
def test_every_stack_returns_or_raises_its_documented_error(data: bytes) -> None:
    outcomes = [
        outcome_of(lambda: DECODER.builtin(data, "", "Secret")),
        outcome_of(lambda: DECODER.json_builtin(data, "apiextensions.k8s.io", "CustomResourceDefinition")),
        outcome_of(lambda: DECODER.custom_resource(data, WIDGETS)),
        outcome_of(lambda: DECODER.parses(data)),
        outcome_of(lambda: DECODER.crd(data)),
    ]
    for outcome in outcomes:
        assert not isinstance(outcome, DecodeError) or outcome.message


PRINTABLE = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), max_size=5)
YAML_PIECES = [
    b"a", b": ", b"- ", b"\n", b"  ", b"[", b"]", b"{", b"}", b",", b"&x ", b"*x", b"<<: ", b"|\n", b">-\n", b"'", b'"',
    b"!!int ", b"!!binary ", b"---\n", b"...\n", b"? ", b"#c\n", b"yes", b"1", b"0x1F", b".5", b"~", b"\t", b"\x00",
    b"\xff", b"\xc3\xa9", b"%YAML 1.1\n",
]  # fmt: skip


@given(st.binary(max_size=30) | st.lists(st.sampled_from(YAML_PIECES), max_size=15).map(b"".join))
def test_yaml_becomes_valid_json_or_an_error(data: bytes) -> None:
    converted = outcome_of(lambda: goyaml.to_json(data))
    if isinstance(converted, DecodeError):
        assert converted.message.startswith(("yaml: ", "json: ", "Unsupported map key"))
    else:
        assert gojson.check_json(converted) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | PRINTABLE,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PRINTABLE, inner, max_size=4),
        max_leaves=20,
    )
)
def test_printable_json_is_yaml(value: object) -> None:
    data = json.dumps(value, ensure_ascii=False).encode()
    assert gojson.loads(goyaml.to_json(data)) == value


@given(st.text("AQgw=+/!\n", max_size=12).map(str.encode))
def test_base64_blames_a_byte_of_the_input_or_decodes(data: bytes) -> None:
    at = illegal_byte(data)
    outcome = outcome_of(lambda: decode(data))
    joined = data.replace(b"\n", b"")
    if re.fullmatch(rb"(?:[^=!]{4})*(?:[^=!]{2}==|[^=!]{3}=)?", joined):
        assert at is None
        assert outcome == base64.b64decode(joined)
    else:
        assert at is not None
        assert 0 <= at <= len(data)
        assert isinstance(outcome, UnknownEncoding)
        assert outcome.offset == at


TEXT = st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)  # fmt: skip
MAPS = st.dictionaries(TEXT, VALUES, max_size=4)
HEADS = [
    b"\xa1\x61a", b"\xa2\x61a\x01\x61b", b"\xbf", b"\x9f", b"\x7f", b"\x5f", b"\xff", b"\x61a", b"\x41a", b"\x81",
    b"\xf5", b"\xf6", b"\xf7", b"\xf8\xff", b"\xf9\x3c\x00", b"\xf9\x7e\x00", b"\xfb\x7f\xf0\x00\x00\x00\x00\x00\x00",
    b"\x1b\xff", b"\xc0", b"\xc1", b"\xc2\x41\x01", b"\xd8\x1c", b"\xd8\x1d\x00", b"\xd9\xd9\xf7", b"\xd9\x01\x00",
    b"\x20", b"\x38\x63",
]  # fmt: skip


@st.composite
def damaged_cbor(draw: st.DrawFn) -> bytes:
    data = bytearray(cbor2.dumps(draw(MAPS)))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.integers(0, 3))] = draw(st.sampled_from(HEADS) | st.binary(max_size=2))
    return bytes(data)


def cbor_outcome_of(call: Callable[[], dict[str, Any]]) -> dict[str, Any] | CBORMalformed:
    try:
        return call()
    except CBORMalformed as raised:
        return raised


@given(st.binary(max_size=30) | st.lists(st.sampled_from(HEADS), max_size=8).map(b"".join) | damaged_cbor())
@example(b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff")
@example(b"\xbb\x00\x00\x00\x00\x00\x1f\xff\xff" + b"\x00" * 100)
@example(b"\xa1" * 200_000)
def test_any_bytes_give_a_map_or_the_documented_error(data: bytes) -> None:
    outcome = cbor_outcome_of(lambda: decode_map(data))
    if isinstance(outcome, CBORMalformed):
        assert outcome.offset is None or 0 <= outcome.offset <= len(data)
    else:
        assert loads(encode_json(outcome)) is not None


@given(MAPS, st.booleans())
def test_maps_survive_a_round_trip(value: dict[str, object], indefinite: bool) -> None:
    data = CBOR_TAG + cbor2.dumps(value, indefinite_containers=indefinite)
    assert decode_map(data) == value


@given(MAPS, st.data())
def test_every_cut_is_malformed(value: dict[str, object], data: st.DataObject) -> None:
    stored = CBOR_TAG + cbor2.dumps(value)
    length = data.draw(st.integers(len(CBOR_TAG), len(stored) - 1))
    assert isinstance(cbor_outcome_of(lambda: decode_map(stored[:length])), CBORMalformed)
