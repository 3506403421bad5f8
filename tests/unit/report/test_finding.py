from __future__ import annotations

import base64

import msgspec
import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import (
    DecodedObject,
    Evidence,
    GroupVersionKind,
    Outcome,
)
from etcdfix.report.finding import finding_from, is_finding, status_cause
from etcdfix.report.model import ValueKind
from etcdfix.report.render.machine import Encoder
from etcdfix.text.commands import RunOptions
from tests.support.examinations import SECRET_BYTES, examination, readable


@pytest.mark.parametrize(
    ("lease", "shown"),
    [(0, None), (1, "1"), (0x694D_7788_99AA_BBCC, "694d778899aabbcc"), (-1, "ffffffffffffffff")],
)
def test_lease_is_hex_of_64_bits(lease: int, shown: str | None) -> None:
    assert finding_from(examination(lease=lease)).lease == shown


@pytest.mark.parametrize(
    "key",
    [
        b"/registry/secrets/shop/\xff",
        b"/registry/secrets/shop/a\x1b[2J",
        "/registry/secrets/shop/\u202e".encode(),
    ],
)
def test_odd_keys_carry_their_bytes(key: bytes) -> None:
    finding = finding_from(examination(key))
    assert finding.key_base64 is not None
    assert base64.b64decode(finding.key_base64) == key
    Encoder(RunOptions()).encode(finding)


def test_contents_never_reach_a_finding() -> None:
    encoded = Encoder(RunOptions()).encode(finding_from(examination()))
    assert b"never-to-be-shown" not in encoded
    assert base64.b64encode(SECRET_BYTES)[:40] not in encoded


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (examination(), True),
        (examination(outcome=Outcome.DECODE_FAILURE, cause=Cause.ZEROED_VALUE), True),
        (examination(outcome=Outcome.INCONSISTENT, cause=Cause.INVALID_UTF8), True),
        (examination(outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE), True),
        (readable(), False),
        (readable(stale=True), False),
        (readable(cause=Cause.OWNER_UNKNOWN), True),
        (readable(evidence=(Evidence("unknown fields", "ignored"),)), True),
        (readable(readable_until="1.35"), True),
        (readable("compact_rev_key", outcome=Outcome.NOT_AN_OBJECT), False),
    ],
)
def test_is_finding(found: Examination, expected: bool) -> None:
    assert is_finding(found) is expected


def test_words_of_the_server_for_a_decoder_error() -> None:
    """Those for a transformer error stand with the Status."""
    found = examination(
        "/registry/pods/ns/a", outcome=Outcome.DECODE_FAILURE, cause=Cause.PROTOBUF_DAMAGED, mod_revision=4711,
        upstream_message="unexpected EOF",
    )  # fmt: skip
    cause = status_cause(finding_from(found))
    assert cause is not None
    assert cause.message == (
        "StorageError: corrupt object, Code: 7, Key: /registry/pods/ns/a, ResourceVersion: 0, "
        "AdditionalErrorMsg: object not decodable revision=4711: unexpected EOF"
    )


def test_a_kind_of_any_length_is_shown_in_part() -> None:
    gvk = GroupVersionKind("example.com", "v1", "K" * 200_000)
    decoded = DecodedObject(gvk, b"web", b"shop", None, "json")
    found = msgspec.structs.replace(readable(cause=Cause.OWNER_UNKNOWN), decoded=decoded)
    shown = finding_from(found).group_version_kind
    assert shown == ValueKind("example.com", "v1", "K" * 253 + "<199747 bytes withheld>")
