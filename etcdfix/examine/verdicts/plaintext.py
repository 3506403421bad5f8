"""What can be said about plaintext that does not decode, without showing any of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final

from etcdfix.decoding.errors import CBORMalformed, ConversionFailed, KindUnknown, ProtobufMalformed
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.observation import DecodeFailure, DecodeFailureKind, PlaintextShape
from etcdfix.examine.verdicts.whole_inside import (
    CBOR_TAG,
    ENVELOPE_END,
    JSON_STARTS,
    PROTOBUF_MAGIC,
    holds_whole,
    names_encoding,
    whole_start,
)
from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.goquote import withheld
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import Confidence, DecodedObject, GroupResource, Look, RepairKind
from etcdfix.model.providers import ENCRYPTED_PREFIX
from etcdfix.model.storagekey import builtin_directories

# Worth trying with the magic restored: the first bytes are not far off, or the end is that of an envelope.
_MAGIC_BITS = 8
_STARTS_TEXT = re.compile(rb"\s*(?:---\s*)?(?:\{|apiVersion|kind|metadata)")
# A damaged length can make a kind of a megabyte; nobody reads more than this of it.
LONGEST_MESSAGE = 4096
LONGEST_NAME = 253
CIPHER_BLOCK = 16
# No object of an API server is so short, and none begins with a letter and has no blank, line or bracket.
_WORD = re.compile(rb"[!-z]{0,64}")
# Text in another encoding, YAML and JSON with comments also begin with a bracket, or a bit away from that.
_JSON_OBJECT = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*(?:["}]|\Z)')


def describe_failure(problem: DecodeError, *, known_since: str = "") -> DecodeFailure:
    """Return a decoder's exception as the plain value that a verdict is made from."""
    if isinstance(problem, KindUnknown):
        return DecodeFailure(
            kind=DecodeFailureKind(problem.reason),
            message=bounded(_QUOTED.sub(_withhold_quoted, _encodable(problem.message)), LONGEST_MESSAGE),
            group_version=_name(_encodable(problem.group_version)),
            value_kind=_name(_encodable(problem.kind)),
            readable_until=problem.readable_until,
            known_since=known_since,
        )
    kind = DecodeFailureKind.UNKNOWN_ENCODING
    for error_type, candidate in (
        (ProtobufMalformed, DecodeFailureKind.PROTOBUF),
        (JSONMalformed, DecodeFailureKind.JSON),
        (CBORMalformed, DecodeFailureKind.CBOR),
        (ConversionFailed, DecodeFailureKind.CONVERSION),
    ):
        if isinstance(problem, error_type):
            kind = candidate
    stated = (problem.group_version, problem.kind) if isinstance(problem, ConversionFailed) else ("", "")
    return DecodeFailure(
        kind=kind,
        message=bounded(_encodable(problem.message), LONGEST_MESSAGE),
        offset=problem.offset,
        field_path=bounded(_encodable(problem.field_path), LONGEST_MESSAGE),
        group_version=stated[0],
        value_kind=stated[1],
    )


