"""What was done is taken from the audit log alone: nothing is passed over because somebody wrote it into the plan."""

from __future__ import annotations

import json

import pytest

from tests.support.plan_runs import DECLARED, Planned

pytestmark = pytest.mark.etcd


@pytest.mark.parametrize("outcome", ["deleted", "applied-or-gone", "not done", "\x1b[31m"])
@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_an_outcome_that_was_edited_in(planned: Planned, outcome: str, arguments: tuple[str, ...]) -> None:
    keys = planned.to_delete("a", "b")
    whole = planned.plan.read_bytes()
    document = planned.document()
    document["decisions"][0]["outcome"] = outcome
    planned.plan.write_text(json.dumps(document))
    with planned.nothing_changes():
        ran = planned.work(*DECLARED, *arguments)
    assert ran.code == 2, ran
    assert "is not a plan of etcdfix" in ran.err
    assert "\x1b" not in ran.err
    planned.plan.write_bytes(whole)
    assert planned.work(*DECLARED).code == 0
    assert planned.there(keys) == [False, False]
    planned.agree()


@pytest.mark.parametrize("gone", ["removed", "another"])
@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_an_audit_log_that_knows_nothing_of_the_runs(
    planned: Planned, gone: str, arguments: tuple[str, ...]
) -> None:
    """What is gone is met as a surprise, and the rest is left as it is."""
    keys = planned.furnish("a", "b")
    planned.make_plan(a="delete")
    assert planned.work(*DECLARED).code == 0
    planned.decide(b="delete")
    if gone == "removed":
        for path in planned.log.parent.iterdir():
            path.unlink()
    else:
        planned.log = planned.log.with_name("other.jsonl")
    with planned.nothing_changes():
        ran = planned.work(*DECLARED, *arguments)
    assert ran.code == 4, ran
    assert f"{keys[0].decode()} does not exist" in ran.err
    assert planned.there(keys) == [False, True]
