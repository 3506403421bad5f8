"""What a run has to do: the decisions of a plan, held against its entries and what was accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.commands.plan import build_plan
from etcdfix.graph.model import Risk, RiskReason
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.rules import MEANINGS, Rule
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.run import RunRequest, Workload, workload_of
from etcdfix.report.plan import Decision, DeletionPlan, PlanEntry, decision_on
from tests.support.lost_key import base, examiner_of, lose, request_for, scan_to
from tests.support.memory_source import LiveMemory
from tests.support.plan_entries import entry, fixable

LOST, KEY_ID = "aescbc/v1/lost", "sha256:0f"
KEY = b"/registry/secrets/shop/web-1"
DECLARE = f"--declare-key-lost {LOST}"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> DeletionPlan:
    """A plan without entries."""
    cluster = base()
    lose(cluster, cluster.secret("web"))
    source = LiveMemory(cluster.values)
    report = scan_to(tmp_path_factory.mktemp("plan") / "report.json", cluster, source=source)
    plan = build_plan(source, examiner_of(cluster, source), request_for(report))
    return msgspec.structs.replace(plan, entries=[], decisions=[])


def plan_of(empty: DeletionPlan, *entries: PlanEntry, decide: str = "", **by_order: str) -> DeletionPlan:
    decisions = [
        msgspec.structs.replace(
            proposed := decision_on(each),
            decision=by_order.get(f"_{each.order}", decide) or proposed.decision,
        )
        for each in entries
    ]
    return msgspec.structs.replace(empty, entries=list(entries), decisions=decisions)


def asked(*risks: Rule, **change: Any) -> RunRequest:
    settings: dict[str, Any] = {"reason": "x", "plan_file": Path("plan.json")}
    return RunRequest(accepted=Acceptances(words=risks), **(settings | change))


def work(plan: DeletionPlan, request: RunRequest, *finished: bytes) -> Workload:
    return workload_of(plan, finished, request, "etcdfix plan")


def refused(plan: DeletionPlan, request: RunRequest) -> str:
    with pytest.raises(RefusedByRule) as caught:
        work(plan, request)
    return f"{caught.value.message}: {caught.value.hint}"


def test_what_is_decided_is_done_in_the_order_of_the_plan(empty: DeletionPlan) -> None:
    entries = (
        entry(1),
        fixable(2),
        fixable(3, "revision:5"),
        entry(4),
        entry(5, refused="one of many"),
        entry(6),
    )
    plan = plan_of(empty, *entries, _4="leave")
    assert [each.decision for each in plan.decisions] == [
        "delete", "fix", "fix", "leave", "leave", "delete",
    ]  # fmt: skip
    found = work(plan, asked(), b"/registry/secrets/shop/web-6")
    assert [(task.entry.order, task.decision.value) for task in found.tasks] == [
        (1, "delete"), (2, "fix"), (3, "fix"),
    ]  # fmt: skip
    # The one that waits may be deleted; what is refused may not.
    assert (found.done, found.left_alone) == (1, 2)


def test_what_is_left_out_is_left_alone(empty: DeletionPlan) -> None:
    plan = plan_of(empty, entry(1), entry(2), entry(3), _3="leave")
    found = work(plan, asked(leave_out=(b"/registry/secrets/shop/web-1", b"/registry/secrets/shop/web-3")))
    assert [task.entry.order for task in found.tasks] == [2]
    assert found.left_alone == 2
    done = plan_of(empty, entry(1, needs=["--accept only-copy"]), decide="delete")
    assert work(done, asked(leave_out=(KEY,)), KEY) == Workload(tasks=(), done=1, left_alone=0)
    assert "does not list /registry/secrets/shop/x" in refused(
        plan, asked(leave_out=(b"/registry/secrets/shop/x",))
    )


# -- what has to be accepted


def test_each_need_has_to_be_accepted(empty: DeletionPlan) -> None:
    needs = ["--accept only-copy", "--accept mass-damage"]
    plan = plan_of(empty, fixable(1, "revision:4", needs=needs, fix_needs=needs), decide="delete")
    assert "the deletion of /registry/secrets/shop/web-1 needs --accept only-copy" in refused(
        plan, asked(Rule.MASS_DAMAGE)
    )
    assert "needs --accept mass-damage" in refused(plan, asked(Rule.ONLY_COPY))
    assert "--accept only-copy --accept mass-damage --dry-run" in refused(plan, asked())
    assert len(work(plan, asked(Rule.ONLY_COPY, Rule.MASS_DAMAGE)).tasks) == 1
    # A fix needs words of its own.
    restored = plan_of(
        empty, fixable(1, needs=["--accept only-copy"], fix_needs=["--accept newer-than-known"])
    )
    assert "the fix of" in refused(restored, asked(Rule.ONLY_COPY))
    (task,) = work(restored, asked(Rule.ONLY_COPY, Rule.NEWER_THAN_KNOWN)).tasks
    assert [task.heeds(word) for word in ("newer-than-known", "only-copy")] == [True, False]


def test_the_value_put_right_needs_nothing_of_what_a_deletion_needs(empty: DeletionPlan) -> None:
    needs = [DECLARE, "--accept only-copy"]
    (task,) = work(plan_of(empty, fixable(1, needs=needs)), asked()).tasks
    assert (task.decision, task.declared) == (Decision.FIX, "")
    # Nor does a declaration speak of it, where it is given for others.
    plan = plan_of(empty, fixable(1, needs=needs), entry(2, needs=[DECLARE]), _2="delete")
    first, second = work(plan, asked(key_lost=(LOST,))).tasks
    assert (first.declared, second.declared) == ("", LOST)


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        ((), None),
        ((LOST,), LOST),
        ((f"{LOST}/{KEY_ID}",), f"{LOST}/{KEY_ID}"),
        ((LOST, f"{LOST}/{KEY_ID}"), f"{LOST}/{KEY_ID}"),
    ],
)
def test_a_declaration_names_the_key_of_the_entry(
    empty: DeletionPlan, given: tuple[str, ...], declared: str | None
) -> None:
    """The narrower name, where both are given."""
    plan = plan_of(empty, entry(1, needs=[DECLARE], kms_key_id_sha256=KEY_ID), decide="delete")
    if declared is None:
        assert f"needs {DECLARE}" in refused(plan, asked(key_lost=given))
    else:
        assert [task.declared for task in work(plan, asked(key_lost=given)).tasks] == [declared]


@pytest.mark.parametrize("wrong", ["aescbc/v1/other", f"{LOST}/{KEY_ID}", f"{LOST}/", LOST.upper(), ""])
def test_a_declaration_of_what_no_entry_waits_for(empty: DeletionPlan, wrong: str) -> None:
    plan = plan_of(empty, entry(1, needs=[DECLARE]), decide="delete")
    assert "names no encryption key" in refused(plan, asked(key_lost=(LOST, wrong)))
    # Whose deletion does not wait for it, its key is none of those.
    plan = plan_of(empty, entry(1, needs=["--accept only-copy"]), decide="leave")
    assert "names no encryption key" in refused(plan, asked(key_lost=(LOST,)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"protected": "it is in kube-system"}, "it is in kube-system"),
        (
            {"risk": "cluster-breaking", "reasons": [RiskReason(Risk.CLUSTER_BREAKING, "used", "all need it")]},
            "all need it",
        ),
        ({"risk": Risk.CLUSTER_BREAKING.value}, "the cluster may depend on it"),
        ({"protected": "a", "risk": Risk.CLUSTER_BREAKING.value}, "a"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("decision", ["delete", "fix"])
def test_what_the_cluster_may_depend_on(
    empty: DeletionPlan, change: dict[str, Any], why: str, decision: str
) -> None:
    plan = plan_of(empty, fixable(1, **change), decide=decision)
    assert "needs --accept cluster-breaking" in refused(plan, asked(Rule.ONLY_COPY))
    (task,) = work(plan, asked(Rule.CLUSTER_BREAKING)).tasks
    assert task.protected == why


def test_a_risk_counts_only_for_whom_the_plan_says_needs_it(empty: DeletionPlan) -> None:
    def counts(**change: Any) -> set[str]:
        plan = plan_of(empty, entry(1, **change), decide="delete")
        (task,) = work(plan, asked(*MEANINGS, key_lost=())).tasks
        return {rule.value for rule in MEANINGS if task.heeds(rule)}

    of_an_entry = {
        "cluster-breaking", "unproven-damage", "newer-than-known", "mass-damage", "only-copy", "ends-cached-reads",
    }  # fmt: skip
    always = set(MEANINGS) - of_an_entry  # no plan can know who needs these
    assert counts() == always
    assert counts(needs=["--accept only-copy"]) == {*always, "only-copy"}
    assert counts(needs=["--accept cluster-breaking"]) == always  # who is protected is confirmed one by one
    assert counts(protected="it is in kube-system") == {*always, "cluster-breaking"}
