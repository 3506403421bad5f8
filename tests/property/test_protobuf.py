"""The protobuf decoder on any bytes: it returns or raises its documented error, and its two ways agree."""

from __future__ import annotations

import struct
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from etcdfix.decoding.protobuf.codec import ProtobufDecoder, _prove_healthy
from etcdfix.decoding.protobuf.envelope import is_well_formed
from etcdfix.decoding.protobuf.strict import StrictDecoder
from etcdfix.decoding.quantity import quantity_error
from etcdfix.decoding.registry import Registry
from etcdfix.decoding.schema import load_schema
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject
from etcdfix.testing.protobytes import block, entry, number, object_meta, tag, unknown
from tests.support.secret_message import secret

decoder = ProtobufDecoder(load_schema(36), Registry(36))
strict = StrictDecoder(load_schema(36))

MANAGED_FIELDS = block(17, block(1, b"kubectl") + block(7, block(1, b'{"f:spec":{"f:replicas":{}}}')))
CONTAINER = block(2, block(1, b"web") + block(8, entry(1, b"cpu", block(1, b"100m")) + entry(2, b"cpu", b"")))
PORT = block(1, b"http") + number(3, 80) + block(4, number(1, 0) + number(2, 8080) + block(3, b""))
SAMPLES = [
    (
        "",
        "Secret",
        unknown(b"v1", b"Secret", secret(b"s1", entry(2, b"a", b"b"), metadata=(MANAGED_FIELDS,))),
    ),
    (
        "",
        "Pod",
        unknown(b"v1", b"Pod", block(1, object_meta(b"p", b"n", b"u", MANAGED_FIELDS)) + block(2, CONTAINER)),
    ),
    ("", "Service", unknown(b"v1", b"Service", block(1, object_meta(b"svc")) + block(2, block(1, PORT)))),
    (
        "apps",
        "Deployment",
        unknown(
            b"apps/v1",
            b"Deployment",
            block(1, object_meta(b"d", b"n", b"u", entry(12, b"deprecated.deployment.rollback.to", b"3")))
            + block(2, block(3, block(2, CONTAINER))),
        ),
    ),
]


def outcome(data: bytes, group: str, kind: str) -> DecodedObject | DecodeError:
    try:
        return decoder.decode(data, group, kind)
    except DecodeError as raised:
        error = raised
    assert error.message
    assert error.offset is None or 0 <= error.offset <= len(data)
    return error


@st.composite
def damaged_samples(draw: st.DrawFn) -> tuple[str, str, bytes]:
    group, kind, sample = draw(st.sampled_from(SAMPLES))
    data = bytearray(sample)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["flip", "cut", "insert", "delete", "overwrite"]))
        some = draw(st.binary(min_size=1, max_size=12))
        if change == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif change == "cut":
            del data[at:]
        elif change == "insert":
            data[at:at] = some
        elif change == "delete":
            del data[at : at + len(some)]
        else:
            data[at : at + len(some)] = some
    return group, kind, bytes(data)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    outcome(data, "", "Secret")
    outcome(b"k8s\x00" + data, "", "Secret")
    outcome(unknown(b"v1", b"Secret", data), "", "Secret")


@given(damaged_samples())
def test_any_damage_has_its_error_and_the_quick_way_never_contradicts_the_strict_one(
    damaged: tuple[str, str, bytes],
) -> None:
    group, kind, data = damaged
    outcome(data, group, kind)
    for _, other_kind, sample in SAMPLES:
        decoder.decode(sample, {"Deployment": "apps"}.get(other_kind, ""), other_kind)
    ways = decoder._fast_paths.get((group, kind), {})
    way = ways.get(data[: data[5] + 7]) if len(data) > 8 else None
    quick = None if way is None else _prove_healthy(way, data, data[5] + 7)
    if quick is not None:
        assert decoder._decode_strictly(data, group, kind) == quick


@given(
    st.binary(max_size=20),
    st.dictionaries(st.binary(max_size=8), st.binary(max_size=30), max_size=5),
    st.lists(st.binary(max_size=10), max_size=4),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.randoms(use_true_random=False),
)
def test_what_another_encoder_wrote_comes_out(
    name: bytes, data: dict[bytes, bytes], finalizers: list[bytes], generation: int, random: Random
) -> None:
    metadata = [block(1, name), number(7, generation)]
    random.shuffle(metadata)
    fields = [*(entry(2, *item) for item in data.items()), block(1, b"".join(metadata)), block(3, b"Opaque")]
    random.shuffle(fields)
    # a message in two pieces is one message
    fields.append(block(1, b"".join(block(14, finalizer) for finalizer in finalizers)))
    node = strict.decode("k8s.io.api.core.v1.Secret", b"".join(fields)).node
    assert (node.get(2, {}), node[3], node[1].get(14, [])) == (data, b"Opaque", finalizers)
    assert (node[1][1], node[1][7]) == (name, generation)


def unknown_fields() -> st.SearchStrategy[bytes]:
    numbers = st.integers(100, (1 << 29) - 1)
    plain = st.one_of(
        st.builds(number, numbers, st.integers(0, (1 << 64) - 1)),
        st.builds(block, numbers, st.binary(max_size=20)),
        st.builds(lambda at, value: tag(at, 1) + struct.pack("<d", value), numbers, st.floats()),
        st.builds(lambda at, value: tag(at, 5) + value, numbers, st.binary(min_size=4, max_size=4)),
    )
    return st.recursive(
        plain,
        lambda inner: st.builds(
            lambda at, parts: tag(at, 3) + b"".join(parts) + tag(at, 4), numbers, st.lists(inner, max_size=3)
        ),
        max_leaves=8,
    )


@given(st.lists(unknown_fields(), min_size=1, max_size=4))
def test_unknown_fields_never_matter(extra: list[bytes]) -> None:
    found = decoder.decode(unknown(b"v1", b"Secret", secret(b"s1", *extra)), "", "Secret")
    assert (found.name, found.warnings[0].result) == (b"s1", str(len(extra)))
    assert is_well_formed(b"".join(extra))


@given(
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 10**25),
    st.none() | st.integers(0, 10**9),
    st.sampled_from(["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-3", "e+12"]),
)
def test_quantities_by_their_grammar(sign: str, whole: int, decimals: int | None, suffix: str) -> None:
    text = f"{sign}{whole}" + ("" if decimals is None else f".{decimals}") + suffix
    assert quantity_error(text.encode()) == ""
