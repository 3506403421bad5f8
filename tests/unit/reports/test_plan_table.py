from __future__ import annotations

import io
import json
from typing import Any

import msgspec

from etcdfix.reports.model import ReportConfiguration, Tool
from etcdfix.reports.plan_json import write_plan_json
from etcdfix.reports.plan_model import (
    DeletionPlan,
    LeftOut,
    PlanEntry,
    PlanGroup,
    PlanRecreator,
    PlanReport,
    PlanSource,
    PlanStep,
)
from etcdfix.reports.plan_table import write_plan_table

HOSTILE = "\x1b[2J\u202egone\n"


def entry(order: int = 1, **change: Any) -> PlanEntry:
    settings: dict[str, Any] = {
        "order": order,
        "key": f"/registry/secrets/shop/web-{order}",
        "group": "",
        "resource": "secrets",
        "namespace": "shop",
        "name": f"web-{order}",
        "mod_revision": 7,
        "value_sha256": "sha256:00",
        "outcome": "decrypt-failure",
        "cause": "key-name-missing",
        "transformer": "aescbc/v1/lost",
        "kms_key_id_sha256": "",
        "what": "Secret (type not known)",
        "users": 0,
        "users_stopped": 0,
        "cascade": 0,
        "recreated_by": "by hand",
        "recreate_confidence": None,
        "comes_back": "no",
        "recreate_basis": "",
        "recreate_how": "",
        "readable_revision": 0,
        "floor": "",
        "risk": "low",
        "reasons": [],
        "opened_before": 0,
        "opened_before_same_key": 0,
        "command": f"etcdfix delete /registry/secrets/shop/web-{order}",
    }
    return PlanEntry(**(settings | change))


def plan(*entries: PlanEntry, **change: Any) -> DeletionPlan:
    settings: dict[str, Any] = {
        "api_version": "etcdfix/v1alpha1",
        "kind": "DeletionPlan",
        "tool": Tool("etcdfix", "1"),
        "generated_at": "2026-03-01T12:00:00Z",
        "source": PlanSource("etcd", None, ["10.0.0.1:2379", "10.0.0.2:2379"], 99, newest=True, complete=True),
        "kube_system_uid": None,
        "encryption_config": ReportConfiguration("enc.yaml", "sha256:11"),
        "etcd_prefix": "/registry",
        "kubernetes_version": None,
        "report": PlanReport("scan.json", "sha256:22", "2026-03-01T11:00:00Z"),
        "complete": True,
        "problems": [],
        "groups": [PlanGroup("decrypt-failure", "wrong-key", "aescbc/v1/lost", "", 1, 0, pattern=True, advice="")],
        "recreators": [PlanRecreator("by hand", "no", 1, "")],
        "steps": [PlanStep("Do not restart the API servers", "Their caches.", ["kubectl get"])],
        "proofs": [],
        "not_in_report": 0,
        "left_out": [],
        "entries": list(entries),
    }  # fmt: skip
    return DeletionPlan(**(settings | change))


def table(shown: DeletionPlan, max_rows: int = 100) -> str:
    out = io.BytesIO()
    write_plan_table(out, shown, max_rows, json_file="etcdfix plan -o json")
    return out.getvalue().decode()


def test_the_head_says_where_when_and_of_what() -> None:
    lines = table(plan(entry(), not_in_report=3)).splitlines()
    assert lines[0] == "etcdfix 1 · plan from scan.json (scan of 2026-03-01T11:00:00Z)"
    assert lines[1] == "  etcd 10.0.0.1:2379, 10.0.0.2:2379 · revision 99 · 2026-03-01T12:00:00Z"
    assert lines[2] == "  kube-system uid unknown"
    assert lines[3] == "  encryption configuration enc.yaml (sha256:11)"
    assert lines[4] == "  1 broken object to decide about, 0 of the report left out"
    assert lines[5] == "  not in the report: 3 broken values; scan again to see them"


