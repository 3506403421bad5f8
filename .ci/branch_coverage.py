"""Fail where fewer branches of a package are taken by its tests than before.

Reads what ``coverage json`` wrote: ``python .ci/branch_coverage.py coverage.json``. The figures below were measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

LEAST_PERCENT = {"decoding": 100, "encryption": 100, "remediation": 100, "examine/verdicts": 100}


def main(report: str) -> int:
    """Print a line for each package; return 1 if one of them falls short."""
    files = json.loads(Path(report).read_text())["files"]
    short = False
    for package, least in LEAST_PERCENT.items():
        found = [at["summary"] for path, at in files.items() if path.startswith(f"etcdfix/{package}/")]
        taken, all_of_them = (sum(at[name] for at in found) for name in ("covered_branches", "num_branches"))
        percent = 100 * taken / all_of_them if all_of_them else 0.0
        print(f"{package}: {taken} of {all_of_them} branches, {percent:.1f} %; at least {least} %")
        short |= percent < least
    return int(short)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
