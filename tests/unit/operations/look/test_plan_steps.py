from __future__ import annotations

from etcdfix.commands.planning.steps import in_order, steps_for
from etcdfix.report.plan import PlanGroup, PlanStep
from etcdfix.report.plan_entry import PlanEntry, declaration
from etcdfix.rules import Rule, acceptance
from etcdfix.text.commands import RunOptions
from tests.support.plan_entries import entry


def steps(entries: list[PlanEntry], groups: list[PlanGroup] | None = None) -> dict[str, PlanStep]:
    return {step.title: step for step in steps_for(in_order(entries), groups or [], "r.json", RunOptions())}


def test_the_snapshot_is_saved_of_the_etcd_that_was_read() -> None:
    again = RunOptions(source=("--endpoints", "one:1,two:2", "--cacert", "ca", "--revision", "5"))
    found = {step.title: step.commands for step in steps_for(in_order([entry()]), [], "r.json", again)}
    assert found["Take a snapshot of etcd, and keep it"] == [
        "etcdctl --endpoints one:1 --cacert ca snapshot save before-deletions.db"
    ]


def lost(number: int, *more: str, **change: str | int) -> PlanEntry:
    transformer = f"aescbc/v1/lost-{number}"
    return entry(number, transformer=transformer, needs=[declaration(transformer, ""), *more], **change)


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
    assert titles[2] == "Look for the encryption key"
    assert titles[3].startswith("Let the KMS plugin decrypt again")


def earlier(*entries: PlanEntry) -> str:
    groups: list[PlanGroup] = []
    found = {step.title: step for step in steps_for(in_order(entries), groups, "r.json", RunOptions())}
    (title,) = [title for title in found if "earlier revisions" in title]
    (command,) = found[title].commands
    assert title.startswith("Put back" if "restore" in command else "Save")
    return command


def test_a_file_compacts_nothing_and_nothing_is_put_back_into_it() -> None:
    file = RunOptions(("--snapshot", "f.db"))
    found = steps_for([entry(1, cause="value-truncated", readable_revision=5)], [], "r.json", file)
    (step,) = [step for step in found if "earlier revisions" in step.title]
    assert step.title == "See earlier revisions, which this file still holds"
    assert "A readable revision of 1 object is kept" in step.text
    look = "etcdfix get --snapshot f.db --revision 5 /registry/secrets/shop/web-1"
    assert step.commands == [look, f"{look} --reveal -o json"]
    assert not any("Put back" in step.title or "before etcd compacts" in step.title for step in found)


def test_earlier_revisions_are_kept_before_anything_that_takes_time() -> None:
    """They are gone in five minutes: also those of what comes back, and the worst loss is shown."""
    pod = {"resource": "pods", "cause": "value-truncated", "comes_back": "by-itself"}
    kept = [
        entry(1, key="/registry/pods/shop/a", readable_revision=4, **pod),
        entry(2, key="/registry/pods/shop/b", readable_revision=5, **pod),
        entry(
            3, key="/registry/crd/c", group="apiextensions.k8s.io", resource="customresourcedefinitions",
            namespace="", cause="value-truncated", readable_revision=6,
        ),
        entry(4, readable_revision=7, outcome="undetermined", cause="kms-denied"),
        entry(5),
    ]  # fmt: skip
    damaged = PlanGroup("decode-failure", "value-truncated", "", "", "", 3, 0, pattern=False, advice="many")
    waits = PlanGroup("undetermined", "kms-denied", "kms/v2/p", "", "", 1, 0, pattern=False, advice="wait")
    found = steps(kept, [damaged, waits])
    step = found["Put back earlier revisions before etcd compacts them"]
    assert step.text.startswith("A readable revision of 4 objects is kept")
    assert "--from-revision 6 /registry/crd/c" in step.commands[0]
    titles = list(found)
    at = titles.index(step.title)
    assert titles[at - 1].startswith("Let the KMS plugin decrypt again")
    assert titles[at + 1] == "Look for every other copy"
    assert titles[at + 2].startswith("Find out what happened to many values")
    for order in (kept[:2], kept[1::-1]):
        assert earlier(*order) == earlier(kept[1])


def test_an_earlier_revision_is_put_back_by_a_command_that_works_as_it_is() -> None:
    kept = entry(1, cause="value-truncated", readable_revision=5)
    command = earlier(kept)
    assert command.startswith(
        "etcdfix restore --from-revision 5 /registry/secrets/shop/web-1 --replace-mod-revision 7"
    )
    assert "--accept" not in command
    assert "--kubeconfig" not in command
    # Where every API server has to be asked before it may go, that holds before it is replaced too.
    asking = entry(1, readable_revision=5, command="etcdfix delete /registry/x --kubeconfig FILE --dry-run")
    assert "--kubeconfig FILE" in earlier(asking)
    breaking = entry(1, readable_revision=5, needs=[acceptance(Rule.CLUSTER_BREAKING)])
    assert "--accept cluster-breaking" in earlier(breaking)
    # Where its key may turn up, a value makes no room: another one comes first, or it is saved.
    assert "web-2" in earlier(lost(1, readable_revision=5), entry(2, readable_revision=6))
    assert earlier(lost(1, readable_revision=5)).startswith("etcdfix get --revision 5 ")
    assert earlier(lost(1, readable_revision=5)).endswith(" --reveal -o json")
    pod = lost(1, resource="pods", key="/registry/pods/shop/web-1", readable_revision=5)
    assert earlier(pod).endswith("web-1 -o json")
    for refused in (
        entry(1, readable_revision=5, refused="many values do not open"),
        entry(1, readable_revision=5, outcome="undetermined", cause="kms-denied"),
    ):
        assert earlier(refused).startswith("etcdfix get --revision 5 ")


def test_what_can_be_repaired_is_repaired_before_anything_is_deleted() -> None:
    words = "bit 3 of byte 9 of the ciphertext turned back"
    one = entry(1, cause="ciphertext-damaged", repair=words, readable_revision=5)
    found = steps([one, entry(2, repair=words), entry(3)])
    step = found["Repair what can be had back from its own bytes"]
    assert step.text.startswith("The stored bytes of 2 objects can be put right")
    assert [command.split()[:3] for command in step.commands] == [
        ["etcdfix", "repair", "/registry/secrets/shop/web-1"],
        ["etcdfix", "repair", "/registry/secrets/shop/web-2"],
    ]
    # An older state is not put back over what can be had back whole.
    assert earlier(one).startswith("etcdfix get --revision 5 ")
    many = steps([entry(number, repair=words) for number in range(9)])
    assert len(many["Repair what can be had back from its own bytes"].commands) == 5
    assert "Repair what can be had back from its own bytes" not in steps([entry(1)])
