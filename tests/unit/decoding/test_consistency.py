from __future__ import annotations

import pytest

from etcdfix.decoding import consistency
from etcdfix.decoding.consistency import (
    MAX_INCONSISTENCIES,
    FastCheck,
    FastChecks,
    broken_json,
    check_rollback,
    inconsistencies,
    parse_whole,
)
from etcdfix.decoding.errors import ConversionFailed
from etcdfix.decoding.protobuf.strict import StrictDecoder
from etcdfix.decoding.schema import load_schema
from etcdfix.model.model import GroupVersionKind, Inconsistency
from etcdfix.testing.protobytes import block, entry, number, object_meta
from tests.support.secret_message import secret

SCHEMA = load_schema(36)
SECRET = "k8s.io.api.core.v1.Secret"
POD = "k8s.io.api.core.v1.Pod"
DAEMON_SET = "k8s.io.api.apps.v1.DaemonSet"
CRD = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
SCHEMA_PROPS = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"


def managed_fields(raw: bytes) -> bytes:
    return block(17, block(1, b"kubectl") + block(7, block(1, raw)))


def found_in(message: str, data: bytes) -> list[Inconsistency]:
    return inconsistencies(SCHEMA, message, StrictDecoder(SCHEMA).decode(message, data).node)


def test_strings_that_are_not_utf8() -> None:
    labels = entry(11, b"a\xff", b"b") + entry(12, b"a", b"bc\xff")
    data = secret(b"s\xff", metadata=(labels, block(14, b"ok") + block(14, b"\xc3")))
    assert [(one.cause, one.field_path, one.detail) for one in found_in(SECRET, data)] == [
        ("invalid-utf8", "metadata.name", "byte 1 of 2 is not UTF-8"),
        ("invalid-utf8", "metadata.labels[0]", "key: byte 1 of 2 is not UTF-8"),
        ("invalid-utf8", "metadata.annotations[0]", "byte 2 of 3 is not UTF-8"),
        ("invalid-utf8", "metadata.finalizers[1]", "byte 0 of 1 is not UTF-8"),
    ]
    assert not any(one.breaks_responses for one in found_in(SECRET, data))


def test_raw_json() -> None:
    data = secret(metadata=(managed_fields(b"{}"), managed_fields(b'{"f:data"$}')))
    assert found_in(SECRET, data) == [
        Inconsistency(
            "raw-json-invalid",
            "metadata.managedFields[1].fieldsV1",
            "invalid character '$' after object key (byte 9 of 11)",
            breaks_responses=True,
        )
    ]


def test_int_or_string() -> None:
    def daemon_set(max_unavailable: bytes) -> bytes:
        return block(2, block(3, block(2, block(1, max_unavailable))))

    for healthy in (b"", number(1, 0), number(1, 1) + block(3, b"10%")):
        assert found_in(DAEMON_SET, daemon_set(healthy)) == []
    for wrong in (2, -1, 1 << 32):
        assert found_in(DAEMON_SET, daemon_set(number(1, wrong))) == [
            Inconsistency(
                "int-or-string-invalid",
                "spec.updateStrategy.rollingUpdate.maxUnavailable",
                f"type {wrong}",
                breaks_responses=True,
            )
        ]


def test_order_and_limit() -> None:
    many = secret(metadata=(b"".join(block(14, b"\xff") for _ in range(1000)),))
    found = found_in(SECRET, many)
    assert len(found) == MAX_INCONSISTENCIES
    assert found[-1].field_path == f"metadata.finalizers[{MAX_INCONSISTENCIES - 1}]"
    spread = secret(metadata=(b"".join(managed_fields(b"{") for _ in range(1000)),))
    assert len(found_in(SECRET, spread)) == MAX_INCONSISTENCIES


def test_deep_nesting_is_no_danger() -> None:
    data = block(2, b"\xff")
    for _ in range(3000):
        data = block(25, data)
    [fault] = found_in(SCHEMA_PROPS, data)
    assert fault.cause == "invalid-utf8"
    assert "…" in fault.field_path


DEPLOYMENT = GroupVersionKind("apps", "v1", "Deployment")


@pytest.mark.parametrize("value", [b"", b"7", b"+7", b"-7", b"0", b"9223372036854775807", b"0" * 5000 + b"1"])
def test_rollback_annotation_that_parses(value: bytes) -> None:
    check_rollback(DEPLOYMENT, value)


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (b"abc", "invalid syntax"),
        (b"7\n", "invalid syntax"),
        (b"9223372036854775808", "value out of range"),
        (b"9" * 5000, "value out of range"),
    ],
)
def test_rollback_annotation_that_does_not(value: bytes, cause: str) -> None:
    withheld = f"<{len(value)} bytes withheld>"
    with pytest.raises(ConversionFailed) as caught:
        check_rollback(DEPLOYMENT, value)
    assert caught.value.message == (
        f"failed to parse annotation[deprecated.deployment.rollback.to]={withheld} as int64: "
        f"strconv.ParseInt: parsing {withheld}: {cause}"
    )


def test_json_inside_a_crd() -> None:
    def crd(default: bytes) -> bytes:
        properties = block(8, default) if default else b""
        validation = block(1, properties)
        return block(2, block(7, block(1, b"v1") + block(4, validation)))

    strict = StrictDecoder(SCHEMA)
    for good in (b"", b"", block(1, b"null"), block(1, b'{"a":1}')):
        assert broken_json(SCHEMA, CRD, strict.decode(CRD, crd(good)).node) == ("", "")
    node = strict.decode(CRD, crd(block(1, b"{x}"))).node
    assert broken_json(SCHEMA, CRD, node) == (
        "invalid character 'x' looking for beginning of object key string",
        "spec.versions[0].schema.openAPIV3Schema.default",
    )


