from __future__ import annotations

import pytest

from etcdfix.decoding.errors import ConversionFailed, KindUnknown, ProtobufMalformed
from etcdfix.decoding.protobuf.codec import ProtobufDecoder
from etcdfix.decoding.protobuf.envelope import is_well_formed, parse_envelope
from etcdfix.decoding.recognise import PROTOBUF_MAGIC
from etcdfix.decoding.registry import Registry, SchemeName
from etcdfix.decoding.schema import load_schema
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject, Evidence, GroupVersionKind, Inconsistency
from etcdfix.testing.protobytes import block, entry, number, object_meta, tag, unknown
from tests.support.raising import raising
from tests.support.secret_message import secret

SCHEME = 'in scheme "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"'
SECRET_GVK = GroupVersionKind("", "v1", "Secret")


def make(minor: int | None = 36, scheme: SchemeName = SchemeName.KUBERNETES) -> ProtobufDecoder:
    return ProtobufDecoder(load_schema(minor), Registry(minor, scheme))


decoder = make()


def decode(data: bytes, group: str = "", kind: str = "Secret") -> DecodedObject:
    return decoder.decode(data, group, kind)


def refused(data: bytes, group: str = "", kind: str = "Secret") -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decoder.decode(data, group, kind)
    return caught.value


def stored_secret(*more: bytes, metadata: tuple[bytes, ...] = ()) -> bytes:
    return unknown(b"v1", b"Secret", secret(b"s1", *more, metadata=metadata))


@pytest.fixture
def no_strict_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProtobufDecoder, "_decode_strictly", raising(AssertionError("took the strict path")))


@pytest.mark.usefixtures("no_strict_way")
def test_a_healthy_value_takes_the_fast_path() -> None:
    for size in (1, 200, 20_000, 3_000_000):
        found = decode(stored_secret(entry(2, b"key", b"x" * size)))
        assert found == DecodedObject(
            gvk=SECRET_GVK, name=b"s1", namespace=b"default", uid=b"u-1", encoding="protobuf"
        )


@pytest.mark.parametrize(
    "data",
    [
        stored_secret()[:-2],  # undetectable upstream
        stored_secret()[:-4],
        stored_secret() + block(4, b"application/json"),
        b"k8s\x00" + block(2, secret()) + block(1, block(1, b"v1") + block(2, b"Secret")),
        b"k8s\x00" + block(1, block(2, b"Secret") + block(1, b"v1")) + block(2, secret()),
        unknown(b"v1", b"Secret", block(3, b"Opaque") + secret()),
        unknown(b"v1", b"Secret", secret() + number(5, 2)),
        unknown(b"v1", b"Secret", b"")[:-6] + block(2, secret()),
        unknown(b"v1", b"Secret", secret())[:19] + b"\x9e\x80\x80\x80\x00" + secret(),
    ],
)
def test_unusual_but_accepted_values_take_the_strict_way(data: bytes) -> None:
    found = decode(data)
    assert (found.gvk, found.name, found.uid) == (SECRET_GVK, b"s1", b"u-1")
    assert not found.inconsistencies


def test_a_value_without_kind_keeps_its_data() -> None:
    found = decode(unknown(b"v1", b"", secret()))
    assert found.gvk == GroupVersionKind("", "v1", "")
    assert found.name == b"s1"
    assert found.inconsistencies == (
        Inconsistency("kind-missing", "kind", "apiVersion v1, no kind; a key of Secret completes it"),
    )


def test_unknown_fields_are_noted() -> None:
    data = unknown(b"v1", b"Secret", secret(b"s1", number(99, 1), metadata=(number(98, 1),))) + number(9, 1)
    found = decode(data)
    assert found.warnings == (
        Evidence("unknown-fields", "3", "metadata: number 98; the object: number 99; the envelope: 1"),
    )
    assert not found.inconsistencies
    found = decode(stored_secret(number(99, 1)))
    assert found.warnings == (Evidence("unknown-fields", "1", "the object: number 99"),)


def test_faults_inside_are_named_by_the_strict_way() -> None:
    broken = block(17, block(7, block(1, b"{")))
    found = decode(stored_secret(metadata=(broken,)))
    assert [one.cause for one in found.inconsistencies] == ["raw-json-invalid"]
    assert [one.cause for one in decode(stored_secret(block(3, b"\xff"))).inconsistencies] == ["invalid-utf8"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty data"),
        (b"k8s\x00", "empty body"),
        (b"k8s\x00\x0a", "unexpected EOF"),
        (stored_secret()[:-1], "unexpected EOF"),
        (stored_secret()[:21], "unexpected EOF"),
        (stored_secret()[:20], "unexpected EOF"),
        (unknown(b"v1", b"Secret", b"x" * 300)[:21], "unexpected EOF"),
    ],
)
def test_damaged_envelopes(data: bytes, message: str) -> None:
    assert refused(data).message == message


def test_a_kind_that_is_not_registered() -> None:
    error = refused(unknown(b"example.com/v1", b"Se\x7fret\xff", secret()))
    assert isinstance(error, KindUnknown)
    assert error.message == (rf'no kind "Se\x7fret\xff" is registered for version "example.com/v1" {SCHEME}')
    assert (error.group_version, error.kind, error.reason) == (
        "example.com/v1",
        "Se\x7fret\udcff",
        "not-registered",
    )
    assert error.readable_until == ""
    assert refused(unknown(b"v2", b"Secret", b"")).message == (
        f'no kind "Secret" is registered for version "v2" {SCHEME}'
    )


