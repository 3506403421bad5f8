from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest

from etcdfix.report.formats.machine import write_rows_json
from etcdfix.report.formats.plan_table import write_plan_table
from etcdfix.report.model import ReportConfiguration, Tool
from etcdfix.report.plan_model import (
    DeletionPlan,
    LeftOut,
    PlanEntry,
    PlanGroup,
    PlanMaker,
    PlanReport,
    PlanSource,
    PlanStep,
    declaration,
)
from tests.support.plan_entries import entry

GROUP = PlanGroup(
    "decrypt-failure", "wrong-key", "aescbc/v1/lost", "secrets", "", 1, 0, pattern=True, advice=""
)
HOSTILE = "\x1b[2J\u202egone\n"


def plan(*entries: PlanEntry, **change: Any) -> DeletionPlan:
    settings: dict[str, Any] = {
        "api_version": "etcdfix/v1",
        "kind": "DeletionPlan",
        "tool": Tool("etcdfix", "1"),
        "generated_at": "2026-03-01T12:00:00Z",
        "source": PlanSource("etcd", None, ["10.0.0.1:2379", "10.0.0.2:2379"], 99, newest=True),
        "kube_system_uid": None,
        "encryption_config": ReportConfiguration("enc.yaml", "sha256:11"),
        "etcd_prefix": "/registry",
        "kubernetes_version": None,
        "report": PlanReport("scan.json", "sha256:22", "2026-03-01T11:00:00Z"),
        "complete": True,
        "incomplete_reasons": [],
        "groups": [GROUP],
        "recreated_by": [PlanMaker("by hand", "no", 1, "")],
        "steps": [PlanStep("Do not restart the API servers", "Their caches.", ["kubectl get"])],
        "not_in_report": 0,
        "left_out": [],
        "entries": list(entries),
        "decisions": [],
    }  # fmt: skip
    return DeletionPlan(**(settings | change))


def table(shown: DeletionPlan, max_rows: int = 100) -> str:
    out = io.BytesIO()
    write_plan_table(out, shown, max_rows, json_file="etcdfix plan -o json")
    return out.getvalue().decode()


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "undetermined", "cause": "kms-unreachable"},
        {"refused": "many values do not open"},
        {"needs": [declaration("aescbc/v1/lost", "")]},
    ],
)
def test_what_waits_is_never_deleted_next(change: dict[str, Any]) -> None:
    look = PlanStep("Scan again", "Nothing may be left.", ["etcdfix scan"])
    shown = table(plan(entry(**change), steps=[PlanStep("Do not restart", "Caches."), look]))
    assert "\nNext: Scan again\n  etcdfix scan\n" in shown
    first = PlanStep("Bring the KMS plugin back", "Nothing is proven.", ["etcdfix scan --key a"])
    shown = table(plan(entry(**change), steps=[first, look]))
    assert "\nNext: Bring the KMS plugin back\n  etcdfix scan --key a\n" in shown
    assert "Next: " not in table(plan(entry(**change), steps=[]))


def test_rows_are_capped_and_said() -> None:
    text = table(plan(*(entry(n) for n in range(1, 6))), max_rows=2)
    assert "shown: 2 of 5 objects; see all with -o json, or --max-rows 5\n" in text
    assert "  /registry/secrets/shop/web-2\n" in text
    assert "\n3        " not in text


def test_hostile_texts_are_made_safe_in_table_and_json() -> None:
    hostile = plan(
        entry(key=HOSTILE, what=HOSTILE, recreated_by=HOSTILE, recreate_basis=HOSTILE, command=HOSTILE),
        left_out=[LeftOut(key=HOSTILE, why="gone", detail=HOSTILE)],
        complete=False,
        incomplete_reasons=[HOSTILE],
        steps=[PlanStep(HOSTILE, HOSTILE, [HOSTILE])],
        groups=[PlanGroup(HOSTILE, HOSTILE, HOSTILE, HOSTILE, "", 1, 0, pattern=False, advice=HOSTILE)],
        recreated_by=[PlanMaker(HOSTILE, "no", 1, HOSTILE)],
        kube_system_uid=HOSTILE,
        report=PlanReport(HOSTILE, "", HOSTILE),
    )
    out = io.BytesIO()
    write_rows_json(hostile, out)
    for text in (table(hostile), out.getvalue().decode()):
        assert all(line.isprintable() for line in text.splitlines())
    assert msgspec.json.decode(out.getvalue(), type=DeletionPlan) == hostile
