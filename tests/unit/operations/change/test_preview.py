"""What a person reads before a deletion."""

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
from etcdfix.operations.change.preview import WARNINGS, deletion_preview
from etcdfix.operations.change.report import outcome_report
from etcdfix.remediation.audit.record import Link, Result, Verb
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.datastore import KeyReading
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.deletion import Preflight
from etcdfix.remediation.preflight.members import LeaseState
from etcdfix.remediation.preflight.similar_values import Alike
from etcdfix.report.render.text import text_lines
from etcdfix.text.commands import RunOptions
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
AGAIN = RunOptions(
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


def _alike(found: Examination, *counts: KeyCounts, keys: int = 5) -> Alike:
    return Alike(
        target=found,
        counts=dict(zip(found.encryption_keys, counts, strict=True)),
        transformer_opens=True,
        similar=SimilarCounts(),
        unread={},
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


def _lines(checked: Preflight) -> list[str]:
    lines = [*text_lines(deletion_preview(CLUSTER, checked, AGAIN), AGAIN, 100)]
    assert all(line.isprintable() for line in lines)
    return lines


def _text(checked: Preflight) -> str:
    return " ".join("\n".join(_lines(checked)).split())


def test_deletion() -> None:
    lines, text = _lines(_checked()), _text(_checked())
    assert len(lines) <= 30
    assert lines[0] == f"To delete: {KEY.decode()}"
    assert "5 keys, at a:1, b:2" in text
    assert "aescbc/v1/key2: 3 open, 2 fail (this one included)" in text
    assert "the etcd credentials are the only gate" in text
    assert "Less destructive 1. " in text
    assert "Servers say no matching key was found" in text
    assert "etcdfix explain shows 2 more ways out" in text
    assert all(text.count(warning) == 1 for warning in WARNINGS)
    for absent in ("OPEN", "lease", "CLUSTER-BREAKING", "lost for ever", "undetermined", "Accepted"):
        assert absent not in text


def test_everything_that_may_be_added() -> None:
    found = examination(KEY, rule="secrets,pods", key_fingerprints=("fp:1",))
    text = _text(
        _checked(
            found,
            lease=_lease(alive=True),
            servers=ANSWERED,
            protected="secrets are what the cluster stands on",
            warnings=("one", f"two{HOSTILE}", "one"),
            declared_lost=True,
            identity=ClusterIdentity(),
            accepted=("--accept newer-than-known",),
            alike=_alike(found, KeyCounts(opened=3, failed=2, damaged=1, undetermined=4), keys=1),
        )
    )
    for words in (
        "(accepted), 1 key, at",
        "aescbc/v1/key2 of secrets,pods (fp:1): 3 open, 2 fail, 1 of them proven damaged, 4 undetermined",
        "3 values OPEN under this key",
        "the key is lost for ever",
        "1f, 42 s left",
        "https://api, for alice",
        "https://api cannot read it either",
        "https://b gave no answer: why",
        "there may be more",
        "CLUSTER-BREAKING, as accepted: secrets are what the cluster stands on.",
        "--accept newer-than-known",
    ):
        assert words in text, words
    assert text.count("Warning one") == 1


def test_what_is_not_proven_says_so() -> None:
    found = examination(KEY, outcome=Outcome.UNDETERMINED, cause=Cause.KMS_KEY_UNKNOWN)
    text = _text(_checked(found))
    assert "NOT PROVEN (kms-key-unknown): the value may be whole; only your declaration deletes it" in text


@pytest.mark.parametrize("unread", [{}, {"secrets": 2, "pods": 1}])
def test_what_comes_back_by_itself_is_said_only_where_nothing_else_fails(unread: dict[str, int]) -> None:
    checked = _checked()
    checked = _checked(alike=msgspec.structs.replace(checked.alike, unread=unread))
    outcome = ChangeOutcome(
        result=Result.DELETED,
        detail="",
        revision=9,
        backups=("/b",),
        audit_log=Path("/log"),
        head=Link(2, "ab"),
    )
    report = outcome_report(Verb.DELETE, KEY, outcome, AGAIN, exit_code=0, deleted=checked)
    told = " ".join(report.afterwards)
    assert ("LIST works again at once" in told) is (not unread)
    assert ("2 other values of secrets" in told) is bool(unread)
    assert ("pods (1)" in told) is bool(unread)
    assert [one.what for one in report.follow_ups] == ["Undo", "See what is left"]
    assert len([*text_lines(report.document(), AGAIN, 100)]) <= 30
