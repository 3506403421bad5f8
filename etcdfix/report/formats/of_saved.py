"""Which saved documents can be shown again, and how: all that are one JSON document, but scans and plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from etcdfix.report.compare import ComparisonReport
from etcdfix.report.copies import CopiesReport
from etcdfix.report.diff import ReportDiff
from etcdfix.report.impact import ImpactReport
from etcdfix.report.namespace import NamespaceReport
from etcdfix.report.orphans import OrphansReport
from etcdfix.report.render import FORMS, write
from etcdfix.text.commands import RunOptions


class SavedKind(NamedTuple):
    """One kind of document.

    Attributes:
        type: What it is read as.
        formats: Its forms; each takes the document, a stream, and how many rows a list may have.
    """

    type: type[msgspec.Struct]
    formats: Mapping[str, Callable[[Any, BinaryIO, int], None]]


def _rendered(form: str, report: Any, stream: BinaryIO, _most: int) -> None:
    write(report, form, stream, RunOptions())


RENDERED: Final = {form: partial(_rendered, form) for form in FORMS} | {"table": partial(_rendered, "text")}
"""Forms of a report that has a document."""

SAVED_KINDS: Final[Mapping[str, SavedKind]] = {
    "ImpactReport": SavedKind(ImpactReport, RENDERED),
    "NamespaceReport": SavedKind(NamespaceReport, RENDERED),
    "OrphansReport": SavedKind(OrphansReport, RENDERED),
    "CopiesReport": SavedKind(CopiesReport, RENDERED),
    "ComparisonReport": SavedKind(ComparisonReport, RENDERED),
    "ReportDiff": SavedKind(ReportDiff, RENDERED),
}
