"""Groups of findings: counted whole, ranked, bounded; the first screen adds up for any number of them."""

from __future__ import annotations

import re
import tracemalloc
from io import BytesIO
from typing import Any

import msgspec
import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import Outcome
from etcdfix.report.advice.ways import WayKind
from etcdfix.report.finding import finding_from
from etcdfix.report.groups import Groups, where
from etcdfix.report.model import Finding, LostKey, Remedy, Summary
from etcdfix.report.render.text import WideWriter, text_lines
from etcdfix.report.scan import ScanReport
from etcdfix.report.tally import OTHERS
from etcdfix.text.commands import RunOptions, explain
from tests.support.examinations import examination
from tests.support.fixtures import Patch
from tests.support.reports import conclusion

NOW, LATER = (0, 0, 1), (2, 1, 3)
LOST = LostKey("aescbc/v1/key2", "secrets", ["secrets"], None, 13, 13, 5, 9, [])


def finding(key: str = "/registry/secrets/shop/web", **fields: Any) -> Finding:
    return msgspec.structs.replace(finding_from(examination(key), ()), **fields)


def way(verb: WayKind) -> Remedy:
    return Remedy("Do it", explain(b"/registry/secrets/shop/web"), verb=verb)


def many(number: int) -> tuple[Groups, int]:
    """Return so many groups, which grow, and how many findings they have."""
    groups, total = Groups(), 0
    for at in range(number):
        for _ in range(at % 3 + 1):
            groups.add(finding(f"/registry/secrets/shop/w-{at}", transformer=f"aescbc/v1/k{at}"), NOW)
            total += 1
    return groups, total


def report(groups: Groups, total: int, **changes: Any) -> ScanReport:
    summary = Summary(
        keys=2 * total,
        decrypt_failures=total,
        at_stake="BREAKS NOW: LIST of secrets fails unless a cache answers. No namespace gets deleted.",
        do_not_restart="Do not restart an API server: it would not get ready again (readyz).",
        next=Remedy("Find the original key in a backup", explain(b"/registry/secrets/shop/web")),
        key_loss=[LOST, LOST, LOST],
    )
    summary.groups = groups.published()
    return conclusion(summary, **changes)


def screen(shown: ScanReport, width: int = 100) -> list[str]:
    return [*text_lines(shown.document(), RunOptions(), width)]


@pytest.mark.parametrize("reasons", [[], ["page 7 of the file cannot be read: " + "x" * 300, "another"]])
@pytest.mark.parametrize("number", [1, 12, 13, 700])
def test_the_first_screen_has_24_lines_and_its_counts_add_up(number: int, reasons: list[str]) -> None:
    shown = report(*many(number), complete=not reasons, incomplete_reasons=reasons)
    total = shown.summary.decrypt_failures
    lines = screen(shown)
    assert len(lines) <= 24
    assert all(len(line) <= 100 for line in lines)
    rows = [int(line.split()[0]) for line in lines if re.match(r" *[0-9]+  ", line)]
    rest = re.search(r"and ([0-9]+) more groups? with ([0-9]+) objects?", "\n".join(lines))
    assert len(rows) + (int(rest[1]) if rest else 0) == number
    assert sum(rows) + (int(rest[2]) if rest else 0) == total
    assert f"{total} of {2 * total} object" in lines[0]
    assert lines[1].startswith("3 encryption keys are missing or wrong: aescbc/v1/key2 (13 objects)")


def test_a_group_counts_resources_and_namespaces_and_keeps_the_most_urgent_as_its_example() -> None:
    groups = Groups()
    other = finding("/registry/apps/d", group="apps", resource="deployments", severity="breaks-now")
    groups.add(finding("/registry/apps/a", group="apps", resource="deployments"), LATER, way(WayKind.CURE))
    groups.add(other, NOW, way(WayKind.CURE))
    groups.add(finding("/registry/secrets/pay/b", namespace="pay"), LATER)
    groups.add(finding("/registry/secrets/shop/a", severity="breaks-now"), NOW, way(WayKind.CURE))
    groups.add(finding("/registry/secrets/shop/c"), NOW, way(WayKind.CURE))
    found, first = groups.published(), groups.first_way
    (group, without) = found
    assert (group.count, group.by_resource) == (4, {"deployments.apps": 2, "secrets": 2})
    assert (group.namespaces, group.example, group.severity) == (1, "/registry/apps/d", "breaks-now")
    assert group.way is not None
    assert group.way.verb == "cure"
    assert first == way(WayKind.CURE)
    assert (without.count, without.way, without.first_namespaces) == (1, None, ["pay"])


