from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from etcdfix.decoding.errors import CBORMalformed, KindUnknown, ProtobufMalformed
from etcdfix.examine.verdicts.observation import DecodeFailure, DecodeFailureKind, PlaintextShape
from etcdfix.examine.verdicts.plaintext import (
    describe_failure,
    is_in_order,
    look_of_failure,
    look_of_object,
    shape_of,
    unwritable,
)
from etcdfix.examine.verdicts.whole_inside import PROTOBUF_MAGIC
from etcdfix.golang.errors import JSONMalformed, UnknownEncoding
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import (
    Confidence,
    DecodedObject,
    GroupResource,
    GroupVersionKind,
    Inconsistency,
    Look,
)

HEADER = PROTOBUF_MAGIC + b"\x0a\x0c\x0a\x02v1\x12\x06Secret"
# The end of an intact envelope: contentEncoding and contentType, both empty.
WHOLE = b"\x1a\x00\x22\x00"


def refuse(data: bytes) -> DecodedObject:
    raise UnknownEncoding("nothing recognises it")


def accept(data: bytes, *, empty: bool = False) -> DecodedObject:
    gvk = GroupVersionKind("", "v1", "Secret")
    return DecodedObject(gvk, b"web", b"shop", None, "protobuf", empty=empty)


def shape(data: bytes) -> PlaintextShape:
    return shape_of(data, refuse, heal=True)


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"", {"size": 0, "zeroed": False}),
        (b" \n\t ", {"size": 4, "zeroed": False}),
        (b"\x00" * 64, {"size": 64, "zeroed": True}),
        (b"\x00" * 63 + b"\x01", {"zeroed": False}),
        (b"k8s:enc:aescbc:v1:key1:xyz", {"starts_encrypted": True}),
        (b"x k8s:enc:", {"starts_encrypted": False}),
        (PROTOBUF_MAGIC + b"..." + WHOLE, {"magic_bits_off": 0, "ends_envelope": True}),
        (b"k8s\x01" + b"...", {"magic_bits_off": 1, "ends_envelope": False}),
        (b"\x94\xc7\x8c\xff" + b"...", {"magic_bits_off": 32}),
        (b' {"kind":"Pod"}\n', {"starts_json": True, "ends_envelope": False}),
        (b'{\r\n\t "kind":"Pod"}', {"starts_json": True}),
        (b"{ }", {"starts_json": True}),
        (b"{", {"starts_json": True}),
        (b"[1]", {"starts_json": False}),
        # A bit away, and what begins with a bracket all the same.
        (b'z"kind":"Pod"', {"starts_json": False}),
        (b'["kind"]', {"starts_json": False}),
        ('{"kind":"Pod"}'.encode("utf-16-le"), {"starts_json": False}),
        (b"{kind: Pod}", {"starts_json": False}),
        (b"{'kind': 'Pod'}", {"starts_json": False}),
        (b'{/* a Pod */"kind":"Pod"}', {"starts_json": False}),
        (b"{\x00\x00\x01\x1f\x8b", {"starts_json": False}),
        (b'\x0c{"kind":"Pod"}', {"starts_json": False}),
        (b"k8s", {"magic_bits_off": 8}),
        (b"k", {"magic_bits_off": 24}),
    ],
)
def test_shape(data: bytes, facts: dict[str, Any]) -> None:
    found = shape(data)
    assert {name: getattr(found, name) for name in facts} == facts


def decoder_of(*whole: bytes, empty: bool = False) -> tuple[Callable[[bytes], DecodedObject], list[bytes]]:
    asked: list[bytes] = []

    def decode(data: bytes) -> DecodedObject:
        asked.append(data)
        return accept(data, empty=empty) if data in whole else refuse(data)

    return decode, asked


def test_echoes_of_data_are_bounded() -> None:
    problem = KindUnknown("m" * 5000, group_version="v1", kind="K" * 200_000, reason="not-registered")
    failure = describe_failure(problem)
    assert failure.message == "m" * 4096 + "<904 bytes withheld>"
    assert failure.value_kind == "<200000 bytes withheld>"


