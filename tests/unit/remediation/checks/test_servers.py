"""What API servers and KMS plugins did not say, and what would help."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.objects import Answer, ServerAnswer
from etcdfix.apiserver.permissions import Authorization
from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.examine.maybe_newer import SimilarCounts
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import Outcome, Repair, RepairKind, RepairProof
from etcdfix.model.rules import Rule
from etcdfix.remediation.checks.servers import foretold_of, no_api_server
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.present import Present
from etcdfix.remediation.surroundings import SameKeyEvidence
from tests.support.checked_values import judged
from tests.support.examinations import examination, readable, with_verdict

NAMED = APIAccess(Path("kubeconfig"))
YES = Authorization(user_name="admin", server="https://a", kube_system_uid="")
SILENT = examination(outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE, transformer="kms/v1/prov")
DAMAGED = examination(cause=Cause.KMS_ENVELOPE_DAMAGED, transformer="kms/v2/prov")
POSSIBLE = examination(cause=Cause.NONCE_DAMAGED, damage=Damage.POSSIBLE)


def said(*answers: Answer, allowed: Authorization | None = None, all_known: bool = False) -> ServerAnswers:
    each = tuple(ServerAnswer(server=f"https://api-{n}", answer=word) for n, word in enumerate(answers))
    return ServerAnswers(answers=each, authorization=allowed, all_known=all_known)


def asked(
    found: Examination,
    servers: ServerAnswers,
    api: APIAccess | None = None,
    *words: str,
    key_lost: str = "",
    file: str = "",
    declared: bool = False,
    at_terminal: bool = False,
) -> list[RefusedByRule]:
    """Return why the rule about API servers says no."""
    accepted = Acceptances(words=words, key_lost=key_lost, at_terminal=at_terminal)
    present = SimpleNamespace(
        request=SimpleNamespace(api=api), servers=servers, name=found, found=found, shown="KEY"
    )
    change = SimpleNamespace(
        accepted=accepted,
        accepts=accepted.accepts,
        of=lambda _place: bool(file),
        copy=SimpleNamespace(source=file),
        goes=not file,
        needs_declaration=declared,
    )
    return [*no_api_server(cast("Present", present), cast("Any", change))]


@pytest.mark.parametrize(
    ("answers", "granted"),
    [
        ((Answer.NO_ANSWER,), False),
        ((Answer.DENIED,), True),
        ((Answer.NO_ANSWER, Answer.DENIED), True),
        ((), False),
    ],
)
def test_only_who_was_denied_needs_a_permission(answers: tuple[Answer, ...], *, granted: bool) -> None:
    (refusal,) = asked(examination(), said(*answers), NAMED)
    assert refusal.rule == Rule.NO_API_SERVER
    assert refusal.hint.startswith("have the user allowed" if granted else "name another one")
    assert refusal.lift == ("--accept", "no-api-server")


@pytest.mark.parametrize("key_lost", ["", "aescbc/v1/key1"])
@pytest.mark.parametrize("file", ["", "object:saved.json"])
def test_who_must_be_asked(key_lost: str, file: str) -> None:
    found, nobody = examination(), ServerAnswers()
    assert not asked(found, said(Answer.READ_ERROR, allowed=YES), NAMED, key_lost=key_lost, file=file)
    assert not asked(found, nobody, None, "no-api-server", key_lost=key_lost, file=file)
    refusals = asked(found, nobody, key_lost=key_lost, file=file)
    assert len(refusals) == bool(key_lost or file)
    for refusal in refusals:
        assert refusal.message.startswith(
            "--declare-key-lost: " if key_lost else "--from object:saved.json: "
        )


ALL_FAIL = (Answer.READ_ERROR, Answer.READ_ERROR)


@pytest.mark.parametrize(
    ("answers", "all_known", "refused"),
    [
        (ALL_FAIL, True, False),
        (ALL_FAIL[:1], True, False),
        (ALL_FAIL, False, True),
        *(((Answer.READ_ERROR, other), True, other is not Answer.READ_ERROR) for other in Answer),
    ],
)
def test_possible_damage_needs_the_word_of_every_server(
    answers: tuple[Answer, ...], all_known: bool, refused: bool
) -> None:
    """No word stands in for that."""
    refusals = asked(POSSIBLE, said(*answers, allowed=YES, all_known=all_known), NAMED, "no-api-server")
    assert len(refusals) == refused
    (nobody,) = asked(POSSIBLE, ServerAnswers(), None, "no-api-server")
    assert not any(refusal.lift for refusal in (*refusals, nobody))


@pytest.mark.parametrize("cause", [Cause.KMS_UNREACHABLE, Cause.KMS_DENIED, Cause.WRONG_KEY])
def test_an_outage_counts_for_nothing_where_the_plugin_is_silent_here(cause: Cause) -> None:
    assert foretold_of(examination(cause=cause)).plugin_silent == (cause is Cause.KMS_UNREACHABLE)


def test_a_script_does_not_declare_an_outage() -> None:
    """A person at a terminal may, or an API server speaks of it; of a key that is gone the rule does not speak."""
    lost: dict[str, Any] = {"key_lost": "kms/v1/prov", "declared": True}
    (refusal,) = asked(SILENT, ServerAnswers(), None, "no-api-server", **lost)
    assert (refusal.rule, refusal.lift) == (Rule.NO_API_SERVER, ())
    assert not asked(SILENT, said(Answer.READ_ERROR, allowed=YES), NAMED, **lost)
    assert not asked(SILENT, ServerAnswers(), None, "no-api-server", at_terminal=True, **lost)
    gone = examination(outcome=Outcome.UNDETERMINED, cause=Cause.KMS_KEY_UNKNOWN, transformer="kms/v2/prov")
    assert not asked(gone, ServerAnswers(), None, "no-api-server", **lost)


def second(found: Examination, again: Examination) -> RefusedByRule | None:
    around = SameKeyEvidence(found, {}, False, SimilarCounts(), {}, 1)
    words = ("only-copy", "unproven-damage", "newer-than-known")
    return judged(found, around, risks=words, second_look=again).refusal


@pytest.mark.parametrize(
    "again",
    [
        readable(),
        examination(outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNPROVEN, transformer="kms/v2/prov"),
        examination(cause=Cause.CIPHERTEXT_DAMAGED, transformer="kms/v2/prov"),
        with_verdict(DAMAGED, damage=Damage.POSSIBLE),
        with_verdict(DAMAGED, holds_whole=True),
        msgspec.structs.replace(DAMAGED, repair=Repair(RepairKind.BIT, "one bit", RepairProof.TAG)),
        msgspec.structs.replace(DAMAGED, keys_untried=True),
    ],
)
def test_another_answer_of_a_plugin_is_no_proof(again: Examination) -> None:
    refusal = second(DAMAGED, again)
    assert refusal is not None
    assert refusal.rule == Rule.UNDETERMINED


def test_the_same_answer_is() -> None:
    """Only a look at everything finds the repair of a prefix: one value alone has none."""
    repairable = msgspec.structs.replace(
        DAMAGED, repair=Repair(RepairKind.PREFIX, "one bit", RepairProof.TAG)
    )
    assert second(DAMAGED, DAMAGED) is None
    assert second(repairable, DAMAGED) is None
