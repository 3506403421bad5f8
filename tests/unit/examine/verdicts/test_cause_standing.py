"""What is said of a cause alone agrees with what is said of values with it."""

from __future__ import annotations

import pytest

from etcdfix.examine.verdicts.catalogue import CATALOGUE, CURABLE_BY_CONFIGURATION
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import (
    FAILED,
    LOST_KEY,
    Deletability,
    deletability_of_cause,
)
from etcdfix.examine.verdicts.severity import severities_of_cause


@pytest.mark.parametrize("cause", Cause)
def test_only_what_fails_and_no_configuration_cures_is_deletable(cause: Cause) -> None:
    standing = deletability_of_cause(cause)
    if standing is Deletability.DELETABLE:
        assert set(CATALOGUE[cause].outcomes) & FAILED
        assert cause not in CURABLE_BY_CONFIGURATION
    if cause in LOST_KEY:
        assert standing is Deletability.DECLARABLE


def test_a_cause_without_a_failure_has_no_severity_but_an_inconsistency() -> None:
    for cause in Cause:
        outcomes = {outcome.value for outcome in CATALOGUE[cause].outcomes}
        assert bool(severities_of_cause(cause)) == bool(
            outcomes & {"decrypt-failure", "decode-failure", "inconsistent"}
        )