def _encodable(text: str) -> str:
    """Return text with an escape for each byte that is not UTF-8, which a decoder keeps as a lone surrogate."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# What no release writes, however new it is.
_BROKEN = frozenset(
    {
        DecodeFailureKind.PROTOBUF,
        DecodeFailureKind.JSON,
        DecodeFailureKind.CBOR,
        DecodeFailureKind.KIND_MISSING,
    }
)
# What no serializer recognises and is text all the same, was to be JSON or YAML; a few characters may be damaged.
_TEXT = frozenset(b"\r\n" + bytes(range(0x20, 0x7F)))
_TEXT_SIZE, _LEAST_TEXT_SIZE, _LEAST_TEXT = 64, 16, 7 / 8


def look_of_object(data: bytes, decoded: DecodedObject, belongs: tuple[bytes, ...]) -> Look:
    """Return what a whole plaintext shows of itself; one from which nothing comes out counts as broken."""
    return Look(
        whole=not decoded.empty,
        breaks=decoded.empty,
        ends_early=_stops_early(data),
        ends_as_written=_ends_as_written(data),
        message="nothing of an object comes out" if decoded.empty else "",
        belongs=belongs,
    )


def look_of_failure(
    data: bytes,
    failure: DecodeFailure,
    decode: Callable[[bytes], DecodedObject],
    in_order: Callable[[bytes], bool],
    belongs: tuple[bytes, ...],
) -> Look:
    """Return what a plaintext shows of itself that does not decode."""
    shape = shape_of(data, decode, heal=True)
    broken = failure.kind in _BROKEN or _breaks_behind(data, failure, in_order)
    return Look(
        whole=False,
        breaks=broken or shape.heals_magic or shape.heals_as_text or bool(shape.whole_at),
        ends_early=broken and _ran_out(data, failure),
        ends_as_written=_ends_as_written(data),
        message=failure.message,
        belongs=belongs,
        maybe_newer=failure.kind is DecodeFailureKind.UNKNOWN_ENCODING
        and not (_is_text(data) or shape.heals_magic or shape.heals_as_text or shape.whole_at),
    )


def _breaks_behind(data: bytes, failure: DecodeFailure, in_order: Callable[[bytes], bool]) -> bool:
    """Say whether a value breaks elsewhere than where its decoder gave up: behind a kind that it does not know.

    Of a kind that only a newer release has, everything is in order.
    """
    if failure.kind is not DecodeFailureKind.UNKNOWN_ENCODING:
        return not in_order(data)
    return _is_text(data) or (_lost_magic(data) and not in_order(PROTOBUF_MAGIC + data[4:]))


def _is_text(data: bytes) -> bool:
    start = data[:_TEXT_SIZE]
    text = sum(byte in _TEXT for byte in start)
    return len(start) >= _LEAST_TEXT_SIZE and text >= _LEAST_TEXT * len(start)


def is_surely_unencrypted(data: bytes) -> bool:
    """Say whether stored bytes begin as an object does, and as no ciphertext does whose envelope is damaged or gone.

    What begins otherwise may still be an object: one whose first bytes are damaged.
    """
    if data.startswith((PROTOBUF_MAGIC + b"\x0a", CBOR_TAG)):
        return True
    return data.lstrip().startswith(b"{") and _is_text(data)


def _lost_magic(data: bytes) -> bool:
    return 0 < bits_off(data, PROTOBUF_MAGIC) <= _MAGIC_BITS


# As a definition may name them; versions of Kubernetes' own groups follow its convention.
_GROUP = re.compile(r"(?:[a-z0-9]+(?:[-.][a-z0-9]+)*)?")
_VERSION = re.compile(r"[a-z][-a-z0-9]*")
_OWN_VERSION = re.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]+)?")
_KIND = re.compile(r"[A-Za-z][-A-Za-z0-9]*")


def is_in_order(data: bytes, parse: Callable[[bytes], DecodedObject], group: str, kind: str) -> bool:
    """Say whether an object of any kind is nowhere broken: neither its encoding nor what it says that it is.

    A release that is newer may have other versions, and other kinds. It has none whose names no API can have, and none
    whose names are unknown, and a few bits off from what is kept here.
    """
    try:
        stated = parse(data).gvk
    except DecodeError as problem:
        return describe_failure(problem).kind not in _BROKEN
    groups, kinds = _builtin_names()
    version = _OWN_VERSION if stated.group in groups else _VERSION
    names = ((_GROUP, stated.group), (version, stated.version), (_KIND, stated.kind))
    possible = all(pattern.fullmatch(name) for pattern, name in names)
    garbled = (stated.kind not in kinds and _nearly(stated.kind, kind)) or (
        stated.group not in groups and _nearly(stated.group, group)
    )
    return possible and not garbled


@cache
def _builtin_names() -> tuple[frozenset[str], frozenset[str]]:
    known = builtin_directories()
    return frozenset(each.group for each in known), frozenset(each.kind for each in known)


def _nearly(stated: str, expected: str) -> bool:
    off = bits_off(stated.encode(), expected.encode())
    return len(stated) == len(expected) and 0 < off <= _MAGIC_BITS


def _stops_early(data: bytes) -> bool:
    """Say whether bytes are missing at the end of a plaintext, which is in order as far as can be told."""
    if data.startswith(PROTOBUF_MAGIC):
        return whole_start(data) > len(data)
    return data.startswith(b"{") and not data.endswith(b"\n")


def _ran_out(data: bytes, failure: DecodeFailure) -> bool:
    """Say the same of a plaintext that breaks: where its end is there, a length or a quote was changed instead."""
    at_the_end = failure.offset == len(data)
    if data.startswith(CBOR_TAG):
        return at_the_end
    if data.startswith(b"{"):
        ran_out = at_the_end or failure.message.endswith("unexpected end of JSON input")
        return ran_out and _stops_early(data)
    return _stops_early(data) and not data.endswith(ENVELOPE_END)


def _ends_as_written(data: bytes) -> bool:
    """Say whether a plaintext ends as the API server writes it; of encodings without such an end, always."""
    if data.startswith(PROTOBUF_MAGIC):
        return data.endswith(ENVELOPE_END)
    return data.endswith(b"\n") if data.startswith(b"{") else True


# A damaged length makes a "kind" of whatever follows, and that may be a Secret's data. A flipped bit makes one odd
# character of a name; what reaches into the next field has more: its tag, its length, the tags inside it.
_ODD_ALLOWED = 1
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\.")


def _withhold_quoted(match: re.Match[str]) -> str:
    quoted = match.group(1)
    plain = len(_ESCAPE.findall(quoted)) <= _ODD_ALLOWED and len(quoted) <= LONGEST_NAME
    return match.group() if plain else f'"{withheld(len(quoted))}"'


def _name(text: str) -> str:
    odd = sum(not character.isprintable() for character in text)
    return text if odd <= _ODD_ALLOWED and len(text) <= LONGEST_NAME else withheld(len(text))


def bounded(text: str, longest: int = LONGEST_NAME) -> str:
    """Return text of which a report shows no more than ``longest`` characters."""
    return text if len(text) <= longest else f"{text[:longest]}{withheld(len(text) - longest)}"


def shape_of(
    data: bytes,
    decode: Callable[[bytes], DecodedObject],
    parse: Callable[[bytes], DecodedObject] | None = None,
    *,
    heal: bool,
    first_blocks: Iterable[bytes] = (),
) -> PlaintextShape:
    """Measure plaintext: is it blank, zeroed, encrypted again, whole at its end, nearly a protobuf magic?

    ``heal`` asks the decoder again about healed copies. ``parse`` is None where no tag or padding fits.
    """
    undone = {kind: other for kind, other in _undone(data) if heal and _decodes(other, decode)}
    begins_anew = heal and _heals_first_block(data, decode, tuple(first_blocks))
    inside = parse is not None and (bool(undone) or holds_whole(data, decode, parse))
    return PlaintextShape(
        size=len(data),
        zeroed=bool(data) and not data.strip(b"\x00"),
        starts_json=_JSON_OBJECT.match(data) is not None,
        starts_encrypted=data.startswith(ENCRYPTED_PREFIX),
        magic_bits_off=bits_off(data, PROTOBUF_MAGIC),
        ends_envelope=data.endswith(ENVELOPE_END),
        heals_magic=RepairKind.MAGIC in undone,
        heals_as_text=RepairKind.TEXT_MODE in undone,
        heals_first_block=begins_anew,
        whole_at=len(undone.get(RepairKind.TRAILING_BYTES, b"")),
        holds_whole=inside,
        names_encoding=names_encoding(data),
        is_word=_WORD.fullmatch(data) is not None,
    )


# A flipped bit of the first cipher block garbles it, and is flipped in the second; each is tried where that is quick.
_MOST_TRIED_SIZE = 32 << 10


def _heals_first_block(
    data: bytes, decode: Callable[[bytes], DecodedObject], blocks: tuple[bytes, ...]
) -> bool:
    """Say whether all but the first cipher block stands, and perhaps a bit of the second: then that one is garbled."""
    if data.startswith(blocks):
        return False
    protobuf, text = data.endswith(ENVELOPE_END), data.rstrip().endswith(b"}")
    likely = [block for block in blocks if (protobuf if block.startswith(PROTOBUF_MAGIC) else text)]
    end = min(len(data), 2 * CIPHER_BLOCK) if len(data) <= _MOST_TRIED_SIZE else 0
    bits = range(8 * CIPHER_BLOCK, 8 * end)
    for block in likely:
        healed = bytearray(block + data[CIPHER_BLOCK:])
        if _is_laid_out(healed, decode):
            return True
        for bit in bits:
            healed[bit // 8] ^= 1 << bit % 8
            if _is_laid_out(healed, decode):
                return True
            healed[bit // 8] ^= 1 << bit % 8
    return False


def _is_laid_out(healed: bytearray, decode: Callable[[bytes], DecodedObject]) -> bool:
    """Say whether an object comes out that ends where its lengths lead: decoders also skip what they do not know."""
    data = bytes(healed)
    return (not data.startswith(PROTOBUF_MAGIC) or whole_start(data) == len(data)) and _decodes(data, decode)


def fixed_undos(data: bytes) -> Iterator[tuple[RepairKind, bytes]]:
    """Yield what an unencrypted value may have been before one of the few things that are undone without a search.

    Nothing is cut off that may be another state of the object: which of the two is right, nothing says.
    """
    for kind, value in _undone(data):
        if kind is not RepairKind.TRAILING_BYTES or not _may_hold_another(data[len(value) :], value):
            yield kind, value


def _may_hold_another(rest: bytes, whole: bytes) -> bool:
    """Say whether what stands behind a whole object may be another one; a copy of it is not."""
    return rest != whole and (
        any(start in rest for start in (PROTOBUF_MAGIC, CBOR_TAG, ENCRYPTED_PREFIX))
        or _STARTS_TEXT.match(rest) is not None
        or JSON_STARTS.search(rest) is not None
    )


def _undone(data: bytes) -> Iterator[tuple[RepairKind, bytes]]:
    magic_bits_off = bits_off(data, PROTOBUF_MAGIC)
    if magic_bits_off > 0 and (data.endswith(ENVELOPE_END) or magic_bits_off <= _MAGIC_BITS):
        yield RepairKind.MAGIC, PROTOBUF_MAGIC + data[4:]
    if b"\r\n" in data:
        yield RepairKind.TEXT_MODE, data.replace(b"\r\n", b"\n")
    end = whole_start(data)
    if 0 < end < len(data):
        yield RepairKind.TRAILING_BYTES, data[:end]


def _decodes(data: bytes, decode: Callable[[bytes], DecodedObject]) -> bool:
    try:
        return not decode(data).empty
    except DecodeError:
        return False


def bits_off(data: bytes, expected: bytes) -> int:
    """Return in how many bits the start of ``data`` differs from ``expected``; a missing byte differs in all."""
    start = data[: len(expected)]
    difference = int.from_bytes(start) ^ int.from_bytes(expected[: len(start)])
    return difference.bit_count() + 8 * (len(expected) - len(start))


_NAMESPACE_NAME: Final = re.compile(rb"[a-z0-9-]*")
_DNS_NAME: Final = re.compile(rb"[a-z0-9.-]*")
# A segment of a path: RBAC, events, certificate requests and others allow whatever else there is.
_SEGMENT: Final = re.compile(rb"[^/%]*")
_API_VERSION: Final = re.compile(r"[a-z0-9./-]*")
_KIND_NAME: Final = re.compile(r"[A-Za-z0-9-]*")
# Resources whose names have to be DNS subdomains, and always had to.
_DNS_RESOURCES: Final = frozenset(
    {
        "configmaps", "endpoints", "limitranges", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes",
        "pods", "podtemplates", "replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts", "services",
    }
)  # fmt: skip
_DNS_GROUPS: Final = frozenset(
    {"apps", "autoscaling", "batch", "coordination.k8s.io", "discovery.k8s.io", "policy"}
)


def unwritable(decoded: DecodedObject, resource: GroupResource, *, custom: bool) -> Confidence | None:
    """Say how surely no API server can have written an object that decodes whole; None where one can.

    A name that is well-formed and not that of the etcd key proves nothing: the value may belong elsewhere.
    """
    named = (
        custom
        or resource.group in _DNS_GROUPS
        or (not resource.group and resource.resource in _DNS_RESOURCES)
    )
    name = _DNS_NAME if named else _SEGMENT
    names_fit = (
        name.fullmatch(decoded.name or b"")
        and _is_utf8(decoded.name or b"")
        and _NAMESPACE_NAME.fullmatch(decoded.namespace or b"")
    )
    type_fits = _API_VERSION.fullmatch(decoded.gvk.api_version) and _KIND_NAME.fullmatch(decoded.gvk.kind)
    wrong = {inconsistency.cause for inconsistency in decoded.inconsistencies}
    if not (names_fit and type_fits) or Cause.RAW_JSON_INVALID in wrong:
        return Confidence.CERTAIN
    return Confidence.LIKELY if Cause.INVALID_UTF8 in wrong else None


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
