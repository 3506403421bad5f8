"""Where the golden data lies: samples and verdicts of real API servers, too large for the repository."""

from __future__ import annotations

import base64
import csv
import functools
import gzip
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

VARIABLE = "ETCDFIX_GOLDEN_DIR"

needs_golden = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")


def golden_folder(name: str) -> Path:
    return Path(os.environ[VARIABLE]) / name


@functools.cache
def api_samples(release: str, suffix: str = ".pb") -> dict[str, bytes]:
    """The samples of one release (``v1.36.0``) by file name without suffix, sorted: ``.pb``, or ``.json``."""
    samples = {}
    with tarfile.open(golden_folder("kubernetes-api") / f"{release}.tar.xz") as archive:
        for member in archive:
            path = Path(member.name)
            content = archive.extractfile(member)
            if path.suffix == suffix and content is not None:
                samples[path.stem] = content.read()
    return dict(sorted(samples.items()))


def sample_kind(name: str) -> tuple[str, str, str]:
    """Group, version and kind that a sample's file name tells."""
    group, version, kind = name.removesuffix(".after_roundtrip").rsplit(".", 2)
    return ("" if group == "core" else group), version, kind


class DecoderCase(NamedTuple):
    """A plaintext under a key of ``group`` and ``kind``, and what a 1.36 API server said of it on a GET.

    ``verdict`` is ``OK`` (whatever is served, empty objects too) or ``ERR``.
    """

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


def damaged_cases() -> Iterator[DecoderCase]:
    path = golden_folder("kubernetes-api") / "damaged.tsv.gz"
    samples = api_samples("v1.36.0")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        for row in rows(lines):
            name = row["sample"].removesuffix(".pb")
            group, _, kind = sample_kind(name)
            value = damaged(samples[name], row["damage"])
            yield DecoderCase(f"{name} {row['damage']}", group, kind, value, row["verdict"], row["message"])


def hand_made_cases() -> Iterator[DecoderCase]:
    path = golden_folder("kubernetes-api") / "decoder-cases.tsv"
    with path.open(encoding="utf-8", newline="") as lines:
        for row in rows(lines):
            value = base64.b64decode(row["value_base64"])
            yield DecoderCase(row["case"], row["group"], row["kind"], value, row["verdict"], row["message"])
