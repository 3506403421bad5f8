"""``--accept``: the only way to go on in spite of a rule. It has no variable: each command is told anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from etcdfix.apiserver.servers import parse_server_url
from etcdfix.errors import ConfigurationError
from etcdfix.rules import MEANINGS, NAMED, Rule


class _Word(click.ParamType[str]):
    """A rule that a command asks about, with the name of what it is accepted for where it has one."""

    name = "rule"

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word, with a name as it is compared."""
        word, equals, name = value.partition("=")
        named = bool(name) if word in NAMED else not equals
        if word not in self._rules or not named:
            known = ", ".join(map(_shown, self._rules))
            self.fail(f"{value!r} is not a word of this command, which knows {known}", param, ctx)
        if word != Rule.UNCHECKED_SERVER:
            return value
        try:
            return f"{word}={parse_server_url(name)}"
        except ConfigurationError as exc:
            self.fail(f"{word}={exc.message.removeprefix('--server ')}", param, ctx)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the words that begin like this."""
        words = (f"{rule}=" if rule in NAMED else rule.value for rule in self._rules)
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _shown(rule: Rule) -> str:
    return f"{rule}={NAMED[rule]}" if rule in NAMED else rule.value


def accept_option(*rules: Rule) -> Callable[[Any], Any]:
    """Return the option that accepts any of these rules: those that a command asks about, and no other."""
    meanings = "; ".join(f"{_shown(rule)}: {MEANINGS[rule]}" for rule in rules)
    return click.option(
        "--accept", "accepted_words", multiple=True, type=_Word(rules), metavar="RULE",
        help=f"Go on in spite of this one rule (may be repeated). {meanings}.",
    )  # fmt: skip
