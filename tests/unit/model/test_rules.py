"""The rules have a word each."""

from __future__ import annotations

import pytest

from etcdfix.model.errors import RefusedByRule, RemediationRefused
from etcdfix.model.rules import Rule, refuse


@pytest.mark.parametrize("rule", Rule)
def test_refusal(rule: Rule) -> None:
    error = refuse(rule, "no", hint="do this")
    assert isinstance(error, RefusedByRule)
    assert isinstance(error, RemediationRefused)
    assert (error.rule, error.message, error.hint, error.exit_code) == (rule.value, "no", "do this", 4)
    assert rule.value == rule.value.lower()
    assert " " not in rule.value
