"""What is said of a cause alone agrees with what is said of values with it."""

from __future__ import annotations

import pytest

from etcdfix.verdicts.causes import CATALOGUE, CURABLE_BY_CONFIGURATION, Cause
from etcdfix.verdicts.deletability import (
    FAILED,
    LOST_KEY,
    Deletability,
    deletability_of_cause,
    risks_of_cause,
)
from etcdfix.verdicts.severity import severities_of_cause


@pytest.mark.parametrize("cause", Cause)
def test_only_what_fails_and_no_configuration_cures_is_deletable(cause: Cause) -> None:
    standing = deletability_of_cause(cause)
    if standing is Deletability.DELETABLE:
        assert set(CATALOGUE[cause].outcomes) & FAILED
        assert cause not in CURABLE_BY_CONFIGURATION
    if cause in LOST_KEY:
        assert standing is Deletability.DECLARABLE
    if risks_of_cause(cause):
        assert standing is Deletability.DELETABLE


@pytest.mark.parametrize(
    ("cause", "standing"),
    [
        (Cause.ALLOCATOR_DAMAGED, Deletability.NEVER),
        (Cause.DOUBLE_ENCRYPTED, Deletability.NEVER),
        (Cause.ENVELOPE_DAMAGED, Deletability.NEVER),
        (Cause.VALUE_MOVED, Deletability.MOVED),
        (Cause.KEY_RENAMED, Deletability.CURABLE),
        (Cause.NO_CONFIGURATION, Deletability.UNPROVEN),
        (Cause.OWNER_UNKNOWN, Deletability.UNPROVEN),
        (Cause.INVALID_UTF8, Deletability.NOT_BROKEN),
        (Cause.KMS_UNREACHABLE, Deletability.DECLARABLE),
        (Cause.PROTOBUF_DAMAGED, Deletability.DELETABLE),
    ],
)
def test_the_standing_of_a_cause(cause: Cause, standing: Deletability) -> None:
    assert deletability_of_cause(cause) is standing


def test_a_cause_without_a_failure_has_no_severity_but_an_inconsistency() -> None:
    for cause in Cause:
        outcomes = {outcome.value for outcome in CATALOGUE[cause].outcomes}
        assert bool(severities_of_cause(cause)) == bool(
            outcomes & {"decrypt-failure", "decode-failure", "inconsistent"}
        )
