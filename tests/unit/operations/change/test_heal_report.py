"""What a run of heal tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etcdfix.apiserver.holders import Holder
from etcdfix.apiserver.memory import Memory, Remembered
from etcdfix.operations.change.heal import Healed
from etcdfix.operations.change.heal_look import LeftAlone
from etcdfix.operations.change.heal_report import HealAccount, heal_report
from etcdfix.remediation.audit.record import Link, Result
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.rules import Rule
from etcdfix.text.commands import RunOptions

AGAIN = RunOptions(source=("--endpoints", "e:2379"), reading=("--encryption-config", "a b"))
LOG = Path("/var/log/audit.jsonl")


def healed(result: Result | None = Result.HEALED, **fields: Any) -> Healed:
    """Return what became of an object whose name comes from a stranger."""
    outcome = ChangeOutcome(
        result=result, detail="why", revision=9, audit_log=LOG, head=Link(3, "ab"), **fields
    )
    return Healed(key=b"/registry/secrets/shop/a\x1b[31m", uid="u", outcome=outcome, server="https://p1")


def account(*objects: Healed, **fields: Any) -> HealAccount:
    """Return what a run has told."""
    return HealAccount(**{"dry_run": False, "objects": [*objects], "run": AGAIN, **fields})


@pytest.mark.parametrize(
    ("results", "to_heal", "says"),
    [
        ([Result.HEALED, Result.HEALED], 2, "Healed 2 of 2."),
        ([Result.HEALED, Result.UNKNOWN], 3, "Healed 1 of 3."),
        ([], 3, "Healed 0 of 3."),
    ],
)
def test_how_far_a_run_came(results: list[Result], to_heal: int, says: str) -> None:
    report = heal_report(account(*map(healed, results), to_heal=to_heal), None, 0)
    document = report.document()
    assert document.status.headline == says
    assert bool(document.stakes) == (says != "Healed 2 of 2.")
    settle = [one.command.line(AGAIN) for one in report.follow_ups if one.what.startswith("Settle it")]
    assert bool(settle) == (Result.UNKNOWN in results)
    assert all("--encryption-config 'a b'" in line for line in settle)


def test_the_document_names_everything() -> None:
    alone = LeftAlone(b"/registry/secrets/\xff", Rule.NOT_HEALABLE, "why", "do this")
    report = heal_report(account(healed(), healed(None), left_alone=[alone], to_heal=2), None, 0)
    first, second = report.objects
    assert (first.result, first.revision, second.result, second.revision) == ("healed", 9, "dry-run", None)
    assert report.left_alone[0].key_base64 is not None
    assert (report.audit_log, report.audit_log_head) == (str(LOG), "3:ab")


@pytest.mark.parametrize(
    ("word", "path", "may"),
    [
        (Memory.READ_ERROR, "/api", True),
        (Memory.CACHE_LOST, "/api", True),
        (Memory.READ_ERROR, "", False),
        (Memory.HELD, "/api", False),
        (Memory.OVERLOADED, "/api", False),
        (Memory.NOT_HELD, "/api", False),
        (Memory.DENIED, "/api", False),
    ],
)
def test_who_may_hold_an_object_that_nobody_gives(word: Memory, path: str, may: bool) -> None:
    holder = Holder(None, path, Remembered(word=word))  # type: ignore[arg-type] # it is not asked
    assert holder.may_hold is may
