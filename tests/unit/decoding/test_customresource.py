"""Custom resources: the steps of the API server, in its order and its words."""

from __future__ import annotations

import json

import cbor2
import msgspec
import pytest

from etcdfix.decoding.cbor import MAX_DEPTH, decode_map
from etcdfix.decoding.customresource import CustomResourceDecoder, CustomResourceInfo, crd_info
from etcdfix.decoding.errors import CBORMalformed, KindUnknown
from etcdfix.decoding.recognise import CBOR_TAG
from etcdfix.golang.errors import JSONMalformed
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject, Evidence, GroupVersionKind, Inconsistency

WIDGETS = CustomResourceInfo(
    group="example.com",
    plural="widgets",
    kind="Widget",
    scope="Namespaced",
    versions=("v1", "v1beta1"),
    served_versions=("v1",),
    storage_version="v1",
)
DECODER = CustomResourceDecoder()
GVK = GroupVersionKind("example.com", "v1", "Widget")
HEAD = {"apiVersion": "example.com/v1", "kind": "Widget"}
WITH_METADATA = {**HEAD, "metadata": {"name": "w", "namespace": "n", "uid": "u"}}


def stored(value: object, encoding: str) -> bytes:
    return json.dumps(value).encode() if encoding == "json" else CBOR_TAG + cbor2.dumps(value)


@pytest.fixture(params=["json", "cbor"])
def encoding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_malformed_metadata_fields_are_dropped(encoding: str) -> None:
    metadata = {"name": "w", "namespace": 5, "uid": ["u"], "labels": 7}
    decoded = DECODER.decode(stored({**HEAD, "metadata": metadata}, encoding), WIDGETS)
    assert (decoded.name, decoded.namespace, decoded.uid) == (b"w", None, None)
    detail = "of the wrong type; the API server drops them and serves the rest"
    assert decoded.warnings == (Evidence("metadata-fields-dropped", "namespace, uid", detail),)


def test_another_kind_is_served_all_the_same(encoding: str) -> None:
    decoded = DECODER.decode(stored({**WITH_METADATA, "kind": "Gadget"}, encoding), WIDGETS)
    assert decoded.gvk.kind == "Gadget"
    assert decoded.inconsistencies == (
        Inconsistency("identity-mismatch", "kind", "kind Gadget where the CRD says Widget"),
    )


def test_a_webhook_is_needed_for_other_versions_only(encoding: str) -> None:
    crd = msgspec.structs.replace(WIDGETS, conversion="Webhook")
    assert DECODER.decode(stored(WITH_METADATA, encoding), crd).warnings == ()
    old = {**WITH_METADATA, "apiVersion": "example.com/v1beta1"}
    (note,) = DECODER.decode(stored(old, encoding), crd).warnings
    assert (note.check, note.result) == ("conversion", "depends on conversion webhook")
    assert DECODER.decode(stored(old, encoding), WIDGETS).warnings == ()


MISSING = "Object 'Kind' is missing in '<SIZE bytes withheld>'"
UNSUITABLE = '{} is unstructured and is not suitable for converting to "example.com/v1"'


@pytest.mark.parametrize(
    ("value", "message", "error"),
    [
        ({}, MISSING, KindUnknown),
        ({**HEAD, "kind": ""}, MISSING, KindUnknown),
        ({**HEAD, "kind": 5}, MISSING, KindUnknown),
        ({**HEAD, "apiVersion": "a/b/c"}, MISSING, KindUnknown),
        ({**HEAD, "metadata": "x"}, "invalid metadata: expected object, got string", DecodeError),
        ({**HEAD, "metadata": [1]}, "invalid metadata: expected object, got []interface {}", DecodeError),
        ({**HEAD, "metadata": 1}, "invalid metadata: expected object, got int64", DecodeError),
        (
            {**HEAD, "apiVersion": "example.com/v2"},
            "request to convert CR from an invalid group/version: example.com/v2",
            KindUnknown,
        ),
        (
            {**HEAD, "apiVersion": "example.org/v1"},
            UNSUITABLE.format("example.org/v1, Kind=Widget"),
            KindUnknown,
        ),
        ({**HEAD, "apiVersion": "v1"}, UNSUITABLE.format("/v1, Kind=Widget"), KindUnknown),
    ],
)
def test_refusals_in_either_encoding(
    value: object, message: str, error: type[DecodeError], encoding: str
) -> None:
    data = stored(value, encoding)
    with pytest.raises(error) as caught:
        DECODER.decode(data, WIDGETS)
    assert caught.value.message == message.replace("SIZE", str(len(data)))