def test_the_wrong_kind_for_the_key() -> None:
    error = refused(unknown(b"v1", b"ConfigMap", block(1, object_meta(b"c"))))
    assert isinstance(error, KindUnknown)
    assert error.message == "converting (v1.ConfigMap) to (core.Secret): unknown conversion"
    assert (error.group_version, error.kind, error.reason) == ("v1", "ConfigMap", "wrong-kind")
    assert refused(unknown(b"x.y/v3", b"Status", b"")).message == (
        "converting (v1.Status) to (core.Secret): unknown conversion"
    )


ANY_SECRET, INGRESS = ("", "Secret"), ("networking.k8s.io", "Ingress")


def not_implemented(go_type: str) -> str:
    return f"object *{go_type} does not implement"


def no_kind_of(group: str) -> str:
    return f'no kind "Foo" is registered for the internal version of group "{group}" {SCHEME}'


@pytest.mark.parametrize(
    ("api_version", "kind", "key", "message", "reason"),
    [
        (b"", b"", ANY_SECRET, not_implemented("core.Secret"), "missing"),
        (b"__internal", b"Secret", ANY_SECRET, not_implemented("core.Secret"), "not-registered"),
        (b"", b"ConfigMap", ANY_SECRET, not_implemented("core.ConfigMap"), "missing"),
        (b"apps/", b"Pod", ANY_SECRET, not_implemented("core.Pod"), "missing"),
        (b"apps/__internal", b"Foo", ANY_SECRET, no_kind_of("apps"), "not-registered"),
        (b"", b"Foo", INGRESS, no_kind_of("extensions"), "missing"),
        (b"", b"Status", ANY_SECRET, "converting (v1.Status) to (core.Secret)", "wrong-kind"),
    ],
)
def test_missing_type_information(
    api_version: bytes, kind: bytes, key: tuple[str, str], message: str, reason: str
) -> None:
    error = refused(unknown(api_version, kind, b""), *key)
    assert isinstance(error, KindUnknown)
    assert error.message.startswith(message)
    assert error.reason == reason


def deployment(annotation: bytes) -> bytes:
    annotations = entry(12, b"deprecated.deployment.rollback.to", annotation)
    return block(1, object_meta(b"d", b"default", b"u", annotations))


def test_the_rollback_annotation() -> None:
    for api_version in (b"apps/v1", b"apps/v1beta2"):
        error = refused(unknown(api_version, b"Deployment", deployment(b"abc")), "apps", "Deployment")
        assert isinstance(error, ConversionFailed)
        assert error.field_path == "metadata.annotations"
    for api_version, kind, value in (
        (b"apps/v1", "Deployment", b"3"),
        (b"apps/v1beta1", "Deployment", b"abc"),
        (b"apps/v1", "StatefulSet", b"abc"),
    ):
        assert decode(unknown(api_version, kind.encode(), deployment(value)), "apps", kind).name == b"d"


def crd(default: bytes) -> bytes:
    validation = block(1, block(8, block(1, default)))
    spec = block(2, block(7, block(1, b"v1") + block(4, validation)))
    return unknown(
        b"apiextensions.k8s.io/v1", b"CustomResourceDefinition", block(1, object_meta(b"c")) + spec
    )


def test_a_crd_stored_as_protobuf() -> None:
    crds = make(36, SchemeName.APIEXTENSIONS)
    key = ("apiextensions.k8s.io", "CustomResourceDefinition")
    for _ in range(2):
        found = crds.decode(crd(b'{"a":1}'), *key)
        assert (found.name, found.inconsistencies) == (b"c", ())
    with pytest.raises(ConversionFailed, match="invalid character 'x' looking for beginning of value"):
        crds.decode(crd(b"x"), *key)
    with pytest.raises(KindUnknown, match=r"registered for version .v1. in scheme .*apiserver.go:55"):
        crds.decode(stored_secret(), *key)


# The upstream encoder's Secret default/s1 with data a=b.
UPSTREAM_SECRET = bytes.fromhex(
    "6b387300 0a0c0a0276311206536563726574 1225"
    "0a190a02733112001a0764656661756c7422002a0032003800420012060a01611201621a00"
    "1a002200"
)


def envelope_refused(data: bytes) -> ProtobufMalformed:
    with pytest.raises(ProtobufMalformed) as caught:
        parse_envelope(data)
    return caught.value


def test_the_last_raw_wins_and_type_meta_merges() -> None:
    data = (
        PROTOBUF_MAGIC
        + block(1, block(1, b"v1"))
        + block(2, b"first")
        + block(1, block(2, b"Pod"))
        + block(2, b"last")
    )
    envelope = parse_envelope(data)
    assert (envelope.api_version, envelope.kind, envelope.raw) == (b"v1", b"Pod", b"last")
    assert data[envelope.raw_offset :] == b"last"


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (b"", "empty data", 0),
        (b"k8s\x00\x00\x00", "proto: Unknown: illegal tag 0 (wire type 0)", 4),
        (b"k8s\x00\x0a\x01\x0c", "proto: TypeMeta: wiretype end group for non-group", 6),
        (b"k8s\x00\x12\x05ab", "unexpected EOF", 4),
        (b"k8s\x00\x1b", "proto: wrong wireType = 3 for field ContentEncoding", 4),
    ],
)
def test_refusals(data: bytes, message: str, offset: int) -> None:
    error = envelope_refused(data)
    assert (error.message, error.offset) == (message, offset)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", True), (UPSTREAM_SECRET[20:-4], True), (UPSTREAM_SECRET[20:-5], False), (b"\x00\x00", False),
        (tag(1 << 29, 0) + b"\x00", False), (tag(1, 4), False), (tag(1, 3) + tag(1, 4), True),
        (b"\xff" * 12, False),
    ],
)  # fmt: skip
def test_well_formed(raw: bytes, expected: bool) -> None:
    assert is_well_formed(raw) is expected
