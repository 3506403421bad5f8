"""``-o junit``: what a CI system shows as tests. This is the document; which cases it has, its reports say.

A document begins with one suite about the report itself; then comes a suite for each resource, by name. The number of
cases stands before the cases, so these wait in an unlinked temporary file, already encoded: memory depends on the
number of suites.

Format:
    XML 1.0, in the elements and attributes of the schema that Jenkins publishes and Ant's JUnit task began
    (``testsuites``, ``testsuite``, ``properties``, ``testcase``, ``failure``, ``error``, ``skipped``, ``system-out``).
    All text has passed :func:`~etcdfix.text.safetext.safe_text`: nothing is left in it that XML 1.0 forbids.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import IO, BinaryIO, Final
from xml.etree.ElementTree import Element, SubElement, tostring  # written here, never read

import msgspec

from etcdfix.report.base import fit
from etcdfix.report.tally import MAX_NAMES, OTHERS
from etcdfix.temporary import temporary_directory, temporary_file
from etcdfix.text.safetext import safe_text

_MOST_IN_ATTRIBUTE: Final = 1_000
_MOST_IN_LINE: Final = 100_000
_TIME: Final = re.compile(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z")
_BUFFERED_BYTES: Final = 4_096


class CaseState(StrEnum):
    """What became of a case: passed, or the element that says otherwise."""

    PASSED = "passed"
    FAILURE = "failure"
    ERROR = "error"
    SKIPPED = "skipped"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One test case.

    Attributes:
        name: What was looked at; the same in every run.
        state: What became of it.
        type: Why, in one word; "" for none.
        message: Why, in one sentence; "" for none.
        lines: All there is to say.
    """

    name: str
    state: CaseState = CaseState.PASSED
    type: str = ""
    message: str = ""
    lines: Sequence[str] = ()


def whole_case(name: str, reasons: Sequence[str], *, complete: bool) -> Case:
    """Return the case that fails where the rest of the file may look better than things are.

    Args:
        name: That everything was looked at.
        reasons: Why not.
        complete: The report says that it was.
    """
    if complete and not reasons:
        return Case(name=name)
    return Case(
        name=name,
        state=CaseState.ERROR,
        type="incomplete",
        message="; ".join(reasons) or "the report does not say why it is incomplete",
        lines=reasons,
    )


