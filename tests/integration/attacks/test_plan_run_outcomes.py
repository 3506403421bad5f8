"""What a plan says was done is held against the audit log: nothing is passed over because somebody wrote it there."""

from __future__ import annotations

import json

import pytest

from tests.support.plan_runs import DECLARED, Planned

pytestmark = pytest.mark.etcd


def refuses(planned: Planned, *arguments: str) -> None:
    with planned.nothing_changes():
        ran = planned.work(*DECLARED, *arguments)
    assert ran.code == 4, ran
    assert "has no record by which a run over this plan did that" in ran.err, ran
    assert "\x1b" not in ran.err


@pytest.mark.parametrize("outcome", ["deleted", "applied-or-gone", "restored", "not done", "\x1b[31m"])
@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_an_outcome_that_was_edited_in(planned: Planned, outcome: str, arguments: tuple[str, ...]) -> None:
    keys = planned.to_delete("a", "b")
    document = planned.document()
    document["decisions"][0]["outcome"] = outcome
    planned.plan.write_text(json.dumps(document))
    refuses(planned, *arguments)
    document["decisions"][0]["outcome"] = ""
    planned.plan.write_text(json.dumps(document))
    assert planned.work(*DECLARED).code == 0
    assert planned.there(keys) == [False, False]
    planned.agree()


def test_an_outcome_that_was_edited_into_a_plan_that_was_begun(planned: Planned) -> None:
    planned.furnish("a", "b")
    planned.make_plan(a="delete")
    assert planned.work(*DECLARED).code == 0
    document = planned.document()
    for wrong in ("restored", "applied-or-gone"):
        document["decisions"][0]["outcome"] = wrong
        planned.plan.write_text(json.dumps(document))
        refuses(planned)
    document["decisions"][0]["outcome"] = document["decisions"][1]["outcome"] = "deleted"
    planned.plan.write_text(json.dumps(document))
    refuses(planned)


@pytest.mark.parametrize("gone", ["removed", "another"])
def test_an_audit_log_that_knows_nothing_of_the_runs(planned: Planned, gone: str) -> None:
    keys = planned.furnish("a", "b")
    planned.make_plan(a="delete")
    assert planned.work(*DECLARED).code == 0
    planned.decide(b="delete")
    if gone == "removed":
        for path in planned.log.parent.iterdir():
            path.unlink()
    else:
        document = planned.document()
        document["audit_log"] = ""
        planned.plan.write_text(json.dumps(document))
        planned.log = planned.log.with_name("other.jsonl")
    refuses(planned)
    assert planned.there(keys) == [False, True]
