"""Runs over many keys that somebody tries to turn against healthy objects, or that meet the unexpected midway."""

from __future__ import annotations

import json
import shlex

import pytest

from etcdfix.cli.output import Terminal
from etcdfix.copies.rescued import INDEX_NAME
from etcdfix.examine.verdicts.deletability import protected_reason
from etcdfix.model.model import GroupResource
from etcdfix.remediation import present as present_module
from etcdfix.remediation.members import ActiveAlarm, AlarmKind
from etcdfix.remediation.saved_objects import RescueRecord
from etcdfix.testing.servers import EtcdServers
from tests.support.attacks import TRUE, seal
from tests.support.audit_logs import own_directory
from tests.support.change_runs import ACKNOWLEDGED, Ran, follow_up, typing
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, namespace_object, provider, secret
from tests.support.plan_runs import DECLARED, LOST, Planned, at_object, mixed

pytestmark = pytest.mark.etcd


def test_a_run_deletes_what_the_plan_decides(planned: Planned) -> None:
    keys = planned.furnish("a", "b", "c")
    planned.make_plan()
    assert planned.outcomes() == {"a": "", "b": "", "c": ""}
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
    assert again.code == 0, again
    assert json.loads(again.out)["done_before"] == 2
    assert planned.there(keys) == [False, False, True]


def test_a_dry_run_checks_everything_and_changes_nothing(planned: Planned) -> None:
    keys = planned.to_delete("a", "b")
    before, plan = planned.etcd.revision(), planned.plan.read_bytes()
    ran = planned.work(*DECLARED, "--dry-run", "-o", "json")
    assert ran.code == 0, ran
    assert [each["result"] for each in json.loads(ran.out)["objects"]] == ["dry-run", "dry-run"]
    assert (planned.etcd.revision(), planned.plan.read_bytes()) == (before, plan)
    assert planned.there(keys) == [True, True]
    assert [event.type for event in planned.records()] == ["dry-run", "dry-run"]
    assert not planned.kept()


