"""What a change came to: how it is undone, what is open, and where the records are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.changing.outcome import outcome_report
from etcdfix.commands.planning.run import Ran, Run
from etcdfix.commands.planning.run_report import run_report
from etcdfix.model.errors import EndedEarly
from etcdfix.remediation.audit.record import Link, Result, Verb
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.intent import DONE
from etcdfix.remediation.run import Task
from etcdfix.report.change import ChangeReport
from etcdfix.report.plan import Decision
from etcdfix.report.render.text import text_lines
from etcdfix.text.commands import RunOptions
from tests.support.plan_entries import entry

KEY = b"/registry/secrets/shop/web\x1b[2J"
RUN = RunOptions(
    ("--endpoints", "a:1"), ("--etcd-prefix", "/kubernetes.io"), ("--encryption-config", "my file")
)
LOG = Path("/log/audit.jsonl")
SAME = "--endpoints a:1 --etcd-prefix /kubernetes.io --encryption-config 'my file'"


def told(verb: Verb, result: Result | None, *, recorded: bool = True, **fields: Any) -> ChangeReport:
    """Return the report of a change."""
    head = Link(2, "ab" * 32) if recorded else None
    outcome = ChangeOutcome(result=result, detail="seen", revision=9, audit_log=LOG, head=head, **fields)
    return outcome_report(verb, KEY, outcome, RUN, exit_code=0)


def commands(report: ChangeReport) -> dict[str, str]:
    return {one.what: one.command.line(RUN) for one in report.follow_ups}


@pytest.mark.parametrize("verb", [Verb.DELETE, Verb.UNDO, Verb.FIX])
def test_every_line_can_be_shown_and_the_first_screen_fits(verb: Verb) -> None:
    for result in (None, DONE[verb], Result.UNKNOWN, Result.ANOMALY):
        report = told(verb, result, backups=("/b/1.json", "/b/2.json"), warnings=("odd\x07",))
        lines = [*text_lines(report.document(), RUN, 100)]
        assert len(lines) <= 24
        assert all(line.isprintable() for line in lines)
        assert any("/b/2.json" in line for line in lines)
        assert any("2:abab" in line for line in lines)
        assert ("DRY RUN" in lines[0]) is (result is None)


def test_undo_repeats_what_the_command_needs() -> None:
    report = told(Verb.DELETE, Result.DELETED, backups=("/b/one two.json", "/c/x.json"))
    undo = f"etcdfix undo '/b/one two.json' {SAME} --audit-log /log/audit.jsonl --reason REASON"
    assert commands(report) == {"Undo": undo}
    assert report.document().next is None  # nobody is told to put a broken value back


def test_what_was_put_back_or_rewritten_is_undone_by_its_own_revision() -> None:
    for verb in (Verb.UNDO, Verb.FIX):
        found = commands(told(verb, DONE[verb], backups=("/b c/1.json", "/d/1.json")))
        assert found["Undo"].endswith(
            "--reason REASON --backup-dir '/b c' --backup-dir /d --expect-mod-revision 9"
        )
        assert found["Look again"].startswith("etcdfix scan --endpoints a:1")
        assert "Undo" not in commands(told(verb, DONE[verb]))
        assert "Undo" not in commands(told(verb, Result.UNKNOWN, backups=("/b/1.json",)))


def test_after_an_anomaly_both_values_can_be_put_back() -> None:
    found = commands(told(Verb.DELETE, Result.ANOMALY, backups=("/b/1.json", "/b/2.json")))
    assert found["Put back what was examined"].startswith("etcdfix undo /b/1.json")
    assert found["Put back what etcd gave back"].startswith("etcdfix undo /b/2.json")


@pytest.mark.parametrize("result", [Result.NOT_APPLIED, Result.REFUSED, None])
def test_what_was_not_done_needs_no_undo(result: Result | None) -> None:
    assert commands(told(Verb.DELETE, result, backups=("/b/1.json",))) == {}


def test_what_is_open_is_settled_first() -> None:
    report = told(Verb.DELETE, Result.UNKNOWN, unknown_cluster=True, recorded=False)
    (settle,) = commands(report).items()
    settling = f"etcdfix log settle {SAME} --accept unknown-cluster /log/audit.jsonl"
    assert settle == ("Settle it when etcd answers again", settling)
    assert (report.result, report.audit_log_head) == ("unknown", None)


@pytest.mark.parametrize("result", [Result.DELETED, None])
def test_an_early_end_changed_something_unless_it_was_a_dry_run(result: Result | None) -> None:
    outcome = ChangeOutcome(result=result, detail="", audit_log=LOG, head=Link(3, "ab"))
    task = Task(entry=entry(), decision=Decision.DELETE, key=KEY, declared="", protected="")
    ran = Ran(task=task, outcome=outcome)
    run = Run(plan_file=Path("p"), dry_run=result is None, objects=[ran])
    ended = run.ended(EndedEarly("ended by SIGTERM", 143, 5))
    assert (ended.exit_code, ended.bare_exit_code, ended.changed) == (143, 143, result is not None)
    assert len(run_report(run, None, 0).follow_ups) == (result is not None)


def test_an_early_end_before_the_first_object_has_no_result() -> None:
    ending = EndedEarly("ended by SIGTERM", 143, 5)
    before = Run(plan_file=Path("p"), dry_run=False)
    assert before.ended(ending) is ending
    assert not run_report(before, None, 0).follow_ups
