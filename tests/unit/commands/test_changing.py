"""What a person reads before a deletion, and what is advised once open intents were settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import msgspec
import pytest

from etcdfix.apiserver.objects import Answer, ServerAnswer
from etcdfix.apiserver.permissions import Authorization
from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.commands.changing.preview import WARNINGS, change_preview
from etcdfix.commands.settle import advised, exit_code_of, settle_log
from etcdfix.examine.maybe_newer import SimilarCounts
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.key_loss import KeyCounts
from etcdfix.graph.model import Risk
from etcdfix.model.model import ClusterIdentity, Outcome
from etcdfix.remediation.audit.record import Record, Result, Verb
from etcdfix.remediation.change import Change, ChangeRequest
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.members import LeaseState
from etcdfix.remediation.places import RecordPaths
from etcdfix.remediation.settle import settled_intent
from etcdfix.remediation.surroundings import SameKeyEvidence
from etcdfix.report.log import SettledIntent
from etcdfix.report.render.text import text_lines
from etcdfix.text.commands import RunOptions
from tests.support.audit_logs import own_directory, write_log
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


@pytest.mark.parametrize("result", Result)
def test_only_what_is_certain_is_settled(result: Result) -> None:
    code = 4 if result is Result.REFUSED else 3 if result in {Result.UNKNOWN, Result.ANOMALY} else 0
    assert exit_code_of({result.value}) == code
    assert exit_code_of({result.value, "refused"}) == 4


def test_nobody_is_asked_where_no_intent_is_open(tmp_path: Path) -> None:
    def connect(_intents: Sequence[Record]) -> NoReturn:
        raise AssertionError

    log = own_directory(tmp_path / "log") / "audit.jsonl"
    write_log(log)
    before = log.read_bytes()
    for dry_run in (True, False):
        settled = settle_log(log, connect, etcd_user="", dry_run=dry_run, accepted=Acceptances(), run=ETCD)
        assert (settled.exit_code, settled.intents) == (0, [])
        assert settled.document().status.headline == "no open intents"
    assert log.read_bytes() == before


def item(
    result: Result, verb: Verb = Verb.DELETE, backups: tuple[str, ...] = ("/b/1.json",), uid: str = "u"
) -> tuple[Any, SettledIntent]:
    """Return one intent that was worked through."""
    intent: Any = SimpleNamespace(
        link=SimpleNamespace(sequence=1),
        verb=verb,
        backups=backups,
        is_patch=False,
        subject=SimpleNamespace(key=b"/registry/secrets/shop/db"),
        cluster=ClusterIdentity.by_uid(uid),
    )
    return intent, settled_intent(intent, result, "seen", header_revision=7)


ETCD, KINE = RunOptions(), RunOptions(source=("--kine", "/srv/state.db"))


def settled_one(found: tuple[Any, SettledIntent], run: RunOptions = ETCD) -> tuple[str, dict[str, str]]:
    """Return what to do about one intent: a sentence, and commands."""
    one = advised(Path("/l"), found[0], found[1], run)
    return one.next_step, {each.what: each.command.line(run) for each in one.follow_ups}


@pytest.mark.parametrize("result", Result)
@pytest.mark.parametrize("verb", [Verb.DELETE, Verb.UNDO])
@pytest.mark.parametrize("backups", [("/b/1.json",), ()])
def test_only_a_deletion_that_may_have_happened_is_to_be_undone(
    result: Result, verb: Verb, backups: tuple[str, ...]
) -> None:
    _, commands = settled_one(item(result, verb, backups))
    gone = result is Result.APPLIED_OR_GONE and verb is Verb.DELETE and bool(backups)
    assert any(line.startswith("etcdfix undo /b/1.json") for line in commands.values()) is gone
    assert ("Look at it" in commands) is (result is Result.ANOMALY)
    assert any("stays open" in what for what in commands) is (result is Result.UNKNOWN)


def test_what_stays_open_says_what_would_tell() -> None:
    """Without a revision etcd gave no answer; with one, it gave a value that could not be examined."""
    (intent, answered), unexamined = item(Result.UNKNOWN), item(Result.UNKNOWN, Verb.FIX)
    silent = intent, msgspec.structs.replace(answered, header_revision=0)
    assert "etcd answers" in settled_one(silent)[0]
    assert "the file can be read" in settled_one(silent, KINE)[0]
    assert [*settled_one(unexamined)[1].values()] == ["etcdfix explain /registry/secrets/shop/db"]
