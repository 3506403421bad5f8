from __future__ import annotations

from etcdfix.commands.planning.steps import in_order, steps_for
from etcdfix.report.plan import PlanGroup, PlanStep
from etcdfix.report.plan_entry import PlanEntry, declaration
from etcdfix.text.commands import RunOptions
from tests.support.plan_entries import entry, fixable


def steps(entries: list[PlanEntry], groups: list[PlanGroup] | None = None) -> dict[str, PlanStep]:
    return {step.title: step for step in steps_for(in_order(entries), groups or [], "r.json", RunOptions())}


def test_the_snapshot_is_saved_of_the_etcd_that_was_read() -> None:
    again = RunOptions(source=("--endpoints", "one:1,two:2", "--cacert", "ca", "--revision", "5"))
    found = {step.title: step.commands for step in steps_for(in_order([entry()]), [], "r.json", again)}
    assert found["Take a snapshot of etcd, and keep it"] == [
        "etcdctl --endpoints one:1 --cacert ca snapshot save before-deletions.db"
    ]


def test_nothing_broken_nothing_to_do() -> None:
    assert steps([]) == {}


def test_what_is_proven_wrong_goes_before_what_waits() -> None:
    """As the first lines of a scan do."""
    groups = [
        PlanGroup("undetermined", "kms-denied", "kms/v2/p", "", "", 1, 0, pattern=False, advice="wait"),
        PlanGroup(
            "decrypt-failure", "wrong-key", "aescbc/v1/k", "", "", 9, 0, pattern=True, advice="find it",
            declaration=declaration("aescbc/v1/k", ""),
        ),
    ]  # fmt: skip
    titles = list(steps([entry()], groups))
    assert titles[1] == "Look for the encryption key"
    assert titles[2].startswith("Let the KMS plugin decrypt again")


SAVE = "etcdfix get --revision {} /registry/{}"


def test_earlier_revisions_are_saved_before_anything_that_takes_time() -> None:
    """They are gone in five minutes: also those of what comes back, and the worst loss is shown."""
    pod = {"resource": "pods", "cause": "value-truncated", "comes_back": "by-itself"}
    kept = [
        fixable(1, "revision:4", key="/registry/pods/shop/a", save=SAVE.format(4, "pods/shop/a"), **pod),
        entry(2, key="/registry/pods/shop/b", save=SAVE.format(5, "pods/shop/b"), **pod),
        entry(
            3, key="/registry/crd/c", group="apiextensions.k8s.io", resource="customresourcedefinitions",
            namespace="", cause="value-truncated", save=SAVE.format(6, "crd/c"),
        ),
        entry(4, save="no", outcome="undetermined", cause="kms-denied"),
        entry(5),
    ]  # fmt: skip
    damaged = PlanGroup("decode-failure", "value-truncated", "", "", "", 3, 0, pattern=False, advice="many")
    waits = PlanGroup("undetermined", "kms-denied", "kms/v2/p", "", "", 1, 0, pattern=False, advice="wait")
    found = steps(kept, [damaged, waits])
    step = found["Save earlier revisions"]
    assert step.text.startswith("A readable revision of 4 objects is kept")
    assert step.commands == [SAVE.format(6, "crd/c")]
    titles = list(found)
    at = titles.index(step.title)
    assert titles[at - 1].startswith("Let the KMS plugin decrypt again")
    assert titles[at + 1] == "Look for every other copy"
