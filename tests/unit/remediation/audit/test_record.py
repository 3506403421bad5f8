"""One record: what stands in it, and what of it comes back."""

from __future__ import annotations

import base64
import json
import os
import pwd

import msgspec
import pytest

from etcdfix.model.model import ClusterIdentity, KnownBy
from etcdfix.remediation.audit.grounds import Grounds, RecordedAnswer
from etcdfix.remediation.audit.record import (
    BEGINNING,
    Link,
    Operator,
    Result,
    Verb,
    hash_of,
    parse_record,
    placed,
)
from tests.support.audit_logs import GROUNDS, KEY, NOON, OPERATOR, entry, subject


def test_an_intent_is_an_event_of_the_api_servers_kind() -> None:
    made = placed(
        entry(backups=("/b/1.json", "/b/2.json"), backup_sha256="sha256:aa", value_sha256="sha256:bb"),
        Link(6, "ab" * 32),
        at=NOON,
    )
    assert made.line.endswith(b"}\n")
    assert made.line.count(b"\n") == 1
    event = json.loads(made.line)
    audit_id = event.pop("auditID")
    assert len(audit_id) == 36
    assert event == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "stage": "RequestReceived",
        "requestURI": "",
        "verb": "unsafe-delete-ignore-read-errors",
        "user": {"username": "ada"},
        "userAgent": event["userAgent"],
        "objectRef": {
            "resource": "secrets",
            "namespace": "shop",
            "name": "db",
            "apiVersion": "v1",
            "resourceVersion": "41",
        },
        "requestReceivedTimestamp": "2026-03-01T12:00:00.123456Z",
        "stageTimestamp": "2026-03-01T12:00:00.123456Z",
        "annotations": {
            "apiserver.k8s.io/unsafe-delete-ignore-read-error": "",
            "etcdfix.io/type": "intent",
            "etcdfix.io/sequence": "7",
            "etcdfix.io/previous": "sha256:" + "ab" * 32,
            "etcdfix.io/key-base64": base64.b64encode(KEY).decode(),
            "etcdfix.io/mod-revision": "41",
            "etcdfix.io/header-revision": "77",
            "etcdfix.io/cluster-uid": "d4c1",
            "etcdfix.io/value-sha256": "sha256:bb",
            "etcdfix.io/backups": '["/b/1.json","/b/2.json"]',
            "etcdfix.io/backup-sha256": "sha256:aa",
            "etcdfix.io/reason": "the key is lost",
            "etcdfix.io/os-user": "ada",
            "etcdfix.io/sudo-user": "grace",
            "etcdfix.io/host": "node-1",
            "etcdfix.io/etcd-user": "root",
            "etcdfix.io/authorization": "none",
        },
    }
    assert event["userAgent"].startswith("etcdfix/")
    assert all(isinstance(value, str) for value in event["annotations"].values())


def test_what_it_rests_on_stands_in_intent_and_outcome() -> None:
    draft = placed(entry(grounds=GROUNDS), BEGINNING, at=NOON)
    intent = parse_record(draft.line)
    closing = placed(intent.closed_by(Result.DELETED, operator=OPERATOR), draft.record.link, at=NOON)
    told = [json.loads(line)["annotations"]["etcdfix.io/grounds"] for line in (draft.line, closing.line)]
    assert told[0] == told[1]
    assert intent.grounds == GROUNDS