def test_a_kind_that_reaches_into_the_object_is_withheld() -> None:
    kind = "Secret\x12\x06\n\x1a\npassword\x12\x05hunter2"
    message = f'no kind "{go_quoted(kind)}" is registered for version "v1" in scheme "k8s.io/scheme.go:30"'
    failure = describe_failure(KindUnknown(message, group_version=kind, kind=kind, reason="not-registered"))
    assert "hunter2" not in failure.message + failure.value_kind + failure.group_version
    size = len(go_quoted(kind))
    assert failure.message == message.replace(go_quoted(kind), f"<{size} bytes withheld>")
    assert failure.value_kind == failure.group_version == f"<{len(kind)} bytes withheld>"


def go_quoted(text: str) -> str:
    return text.encode("unicode_escape").decode()


# An envelope: typeMeta, 300 bytes that contain what an end looks like, and the end.
ENVELOPE = PROTOBUF_MAGIC + b"\x0a\x02hi" + b"\x12\xac\x02" + (WHOLE + b".") * 60 + WHOLE


@pytest.mark.parametrize("tail", [b"t", b"\x00" * 40, b"the tail of a longer object" + WHOLE, ENVELOPE])
def test_what_follows_the_object_is_left_out_before_asking_again(tail: bytes) -> None:
    decode, asked = decoder_of(ENVELOPE)
    assert shape_of(ENVELOPE + tail, decode, heal=True).whole_at == len(ENVELOPE)
    assert asked == [ENVELOPE]


BLOCK = ENVELOPE[:16]


@pytest.mark.parametrize(
    ("data", "heals"),
    [
        (b"\x91" * 16 + ENVELOPE[16:], True),
        # A flipped bit of the first block is flipped in the second as well; two are not.
        (b"\x91" * 16 + bytes([ENVELOPE[16] ^ 4]) + ENVELOPE[17:], True),
        (b"\x91" * 16 + bytes([ENVELOPE[16] ^ 5]) + ENVELOPE[17:], False),
        # It is there, so that something else is wrong.
        (ENVELOPE + b"tail", False),
        # An unknown header before a whole object, and instead of its first bytes.
        (b"\x91" * 16 + ENVELOPE, False),
        (b"\x91" * 8 + ENVELOPE[16:], False),
        (b"\x91" * 12 + ENVELOPE[-4:], False),
        (b"\x91" * 20, False),
        (b"", False),
    ],
)
def test_only_the_first_cipher_block_is_garbled(data: bytes, heals: bool) -> None:
    decode, _ = decoder_of(ENVELOPE)
    for blocks in ((BLOCK,), (b'{"kind":"Secret"', BLOCK)):
        found = shape_of(data, decode, refuse, heal=True, first_blocks=blocks)
        assert found.heals_first_block == heals
    assert not shape_of(data, decode, refuse, heal=False, first_blocks=(BLOCK,)).heals_first_block
    assert not shape_of(data, decode, refuse, heal=True).heals_first_block


def test_a_garbled_first_block_hides_no_whole_object() -> None:
    sealed = PROTOBUF_MAGIC + b"\x0a\x02hi\x12\x24" + b"." * 13 + b"k8s:enc:aescbc:v1:key1:" + WHOLE
    for start, whole, holds in (
        (b"\x91" * 16, ENVELOPE, False),
        (b"k8s\x01" + ENVELOPE[4:16], ENVELOPE, True),
        (b"\x91" * 16, sealed, True),
    ):
        decode, _ = decoder_of(whole)
        found = shape_of(start + whole[16:], decode, decode, heal=True, first_blocks=(whole[:16],))
        assert (found.heals_first_block, found.holds_whole) == (True, holds)


BELONGS = (b"/registry/secrets/shop/web",)


@pytest.mark.parametrize(
    ("data", "as_written"),
    [
        (HEADER + b"\x12\x04body" + WHOLE, True),
        (HEADER + b"\x12\x04body" + WHOLE[:-1], False),
        (b'{"kind":"Secret"}\n', True),
        (b'{"kind":"Secret"}', False),
        # Encodings without an end of their own.
        (b"kind: Secret", True),
        (b"\xd9\xd9\xf7\xa0", True),
    ],
)
def test_a_whole_plaintext_says_whether_its_end_is_there(data: bytes, *, as_written: bool) -> None:
    look = look_of_object(data, accept(data), BELONGS)
    assert look == Look(True, False, not as_written, as_written, "", BELONGS)