@pytest.mark.parametrize(
    ("api_version", "shown"),
    [
        (5, "5 is of the type int64"),
        (1.5, "1.5 is of the type float64"),
        (True, "true is of the type bool"),
        (None, "<nil> is of the type <nil>"),
        (["v1"], "<value withheld> is of the type []interface {}"),
    ],
)
def test_an_api_version_that_is_no_string(api_version: object, shown: str) -> None:
    value = {**HEAD, "apiVersion": api_version, "metadata": "also wrong"}
    with pytest.raises(JSONMalformed) as caught:
        DECODER.decode(stored(value, "json"), WIDGETS)
    assert caught.value.message == f".apiVersion accessor error: {shown}, expected string"
    data = stored(value, "cbor")
    with pytest.raises(KindUnknown) as in_cbor:
        DECODER.decode(data, WIDGETS)
    assert in_cbor.value.message == f"Object 'apiVersion' is missing in '<{len(data)} bytes withheld>'"


def test_a_missing_api_version_passes_in_json_until_conversion() -> None:
    with pytest.raises(KindUnknown) as caught:
        DECODER.decode(b'{"kind":"Widget"}', WIDGETS)
    assert caught.value.message == UNSUITABLE.format("/, Kind=Widget")
    assert caught.value.reason == "missing"
    data = stored({"kind": "Widget"}, "cbor")
    with pytest.raises(KindUnknown) as in_cbor:
        DECODER.decode(data, WIDGETS)
    assert in_cbor.value.message == f"Object 'apiVersion' is missing in '<{len(data)} bytes withheld>'"


def test_a_dropped_version_tells_the_way_out() -> None:
    with pytest.raises(KindUnknown) as caught:
        DECODER.decode(stored({**HEAD, "apiVersion": "example.com/v0"}, "json"), WIDGETS)
    assert caught.value.reason == "version-removed"
    assert "add version v0 to the CustomResourceDefinition again" in caught.value.hint


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "unexpected end of JSON input"),
        (b"k8s\x00", "invalid character 'k' looking for beginning of value"),
        (b"kind: Widget", "invalid character 'k' looking for beginning of value"),
        (b"[]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (b'"x"', "json: cannot unmarshal string into Go value of type map[string]interface {}"),
        (b"5", "json: cannot unmarshal number into Go value of type map[string]interface {}"),
        (
            b'{"kind":"Widget","spec":1e999}',
            "json: cannot unmarshal number <5 bytes withheld> into Go value of type float64",
        ),
        (b"[" * 20_000, "invalid character '[' exceeded max depth"),
    ],
)
def test_what_is_no_json_object(data: bytes, message: str) -> None:
    with pytest.raises(JSONMalformed) as caught:
        DECODER.decode(data, WIDGETS)
    assert caught.value.message == message


def test_null_is_an_object_without_a_kind() -> None:
    with pytest.raises(KindUnknown, match="Object 'Kind' is missing in '<4 bytes withheld>'"):
        DECODER.decode(b"null", WIDGETS)


