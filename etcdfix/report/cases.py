"""What a CI system shows as tests: the cases that a report has."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class CaseState(StrEnum):
    """What became of a case; all but ``passed`` is the name of the element that says so."""

    PASSED = "passed"
    FAILED = "failure"
    ERROR = "error"
    SKIPPED = "skipped"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One test case.

    Attributes:
        name: What was looked at; the same in every run.
        group: What it belongs to, such as a resource; "" for the report itself.
        state: What became of it.
        type: Why, in one word; "" for none.
        message: Why, in one sentence; "" for none.
        detail: Lines with all there is to say.
    """

    name: str
    group: str = ""
    state: CaseState = CaseState.PASSED
    type: str = ""
    message: str = ""
    detail: Sequence[str] = ()


def whole_case(name: str, reasons: Sequence[str], *, complete: bool) -> Case:
    """Return the case that is an error where the report may look better than things are."""
    if complete and not reasons:
        return Case(name=name)
    message = "; ".join(reasons) or "the report does not say why it is incomplete"
    return Case(name=name, state=CaseState.ERROR, type="incomplete", message=message, detail=reasons)
