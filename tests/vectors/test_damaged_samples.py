"""20,000 damaged samples and the hand-made cases: the verdict and the message of a 1.36 API server, each one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from etcdfix.decoding.protobuf.codec import ProtobufDecoder
from etcdfix.decoding.recognise import PROTOBUF_MAGIC
from etcdfix.decoding.registry import Registry
from etcdfix.decoding.schema import load_schema
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.model.errors import DecodeError
from etcdfix.model.storagekey import StorageLayout, builtin_directories
from tests.support.attacks import LOCAL, OTHER, TRUE, seal
from tests.support.golden import DecoderCase, damaged_cases, hand_made_cases, needs_golden

LAYOUT = StorageLayout()
SAMPLES: Final = 20_000

pytestmark = [pytest.mark.golden, needs_golden]


def said(decoder: ProtobufDecoder, case: DecoderCase) -> tuple[str, str]:
    try:
        decoder.decode(case.value, case.group, case.kind)
    except DecodeError as error:
        return "ERR", error.message
    return "OK", ""


@pytest.mark.parametrize(
    ("cases", "protobuf", "all_cases"), [(damaged_cases, 19_893, SAMPLES), (hand_made_cases, 68, 87)]
)
def test_protobuf_values_are_judged_as_the_api_server_does(
    cases: Callable[[], Iterator[DecoderCase]], protobuf: int, all_cases: int
) -> None:
    """Verdict and message of every value that still starts with the protobuf magic; no exceptions."""
    decoder = ProtobufDecoder(load_schema(36), Registry(36))
    count = judged = 0
    differing = []
    for case in cases():
        count += 1
        if not case.value.startswith(PROTOBUF_MAGIC):
            continue
        judged += 1
        ours = said(decoder, case)
        if ours != (case.verdict, case.message):
            differing.append((case.name, ours, case.verdict, case.message))
    assert differing == []
    assert (judged, count) == (protobuf, all_cases)


@pytest.mark.parametrize(("cases", "count"), [(damaged_cases, SAMPLES), (hand_made_cases, 87)])
def test_every_value_is_judged_as_the_api_server_does(
    cases: Callable[[], Iterator[DecoderCase]], count: int
) -> None:
    """The whole decoder stack on every row, whatever became of its magic: verdict and message, no exceptions."""
    stack = Decoder(36)
    differing, seen = [], 0
    for case in cases():
        seen += 1
        try:
            stack.builtin(case.value, case.group, case.kind)
        except DecodeError as error:
            ours = "ERR", error.message
        else:
            ours = "OK", ""
        if ours != (case.verdict, case.message):
            differing.append((case.name, ours, case.verdict, case.message))
    assert differing == []
    assert seen == count


def test_offsets_lie_within_the_value_and_paths_are_given() -> None:
    decoder = ProtobufDecoder(load_schema(36), Registry(36))
    with_path = malformed = 0
    for case in damaged_cases():
        if case.verdict == "OK" or not case.message.startswith(("proto:", "unexpected EOF")):
            continue
        with pytest.raises(DecodeError) as caught:
            decoder.decode(case.value, case.group, case.kind)
        malformed += 1
        assert caught.value.offset is not None
        assert 0 <= caught.value.offset < len(case.value)
        with_path += bool(caught.value.field_path)
    assert malformed > 9000
    # without a path: damage of the envelope, cut values above all
    assert with_path > 4000


def placed(numbers: Callable[[int], bool]) -> Iterator[tuple[str, bytes, int]]:
    places = {(place.group, place.kind): place for place in reversed(builtin_directories())}
    for number, case in enumerate(damaged_cases()):
        place = places.get((case.group, case.kind))
        if place is not None and numbers(number):
            key = LAYOUT.directory_prefix(place) + (b"shop/" if place.namespaced else b"") + b"%05d" % number
            yield key.decode(), case.value, number


def as_stored(key: str, value: bytes, number: int) -> bytes:
    drawn = random.Random(number)
    kind = drawn.choice(("", *LOCAL))
    if not kind:
        return value
    material, name = drawn.choice(((TRUE, "key1"), (TRUE, "key2"), (OTHER, "key1"), (OTHER, "lost")))
    sealed = bytearray(seal(kind, value, key, material, name))
    if not drawn.randrange(8):
        sealed[drawn.randrange(len(sealed))] ^= 1 << drawn.randrange(8)
    return bytes(sealed)