class Fast:
    """The fast check of one kind, with what it needs to be called."""

    def __init__(self, message: str) -> None:
        checks = FastChecks(SCHEMA)
        check = checks.make(message)
        assert check is not None
        self.check: FastCheck = check
        self.parse = checks.classes[message].FromString

    def __call__(self, raw: bytes) -> bool:
        message = parse_whole(self.parse, raw)
        return message is not None and self.check(message, message.metadata, raw)


def pod(spec: bytes, metadata: bytes = b"") -> bytes:
    return block(1, object_meta(b"p") + metadata) + block(2, spec)


def container(resources: bytes) -> bytes:
    return block(2, block(1, b"c") + block(8, resources))


def test_fast_check_of_quantities() -> None:
    fast = Fast(POD)

    def limits(quantity: bytes) -> bytes:
        return pod(container(entry(1, b"cpu", quantity)))

    assert fast(pod(b""))
    assert fast(limits(b""))
    assert fast(limits(block(1, b"100m")))
    assert fast(pod(container(entry(2, b"cpu", block(1, b"100m")))))  # the same string elsewhere
    assert not fast(limits(block(1, b"")))
    assert not fast(limits(block(1, b"1K")))
    assert not fast(pod(container(entry(2, b"cpu", block(1, b"x")))))
    # deep inside volumes, and in singular messages
    empty_dir = block(1, block(1, b"v") + block(2, block(2, block(2, block(1, b"1Gx")))))
    assert not fast(pod(empty_dir))


def probe(port: bytes, *, last: bytes = b"") -> bytes:
    http_get = block(1, b"/healthz") + block(2, port)
    return pod(block(2, block(1, b"c") + block(10, block(1, block(2, http_get)) + number(3, 1) + last)))


HTTP = number(1, 1) + number(2, 0) + block(3, b"http")


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (probe(HTTP), probe(number(1, 2) + HTTP[2:])),
        (probe(HTTP), probe(block(3, b"http") + number(1, 1))),
        (probe(HTTP), probe(HTTP[:-1] + b"\xff")),
        (probe(HTTP), probe(HTTP, last=number(99, 1))),
        (probe(HTTP), probe(HTTP, last=number(3, 1))),
        (probe(HTTP), probe(HTTP, last=b"\x7a\x05")),
    ],
)
def test_fast_check_of_what_pods_share(good: bytes, bad: bytes) -> None:
    fast = Fast(POD)
    for _ in range(2):
        assert fast(good)
        assert not fast(bad)
    # in a template
    daemon_set = Fast(DAEMON_SET)
    start = len(block(1, object_meta(b"p")))
    for raw, expected in ((good, True), (bad, False)):
        template = block(2, block(1, object_meta(b"t")) + raw[start:])
        assert daemon_set(block(1, object_meta(b"d")) + block(2, template)) is expected


def test_fast_check_of_raw_json() -> None:
    fast = Fast(SECRET)
    assert fast(secret())
    assert fast(secret(metadata=(block(17, b""),)))
    assert fast(secret(metadata=(managed_fields(b""),)))
    assert fast(secret(metadata=(managed_fields(b'{"a":"\xc3\xa4"}'),)))
    for raw in (b"{", b'{"a":"\xff"}', b"[" * 100_000):
        assert not fast(secret(metadata=(managed_fields(raw),)))
    # a template's own metadata is looked at as well
    daemon_set = Fast(DAEMON_SET)
    for raw, expected in ((b"{}", True), (b"{", False)):
        template = block(1, object_meta(b"t") + managed_fields(raw))
        assert daemon_set(block(1, object_meta(b"d")) + block(2, block(2, template))) is expected


@pytest.mark.parametrize(
    "message",
    [
        b"\x0a",  # no length
        b"\x0a\x03{}",
        b"\x0a\x01{}",
        b"\x0a\x82\x00{}",  # a length in more bytes than it takes
        b"\x12\x02{}",
        b"\x0a\x02{}\x0a\x02{}",
        b"\x0a\x02{}\x10\x01",
        b"\x0a" + b"\x80" * 10 + b"\x01",
    ],
)
def test_raw_json_that_the_server_writes_in_another_form_takes_the_strict_path(message: bytes) -> None:
    assert not Fast(SECRET)(secret(metadata=(block(17, block(1, b"kubectl") + block(7, message)),)))


def test_messages_that_contain_themselves_have_no_fast_check() -> None:
    assert FastChecks(SCHEMA).make(CRD) is None


def test_what_is_remembered_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consistency, "_MAX_REMEMBERED", 3)
    monkeypatch.setattr(consistency, "_MAX_REMEMBERED_SIZE", 10)
    monkeypatch.setattr(consistency, "_MAX_REMEMBERED_BYTES", 12)
    remembered = consistency._Remembered()
    for item in ("a", "b", "c", "long enough to be left out"):
        remembered.remember(item)
    assert remembered == {"a", "b", "c"}
    remembered.remember("d")
    assert remembered == {"d"}
    remembered.remember("e" * 10)
    assert remembered == {"d", "e" * 10}
    remembered.remember("ff")
    assert remembered == {"ff"}
    remembered.remember("g" * 10)
    assert remembered == {"ff", "g" * 10}


def test_fast_check_remembers_only_what_was_good() -> None:
    fast = Fast(POD)
    good, bad = (pod(container(entry(1, b"cpu", block(1, quantity)))) for quantity in (b"1", b"one"))
    for _ in range(2):
        assert fast(good)
        assert not fast(bad)
    assert len(fast.check._good) == 1
    other_name = block(1, object_meta(b"another")) + good[len(block(1, object_meta(b"p"))) :]
    assert fast(other_name)
    assert len(fast.check._good) == 1
