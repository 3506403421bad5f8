"""Fail where tests take too few branches of a package that decides or changes.

Reads what ``coverage json`` wrote: ``python .ci/branch_coverage.py coverage.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PACKAGES = ("copies", "decoding", "encryption", "examine/verdicts", "remediation")
LEAST_PERCENT = 97


def main(report: str) -> int:
    """Print a line for each package; return 1 if one of them falls short."""
    files = json.loads(Path(report).read_text())["files"]
    short = False
    for package in PACKAGES:
        found = [at["summary"] for path, at in files.items() if path.startswith(f"etcdfix/{package}/")]
        taken, all_of_them = (sum(at[name] for at in found) for name in ("covered_branches", "num_branches"))
        percent = 100 * taken / all_of_them if all_of_them else 0.0
        print(f"{package}: {taken} of {all_of_them} branches, {percent:.1f} %; at least {LEAST_PERCENT} %")
        short |= percent < LEAST_PERCENT
    return int(short)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
