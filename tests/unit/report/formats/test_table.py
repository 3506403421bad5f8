from __future__ import annotations

from typing import Any

import pytest

from etcdfix.model import Outcome
from etcdfix.sources.base import Segment
from etcdfix.verdicts.examination import Examination
from tests.support.examinations import examination, with_verdict
from tests.support.reports import source, write


def table(found: list[Examination], output: str = "table", **settings: Any) -> list[str]:
    return write(output, found, **settings).decode().splitlines()


def rows(lines: list[str]) -> list[str]:
    """Return the rows of findings: what stands between the first header line and the blank line after it."""
    start = next(i for i, line in enumerate(lines) if line.startswith("OUTCOME"))
    end = next(i for i in range(start, len(lines)) if not lines[i])
    return [line for line in lines[start + 1 : end] if line.startswith(tuple(o.value for o in Outcome))]


def broken(count: int) -> list[Examination]:
    return [examination(f"/registry/pods/shop/{n:03}") for n in range(count)]


@pytest.mark.parametrize(
    ("count", "cap", "shown", "more"),
    [
        (1, 100, 1, 0),
        (100, 100, 100, 0),
        (101, 100, 100, 1),
        (250, 100, 100, 150),
        (6, 5, 5, 1),
        (101, 101, 101, 0),
    ],
)
@pytest.mark.parametrize("output", ["table", "wide"])
def test_rows_stop_at_the_cap_and_counts_do_not(
    output: str, count: int, cap: int, shown: int, more: int
) -> None:
    lines = table(broken(count), output, max_causes=cap)
    assert len(rows(lines)) == shown
    hints = [line for line in lines if line.startswith("shown: ")]
    assert hints == (
        [f"shown: {shown} of {count} findings; see all with -o json, or --max-causes {count}"] if more else []
    )
    assert any(f"{count} unreadable or inconsistent" in line for line in lines)
    assert any(line.split() == ["key-name-missing", "decrypt-failure", str(count), "/registry/pods/shop/000"]
               for line in lines)  # fmt: skip


@pytest.mark.parametrize("output", ["table", "wide"])
def test_hostile_names_do_not_reach_the_terminal(output: str) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\n\r\x9b31m\u202e\u2066\u200b\x7f"
    key = f"/registry/secrets/{hostile}/{hostile}".encode() + b"\xff"
    found = [
        with_verdict(examination(key), message=hostile, upstream_message=hostile),
        examination(f"/registry/{hostile}.example/x{hostile}/a/b", transformer=f"aescbc/v1/{hostile}"),
    ]
    wild = source(
        path=hostile, kube_system_uid=hostile, etcd_version=hostile, integrity=hostile, single_revision=False,
        segments=[Segment(hostile, 1)],
    )  # fmt: skip
    text = write(output, found, source=wild, complete=False, incomplete_reasons=[hostile]).decode()
    assert text.replace("\n", "").isprintable()
    assert len([line for line in text.splitlines() if line.startswith("decrypt-failure")]) == 2
