from __future__ import annotations

from etcdfix.operations.look.plan_steps import in_order, steps_for
from etcdfix.reports.plan_model import PlanEntry, PlanGroup, PlanStep, acceptance, declaration
from etcdfix.text.commands import RepeatedOptions
from etcdfix.verdicts.deletability import AcceptRisk
from tests.support.plan_entries import entry


def steps(entries: list[PlanEntry], groups: list[PlanGroup] | None = None) -> dict[str, PlanStep]:
    return {step.title: step for step in steps_for(in_order(entries), groups or [], {}, RepeatedOptions())}


def lost(number: int, *more: str, **change: str) -> PlanEntry:
    transformer = f"aescbc/v1/lost-{number}"
    return entry(number, transformer=transformer, needs=[declaration(transformer, ""), *more], **change)


def test_nothing_broken_nothing_to_do() -> None:
    assert steps([]) == {}


def test_flags_that_only_a_person_types_are_counted() -> None:
    found = steps(
        [
            lost(1),
            lost(1, key="/b", name="b"),
            lost(2, acceptance(AcceptRisk.CLUSTER_BREAKING), risk="cluster-breaking"),
        ]
    )
    step = found["Decisions only you can make"]
    assert "--declare-key-lost aescbc/v1/lost-1 for 2 objects (its key is gone for ever" in step.text
    assert "--declare-key-lost aescbc/v1/lost-2 for 1 object (" in step.text
    assert "--accept-risk cluster-breaking for 1 object (the cluster may depend on it" in step.text
    titles = list(found)
    assert titles.index(step.title) < titles.index(
        "Delete in the order of this plan, one key after the other"
    )
    assert step.title not in steps([entry()])


def test_flags_are_capped_and_said() -> None:
    found = steps([lost(n) for n in range(1, 8)])
    text = found["Decisions only you can make"].text
    assert text.count("--declare-key-lost") == 5
    assert "; and 2 more flags, see the advice of the groups." in text


def test_the_first_turns_are_said_where_there_are_any() -> None:
    made = {"comes_back": "by-itself", "recreate_confidence": "certain"}
    title = "See that those run who make objects again"
    one = steps(
        [entry(1, recreated_by="cert-manager", **made), entry(2, recreated_by="cert-manager", **made)]
    )
    assert "The first turn is one of them: delete that much" in one[title].text
    two = steps([entry(1, recreated_by="cert-manager", **made), entry(2, recreated_by="Vault", **made)])
    assert "The first 2 turns are one of each: delete that much" in two[title].text
    none = steps([entry(1, recreated_by="kubelet", risk="cluster-breaking", **made)])
    assert "turn" not in none[title].text


def test_nobody_can_declare_an_unknown_envelope_lost() -> None:
    unknown = PlanGroup(
        "decrypt-failure", "unknown-envelope", "", "", "", 3, 0, pattern=True,
        advice="many values do not open, and no key is to blame: find out what wrote them",
    )  # fmt: skip
    found = steps([entry(transformer="", cause="unknown-envelope")], [unknown])
    assert "Look for the key" not in found
    assert "Decisions only you can make" not in found
