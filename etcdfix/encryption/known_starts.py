r"""Recognises the start of a plaintext that nothing has authenticated: is this what an API server wrote, or noise?

Under a wrong key every plaintext is noise, so a start that is not noise shows that the key is right. How sure that is
stands beside it: the odds that noise of the same length looks like this, in bits, with everything that was compared
counted against it. Namespace and name are never looked at: they tell where a value belongs.

Format:
    protobuf: ``k8s\0``, then ``runtime.Unknown`` with its TypeMeta first (``apimachinery/pkg/runtime``).
    JSON: ``{"kind":…,"apiVersion":…`` (built-ins) or ``{"apiVersion":…,"kind":…`` (custom resources).
    YAML: no API server writes it; who does, begins with ``apiVersion: …`` since names are sorted.
    CBOR: tag 55799, a map, a field's name (``apimachinery/pkg/runtime/serializer/cbor``).
    ObjectMeta: fields 1 to 5, all written even where empty; field 5 is the uid in canonical form.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

from etcdfix.model.model import Look
from etcdfix.model.providers import ENCRYPTED_PREFIX, ENCRYPTING

WRONG_BITS_ALLOWED = 8
LEAST_ODDS_BITS = 60
# What has to be decrypted to recognise a start.
START_SIZE = 256
# Where the first block is damaged, what follows has to be seen as far as the uid.
START_SIZE_CBC = 1024
LEAST_VISIBLE = 15
NOISE_SIZE = 8
"""So many bytes tell nearly all noise."""

_LEAST_BITS_PROTOBUF = 128
_LEAST_BITS_TEXT = 120
_BLOCK_SIZE = 16
_TEXT_SIZE = 64
# log2: how much is known of a byte that is printable ASCII, and of one that may also end a line.
_PRINTABLE = math.log2(256 / 95)
_PRINTABLE_OR_NEWLINE = math.log2(256 / 97)
_JSON_TEXT = re.compile(rb'\{"[\x20-\x7e]{62}')
_YAML_TEXT = re.compile(rb"[\x20-\x7e\r\n]{64}")
_YAML_WORD = re.compile(rb'"?[A-Za-z][A-Za-z0-9_-]*"?:[ \r\n]')
_MEMBER = b'":'
_LEAST_MEMBERS = 2
# As the three texts begin: what begins otherwise is none of them.
_TEXT_HEAD = re.compile(rb'\{"|[\x20-\x7e\r\n]{8}|\xd9\xd9\xf7')
# JSON, YAML, CBOR, and the two places at which text is looked for behind a damaged block.
_SHAPES = math.log2(5)

_CBOR_TAG = b"\xd9\xd9\xf7"
_CBOR_MAP = rb"\xd9\xd9\xf7[\xa1-\xb7\xbf]"
_CBOR_KIND = re.compile(_CBOR_MAP + rb"[\x44\x64]kind[\x41-\x57\x61-\x77]([A-Za-z0-9]{1,23})")
_CBOR_API_VERSION = re.compile(_CBOR_MAP + rb"[\x4a\x6a]apiVersion[\x41-\x58\x61-\x78]")
_CBOR_MAPS = re.compile(
    _CBOR_MAP + rb"(?:[\x48\x68]metadata|[\x44\x64]spec|[\x46\x66]status|[\x44\x64]data)[\xa0-\xb7\xbf]"
)
_CBOR_NAMES = math.log2(6)
# Tag, one of 24 heads of a map, one of two heads of the name's string, and the name with what follows it.
_CBOR_BITS = 24 + math.log2(256 / 24) + 7 - _CBOR_NAMES
_CBOR_STRING_HEAD = math.log2(256 / 48)
_CBOR_MAP_HEAD = math.log2(256 / 25)
_ALPHANUMERIC = math.log2(256 / 62)

_UID = rb"\x2a\x24[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_UID_SEEN = re.compile(_UID)
_UID_BITS = 16 + 32 * 4 + 4 * 8
# From the third block on: the rest of the header, lengths, the rest of the name, generateName, namespace, selfLink.
_HEADER_REST = rb"(?:[\x20-\x7e]|\x12[\x00-\x7f]){0,96}?"
_LENGTHS = rb"[\x00-\xff]{0,12}?"
_METADATA_REST = rb"(?:[\x20-\x7e]|\x12[\x00-\x7f]|\x1a[\x00-\x3f]|\x22\x00){0,700}?"
_METADATA = re.compile(_HEADER_REST + _LENGTHS + _METADATA_REST + _UID)
# All the ways in which the three runs can end before the uid.
_METADATA_PLACES = math.log2(97 * 13 * 701)


LookInto = Callable[[bytes], Look]


def first_blocks(pairs: Iterable[tuple[str, str]]) -> tuple[bytes, ...]:
    """Return the first cipher block of objects as API servers write them; all of it is known, whatever their contents.

    ``pairs`` are apiVersion and kind.
    """
    starts: set[bytes] = set()
    for api_version, kind in pairs:
        starts.add(_protobuf_header(api_version, kind))
        for colon in (":", ": "):
            starts.add(f'{{"kind"{colon}"{kind}",{colon[1:]}"apiVersion"'.encode())
            starts.add(f'{{"apiVersion"{colon}"{api_version}"'.encode())
    return tuple(sorted({start[:_BLOCK_SIZE] for start in starts if len(start) >= _BLOCK_SIZE}))


class RecognisedStart(NamedTuple):
    """A start that was recognised.

    Attributes:
        encoding: ``protobuf``, ``json``, ``yaml``, ``cbor``, ``encrypted``.
        bits: Noise looks like this with a probability below 2^-bits.
        wrong_bits: Bits of the known structure that are not as they should be.
        behind: The start itself is noise, and what follows it was recognised.
    """

    encoding: str
    bits: float
    wrong_bits: int
    behind: bool = False


class _Literal(NamedTuple):
    text: bytes
    encoding: str
    least_bits: int


class _Block(NamedTuple):
    start: int
    text: bytes
    encoding: str


class Structures:
    """The starts that API servers write.

    ``pairs`` and ``custom`` are apiVersion and kind, of registered types and of custom resources.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], custom: Iterable[tuple[str, str]] = ()) -> None:
        literals = {_Literal(b'{"apiVersion":"', "json", _LEAST_BITS_TEXT)}
        for provider in {facts.provider for facts in ENCRYPTING}:
            prefix = ENCRYPTED_PREFIX + f"{provider}:v".encode()
            # Shorter ones are recognised with their version, which is one digit.
            for version in b"12":
                literals.add(_Literal(prefix + bytes([version]) + b":", "encrypted", _LEAST_BITS_TEXT))
        for api_version, kind in pairs:
            literals.add(_Literal(_protobuf_header(api_version, kind), "protobuf", _LEAST_BITS_PROTOBUF))
            text = f'{{"kind":"{kind}","apiVersion":"{api_version}"'.encode()
            literals.add(_Literal(text, "json", _LEAST_BITS_TEXT))
            literals.add(_Literal(f"apiVersion: {api_version}\n".encode(), "yaml", _LEAST_BITS_TEXT))
        for api_version, kind in custom:
            text = f'{{"apiVersion":"{api_version}","kind":"{kind}"'.encode()
            literals.add(_Literal(text, "json", _LEAST_BITS_TEXT))
            # A name of up to 23 bytes has its length in the head; the map has two to eight members.
            if len(kind) < 24:
                name = bytes([0x40 | len(kind)]) + kind.encode()
                for members in range(2, 9):
                    text = _CBOR_TAG + bytes([0xA0 | members]) + b"\x44kind" + name
                    literals.add(_Literal(text, "cbor", _LEAST_BITS_TEXT))
        self._tried = math.log2(len(literals)) + _SHAPES
        later = {
            _Block(start, literal.text[start : start + _BLOCK_SIZE], literal.encoding)
            for literal in literals
            for start in range(_BLOCK_SIZE, len(literal.text) - _BLOCK_SIZE + 1, _BLOCK_SIZE)
        }
        self._later_blocks: dict[int, list[tuple[int, str]]] = {}
        for start, text, encoding in sorted(later):
            self._later_blocks.setdefault(start, []).append((int.from_bytes(text), encoding))
        self._later_bytes = bytes({byte for block in later for byte in block.text})
        self._later_tried = math.log2(len(later)) + _SHAPES
        self._by_head: dict[int, list[_Literal]] = {}
        # Those that no other one is the beginning of, and what each shows where no bit of it is wrong.
        self._texts: list[bytes] = []
        self._shown: list[RecognisedStart] = []
        for literal in sorted(literals):
            text = literal.text
            self._by_head.setdefault(int.from_bytes(text[:4]), []).append(literal)
            if len(text) * 8 >= literal.least_bits and not (self._texts and text.startswith(self._texts[-1])):
                self._texts.append(text)
                self._shown.append(self._found(literal.encoding, len(text), 0))

    def recognise(self, seen: bytes) -> RecognisedStart | None:
        """Return what the first bytes of a plaintext show, None where they are noise."""
        return _surest(self._literal(seen), self._text(seen))

    def is_noise(self, seen: bytes) -> bool:
        """Say at once of nearly all noise that nothing would be recognised, however much of it is seen.

        ``seen`` has :data:`NOISE_SIZE` bytes or more.
        """
        head = int.from_bytes(seen[:4])
        for first in self._by_head:
            if (head ^ first).bit_count() <= WRONG_BITS_ALLOWED:
                return False
        return _TEXT_HEAD.match(seen) is None

    def recognise_blocks(self, seen: bytes) -> RecognisedStart | None:
        """Return what the first bytes of a CBC plaintext show, None where they are noise.

        A damaged block of CBC becomes noise, and the same bits are wrong in the block after it. So either the first
        block is looked at alone, or another whole block of a known start, or the first and the second are left out and
        two or more later ones have to fit.
        """
        found = self.recognise(seen) or self._literal(seen[:_BLOCK_SIZE])
        return found or _surest(
            self._later_block(seen), _surest(self._metadata(seen), self._json_behind(seen))
        )

    def _later_block(self, seen: bytes) -> RecognisedStart | None:
        """Return what one whole block behind the first shows: it is as long as what a start needs at least."""
        best = None
        for start, known in self._later_blocks.items():
            block = seen[start : start + _BLOCK_SIZE]
            # A byte that stands in none of them has a wrong bit in each: so nearly all noise is told.
            strange = len(block.translate(None, self._later_bytes))
            if len(block) < _BLOCK_SIZE or strange > WRONG_BITS_ALLOWED:
                continue
            bits = int.from_bytes(block)
            for text, encoding in known:
                wrong = (bits ^ text).bit_count()
                if wrong <= WRONG_BITS_ALLOWED and (best is None or wrong < best.wrong_bits):
                    shown = _LEAST_BITS_PROTOBUF - _ways_to_be_wrong(_LEAST_BITS_PROTOBUF)
                    best = RecognisedStart(encoding, shown - self._later_tried, wrong, behind=True)
        return best

    def _found(self, encoding: str, size: int, wrong_bits: int) -> RecognisedStart:
        return RecognisedStart(encoding, size * 8 - _ways_to_be_wrong(size * 8) - self._tried, wrong_bits)

    def _literal(self, seen: bytes) -> RecognisedStart | None:
        # Nearly every start is noise, or right to the last bit: what is right stands last among those not above it.
        nearest = bisect_right(self._texts, seen) - 1
        if nearest >= 0 and seen.startswith(self._texts[nearest]):
            return self._shown[nearest]
        best = None
        head = int.from_bytes(seen[:4])
        for first, literals in self._by_head.items():
            if (head ^ first).bit_count() > WRONG_BITS_ALLOWED:
                continue
            for text, encoding, least_bits in literals:
                size = min(len(text), len(seen))
                if size * 8 < least_bits:
                    continue
                wrong = (int.from_bytes(text[:size]) ^ int.from_bytes(seen[:size])).bit_count()
                if wrong > WRONG_BITS_ALLOWED or (best is not None and wrong >= best.wrong_bits):
                    continue
                best = self._found(encoding, size, wrong)
        return best

    @staticmethod
    def _text(seen: bytes) -> RecognisedStart | None:
        if _JSON_TEXT.match(seen):
            return RecognisedStart("json", 16 + (_TEXT_SIZE - 2) * _PRINTABLE - _SHAPES, 0)
        if _YAML_TEXT.match(seen) and _YAML_WORD.match(seen):
            return RecognisedStart("yaml", _TEXT_SIZE * _PRINTABLE_OR_NEWLINE - _SHAPES, 0)
        bits = _cbor_bits(seen)
        return RecognisedStart("cbor", bits - _SHAPES, 0) if bits else None

    @staticmethod
    def _metadata(seen: bytes) -> RecognisedStart | None:
        # The whole is tried only where its end is there at all.
        if _UID_SEEN.search(seen, 2 * _BLOCK_SIZE) is None or _METADATA.match(seen, 2 * _BLOCK_SIZE) is None:
            return None
        return RecognisedStart("protobuf", _UID_BITS - _METADATA_PLACES - _SHAPES, 0, behind=True)

    @staticmethod
    def _json_behind(seen: bytes) -> RecognisedStart | None:
        if seen.count(_MEMBER) < _LEAST_MEMBERS:
            return None
        for start, allowed in ((_BLOCK_SIZE, 1), (2 * _BLOCK_SIZE, 0)):
            text = seen[start : start + _TEXT_SIZE]
            wrong = sum(not 0x20 <= byte <= 0x7E for byte in text)
            if len(text) == _TEXT_SIZE and wrong <= allowed and text.count(_MEMBER) >= _LEAST_MEMBERS:
                ways = math.log2(1 + allowed * _TEXT_SIZE * (256 / 95 - 1))
                return RecognisedStart("json", _TEXT_SIZE * _PRINTABLE - ways - _SHAPES, wrong, behind=True)
        return None


