from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest

from etcdfix.graph.model import Risk, RiskReason
from etcdfix.reports.formats.machine import write_plan_json
from etcdfix.reports.formats.plan_table import write_plan_table
from etcdfix.reports.model import ReportConfiguration, Tool
from etcdfix.reports.plan_model import (
    DeletionPlan,
    LeftOut,
    PlanEntry,
    PlanGroup,
    PlanMaker,
    PlanReport,
    PlanSource,
    PlanStep,
    acceptance,
    declaration,
)
from etcdfix.verdicts.deletability import AcceptRisk
from tests.support.plan_entries import entry

ACCEPT_RISK = acceptance(AcceptRisk.CLUSTER_BREAKING)
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


def test_the_head_says_where_when_and_of_what() -> None:
    head = table(plan(entry(), not_in_report=3)).splitlines()
    assert head[0] == "1 broken object to decide about, 0 of the report left out."
    assert head[1] == "BREAKS-NOW, if API servers use this configuration too: LISTs of secrets fail."
    assert head[2].startswith("DO NOT RESTART AN API SERVER: ")
    assert head[3:5] == ["Next: Read what the first deletion would do", f"  {entry().command}"]
    lines = head[5:]
    assert lines[0] == "etcdfix 1 · plan from scan.json (scan of 2026-03-01T11:00:00Z)"
    assert lines[1] == "  etcd 10.0.0.1:2379, 10.0.0.2:2379 · revision 99 · 2026-03-01T12:00:00Z"
    assert lines[2] == "  kube-system uid unknown"
    assert lines[3] == "  encryption configuration enc.yaml (sha256:11)"
    assert lines[4] == "  not in the report: 3 broken values; scan again to see them"


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


def test_few_objects_show_all_commands_and_many_the_first() -> None:
    few = table(plan(*(entry(n) for n in range(1, 4))))
    assert few.count("\n  etcdfix delete ") == 4  # one is that of the head
    assert "jq" not in few
    many = table(plan(*(entry(n) for n in range(1, 6))))
    assert many.count("\n  etcdfix delete ") == 4
    assert "  etcdfix plan -o json\n" in many
    assert "  jq -r '.entries[].command' plan.json\n" in many
    assert many.endswith("  etcdfix plan --run plan.json --help\n")


def test_rows_are_capped_and_said() -> None:
    text = table(plan(*(entry(n) for n in range(1, 6))), max_rows=2)
    assert "shown: 2 of 5 objects; see all with -o json, or --max-rows 5\n" in text
    assert "\n2        /registry/secrets/shop/web-2\n" in text
    assert "\n3        " not in text


def test_groups_of_two_rules_can_be_told_apart() -> None:
    one = plan().groups[0]
    rules = ("secrets", "configmaps,widgets.example.com")
    text = table(plan(entry(), groups=[msgspec.structs.replace(one, rule=rule) for rule in rules]))
    assert [line.split()[3] for line in text.splitlines() if f" {one.transformer} " in line][:2] == list(
        rules
    )


def test_groups_and_makers_are_capped_and_said() -> None:
    one = plan().groups[0]
    text = table(plan(entry(), groups=[one] * 22, recreated_by=[PlanMaker("x", "no", 1, "")] * 21))
    assert "and 2 more groups; see all with -o json\n" in text
    assert "and 1 more maker; see all with -o json\n" in text


def test_a_confidence_is_shown_with_its_basis() -> None:
    made = entry(recreated_by="cert-manager", recreate_confidence="certain", recreate_basis="named by site")
    assert "  cert-manager (certain: named by site)  " in table(plan(made))


def test_marks_of_risk_are_explained_only_where_they_stand() -> None:
    plain = table(plan(entry()))
    assert "--accept-risk" not in plain
    assert "(unproven)" not in plain
    assert "[1]" not in plain
    assert "dependents" not in plain
    breaking: dict[str, Any] = {
        "protected": "kube-system",
        "risk": "cluster-breaking",
        "needs": [ACCEPT_RISK],
    }
    both = table(plan(entry(**breaking, outcome="undetermined", cascade=3)))
    assert "cluster-breaking (unproven)" in both
    assert (
        "[1]: its command works with --accept-risk cluster-breaking only: the cluster may depend on it"
        in both
    )
    assert "(unproven): most likely in order" in both
    assert "CASCADE: dependents that the garbage collector deletes after it\n" in both


def test_the_worst_reason_and_the_cascade_stand_in_the_row() -> None:
    reasons = [
        RiskReason(Risk.HIGH, "cascade", "7 dependents go with it"),
        RiskReason(Risk.LOW, "users", "a user"),
    ]
    row = _row(table(plan(entry(risk="high", reasons=reasons, cascade=7))))
    assert row.startswith("1        delete      high    7 dependents go with it  ")
    assert "a user" not in row
    assert row.split()[-2] == "7"
    protected = _row(table(plan(entry(protected="kube-system's own", risk="low"))))
    assert "delete      low     kube-system's own  " in protected
    long = _row(table(plan(entry(risk="high", reasons=[RiskReason(Risk.HIGH, "x", "w" * 500)]))))
    assert len(long) < 300


def _row(text: str) -> str:
    return next(line for line in text.splitlines() if line.endswith("  /registry/secrets/shop/web-1"))


