"""What configurations do otherwise: which one writes what another cannot read, above all."""

from __future__ import annotations

from typing import Any

import pytest

from etcdfix.encryption.config import EncryptionConfiguration, parse_configuration
from etcdfix.encryption.config_diff import Difference, DifferenceKind, compare_configurations
from etcdfix.encryption.keyring import fingerprint
from etcdfix.model import KeyOfRule
from tests.support.objects import IDENTITY, KEY_1, KEY_2, configuration_of_rules, provider

KEY_3 = bytes(range(50, 82))
A, B = provider("aesgcm", a=KEY_1), provider("aesgcm", b=KEY_2)


def kms(endpoint: str = "unix:///run/kms.sock") -> dict[str, Any]:
    return {"kms": {"apiVersion": "v2", "name": "p", "endpoint": endpoint}}


def only(*providers: dict[str, Any], resource: str = "secrets") -> EncryptionConfiguration:
    return parse_configuration(configuration_of_rules(((resource,), providers)), path="f")


def differences(*files: EncryptionConfiguration) -> list[Difference]:
    return compare_configurations(files)


def kinds(*files: EncryptionConfiguration) -> list[DifferenceKind]:
    return [difference.kind for difference in differences(*files)]


def test_equal_files_do_not_differ_however_they_are_written() -> None:
    split = parse_configuration(
        configuration_of_rules((("secrets",), (A,)), (("secrets",), (IDENTITY,))), path="g"
    )
    assert differences(only(A, IDENTITY), split) == []
    other = parse_configuration(
        configuration_of_rules((("secrets",), (A, IDENTITY)), (("*.*",), (A, IDENTITY))), path="g"
    )
    assert kinds(only(A, IDENTITY, resource="*.*"), other) == []


def test_who_writes_what_another_cannot_read_is_dangerous_in_that_direction() -> None:
    (found,) = differences(only(A), only(B, A))
    assert found.kind is DifferenceKind.WRITTEN_NOT_READ
    assert (found.key, found.has, found.lacks) == (KeyOfRule("aesgcm/v1/b", fingerprint(KEY_2)), (1,), (0,))
    assert [one.has for one in differences(only(A), only(B))] == [(0,), (1,)]


def test_another_write_key_that_all_can_read_is_a_rotation() -> None:
    (found,) = differences(only(A, B), only(B, A), only(B, A))
    assert (found.kind, found.has, found.lacks) == (DifferenceKind.WRITE_KEY, (0,), (1, 2))


def test_a_wildcard_serves_what_another_file_names() -> None:
    assert kinds(only(A, resource="*."), only(A)) == [DifferenceKind.WRITTEN_NOT_READ] * 2


def test_one_name_with_other_bytes_is_said_once() -> None:
    first, second = (only(A, provider("aescbc", old=key)) for key in (KEY_1, KEY_2))
    (found,) = differences(first, second)
    assert found.kind is DifferenceKind.OTHER_BYTES
    assert found.others == ((KeyOfRule("aescbc/v1/old", fingerprint(KEY_2)), (1,)),)
    third = only(A, provider("aescbc", old=KEY_3))
    assert kinds(first, second, third) == [DifferenceKind.OTHER_BYTES] * 3


def test_of_a_write_key_it_is_said_what_stands_in_its_place() -> None:
    found = differences(only(provider("aescbc", k=KEY_1)), only(provider("aescbc", k=KEY_2)))
    assert [one.kind for one in found] == [DifferenceKind.WRITTEN_NOT_READ] * 2
    assert found[0].others == ((KeyOfRule("aescbc/v1/k", fingerprint(KEY_2)), (1,)),)


def test_a_renamed_key_is_recognised_under_the_same_provider_alone() -> None:
    assert kinds(only(A, provider("aescbc", x=KEY_2)), only(A, provider("aescbc", y=KEY_2))) == [
        DifferenceKind.RENAMED
    ]
    assert kinds(only(A, provider("aescbc", x=KEY_2)), only(A, B)) == [DifferenceKind.MISSING] * 2


@pytest.mark.parametrize(("missing", "transformer"), [(IDENTITY, "identity"), (kms(), "kms/v2/p")])
def test_what_a_file_lacks(missing: dict[str, Any], transformer: str) -> None:
    (found,) = differences(only(A, missing), only(A))
    assert found.kind is DifferenceKind.MISSING
    assert (found.key, found.has, found.lacks) == (KeyOfRule(transformer, ""), (0,), (1,))


def test_order_matters_little_and_that_of_identity_not_at_all() -> None:
    assert kinds(only(A, B, kms()), only(A, kms(), B)) == [DifferenceKind.ORDER]
    assert kinds(only(A, IDENTITY, B), only(A, B, IDENTITY)) == []


def test_another_endpoint_is_a_note() -> None:
    (found,) = differences(only(kms()), only(kms("unix:///other")), only(kms()))
    assert (found.kind, found.has, found.lacks) == (DifferenceKind.KMS_ENDPOINT, (0, 2), (1,))
