"""What a person reads: every line that a branch adds or leaves out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from etcdfix.apiserver.authorization import Authorization
from etcdfix.apiserver.objects import Answer
from etcdfix.apiserver.servers import ServerAnswer, ServerAnswers
from etcdfix.maybe_newer import SimilarCounts
from etcdfix.model import ClusterIdentity, Outcome
from etcdfix.operations.change.preview import (
    WARNINGS,
    outcome_lines,
    preview_lines,
)
from etcdfix.remediation.audit.record import Link, Result
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.deletion import Preflight
from etcdfix.remediation.preflight.members import KeyReading, LeaseState
from etcdfix.remediation.preflight.similar_values import Alike
from etcdfix.text.commands import RepeatedOptions
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.key_loss import KeyCounts
from tests.support.examinations import examination

KEY = b"/registry/secrets/shop/web"
HOSTILE = "\x1b[2J\u202e"
CLUSTER = cast(
    "Cluster",
    SimpleNamespace(
        where=("a:1", "b:2"),
        no_encryption=False,
        origins=(),
    ),
)
AGAIN = RepeatedOptions(
    ("--endpoints", "a:1"), ("--etcd-prefix", "/kubernetes.io"), ("--encryption-config", "my file")
)
ALLOWED = Authorization(user_name=f"alice{HOSTILE}", server="https://api", kube_system_uid="u")
ANSWERED = ServerAnswers(
    answers=(
        ServerAnswer(server="https://api", answer=Answer.READ_ERROR),
        ServerAnswer(server="https://b", answer=Answer.NO_ANSWER, detail=f"why{HOSTILE}"),
    ),
    warnings=(f"there may be more{HOSTILE}",),
    authorization=ALLOWED,
)


def _lease(*, alive: bool) -> LeaseState:
    return LeaseState(lease=0x1F, alive=alive, remaining_seconds=42 if alive else 0)


def _alike(
    found: Examination, *counts: KeyCounts, keys: int = 5, unread: dict[str, int] | None = None
) -> Alike:
    return Alike(
        target=found,
        counts=dict(zip(found.encryption_keys, counts, strict=True)),
        transformer_opens=True,
        similar=SimilarCounts(),
        unread=unread or {},
        keys=keys,
    )


def _checked(found: Examination | None = None, **changes: object) -> Preflight:
    found = found if found is not None else examination(KEY)
    checked = Preflight(
        reading=KeyReading(stored=found.stored, revision=1, cluster_id=2, member_id=3),
        found=found,
        alike=_alike(found, *[KeyCounts(opened=3, failed=2)] * len(found.encryption_keys)),
        moved_to=None,
        identity=ClusterIdentity.by_uid("uid-1"),
        lease=None,
        servers=ServerAnswers(),
        protected="",
        assessment=None,
        warnings=(),
        declared_lost=False,
    )
    return msgspec.structs.replace(checked, **changes)


def _text(checked: Preflight) -> str:
    return "\n".join(preview_lines(CLUSTER, checked, AGAIN))


def test_deletion() -> None:
    text = _text(_checked())
    assert "Cluster      kube-system uid uid-1, 5 keys, at a:1, b:2" in text
    assert "Under        aescbc/v1/key2: 3 open, 2 fail (this one included)" in text
    assert "the etcd credentials are the only gate" in text
    assert "API server: no matching key" in text
    assert "Less destructive options:\n  1. " in text
    assert "\n     etcdfix " in text
    assert all(f"  - {warning}" in text for warning in WARNINGS)
    for absent in (
        "Encryption",
        "OPEN",
        "Lease",
        "Note",
        "CLUSTER-BREAKING",
        "declared lost",
        "undetermined",
    ):
        assert absent not in text
    assert "Last: " not in text


def test_everything_that_may_be_added() -> None:
    found = examination(KEY, rule="secrets,pods", key_fingerprints=("fp:1",))
    text = _text(
        _checked(
            found,
            lease=_lease(alive=True),
            servers=ANSWERED,
            protected="secrets are what the cluster stands on",
            warnings=("one", f"two{HOSTILE}"),
            declared_lost=True,
            identity=ClusterIdentity(),
            alike=_alike(found, KeyCounts(opened=3, failed=2, damaged=1, undetermined=4), keys=1),
        )
    )
    for words in (
        "uid unknown (accepted), 1 key, at",
        (
            "Under        aescbc/v1/key2 of secrets,pods (fp:1): 3 open, 2 fail, 1 of them proven damaged, "
            "4 undetermined (this one included)"
        ),
        "declared lost for ever",
        "Lease        1f, 42 s left",
        "Allowed by   https://api, for alice",
        "API server   https://api cannot read it either\n",
        "API server   https://b gave no answer: why",
        "             there may be more",
        "Warning      one\nWarning      two",
        "CLUSTER-BREAKING, as accepted: secrets are what the cluster stands on.",
    ):
        assert words in text, words
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_where_it_was_named_is_shown_and_stays_inert() -> None:
    cluster = cast(
        "Cluster",
        SimpleNamespace(**vars(CLUSTER) | {"origins": (f"endpoints: x{HOSTILE}", "configuration: y")}),
    )
    shown = list(preview_lines(cluster, _checked(), AGAIN))
    at = next(number for number, line in enumerate(shown) if line.startswith("Named by"))
    assert shown[at : at + 2] == ["Named by     endpoints: x\\x1b[2J\\u202e", "             configuration: y"]


def _outcome(result: Result | None, *, recorded: bool = True, backups: tuple[str, ...] = ()) -> ChangeOutcome:
    return ChangeOutcome(
        result=result,
        detail=f"what was seen{HOSTILE}",
        revision=9,
        backups=backups,
        audit_log=Path("/log/audit.jsonl"),
        head=Link(2, "ab" * 32) if recorded else None,
        warnings=("one",),
    )


def _told(done: Result, outcome: ChangeOutcome) -> list[str]:
    lines = list(outcome_lines(KEY, done, outcome, AGAIN))
    assert all(line.isprintable() for line in lines)
    assert "Note: one" in lines
    return lines


@pytest.mark.parametrize(
    ("done", "word"),
    [(Result.DELETED, "deleted"), (Result.RESTORED, "put back"), (Result.REENCRYPTED, "rewritten")],
)
def test_dry_run(done: Result, word: str) -> None:
    lines = _told(done, _outcome(None))
    assert lines[0] == f"DRY RUN: {KEY.decode()} would be {word}. Nothing was changed."
    assert lines[-1].startswith("Audit log: /log/audit.jsonl, head 2:abab")


def test_undo_repeats_what_the_command_needs() -> None:
    lines = _told(Result.DELETED, _outcome(Result.DELETED, backups=("/b/one two.json", "/c/x.json")))
    assert (
        "Undo: etcdfix restore '/b/one two.json' --endpoints a:1 --etcd-prefix /kubernetes.io "
        "--encryption-config 'my file' --audit-log /log/audit.jsonl --reason REASON"
    ) in lines
    assert "Backup: /c/x.json" in lines
    assert lines[0] == f"DELETED {KEY.decode()} at revision 9."
    assert not [line for line in lines if line.startswith("Look again")]  # there is nothing there to look at


def test_what_was_put_back_or_rewritten_is_undone_by_its_own_revision() -> None:
    for done in (Result.RESTORED, Result.REENCRYPTED):
        lines = _told(done, _outcome(done, backups=("/b c/1.json", "/d/1.json")))
        (undo,) = [line for line in lines if line.startswith("Undo")]
        assert undo.endswith("--reason REASON --backup-dir '/b c' --backup-dir /d --replace-mod-revision 9")
        assert lines[-1].startswith("Look again: etcdfix scan --endpoints a:1")
        assert not [line for line in _told(done, _outcome(done)) if line.startswith("Undo")]
        unsure = _told(done, _outcome(Result.UNKNOWN, backups=("/b/1.json",)))
        assert not [line for line in unsure if line.startswith("Undo")]


def test_after_an_anomaly_both_values_can_be_put_back() -> None:
    lines = _told(Result.DELETED, _outcome(Result.ANOMALY, backups=("/b/1.json", "/b/2.json")))
    assert any(line.startswith("Put back what was examined: etcdfix restore /b/1.json") for line in lines)
    assert any(line.startswith("Put back what etcd gave back: etcdfix restore /b/2.json") for line in lines)


@pytest.mark.parametrize("result", [Result.NOT_APPLIED, Result.REFUSED])
def test_what_was_not_done_needs_no_undo(result: Result) -> None:
    lines = _told(Result.DELETED, _outcome(result, backups=("/b/1.json",)))
    assert not [line for line in lines if "restore" in line]


def test_what_was_accepted_is_shown() -> None:
    assert "Accepted " not in _text(_checked())
    flags = ("--accept newer-than-known", "--accept unchecked-member=etcd-2")
    assert f"\nAccepted     {flags[0]}, {flags[1]}\n" in _text(_checked(accepted=flags))


def test_what_is_not_proven_says_so() -> None:
    found = examination(KEY, outcome=Outcome.UNDETERMINED, cause=Cause.KMS_KEY_UNKNOWN)
    assert "Verdict      NOT PROVEN (kms-key-unknown)" in _text(_checked(found))


# What a deletion sets off.
