"""The error tree: unique codes, exit codes of the contract."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from etcdfix.encryption.transformer import TransformFailed
from etcdfix.model import errors
from etcdfix.model.errors import EtcdfixError
from etcdfix.remediation.errors import (
    AuditError,
    AuditLogUnreadable,
    TransactionError,
    TransactionNotSent,
    TransactionRefused,
)


def descendants(base: type[EtcdfixError]) -> Iterator[type[EtcdfixError]]:
    yield base
    for child in base.__subclasses__():
        if child.__module__.endswith(".errors"):
            yield from descendants(child)


TREE = list(descendants(EtcdfixError))


@pytest.mark.parametrize(
    ("base", "exit_code"),
    [
        (errors.ConfigurationError, 2),
        (errors.SourceError, 5),
        (TransformFailed, 1),
        (errors.DecodeError, 1),
        (errors.RemediationRefused, 4),
        (AuditError, 4),
        (AuditLogUnreadable, 5),
        (TransactionError, 3),
    ],
)
def test_exit_codes(base: type[EtcdfixError], exit_code: int) -> None:
    elsewhere: dict[type[errors.EtcdfixError], int] = {
        TransactionNotSent: 5,
        TransactionRefused: 4,
    }
    for error in descendants(base):
        assert error.exit_code == elsewhere.get(error, exit_code)


@pytest.mark.parametrize(
    ("messages", "joined"),
    [(["a"], "a"), (["a", "a"], "a"), (["a", "b"], "[a, b]"), (["a", "b", "a"], "[a, b]")],
)
def test_aggregate(messages: list[str], joined: str) -> None:
    assert errors.aggregate(messages) == joined


def test_codes_are_unique_and_kebab_case() -> None:
    codes = [e.code for e in TREE]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code) for code in codes)