def _surest(one: RecognisedStart | None, other: RecognisedStart | None) -> RecognisedStart | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda start: start.bits)


@cache
def _ways_to_be_wrong(size_bits: int) -> float:
    """Return log2 of the number of ways in which so many bits can have at most the wrong bits that are allowed."""
    return math.log2(sum(math.comb(size_bits, wrong) for wrong in range(WRONG_BITS_ALLOWED + 1)))


def _protobuf_header(api_version: str, kind: str) -> bytes:
    version, name = api_version.encode(), kind.encode()
    type_meta = b"\x0a" + bytes([len(version)]) + version + b"\x12" + bytes([len(name)]) + name
    return b"k8s\x00\x0a" + bytes([len(type_meta)]) + type_meta + b"\x12"


def _cbor_bits(seen: bytes) -> float:
    """Return how surely these are the first bytes of an object as CBOR, before anything is counted against it."""
    kind = _CBOR_KIND.match(seen)
    if kind is not None:
        return _CBOR_BITS + 32 + _CBOR_STRING_HEAD + len(kind[1]) * _ALPHANUMERIC
    if _CBOR_API_VERSION.match(seen):
        return _CBOR_BITS + 80 + _CBOR_STRING_HEAD
    # The shortest of the four names counts for all.
    return _CBOR_BITS + 32 + _CBOR_MAP_HEAD if _CBOR_MAPS.match(seen) else 0.0
