"""Runs over many keys that somebody tries to turn against healthy objects, or that meet the unexpected midway."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from etcdfix.cli.output import Terminal
from etcdfix.copies.rescued import INDEX_NAME
from etcdfix.examine.verdicts.deletability import protected_reason
from etcdfix.model.model import GroupResource
from etcdfix.remediation import present as present_module
from etcdfix.remediation.members import ActiveAlarm, AlarmKind
from etcdfix.remediation.saved_objects import RescueRecord
from etcdfix.testing.servers import EtcdServers
from tests.support.attacks import seal
from tests.support.audit_logs import own_directory
from tests.support.change_runs import ACKNOWLEDGED, Ran, follow_up, typing
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, namespace_object, provider, secret
from tests.support.plan_runs import DECLARED, LOST, Planned, at_object, mixed

pytestmark = pytest.mark.etcd

BREAKING = ("--accept", "cluster-breaking")


def refused(planned: Planned, *arguments: str, rule: str | None = None, code: int = 4, **how: Any) -> Ran:
    """Assert that a run changes nothing, and is refused by this rule."""
    with planned.nothing_changes():
        ran = planned.work(*arguments, "-o", "json", **how)
    assert ran.code == code, ran
    if rule is not None:
        assert json.loads(ran.out)["refusal"]["rule"] == rule, ran
    return ran


def of_cluster(planned: Planned, uid: str) -> None:
    planned.put("kube-system", namespace_object("kube-system", uid), resource="namespaces")


def lost_key(planned: Planned, name: str, material: bytes = KEY_2) -> bytes:
    """Put a Secret under key2 of these bytes."""
    return planned.put(f"shop/{name}", aescbc(secret(name), material, "key2"))


def test_a_run_deletes_what_the_plan_decides(planned: Planned) -> None:
    keys = planned.furnish("a", "b", "c")
    planned.make_plan()
    assert {each["decision"] for each in planned.document()["decisions"]} == {"leave"}  # the key may turn up
    planned.decide(a="delete", b="delete")
    ran = planned.work(*DECLARED, "-o", "json")
    assert ran.code == 0, ran
    document = json.loads(ran.out)
    assert [each["result"] for each in document["objects"]] == ["deleted", "deleted"]
    assert (document["left"], document["left_alone"], document["stopped_at"]) == (0, 1, None)
    assert planned.there(keys) == [False, False, True]
    assert planned.outcomes() == {"a": "deleted", "b": "deleted", "c": ""}
    assert len(planned.kept()) == 2
    planned.agree()
    again = planned.work("-o", "json")
    assert (again.code, json.loads(again.out)["done_before"]) == (0, 2), again
    assert planned.there(keys) == [False, False, True]


def test_a_dry_run_checks_everything_and_changes_nothing(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a check warns of is told once."""
    planned.to_delete("a", "b")
    plan, left = planned.plan.read_bytes(), iter(range(2, 0, -1))
    alarms = lambda _client: (ActiveAlarm(AlarmKind.UNKNOWN, f"member ({next(left)})"),)  # noqa: E731
    monkeypatch.setattr(present_module, "read_alarms", alarms)
    with planned.nothing_changes():
        ran = planned.work(*DECLARED, "--dry-run", "-o", "json")
    assert (ran.code, ran.err.count("has raised the alarm unknown")) == (0, 1), ran
    assert [each["result"] for each in json.loads(ran.out)["objects"]] == ["dry-run", "dry-run"]
    assert planned.plan.read_bytes() == plan
    assert [event.type for event in planned.records()] == ["dry-run", "dry-run"]


# -- confirmation


@pytest.mark.parametrize("digest", [None, "", "content", "shorter", "upper", "another"])
def test_a_digest_that_is_not_the_plans(planned: Planned, digest: str | None) -> None:
    """Also none, and the digest of what the plan found, without what was decided."""
    planned.to_delete("a", "b")
    right = planned.digest
    wrong = {
        "": "",
        "content": planned.document()["content_sha256"],
        "shorter": right[:-1],
        "upper": right.upper(),
        "another": f"sha256:{'0' * 64}",
    }
    given = ["--yes"] if digest is None else ["--yes", "--expect-plan", wrong[digest]]
    for more in ((), ("--dry-run",)):
        refused(
            planned,
            *DECLARED,
            *given,
            *more,
            reviewed=False,
            code=4 if digest in {"content", "another"} else 2,
        )


