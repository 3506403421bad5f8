"""The error tree: unique codes, exit codes of the contract, facts as attributes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix import errors
from etcdfix.errors import EtcdfixError

# Own facts that a constructor asks for, beyond the message.
FACTS: dict[str, dict[str, object]] = {
    "ConversionFailed": {"group_version": "apps/v1", "kind": "Deployment"},
    "SnapshotTruncated": {"size": 1, "expected_size": 2},
    "PageCorrupt": {"page_id": 3, "file_offset": 12288},
    "RevisionCompacted": {"revision": 4, "compacted": 5, "current": 6},
    "RefusedByRule": {"rule": "readable"},
    "KMSRefused": {"status": "INVALID_ARGUMENT"},
    "ClusterMismatch": {"cluster_ids": {"a:2379": "1f"}},
    "LogsDisagree": {"entry_index": 9},
    "DecodeError": {"offset": 7, "field_path": "spec.x"},
    "KindUnknown": {"group_version": "v7", "kind": "Pod", "reason": "not-registered", "readable_until": ""},
    "AuthorizationRefused": {"reason": "denied", "detail": "no route to host"},
    "NotDurable": {"path": Path("/state")},
    "AuditError": {"path": Path("/state/audit.jsonl")},
    "AuditLogBroken": {"findings": ("record 2 is missing",)},
    "BackupUnreadable": {"path": Path("/state/a.json")},
    "TransactionRefused": {"endpoint": "a:2379", "sent": True},
    "TransactionUnanswered": {
        "endpoint": "a:2379",
        "status": "UNAVAILABLE",
        "read_revision": 8,
        "ended": True,
    },
    "TransactionAnomaly": {"answer": "what came"},
}


def descendants(base: type[EtcdfixError]) -> Iterator[type[EtcdfixError]]:
    """Yield the classes of errors.py itself: other packages refine them where they are raised."""
    yield base
    for child in base.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from descendants(child)


TREE = list(descendants(EtcdfixError))


def test_tree_in_the_docstring_names_every_error() -> None:
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    assert sorted(drawn) == sorted(e.__name__ for e in TREE if e is not EtcdfixError)


def test_codes_are_unique_and_kebab_case() -> None:
    codes = [e.code for e in TREE]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code) for code in codes)


@pytest.mark.parametrize("error", TREE, ids=lambda e: e.__name__)
def test_every_error_says_when_it_is_raised(error: type[EtcdfixError]) -> None:
    assert error is EtcdfixError or (error.__doc__ or "").startswith("Raised when")


@pytest.mark.parametrize("error", TREE, ids=lambda e: e.__name__)
def test_facts_are_attributes(error: type[EtcdfixError]) -> None:
    known = {name: value for base in error.__mro__ for name, value in FACTS.get(base.__name__, {}).items()}
    wanted = inspect.signature(error).parameters.keys() - {"message", "hint"}
    facts = {name: known[name] for name in wanted}
    problem = error("what happened", hint="etcdfix scan", **facts)
    assert str(problem) == problem.message == "what happened"
    assert problem.hint == "etcdfix scan"
    for name, value in facts.items():
        assert getattr(problem, name) == value


@pytest.mark.parametrize(
    ("base", "exit_code"),
    [
        (errors.ConfigurationError, 2),
        (errors.SourceError, 5),
        (errors.TransformError, 1),
        (errors.DecodeError, 1),
        (errors.RemediationRefused, 4),
        (errors.AuditError, 4),
        (errors.AuditLogUnreadable, 5),
        (errors.TransactionError, 3),
    ],
)
def test_exit_codes(base: type[EtcdfixError], exit_code: int) -> None:
    elsewhere = {errors.TransactionNotSent: 5, errors.TransactionRefused: 4}
    for error in descendants(base):
        assert error.exit_code == elsewhere.get(error, exit_code)


@pytest.mark.parametrize(
    ("messages", "joined"),
    [(["a"], "a"), (["a", "a"], "a"), (["a", "b"], "[a, b]"), (["a", "b", "a"], "[a, b]")],
)
def test_aggregate(messages: list[str], joined: str) -> None:
    assert errors.aggregate(messages) == joined
