"""What a silent KMS plugin, and one that answers otherwise the second time, leave of a deletion."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from etcdfix.apiserver.authorization import Authorization
from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.errors import RefusedByRule
from etcdfix.model import Outcome, Repair, RepairKind, RepairProof
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.remediation.preflight.deletion import check_outage, check_plugin_again
from etcdfix.rules import Rule
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.examination import Examination
from tests.support.examinations import examination, readable, with_verdict

SILENT = examination(outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE, transformer="kms/v1/prov")
DAMAGED = examination(cause=Cause.KMS_ENVELOPE_DAMAGED, transformer="kms/v2/prov")
LOST = Acceptances(key_lost="kms/v1/prov", words=("no-api-server",))
ANSWERED = ServerAnswers(
    authorization=Authorization(user_name="admin", server="https://a", kube_system_uid="")
)


class SaysNext:
    """Says of every value what it was given."""

    plugins = kept = None

    def __init__(self, found: Examination) -> None:
        self.found = found
        self.asked = 0

    def examine(self, _stored: Any, *, thorough: bool = False) -> Examination:
        self.asked += not thorough
        return self.found


def test_a_script_does_not_declare_an_outage() -> None:
    with pytest.raises(RefusedByRule) as caught:
        check_outage(SILENT, ServerAnswers(), LOST)
    assert caught.value.rule == Rule.NO_API_SERVER


def test_a_person_or_an_api_server_may_speak_of_it() -> None:
    check_outage(SILENT, ANSWERED, LOST)
    check_outage(SILENT, ServerAnswers(), msgspec.structs.replace(LOST, at_terminal=True))


def test_of_a_key_that_is_no_longer_there_the_rule_does_not_speak() -> None:
    gone = examination(outcome=Outcome.UNDETERMINED, cause=Cause.KMS_KEY_UNKNOWN, transformer="kms/v2/prov")
    check_outage(gone, ServerAnswers(), LOST)


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
def test_another_answer_is_no_proof(again: Examination) -> None:
    with pytest.raises(RefusedByRule) as caught:
        check_plugin_again(SaysNext(again), DAMAGED)  # type: ignore[arg-type]  # examines like one
    assert caught.value.rule == Rule.UNDETERMINED


def test_the_same_answer_is() -> None:
    same = SaysNext(DAMAGED)
    check_plugin_again(same, DAMAGED)  # type: ignore[arg-type]  # examines like one
    assert same.asked == 1


def test_what_was_accepted_already_is_not_asked_for_by_its_absence() -> None:
    """Only a look at everything finds the repair of a prefix: one value alone has none."""
    repairable = msgspec.structs.replace(
        DAMAGED, repair=Repair(RepairKind.PREFIX, "one bit", RepairProof.TAG)
    )
    check_plugin_again(SaysNext(DAMAGED), repairable)  # type: ignore[arg-type]  # examines like one


@pytest.mark.parametrize("found", [SILENT, examination(cause=Cause.CIPHERTEXT_DAMAGED)])
def test_who_has_said_nothing_is_not_asked(found: Examination) -> None:
    other = SaysNext(readable())
    check_plugin_again(other, found)  # type: ignore[arg-type]  # examines like one
    assert other.asked == 0
