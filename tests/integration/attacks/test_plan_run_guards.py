"""Guards of a run that no other test would miss: how it ends, what it takes from the log, what it asks before."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import msgspec
import pytest

from etcdfix.commands import fix as fix_module
from etcdfix.commands.planning import run as module
from etcdfix.remediation import settle as settling
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Result
from etcdfix.remediation.settle import settle_intent
from tests.support.lossy_etcd import TXN, LossyProxy
from tests.support.objects import namespace_object
from tests.support.plan_runs import DECLARED, Planned, mixed, not_written

pytestmark = pytest.mark.etcd


def at_record(monkeypatch: pytest.MonkeyPatch, number: int, happens: Callable[[], object]) -> None:
    """Let something happen right after the so-manieth record of the log."""
    append, seen = AuditLog.append_draft, 0

    def appended(self: AuditLog, draft: object) -> object:
        nonlocal seen
        found = append(self, draft)  # type: ignore[arg-type]
        seen += 1
        if seen == number:
            happens()
        return found

    monkeypatch.setattr(AuditLog, "append_draft", appended)


# -- how it ends


@pytest.mark.parametrize(
    ("sent", "code", "record"),
    [(signal.SIGINT, 130, 1), (signal.SIGINT, 130, 2), (signal.SIGTERM, 143, 1), (signal.SIGHUP, 129, 1)],
)
def test_a_signal_ends_it_after_the_key_at_hand(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals, code: int, record: int
) -> None:
    """At its intent, or at its outcome; the same command goes on from there."""
    keys = planned.to_delete("a", "b")
    at_record(monkeypatch, record, lambda: os.kill(os.getpid(), sent))
    ran = planned.work(*DECLARED)
    assert ran.code == code, ran
    assert planned.there(keys) == [False, True]
    assert planned.outcomes() == {"a": "deleted", "b": ""}
    planned.agree()
    monkeypatch.undo()
    assert planned.work(*DECLARED).code == 0
    assert planned.there(keys) == [False, False]


def test_the_time_of_the_whole_run_goes_on_from_key_to_key(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned.to_delete("a", "b", "c")
    left: list[float] = []
    change = module._Work._change

    def changed(self: object, task: object, log: object) -> object:
        left.append(signal.getitimer(signal.ITIMER_REAL)[0])
        return change(self, task, log)  # type: ignore[arg-type]

    monkeypatch.setattr(module._Work, "_change", changed)
    assert planned.work(*DECLARED, "--timeout", "1h").code == 0
    assert 3600 > left[0] > left[1] > left[2] > 0
    left.clear()
    assert planned.work(*DECLARED).code == 0
    assert left == []


def test_a_timeout_that_is_over_ends_it_between_two_keys(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = planned.to_delete("a", "b")
    at_record(monkeypatch, 2, lambda: signal.setitimer(signal.ITIMER_REAL, 0))

    def over(_self: object) -> None:
        if not planned.there(keys)[0]:
            signal.raise_signal(signal.SIGALRM)

    monkeypatch.setattr(module._Work, "_require_same_configuration", over)
    ran = planned.work(*DECLARED, "--timeout", "1h", "-o", "json")
    assert ran.code == 3, ran
    document = json.loads(ran.out)
    assert (document["left"], document["exit_code"]) == (1, 3)
    assert planned.there(keys) == [False, True]
    planned.agree()


def test_a_repair_that_is_not_read_back_as_written(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done, and on record; the run stops all the same, so that somebody looks at it."""
    mixed(planned)
    planned.make_plan()
    order = [each["key"] for each in planned.document()["decisions"] if each["decision"] == "fix"]
    doubtful = {"doubtful": True, "warnings": ("it is not what was written",)}
    monkeypatch.setattr(
        fix_module, "_read_back", lambda _change, outcome, _step: msgspec.structs.replace(outcome, **doubtful)
    )
    ran = planned.work("-o", "json", "--leave-out", planned.key("shop/cut").decode())
    assert ran.code == 3, ran
    document = json.loads(ran.out)
    assert (document["stopped_at"], document["left"]) == (order[0], 1)
    first, second = (planned.outcomes()[key.rpartition("/")[2]] for key in order)
    assert (first, second) == ("fixed", "")


