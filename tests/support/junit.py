"""Reads ``-o junit`` with a parser that is not ours, and holds it against the schema."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import xmlschema
from junitparser import Error, Failure, JUnitXml, Skipped

_SCHEMA = xmlschema.XMLSchema(
    Path(__file__).parents[2] / "fixtures" / "schemas" / "junit.xsd", validation="strict"
)


class ReadCase(NamedTuple):
    """One case as a CI system reads it."""

    suite: str
    name: str
    state: str
    message: str
    text: str


class ReadJUnit(NamedTuple):
    """A document as a CI system reads it."""

    cases: list[ReadCase]
    properties: dict[str, str]
    said: str

    def of(self, suite: str) -> dict[str, ReadCase]:
        return {case.name: case for case in self.cases if case.suite == suite}

    def states(self) -> dict[str, int]:
        """Return how many cases have which state."""
        found: dict[str, int] = {}
        for case in self.cases:
            found[case.state] = found.get(case.state, 0) + 1
        return found

    @property
    def is_red(self) -> bool:
        """Whether a CI system takes it for failed."""
        return any(case.state in {"failure", "error"} for case in self.cases)


def read_junit(raw: bytes) -> ReadJUnit:
    """Return what stands in a document, once it fits the schema, and its counts its cases."""
    _SCHEMA.validate(raw.decode())
    document = JUnitXml.fromstring(raw)
    cases: list[ReadCase] = []
    properties: dict[str, str] = {}
    said = ""
    counted = [0, 0, 0]
    for suite in document:
        before = len(cases)
        cases += [_case(case.classname, case) for case in suite]
        states = [case.state for case in cases[before:]]
        failed, errors, skipped = (states.count(state) for state in ("failure", "error", "skipped"))
        assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (
            len(states),
            failed,
            errors,
            skipped,
        )
        counted = [one + more for one, more in zip(counted, (len(states), failed, errors), strict=True)]
        properties |= {one.name: one.value for one in suite.properties()}  # type: ignore[no-untyped-call]
        said += suite._elem.findtext("system-out") or ""  # it knows those of cases alone
    assert [document.tests, document.failures, document.errors] == counted
    return ReadJUnit(cases, properties, said)


def _case(suite: str, case: object) -> ReadCase:
    result = getattr(case, "result")  # noqa: B009 - the package has no types
    kinds = {Failure: "failure", Error: "error", Skipped: "skipped"}
    if not result:
        return ReadCase(suite, getattr(case, "name", ""), "passed", "", getattr(case, "system_out", "") or "")
    (one,) = result
    return ReadCase(suite, getattr(case, "name", ""), kinds[type(one)], one.message, one.text or "")
