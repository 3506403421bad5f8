"""May a value ever be deleted: what its verdict alone says."""

from __future__ import annotations

from typing import Any

import pytest

from etcdfix.model import Outcome
from etcdfix.verdicts.causes import CATALOGUE, Cause
from etcdfix.verdicts.standing import FAILED, KMS_DOUBTS, Standing, key_may_be_lost, standing_of
from tests.support.examinations import examination

KEY = b"/registry/secrets/shop/web"


@pytest.mark.parametrize(
    ("change", "standing"),
    [
        ({"outcome": Outcome.READABLE, "cause": None}, Standing.NOT_BROKEN),
        ({"outcome": Outcome.INCONSISTENT, "cause": Cause.IDENTITY_MISMATCH}, Standing.NOT_BROKEN),
        ({"outcome": Outcome.NOT_AN_OBJECT, "cause": None}, Standing.NOT_BROKEN),
        ({"outcome": Outcome.UNDETERMINED, "cause": Cause.OWNER_UNKNOWN}, Standing.UNPROVEN),
        ({"outcome": Outcome.UNDETERMINED, "cause": Cause.NO_CONFIGURATION}, Standing.UNPROVEN),
        ({"outcome": Outcome.UNDETERMINED, "cause": Cause.KMS_KEY_UNKNOWN}, Standing.DECLARABLE),
        ({"cause": Cause.KEY_NAME_MISSING}, Standing.DECLARABLE),
        ({"cause": Cause.KEY_NAME_MISSING, "transformer": "identity"}, Standing.CURABLE),
        ({"cause": Cause.KEY_NAME_MISSING, "transformer": ""}, Standing.CURABLE),
        ({"cause": Cause.KEY_NAME_MISSING, "deletable": False}, Standing.CURABLE),
        ({"cause": Cause.VALUE_TRUNCATED}, Standing.DELETABLE),
        ({"cause": Cause.VALUE_TRUNCATED, "deletable": False}, Standing.NEVER),
        ({"outcome": Outcome.DECODE_FAILURE, "cause": Cause.PROTOBUF_DAMAGED}, Standing.DELETABLE),
    ],
)
def test_standing(change: dict[str, Any], standing: Standing) -> None:
    assert standing_of(examination(KEY, **change)) is standing


@pytest.mark.parametrize("cause", [info.cause for info in CATALOGUE.values()])
def test_every_cause_has_one(cause: Cause) -> None:
    for outcome in CATALOGUE[cause].outcomes:
        found = standing_of(examination(KEY, outcome=outcome, cause=cause))
        assert (found is Standing.NOT_BROKEN) == (outcome not in FAILED | {Outcome.UNDETERMINED})
        if outcome in FAILED and CATALOGUE[cause].curable_by_configuration:
            assert found is Standing.DECLARABLE
        if cause in KMS_DOUBTS:
            assert found is Standing.DECLARABLE


@pytest.mark.parametrize(
    ("change", "may"),
    [({}, True), ({"transformer": "identity"}, False), ({"transformer": ""}, False), ({"deletable": False}, False)],
)  # fmt: skip
def test_only_a_key_can_be_declared_lost(change: dict[str, Any], *, may: bool) -> None:
    assert key_may_be_lost(examination(KEY, **change)) is may
