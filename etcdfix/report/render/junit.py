"""``-o junit``: what a CI system shows as tests. The number of cases stands before them, so they wait on disk.

Format:
    XML 1.0 as the Jenkins xUnit schema has it: ``testsuites``, one ``testsuite`` with its ``properties``, ``testcase``
    with ``failure``, ``error``, ``skipped``, ``system-out``. ``safe_text`` leaves nothing that XML 1.0 forbids.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable
from typing import IO, Any, BinaryIO, Final
from xml.etree.ElementTree import Element, SubElement, tostring  # written here, never read

import msgspec

from etcdfix.inputs.temporary import temporary_directory, temporary_file
from etcdfix.report.document import Case, CaseState, Document
from etcdfix.report.model import SourcedReport
from etcdfix.report.render.rows import EndWriter
from etcdfix.report.render.text import text_lines
from etcdfix.report.scan import FAILING, finding_case, scan_case
from etcdfix.text.commands import RunOptions
from etcdfix.text.safetext import safe_text
from etcdfix.text.times import seconds_between
from etcdfix.text.words import fit

_LONGEST_ATTRIBUTE: Final = 1_000
"""Parsers take it; an etcd key may have a megabyte."""
_LONGEST_LINE: Final = 100_000
_WIDTH: Final = 100
_TIME: Final = re.compile(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z")


class JUnitWriter(EndWriter):
    """Writes one suite with the cases of a report."""

    def __init__(self, stream: BinaryIO, run: RunOptions, failing: Collection[str] = FAILING) -> None:
        super().__init__(stream, run)
        self._failing = failing
        self._states = Counter[CaseState]()
        self._cases: IO[bytes] | None = None
        self._streamed = False

    def begin(self, _header: msgspec.Struct) -> None:
        """Take nothing: the report has it."""
        self._streamed = True

    def row(self, row: Any) -> None:
        """Take one finding of a scan."""
        self._add("scan", finding_case(row, self._run, self._failing))

    def end(self, report: Any) -> None:
        """Write the suite."""
        name = f"etcdfix {report.kind}"
        for case in [scan_case(report, self._states)] if self._streamed else report.cases():
            self._add(report.kind, case)
        document: Document = report.document()
        seconds = seconds_between(report.generated_at, getattr(report, "finished_at", report.generated_at))
        counts = {
            "name": name,
            "tests": str(self._states.total()),
            "failures": str(self._states[CaseState.FAILED]),
            "errors": str(self._states[CaseState.ERROR]),
        }
        suite = Element("testsuite", {**counts, "skipped": str(self._states[CaseState.SKIPPED])})
        if _TIME.fullmatch(report.generated_at):  # a saved report may hold anything
            suite.set("timestamp", report.generated_at.removesuffix("Z"))
        suite.attrib |= {"id": "0", "time": str(seconds)}
        properties = SubElement(suite, "properties")
        for fact, value in _properties(report).items():
            SubElement(properties, "property", {"name": fact, "value": _attribute(value)})
        self._stream.write(b"<?xml version='1.0' encoding='UTF-8'?>\n")
        self._stream.write(_start(Element("testsuites", {**counts, "time": str(seconds)})) + _start(suite))
        if self._cases is not None:
            with self._cases as cases:
                cases.seek(0)
                shutil.copyfileobj(cases, self._stream)
        said = Element("system-out")
        said.text = "\n".join(text_lines(document, self._run, _WIDTH))
        self._stream.write(_encoded(said) + b"\n</testsuite>\n</testsuites>\n")

    def _add(self, kind: str, case: Case) -> None:
        self._states[case.state] += 1
        if self._cases is None:
            self._cases = temporary_file()
        try:
            self._cases.write(_encoded(_element(kind, case)) + b"\n")
        except OSError as exc:  # not that of the report itself, which may lie on another disk
            raise OSError(exc.errno, exc.strerror, temporary_directory()) from exc


def _properties(report: Any) -> dict[str, str]:
    """Return what a CI system may search for; what is not known is left out."""
    told = {"version": report.tool.version, "generated_at": report.generated_at}
    if isinstance(report, SourcedReport):
        configuration = report.encryption_config
        told["kube_system_uid"] = report.source.kube_system_uid or ""
        told["encryption_config_sha256"] = configuration.sha256 if configuration is not None else ""
    return {name: value for name, value in told.items() if value}


def _element(kind: str, case: Case) -> Element:
    element = Element(
        "testcase", {"classname": _attribute(case.group or kind), "name": _attribute(case.name), "time": "0"}
    )
    text = _text(case.detail)
    if case.state is not CaseState.PASSED:
        words = {"message": _attribute(case.message), "type": _attribute(case.type)}
        SubElement(element, case.state.value, words).text = text
    elif text:
        SubElement(element, "system-out").text = text
    return element


def _attribute(text: str) -> str:
    return safe_text(fit(text, _LONGEST_ATTRIBUTE)) or "-"


def _text(lines: Iterable[str]) -> str:
    return "\n".join(safe_text(fit(line, _LONGEST_LINE)) for line in lines)


def _encoded(element: Element) -> bytes:
    return tostring(element, encoding="unicode").encode()


def _start(element: Element) -> bytes:
    """Return an element without its end, for what comes within."""
    text = tostring(element, encoding="unicode", short_empty_elements=False)
    return text.removesuffix(f"</{element.tag}>").encode() + b"\n"