class _Pieces:
    """Encoded cases in an unlinked temporary file, which is made when the first one comes."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._size = 0

    def append(self, piece: bytes | bytearray) -> int:
        """Return where a piece begins from now on."""
        if self._file is None:
            self._file = temporary_file(buffering=0)
        start = self._size
        rest = memoryview(piece)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as exc:  # not that of the report itself, which may lie on another disk
            raise OSError(exc.errno, exc.strerror, temporary_directory()) from exc
        self._size += len(piece)
        return start

    def read(self, start: int, size: int) -> bytes:
        assert self._file is not None  # something was appended
        self._file.seek(start)
        return self._file.read(size)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _Suite:
    """Counts the cases of a suite, and knows where they wait: the newest in memory, the others in pieces on disk."""

    def __init__(self, pieces: _Pieces) -> None:
        self._pieces = pieces
        self._newest = bytearray()
        self._places = array("Q")
        self.states: Counter[CaseState] = Counter()

    def add(self, state: CaseState, encoded: bytes) -> None:
        self.states[state] += 1
        self._newest += encoded
        if len(self._newest) >= _BUFFERED_BYTES:
            self._places.extend((self._pieces.append(self._newest), len(self._newest)))
            self._newest = bytearray()

    def encoded(self) -> Iterator[bytes]:
        for at in range(0, len(self._places), 2):
            yield self._pieces.read(self._places[at], self._places[at + 1])
        yield bytes(self._newest)


class JUnitDocument:
    """Takes cases in any order, and writes the document."""

    def __init__(self) -> None:
        self._pieces = _Pieces()
        self._suites: dict[str, _Suite] = {}

    def add(self, suite: str, case: Case) -> None:
        """Take one case of a suite; hostile data may bring a new suite with each case, so some stand together."""
        if suite not in self._suites and len(self._suites) >= MAX_NAMES:
            suite = OTHERS
        if suite not in self._suites:
            self._suites[suite] = _Suite(self._pieces)
        self._suites[suite].add(case.state, _case(suite, case))

    def write(
        self,
        stream: BinaryIO,
        *,
        name: str,
        at: str,
        properties: Mapping[str, str],
        cases: Iterable[Case],
        lines: Sequence[str] = (),
        seconds: int = 0,
    ) -> None:
        """Write everything.

        Args:
            stream: Where to.
            name: Of the document, and of its first suite.
            at: When the report was made, as reports have it.
            properties: What was looked at, by what.
            cases: Of the first suite.
            lines: What the first suite says beside them.
            seconds: How long making the report took; 0 where that is not known.
        """
        first = _Suite(self._pieces)
        for case in cases:
            first.add(case.state, _case(name, case))
        # A resource may have any name, that of the first suite too.
        suites = [(name, first), *((title, self._suites[title]) for title in sorted(self._suites))]
        total: Counter[CaseState] = Counter()
        for _title, suite in suites:
            total.update(suite.states)
        whole = Element("testsuites", _attributes(name, total, seconds, with_skipped=False))
        stream.write(b"<?xml version='1.0' encoding='UTF-8'?>\n" + _start(whole))
        for number, (title, suite) in enumerate(suites):
            of_report = suite is first
            stream.write(_start(_head(title, suite, number, at, seconds, properties if of_report else {})))
            stream.writelines(suite.encoded())
            if of_report and lines:
                said = Element("system-out")
                said.text = _text(lines)
                stream.write(_encoded(said))
            stream.write(b"</testsuite>\n")
        stream.write(b"</testsuites>\n")
        self._pieces.close()


def _head(
    title: str, suite: _Suite, number: int, at: str, seconds: int, properties: Mapping[str, str]
) -> Element:
    # All time is that of the report: no resource is looked at by itself.
    attributes = _attributes(title, suite.states, 0 if number else seconds, with_skipped=True)
    if _TIME.fullmatch(at):  # a saved report may hold anything
        attributes["timestamp"] = at.removesuffix("Z")
    head = Element("testsuite", {**attributes, "id": str(number)})
    if properties:
        within = SubElement(head, "properties")
        for name, value in properties.items():
            SubElement(within, "property", {"name": name, "value": _attribute(value)})
    return head


def _attributes(
    name: str, states: Mapping[CaseState, int], seconds: int, *, with_skipped: bool
) -> dict[str, str]:
    attributes = {
        "name": _attribute(name),
        "tests": str(sum(states.values())),
        "failures": str(states.get(CaseState.FAILURE, 0)),
        "errors": str(states.get(CaseState.ERROR, 0)),
    }
    if with_skipped:  # the outermost element has no place for it
        attributes["skipped"] = str(states.get(CaseState.SKIPPED, 0))
    return {**attributes, "time": str(seconds)}


def _case(suite: str, case: Case) -> bytes:
    element = Element(
        "testcase", {"classname": _attribute(suite), "name": _attribute(case.name), "time": "0"}
    )
    text = _text(case.lines)
    if case.state is CaseState.PASSED:
        if text:
            SubElement(element, "system-out").text = text
    else:
        result = SubElement(
            element, case.state.value, {"message": _attribute(case.message), "type": _attribute(case.type)}
        )
        result.text = text
    return _encoded(element)


def _attribute(text: str) -> str:
    return safe_text(fit(text, _MOST_IN_ATTRIBUTE)) or "-"


def _text(lines: Iterable[str]) -> str:
    """Return lines of foreign text as one; parsers take so much and no more, and a key may have a megabyte."""
    return "\n".join(safe_text(fit(line, _MOST_IN_LINE)) for line in lines)


def _encoded(element: Element) -> bytes:
    return tostring(element, encoding="unicode").encode() + b"\n"


def _start(element: Element) -> bytes:
    """Return an element without its end, for what comes within."""
    text = tostring(element, encoding="unicode", short_empty_elements=False)
    return text.removesuffix(f"</{element.tag}>").encode() + b"\n"
