"""Whole decoder stacks against a 1.36 API server: hand-made cases, lost magics, and every sample as JSON."""

from __future__ import annotations

import functools
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from etcdfix.decoding.kubejson.codec import JSONDecoder
from etcdfix.decoding.recognise import PROTOBUF_MAGIC
from etcdfix.decoding.registry import Registry
from etcdfix.decoding.schema import load_schema
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.model.errors import DecodeError
from tests.support.golden import (
    DecoderCase,
    damaged_cases,
    golden_folder,
    hand_made_cases,
    needs_golden,
    sample_kind,
)

pytestmark = [pytest.mark.golden, needs_golden]

DECODER = Decoder(36)


def said(case: DecoderCase) -> tuple[str, str]:
    try:
        DECODER.builtin(case.value, case.group, case.kind)
    except DecodeError as error:
        return "ERR", error.message
    return "OK", ""


def test_hand_made_values_are_judged_as_the_api_server_does() -> None:
    cases = list(hand_made_cases())
    assert len(cases) == 87
    differing = [
        (case.name, said(case), case.verdict, case.message)
        for case in cases
        if said(case) != (case.verdict, case.message)
    ]
    assert differing == []


def test_values_that_lost_their_magic_are_judged_as_the_api_server_does() -> None:
    judged = 0
    for case in damaged_cases():
        if not case.value.startswith(PROTOBUF_MAGIC):
            judged += 1
            assert said(case) == (case.verdict, case.message), case.name
    assert judged == 107


@functools.cache
def json_samples(release: str) -> list[tuple[str, str, str, bytes]]:
    def read() -> Iterator[tuple[str, str, str, bytes]]:
        with tarfile.open(golden_folder("kubernetes-api") / f"{release}.tar.xz") as archive:
            for member in archive:
                path = Path(member.name)
                content = archive.extractfile(member)
                if path.suffix == ".json" and content is not None and "after_roundtrip" not in path.name:
                    data = content.read()
                    if b'"apiVersion"' in data:
                        yield (*sample_kind(path.stem), data)

    return list(read())


def stored_samples(release: str) -> Iterator[tuple[str, str, bytes]]:
    registry = Registry()
    for group, version, kind, data in json_samples(release):
        registered = registry.lookup(group, version, kind)
        if registered is not None and registered.stored and b'"metadata"' in data:
            yield group, kind, data


@pytest.mark.parametrize(("release", "count"), [("v1.34.0", 143), ("v1.36.0", 147)])
def test_every_sample_as_json_is_readable_both_ways(release: str, count: int) -> None:
    decoder = JSONDecoder(load_schema(), Registry())
    judged = 0
    for group, kind, data in stored_samples(release):
        judged += 1
        decoded = decoder._prove_healthy(data, group, kind)
        assert decoded is not None
        assert decoder.decode_strictly(data, group, kind) == decoded
        assert (decoded.name, decoded.uid) == (b"nameValue", b"uidValue")
        assert decoded.warnings == ()
        assert decoded.inconsistencies == ()
    assert judged == count


@pytest.mark.parametrize("release", ["v1.34.0", "v1.36.0"])
def test_every_sample_as_yaml_is_readable(release: str) -> None:
    decoder = Decoder()
    for group, kind, data in stored_samples(release):
        as_yaml = yaml.safe_dump(json.loads(data)).encode()
        decoded = decoder.builtin(as_yaml, group, kind)
        assert (decoded.encoding, decoded.name) == ("yaml", b"nameValue")
