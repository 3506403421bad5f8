"""How checks are asked: all of them, once, with one refusal that says what would go through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.examine.maybe_newer import SimilarCounts
from etcdfix.model.errors import RefusedByRule, SourceUnreachable
from etcdfix.model.rules import Rule, refuse, unless_accepted
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.change import Change, ChangeRequest, Check, ask
from etcdfix.remediation.present import Present
from etcdfix.remediation.surroundings import SameKeyEvidence
from tests.support.checked_values import present_of
from tests.support.examinations import examination

FOUND = examination(b"/registry/secrets/shop/web")
GIVEN = ("etcdfix", "delete", "/registry/secrets/shop/web", "--reason", "two words")
LINE = "etcdfix delete /registry/secrets/shop/web --reason 'two words'"


def needs(rule: Rule, *, after: Rule | None = None, name: str = "") -> Check:
    """Return a check that a word lifts; it asks only once another one is accepted."""

    def check(_present: Present, change: Change) -> Iterator[RefusedByRule | str]:
        accepted = name in change.accepted.named(rule) if name else change.accepts(rule)
        if accepted:
            yield f"{rule}, as accepted"
        elif after is None or change.accepts(after):
            yield unless_accepted(rule, f"{rule} says no", name=name)

    return check


def never(_present: Present, _change: Change) -> Iterator[RefusedByRule]:
    yield refuse(Rule.NEVER_DELETABLE, "nothing lifts this")


def unfound(present: Present, _change: Change) -> Iterator[RefusedByRule]:
    """Two checks rest on a fact that cannot be had."""
    present.known["home"] = present.known.get("home2") or refuse(Rule.GONE, "it is not there")
    present.known["home2"] = present.known["home"]
    assert present.home
    yield from ()


def unreachable(_present: Present, _change: Change) -> Iterator[RefusedByRule]:
    yield from ()
    raise SourceUnreachable("nobody answers")


def asked(*checks: Check, given: tuple[str, ...] = GIVEN) -> RefusedByRule | list[str]:
    request = ChangeRequest(reason="a test", given=given)
    present = present_of(FOUND, SameKeyEvidence(FOUND, {}, False, SimilarCounts(), {}, 1), request)
    try:
        return ask(checks, present, Change(Verb.DELETE, present, request))
    except RefusedByRule as refusal:
        return refusal


@pytest.mark.parametrize(
    ("checks", "rules", "command", "lifted"),
    [
        (
            [needs(Rule.ONLY_COPY), needs(Rule.MASS_DAMAGE), needs(Rule.ONLY_COPY)],
            ["only-copy", "mass-damage"],
            f"{LINE} --accept only-copy --accept mass-damage",
            "this command goes through",
        ),
        (
            [needs(Rule.ONLY_COPY), needs(Rule.MASS_DAMAGE, after=Rule.ONLY_COPY)],
            ["only-copy", "mass-damage"],
            f"{LINE} --accept only-copy --accept mass-damage",
            "this command goes through",
        ),
        (
            [needs(Rule.UNCHECKED_MEMBER, name="a b")],
            ["unchecked-member"],
            f"{LINE} --accept 'unchecked-member=a b'",
            "this command goes through",
        ),
        ([needs(Rule.ONLY_COPY), never], ["only-copy", "never-deletable"], "", "No --accept"),
        ([unfound, unfound, never], ["gone", "never-deletable"], "", "No --accept"),
        ([needs(Rule.ONLY_COPY), unreachable], ["only-copy"], "", "Not all was asked: nobody answers"),
    ],
)  # fmt: skip
def test_one_refusal_lists_all_and_ends_with_what_would_go_through(
    checks: list[Check], rules: list[str], command: str, lifted: str
) -> None:
    said = asked(*checks)
    assert isinstance(said, RefusedByRule)
    assert list(said.rules) == rules
    assert [said.message, *(one.message for one in said.also)] == list(
        dict.fromkeys([said.message, *(one.message for one in said.also)])
    )
    assert said.command == command
    assert lifted in said.lifted


def test_what_nothing_lets_through_offers_no_word() -> None:
    """What is said only once a word was accepted that nobody gave is left out, unless it is what forbids it."""

    def asks_then(_present: Present, change: Change) -> Iterator[RefusedByRule]:
        if change.accepts(Rule.MASS_DAMAGE):
            yield refuse(Rule.NO_API_SERVER, "nobody answered", hint="--kubeconfig FILE")

    said = asked(needs(Rule.MASS_DAMAGE), needs(Rule.ONLY_COPY, after=Rule.MASS_DAMAGE), asks_then)
    assert isinstance(said, RefusedByRule)
    assert [(one.rule, one.hint) for one in (said, *said.also)] == [
        ("mass-damage", ""),
        ("no-api-server", "--kubeconfig FILE"),
    ]
    assert said.lifted.startswith("No --accept")


def test_words_stand_before_what_ends_the_options() -> None:
    said = asked(needs(Rule.ONLY_COPY), given=("etcdfix", "delete", "--dry-run", "--", "/registry/a"))
    assert isinstance(said, RefusedByRule)
    assert said.command == "etcdfix delete --dry-run --accept only-copy -- /registry/a"


def test_without_a_command_line_the_words_are_named() -> None:
    said = asked(needs(Rule.ONLY_COPY), given=())
    assert isinstance(said, RefusedByRule)
    assert (said.command, "these words" in said.lifted) == ("--accept only-copy", True)


def test_warnings_are_told_once() -> None:
    def warns(_present: Present, _change: Change) -> Iterator[str]:
        yield "one"
        yield "two"

    assert asked(warns, warns) == ["one", "two"]
