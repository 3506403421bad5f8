"""The API server's own verdicts on the alpha snapshot, in a form to compare with."""

from __future__ import annotations

import json
import re
from typing import Any

from etcdfix.report.model import Finding
from tests.support.collecting import ALPHA

ORACLE: dict[str, Any] = json.loads((ALPHA / "oracle.json").read_text())
CONFIGURATIONS = {"config-lost.yaml": "lost-key2-and-kmsv1", "config-rotated.yaml": "same-name-other-secret"}
RESOURCES: list[str] = [entry["storage"] for entry in ORACLE["verdicts"]["lost-key2-and-kmsv1"].values()]
_DIRECTORIES = {"services": "services/specs"}


def prefix_of(storage: str) -> str:
    """Return the etcd prefix of a resource as the oracle calls it."""
    return f"/registry/{_DIRECTORIES.get(storage, storage)}/"


def corrupt_for_the_server(config: str, storage: str) -> dict[str, str]:
    """Return key to message of what the API server called corrupt."""
    verdicts = ORACLE["verdicts"][CONFIGURATIONS[config]]
    found: dict[str, str] = next(e["corrupt"] for e in verdicts.values() if e["storage"] == storage)
    return found


def corrupt_for_us(findings: dict[str, Finding], storage: str) -> dict[str, Finding]:
    """Return the findings of a resource of which we say that the API server calls them corrupt."""
    prefix = prefix_of(storage)
    return {
        key: finding
        for key, finding in findings.items()
        if key.startswith(prefix)
        and finding.outcome in {"decrypt-failure", "decode-failure"}
        and finding.apiserver != "serves-empty"
    }


def assert_same_message(finding: Finding, message: str) -> None:
    """Compare a finding with the server's words, but for data that we withhold."""
    withheld = re.fullmatch(r"(.*')<(\d+) bytes withheld>(')", finding.upstream_message)
    if withheld is None:
        assert _inner("x revision=0: " + finding.upstream_message) == _inner(message), finding.key
    else:
        start, size, end = withheld.groups()
        assert _inner(message).startswith(start)
        assert len(_inner(message)) == len(start) + int(size) + len(end)


def _inner(message: str) -> str:
    """What follows ``revision=N: ``, without the scheme's source location."""
    text = re.sub(r"^.*? revision=\d+: ", "", message, count=1, flags=re.DOTALL)
    return re.sub(r'in scheme ".*"', "in scheme", text)