def test_hostile_words_in_what_it_rests_on() -> None:
    hostile = Grounds(
        transformer="a\udce9\u202e\n",
        server_answers=(RecordedAnswer("http://\ud800", "\x1b[2J"),),
        peek=("\udc80",),
    )
    draft = placed(entry(grounds=hostile), BEGINNING, at=NOON)
    assert draft.line[:-1].decode().isprintable()
    assert parse_record(draft.line).grounds == Grounds(
        transformer="a\\udce9\u202e\n", server_answers=(RecordedAnswer("http://\\ud800", "\x1b[2J"),),
        peek=("\\udc80",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("result", "status", "code"),
    [
        (Result.DELETED, "Success", 200),
        (Result.REFUSED, "Failure", 409),
        (Result.NOT_APPLIED, "Failure", 504),
        (Result.APPLIED_OR_GONE, "Failure", 504),
        (Result.UNKNOWN, "Failure", 504),
        (Result.ANOMALY, "Failure", 500),
    ],
)
def test_an_outcome_belongs_to_its_intent(result: Result, status: str, code: int) -> None:
    draft = placed(entry(accepted=("--accept cluster-breaking",), backups=("/b/1.json",)), BEGINNING, at=NOON)
    intent = parse_record(draft.line)
    closing = intent.closed_by(result, operator=OPERATOR, detail="so it went", header_revision=80)
    event = json.loads(placed(closing, draft.record.link, at=NOON).line)
    assert (event["stage"], event["auditID"]) == ("ResponseComplete", json.loads(draft.line)["auditID"])
    answered = event["responseStatus"]
    assert (answered["status"], answered["code"], answered["message"]) == (status, code, "so it went")
    notes = {name.removeprefix("etcdfix.io/"): value for name, value in event["annotations"].items()}
    wanted = {
        "type": "outcome", "outcome": result.value, "intent": "1", "header-revision": "80",
        "previous": f"sha256:{hash_of(draft.line)}", "backups": '["/b/1.json"]',
        "accepted": '["--accept cluster-breaking"]',
    }  # fmt: skip
    assert notes | wanted == notes


def test_what_an_intent_says_comes_back() -> None:
    hostile = subject(key=b"/registry/x/\xff\n\x1b[2J\xe2\x80\xae", mod_revision=0)
    given = entry(
        subject=msgspec.structs.replace(hostile, group="apps", namespace="", name="n\n\u202e\x7f"),
        reason=os.fsdecode(b"caf\xe9") + 'say "no"\n\u2028',
        accepted=("a b", "c"),
        header_revision=0,
        cluster_uid="",
    )
    draft = placed(given, Link(8, "0" * 64), at=NOON)
    assert draft.line[:-1].decode().isprintable()
    read = parse_record(draft.line)
    assert (
        "apiserver.k8s.io/unsafe-delete-ignore-read-error"
        not in placed(entry(verb=Verb.UNDO), BEGINNING, at=NOON).line.decode()
    )
    assert read.link == draft.record.link == Link(9, hash_of(draft.line))
    assert read.subject == given.subject
    assert (read.reason, read.accepted) == ('caf\\udce9say "no"\n\u2028', given.accepted)
    assert (read.header_revision, read.cluster_uid, read.backups) == (0, "", ())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}\n",
        b"[" * 100_000,
        placed(entry(), BEGINNING, at=NOON).line.replace(b'"Event"', b'"Other"'),
        placed(entry(), BEGINNING, at=NOON).line.replace(b"k8s.io/v1", b"k8s.io/v2"),
        placed(entry(), BEGINNING, at=NOON).line.replace(b'sequence":"1"', b'sequence":"x"'),
        placed(entry(), BEGINNING, at=NOON).line.replace(b'base64":"', b'base64":"?'),
    ],
)
def test_no_record(line: bytes) -> None:
    with pytest.raises(ValueError):
        parse_record(line)


def test_who_runs_this(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "grace")
    made = Operator.of_this_process(etcd_user="e", authorization="allowed", api_user="a")
    assert made.os_user == pwd.getpwuid(os.getuid()).pw_name
    assert (made.sudo_user, made.etcd_user, made.authorization, made.api_user) == (
        "grace",
        "e",
        "allowed",
        "a",
    )
    assert made.host

    def nobody(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert Operator.of_this_process().os_user == str(os.getuid())


def test_grounds_name_the_cluster_where_they_know_it() -> None:
    """By more than a uid; a record of before they did so is named by its uid."""
    known = ClusterIdentity(uid="u", known_by=KnownBy.BACKUP, created=7)
    assert entry(grounds=Grounds(cluster=known)).cluster is known
    assert entry(grounds=Grounds()).cluster == entry().cluster == ClusterIdentity.by_uid("d4c1")
