"""The page of rules, the checks, and the words of ``--accept`` are one list."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from etcdfix.cli.root import cli
from etcdfix.model.rules import MEANINGS, Rule
from etcdfix.remediation.change import DELETE, PATCH, PUT, UNDO

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rules.md"
ASKED = {
    "delete": DELETE,
    "fix": (*PUT, *PATCH),
    "undo": UNDO,
}
# Whoever names a plan accepts another etcd; the choice of a copy asks by itself.
BESIDES = {
    "delete": {Rule.OTHER_CLUSTER_ID},
    "fix": {Rule.UNLISTED_SOURCE},
    "undo": set[Rule](),
}


def rule_of(name: str) -> Rule:
    return Rule(name.replace("_", "-"))


def test_every_rule_is_explained_once() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for check in (check for asked in ASKED.values() for check in asked):
        assert check.__doc__, check.__name__
        assert check.__doc__.split("\n")[0] in page
    for rule in Rule:
        assert f"- `{rule}`: " in page


@pytest.mark.parametrize("command", ASKED)
def test_a_command_takes_the_words_that_its_checks_ask_for(command: str) -> None:
    with click.Context(cli) as context:
        found = cli.get_command(context, command)
    assert found is not None
    (accept,) = (param for param in found.params if "--accept" in param.opts)
    words = set(accept.type._rules)  # type: ignore[attr-defined]
    asked = {rule_of(check.__name__) for check in ASKED[command]} & set(MEANINGS)
    assert words == asked | BESIDES[command]
