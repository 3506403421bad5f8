from __future__ import annotations

import base64
import shlex
from typing import Any

import pytest

from etcdfix.report.model import ReportBaseline, ReportConfiguration, ReportSource, Tool
from etcdfix.report.plan import (
    DeletionPlan,
    LeftOut,
    PlanEntry,
    PlanGroup,
    PlanStep,
    decision_on,
    declaration,
)
from etcdfix.report.render.text import text_lines
from etcdfix.text.commands import RunOptions
from tests.support.plan_entries import entry

LOST = "aescbc/v1/lost"


def test_a_declaration_names_the_key_id_of_kms() -> None:
    assert declaration(LOST, "") == f"--declare-key-lost {LOST}"
    assert declaration("kms/v2/prov", "sha256:ab") == "--declare-key-lost kms/v2/prov/sha256:ab"
    assert shlex.split(declaration("aescbc/v1/a b;c", "")) == ["--declare-key-lost", "aescbc/v1/a b;c"]


GROUP = PlanGroup("decrypt-failure", "wrong-key", LOST, "secrets", "", 1, 0, pattern=True, advice="")
SOURCE = ReportSource(
    type="etcd", endpoints=["10.0.0.1:2379", "10.0.0.2:2379"], revision=99, single_revision=True, segments=[],
    cluster_id=None, kube_system_uid=None, sha256=None, etcd_version=None,
)  # fmt: skip


def plan(*entries: PlanEntry, **change: Any) -> DeletionPlan:
    settings: dict[str, Any] = {
        "tool": Tool("etcdfix", "1"),
        "generated_at": "2026-03-01T12:00:00Z",
        "source": SOURCE,
        "newest": True,
        "encryption_config": ReportConfiguration("enc.yaml", "sha256:11"),
        "etcd_prefix": "/registry",
        "kubernetes_version": None,
        "report": ReportBaseline("scan.json", "sha256:22", "2026-03-01T11:00:00Z"),
        "complete": True,
        "incomplete_reasons": [],
        "groups": [GROUP],
        "steps": [PlanStep("Do not restart the API servers", "Their caches.", "kubectl get")],
        "not_in_report": 0,
        "left_out": [],
        "entries": list(entries),
        "decisions": [],
    }  # fmt: skip
    return DeletionPlan(**(settings | change))


def text(shown: DeletionPlan, *, wide: bool = False) -> list[str]:
    return [*text_lines(shown.document(), RunOptions(), 100, wide=wide)]


def test_what_is_next_is_no_change() -> None:
    rest = PlanStep("Do not restart", "Caches.")
    snapshot = PlanStep("Take a snapshot", "Later.", "etcdctl snapshot save x")
    look = PlanStep("Scan again", "Nothing is proven.", "etcdfix scan --key a")
    shown = plan(entry(), steps=[rest, snapshot, look]).document().next
    assert shown is not None
    assert (shown.action, shown.command.line(RunOptions())) == ("Scan again", "etcdfix scan --key a")
    assert plan(entry(), steps=[rest, snapshot]).document().next is None


def test_the_first_screen_fits_and_counts_everything() -> None:
    groups = [
        PlanGroup(
            "decode-failure", f"cause-{n}", LOST, "secrets", "", 50, 0, pattern=True, advice="words " * 30
        )
        for n in range(10)
    ]
    shown = plan(*(entry(n) for n in range(1, 501)), groups=groups)
    lines = text(shown)
    assert len(lines) <= 24
    assert lines[0].startswith("500 broken objects to decide about, 0 of the report left out")
    assert any("6 more groups with 300 objects" in line for line in lines)
    assert any("494 more objects" in line for line in lines)


@pytest.mark.parametrize(("why", "state"), [("curable-by-configuration", "findings"), ("gone", "ok")])
def test_a_plan_of_nothing_leads_on_to_what_is_still_broken(why: str, state: str) -> None:
    key = b"/registry/secrets/shop/web/"
    left = LeftOut(key=key.decode(), key_base64=base64.b64encode(key).decode(), why=why, detail="")
    shown = plan(left_out=[left], steps=[], groups=[]).document()
    assert (shown.status.state, shown.stakes) == (state, [f"Left out: 1 {why}."])
    following = shown.next.command.line(RunOptions()) if shown.next is not None else None
    assert following == (f"etcdfix explain base64:{left.key_base64}" if state == "findings" else None)


@pytest.mark.parametrize(("cause", "decision"), [("json-damaged", "delete"), ("version-removed", "leave")])
def test_what_an_older_api_server_reads_is_not_proposed_for_deletion(cause: str, decision: str) -> None:
    found = decision_on(entry(cause=cause, outcome="decode-failure", needs=[]))
    assert (found.decision, "delete" in found.allowed) == (decision, True)