def test_few_objects_show_all_commands_and_many_the_first() -> None:
    few = table(plan(*(entry(n) for n in range(1, 4))))
    assert few.count("etcdfix delete ") == 3
    assert "jq" not in few
    many = table(plan(*(entry(n) for n in range(1, 6))))
    assert many.count("etcdfix delete ") == 3
    assert "  etcdfix plan -o json\n  jq -r '.entries[].command' plan.json\n" in many


def test_rows_are_capped_and_said() -> None:
    text = table(plan(*(entry(n) for n in range(1, 6))), max_rows=2)
    assert "not shown: 3 of 5 objects; see all with -o json, or --max-rows 5\n" in text
    assert "\n2        low" in text
    assert "\n3        low" not in text


def test_groups_and_makers_are_capped_and_said() -> None:
    one = plan().groups[0]
    text = table(plan(entry(), groups=[one] * 22, recreators=[PlanRecreator("x", "no", 1, "")] * 21))
    assert "and 2 more groups; see all with -o json\n" in text
    assert "and 1 more maker; see all with -o json\n" in text


def test_a_confidence_is_shown_with_its_basis() -> None:
    made = entry(recreated_by="cert-manager", recreate_confidence="certain", recreate_basis="named by site")
    assert "cert-manager (certain: named by site)\n" in table(plan(made))


def test_marks_of_risk_are_explained_only_where_they_stand() -> None:
    plain = table(plan(entry()))
    assert "--accept-risk" not in plain
    assert "(unproven)" not in plain
    both = table(plan(entry(floor="kube-system", risk="cluster-breaking", outcome="undetermined")))
    assert "cluster-breaking (unproven)" in both
    assert "cluster-breaking: the cluster itself may stand on it" in both
    assert "needs --accept-risk cluster-breaking" in both
    assert "(unproven): most likely in order" in both


def test_left_out_is_counted_with_examples() -> None:
    gone = [LeftOut(key=f"/registry/a/{n}", why="gone", detail="it is gone") for n in range(5)]
    text = table(plan(left_out=[*gone, LeftOut(key="/registry/b", why="changed", detail="newer")]))
    assert "Left out: 6 findings of the report\n  5 gone\n    /registry/a/0: it is gone\n" in text
    assert "    and 2 more; see all with -o json\n  1 changed\n    /registry/b: newer\n" in text


def test_hostile_texts_are_made_safe_in_table_and_json() -> None:
    hostile = plan(
        entry(key=HOSTILE, what=HOSTILE, recreated_by=HOSTILE, recreate_basis=HOSTILE, command=HOSTILE),
        left_out=[LeftOut(key=HOSTILE, why="gone", detail=HOSTILE)],
        complete=False,
        problems=[HOSTILE],
        steps=[PlanStep(HOSTILE, HOSTILE, [HOSTILE])],
        groups=[PlanGroup(HOSTILE, HOSTILE, HOSTILE, "", 1, 0, pattern=False, advice=HOSTILE)],
        recreators=[PlanRecreator(HOSTILE, "no", 1, HOSTILE)],
        kube_system_uid=HOSTILE,
        report=PlanReport(HOSTILE, "", HOSTILE),
    )
    out = io.BytesIO()
    write_plan_json(out, hostile)
    for text in (table(hostile), out.getvalue().decode()):
        assert all(line.isprintable() for line in text.splitlines())
    assert msgspec.json.decode(out.getvalue(), type=DeletionPlan) == hostile


def test_a_cell_that_no_name_fills_is_cut() -> None:
    text = table(plan(entry(key="/" + "k" * 5000, what="w" * 5000)))
    assert max(map(len, text.splitlines())) < 2000


def test_an_empty_plan_is_json_too() -> None:
    out = io.BytesIO()
    write_plan_json(out, plan(groups=[], recreators=[], steps=[]))
    assert json.loads(out.getvalue())["entries"] == []