@pytest.mark.parametrize("yes", [False, True])
def test_a_plan_that_is_not_what_was_reviewed(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, yes: bool
) -> None:
    """It was decided otherwise since, or made anew."""
    keys = planned.furnish("a", "b")
    planned.make_plan(a="delete")
    arguments, plan = planned.arguments(*DECLARED), planned.plan.read_bytes()
    words = [word for word in arguments if word != "--yes" or yes]
    for anew in (False, True):
        planned.make_plan(all="delete") if anew else planned.decide(b="delete")
        with planned.nothing_changes(), typing(monkeypatch, LOST, "2"):
            assert planned.run(*words).code == 4
    planned.plan.write_bytes(plan)
    with typing(monkeypatch, LOST):
        assert planned.run(*arguments).code == 0
    assert planned.there(keys) == [False, True]


def test_the_review_prints_the_command(planned: Planned) -> None:
    """Making the plan names the dry run, and the dry run names the command for scripts, as it was typed."""
    keys = planned.to_delete("a", "b")
    assert planned.first_digest in planned.said
    dry = planned.work(*DECLARED, "--leave-out", keys[1].decode(), "--dry-run", reviewed=False)
    assert planned.digest in dry.err
    words = shlex.split(follow_up(dry.out, "Work through it in a script").removeprefix("etcdfix "))
    assert words[-3:] == ["--yes", "--expect-plan", planned.digest]
    ran = planned.run(*words)
    assert ran.code == 0, ran
    assert f"--expect-plan {planned.digest}" in planned.records()[-1].accepted
    assert planned.there(keys) == [False, True]
    planned.agree()


@pytest.mark.parametrize(
    "typed", [None, (LOST, ""), (LOST, "3"), (LOST, "2 "), (LOST, "y"), ("aescbc/v1/key1", "2")]
)
def test_what_is_not_typed_back(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...] | None
) -> None:
    """The lost key and the number of deletions; without a terminal nothing is confirmed."""
    keys = planned.to_delete("a", "b")
    if typed is None:
        refused(planned, *DECLARED, reviewed=False, rule="not-confirmed")
        return
    with typing(monkeypatch, *typed):
        refused(planned, *DECLARED, reviewed=False, rule="not-confirmed")
    if typed[0] != LOST:  # also with --yes: at a terminal its name is always typed
        with typing(monkeypatch, *typed):
            refused(planned, *DECLARED, rule="not-confirmed")
    with typing(monkeypatch, LOST, "2"):
        assert planned.work(*DECLARED, reviewed=False).code == 0
    assert planned.there(keys) == [False, False]


