"""Two saved reports compared: what is new, gone or changed, in flat memory.

Findings stand in the order of their etcd keys, so both reports are read side by side.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.model import Outcome
from etcdfix.operations.look.sorted_rows import SortedRows, turn_of
from etcdfix.report.diff import (
    CauseDifference,
    DiffCounts,
    DiffedFinding,
    DiffedReport,
    FindingDifference,
    ReportDiff,
    Unlike,
)
from etcdfix.report.model import Header, Scope
from etcdfix.report.origin import TOOL, shown_word, timestamp
from etcdfix.report.report_file import ReportFile, open_report, problems_of
from etcdfix.report.tally import OTHERS
from etcdfix.text.safetext import safe_text

_NOT_COMPARED: Final = frozenset({Outcome.READABLE.value, Outcome.NOT_AN_OBJECT.value})
_CLUSTER: Final = "cluster (uid of kube-system)"
"""Where it differs, a finding is new or gone for that alone."""
# A report may come from anybody; the causes that there are stay far below that.
_MOST_CAUSES: Final = 1_000


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    outcome: str
    key_base64: str | None = None
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    cause: str | None = None
    severity: str | None = None
    mod_revision: int = 0
    value_sha256: str = ""
    message: str = ""


class _Side:
    """One report: all of it is read once, and its findings again in the order of their keys."""

    def __init__(self, path: Path, report: ReportFile) -> None:
        self._report = report
        self._decode = msgspec.json.Decoder(_Row).decode
        self.path = path
        self.head = report.header()
        self.findings = 0
        found: Counter[str] = Counter()
        before = b""
        for _at, raw in report.findings():
            row = self._decode(raw)
            found[row.outcome] += 1
            self.findings += row.outcome not in _NOT_COMPARED
            key = _key_of(row)
            if key <= before:
                raise msgspec.ValidationError("its findings are not in the order of their etcd keys")
            before = key
        self.reasons = problems_of(report, found)

    def rows(self) -> Iterator[tuple[bytes, _Row]]:
        """Yield the findings that are compared, each with its key."""
        rows = (self._decode(raw) for _at, raw in self._report.findings())
        return ((_key_of(row), row) for row in rows if row.outcome not in _NOT_COMPARED)

    def published(self) -> DiffedReport:
        """Return which report it is."""
        head = self.head
        return DiffedReport(
            path=shown_word(str(self.path)),
            sha256=self._report.sha256,
            generated_at=head.generated_at,
            source_type=head.source.type,
            revision=head.source.revision,
            kube_system_uid=head.source.kube_system_uid,
            findings=self.findings,
            complete=not self.reasons,
            incomplete_reasons=self.reasons,
        )


def _key_of(row: _Row) -> bytes:
    try:
        encoded = row.key_base64
        return base64.b64decode(encoded, validate=True) if encoded is not None else row.key.encode()
    except ValueError as exc:
        raise msgspec.ValidationError(f"a key of it is none: {exc}") from exc


def diff_reports(earlier: Path, later: Path) -> ReportDiff:
    """Return what the later report has that the earlier one has not, and the other way.

    Raises:
        ConfigurationError: One of them cannot be read, is no report, or they cannot be compared.
        SourceError: There is no room for a temporary file.
    """
    with ExitStack() as stack:
        sides = [_Side(path, stack.enter_context(open_report(path))) for path in (earlier, later)]
        _refuse_unlike_scopes(*sides)
        return _Comparison(*sides).made()


def _refuse_unlike_scopes(earlier: _Side, later: _Side) -> None:
    """Refuse two reports of which one looked where the other did not: what is there is neither new nor gone."""
    scopes = [_scope_words(side.head.scope) for side in (earlier, later)]
    if scopes[0] == scopes[1]:
        return
    first, second = (
        f"{shown_word(str(side.path))} of {words}"
        for side, words in zip((earlier, later), scopes, strict=True)
    )
    raise ConfigurationError(
        f"these reports cannot be compared: {safe_text(first)}, and {safe_text(second)}",
        hint="scan the same resources, key prefixes and namespaces below the same --etcd-prefix for both",
    )


def _scope_words(scope: Scope) -> str:
    """Return what was looked at; all below the storage prefix is everything: keys elsewhere are no objects."""
    prefixes = {prefix for prefix in scope.prefixes if prefix.rstrip("/") != scope.etcd_prefix.rstrip("/")}
    words = [
        *sorted(set(scope.resources)),
        *sorted(prefixes),
        *(f"-n {name}" for name in sorted(set(scope.namespaces))),
    ]
    whole = len(prefixes) < len(set(scope.prefixes)) or not words
    return f"{'everything' if whole else ' '.join(words)} below {scope.etcd_prefix}"


def _unlike(earlier: _Side, later: _Side) -> list[Unlike]:
    there, here = (_circumstances(side.head) for side in (earlier, later))
    return [Unlike(what, was, here[what]) for what, was in there.items() if here[what] != was]


def _circumstances(head: Header) -> dict[str, str]:
    return {
        _CLUSTER: head.source.kube_system_uid or "",
        "encryption configuration (sha256)": getattr(head.encryption_config, "sha256", ""),
        "release (--kubernetes-version)": head.scope.kubernetes_version or "",
    }


class _Comparison:
    def __init__(self, earlier: _Side, later: _Side) -> None:
        self._earlier = earlier
        self._later = later
        self._counts = DiffCounts()
        self._causes: dict[tuple[str, str], CauseDifference] = {}
        self._new = SortedRows(FindingDifference)
        self._changed = SortedRows(FindingDifference)
        self._gone = SortedRows(FindingDifference)

    def made(self) -> ReportDiff:
        self._compare()
        unlike = _unlike(self._earlier, self._later)
        reasons = [
            reason.replace("the report", f"the {name} report", 1)
            for name, side in (("earlier", self._earlier), ("later", self._later))
            for reason in side.reasons
        ]
        # Where it is not known of which cluster one is, that is said, and may well be the same.
        reasons += [
            f"the reports are not of the same {one.what}"
            for one in unlike
            if one.what == _CLUSTER and one.earlier and one.later
        ]
        return ReportDiff(
            tool=TOOL,
            generated_at=timestamp(),
            earlier=self._earlier.published(),
            later=self._later.published(),
            unlike=unlike,
            counts=self._counts,
            by_cause=sorted(
                self._causes.values(), key=lambda one: (-one.new, -one.came, one.outcome, one.cause)
            ),
            complete=not reasons,
            incomplete_reasons=reasons,
            new=self._new.finish(),
            changed=self._changed.finish(),
            gone=self._gone.finish(),
        )

    def _compare(self) -> None:
        earlier = ((key, False, row) for key, row in self._earlier.rows())
        later = ((key, True, row) for key, row in self._later.rows())
        both = merge(earlier, later, key=itemgetter(0, 1))
        for key, rows in groupby(both, key=itemgetter(0)):
            found = {is_later: row for _key, is_later, row in rows}
            self._take(key, found.get(False), found.get(True))

    def _take(self, key: bytes, before: _Row | None, after: _Row | None) -> None:
        changed: list[str] = []
        if before is not None and after is not None:
            fields = {"outcome": "outcome", "cause": "cause", "value_sha256": "value"}
            changed = [
                word for field, word in fields.items() if getattr(before, field) != getattr(after, field)
            ]
            if not changed:
                self._counts.same += 1
                return
            self._counts.changed += 1
            if changed != ["value"]:
                self._cause(before).went += 1
                self._cause(after).came += 1
            rows = self._changed
        elif after is not None:
            self._counts.new += 1
            self._cause(after).new += 1
            rows = self._new
        else:
            assert before is not None  # one of them is there
            self._counts.gone += 1
            self._cause(before).gone += 1
            rows = self._gone
        names = ("key", "key_base64", "group", "resource", "namespace", "name")
        fields_of_key = {name: getattr(after or before, name) for name in names}
        rows.add(
            turn_of(key),
            FindingDifference(**fields_of_key, earlier=_said(before), later=_said(after), changed=changed),
        )

    def _cause(self, row: _Row) -> CauseDifference:
        place = (row.outcome, row.cause or "")
        if place not in self._causes and len(self._causes) >= _MOST_CAUSES:
            place = ("", OTHERS)
        return self._causes.setdefault(place, CauseDifference(*place))


def _said(row: _Row | None) -> DiffedFinding | None:
    if row is None:
        return None
    return DiffedFinding(*(getattr(row, name) for name in DiffedFinding.__struct_fields__))
