"""What a KMS plugin's answers leave in doubt: each status, each refusal, and what stands against it."""

from __future__ import annotations

import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.kms import undetermined_cause
from etcdfix.examine.verdicts.observation import Neighbours
from etcdfix.model.model import Attempt, FailureReason, PluginRecord


def attempt(
    reason: str = "kms-refused",
    status: str = "",
    *,
    transformer: str = "kms/v2/p",
    same_key: int = 3,
    healthy: bool = True,
) -> Attempt:
    trust = PluginRecord(healthy=healthy, same_key=same_key, any_key=3)
    return Attempt(FailureReason(reason), ("no",), status, trust, transformer)


def cause_of(made: Attempt, neighbours: Neighbours = Neighbours.NONE) -> Cause | None:
    return undetermined_cause((made,), right_key=False, neighbours=neighbours)


@pytest.mark.parametrize("reason", ["kms-refused", "kms-key-invalid"])
def test_a_refusal_counts_only_among_values_that_open(reason: str) -> None:
    assert cause_of(attempt(reason)) is Cause.KMS_UNPROVEN
    assert cause_of(attempt(reason), Neighbours.UNKNOWN) is Cause.KMS_UNPROVEN
    assert cause_of(attempt(reason), Neighbours.SAME_KEY) is None
    assert cause_of(attempt(reason), Neighbours.NEWEST) is None
    assert cause_of(attempt(reason), Neighbours.TWO_WRITERS) is Cause.KMS_UNPROVEN


@pytest.mark.parametrize("status", ["NOT_FOUND", "FAILED_PRECONDITION"])
def test_an_unknown_key_that_opened_others_is_a_contradiction_of_v2_alone(status: str) -> None:
    """Of v1 there is no key id: the values that opened may have been under another key."""
    assert cause_of(attempt(status=status)) is Cause.KMS_UNPROVEN
    assert cause_of(attempt(status=status, same_key=0)) is Cause.KMS_KEY_UNKNOWN
    assert cause_of(attempt(status=status, transformer="kms/v1/p")) is Cause.KMS_KEY_UNKNOWN


@pytest.mark.parametrize("status", ["PERMISSION_DENIED", "UNAUTHENTICATED"])
def test_who_may_not_ask_knows_nothing(status: str) -> None:
    assert cause_of(attempt(status=status), Neighbours.SAME_KEY) is Cause.KMS_DENIED