def test_what_is_typed_is_the_number_of_deletions_where_there_are_any(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = mixed(planned)
    planned.make_plan()
    for wrong, cut, right in (("3", "delete", ""), ("0", "leave", "2"), ("2", "delete", "1")):
        planned.decide(cut=cut)
        with typing(monkeypatch, wrong):
            refused(planned, reviewed=False, rule="not-confirmed")
        if right:
            with typing(monkeypatch, right):
                assert planned.work(reviewed=False).code == 0
            assert planned.there(keys) == [True, True, cut == "leave"]


def test_a_run_that_goes_on_asks_for_what_is_left(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest stays that of the review: what a run writes into the plan is not part of it."""
    keys = planned.to_delete("a", "b", "c")
    arguments, digest = planned.arguments(*DECLARED), planned.digest

    def end() -> None:
        raise KeyboardInterrupt

    at_object(monkeypatch, 2, end)
    assert planned.run(*arguments).code == 130
    monkeypatch.undo()
    assert (planned.there(keys), planned.digest) == ([False, True, True], digest)
    with typing(monkeypatch, LOST, "3"):
        refused(planned, *DECLARED, reviewed=False, rule="not-confirmed")
    monkeypatch.undo()
    for _ in range(2):  # once more: nothing is left
        assert planned.run(*arguments).code == 0
        assert planned.there(keys) == [False] * 3
    planned.agree()


@pytest.fixture
def protected(planned: Planned) -> list[bytes]:
    """A plan that deletes two lost Secrets, and a broken one in kube-system."""
    keys = planned.furnish("a", "b")
    keys.append(planned.key("kube-system/token"))
    planned.etcd.put(keys[2], aescbc(secret("token"), KEY_2, "key2"))
    planned.make_plan(all="delete")
    return keys


def test_a_protected_object_is_typed_by_itself(
    planned: Planned, protected: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = protected[2].decode()
    assert "--accept cluster-breaking" in refused(planned, *DECLARED, rule="plan").err
    for number, name in (("2", key), ("3", key.upper()), ("3", "3")):
        with typing(monkeypatch, LOST, number, name):
            refused(planned, *DECLARED, *BREAKING, reviewed=False, rule="not-confirmed")
    with typing(monkeypatch, LOST, "3", key):
        assert planned.work(*DECLARED, *BREAKING, reviewed=False).code == 0
    assert planned.there(protected) == [False, False, False]


def test_a_protected_object_in_a_script(planned: Planned, protected: list[bytes]) -> None:
    assert planned.work(*DECLARED, "--leave-out", protected[2].decode()).code == 0
    assert planned.there(protected) == [False, False, True]
    # It was left out of that run, and the plan still decides on it.
    assert "--accept cluster-breaking" in refused(planned, *DECLARED, rule="plan").err
    assert planned.work(*DECLARED, *BREAKING).code == 0
    assert planned.there(protected) == [False, False, False]


def test_a_dependent_that_makes_a_key_protected_in_the_middle(
    planned: Planned, protected: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cluster-breaking was accepted for the one object that the plan calls protected, and for no other."""

    def reason(resource: GroupResource, namespace: str) -> str:
        gone = 3 - sum(planned.there(protected))
        return "a webhook of everything needs it" if gone == 1 else protected_reason(resource, namespace)

    monkeypatch.setattr(present_module, "protected_reason", reason)
    ran = planned.work(*DECLARED, *BREAKING, "-o", "json")
    assert ran.code == 4, ran
    document = json.loads(ran.out)
    assert (document["refusal"]["rule"], document["refusal"]["command"]) == ("cluster-breaking", "")
    assert sum(planned.there(protected)) == 2
    planned.agree()


def test_what_ends_the_memory_of_api_servers_is_asked_once_for_the_plan(planned: Planned) -> None:
    """What was saved is read from the log that the run writes: it does not wait for itself."""
    keys = planned.to_delete("a", "b")
    ends = "--accept ends-cached-reads"
    assert all(ends in entry["needs"] for entry in planned.document()["entries"])
    assert ends in refused(planned, *DECLARED[:-2], rule="plan").err
    rescued = own_directory(planned.folder / "rescued")
    (rescued / INDEX_NAME).write_bytes(b"")
    RescueRecord(planned.places, rescued, cluster_uid="", resources=["secrets"]).announce("all")
    ran = planned.work(*DECLARED, "--rescued", str(rescued))
    assert ran.code == 0, ran
    assert planned.there(keys) == [False, False]


# -- the plan


def _of_healthy(planned: Planned, document: dict[str, Any], *places: str) -> None:
    for place in places:
        document[place][0]["key"] = planned.key("shop/healthy-0").decode()


EDITS: dict[str, tuple[Callable[[Planned, dict[str, Any]], object], int]] = {
    "decided on nothing": (lambda _, plan: plan["decisions"][0].update(decision=""), 2),
    "decided on no word of it": (lambda _, plan: plan["decisions"][0].update(decision="DELETE"), 2),
    "decided on what is not allowed": (lambda _, plan: plan["decisions"][0].update(decision="fix"), 2),
    "allowed": (lambda _, plan: plan["decisions"][0].update(allowed=["delete", "fix", "leave"], decision="fix"), 2),
    "doubled": (lambda _, plan: plan["decisions"].append(plan["decisions"][0]), 4),
    "swapped": (lambda _, plan: plan["decisions"].reverse(), 4),
    "other key": (lambda planned, plan: _of_healthy(planned, plan, "decisions"), 4),
    "dropped": (lambda _, plan: plan["decisions"].pop(0), 4),
    "no decisions": (lambda _, plan: plan.pop("decisions"), 2),
    "entry": (lambda planned, plan: _of_healthy(planned, plan, "decisions", "entries"), 2),
    # What was done is taken from the audit log alone.
    "outcome": (lambda _, plan: plan["decisions"][0].update(outcome="deleted"), 2),
    "hostile outcome": (lambda _, plan: plan["decisions"][0].update(outcome="\x1b[31m"), 2),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_a_plan_that_was_edited(planned: Planned, edit: str) -> None:
    keys = planned.to_delete("a", "b")
    whole, document = planned.plan.read_bytes(), planned.document()
    change, code = EDITS[edit]
    change(planned, document)
    planned.plan.write_text(json.dumps(document))
    for more in ((), ("--dry-run",)):
        ran = refused(planned, *DECLARED, *more, code=code)
        assert "\x1b" not in ran.err
    planned.plan.write_bytes(whole)
    assert planned.work(*DECLARED).code == 0
    assert planned.there(keys) == [False, False]
    planned.agree()


def test_a_plan_of_nothing(planned: Planned) -> None:
    keys = planned.furnish("a", "b")
    for key in keys:
        planned.etcd.delete(key)
    planned.put("broken", b"k8s:enc:aescbc:v1:key1:short")
    planned.make_plan(all="leave")
    assert json.loads(refused(planned, code=0).out)["left"] == 0


def test_a_plan_behind_a_link(planned: Planned) -> None:
    planned.to_delete("a", "b")
    real = planned.folder / "real.json"
    planned.plan.rename(real)
    planned.plan.symlink_to(real)
    with planned.nothing_changes():
        assert planned.work(*DECLARED).code in {2, 4}


def test_a_snapshot_is_no_source_of_a_run(planned: Planned) -> None:
    planned.to_delete("a", "b")
    snapshot = planned.folder / "snapshot.db"
    planned.etcd.etcdctl("snapshot", "save", snapshot)
    arguments = ["plan", "--run", str(planned.plan), ACKNOWLEDGED, "--snapshot", str(snapshot)]
    with planned.nothing_changes():
        assert planned.run(*arguments, *planned.common()[4:]).code == 2


def test_hostile_names_of_keys(planned: Planned) -> None:
    """Names of encryption keys come from whoever wrote the value."""
    planned.configure(provider("aescbc", key1=KEY_1), IDENTITY)
    for name in ("a", "b"):
        planned.put(f"shop/{name}", aescbc(secret(name), KEY_2, "key2\x1b[31m/../x=9"))
    planned.make_plan(all="delete")
    ran = planned.work("--accept", "no-api-server")
    assert ran.code in {2, 4}, ran
    assert "\x1b" not in ran.out + ran.err


# -- what is live


def test_a_configuration_that_reads_them(planned: Planned) -> None:
    """The plan was made with the wrong one: another digest, so that nothing of it counts."""
    planned.to_delete("a", "b")
    planned.configure(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)
    refused(planned, *DECLARED, rule="plan")


def test_a_declaration_of_what_is_done_does_not_hinder_the_rest(planned: Planned) -> None:
    """The same command goes on, though nothing is left of one of the lost keys."""
    keys = planned.furnish("a", "b")
    broken = planned.put("shop/broken", b"k8s:enc:aescbc:v1:key1:short")
    planned.make_plan(all="delete")
    assert planned.work(*DECLARED, "--leave-out", broken.decode()).code == 0
    planned.decide(broken="delete")
    refused(planned, *DECLARED, "--declare-key-lost", "aescbc/v1/key9", rule="declaration")
    ran = planned.work(*DECLARED)
    assert ran.code == 0, ran
    assert planned.there([*keys, broken]) == [False] * 3
    planned.agree()


@pytest.mark.parametrize("decided", ["leave", "delete"])
def test_another_cluster_in_the_same_etcd(planned: Planned, decided: str) -> None:
    """Nobody types numbers first; also where nothing is left to do."""
    planned.furnish("a", "b")
    planned.make_plan(all=decided)
    of_cluster(planned, "another-uid")
    refused(planned, *DECLARED, rule="plan")


def test_another_etcd_with_the_same_cluster(planned: Planned, etcd_servers: EtcdServers) -> None:
    """As after a snapshot was restored beside it: same uid, same keys."""
    planned.to_delete("a", "b")
    other = etcd_servers.start()
    try:
        with planned.source() as source:
            other.put_all((stored.key, stored.value) for stored in source.current(planned.prefix.encode()))
        planned.endpoints = other.endpoint
        before = other.revision()
        refused(planned, *DECLARED, rule="other-cluster-id")
        assert other.revision() == before
    finally:
        other.stop()


@pytest.mark.parametrize("now", [None, b"k8s:enc:aesgcm:v1:key1:shorter"])
def test_what_changed_since_the_plan_is_not_put_back(planned: Planned, now: bytes | None) -> None:
    """Only a person brings back what somebody deleted after the review."""
    _flipped, earlier, _cut = mixed(planned)
    planned.make_plan(all="leave", earlier="fix")
    planned.etcd.delete(earlier) if now is None else planned.etcd.put(earlier, now)
    for more in ([], ["--dry-run"]):
        refused(planned, "--accept", "no-api-server", *more)
        assert planned.stored(earlier) == now
    assert planned.outcomes()["earlier"] == ""


@pytest.mark.parametrize("now", [None, aescbc(secret("b"), KEY_2, "key2"), aescbc(secret("b"))])
def test_a_key_that_changed_since_the_plan(planned: Planned, now: bytes | None) -> None:
    """It is gone, written again, or healthy."""
    keys = planned.to_delete("a", "b", "c")
    planned.etcd.delete(keys[1]) if now is None else planned.etcd.put(keys[1], now)
    ran = planned.work(*DECLARED, "-o", "json")
    document = json.loads(ran.out)
    assert (ran.code, document["stopped_at"], document["left"]) == (4, keys[1].decode(), 2), ran
    assert f"--leave-out {keys[1].decode()}" in document["refusal"]["next_step"]
    assert (planned.there(keys)[::2], planned.stored(keys[1])) == ([False, True], now)
    assert planned.outcomes() == {"a": "deleted", "b": "", "c": ""}
    assert planned.work(*DECLARED, "--leave-out", keys[1].decode()).code == 0
    assert (planned.there(keys)[::2], planned.stored(keys[1])) == ([False, False], now)


# -- what happens in the middle


def _found(planned: Planned, _keys: list[bytes]) -> None:
    planned.configure(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)


def _written_again(planned: Planned, keys: list[bytes]) -> None:
    planned.etcd.put(keys[1], aescbc(secret("b"), KEY_2, "key2"))


def _begin_to_open(planned: Planned, keys: list[bytes]) -> None:
    """Many read under the key now: what fails may be damage, and of each that has to be shown."""
    for number in range(5):
        lost_key(planned, f"new-{number}", KEY_1)
    planned.etcd.put(keys[1], aescbc(secret("b"), KEY_1, "key2"))


def _made_anew(planned: Planned, _keys: list[bytes]) -> None:
    planned.etcd.delete(planned.key("kube-system", "namespaces"))
    of_cluster(planned, "another-uid")


STOPPED: dict[str, Callable[[Planned, list[bytes]], object]] = {
    "the lost key is found": _found,
    "the configuration is moved away": lambda planned, _: planned.config.rename(planned.folder / "elsewhere.yaml"),
    "its key is written again": _written_again,
    "values begin to open under the lost key": _begin_to_open,
    "kube-system is made anew": _made_anew,
}  # fmt: skip


@pytest.mark.parametrize("case", STOPPED)
def test_what_stops_a_run_in_the_middle(planned: Planned, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    keys = planned.to_delete("a", "b", "c")
    written: list[bytes | None] = []

    def change() -> None:
        STOPPED[case](planned, keys)
        written.append(planned.stored(keys[1]))

    at_object(monkeypatch, 2, change)
    ran = planned.work(*DECLARED)
    assert ran.code == 4, ran
    # A configuration is compared before each object, so that the one at hand still goes.
    at_hand = case in {"the lost key is found", "the configuration is moved away"}
    assert planned.there(keys) == [False, not at_hand, True]
    assert at_hand or planned.stored(keys[1]) == written[0]
    planned.agree()


def test_what_is_no_reason_to_stop(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another value fails, a plan is made anew, a decision is made: the run does what was confirmed, and no more."""
    keys = planned.furnish("a", "b", "c")
    planned.make_plan(a="delete", b="delete")
    old = planned.document()["content_sha256"]
    keys.append(planned.key("shop/more"))

    def change() -> None:
        lost_key(planned, "more")
        planned.make_plan(all="delete")

    at_object(monkeypatch, 2, change)
    ran = planned.work(*DECLARED)
    assert ran.code == 0, ran
    assert planned.there(keys) == [False, False, True, True]
    assert planned.document()["content_sha256"] != old
    assert set(planned.outcomes().values()) == {""}


def test_a_writer_that_has_the_lost_key(planned: Planned) -> None:
    """A value that opens under the key, written before the next target and after the failing ones: it was not lost."""
    keys = planned.furnish("a", "b", "c")
    lost_key(planned, "y", KEY_1)
    late = lost_key(planned, "zz")
    planned.make_plan(all="delete")
    assert planned.work(*DECLARED).code == 4
    assert planned.stored(late) is not None
    assert planned.there(keys) in ([False] * 3, [True] * 3)


def test_what_the_run_deleted_is_no_longer_the_last_that_failed(planned: Planned) -> None:
    """A value opens under the key, then two fail: once the first is gone, nothing failed before the one that opens."""
    planned.furnish()
    lost_key(planned, "opens", KEY_1)
    keys = planned.furnish("a", "b")
    planned.make_plan(all="delete")
    ran = planned.work(*DECLARED, "-o", "json")
    assert (ran.code, json.loads(ran.out)["refusal"]["rule"]) == (4, "declaration")
    assert planned.there(keys) == [False, True]
    assert planned.delete(keys[1], *DECLARED).code == 4  # by itself, likewise


def test_no_deletion_speaks_for_the_next_one(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine that fail are no pattern, the tenth makes one: also where the run has deleted the first by then."""
    planned.keyed("aesgcm")
    planned.secrets("aesgcm", ["whole-0", "whole-1"])
    cut = {
        planned.key(f"shop/cut-{n}"): seal("aesgcm", secret(f"cut-{n}"), planned.key(f"shop/cut-{n}"))[:-30]
        for n in range(10)
    }
    *keys, tenth = cut
    planned.etcd.put_all((key, cut[key]) for key in keys)
    planned.make_plan(all="delete")
    accepted = ("--accept", "ends-cached-reads", "--accept", "no-api-server")
    assert planned.work(*accepted, "--dry-run").code == 0
    at_object(monkeypatch, 2, lambda: planned.etcd.put(tenth, cut[tenth]))
    ran = planned.work(*accepted, "-o", "json")
    assert (ran.code, json.loads(ran.out)["refusal"]["rule"]) == (4, "mass-damage"), ran
    assert planned.there([*keys, tenth]) == [False, *[True] * 9]


def test_kube_system_that_is_made_anew_while_somebody_types(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which cluster it is counts when a key's turn comes, not when the run began."""
    keys = planned.to_delete("a", "b")
    confirm = Terminal.confirm_number

    def after_a_while(self: Terminal, number: int, what: str) -> bool:
        _made_anew(planned, keys)
        return confirm(self, number, what)

    monkeypatch.setattr(Terminal, "confirm_number", after_a_while)
    assert planned.work(*DECLARED).code == 4
    assert planned.there(keys) == [True, True]
    planned.agree()


def test_what_opened_and_is_gone_shows_no_key_right(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that open before and after it make damage of one that fails; without them its key may be another one."""
    planned.configure(provider("aesgcm", key1=KEY_1, key2=KEY_2), IDENTITY)
    for name, right in (("a", KEY_1), ("b", KEY_2)):
        for part in ("before", "", "later"):
            key = planned.key(f"shop/{name}{part}")
            used = "key1" if name == "a" else "key2"
            planned.etcd.put(
                key, seal("aesgcm", secret(f"{name}{part}"), key, right if part else bytes(32), used)
            )
    keys = [planned.key("shop/a"), planned.key("shop/b")]
    planned.make_plan(all="delete")

    def take_away() -> None:
        for part in ("before", "later"):
            planned.etcd.delete(planned.key(f"shop/b{part}"))

    accepted = ("--accept", "unproven-damage", "--accept", "no-api-server", "--accept", "ends-cached-reads")
    assert planned.work(*accepted, "--dry-run").code == 0
    at_object(monkeypatch, 2, take_away)
    assert planned.work(*accepted).code == 4
    assert planned.there(keys) == [False, True]


# -- repairs and restores


def test_a_plan_proposes_what_destroys_least_and_the_run_does_it(planned: Planned) -> None:
    flipped, earlier, cut = mixed(planned)
    planned.make_plan()
    decided = {each["key"]: each["decision"] for each in planned.document()["decisions"]}
    assert decided == {flipped.decode(): "fix", earlier.decode(): "fix", cut.decode(): "delete"}
    refused(planned, "--dry-run", code=0)
    assert planned.work("-o", "json").code == 0
    assert planned.outcomes() == {"flipped": "fixed", "earlier": "fixed", "cut": "deleted"}
    with planned.cluster() as cluster:
        for key in (flipped, earlier):
            stored = cluster.source.get(key)
            assert stored is not None
            assert cluster.examiner.examine(stored).verdict.outcome == "readable"
    assert planned.stored(cut) is None
    assert len(planned.kept()) == 3
    assert {event.outcome for event in planned.records() if event.outcome} == {"fixed", "deleted"}


def test_a_revision_that_had_a_lease_is_not_proposed(planned: Planned) -> None:
    """The lease may have run out by then, and would have taken the object with it."""
    _, earlier, _ = mixed(planned)
    planned.grant(earlier, seal("aesgcm", secret("earlier"), earlier))
    planned.etcd.put(earlier, b"k8s:enc:aesgcm:v1:key1:short")
    planned.make_plan()
    (entry,) = [each for each in planned.document()["entries"] if each["key"] == earlier.decode()]
    assert (entry["from"], entry["save"]) == ("", "")
    (decision,) = [each for each in planned.document()["decisions"] if each["key"] == earlier.decode()]
    assert (decision["decision"], "fix" in decision["allowed"]) == ("delete", False)


def test_a_reviewer_who_decides_otherwise(planned: Planned) -> None:
    keys = mixed(planned)
    planned.make_plan(flipped="leave", earlier="delete", cut="leave")
    assert planned.work().code == 0
    assert planned.there(keys) == [True, False, True]


def test_an_earlier_revision_that_was_compacted_meanwhile(planned: Planned) -> None:
    _flipped, earlier, cut = mixed(planned)
    planned.make_plan()
    planned.etcd.compact()
    ran = planned.work("-o", "json")
    assert ran.code in {4, 5}, ran
    assert json.loads(ran.out)["stopped_at"] == earlier.decode()
    assert planned.stored(earlier) == b"k8s:enc:aesgcm:v1:key1:short"
    assert (planned.stored(cut) is None) == (planned.outcomes()["cut"] == "deleted")