def test_flags_that_a_command_lacks_are_numbered_and_said() -> None:
    kms = {"transformer": "kms/v2/prov", "kms_key_id_sha256": "sha256:ab", "outcome": "undetermined"}

    lost, breaking = declaration("aescbc/v1/lost", ""), ACCEPT_RISK
    shown = plan(
        entry(1, needs=[lost]),
        entry(2, **kms, needs=[declaration("kms/v2/prov", "sha256:ab")]),
        entry(3, risk="cluster-breaking", needs=[lost, breaking]),
        entry(4, transformer="identity"),
    )
    lines = table(shown).splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("ORDER"))
    start, end = lines[head].index("FLAGS NEEDED"), lines[head].index("KEY")
    assert [row[start:end].strip() for row in lines[head + 1 : head + 5]] == ["[1]", "[2]", "[1] [3]", ""]
    assert (
        "[2]: its command works with --declare-key-lost kms/v2/prov/sha256:ab only: its key is gone for ever, and "
        "you are certain of that; with --kubeconfig, so that an API server can contradict, or --accept-no-api-server"
    ) in lines
    command = lines.index("  etcdfix delete /registry/secrets/shop/web-3")
    assert lines[command + 1 : command + 3] == [
        "    refused without --declare-key-lost aescbc/v1/lost",
        "    refused without --accept-risk cluster-breaking",
    ]
    # What stands in no row is not explained, and keeps its number.
    few = table(shown, max_rows=1)
    assert "[1]: its command" in few
    assert "[2]: its command" not in few


def test_what_most_rows_share_is_said_once_and_left_out_of_them() -> None:
    lost = declaration("aescbc/v1/lost", "")
    entries = [entry(n, needs=[lost], risk="high") for n in range(1, 9)]
    entries += [entry(9, risk="low"), entry(10, needs=[ACCEPT_RISK, lost], risk="high", cascade=2)]
    text = table(plan(*entries))
    lines = text.splitlines()
    start = lines.index("The objects, in the order of their turns")
    assert lines[start + 1 : start + 5] == [
        "  All 10 rows: WHY none; WHAT IT IS Secret (type not known); RECREATED BY by hand",
        "  All but 1 of 10 rows: PROPOSED none; RISK high; CASCADE 0",
        "  All but 2 of 10 rows: FLAGS NEEDED --declare-key-lost aescbc/v1/lost",
        "ORDER    PROPOSED    RISK    CASCADE    FLAGS NEEDED    KEY",
    ]
    rows = {line.split()[0]: line.split()[1:-1] for line in lines[start + 5 : start + 15]}
    assert rows["1"] == []
    assert rows["9"] == ["delete", "low", "none"]
    assert rows["10"] == ["2", "[2]", "[1]"]
    # Of three rows nothing is said for most.
    assert "rows:" not in table(plan(*entries[:3]))


def test_what_no_flag_helps_is_said() -> None:
    text = table(plan(entry(refused="find out why first"), entry(2)))
    assert "refused: find out why first; until then no flag helps\n" in text
    assert "    refused: find out why first\n" in text


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_narrow_tables_stay_whole(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    key = "/registry/secrets/shop/" + "very-long-" * 15
    reason = RiskReason(Risk.HIGH, "cascade", "7 dependents go with it, and what they own")
    shown = plan(*(entry(n, key=f"{key}{n}", risk="high", reasons=[reason], cascade=n) for n in range(1, 6)))
    lines = table(shown).splitlines()
    for number in range(1, 6):
        assert f"    {key}{number}" in lines
    start = next(n for n, line in enumerate(lines) if line.startswith("ORDER"))
    for line in lines[start : lines.index(f"    {key}5")]:
        assert len(line) <= columns or line.strip().startswith(key)
    assert not [line for line in lines if line.endswith(" ")]


def test_what_can_wait_stands_before_the_commands() -> None:
    lines = table(plan(entry(), left_out=[LeftOut(key="/a", why="gone", detail="")])).splitlines()
    places = [lines.index(text) for text in (
        "Left out: 1 finding of the report", "What to do, in this order", "The dry runs, in this order",
    )]  # fmt: skip
    assert places == sorted(places)
    assert lines[-1] == "  etcdfix delete /registry/secrets/shop/web-1"


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
        incomplete_reasons=[HOSTILE],
        steps=[PlanStep(HOSTILE, HOSTILE, [HOSTILE])],
        groups=[PlanGroup(HOSTILE, HOSTILE, HOSTILE, HOSTILE, "", 1, 0, pattern=False, advice=HOSTILE)],
        recreated_by=[PlanMaker(HOSTILE, "no", 1, HOSTILE)],
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
    write_plan_json(out, plan(groups=[], recreated_by=[], steps=[]))
    assert json.loads(out.getvalue())["entries"] == []


def test_the_head_of_what_is_not_proven_says_so() -> None:
    lines = table(plan(entry(outcome="undetermined", cause="kms-key-unknown"))).splitlines()
    assert lines[1].startswith("SEVERITY NOT KNOWN: ")
    assert lines[2].startswith("DO NOT RESTART AN API SERVER: ")
    empty = table(plan(entry(cause="empty-value"))).splitlines()
    assert empty[1].startswith("ONE-OBJECT: ")