def is_whole(_: bytes) -> bool:
    return True


def is_broken(_: bytes) -> bool:
    return False


def failure(kind: DecodeFailureKind, message: str = "as the decoder says it") -> DecodeFailure:
    return DecodeFailure(kind, message)


@pytest.mark.parametrize("kind", list(DecodeFailureKind))
def test_only_an_encoding_that_breaks_is_damage(kind: DecodeFailureKind) -> None:
    """A newer release, or a version that left its definition, must not look like damage."""
    look = look_of_failure(b"noise", failure(kind), refuse, is_whole, BELONGS)
    broken = {"protobuf", "json", "cbor", "missing"}
    assert look.breaks == (kind in broken)
    assert look.maybe_newer == (kind == "unknown-encoding")
    assert not look.whole
    assert (look.message, look.belongs) == ("as the decoder says it", BELONGS)


@pytest.mark.parametrize(
    ("data", "kind", "message", "early"),
    [
        (PROTOBUF_MAGIC + b"\x0a\x09body", DecodeFailureKind.PROTOBUF, "unexpected EOF", True),
        (
            PROTOBUF_MAGIC + b"\x0a\x00\x12\x04body\x1a\x00\x22", DecodeFailureKind.PROTOBUF, "illegal tag",
            True,
        ),
        (PROTOBUF_MAGIC + b"\x0a", DecodeFailureKind.PROTOBUF, "unexpected EOF", True),
        (PROTOBUF_MAGIC, DecodeFailureKind.PROTOBUF, "empty body", True),
        (b'{"kind":', DecodeFailureKind.JSON, "json parse error: unexpected end of JSON input", True),
        # A damaged length runs past an end that is there.
        (PROTOBUF_MAGIC + b"body" + WHOLE, DecodeFailureKind.PROTOBUF, "unexpected EOF", False),
        (
            PROTOBUF_MAGIC + b"\x0a\x00\x12\x84\x08body" + WHOLE, DecodeFailureKind.PROTOBUF,
            "unexpected EOF", False,
        ),
        # A quote that is gone, and padding of AES-CBC that is none any more.
        (b'{"kind":"S"}\n\x04\x04\x05\x04', DecodeFailureKind.JSON, "invalid character '\\x04'", False),
        # Everything is there, and one thing more.
        (
            PROTOBUF_MAGIC + b"\x0a\x00\x12\x01b" + WHOLE + b"m", DecodeFailureKind.PROTOBUF,
            "unexpected EOF", False,
        ),
        (PROTOBUF_MAGIC + b"body", DecodeFailureKind.PROTOBUF, "unexpected EOF", False),
        (b'{"kind":\n', DecodeFailureKind.JSON, "json parse error: unexpected end of JSON input", False),
        (PROTOBUF_MAGIC + b"body", DecodeFailureKind.PROTOBUF, "illegal wireType 7", False),
        (PROTOBUF_MAGIC + b"\x0a\x09body", DecodeFailureKind.CONVERSION, "unexpected EOF", False),
    ],
)  # fmt: skip
def test_what_ends_too_early(data: bytes, kind: DecodeFailureKind, message: str, *, early: bool) -> None:
    assert look_of_failure(data, failure(kind, message), refuse, is_whole, ()).ends_early == early


@pytest.mark.parametrize("kind", ["not-registered", "version-removed", "wrong-kind", "conversion"])
def test_what_breaks_behind_a_kind_that_is_not_known(kind: str) -> None:
    unknown = failure(DecodeFailureKind(kind))
    assert look_of_failure(b"noise", unknown, refuse, is_broken, ()).breaks
    assert not look_of_failure(b"noise", unknown, refuse, is_whole, ()).breaks