def test_a_warning_of_a_check_is_told_once(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    planned.to_delete("a", "b")
    left = iter(range(2, 0, -1))
    monkeypatch.setattr(
        present_module,
        "read_alarms",
        lambda _client: (ActiveAlarm(AlarmKind.UNKNOWN, f"member ({next(left)})"),),
    )
    ran = planned.work(*DECLARED)
    assert ran.code == 0, ran
    assert ran.err.count("has raised the alarm unknown") == 1


# -- confirmation


def refused(ran: Ran, *words: str) -> None:
    assert ran.code == 4, ran
    for word in words:
        assert word in ran.err, (word, ran.err)


def test_without_a_terminal_nothing_is_confirmed(planned: Planned) -> None:
    planned.to_delete("a", "b")
    plan = planned.plan.read_bytes()
    with planned.nothing_changes():
        refused(planned.work(*DECLARED, reviewed=False), "2, the number of objects that would be deleted")
        refused(
            planned.work(*DECLARED, "--expect-plan", planned.digest, reviewed=False), "was not typed back"
        )
    assert planned.plan.read_bytes() == plan


def test_yes_needs_the_digest_of_the_plan(planned: Planned) -> None:
    planned.to_delete("a", "b")
    with planned.nothing_changes():
        for more in ((), ("--dry-run",)):
            ran = planned.work(*DECLARED, "--yes", *more, reviewed=False)
            assert (ran.code, "--expect-plan" in ran.err) == (2, True), ran


@pytest.mark.parametrize("digest", ["", "sha256:", "content", "shorter", "upper", "another"])
def test_a_digest_that_is_not_the_plans(planned: Planned, digest: str) -> None:
    """Also the digest of what the plan found, without what was decided."""
    planned.to_delete("a", "b")
    right = planned.digest
    wrong = {
        "content": planned.document()["content_sha256"],
        "shorter": right[:-1],
        "upper": right.upper(),
        "another": f"sha256:{'0' * 64}",
    }.get(digest, digest)
    with planned.nothing_changes():
        for more in ((), ("--dry-run",)):
            ran = planned.work(*DECLARED, "--yes", "--expect-plan", wrong, *more, reviewed=False)
            if digest in {"content", "another"}:
                refused(ran, "not those that --expect-plan names")
            else:
                assert (ran.code, "is no digest" in ran.err) == (2, True), ran


@pytest.mark.parametrize("typed", [False, True])
def test_a_plan_that_is_decided_otherwise_after_its_review(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, typed: bool
) -> None:
    keys = planned.furnish("a", "b")
    planned.make_plan(a="delete")
    arguments = planned.arguments(*DECLARED)
    planned.decide(b="delete")
    with planned.nothing_changes(), typing(monkeypatch, LOST, "2"):
        words = [word for word in arguments if word != "--yes"] if typed else arguments
        refused(planned.run(*words), "not those that --expect-plan names")
    planned.decide(b="leave")
    with typing(monkeypatch, LOST):
        assert planned.run(*arguments).code == 0
    assert planned.there(keys) == [False, True]


def test_a_plan_made_anew_after_its_review(planned: Planned) -> None:
    planned.to_delete("a", "b")
    arguments = planned.arguments(*DECLARED)
    planned.put("shop/more", aescbc(secret("more"), KEY_2, "key2"))
    planned.make_plan(all="delete")
    with planned.nothing_changes():
        refused(planned.run(*arguments), "not those that --expect-plan names")


def test_the_review_prints_the_command(planned: Planned) -> None:
    """Making the plan names the dry run, and the dry run names the command for scripts, as it was typed."""
    keys = planned.to_delete("a", "b")
    assert f"plan {planned.first_digest}; review it, then: etcdfix plan --run {planned.plan} " in planned.said
    dry = planned.work(*DECLARED, "--leave-out", keys[1].decode(), "--dry-run", reviewed=False)
    assert f"Digest  {planned.digest}, of the plan and its decisions" in dry.err
    assert "To delete  1: 1 secrets" in dry.err
    assert "Left alone  1 object, as the plan or --leave-out says" in dry.err
    line = follow_up(dry.out, "Work through it in a script").removeprefix("etcdfix ")
    words = shlex.split(line)
    assert words[-3:] == ["--yes", "--expect-plan", planned.digest]
    ran = planned.run(*words)
    assert ran.code == 0, ran
    assert f"--expect-plan {planned.digest}" in planned.records()[-1].accepted
    assert planned.there(keys) == [False, True]
    planned.agree()


@pytest.mark.parametrize(("number", "code"), [("2", 0), ("3", 4), ("2 ", 4), ("", 4), ("y", 4)])
def test_the_number_typed_at_a_terminal(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, number: str, code: int
) -> None:
    keys = planned.to_delete("a", "b")
    with typing(monkeypatch, LOST, number):
        assert planned.work(*DECLARED, reviewed=False).code == code
    assert planned.there(keys) == [bool(code), bool(code)]


def test_what_is_typed_is_the_number_of_deletions_where_there_are_any(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = mixed(planned)
    planned.make_plan()
    with planned.nothing_changes(), typing(monkeypatch, "3"):
        refused(planned.work(reviewed=False), "1, the number of objects that would be deleted")
    planned.decide(cut="leave")
    with planned.nothing_changes(), typing(monkeypatch, "0"):
        refused(planned.work(reviewed=False), "2, the number of objects that would be changed")
    with typing(monkeypatch, "2"):
        assert planned.work(reviewed=False).code == 0
    assert planned.there(keys) == [True] * 3
    planned.decide(cut="delete")
    with typing(monkeypatch, "1"):
        assert planned.work(reviewed=False).code == 0
    assert planned.there(keys) == [True, True, False]


def test_a_run_that_goes_on_asks_for_what_is_left(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest stays that of the review: what a run writes into the plan is not part of it."""
    keys = planned.to_delete("a", "b", "c")
    arguments, digest = planned.arguments(*DECLARED), planned.digest

    def end() -> None:
        raise KeyboardInterrupt

    at_object(monkeypatch, 2, end)
    assert planned.run(*arguments).code == 130
    monkeypatch.undo()
    assert planned.there(keys) == [False, True, True]
    assert planned.digest == digest
    with planned.nothing_changes(), typing(monkeypatch, LOST, "3"):
        refused(planned.work(*DECLARED, reviewed=False), "2, the number of objects that would be deleted")
    monkeypatch.undo()
    assert planned.run(*arguments).code == 0
    assert planned.there(keys) == [False] * 3
    assert planned.run(*arguments).code == 0  # nothing is left
    planned.agree()


def test_a_lost_key_that_is_mistyped(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with --yes: at a terminal its name is always typed."""
    planned.to_delete("a", "b")
    for reviewed in (False, True):
        with planned.nothing_changes(), typing(monkeypatch, "aescbc/v1/key1", "2"):
            refused(planned.work(*DECLARED, reviewed=reviewed), "the lost key was not typed back")


def protected(planned: Planned) -> bytes:
    """Put a broken Secret into kube-system."""
    key = planned.key("kube-system/token")
    planned.etcd.put(key, aescbc(secret("token"), KEY_2, "key2"))
    return key


def test_a_protected_object_is_typed_by_itself(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = planned.furnish("a", "b")
    key = protected(planned)
    planned.make_plan(all="delete")
    accepted = (*DECLARED, "--accept", "cluster-breaking")
    with planned.nothing_changes():
        refused(planned.work(*DECLARED), "needs --accept cluster-breaking", "--leave-out")
        with typing(monkeypatch, LOST, "3", key.decode()):
            refused(planned.work(*DECLARED, reviewed=False), "needs --accept cluster-breaking")
        with typing(monkeypatch, LOST, "2", key.decode()):
            refused(planned.work(*accepted, reviewed=False), "3, the number")
        with typing(monkeypatch, LOST, "3", key.decode().upper()):
            refused(planned.work(*accepted, reviewed=False), "is protected")
        with typing(monkeypatch, LOST, "3", "3"):
            refused(planned.work(*accepted, reviewed=False), "is protected")
    with typing(monkeypatch, LOST, "3", key.decode()):
        assert planned.work(*accepted, reviewed=False).code == 0
    assert planned.there([*keys, key]) == [False, False, False]


def test_a_protected_object_in_a_script(planned: Planned) -> None:
    keys = planned.furnish("a", "b")
    key = protected(planned)
    planned.make_plan(all="delete")
    assert planned.work(*DECLARED, "--accept", "cluster-breaking").code == 0
    assert planned.there([*keys, key]) == [False, False, False]


def test_a_protected_object_that_is_left_out(planned: Planned) -> None:
    keys = planned.furnish("a", "b")
    key = protected(planned)
    planned.make_plan(all="delete")
    assert planned.work(*DECLARED, "--leave-out", key.decode()).code == 0
    assert planned.there([*keys, key]) == [False, False, True]
    with planned.nothing_changes():  # it was left out of that run, and the plan still decides on it
        refused(planned.work(*DECLARED), "needs --accept cluster-breaking")


def test_what_ends_the_memory_of_api_servers_is_asked_once_for_the_plan(planned: Planned) -> None:
    keys = planned.to_delete("a", "b")
    ends = "--accept ends-cached-reads"
    assert all(ends in entry["needs"] for entry in planned.document()["entries"])
    with planned.nothing_changes():
        refused(planned.work(*DECLARED[:-2]), f"needs {ends}")
    ran = planned.work(*DECLARED)
    assert ran.code == 0, ran
    assert planned.there(keys) == [False, False]


def test_what_was_saved_is_read_from_the_log_that_the_run_writes(planned: Planned) -> None:
    """A run holds the lock of its log, and does not wait for itself."""
    keys = planned.to_delete("a", "b")
    rescued = own_directory(planned.folder / "rescued")
    (rescued / INDEX_NAME).write_bytes(b"")
    RescueRecord(planned.places, rescued, cluster_uid="", resources=["secrets"]).announce("all")
    ran = planned.work(*DECLARED, "--rescued", str(rescued))
    assert ran.code == 0, ran
    assert planned.there(keys) == [False, False]


# -- the plan


def test_decisions_that_are_none(planned: Planned) -> None:
    keys = planned.furnish("a", "b")
    planned.make_plan()
    for word in ("remove", "", "fix", "repair", "DELETE"):
        planned.decide(a=word)
        with planned.nothing_changes():
            ran = planned.work(*DECLARED)
        assert ran.code == 2, (word, ran)
        assert "none of delete, leave" in ran.err
        assert len(ran.err.splitlines()) <= 3
    document = planned.document()
    document["decisions"][0]["allowed"] = ["delete", "fix", "leave"]
    document["decisions"][0]["decision"] = "fix"
    planned.plan.write_text(json.dumps(document))
    with planned.nothing_changes():
        assert planned.work(*DECLARED).code == 2
    assert planned.there(keys) == [True, True]


@pytest.mark.parametrize("edit", ["doubled", "swapped", "other key", "dropped", "no decisions", "entry"])
def test_a_plan_that_was_edited(planned: Planned, edit: str) -> None:
    planned.to_delete("a", "b")
    document = planned.document()
    decisions = document["decisions"]
    if edit == "doubled":
        decisions.append(decisions[0])
    elif edit == "swapped":
        decisions.reverse()
    elif edit == "other key":
        decisions[0]["key"] = planned.key("shop/healthy-0").decode()
    elif edit == "dropped":
        del decisions[0]
    elif edit == "no decisions":
        del document["decisions"]
    else:
        document["entries"][0]["key"] = planned.key("shop/healthy-0").decode()
        decisions[0]["key"] = planned.key("shop/healthy-0").decode()
    planned.plan.write_text(json.dumps(document))
    with planned.nothing_changes():
        ran = planned.work(*DECLARED)
    assert ran.code == (2 if edit in {"entry", "no decisions"} else 4), ran


def test_a_plan_of_nothing(planned: Planned) -> None:
    keys = planned.furnish("a", "b")
    planned.make_plan()
    for key in keys:
        planned.etcd.delete(key)
    planned.put("broken", b"k8s:enc:aescbc:v1:key1:short")
    planned.make_plan(all="leave")
    with planned.nothing_changes():
        ran = planned.work("-o", "json")
    assert ran.code == 0, ran
    assert json.loads(ran.out)["left"] == 0


def test_a_plan_behind_a_link(planned: Planned) -> None:
    planned.to_delete("a", "b")
    real = planned.folder / "real.json"
    planned.plan.rename(real)
    planned.plan.symlink_to(real)
    with planned.nothing_changes():
        assert planned.work(*DECLARED).code in {2, 4}


# -- what is live


def test_a_configuration_that_reads_them(planned: Planned) -> None:
    """The plan was made with the wrong one: another digest, so that nothing of it counts."""
    planned.to_delete("a", "b")
    planned.configure(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)
    with planned.nothing_changes():
        refused(planned.work(*DECLARED), "another encryption configuration")


@pytest.mark.parametrize("how", ["the key is found", "it is moved away"])
def test_a_configuration_that_somebody_changes_during_the_run(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    keys = planned.to_delete("a", "b", "c")

    def change() -> None:
        if how == "it is moved away":
            planned.config.rename(planned.folder / "elsewhere.yaml")
        else:
            planned.configure(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)

    at_object(monkeypatch, 2, change)
    refused(planned.work(*DECLARED), "is not what it was when the run began", "make a new plan")
    assert planned.there(keys) == [False, False, True]
    planned.agree()


def test_a_declaration_of_what_is_done_does_not_hinder_the_rest(planned: Planned) -> None:
    """The same command goes on, though nothing is left of one of the lost keys."""
    keys = planned.furnish("a", "b")
    broken = planned.put("shop/broken", b"k8s:enc:aescbc:v1:key1:short")
    planned.make_plan(all="delete")
    assert planned.work(*DECLARED, "--leave-out", broken.decode()).code == 0
    planned.decide(broken="delete")
    with planned.nothing_changes():
        ran = planned.work(*DECLARED, "--declare-key-lost", "aescbc/v1/key9")
        refused(ran, "aescbc/v1/key9 names no encryption key")
    ran = planned.work(*DECLARED)
    assert ran.code == 0, ran
    assert planned.there([*keys, broken]) == [False] * 3
    planned.agree()


def test_another_cluster_in_the_same_etcd(planned: Planned) -> None:
    planned.to_delete("a", "b")
    planned.put("kube-system", namespace_object("kube-system", "another-uid"), resource="namespaces")
    with planned.nothing_changes():
        refused(planned.work(*DECLARED), "the plan is of the cluster")


def test_another_etcd_with_the_same_cluster(planned: Planned, etcd_servers: EtcdServers) -> None:
    """As after a snapshot was restored beside it: same uid, same keys."""
    planned.to_delete("a", "b")
    other = etcd_servers.start()
    try:
        with planned.source() as source:
            other.put_all((stored.key, stored.value) for stored in source.current(planned.prefix.encode()))
        planned.endpoints = other.endpoint
        before = other.revision()
        refused(planned.work(*DECLARED), "the plan is of another etcd")
        assert other.revision() == before
    finally:
        other.stop()


@pytest.mark.parametrize("now", [None, b"k8s:enc:aesgcm:v1:key1:shorter"])
def test_what_changed_since_the_plan_is_not_put_back(planned: Planned, now: bytes | None) -> None:
    """Only a person brings back what somebody deleted after the review."""
    _flipped, earlier, _cut = mixed(planned)
    planned.make_plan(all="leave", earlier="fix")
    if now is None:
        planned.etcd.delete(earlier)
    else:
        planned.etcd.put(earlier, now)
    for more in ([], ["--dry-run"]):
        ran = planned.work("--accept", "no-api-server", *more)
        assert ran.code == 4, ran
        assert ("was deleted after the plan was made" if now is None else "stands at mod_revision") in ran.err
        assert planned.stored(earlier) == now
    assert planned.outcomes()["earlier"] == ""


@pytest.mark.parametrize("now", ["gone", "written again", "healthy"])
def test_a_key_that_changed_since_the_plan(planned: Planned, now: str) -> None:
    keys = planned.to_delete("a", "b", "c")
    healthy = aescbc(secret("b"))
    if now == "gone":
        planned.etcd.delete(keys[1])
    elif now == "written again":
        planned.etcd.put(keys[1], aescbc(secret("b"), KEY_2, "key2"))
    else:
        planned.etcd.put(keys[1], healthy)
    ran = planned.work(*DECLARED, "-o", "json")
    assert ran.code == 4, ran
    document = json.loads(ran.out)
    assert document["stopped_at"] == keys[1].decode()
    assert document["left"] == 2
    assert f"--leave-out {keys[1].decode()}" in document["refusal"]["next_step"]
    assert planned.stored(keys[0]) is None
    assert planned.stored(keys[2]) is not None
    if now == "healthy":
        assert planned.stored(keys[1]) == healthy
    assert planned.outcomes() == {"a": "deleted", "b": "", "c": ""}
    ran = planned.work(*DECLARED, "--leave-out", keys[1].decode())
    if now == "healthy":
        # Under the lost key nothing opens, but one failing value alone is no pattern: it is declared all the same.
        assert planned.stored(keys[1]) == healthy
    assert ran.code == 0, ran
    assert planned.stored(keys[2]) is None


# -- what happens in the middle


def test_a_writer_that_has_the_lost_key(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that opens under the key, written before the next target and after the failing ones: it was not lost."""
    keys = planned.furnish("a", "b", "c")
    late = planned.key("shop/zz")
    planned.etcd.put(planned.key("shop/y"), aescbc(secret("y"), KEY_1, "key2"))
    planned.etcd.put(late, aescbc(secret("zz"), KEY_2, "key2"))
    planned.make_plan(all="delete")
    ran = planned.work(*DECLARED)
    assert ran.code == 4, ran
    assert planned.stored(late) is not None
    assert planned.there(keys) in ([False] * 3, [True] * 3)


def test_what_the_run_deleted_is_no_longer_the_last_that_failed(planned: Planned) -> None:
    """A value opens under the key, then two fail: once the first is gone, nothing failed before the one that opens."""
    planned.furnish()
    planned.etcd.put(planned.key("shop/opens"), aescbc(secret("opens"), KEY_1, "key2"))
    keys = planned.furnish("a", "b")
    planned.make_plan(all="delete")
    ran = planned.work(*DECLARED)
    assert ran.code == 4, ran
    assert "opens under the same key" in ran.err
    assert planned.there(keys) == [False, True]
    assert planned.delete(keys[1], *DECLARED).code == 4  # by itself, likewise


def test_values_that_begin_to_open_under_the_lost_key(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server that has other bytes of key2 writes: what fails is too few to be a pattern then, or is no loss."""
    keys = planned.to_delete("a", "b", "c", "d")

    def write() -> None:
        # Many read under the key now: what fails may be damage, and of each that has to be shown.
        planned.etcd.put_all(
            (planned.key(f"shop/new-{n}"), aescbc(secret(f"new-{n}"), KEY_1, "key2")) for n in range(5)
        )
        planned.etcd.put(keys[2], aescbc(secret("c"), KEY_1, "key2"))

    at_object(monkeypatch, 3, write)
    ran = planned.work(*DECLARED)
    assert ran.code == 4, ran
    assert planned.there(keys) == [False, False, True, True]
    assert planned.stored(keys[2]) == aescbc(secret("c"), KEY_1, "key2")
    planned.agree()


def test_a_key_that_is_written_between_the_look_and_its_turn(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = planned.to_delete("a", "b", "c")
    at_object(monkeypatch, 2, lambda: planned.etcd.put(keys[1], aescbc(secret("b"), KEY_2, "key2")))
    refused(planned.work(*DECLARED), "stands at mod_revision")
    assert planned.there(keys) == [False, True, True]
    planned.agree()


def test_no_deletion_speaks_for_the_next_one(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine that fail are no pattern, the tenth makes one: also where the run has deleted the first by then."""
    planned.configure(provider("aesgcm", key1=TRUE), IDENTITY)
    planned.secrets("aesgcm", ["whole-0", "whole-1"])
    names = [f"cut-{number}" for number in range(10)]
    cut = {
        planned.key(f"shop/{name}"): seal("aesgcm", secret(name), planned.key(f"shop/{name}"))[:-30]
        for name in names
    }
    *keys, tenth = cut
    planned.etcd.put_all((key, cut[key]) for key in keys)
    planned.make_plan(all="delete")
    accepted = ("--accept", "ends-cached-reads", "--accept", "no-api-server")
    assert planned.work(*accepted, "--dry-run").code == 0
    at_object(monkeypatch, 2, lambda: planned.etcd.put(tenth, cut[tenth]))
    refused(planned.work(*accepted), "10")
    assert planned.there([*keys, tenth]) == [False, *[True] * 9]


def test_another_value_that_fails_in_the_middle(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is looked at anew, and the run goes on: it changes nothing of what is known of the others."""
    keys = planned.to_delete("a", "b", "c")
    more = planned.key("shop/more")
    at_object(monkeypatch, 2, lambda: planned.etcd.put(more, aescbc(secret("more"), KEY_2, "key2")))
    ran = planned.work(*DECLARED)
    assert ran.code == 0, ran
    assert planned.there([*keys, more]) == [False, False, False, True]
    planned.agree()


def test_kube_system_that_is_made_anew_in_the_middle(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = planned.to_delete("a", "b", "c")

    def replace() -> None:
        planned.etcd.delete(planned.key("kube-system", "namespaces"))
        planned.put("kube-system", namespace_object("kube-system", "another-uid"), resource="namespaces")

    at_object(monkeypatch, 2, replace)
    refused(planned.work(*DECLARED), "cluster")
    assert planned.there(keys) == [False, True, True]
    planned.agree()


def test_kube_system_that_is_made_anew_while_somebody_types(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which cluster it is counts when a key's turn comes, not when the run began."""
    keys = planned.to_delete("a", "b")
    confirm = Terminal.confirm_number

    def after_a_while(self: Terminal, number: int, what: str) -> bool:
        planned.etcd.delete(planned.key("kube-system", "namespaces"))
        planned.put("kube-system", namespace_object("kube-system", "another-uid"), resource="namespaces")
        return confirm(self, number, what)

    monkeypatch.setattr(Terminal, "confirm_number", after_a_while)
    refused(planned.work(*DECLARED), "cluster")
    assert planned.there(keys) == [True, True]
    planned.agree()


@pytest.mark.parametrize("where", ["intent", "outcome"])
def test_ctrl_c_finishes_the_key_at_hand(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    import os
    import signal

    from etcdfix.remediation.audit.log import AuditLog

    keys = planned.to_delete("a", "b", "c")
    seen = 0

    def once(at: int) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGINT)

    append = AuditLog.append_draft
    at = 3 if where == "intent" else 4

    def appended(self: AuditLog, draft: object) -> object:
        found = append(self, draft)  # type: ignore[arg-type]
        once(at)
        return found

    monkeypatch.setattr(AuditLog, "append_draft", appended)
    ran = planned.work(*DECLARED)
    assert ran.code == 130, ran
    assert planned.there(keys) == [False, False, True]
    planned.agree()
    assert planned.outcomes() == {"a": "deleted", "b": "deleted", "c": ""}
    assert "Dealt with 2 of 3; 1 left." in ran.out
    assert "The same command goes on from there." in ran.out
    assert "Stopped at" not in ran.out  # b is done
    monkeypatch.undo()
    assert planned.work(*DECLARED).code == 0
    planned.agree()
    assert planned.there(keys) == [False] * 3


def test_what_opened_and_is_gone_shows_no_key_right(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that open before and after it make damage of one that fails; without them its key may be another one."""
    planned.configure(provider("aesgcm", key1=KEY_1, key2=KEY_2), IDENTITY)
    for name in ("a", "b"):
        right = KEY_1 if name == "a" else KEY_2
        for part in ("before", "", "later"):
            key = planned.key(f"shop/{name}{part}")
            value = seal(
                "aesgcm",
                secret(f"{name}{part}"),
                key,
                right if part else bytes(32),
                f"key{1 + (name == 'b')}",
            )
            planned.etcd.put(key, value)
    keys = [planned.key("shop/a"), planned.key("shop/b")]
    planned.make_plan(all="delete")

    def take_away() -> None:
        for part in ("before", "later"):
            planned.etcd.delete(planned.key(f"shop/b{part}"))

    accepted = ("--accept", "unproven-damage", "--accept", "no-api-server", "--accept", "ends-cached-reads")
    assert planned.work(*accepted, "--dry-run").code == 0
    at_object(monkeypatch, 2, take_away)
    ran = planned.work(*accepted)
    assert ran.code == 4, ran
    assert planned.there(keys) == [False, True]


# -- repairs and restores


def test_a_plan_proposes_what_destroys_least_and_the_run_does_it(planned: Planned) -> None:
    flipped, earlier, cut = mixed(planned)
    planned.make_plan()
    decided = {each["key"]: each["decision"] for each in planned.document()["decisions"]}
    assert decided == {flipped.decode(): "fix", earlier.decode(): "fix", cut.decode(): "delete"}
    dry = planned.work("--dry-run", "-o", "json")
    assert dry.code == 0, dry
    ran = planned.work("-o", "json")
    assert ran.code == 0, ran
    assert planned.outcomes() == {"flipped": "fixed", "earlier": "fixed", "cut": "deleted"}
    with planned.cluster() as cluster:
        for key in (flipped, earlier):
            stored = cluster.source.get(key)
            assert stored is not None
            assert cluster.examiner.examine(stored).verdict.outcome == "readable"
    assert planned.stored(cut) is None
    assert "read back" not in ran.err  # all is well: no warning
    assert len(planned.kept()) == 3
    planned.work()
    assert {event.outcome for event in planned.records() if event.outcome} == {
        "fixed", "deleted",
    }  # fmt: skip


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
    flipped, earlier, cut = mixed(planned)
    planned.make_plan(flipped="leave", earlier="delete", cut="leave")
    assert planned.work().code == 0
    assert planned.there([flipped, earlier, cut]) == [True, False, True]


def test_a_dry_run_tells_of_repairs_that_nothing_proves(planned: Planned) -> None:
    """As the dry run of the deletion of one key does: a reviewer has not seen them in the plan."""
    planned.configure(provider("aescbc", key1=KEY_1), IDENTITY)
    for name in ("healthy-0", "healthy-1"):
        planned.put(f"shop/{name}", aescbc(secret(name), KEY_1, "key1"))
    value = aescbc(secret("flipped"), KEY_1, "key1")
    key = planned.put("shop/flipped", value[:-40] + bytes([value[-40] ^ 1]) + value[-39:])
    planned.put("shop/healthy-2", aescbc(secret("healthy-2"), KEY_1, "key1"))
    planned.make_plan(all="delete")
    with planned.nothing_changes():
        ran = planned.work("--dry-run", "--accept", "unproven-damage", "--accept", "no-api-server")
    assert ran.code == 0, ran
    assert f"DRY RUN: {key.decode()} would be deleted" in ran.out
    assert "May repair: " in ran.out


def test_an_earlier_revision_that_was_compacted_meanwhile(planned: Planned) -> None:
    _flipped, earlier, cut = mixed(planned)
    planned.make_plan()
    planned.etcd.compact()
    ran = planned.work("-o", "json")
    assert ran.code in {4, 5}, ran
    assert json.loads(ran.out)["stopped_at"] == earlier.decode()
    assert planned.stored(earlier) == b"k8s:enc:aesgcm:v1:key1:short"
    assert (planned.stored(cut) is None) == (planned.outcomes()["cut"] == "deleted")


# -- protected meanwhile


def test_a_dependent_that_makes_a_key_protected_in_the_middle(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cluster-breaking was accepted for the one object that the plan calls protected, and for no other."""
    keys = planned.furnish("a", "b", "c")
    key = protected(planned)
    planned.make_plan(all="delete")

    def reason(resource: GroupResource, namespace: str) -> str:
        gone = len(keys) + 1 - sum(planned.there([*keys, key]))
        return "a webhook of everything needs it" if gone == 1 else protected_reason(resource, namespace)

    monkeypatch.setattr(present_module, "protected_reason", reason)
    accepted = ("--accept", "cluster-breaking")
    ran = planned.work(*DECLARED, *accepted, "-o", "json")
    assert ran.code == 4, ran
    document = json.loads(ran.out)
    assert document["refusal"]["rule"] == "cluster-breaking"
    assert document["refusal"]["command"] == ""
    assert "goes through" not in ran.err
    assert len(document["objects"]) == 1
    assert sum(planned.there([*keys, key])) == 3
    planned.agree()


# -- full disks


@pytest.mark.parametrize("where", ["backup", "audit log"])
def test_a_place_that_takes_no_more(planned: Planned, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    from etcdfix.remediation import durable
    from etcdfix.remediation.audit import log as log_module

    keys = planned.to_delete("a", "b", "c")
    count = 0

    def fails(real: object, most: int) -> object:
        def announced(step: object, name: str, action: str) -> object:
            nonlocal count
            if name == where and action.startswith("write"):
                count += 1
                if count == most:
                    raise OSError(28, "No space left on device")
            return real(step, name, action)  # type: ignore[operator]

        return announced

    if where == "audit log":
        monkeypatch.setattr(log_module, "announced", fails(durable.announced, 3))
    else:
        monkeypatch.setattr(durable, "announced", fails(durable.announced, 2))
    ran = planned.work(*DECLARED)
    assert ran.code == 4, ran
    assert planned.there(keys) == [False, True, True]
    monkeypatch.undo()
    ran = planned.work(*DECLARED)
    assert ran.code == 0, ran
    planned.agree()
    assert planned.outcomes() == dict.fromkeys("abc", "deleted")


def test_the_runs_of_one_plan_are_recorded_in_one_log(planned: Planned) -> None:
    planned.furnish("a", "b")
    planned.make_plan(a="delete")
    assert planned.work(*DECLARED).code == 0
    planned.decide(b="delete")
    first, planned.log = planned.log, planned.log.with_name("other.jsonl")
    assert first.exists()
    with planned.nothing_changes():  # what the other log tells is met as a surprise
        refused(planned.work(*DECLARED), "does not exist", "name the --audit-log of that one")


def test_a_snapshot_is_no_source_of_a_run(planned: Planned) -> None:
    planned.to_delete("a", "b")
    snapshot = planned.folder / "snapshot.db"
    planned.etcd.etcdctl("snapshot", "save", snapshot)
    arguments = ["plan", "--run", str(planned.plan), ACKNOWLEDGED, "--snapshot", str(snapshot)]
    with planned.nothing_changes():
        ran = planned.run(*arguments, *planned.common()[4:])
    assert ran.code == 2, ran
    assert "--snapshot" in ran.err


def test_hostile_names_of_keys(planned: Planned) -> None:
    """Names of encryption keys come from whoever wrote the value."""
    hostile = "key2\x1b[31m/../x=9"
    planned.configure(provider("aescbc", key1=KEY_1), IDENTITY)
    planned.etcd.put_all(
        (planned.key(f"shop/{name}"), aescbc(secret(name), KEY_2, hostile)) for name in ("a", "b")
    )
    planned.make_plan(all="delete")
    ran = planned.work("--accept", "no-api-server")
    assert ran.code in {2, 4}, ran
    assert "\x1b" not in ran.out + ran.err


def test_a_plan_that_is_made_anew_during_its_run(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = planned.to_delete("a", "b")
    old = planned.plan.read_bytes()
    newer = json.loads(old)

    def replace() -> None:
        planned.etcd.put(planned.key("shop/more"), aescbc(secret("more"), KEY_2, "key2"))
        planned.make_plan()

    at_object(monkeypatch, 2, replace)
    assert planned.work(*DECLARED).code == 0  # what was confirmed is done, and nothing of the new one
    assert planned.document()["content_sha256"] != newer["content_sha256"]
    assert planned.there(keys) == [False, False]
    assert set(planned.outcomes().values()) == {""}


def test_a_decision_that_is_made_during_the_run_counts_for_the_next(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = planned.furnish("a", "b")
    planned.make_plan(a="delete")
    at_object(monkeypatch, 1, lambda: planned.decide(b="delete"))
    assert planned.work(*DECLARED).code == 0
    assert planned.there(keys) == [False, True]
    monkeypatch.undo()
    assert planned.work(*DECLARED).code == 0
    assert planned.there(keys) == [False, False]
    planned.agree()
