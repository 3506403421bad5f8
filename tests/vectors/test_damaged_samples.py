"""20,000 damaged samples and the hand-made cases: the verdict and the message of a 1.36 API server, each one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from etcdfix.decoding.recognise import PROTOBUF_MAGIC
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.model.errors import DecodeError
from etcdfix.model.storagekey import StorageLayout, builtin_directories
from tests.support.attacks import LOCAL, OTHER, TRUE, seal
from tests.support.golden import DecoderCase, damaged_cases, hand_made_cases, needs_golden
from tests.support.thorough import THOROUGH

LAYOUT = StorageLayout()
SAMPLES: Final = 20_000

pytestmark = [pytest.mark.golden, needs_golden]


@pytest.mark.parametrize(
    ("cases", "count"), [(damaged_cases, SAMPLES if THOROUGH else SAMPLES // 10), (hand_made_cases, 87)]
)
def test_every_value_is_judged_as_the_api_server_does(
    cases: Callable[[], Iterator[DecoderCase]], count: int
) -> None:
    """The whole decoder stack on a tenth of the samples, on all that lost their magic, and on every hand-made one."""
    stack = Decoder(36)
    differing, offsets, seen = [], [], 0
    for number, case in enumerate(cases()):
        sampled = THOROUGH or cases is hand_made_cases or not number % 10
        if not sampled and case.value.startswith(PROTOBUF_MAGIC):
            continue
        seen += sampled
        try:
            stack.builtin(case.value, case.group, case.kind)
        except DecodeError as error:
            ours = "ERR", error.message
            if error.message.startswith(("proto:", "unexpected EOF")):
                offsets.append((case.name, error.offset, len(case.value)))
        else:
            ours = "OK", ""
        if ours != (case.verdict, case.message):
            differing.append((case.name, ours, case.verdict, case.message))
    assert differing == []
    assert seen == count
    beyond = [name for name, offset, size in offsets if offset is None or not 0 <= offset <= size]
    assert beyond == []


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