@pytest.mark.parametrize(
    ("data", "breaks", "newer"),
    [
        (b"apiVersion: v1\nkind: Secret", True, False),
        (b"apiVersi\xffn: v1\nkind: Sec", True, False),
        (b"apiVersion: v1" + b"\x00" * 50, False, True),
        (b"apiVersion", False, True),
        # Sixteen bytes of text are enough, and seven of eight.
        (b"apiVersion: v1.2", True, False),
        (b"apiVersion: v1.", False, True),
        (b"apiVersion: v1\x00\x00", True, False),
        (b"apiVersion: v\x00\x00\x00", False, True),
        # Nothing is wrong with the magic; or eight bits of it are, or nine.
        (b"k8s\x00" + b"\xee" * 20, False, True),
        (b"k8s\xff" + b"\xee" * 20, True, True),
        (b"k8r\xff" + b"\xee" * 20, False, True),
        # The magic was damaged, and more with it; or it begins an encoding that is newer.
        (b"k9s\x00" + b"\xee" * 20, True, True),
        (b"\xee" * 24, False, True),
    ],
)
def test_text_that_no_serializer_recognises_was_to_be_json_or_yaml(
    data: bytes, *, breaks: bool, newer: bool
) -> None:
    unknown = failure(DecodeFailureKind.UNKNOWN_ENCODING)
    look = look_of_failure(data, unknown, refuse, is_broken, ())
    assert (look.breaks, look.maybe_newer) == (breaks, newer)
    assert look_of_failure(data, unknown, refuse, is_whole, ()).breaks == (breaks and not newer)


def test_bytes_that_are_not_text_can_be_written_in_a_report() -> None:
    """CBOR keeps them as lone surrogates, which no encoder takes."""
    problem = KindUnknown("kind \udcaf", group_version="v\udcb1", kind="K", reason="not-registered")
    found = describe_failure(problem)
    assert (found.message, found.group_version, found.value_kind) == (r"kind \xaf", r"v\xb1", "K")
    assert describe_failure(CBORMalformed("at \udcaf", field_path="a\udcb1")).field_path == r"a\xb1"


@pytest.mark.parametrize(
    "data",
    [b"K8s\x00body" + WHOLE, b"a\r\nb", PROTOBUF_MAGIC + b"\x0a\x00\x12\x00\x1a\x00\x22\x00and more"],
    ids=["magic", "line feeds", "bytes after the end"],
)
def test_what_heals_is_damaged(data: bytes) -> None:
    unknown = failure(DecodeFailureKind.UNKNOWN_ENCODING)
    assert not look_of_failure(data, unknown, refuse, is_whole, ()).breaks
    healed = look_of_failure(data, unknown, accept, is_whole, ())
    assert (healed.breaks, healed.maybe_newer) == (True, False)


def states(group: str, version: str, kind: str) -> Callable[[bytes], DecodedObject]:
    def parse(data: bytes) -> DecodedObject:
        return DecodedObject(GroupVersionKind(group, version, kind), b"web", b"shop", None, "protobuf")

    return parse


@pytest.mark.parametrize(
    ("group", "version", "kind", "in_order"),
    [
        ("", "v1", "Secret", True),
        # A newer release may have other versions and kinds, however near their names are.
        ("", "v3", "Secret", True),
        ("apps", "v2alpha1", "Deployment", True),
        ("", "v1", "Secretary", True),
        ("", "v1", "Pod", True),
        ("example.com", "2024-01", "Widget", False),
        ("example.com", "beta", "Widget", True),
        # No API can have these.
        ("", "beta", "Secret", False),
        ("", "w1", "Secret", False),
        ("", "v1\x00", "Secret", False),
        ("", "", "Secret", False),
        ("", "v1", "Sec ret", False),
        ("", "v1", "", False),
        ("a..b", "v1", "Widget", False),
        # One bit off from what is kept here, eight, and nine.
        ("", "v1", "Sebret", False),
        ("", "v1", "SaaMet", False),
        ("", "v1", "Sadmet", True),
        ("", "v1", "Policy", True),
        ("apqs", "v1", "Deployment", True),
    ],
)
def test_what_may_be_of_a_newer_release_is_in_order(
    group: str, version: str, kind: str, *, in_order: bool
) -> None:
    assert is_in_order(b"x", states(group, version, kind), "", "Secret") is in_order