def test_an_answer_of_etcd_that_is_lost(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is gone, and nobody can tell by whom: the run stops there, and the next one takes it from the log."""
    keys = planned.to_delete("a", "b", "c")
    with LossyProxy(planned.etcd.endpoint) as proxy:
        planned.endpoints = proxy.endpoint
        at_record(monkeypatch, 3, lambda: proxy.lost.add(TXN))
        ran = planned.work(*DECLARED, "-o", "json")
        assert ran.code == 3, ran
        document = json.loads(ran.out)
        assert [each["result"] for each in document["objects"]] == ["deleted", "applied-or-gone"]
        assert (document["stopped_at"], document["left"]) == (keys[1].decode(), 2)
        assert planned.there(keys) == [False, False, True]
        assert planned.outcomes() == {"a": "deleted", "b": "applied-or-gone", "c": ""}
        proxy.lost.clear()
        assert planned.work(*DECLARED).code == 0
    planned.agree()
    assert planned.outcomes() == {"a": "deleted", "b": "applied-or-gone", "c": "deleted"}


# -- what it takes from the log


def test_a_dry_run_settles_nothing(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    planned.to_delete("a", "b")
    not_written(monkeypatch, 2)
    assert planned.work(*DECLARED).code == 3
    monkeypatch.undo()
    plan, records = planned.plan.read_bytes(), len(planned.records())
    with planned.nothing_changes():
        assert planned.work(*DECLARED, "--dry-run").code == 4  # the first one is gone
    assert planned.plan.read_bytes() == plan
    assert {event.type for event in planned.records()[records:]} <= {"dry-run"}
    assert planned.run("log", "verify", str(planned.log)).code == 3


def test_an_open_intent_of_another_cluster(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """One log may be that of many clusters, whose keys are called the same."""
    keys = planned.to_delete("a", "b")
    not_written(monkeypatch, 2)
    assert planned.work(*DECLARED).code == 3
    monkeypatch.undo()
    planned.etcd.delete(planned.key("kube-system", "namespaces"))
    planned.put("kube-system", namespace_object("kube-system", "another-uid"), resource="namespaces")
    planned.to_delete("a", "b")
    ran = planned.work(*DECLARED)
    assert ran.code == 0, ran
    assert planned.there(keys) == [False, False]
    assert planned.run("log", "verify", str(planned.log)).code == 3


def test_a_plan_whose_file_is_called_like_another(planned: Planned) -> None:
    """The log names the file and the digest of a plan; a name that ends in another digest settles nothing for that."""
    keys = planned.to_delete("a", "b")
    first = planned.plan.rename(planned.folder / "first.json")
    digest = json.loads(first.read_bytes())["content_sha256"]
    planned.put("shop/more", b"k8s:enc:aescbc:v1:key1:short")
    planned.make_plan(a="delete", b="delete", more="leave")
    assert planned.document()["content_sha256"] != digest
    arguments = planned.arguments(*DECLARED)
    named = planned.plan.rename(planned.folder / f"plan ({digest})")
    ran = planned.run(*(str(named) if word == str(planned.plan) else word for word in arguments))
    assert ran.code == 0, ran
    assert planned.furnish("a", "b") == keys
    first.rename(planned.plan)
    with planned.nothing_changes():
        ran = planned.work(*DECLARED)
    assert ran.code == 4, ran
    assert planned.outcomes() == {"a": "", "b": ""}


@pytest.mark.parametrize("name", ["earlier", "flipped"])
@pytest.mark.parametrize("written_again", [False, True])
def test_what_was_put_back_and_not_recorded(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, name: str, written_again: bool
) -> None:
    """Where somebody has written it since, nobody can tell who put it back: it is looked at once more."""
    flipped, earlier, _cut = mixed(planned)
    key = earlier if name == "earlier" else flipped
    planned.make_plan(**{"all": "leave", name: "fix"})
    not_written(monkeypatch, 2)
    assert planned.work().code == 3
    monkeypatch.undo()
    stored = planned.stored(key)
    if not written_again:
        ran = planned.work()
        assert ran.code == 0, ran
        assert planned.outcomes()[name] == "fixed"
        return
    assert stored is not None
    planned.etcd.put(key, stored)
    ran = planned.work()
    assert ran.code == 4, ran
    assert "applied-or-gone" in ran.err
    assert planned.outcomes()[name] == ""
    assert planned.stored(key) == stored
    assert planned.work("--leave-out", key.decode()).code == 0


@pytest.mark.parametrize("result", [Result.UNKNOWN, Result.ANOMALY])
def test_an_intent_that_cannot_be_settled(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, result: Result
) -> None:
    keys = planned.to_delete("a", "b")
    not_written(monkeypatch, 2)
    assert planned.work(*DECLARED).code == 3
    monkeypatch.undo()
    settle = settle_intent

    def unsettled(*arguments: object, **named: object) -> object:
        found = settle(*arguments, **named)  # type: ignore[arg-type]
        return msgspec.structs.replace(found, outcome=result, detail="etcd does not answer")

    monkeypatch.setattr(settling, "settle_intent", unsettled)
    with planned.nothing_changes():
        ran = planned.work(*DECLARED)
    assert ran.code == 4, ran
    assert keys[0].decode() in ran.err
    assert str(result) in ran.err or "stays open" in ran.err


def test_open_intents_of_others_are_left_to_others(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    other = planned.put("shop/broken", b"k8s:enc:aescbc:v1:key1:short")
    not_written(monkeypatch, 2)
    assert planned.delete(other).code == 3
    monkeypatch.undo()
    keys = planned.to_delete("a", "b")
    ran = planned.work(*DECLARED)
    assert ran.code == 0, ran
    assert "the open intent" not in ran.err
    assert planned.there(keys) == [False, False]
    assert planned.run("log", "verify", str(planned.log)).code == 3


def test_what_another_plan_did_is_nothing_of_this_one(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key is deleted by hand or by another plan, and made again: a record of that settles nothing here."""
    keys = planned.to_delete("a", "b")
    assert planned.work(*DECLARED).code == 0
    again = planned.furnish("a", "b")
    assert again == keys
    planned.make_plan(all="delete")
    assert planned.outcomes() == {"a": "", "b": ""}
    dry = planned.work(*DECLARED, "--dry-run", "-o", "json")
    assert json.loads(dry.out)["done_before"] == 0
    ran = planned.work(*DECLARED, "-o", "json")
    assert ran.code == 0, ran
    assert json.loads(ran.out)["done_before"] == 0
    assert planned.there(keys) == [False, False]


def test_a_dry_run_of_a_plan_that_was_begun_tells_what_is_done(planned: Planned) -> None:
    planned.to_delete("a", "b")
    assert planned.work(*DECLARED, "--leave-out", planned.key("shop/b").decode()).code == 0
    planned.decide(b="delete")
    before = planned.plan.read_bytes()
    ran = planned.work(*DECLARED, "--dry-run", "-o", "json")
    assert ran.code == 0, ran
    document = json.loads(ran.out)
    assert (document["done_before"], document["left"], len(document["objects"])) == (1, 0, 1)
    assert planned.plan.read_bytes() == before


@pytest.mark.parametrize("gone", ["removed", "another"])
@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_an_audit_log_that_knows_nothing_of_the_runs(
    planned: Planned, gone: str, arguments: tuple[str, ...]
) -> None:
    """What is gone is met as a surprise, and the rest is left as it is."""
    keys = planned.furnish("a", "b")
    planned.make_plan(a="delete")
    assert planned.work(*DECLARED).code == 0
    planned.decide(b="delete")
    if gone == "removed":
        for path in planned.log.parent.iterdir():
            path.unlink()
    else:
        planned.log = planned.log.with_name("other.jsonl")
    with planned.nothing_changes():
        ran = planned.work(*DECLARED, *arguments)
    assert ran.code == 4, ran
    assert planned.there(keys) == [False, True]


# -- before anything is asked


def test_a_plan_of_a_cluster_that_encrypts_after_all(planned: Planned) -> None:
    """Under --no-encryption healthy values fail; no run over a plan of them deletes one."""
    planned.furnish("a", "b")
    planned.make_plan("--no-encryption", all="delete")
    assert len(planned.document()["decisions"]) == 5
    with planned.nothing_changes():
        for reading, configured in (("--no-encryption",), False), ((), True):
            ran = planned.work(*DECLARED, *reading, configured=configured)
            assert (ran.code, ran.out) == (4, ""), ran