@pytest.mark.parametrize(
    "other",
    [
        {"cause": Cause.PROTOBUF_DAMAGED.value}, {"outcome": Outcome.DECODE_FAILURE.value},
        {"rule": "configmaps"}, {"transformer": "aescbc/v1/other"}, {"key_fingerprint": "sha256:1"},
    ],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_what_makes_another_group(other: dict[str, Any]) -> None:
    groups = Groups()
    groups.add(finding(), NOW)
    groups.add(finding(**other), NOW)
    groups.add(finding(), NOW, way(WayKind.FIX))
    assert [group.count for group in groups.published()] == [1, 1, 1]


def test_the_worst_goes_first_then_what_is_new_then_what_is_larger() -> None:
    groups = Groups()
    for name, number, rank, known in (
        ("harmless", 5, LATER, False), ("known", 4, NOW, True), ("few", 1, NOW, False), ("more", 2, NOW, False),
    ):  # fmt: skip
        for _ in range(number):
            groups.add(finding(transformer=name, baseline=known), rank)
    undetermined = finding(outcome="undetermined", cause="kms-unreachable", severity=None)
    groups.add(undetermined, None, way(WayKind.CURE))
    groups.add(finding(outcome="readable"))
    found, first = groups.published(), groups.first_way
    assert [group.transformer for group in found[:-1]] == ["more", "few", "known", "harmless"]
    assert found[-1].outcome == "undetermined"
    assert first is None  # nothing is proven wrong with that
    assert groups.warnings == 1


def test_what_finds_no_group_of_its_own_is_counted_all_the_same() -> None:
    groups = Groups(most=2)
    for at in range(7):
        groups.add(finding(f"/registry/secrets/shop/w-{at}", transformer=f"t{at}"), NOW)
    found = groups.published()
    assert sorted(group.count for group in found) == [1, 1, 5]
    assert next(group for group in found if group.count == 5).cause == OTHERS


@pytest.mark.parametrize(
    ("room", "named", "told"),
    [(2, ["a"], "secrets in a and others"), (1, [], "secrets in some namespaces"),
     (0, [], "resources not counted")],
)  # fmt: skip
def test_what_was_not_counted_is_never_told_as_none(
    room: int, named: list[str], told: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("etcdfix.report.groups._MOST_NAMES", room)
    groups = Groups()
    for namespace in "aabc":
        groups.add(finding(namespace=namespace), NOW)
    (group,) = groups.published()
    assert (group.namespaces, group.first_namespaces, sum(group.by_resource.values())) == (None, named, 4)
    assert where(group) == told


def test_memory_is_bounded_by_groups_and_names_not_by_findings() -> None:
    groups = Groups(most=10)

    def add(start: int, count: int) -> int:
        tracemalloc.start()
        for at in range(start, start + count):
            groups.add(finding(f"/r/{at}", namespace=f"n-{at % 50}", transformer=f"t{at}"), NOW)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size

    add(0, 500)
    assert add(500, 2_000) < 20_000
    assert sum(group.count for group in groups.published()) == 2_500


def test_wide_shows_what_is_wrong_before_warnings(monkeypatch: Patch) -> None:
    stream = BytesIO()
    monkeypatch.setattr(WideWriter, "most", 2)
    writer = WideWriter(stream, RunOptions())
    warned, wrong = finding("/registry/secrets/a/w", outcome="readable"), finding("/registry/secrets/b/x")
    for row in (warned, warned, wrong):
        writer.row(row)
    writer.end(report(*many(1)))
    text = stream.getvalue().decode()
    assert text.index(wrong.key) < text.index(warned.key)