@pytest.mark.parametrize(
    ("problem", "in_order"),
    [
        (ProtobufMalformed("unexpected EOF"), False),
        (JSONMalformed("invalid character"), False),
        (CBORMalformed("unexpected EOF"), False),
        (UnknownEncoding("nothing recognises it"), True),
        (KindUnknown("no kind", group_version="v9", kind="", reason="missing"), False),
    ],
)
def test_an_encoding_that_breaks_is_not_in_order(problem: DecodeError, *, in_order: bool) -> None:
    def parse(data: bytes) -> DecodedObject:
        raise problem

    assert is_in_order(b"x", parse, "", "Secret") is in_order


SECRET_KIND = GroupVersionKind("", "v1", "Secret")
SECRETS = GroupResource("", "secrets")
ROLES = GroupResource("rbac.authorization.k8s.io", "clusterroles")
EVENTS = GroupResource("", "events")
ADDRESSES = GroupResource("networking.k8s.io", "ipaddresses")
DEPLOYMENTS = GroupResource("apps", "deployments")
WIDGETS = GroupResource("example.com", "widgets")
CERTAIN, LIKELY = Confidence.CERTAIN, Confidence.LIKELY


def found(
    name: bytes | None = b"web",
    namespace: bytes | None = b"shop",
    gvk: GroupVersionKind = SECRET_KIND,
    *causes: str,
) -> DecodedObject:
    wrong = tuple(Inconsistency(cause, "somewhere", "odd") for cause in causes)
    return DecodedObject(gvk, name, namespace, b"u-1", "protobuf", inconsistencies=wrong)


@pytest.mark.parametrize(
    ("name", "resource", "custom", "confidence"),
    [
        (b"web", SECRETS, False, None),
        (None, SECRETS, False, None),
        (b"web-0.example.com", SECRETS, False, None),
        (b"Web", SECRETS, False, CERTAIN),
        (b"w:b", SECRETS, False, CERTAIN),
        (b"w\nb", DEPLOYMENTS, False, CERTAIN),
        (b"W", WIDGETS, True, CERTAIN),
        (b"w\xc3\xa9b", SECRETS, False, CERTAIN),
        # Whose, nobody knows.
        (b"W", WIDGETS, False, None),
        # These may hold whatever a path may.
        (b"system:node-proxier", ROLES, False, None),
        ("rôle d'hôte".encode(), ROLES, False, None),
        (b"a\nb", ROLES, False, None),
        (b"a/b", ROLES, False, CERTAIN),
        (b"a%b", ROLES, False, CERTAIN),
        (b"r\xf4le", ROLES, False, CERTAIN),
        (b"2001:db8::1", ADDRESSES, False, None),
        (b"Web.17a", EVENTS, False, None),
    ],
)
def test_names(
    name: bytes | None, resource: GroupResource, custom: bool, confidence: Confidence | None
) -> None:
    assert unwritable(found(name), resource, custom=custom) is confidence


@pytest.mark.parametrize("resource", [SECRETS, ROLES])
def test_namespaces_are_labels_everywhere(resource: GroupResource) -> None:
    assert unwritable(found(namespace=None), resource, custom=False) is None
    for namespace in (b"Shop", b"sh.op", b"sh_op", b"sh\xffop"):
        assert unwritable(found(namespace=namespace), resource, custom=False) is CERTAIN


@pytest.mark.parametrize(
    ("causes", "confidence"),
    [
        (("raw-json-invalid",), CERTAIN), (("invalid-utf8", "raw-json-invalid"), CERTAIN),
        (("invalid-utf8",), LIKELY), (("int-or-string-invalid", "kind-missing"), None),
    ],
)  # fmt: skip
def test_contents(causes: tuple[str, ...], confidence: Confidence | None) -> None:
    odd = found(b"web", b"shop", SECRET_KIND, *causes)
    assert unwritable(odd, SECRETS, custom=False) is confidence
