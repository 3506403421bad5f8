"""Runs whose surroundings fail in the middle: full disks, a syslog that goes away, API servers that change, rivals."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from etcdfix.model.model import digest_of
from etcdfix.remediation import durable
from etcdfix.report.planfile import load_plan, sealed
from etcdfix.report.render.machine import JSONWriter
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.text.commands import RunOptions
from tests.support.attacks import TRUE, seal
from tests.support.attacks import secret as sealed_secret
from tests.support.audit_logs import mounted
from tests.support.change_runs import Ran
from tests.support.kubernetes_api import KubernetesAPI, status_answer
from tests.support.objects import IDENTITY, KEY_1, KUBE_SYSTEM_UID, aescbc, provider, secret
from tests.support.plan_runs import DECLARED, LOST, Planned, at_object, not_written
from tests.support.syslogs import PlayedSyslog

pytestmark = pytest.mark.etcd


def closed(planned: Planned) -> dict[str, str]:
    """Return what the log says that became of each key, by its name."""
    return {
        event.subject.name: str(event.outcome)
        for event in planned.records()
        if event.type in {"outcome", "settled"}
    }


def verified(planned: Planned) -> int:
    """Return the worse of what the log and the backups come to."""
    places = ["--backup-dir", str(planned.backups), "--audit-log", str(planned.log)]
    return max(
        planned.run("log", "verify", str(planned.log)).code, planned.run("log", "backups", *places).code
    )


# -- disks that are really full


@pytest.mark.parametrize(("where", "least"), [("backups", 0), ("log", 1084)])
def test_a_file_system_that_is_full(planned: Planned, where: str, least: int) -> None:
    """Whatever still had room: etcd and the log agree, and the same command goes on once there is room."""
    keys = planned.to_delete("a", "b", "c")
    midway, codes = 0, []
    with mounted(planned.folder / "small", "size=4m") as disk:
        if where == "backups":
            planned.backups = disk
        else:
            planned.log = disk / "audit.jsonl"
        for room in range(least, least + 120, 4):
            left = planned.there(keys).count(True)
            size = os.statvfs(disk)
            ballast = disk / "ballast"
            ballast.write_bytes(bytes(max(size.f_bavail * size.f_frsize - room * 1024, 0)))
            ran = planned.work(*(DECLARED if left else ()))
            ballast.unlink()
            codes.append(ran.code)
            done = {name for name, key in zip("abc", keys, strict=True) if planned.stored(key) is None}
            assert closed(planned) == dict.fromkeys(done, "deleted")
            assert {backup.content.key_base64[-1:].decode() for backup in planned.kept()} >= done
            # An intent whose head had no room stays open: nothing was sent, and the next run settles it.
            assert verified(planned) in {0, 3}
            if ran.code == 0:
                break
            assert ran.code == 4, ran
            assert "No space left on device" in ran.err
            midway += 0 < len(done) < 3
        assert (codes[0], codes[-1]) == (4, 0)
        assert midway
        assert planned.run("log", "verify", str(planned.log)).code == 0
        assert verified(planned) in {0, 3}  # a backup may be left of a change that the log had no room for
        planned.agree()
        assert planned.outcomes() == dict.fromkeys("abc", "deleted")


# -- records that are not taken


@pytest.mark.parametrize("of", [1, 2])
def test_an_outcome_that_the_log_does_not_take(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, of: int
) -> None:
    """The key is gone and its intent open: the run stops there, and the next one settles it and goes on."""
    keys = planned.to_delete("a", "b", "c")
    not_written(monkeypatch, 2 * of)
    ran = planned.work(*DECLARED, "-o", "json")
    assert ran.code == 3, ran
    document = json.loads(ran.out)
    assert document["stopped_at"] == keys[of - 1].decode()
    assert document["left"] == 4 - of
    assert planned.there(keys) == [number >= of for number in range(3)]
    assert verified(planned) == 3
    monkeypatch.undo()
    ran = planned.work(*DECLARED)
    assert ran.code == 0, ran
    planned.agree()
    became = planned.outcomes()
    assert became.pop("abc"[of - 1]) == "applied-or-gone"
    assert set(became.values()) == {"deleted"}
    assert verified(planned) == 0


def test_a_syslog_that_goes_away_in_the_middle_stops_nothing(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned.to_delete("a", "b", "c")
    with PlayedSyslog(planned.folder / "syslog") as syslog:
        at_object(monkeypatch, 2, syslog.close)
        ran = planned.work(*DECLARED, "--audit-syslog", str(syslog.path))
    assert ran.code == 0, ran
    assert (ran.out + ran.err).count("did not take the head of the audit log") == 1
    planned.agree()
    assert planned.outcomes() == dict.fromkeys("abc", "deleted")
    assert verified(planned) == 0


# -- API servers that change


@pytest.fixture
def api(authority: CertificateAuthority) -> Iterator[KubernetesAPI]:
    with KubernetesAPI(authority, uid=KUBE_SYSTEM_UID) as found:
        yield found


@pytest.mark.parametrize("what", ["reads it", "another cluster", "denies", "no longer known", "gone"])
def test_an_api_server_that_changes_in_the_middle(
    planned: Planned, api: KubernetesAPI, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    keys = planned.to_delete("a", "b", "c")

    def change() -> None:
        if what == "reads it":
            api.reads = True
        elif what == "another cluster":
            api.uid = "another-uid"
        elif what == "denies":
            api.denied.add("unsafe-delete-ignore-read-errors")
        elif what == "no longer known":
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            api.instead[path] = status_answer(401, "Unauthorized")
        else:
            api.stop()

    at_object(monkeypatch, 2, change)
    asked = ("--declare-key-lost", LOST, "--accept", "ends-cached-reads")
    ran = planned.work(*asked, "--kubeconfig", str(api.kubeconfig(planned.folder)), "-o", "json")
    assert ran.code == 4, ran
    document = json.loads(ran.out)
    assert document["stopped_at"] == keys[1].decode()
    assert (len(document["objects"]), document["left"]) == (1, 2)
    assert planned.there(keys) == [False, True, True]
    assert len(planned.kept()) == 1
    planned.agree()


# -- repairs of which several would do


def test_a_repair_of_which_two_would_do(planned: Planned) -> None:
    """A plan that says otherwise permits nothing: one key under two names, each a bit or two from the name there."""
    names = ("healthy-0", "healthy-1", "healthy-2")
    keyed = provider("aesgcm", key0=TRUE, key1=TRUE)
    planned.rules(("secrets", (keyed, provider("aescbc", key1=KEY_1), IDENTITY)))
    planned.etcd.put_all((planned.key(f"shop/{name}"), aescbc(secret(name))) for name in names)
    planned.secrets("aesgcm", ["other-0", "other-1"])
    flipped, both = planned.key("shop/flipped"), planned.key("shop/both")
    value = seal("aesgcm", sealed_secret("flipped"), flipped)
    planned.etcd.put(flipped, value[:-40] + bytes([value[-40] ^ 1]) + value[-39:])
    planned.etcd.put(both, seal("aesgcm", sealed_secret("both"), both, TRUE, "key3"))
    planned.make_plan()
    plan = load_plan(planned.plan)
    (entry,), (decision,) = plan.entries, plan.decisions
    assert decision.decision == "fix"
    stored = planned.stored(both)
    assert stored is not None
    forged = msgspec.structs.replace(
        entry,
        order=2,
        key=both.decode(),
        name="both",
        mod_revision=planned.mod_revision(both),
        value_sha256=digest_of(stored),
        cause="key-renamed",
        transformer="aesgcm/v1/key3",
    )
    more = msgspec.structs.replace(decision, order=2, key=both.decode())
    plan = sealed(msgspec.structs.replace(plan, entries=[entry, forged], decisions=[decision, more]))
    with planned.plan.open("wb") as stream:
        JSONWriter(stream, RunOptions()).end(plan)
    ran = planned.work("--accept", "unproven-repair", "-o", "json")
    assert ran.code == 4, ran
    document = json.loads(ran.out)
    assert document["refusal"]["rule"] == "several-repairs", document["refusal"]["message"]
    assert document["stopped_at"] == both.decode()
    assert planned.outcomes() == {"flipped": "fixed", "both": ""}
    assert (planned.stored(flipped), planned.stored(both)) == (value, stored)
    assert len(planned.kept()) == 1


# -- rivals


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds the log locked gives up at once."""

    lock = durable.lock

    def locked(descriptor: int, operation: int, *, wait_seconds: float) -> bool:
        return lock(descriptor, operation, wait_seconds=min(wait_seconds, 0.05))

    monkeypatch.setattr(durable, "lock", locked)


