"""How fast a long audit log is verified and opened, in how much memory, and what one append costs. Prints figures.

``pytest -m benchmark -s tests/benchmarks/test_audit.py``; ``ETCDFIX_BENCH_RECORDS`` changes the length (100,000).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

import pytest

from etcdfix.remediation.audit.record import BEGINNING, Result
from etcdfix.remediation.audit.record_line import draft_entry
from etcdfix.remediation.audit.verify import verify
from tests.benchmarks.measure import machine, run, spread
from tests.support.audit_logs import NOON, OPERATOR, entry, own_directory, parse_intent

pytestmark = pytest.mark.benchmark

RECORDS = int(os.environ.get("ETCDFIX_BENCH_RECORDS", "100000"))
RUNS = 5


def long_log(folder: Path, records: int) -> Path:
    path = own_directory(folder) / "audit.jsonl"
    head = BEGINNING
    with path.open("wb") as file:
        for _ in range(records // 2):
            intent = draft_entry(
                entry(backups=("/var/lib/etcdfix/one.json",), backup_sha256="sha256:" + "a" * 64),
                head,
                at=NOON,
            )
            closing = parse_intent(intent.line).closed_by(Result.DELETED, operator=OPERATOR)
            outcome = draft_entry(closing, intent.link, at=NOON)
            file.write(intent.line + outcome.line)
            head = outcome.link
    path.chmod(0o600)
    head_file = path.with_name(path.name + ".head")
    head_file.write_text(f"{head}\n")
    head_file.chmod(0o600)
    return path


def test_verify(tmp_path: Path) -> None:
    path = long_log(tmp_path / "log", RECORDS)
    rates = []
    for _ in range(RUNS):
        started = time.process_time()
        found = verify(path)
        rates.append(found.records / (time.process_time() - started))
        assert (found.records, found.exit_code) == (RECORDS, 0)
    size = path.stat().st_size >> 20
    print(f"\n{machine()}\nverify, {RECORDS} records, {size} MiB: {spread(rates)} records per second")
    assert statistics.median(rates) > 0


def test_memory_does_not_grow(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from etcdfix.remediation.audit.verify import verify;"
        "assert verify(Path(sys.argv[1])).exit_code == 0"
    )
    print(f"\n{machine()}")
    peaks = []
    for records in (RECORDS // 100, RECORDS):
        path = long_log(tmp_path / str(records), records)
        result = run([sys.executable, "-c", script, str(path)])
        peaks.append(result.anonymous_mb)
        print(f"  {records} records: {result.anonymous_mb:.0f} MB, {result.wall:.2f} s with start-up")
    assert peaks[1] < peaks[0] + 10
