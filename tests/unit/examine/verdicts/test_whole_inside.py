"""A whole object beside other bytes, found in any plaintext that does not decode, in a time that is bounded."""

from __future__ import annotations

import time
from collections.abc import Callable

import cbor2
import pytest

from etcdfix.examine.verdicts import whole_inside
from etcdfix.examine.verdicts.whole_inside import PROTOBUF_MAGIC, holds_whole, names_encoding
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject
from tests.support.decoders import shared_decoder
from tests.support.fixtures import Patch
from tests.support.objects import UID, config_map, crd, json_object, secret, widget

DECODER = shared_decoder(36)
DEFINITION = DECODER.crd(crd())
APPLIED = json_object("v1", "Secret", "web").replace(UID, b"")
CUT = secret()[:-30]
"""A Secret that is cut short."""


def builtin(data: bytes) -> DecodedObject:
    return DECODER.builtin(data, "", "Secret")


def custom(data: bytes) -> DecodedObject:
    return DECODER.custom_resource(data, DEFINITION)


def found(data: bytes, decode: Callable[[bytes], DecodedObject] = builtin) -> bool:
    with pytest.raises(DecodeError):
        decode(data)
    return holds_whole(data, decode, DECODER.parses)


def as_cbor(**more: object) -> bytes:
    metadata = {"name": "w-0", "namespace": "shop", "uid": UID.decode()}
    return b"\xd9\xd9\xf7" + cbor2.dumps(
        {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, **more}
    )


JSON_SECRET = json_object("v1", "Secret", "web")
DATA_FIRST = b'{"data":{},' + JSON_SECRET.lstrip()[1:]
WHOLE: dict[str, tuple[Callable[[bytes], DecodedObject], bytes]] = {
    "behind a cut one": (builtin, CUT + secret()),
    "behind zeroes": (builtin, bytes(1000) + secret()),
    "behind another magic of any size": (builtin, b"K8SPROTO\x02" + secret()[4:]),
    "behind another magic, a trailer": (builtin, b"K8SPROTO\x02" + secret()[4:] + b"\0crc"),
    "CR LF, and a trailer": (builtin, secret().replace(b"\n", b"\r\n") + b"\0crc"),
    "of another kind, behind a cut one": (builtin, CUT + config_map()),
    "CBOR below a built-in's key": (builtin, CUT + as_cbor()),
    "JSON behind a cut protobuf": (builtin, CUT + JSON_SECRET),
    "JSON, another state": (builtin, JSON_SECRET + b"\n" + JSON_SECRET),
    "JSON behind cut JSON": (builtin, JSON_SECRET[:-9] + JSON_SECRET),
    "JSON of another kind": (custom, b"\0" + JSON_SECRET),
    "JSON, zeroes behind": (custom, widget() + bytes(7)),
    "JSON without a uid, what is left of another": (custom, widget().replace(UID, b"") + b'}}"x"}'),
    "JSON and a form feed": (custom, widget() + b"\x0c"),
    "JSON that begins with its data, behind a cut one": (builtin, CUT + DATA_FIRST),
    "JSON that begins with its data, behind cut JSON": (custom, widget()[:-9] + DATA_FIRST),
    "JSON that begins with its data, inside of JSON": (custom, b'{"all":[{"a":' + DATA_FIRST + b"}]}\0"),
    "JSON behind a mark": (custom, b"\xef\xbb\xbf" + widget()),
    "protobuf, a custom resource's key": (custom, secret()),
    "two of CBOR": (custom, as_cbor() + as_cbor()),
    "CBOR, zeroes behind": (custom, as_cbor() + bytes(9)),
    "CBOR behind a header": (custom, b"\x01\x02" + as_cbor()),
    "CBOR behind cut CBOR": (custom, as_cbor()[:-9] + as_cbor()),
    "sealed behind zeroes": (builtin, bytes(8) + b"k8s:enc:aesgcm:v1:key1:whatever"),
    "sealed behind a cut one": (builtin, CUT + b"k8s:enc:kms:v2:prov:whatever"),
}


@pytest.mark.parametrize("what", WHOLE)
def test_a_whole_object_is_found(what: str) -> None:
    decode, data = WHOLE[what]
    assert found(data, decode)


