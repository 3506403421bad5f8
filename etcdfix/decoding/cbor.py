"""CBOR as the API server stores custom resources with the CBORServingAndStorage gate, read strictly.

cbor2 decodes. It is more generous than Kubernetes, so what it gives is checked. Which words the API server has for a
value that it refuses, no case shows; so the errors are ours.

Format:
    RFC 8949 in the profile of Kubernetes ``apimachinery/pkg/runtime/serializer/cbor`` (``cbor.go``,
    ``internal/modes/decode.go``) over ``github.com/fxamacker/cbor/v2``: self-described tag 55799, then a map. Text
    stands in byte strings (major type 2) or text strings, keys are strings and unique, other tags are passed through
    to their content.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import cbor2

from etcdfix.decoding.errors import CBORMalformed
from etcdfix.decoding.recognise import CBOR_TAG

MAX_DEPTH: Final = 10_000
MAX_MAP_PAIRS: Final = 2_097_152


def decode_map(data: bytes) -> dict[str, Any]:
    """Decode a stored value to plain Python: dict, list, str, int, float, bool and None.

    Bytes of a string that are not UTF-8 become lone surrogates (``surrogateescape``), so they are not lost.

    Raises:
        CBORMalformed: Kubernetes refuses it; ``offset`` counts from the start of ``data``.
    """
    body = data.removeprefix(CBOR_TAG)
    start = len(data) - len(body)
    stream = io.BytesIO(body)
    try:
        value = _plain(_decoder(stream).decode())
    except _REFUSALS as error:
        raise CBORMalformed("not CBOR by the rules of Kubernetes", offset=start + _end(body)) from error
    if value is None:
        value = {}  # to Go an empty map: no kind, and no error either
    if type(value) is not dict:
        raise CBORMalformed("the CBOR is no map", offset=start)
    end = stream.tell()
    if end != len(body):
        raise CBORMalformed("something follows the object", offset=start + end)
    _make_plain(value)
    return value


def _decoder(stream: io.BytesIO, read_size: int = 4096) -> cbor2.CBORDecoder:
    return cbor2.CBORDecoder(
        stream,
        tag_hook=lambda tag, _: tag.value,
        semantic_decoders=_TAGS,
        read_size=read_size,
        max_depth=MAX_DEPTH,
        allow_duplicate_keys=False,
        strict_hashable_types=True,
    )


def _end(body: bytes) -> int:
    """Return how far a value that cbor2 refuses can be read; byte by byte, for else it reads ahead."""
    stream = io.BytesIO(body)
    with suppress(*_REFUSALS):
        _decoder(stream, read_size=1).decode()
    return stream.tell()


def _content(value: Any, _: bool) -> Any:
    return value


def _refuse(*_: object) -> Any:
    raise ValueError


def _time(value: Any, _: bool) -> str:
    """Turn the content of a time tag into RFC 3339 text (``TimeTagToRFC3339Nano``)."""
    text = _plain(value)
    if isinstance(text, str) and _RFC3339.fullmatch(text):
        return text
    if type(text) not in {int, float}:
        raise ValueError
    return (_EPOCH + timedelta(seconds=text)).isoformat().replace("+00:00", "Z")


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:Z|[-+][0-9]{2}:[0-9]{2})"
)
_REFUSALS: Final = (cbor2.CBORError, CBORMalformed, ValueError, OverflowError, RecursionError, MemoryError)
# Every tag that cbor2 would interpret. Kubernetes knows times (0, 1) and refuses bignums (2, 3).
_TAGS: Final[dict[int, Callable[[Any, bool], Any]]] = {
    **dict.fromkeys((4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799), _content),
    0: _time, 1: _time, 2: _refuse, 3: _refuse,
}  # fmt: skip


def _make_plain(root: dict[Any, Any]) -> None:
    """Turn byte strings into text, in place; refuse what cbor2 accepts and Kubernetes does not."""
    waiting: list[Any] = [root]
    while waiting:
        container = waiting.pop()
        if type(container) is list:
            container[:] = inner = [_plain(item) for item in container]
        else:
            inner = [_plain(item) for item in container.values()]
            keys = [_plain(key) for key in container]
            container.clear()
            container.update(zip(keys, inner, strict=True))
            if len(container) < len(keys) or len(keys) > MAX_MAP_PAIRS:
                raise CBORMalformed("a map has a key twice, as text and as bytes, or too many keys")
        waiting += [item for item in inner if type(item) in _CONTAINERS]


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is bytes:
        return value.decode("utf-8", "surrogateescape")
    if kind in _FROZEN:
        return _FROZEN[kind](value)
    if kind is int and not -(1 << 63) <= value < (1 << 63):
        raise CBORMalformed("holds an integer of more than 64 bits")
    if kind is float and not math.isfinite(value):
        raise CBORMalformed("holds a number that is not finite")
    if kind not in _PLAIN_TYPES:
        raise CBORMalformed("holds what JSON cannot hold")
    return value


# What cbor2 makes of containers behind a tag that it does not know.
_FROZEN: Final[dict[type, type]] = {tuple: list, cbor2.frozendict: dict}
_CONTAINERS: Final = frozenset({list, dict})
_PLAIN_TYPES: Final = _CONTAINERS | {str, int, float, bool, type(None)}
