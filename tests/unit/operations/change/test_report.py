"""What is published of a change: each field by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.operations.change.report import outcome_report
from etcdfix.remediation.audit.record import Link, Result, Verb
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.text.commands import RepeatedOptions

LOG = Path("/log/audit.jsonl")
HEAD = Link(3, bytes(32).hex())


@pytest.mark.parametrize(
    ("outcome", "fields"),
    [
        (ChangeOutcome(result=None, detail="", audit_log=LOG, head=HEAD), ("dry-run", True, None, str(HEAD))),
        (
            ChangeOutcome(result=Result.DELETED, detail="", revision=7, audit_log=LOG, head=HEAD),
            ("deleted", False, 7, str(HEAD)),
        ),
        (ChangeOutcome(result=Result.UNKNOWN, detail="", audit_log=LOG), ("unknown", False, None, None)),
    ],
)
def test_what_a_document_says(
    outcome: ChangeOutcome, fields: tuple[str, bool, int | None, str | None]
) -> None:
    told = outcome_report(Verb.DELETE, b"/a", Result.DELETED, outcome, RepeatedOptions(), exit_code=3)
    assert (told.result, told.dry_run, told.revision, told.audit_log_head) == fields
