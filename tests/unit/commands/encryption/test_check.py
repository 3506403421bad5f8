"""What configurations do otherwise: which one writes what another cannot read, above all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.encryption.check import check_files
from etcdfix.encryption.keyring import fingerprint
from etcdfix.model.model import KeyOfRule
from etcdfix.report.configurations import CheckFinding
from tests.support.fixtures import Patch
from tests.support.objects import IDENTITY, KEY_1, KEY_2, configuration_of_rules, provider

A, B = provider("aesgcm", a=KEY_1), provider("aesgcm", b=KEY_2)
DIFFERENCES = {"written-not-read", "key-missing", "write-key-differs", "kms-endpoint-differs"}


def kms(endpoint: str = "unix:///run/kms.sock") -> dict[str, Any]:
    return {"kms": {"apiVersion": "v2", "name": "p", "endpoint": endpoint}}


def only(*providers: dict[str, Any], resource: str = "secrets") -> bytes:
    return configuration_of_rules(((resource,), providers))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)


def differences(*texts: bytes) -> list[CheckFinding]:
    paths = [Path(f"{number}.yaml") for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text)
    return [one for one in check_files(paths).findings if one.check in DIFFERENCES]


def kinds(*texts: bytes) -> list[str]:
    return [difference.check for difference in differences(*texts)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (only(A, IDENTITY), configuration_of_rules((("secrets",), (A,)), (("secrets",), (IDENTITY,)))),
        (only(A, B, kms()), only(A, kms(), B)),
        (only(A, IDENTITY, B), only(A, B, IDENTITY)),
    ],
)
def test_files_that_write_and_read_alike_do_not_differ(one: bytes, other: bytes) -> None:
    assert kinds(one, other) == []


def test_who_writes_what_another_cannot_read_is_dangerous_in_that_direction() -> None:
    (found,) = differences(only(A), only(B, A))
    key = KeyOfRule("aesgcm/v1/b", fingerprint(KEY_2))
    assert (found.check, found.level, found.key) == ("written-not-read", "error", key)
    assert (found.files, found.lacks) == ([1], [0])
    assert [one.files for one in differences(only(A), only(B))] == [[0], [1]]


def test_another_write_key_that_all_can_read_is_a_rotation() -> None:
    (found,) = differences(only(A, B), only(B, A), only(B, A))
    assert (found.check, found.files, found.lacks) == ("write-key-differs", [0], [1, 2])


def test_a_wildcard_serves_what_another_file_names() -> None:
    assert kinds(only(A, resource="*."), only(A)) == ["written-not-read"] * 2


@pytest.mark.parametrize(
    ("mine", "theirs", "instead"),
    [
        (provider("aescbc", old=KEY_1), provider("aescbc", old=KEY_2), "aescbc/v1/old"),
        (provider("aescbc", x=KEY_2), provider("aescbc", y=KEY_2), "aescbc/v1/y"),
        (provider("aescbc", x=KEY_2), B, ""),
    ],
    ids=["other-bytes", "other-name", "other-provider"],
)
def test_what_stands_in_the_place_of_a_key_is_told(
    mine: dict[str, Any], theirs: dict[str, Any], instead: str
) -> None:
    found, back = differences(only(A, mine), only(A, theirs))
    assert (found.check, back.check, found.level) == ("key-missing", "key-missing", "warning")
    assert (f"It has {instead}" in found.message) is ("instead" in found.message) is bool(instead)
    written, _ = differences(only(mine, A), only(theirs, A))
    assert (written.check, "instead" in written.message) == ("written-not-read", bool(instead))


@pytest.mark.parametrize(("missing", "transformer"), [(IDENTITY, "identity"), (kms(), "kms/v2/p")])
def test_what_a_file_lacks(missing: dict[str, Any], transformer: str) -> None:
    (found,) = differences(only(A, missing), only(A))
    assert (found.check, found.key) == ("key-missing", KeyOfRule(transformer, ""))
    assert (found.files, found.lacks) == ([0], [1])


def test_another_endpoint_is_a_note() -> None:
    (found,) = differences(only(kms()), only(kms("unix:///other")), only(kms()))
    assert (found.check, found.level) == ("kms-endpoint-differs", "advice")
    assert (found.files, found.lacks) == ([0, 2], [1])
