from __future__ import annotations

import pytest

from etcdfix.encryption.kms.envelopes import (
    EncryptedObject,
    KMSEnvelopeInvalid,
    parse_encrypted_object,
    parse_v1_body,
    validate_encrypted_object,
)

MALFORMED = "proto: cannot parse invalid wire-format data"


def problem_of_parsing(body: bytes) -> str:
    with pytest.raises(KMSEnvelopeInvalid) as caught:
        parse_encrypted_object(body)
    return caught.value.message


def problem(**fields: object) -> tuple[str, bool]:
    encrypted = EncryptedObject(
        **{"encrypted_data": b"x", "key_id": "k", "encrypted_dek_source": b"d", **fields}  # type: ignore[arg-type]
    )
    try:
        validate_encrypted_object(encrypted)
    except KMSEnvelopeInvalid as invalid:
        return invalid.message, invalid.maybe_newer
    return "", False


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x01", b"\x01\x00" + bytes(255), b"\xff\xff"])
def test_v1_length_runs_past_the_end(body: bytes) -> None:
    with pytest.raises(KMSEnvelopeInvalid) as caught:
        parse_v1_body(body)
    assert caught.value.message == (
        "invalid data encountered by envelope transformer: failed to read uint16 length prefixed data"
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", EncryptedObject()),
        (b"\x0a\x01a\x0a\x01b", EncryptedObject(encrypted_data=b"b")),  # the last one wins
        (b"\x08\x05\x0a\x01a", EncryptedObject(encrypted_data=b"a")),  # field 1 as varint is unknown
        (b"\x2a\x01\x01", EncryptedObject()),  # field 5 as bytes is unknown
        (b"\x28\x01", EncryptedObject(encrypted_dek_source_type=1)),
        (b"\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", EncryptedObject(encrypted_dek_source_type=-1)),
        (b"\x28\x80\x80\x80\x80\x10", EncryptedObject()),  # bit 32 is dropped
        (b"\x30\x05\x32\x01x\x39" + bytes(8) + b"\x3d" + bytes(4), EncryptedObject()),
        (b"\x53\x54", EncryptedObject()),  # an empty group
        (b"\x53\x5b\x08\x01\x0a\x01x\x5c\x0d\x00\x00\x00\x00\x09" + bytes(8) + b"\x54", EncryptedObject()),
        (b"\x8a\x00\x01a", EncryptedObject(encrypted_data=b"a")),  # a tag longer than need be
        (b"\x22\x00", EncryptedObject(annotations=(("", b""),))),
        (b"\x22\x03\x0a\x01a\x22\x06\x0a\x01a\x12\x01v", EncryptedObject(annotations=(("a", b"v"),))),
        (b"\x22\x05\x08\x01\x12\x01v", EncryptedObject(annotations=(("", b"v"),))),
    ],
)
def test_v2_wire_format(body: bytes, expected: EncryptedObject) -> None:
    assert parse_encrypted_object(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a",  # no length
        b"\x0a\x05a",  # a length past the end
        b"\x80",  # a tag that breaks off
        b"\x00",  # field 0
        b"\x82\x80\x80\x80\x10",  # a field number past 2^29 - 1
        b"\x0e\x01",  # wire type 6
        b"\x0f\x01",  # wire type 7
        b"\x28" + b"\xff" * 10,  # a varint of 11 bytes
        b"\x28" + b"\xff" * 9 + b"\x02",  # a varint of 65 bits
        b"\x0c",  # a group that ends before it began
        b"\x53",  # a group without end
        b"\x53\x5c",  # a group that ends another
        b"\x53\x00",  # field 0 in a group
        b"\x53\x0e",  # wire type 6 in a group
        b"\x39" + bytes(7),
        b"\x3d" + bytes(3),
        b"\x22\x02\x0a\x05",  # within an annotation
        b"\x53" * 10_001 + b"\x54" * 10_001,
    ],
)
def test_v2_malformed(body: bytes) -> None:
    assert problem_of_parsing(body) == MALFORMED


@pytest.mark.parametrize("body", [b"\x12\x01\xff", b"\x22\x03\x0a\x01\xff", b"\x12\x02\xc3\x28"])
def test_v2_text_must_be_utf8(body: bytes) -> None:
    assert problem_of_parsing(body) == "string field contains invalid UTF-8"


DEK_SOURCE, KEY_ID, SIZE = (
    "failed to validate encrypted DEK source: ",
    "failed to validate key id: ",
    "which exceeds",
)


@pytest.mark.parametrize(
    ("fields", "message", "newer"),
    [
        ({}, "", False),
        ({"encrypted_dek_source_type": 1}, "", False),
        ({"encrypted_dek_source_type": 2}, "unknown encryptedDEKSourceType: 2", True),
        ({"encrypted_dek_source_type": 2, "encrypted_data": b""}, "unknown encryptedDEKSourceType: 2", False),
        ({"encrypted_dek_source_type": 2, "encrypted_dek_source": b""}, "unknown encryptedDEKSourceType: 2", False),
        ({"encrypted_dek_source_type": 2, "key_id": ""}, "unknown encryptedDEKSourceType: 2", False),
        ({"encrypted_dek_source_type": -1}, "unknown encryptedDEKSourceType: -1", False),
        ({"encrypted_data": b"", "encrypted_dek_source": b""}, "encrypted data is empty", False),
        ({"encrypted_dek_source": b"", "key_id": ""}, f"{DEK_SOURCE}encrypted DEK source is empty", False),
        ({"encrypted_dek_source": bytes(1024)}, "", False),
        (
            {"encrypted_dek_source": bytes(1025)},
            f"{DEK_SOURCE}encrypted DEK source is 1025 bytes, {SIZE} the max size of 1024", True,
        ),
        ({"key_id": "", "annotations": (("", b""),)}, f"{KEY_ID}keyID is empty", False),
        ({"key_id": "k" * 1024}, "", False),
        ({"key_id": "\u00e4" * 513}, f"{KEY_ID}keyID is 1026 bytes, {SIZE} the max size of 1024", True),
        ({"annotations": (("example.com", bytes(40_000)),)},
         f"failed to validate annotations: total size of annotations is 40011, {SIZE} the max size of 32768", True),
    ],
)  # fmt: skip
def test_v2_validation(fields: dict[str, object], message: str, newer: bool) -> None:
    assert problem(**fields) == (message, newer)


SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("", "annotations: Required value"),
        ("a", ("annotations: Invalid value: <1 bytes withheld>: should be a domain with at least two segments "
              "separated by dots")),
        ("A.b", f"annotations: Invalid value: <3 bytes withheld>: {SUBDOMAIN}"),
        ("a..b", f"annotations: Invalid value: <4 bytes withheld>: {SUBDOMAIN}"),
        ("a.b\n", f"annotations: Invalid value: <4 bytes withheld>: {SUBDOMAIN}"),
        ("a.b..", f"annotations: Invalid value: <4 bytes withheld>: {SUBDOMAIN}"),
        ("a" * 64 + ".b", "annotations: Invalid value: <64 bytes withheld>: must be no more than 63 bytes"),
        ("a." * 130 + "b", "annotations: Invalid value: <261 bytes withheld>: must be no more than 253 bytes"),
        (
            "A." * 130 + "b",
            f"annotations: Invalid value: <261 bytes withheld>: must be no more than 253 bytes,{SUBDOMAIN}",
        ),
    ],
)  # fmt: skip
def test_v2_bad_annotation_names(name: str, detail: str) -> None:
    assert problem(annotations=((name, b""),)) == (f"failed to validate annotations: {detail}", True)
