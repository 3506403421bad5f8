"""20,000 damaged samples and the hand-made cases: the verdict and the message of a 1.36 API server, each one."""

from __future__ import annotations

import base64
import csv
import gzip
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from etcdfix.decoding.kubeprotobuf import ProtobufDecoder
from etcdfix.decoding.registry import Registry
from etcdfix.decoding.schema import load_schema
from etcdfix.decoding.unknown import MAGIC
from etcdfix.errors import DecodeError
from tests.support.golden import api_samples, golden_folder, needs_golden, sample_kind

pytestmark = [pytest.mark.golden, needs_golden]


class Case(NamedTuple):
    name: str
    group: str
    kind: str
    value: bytes
    verdict: str
    message: str


def damaged(value: bytes, damage: str) -> bytes:
    """Apply one damage, in the notation of the golden data's README."""
    how, offset, *argument = damage.split(":")
    at = int(offset)
    if how == "t":
        return value[:at]
    if how == "x":
        return value[:at] + bytes([value[at] ^ int(argument[0], 16)]) + value[at + 1 :]
    if how == "r":
        new = bytes.fromhex(argument[0])
        return value[:at] + new + value[at + len(new) :]
    if how == "d":
        return value[:at] + value[at + int(argument[0]) :]
    assert how == "i"
    return value[:at] + bytes.fromhex(argument[0]) + value[at:]


def rows(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    return csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)


def damaged_cases() -> Iterator[Case]:
    path = golden_folder("kubernetes-api") / "damaged.tsv.gz"
    samples = api_samples("v1.36.0")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        for row in rows(lines):
            name = row["sample"].removesuffix(".pb")
            group, _, kind = sample_kind(name)
            value = damaged(samples[name], row["damage"])
            yield Case(f"{name} {row['damage']}", group, kind, value, row["verdict"], row["message"])


def hand_made_cases() -> Iterator[Case]:
    path = golden_folder("kubernetes-api") / "decoder-cases.tsv"
    with path.open(encoding="utf-8", newline="") as lines:
        for row in rows(lines):
            value = base64.b64decode(row["value_base64"])
            yield Case(row["case"], row["group"], row["kind"], value, row["verdict"], row["message"])


def said(decoder: ProtobufDecoder, case: Case) -> tuple[str, str]:
    try:
        decoder.decode(case.value, case.group, case.kind)
    except DecodeError as error:
        return "ERR", error.message
    return "OK", ""


@pytest.mark.parametrize(
    ("cases", "protobuf", "all_cases"),
    [(damaged_cases, 19_893, 20_000), (hand_made_cases, 68, 87)],
)
def test_protobuf_values_are_judged_as_the_api_server_does(cases, protobuf: int, all_cases: int) -> None:
    """Verdict and message of every value that still starts with the protobuf magic; no exceptions."""
    decoder = ProtobufDecoder(load_schema(36), Registry(36))
    count = judged = 0
    differing = []
    for case in cases():
        count += 1
        if not case.value.startswith(MAGIC):
            continue
        judged += 1
        ours = said(decoder, case)
        if ours != (case.verdict, case.message):
            differing.append((case.name, ours, case.verdict, case.message))
    assert differing == []
    assert (judged, count) == (protobuf, all_cases)


def test_offsets_lie_within_the_value_and_paths_are_given() -> None:
    decoder = ProtobufDecoder(load_schema(36), Registry(36))
    with_path = malformed = 0
    for case in damaged_cases():
        if case.verdict == "OK" or not case.message.startswith(("proto:", "unexpected EOF")):
            continue
        with pytest.raises(DecodeError) as caught:
            decoder.decode(case.value, case.group, case.kind)
        malformed += 1
        assert caught.value.offset is not None
        assert 0 <= caught.value.offset < len(case.value)
        with_path += bool(caught.value.field_path)
    assert malformed > 9000
    # without a path: damage of the envelope, cut values above all
    assert with_path > 4000