def test_deep_objects_are_healthy() -> None:
    depth = 9_900
    data = b'{"apiVersion":"example.com/v1","kind":"Widget","spec":' + b"[" * depth + b"]" * depth + b"}"
    assert DECODER.decode(data, WIDGETS).gvk == GVK
    in_cbor = stored(HEAD, "cbor").replace(b"\xa2", b"\xa3", 1) + b"\x64spec" + b"\x81" * depth + b"\x00"
    assert DECODER.decode(in_cbor, WIDGETS) == DecodedObject(GVK, None, None, None, "cbor")


NOT_UTF8 = (
    b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},'
    b'"metadata":{"name":"w\xff","uid":5,"namespace":"n"},'
    b'"spec":{"list":["ok","\xfe",{"inner":"\xfd"}],"od d\xfc":1,"e":{},"f":[]}}'
)
NOT_UTF8_IN_CBOR = {
    **HEAD,
    "metadata": {"name": b"w\xff", "namespace": "n"},
    "spec": {"list": ["ok", b"\xfe", {"inner": b"\xfd"}, 5], b"od d\xfc": 1},
}


@pytest.mark.parametrize("data", [NOT_UTF8, stored(NOT_UTF8_IN_CBOR, "cbor")], ids=["json", "cbor"])
def test_text_that_is_not_utf_8_keeps_its_bytes(data: bytes) -> None:
    decoded = DECODER.decode(data, WIDGETS)
    assert (decoded.name, decoded.namespace, decoded.uid) == (b"w\xff", b"n", None)
    assert decoded.inconsistencies == (
        Inconsistency("invalid-utf8", "metadata.name", "byte 1 of 2 is not UTF-8"),
        Inconsistency("invalid-utf8", "spec.list[1]", "byte 0 of 1 is not UTF-8"),
        Inconsistency("invalid-utf8", "spec.list[2].inner", "byte 0 of 1 is not UTF-8"),
        Inconsistency("invalid-utf8", "spec.(key)", "key: byte 4 of 5 is not UTF-8"),
    )


def test_faults_are_named_up_to_a_limit() -> None:
    many = b'{"apiVersion":"example.com/v1","kind":"Widget","l":[' + b",".join([b'"\xff"'] * 100) + b"]}"
    assert len(DECODER.decode(many, WIDGETS).inconsistencies) == 20
    in_cbor = stored({**HEAD, "l": [b"\xff"] * 100}, "cbor")
    assert len(DECODER.decode(in_cbor, WIDGETS).inconsistencies) == 20


def test_definitions_of_version_v1beta1_in_both_shapes() -> None:
    spec = {"group": "example.com", "names": {"plural": "widgets", "kind": "Widget"}, "version": "v1"}
    single = crd_info({"apiVersion": "apiextensions.k8s.io/v1beta1", "spec": spec})
    assert single == CustomResourceInfo(
        "example.com", "widgets", "Widget", "Namespaced", ("v1",), ("v1",), "v1"
    )
    several = {
        **spec,
        "versions": [{"name": "v1", "served": True, "storage": True}, "damaged", {"served": True}],
        "preserveUnknownFields": False,
        "conversion": {"strategy": "Webhook"},
    }
    info = crd_info({"apiVersion": "apiextensions.k8s.io/v1beta1", "spec": several})
    assert (info.versions, info.storage_version, info.conversion) == (("v1", ""), "v1", "Webhook")


@pytest.mark.parametrize("crd", [{}, {"spec": 5}, {"spec": {"names": [], "versions": {}, "conversion": 1}}])
def test_what_is_missing_counts_as_absent(crd: dict[str, object]) -> None:
    assert crd_info(crd) == CustomResourceInfo("", "", "", "Namespaced", (), (), "")