@pytest.mark.usefixtures("impatient")
def test_two_runs_over_one_plan_at_once(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one comes while the first has an object under way; each is done once."""
    keys = planned.to_delete("a", "b", "c")
    said: list[Ran] = []

    def rival() -> None:
        said.append(planned.run(*planned.arguments(*DECLARED)))

    at_object(monkeypatch, 2, rival)
    assert planned.work(*DECLARED).code == 0
    (second,) = said
    assert second.code == 4
    assert planned.there(keys) == [False] * 3
    planned.agree()
    assert sorted(backup.content.key_base64 for backup in planned.kept()) == sorted(keys)


def of_copy(planned: Planned, log: Path, *arguments: str) -> list[str]:
    """Copy the plan where there is no copy yet; return the arguments that work through it."""
    copy = planned.folder / "copy.json"
    if not copy.exists():
        shutil.copy(planned.plan, copy)
    instead = {str(planned.plan): str(copy), str(planned.log): str(log)}
    return [instead.get(word, word) for word in planned.arguments(*arguments)]


@pytest.mark.usefixtures("impatient")
def test_two_copies_of_one_plan_with_one_log(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log keeps the second one away, and tells it later what the first did."""
    keys = planned.to_delete("a", "b", "c")
    said: list[Ran] = []
    rival = of_copy(planned, planned.log, *DECLARED)
    at_object(monkeypatch, 2, lambda: said.append(planned.run(*rival)))
    assert planned.work(*DECLARED).code == 0
    (second,) = said
    assert second.code == 4
    planned.agree()
    with planned.nothing_changes():
        again = planned.run(*of_copy(planned, planned.log, "-o", "json"))
    assert again.code == 0, again
    assert json.loads(again.out)["done_before"] == 3
    assert sorted(backup.content.key_base64 for backup in planned.kept()) == keys


def test_two_copies_of_one_plan_with_a_log_each(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither knows of the other: what one has deleted, the other finds gone, and stops there."""
    planned.to_delete("a", "b", "c")
    other = planned.log.with_name("other.jsonl")
    said: list[Ran] = []
    rival = of_copy(planned, other, *DECLARED)
    at_object(monkeypatch, 2, lambda: said.append(planned.run(*rival)))
    ran = planned.work(*DECLARED)
    assert ran.code == 0, ran
    (second,) = said
    assert second.code == 4
    planned.agree()
