"""What is said to be ruled out for certain must not be what was done: the same cases as the exam's."""

from __future__ import annotations

from typing import Final

import pytest

from etcdfix.encryption.layout import envelope_layout
from etcdfix.examine_all import View, examine_all
from etcdfix.model import Confidence
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.observation import Observation
from etcdfix.verdicts.ruled_out import ruled_out
from tests.exam.cases import BETWEEN, BETWEEN_TWO, Case, make_case
from tests.exam.judging import NeverWaits, examiner_of
from tests.exam.results import CASES
from tests.support.memory_source import MemorySource

_DONE: Final[dict[str, frozenset[Cause]]] = {
    "cut": frozenset({Cause.VALUE_TRUNCATED}),
    "crlf": frozenset({Cause.TEXT_MODE_DAMAGE}),
    "renamed": frozenset({Cause.KEY_RENAMED}),
    "moved": frozenset({Cause.VALUE_MOVED}),
    "prefix": frozenset({Cause.STORAGE_PREFIX_CHANGED}),
    "appended": frozenset({Cause.TRAILING_BYTES}),
}

_OTHER_BYTES: Final = frozenset({"wrong bytes", "replaced", "refused", "wrong answer", BETWEEN, BETWEEN_TWO})


def excluded(case: Case) -> dict[Cause, str]:
    """Return what is ruled out for certain, once everything was looked at."""
    examiner = examiner_of(case)
    examiner.plugins = NeverWaits() if case.plugin is not None else None
    source = MemorySource(case.records)
    examiner.learn_custom_resources(source)
    found: list[tuple[Examination, Observation | None]] = []

    def take(one: Examination, _view: View) -> None:
        if one.stored.key == case.target.key:
            found.append((one, examiner.observation(one)))

    examine_all(examiner, source.pages(b""), take, targets=(case.target.key,))
    ((target, seen),) = found
    if seen is None:
        return {}
    told = ruled_out(seen, target.verdict, searched=True)
    parts = " ".join(part.detail for part in envelope_layout(case.target.value))
    words = parts + " ".join(one.why for one in told)
    assert not [hidden for hidden in case.hidden if hidden in words]
    return {one.cause: one.why for one in told if one.confidence is Confidence.CERTAIN}


def wrong(case: Case) -> list[str]:
    done = {cause for mark in case.marks for cause in _DONE.get(mark, ())}
    if case.key in _OTHER_BYTES:
        done.add(Cause.WRONG_KEY)
    return [f"{case}: {cause}: {why}" for cause, why in excluded(case).items() if cause in done]


@pytest.mark.parametrize("seed", range(100))
def test_what_was_done_is_not_ruled_out(seed: int) -> None:
    assert not wrong(make_case(seed))


@pytest.mark.exam
def test_no_case_rules_out_what_was_done() -> None:
    found = [line for seed in range(CASES) for line in wrong(make_case(seed))]
    assert not found, "\n".join(found)
