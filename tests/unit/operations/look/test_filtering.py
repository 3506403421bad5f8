"""What filters let through, what they hide and count, and that ignorance hides nothing."""

from __future__ import annotations

from typing import Any

import pytest

from etcdfix.errors import SourceError
from etcdfix.model import Outcome
from etcdfix.operations.look import filtering
from etcdfix.operations.look.filtering import FilteringReporter
from etcdfix.reports.base import Reporter
from etcdfix.reports.finding import finding_from
from etcdfix.reports.model import (
    Conclusion,
    Filters,
    Finding,
    Header,
    HiddenFindings,
    RevisionBound,
    SharedWords,
)
from etcdfix.verdicts.causes import Cause
from tests.support.examinations import examination
from tests.support.reports import conclusion, header


class Kept(Reporter):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.shared: list[str] = []
        self.head: Header | None = None
        self.conclusion: Conclusion | None = None

    def begin(self, header: Header) -> None:
        self.head = header

    def finding(self, finding: Finding) -> None:
        self.keys.append(finding.key.rpartition("/")[2])

    def finding_of_lost_key(self, finding: Finding, shared: SharedWords) -> None:
        self.shared.append(shared.id)
        self.finding(finding)

    def end(self, conclusion: Conclusion) -> None:
        self.conclusion = conclusion


def one(name: str, **settings: Any) -> Finding:
    return finding_from(examination(f"/registry/secrets/shop/{name}", **settings))


FOUND = [
    one("a", mod_revision=30, value=b"x" * 10),
    one("b", mod_revision=10, value=b"x" * 30, cause=Cause.CIPHERTEXT_DAMAGED),
    one("c", mod_revision=20, value=b"x" * 20, outcome=Outcome.DECODE_FAILURE, cause=Cause.EMPTY_OBJECT),
    one("d", mod_revision=40, value=b"", outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE),
]


def run(filters: Filters, found: list[Finding] | None = None) -> tuple[Kept, HiddenFindings]:
    kept = Kept()
    reporter = FilteringReporter(kept, filters)
    reporter.begin(header())
    for finding in found if found is not None else FOUND:
        reporter.finding(finding)
    reporter.end(conclusion())
    assert kept.head is not None
    assert kept.head.scope.filters == filters
    assert kept.conclusion is not None
    assert kept.conclusion.hidden == reporter.hidden
    return kept, reporter.hidden


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        (Filters(), "abcd"),
        (Filters(outcomes=["decode-failure", "undetermined"]), "cd"),
        (Filters(causes=["ciphertext-damaged"]), "b"),
        (Filters(severities=["one-object"]), ""),
        (Filters(severities=["breaks-now"]), "abc"),
        (Filters(outcomes=["decrypt-failure"], causes=["ciphertext-damaged", "empty-object"]), "b"),
        (Filters(limit=3), "abc"),
        (Filters(sort_by="revision"), "dacb"),
        (Filters(sort_by="size"), "bcad"),
        (Filters(sort_by="cause"), "bcad"),
        (Filters(sort_by="resource"), "abcd"),
        (Filters(sort_by="severity"), "abcd"),
        (Filters(sort_by="revision", limit=2), "da"),
        (Filters(stale=True), ""),
    ],
)
def test_what_is_shown(filters: Filters, shown: str) -> None:
    kept, hidden = run(filters)
    assert "".join(kept.keys) == shown
    assert hidden.findings == len(FOUND) - len(shown) == sum(hidden.by_outcome.values())


def bound(before: int | None, after: int | None) -> RevisionBound:
    return RevisionBound(given="3d", time="2026-03-01T12:00:00Z", before=before, after=after)


@pytest.mark.parametrize(
    ("filters", "shown", "unknown"),
    [
        (Filters(newer_than=bound(20, 21)), "ad", 0),
        (Filters(older_than=bound(29, 30)), "bc", 0),
        (Filters(newer_than=bound(10, 30)), "acd", 1),
        (Filters(older_than=bound(10, 30)), "bc", 1),
        (Filters(newer_than=bound(None, None)), "abcd", 4),
        (Filters(older_than=bound(None, None)), "abcd", 4),
        (Filters(newer_than=bound(10, None)), "acd", 3),
        (Filters(newer_than=bound(10, 30), causes=["ciphertext-damaged"]), "", 0),
    ],
)
def test_a_value_is_hidden_only_where_its_age_is_known(filters: Filters, shown: str, unknown: int) -> None:
    kept, hidden = run(filters)
    assert "".join(kept.keys) == shown
    assert hidden.time_unknown == unknown


def test_what_stands_past_the_limit_is_counted_apart() -> None:
    _kept, hidden = run(Filters(outcomes=["decrypt-failure"], limit=1))
    assert hidden == HiddenFindings(3, {"decode-failure": 1, "decrypt-failure": 1, "undetermined": 1}, 1, 0)


def test_the_order_of_keys_is_that_of_their_bytes() -> None:
    """Also where one key begins with another one, or holds the byte that ends it."""
    keys = [b"/registry/x", b"/registry/x\x00", b"/registry/x\x00\xff", b"/registry/x\x01", b"/registry/x/y"]
    found = [finding_from(examination(key, mod_revision=5)) for key in keys]
    for turned in (found, found[::-1]):
        taken: list[str] = []
        kept = Kept()
        kept.finding = lambda finding, taken=taken: taken.append(finding.key_base64 or finding.key)  # type: ignore[method-assign,misc]
        reporter = FilteringReporter(kept, Filters(sort_by="revision"))
        for finding in turned:
            reporter.finding(finding)
        reporter.end(conclusion())
        assert taken == [finding.key_base64 or finding.key for finding in found]


def test_findings_of_a_lost_key_keep_what_they_share() -> None:
    words = SharedWords("id-1", "key-name-missing", "no key", [])
    lost = [finding_from(examination(f"/registry/secrets/shop/{n}", mod_revision=n)) for n in range(1, 4)]
    kept = Kept()
    reporter = FilteringReporter(kept, Filters(sort_by="revision", limit=2))
    for finding in lost:
        finding = Finding(**{f: getattr(finding, f) for f in finding.__struct_fields__} | {"shared": "id-1"})
        reporter.finding_of_lost_key(finding, words)
    reporter.end(conclusion())
    assert (kept.keys, kept.shared) == (["3", "2"], ["id-1", "id-1"])


def test_a_full_disk_is_no_lost_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads etcd takes a SourceError for the end of etcd."""

    class Full:
        def __init__(self, _kind: object) -> None: ...

        def add(self, _turn: bytes, _row: object) -> None:
            raise SourceError("no room")

        finish = add

    monkeypatch.setattr(filtering, "SortedRows", Full)
    reporter = FilteringReporter(Kept(), Filters(sort_by="size"))
    with pytest.raises(OSError, match="no room"):
        reporter.finding(FOUND[0])
