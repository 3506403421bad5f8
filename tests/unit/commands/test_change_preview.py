"""What a person reads before a deletion."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from etcdfix.apiserver.objects import Answer, ServerAnswer
from etcdfix.apiserver.permissions import Authorization
from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.commands.changing.preview import WARNINGS, change_preview
from etcdfix.examine.maybe_newer import SimilarCounts
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.key_loss import KeyCounts
from etcdfix.graph.model import Risk
from etcdfix.model.model import ClusterIdentity, Outcome
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.change import Change, ChangeRequest
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.members import LeaseState
from etcdfix.remediation.places import RecordPaths
from etcdfix.remediation.surroundings import SameKeyEvidence
from etcdfix.report.render.text import text_lines
from etcdfix.text.commands import RunOptions
from tests.support.checked_values import present_of
from tests.support.examinations import examination

KEY = b"/registry/secrets/shop/web"
HOSTILE = "\x1b[2J\u202e"
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


def _alike(found: Examination, *counts: KeyCounts, keys: int = 5) -> SameKeyEvidence:
    return SameKeyEvidence(
        target=found,
        counts=dict(zip(found.encryption_keys, counts, strict=True)),
        transformer_opens=True,
        similar=SimilarCounts(),
        unread={},
        keys=keys,
    )


def _change(
    found: Examination | None = None,
    *,
    declared: str = "",
    words: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
    alike: SameKeyEvidence | None = None,
    **facts: Any,
) -> Change:
    found = found if found is not None else examination(KEY)
    around = alike or _alike(found, *[KeyCounts(opened=3, failed=2)] * len(found.encryption_keys))
    places = RecordPaths((Path("/b"),), Path("/log"))
    accepted = Acceptances(key_lost=declared, words=words)
    request = ChangeRequest(reason="r", accepted=accepted, record_paths=places)
    change = Change(Verb.DELETE, present_of(found, around, request, **facts), request)
    change.warnings = warnings
    return change


def _text(change: Change) -> str:
    lines = [*text_lines(change_preview(change, AGAIN), AGAIN, 100)]
    assert all(line.isprintable() for line in lines)
    assert len(lines) <= 30
    return " ".join("\n".join(lines).split())


def test_deletion() -> None:
    text = _text(_change())
    assert all(text.count(warning) == 1 for warning in WARNINGS)
    for told in (f"To delete: {KEY.decode()}", "5 keys, at a:1, b:2", "3 open, 2 fail", "audit log /log"):
        assert told in text
    for absent in ("OPEN", "lease", "CLUSTER-BREAKING", "undetermined", "Accepted"):
        assert absent not in text


def test_everything_that_may_be_added() -> None:
    found = examination(KEY, cause=Cause.WRONG_KEY, rule="secrets,pods", key_fingerprints=("fp:1",))
    text = _text(
        _change(
            found,
            declared="aescbc/v1/key2",
            words=("newer-than-known", "cluster-breaking"),
            warnings=("one", f"two{HOSTILE}", "one"),
            lease=LeaseState(lease=0x1F, alive=True, remaining_seconds=42),
            servers=ANSWERED,
            identity=ClusterIdentity(),
            assessment=_assessed(
                Risk.CLUSTER_BREAKING, SimpleNamespace(text="webhooks use it", code="incomplete")
            ),
            alike=_alike(found, KeyCounts(opened=3, failed=2, damaged=1, undetermined=4), keys=1),
        )
    )
    for words in (
        "(accepted), 1 key, at",
        "aescbc/v1/key2 of secrets,pods (fp:1): 3 open, 2 fail, 1 of them proven damaged, 4 undetermined",
        "3 values OPEN under this key",
        "--declare-key-lost aescbc/v1/key2",
        "1f, 42 s left",
        "https://api, for alice",
        "https://b gave no answer: why",
        "there may be more",
        "CLUSTER-BREAKING, as accepted: webhooks use it.",
        "--accept newer-than-known",
    ):
        assert words in text, words
    assert text.count("Warning one") == 1


def _assessed(risk: Risk, reason: SimpleNamespace, *finalizers: SimpleNamespace) -> SimpleNamespace:
    dependents = SimpleNamespace(counts=Counter(), deleted_by_resource={}, caught_up=[])
    return SimpleNamespace(
        risk=risk, may_be_worse=False, reasons=[reason], users=[], node="", finalizers=finalizers, dependents=dependents
    )  # fmt: skip


def test_a_skipped_finalizer_is_told_once() -> None:
    leaking = [
        SimpleNamespace(name=name, consequence=f"{name} stays", leaks=True) for name in ("a/told", "a/more")
    ]
    said = SimpleNamespace(text="finalizer a/told is skipped: a/told stays", code="finalizer")
    text = _text(_change(assessment=_assessed(Risk.HIGH, said, *leaking)))
    assert text.count("a/told stays") == text.count("a/more stays") == 1


def test_what_is_not_proven_says_so() -> None:
    found = examination(KEY, outcome=Outcome.UNDETERMINED, cause=Cause.KMS_KEY_UNKNOWN)
    assert "NOT PROVEN (kms-key-unknown)" in _text(_change(found))
