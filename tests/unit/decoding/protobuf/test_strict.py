from __future__ import annotations

import struct

import pytest

from etcdfix.decoding.errors import ProtobufMalformed
from etcdfix.decoding.protobuf.strict import Decoded, Node, StrictDecoder
from etcdfix.decoding.schema import load_schema
from etcdfix.testing.protobytes import block, entry, number, tag, varint

SECRET = "k8s.io.api.core.v1.Secret"
POD = "k8s.io.api.core.v1.Pod"
CLAIM = "k8s.io.api.core.v1.PersistentVolumeClaim"
CONTEXT = "k8s.io.api.core.v1.PodSecurityContext"
SCHEMA_PROPS = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"

decoder = StrictDecoder(load_schema(36))


def decode(message: str, data: bytes) -> Decoded:
    return decoder.decode(message, data)


def refused(message: str, data: bytes) -> tuple[str, int | None, str]:
    with pytest.raises(ProtobufMalformed) as caught:
        decode(message, data)
    return caught.value.message, caught.value.offset, caught.value.field_path


def test_a_part_of_a_buffer() -> None:
    data = b"xx" + block(3, b"Opaque") + b"\x00\x00"
    assert decoder.decode(SECRET, data, 2, len(data) - 2).node == {3: b"Opaque"}
    with pytest.raises(ProtobufMalformed) as caught:
        decoder.decode(SECRET, data, 2)
    assert caught.value.offset == len(data) - 2


def test_singular_messages_merge_and_scalars_overwrite() -> None:
    node = decode(SECRET, block(1, block(1, b"one") + block(5, b"uid")) + block(1, block(1, b"two"))).node
    assert node[1] == {1: b"two", 5: b"uid"}


def test_repeated_integers_packed_and_not() -> None:
    packed = block(4, varint(1) + varint(-2))
    assert decode(CONTEXT, number(4, 7) + packed + number(4, 9)).node == {4: [7, 1, -2, 9]}


def test_a_packed_element_may_run_past_its_run_but_not_past_the_message() -> None:
    overrunning = tag(4, 2) + b"\x01" + b"\x80\x01"
    assert decode(CONTEXT, overrunning).node == {4: [128]}
    assert refused(CONTEXT, tag(4, 2) + b"\x01" + b"\x80")[0] == "unexpected EOF"
    assert (
        refused(CONTEXT, tag(4, 5) + b"\x00" * 4)[0]
        == "proto: wrong wireType = 5 for field SupplementalGroups"
    )


def test_a_field_that_newer_releases_lack_refuses_no_object_where_the_release_is_not_known() -> None:
    generation_with_one_bit_flipped = block(1, block(1, b"one") + number(15, 0))
    found = StrictDecoder(load_schema()).decode(SECRET, generation_with_one_bit_flipped)
    assert (found.node, [field.number for field in found.unknown]) == ({1: {1: b"one"}}, [15])
    with pytest.raises(ProtobufMalformed, match="wrong wireType = 0 for field ClusterName"):
        StrictDecoder(load_schema(24)).decode(SECRET, generation_with_one_bit_flipped)
    labels_with_one_bit_flipped = block(1, block(1, b"one") + entry(15, b"app", b"web"))
    found = StrictDecoder(load_schema()).decode(SECRET, labels_with_one_bit_flipped)
    assert [field.number for field in found.unknown] == [15]
    assert not StrictDecoder(load_schema()).decode(SECRET, block(1, block(15, b"east"))).unknown


def test_doubles() -> None:
    assert decode(SCHEMA_PROPS, tag(9, 1) + struct.pack("<d", 1.5)).node == {9: 1.5}
    assert refused(SCHEMA_PROPS, tag(9, 1) + b"\x00" * 7)[0] == "unexpected EOF"
    assert refused(SCHEMA_PROPS, number(9, 1))[0] == "proto: wrong wireType = 0 for field Maximum"


def test_a_map_entry_ignores_wire_types_and_low_field_numbers() -> None:
    assert decode(SECRET, block(2, tag(1, 4) + b"\x01k" + tag(2, 7) + b"\x01v")).node == {2: {b"k": b"v"}}
    assert decode(SECRET, block(2, tag(0, 0) + b"\x05")).node == {2: {b"": b""}}
    assert decode(SECRET, block(2, tag(-1 & 0x1FFFFFFF, 0) + b"\x05")).node == {2: {b"": b""}}