RULES = "not CBOR by the rules of Kubernetes"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("a0", {}),
        ("f6", {}),
        ("bf6161019f0203ff6162bf6163f5ffff", None),
        ("a161619f0203ff", {"a": [2, 3]}),
        ("bf6161bf6162f5ffff", {"a": {"b": True}}),
        ("a161617f61616162ff", {"a": "ab"}),
        ("a161615f41614162ff", {"a": "ab"}),
        ("a16161d9d9f7a0", {"a": {}}),
        ("a16161d81ca16162d81d00", {"a": {"b": 0}}),
        ("a16161c074323031332d30332d32315432303a30343a30305a", {"a": "2013-03-21T20:04:00Z"}),
        ("a16161c11a514b67b0", {"a": "2013-03-21T20:04:00Z"}),
        ("a16161c1d864fb41d452d9ec200000", {"a": "2013-03-21T20:04:00.500000Z"}),
        ("a16161d9ffff82f4f90000", {"a": [False, 0.0]}),
        ("a1416141ff", {"a": "\udcff"}),
        ("bf6161d9ffff81019f0203ff", None),
        ("a16161d9ffff9f0203ff", {"a": [2, 3]}),
        ("a16161d9ffff5f41614162ff", {"a": "ab"}),
    ],
)
def test_odd_but_acceptable_items(data: str, value: object) -> None:
    if value is None:
        with pytest.raises(CBORMalformed):
            decode_map(bytes.fromhex(data))
    else:
        assert decode_map(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        ("", RULES, 0),
        ("a1", RULES, 1),
        ("a1616119", RULES, 4),
        ("a16161c1", RULES, 4),
        ("bf6161", RULES, 3),
        ("7f6161", RULES, 3),
        ("a0a0", "something follows the object", 1),
        ("a1616100ff", "something follows the object", 4),
        ("ff", RULES, 1),
        ("1c", RULES, 1),
        ("df", RULES, 1),
        ("5f6161ff", RULES, 2),
        ("7f7f6161ffff", RULES, 2),
        ("5bffffffffffffffff", RULES, 9),
        ("9bffffffffffffffff", RULES, 9),
        ("a16161f97e00", "holds a number that is not finite", None),
        ("a16161fb7ff0000000000000", "holds a number that is not finite", None),
        ("80", "the CBOR is no map", 0),
        ("a2616101616102", RULES, 7),
        ("a16162a2616101416102", "a map has a key twice, as text and as bytes, or too many keys", None),
        ("a10102", RULES, 2),
        ("a16161a1a000", RULES, 5),
        ("a161611bffffffffffffffff", "holds an integer of more than 64 bits", None),
        ("a16161c24101", RULES, 6),
        ("a16161f7", "holds what JSON cannot hold", None),
        ("a1616161ff", RULES, 5),
        ("a16161c06161", RULES, 6),
        ("a16161c1fb7e37e43c8800759c", RULES, 13),
        ("a16161c1f5", RULES, 5),
        ("a2616161ff6162f7", RULES, 5),
    ],
)
def test_refusals(data: str, message: str, offset: int | None) -> None:
    for prefix in (b"", CBOR_TAG):
        with pytest.raises(CBORMalformed) as caught:
            decode_map(prefix + bytes.fromhex(data))
        assert caught.value.message == message
        assert caught.value.offset == (None if offset is None else len(prefix) + offset)


def nested(levels: int) -> bytes:
    return b"\xa1\x61a" + b"\x81" * (levels - 1) + b"\x00"


def test_depth_ends_at_ten_thousand() -> None:
    value = decode_map(nested(MAX_DEPTH))["a"]
    for _ in range(MAX_DEPTH - 1):
        (value,) = value
    assert value == 0
    for data in (nested(MAX_DEPTH + 1), b"\xa1\x61a" + b"\xc6" * 10_002 + b"\x00", b"\x81" * 1_000_000):
        with pytest.raises(CBORMalformed) as caught:
            decode_map(data)
        assert caught.value.message == RULES


def test_the_number_of_pairs_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etcdfix.decoding.cbor.MAX_MAP_PAIRS", 2)
    assert decode_map(bytes.fromhex("bf610000610100ff")) == {"\0": 0, "\1": 0}
    with pytest.raises(CBORMalformed, match="too many keys"):
        decode_map(bytes.fromhex("bf610000610100610200ff"))
