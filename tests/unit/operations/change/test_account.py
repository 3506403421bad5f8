"""What all runs over several objects say in their end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.errors import EndedEarly
from etcdfix.operations.change.account import Account
from etcdfix.remediation.audit.record import Link, Result
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.text.commands import RepeatedOptions


class One(msgspec.Struct):
    outcome: ChangeOutcome


def account(result: Result | None, **fields: Any) -> Account[One]:
    """Return what a run has told that dealt with one object."""
    outcome = ChangeOutcome(result=result, detail="", audit_log=Path("/log"), head=Link(3, "ab"), **fields)
    again = RepeatedOptions(source=("--endpoints", "e:2379"))
    return Account(dry_run=result is None, objects=[One(outcome)], again=again)


def test_what_is_open_is_settled_as_after_a_single_change() -> None:
    lines = list(account(Result.UNKNOWN, unknown_cluster=True).last_lines())
    assert lines == [
        "Audit log: /log, head 3:ab",
        "Settle it when etcd answers again: etcdfix audit reconcile --endpoints e:2379 --accept unknown-cluster /log",
        "Look again: etcdfix scan --endpoints e:2379",
    ]


@pytest.mark.parametrize("result", [Result.DELETED, None])
def test_an_early_end_changed_something_unless_it_was_a_dry_run(result: Result | None) -> None:
    ended = account(result).ended(EndedEarly("ended by SIGTERM", 143, 5))
    assert (ended.exit_code, ended.bare_exit_code, ended.changed) == (143, 143, result is not None)


def test_an_early_end_before_the_first_object_has_no_result() -> None:
    ending = EndedEarly("ended by SIGTERM", 143, 5)
    before = Account[One](dry_run=False)
    assert before.ended(ending) is ending
    assert list(before.last_lines()) == []
    assert before.common_fields(None, 5)["follow_ups"] == []