def test_a_value_may_run_past_its_entry_and_the_position_goes_back() -> None:
    data = block(2, block(1, b"k") + tag(2, 2) + b"\x04") + block(3, b"ab")
    assert decode(SECRET, data).node == {2: {b"k": block(3, b"ab")}, 3: b"ab"}
    assert refused(SECRET, data[:-1])[0] == "unexpected EOF"


def test_skipped_fields_of_an_entry_must_end_within_it() -> None:
    assert refused(SECRET, block(2, tag(3, 2) + b"\x01") + number(5, 1))[0] == "unexpected EOF"
    assert refused(SECRET, block(2, tag(3, 4)))[0] == "proto: unexpected end of group"


def test_only_the_first_unknown_fields_are_listed() -> None:
    decoded = decode(SECRET, number(99, 1) * 50)
    assert (decoded.unknown_count, len(decoded.unknown)) == (50, 8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (tag(3, 2), "unexpected EOF"),
        (tag(3, 2) + b"\x05abc", "unexpected EOF"),
        (b"\x80", "unexpected EOF"),
        (b"\xff" * 11, "proto: integer overflow"),
        (tag(5, 0) + b"\xff" * 11, "proto: integer overflow"),
        (tag(3, 2) + varint(1 << 63), "proto: negative length found during unmarshaling"),
        (tag(3, 2) + varint((1 << 63) - 20), "unexpected EOF"),
        (number(1, 1), "proto: wrong wireType = 0 for field ObjectMeta"),
        (block(5, b"x"), "proto: wrong wireType = 2 for field Immutable"),
        (number(2, 1), "proto: wrong wireType = 0 for field Data"),
        (tag(1 << 31, 2), "proto: Secret: illegal tag -2147483648 (wire type 17179869186)"),
        (tag(3, 4), "proto: Secret: wiretype end group for non-group"),
        (tag(99, 6), "proto: illegal wireType 6"),
        (tag(99, 7), "proto: illegal wireType 7"),
        (tag(99, 3), "unexpected EOF"),
        (tag(99, 0), "unexpected EOF"),
        (tag(99, 5) + b"\x00" * 3, "unexpected EOF"),
        (tag(99, 2) + b"\x05abc", "unexpected EOF"),
        (tag(99, 2) + varint(1 << 63), "proto: negative length found during unmarshaling"),
    ],
)
def test_refusals(data: bytes, message: str) -> None:
    good = block(3, b"Opaque")
    assert refused(SECRET, good + data) == (message, len(good), refused(SECRET, data)[2])


def test_where_the_damage_is_in_lists_and_maps() -> None:
    claim = block(2, block(2, entry(1, b"storage", block(1, b"1Gi")) + entry(1, b"cpu", block(1, b"x"))))
    assert refused(CLAIM, claim)[2] == "spec.resources.limits[1]"
    assert refused(SECRET, entry(2, b"a", b"b") + tag(2, 2) + b"\x05")[2] == "data[1]"
    assert refused(SECRET, block(1, block(14, b"f") + tag(14, 2) + b"\x05"))[2] == "metadata.finalizers[1]"
    assert refused(POD, block(2, block(1, block(2, number(2, 1)))))[2] == "spec.volumes[0].emptyDir"


def nested(depth: int, innermost: bytes) -> bytes:
    sizes = [len(innermost)]
    heads = []
    for _ in range(depth):
        head = tag(25, 2) + varint(sizes[-1])
        heads.append(head)
        sizes.append(sizes[-1] + len(head))
    return b"".join(reversed(heads)) + innermost


@pytest.mark.thorough
@pytest.mark.parametrize("innermost", [b"", b"\x00", number(99, 1) * 3])
def test_nesting_has_no_limit(innermost: bytes) -> None:
    data = nested(30_000, innermost)
    if innermost == b"\x00":
        message, offset, path = refused(SCHEMA_PROPS, data)
        assert message == "proto: JSONSchemaProps: illegal tag 0 (wire type 0)"
        assert offset == len(data) - 1
        assert path.count("allOf[0]") == 40
        assert "…" in path
    else:
        assert decode(SCHEMA_PROPS, data).unknown_count == len(innermost) // 3


def test_nested_groups_have_no_limit() -> None:
    data = tag(99, 3) * 200_000 + tag(99, 4) * 200_000
    assert decode(SECRET, data).unknown_count == 1
    assert refused(SECRET, tag(99, 3) * 200_000)[0] == "unexpected EOF"