NOT: dict[str, tuple[Callable[[bytes], DecodedObject], bytes]] = {
    "cut": (builtin, CUT),
    "cut, and what was last applied is whole": (builtin, secret("web" + APPLIED.decode())[:-30]),
    "JSON that is cut": (custom, widget()[:-3]),
    "JSON that is cut, and holds a template": (
        custom,
        json_object("example.com/v1", "Widget", "w", spec={"template": {"kind": "Pod", "apiVersion": "v1"}})[:-2],
    ),
    "JSON that is cut, and holds an owner": (
        custom,
        json_object(
            "example.com/v1", "Widget", "w",
            more_metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-1"}]},
        )[:-2],
    ),
    "JSON with a wrong type and a line feed": (
        builtin, b'{"kind":"Secret","apiVersion":"v1","metadata":{"labels":7}}\n',
    ),
    "JSON with a wrong type, and bytes behind": (
        builtin, b'{"kind":"Secret","apiVersion":"v1","metadata":{"labels":7}}\0\0',
    ),
    "JSON of no kind": (custom, b'{"metadata":{"name":"w"}}'),
    "a kind that nobody knows, and a line feed": (builtin, json_object("v1", "Sebret", "web") + b"\n"),
    "CBOR that breaks": (custom, as_cbor()[:-3]),
    "CBOR of no kind": (custom, b"\xd9\xd9\xf7\xa1\x61a\x01"),
    "no encoding": (custom, b"\x9d" * 80),
    "braces alone": (custom, b"{{{{"),
    "a magic alone": (builtin, b"\x00" + PROTOBUF_MAGIC),
    "noise that begins as a type": (builtin, b"\x01\x0a\x0c\x0a\x02v1\x12\x06Secret\x12" + b"\xff" * 11 + b"\x01"),
}  # fmt: skip


@pytest.mark.parametrize("what", NOT)
def test_what_is_only_damaged_holds_none(what: str) -> None:
    decode, data = NOT[what]
    assert not found(data, decode)


HOSTILE = {
    "magics": PROTOBUF_MAGIC * 300_000,
    "types": b"\x0a\x0c\x0a\x02v1\x12\x06Secret\x12" * 80_000,
    "tags": b"\xd9\xd9\xf7" * 400_000,
    "open objects": b'{"kind":' * 150_000,
    "open objects, not too deep": (b'{"kind":' * 600 + b"x,") * 250,
    "open lists": b'{"kind":' + b"[" * 1_000_000,
    "digits": b'{"kind":' + b"9" * 1_000_000,
    "broken objects": b'{"x' * 300_000,
    "a member and broken ones": b'{"a":{' * 200_000,
    "empty objects": b'{"kind":{}},' * 100_000,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_the_search_takes_a_time_that_is_bounded(what: str) -> None:
    started = time.process_time()
    holds_whole(HOSTILE[what], builtin_refuses, builtin_refuses)
    assert time.process_time() - started < 3


def builtin_refuses(_data: bytes) -> DecodedObject:
    raise DecodeError("refused")


def test_where_it_would_take_longer_there_may_be_one(monkeypatch: Patch) -> None:
    for data in (HOSTILE["magics"], HOSTILE["tags"], HOSTILE["open objects"]):
        assert holds_whole(data, builtin_refuses, builtin_refuses)
    for starts in (
        whole_inside._protobuf(HOSTILE["types"]),
        whole_inside._cbor(HOSTILE["tags"], builtin_refuses),
        whole_inside._json(HOSTILE["open objects"]),
    ):
        *_, last = starts  # nothing follows
        assert last is None
    nested = b'{"kind":{"kind":{"kind":{"kind":x'
    assert not holds_whole(nested, builtin_refuses, builtin_refuses)
    monkeypatch.setattr(whole_inside, "_MOST_PARSED", 1)
    assert holds_whole(nested, builtin_refuses, builtin_refuses)
    monkeypatch.undo()
    assert not holds_whole(b'{"x"' * 9, builtin_refuses, builtin_refuses)
    monkeypatch.setattr(whole_inside, "_MOST_BROKEN", 8)
    assert holds_whole(b'{"x"' * 9, builtin_refuses, builtin_refuses)


def test_an_encoding_that_an_envelope_names() -> None:
    assert not names_encoding(secret())
    assert names_encoding(secret()[:-4] + b"\x1a\x04zstd\x22\x00")
    assert names_encoding(secret()[:-2] + b"\x22\x10application/json")
    typed = PROTOBUF_MAGIC + b"\x0a\x0c\x0a\x02v1\x12\x06Secret"
    assert names_encoding(typed + b"\x1a\x04zstd\x22\x00")
    for further in (
        b"\x2a\x04blob",
        b"\x28\x07",
        b"\x29" + bytes(8),
        b"\x2d" + bytes(4),
        b"\xa2\x06\x04blob",
    ):
        for start in (typed, typed + b"\x1a\x04zstd\x22\x00", secret()):
            assert names_encoding(start + further)
            assert not names_encoding(start + further[:-1])
    for damaged in (
        typed,
        secret()[:-4],
        widget(),
        secret() + b"x",
        secret() + bytes(4),
        secret() + b"\x2b\x2c",
        secret()[:-4] + bytes(4),
    ):
        assert not names_encoding(damaged)