def test_an_unknown_message_name() -> None:
    with pytest.raises(KeyError):
        decode("k8s.io.api.core.v1.NoSuch", b"")


# -- salvage


def salvaged(message: str, data: bytes, *, cut_off: bool = False) -> tuple[Node, str, int | None, str]:
    decoded, error = decoder.salvage(message, data, cut_off=cut_off)
    assert error is not None
    return decoded.node, error.message, error.offset, error.field_path


def test_salvage_keeps_what_came_before_the_damage() -> None:
    data = block(1, block(1, b"s1") + b"\x00") + block(3, b"Opaque")
    refused_here = refused(SECRET, data)
    assert salvaged(SECRET, data) == ({1: {1: b"s1"}}, *refused_here)
    assert salvaged(SECRET, data, cut_off=True) == ({1: {1: b"s1"}}, *refused_here)


@pytest.mark.parametrize(
    ("length", "kept", "offset", "path"),
    [
        (1, {}, 0, "metadata"),
        (2, {1: {}}, 0, "metadata"),
        (4, {1: {}}, 2, "metadata.name"),
        (6, {1: {1: b"s1"}}, 0, "metadata"),
        (8, {1: {1: b"s1", 13: [{}]}}, 6, "metadata.ownerReferences[0]"),
        (10, {1: {1: b"s1", 13: [{}]}}, 8, "metadata.ownerReferences[0].kind"),
        (12, {1: {1: b"s1", 13: [{1: b"Po"}]}}, 6, "metadata.ownerReferences[0]"),
        (14, {1: {1: b"s1", 13: [{1: b"Po"}]}}, 12, "metadata.ownerReferences[0].name"),
    ],
)
def test_salvage_of_a_message_that_was_cut_off(length: int, kept: Node, offset: int, path: str) -> None:
    owner = block(1, b"Po") + block(3, b"n")
    data = block(1, block(1, b"s1") + block(13, owner))
    assert len(data) == 15
    found = salvaged(SECRET, data[:length], cut_off=True)
    assert found == (kept, "unexpected EOF", offset, path)
    assert salvaged(SECRET, data[:length])[0] == {}


def test_only_what_reaches_past_the_end_is_opened() -> None:
    too_long = block(1, block(1, b"s1") + b"\x6a\x7f\x0a\x02Po") + block(3, b"Opaque")
    assert salvaged(SECRET, too_long, cut_off=True)[0] == {
        1: {1: b"s1"}
    }  # its holder ends before the data does
    assert salvaged(SECRET, b"\x08\x01", cut_off=True)[1] == "proto: wrong wireType = 0 for field ObjectMeta"
    assert salvaged(SECRET, b"\x12\x7f", cut_off=True)[0] == {}  # a map entry is whole or it is nothing
    assert salvaged(SECRET, b"\x0a\x80", cut_off=True)[2:] == (0, "metadata")
    assert salvaged(SECRET, b"\x0a" + b"\xff" * 9 + b"\x01", cut_off=True)[0] == {}
    assert salvaged(SECRET, b"\x0a" + b"\xff" * 11, cut_off=True)[1] == "proto: integer overflow"


@pytest.mark.parametrize("cut_off", [True, False])
def test_half_a_value_is_none(cut_off: bool) -> None:
    meta = "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    time = block(8, number(1, 1_700_000_000))
    assert salvaged(meta, block(1, b"s1") + time[:-1], cut_off=cut_off)[0] == {1: b"s1"}
    assert salvaged(meta, block(1, b"s1") + block(8, time[2:-1]), cut_off=cut_off)[0] == {1: b"s1"}
    versions = "k8s.io.api.core.v1.List"
    good, bad = block(2, block(1, b"{}")), block(2, b"\x0a\x7f")
    assert salvaged(versions, good + bad, cut_off=cut_off)[0] == {2: [{1: b"{}"}]}
    disrupted = entry(2, b"pod", b"\x08")
    budget = "k8s.io.api.policy.v1.PodDisruptionBudgetStatus"
    assert salvaged(budget, disrupted, cut_off=cut_off)[0] == {2: {}}
    assert salvaged("k8s.io.apimachinery.pkg.apis.meta.v1.Time", b"\x08", cut_off=cut_off)[0] == {}
