"""Saved reports, as scans write them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import Outcome
from etcdfix.report.finding import finding_from
from etcdfix.report.model import Finding, Summary
from etcdfix.report.render import SCAN_FORMS
from etcdfix.text.commands import RunOptions
from tests.support.examinations import examination
from tests.support.reports import conclusion, header, scan_report, source

MADE_AT = "2026-01-02T03:04:05Z"

_FIELDS = {
    "decrypt-failure": "decrypt_failures",
    "decode-failure": "decode_failures",
    "inconsistent": "inconsistent",
    "undetermined": "undetermined",
}


def findings(number: int, *, known: int = 0, outcome: Outcome = Outcome.DECRYPT_FAILURE) -> list[Finding]:
    """Return so many findings, the first of which the baseline knew."""
    cause = Cause.KMS_UNREACHABLE if outcome is Outcome.UNDETERMINED else Cause.WRONG_KEY
    one = finding_from(examination("/registry/secrets/shop/s", outcome=outcome, cause=cause))
    severity = None if outcome is Outcome.UNDETERMINED else "breaks-now"
    return [
        msgspec.structs.replace(
            one, key=f"/registry/secrets/shop/s-{at:06}", severity=severity, baseline=at < known
        )
        for at in range(number)
    ]


def write_report(
    path: Path,
    found: Sequence[Finding] = (),
    *,
    uid: str | None = "",
    head: dict[str, Any] | None = None,
    origin: dict[str, Any] | None = None,
    reasons: Sequence[str] = (),
    **summary: Any,
) -> Path:
    """Write a report; its ending says whether as ``json`` or ``jsonl``.

    Args:
        uid: Of kube-system; "" for one made of the file's name.
    """
    counts = Counter(_FIELDS[one.outcome] for one in found if one.outcome in _FIELDS)
    fields: dict[str, Any] = {
        **counts,
        "keys": 100 + sum(counts.values()) + summary.get("not_objects", 0),
        "readable": 100,
        "severity": "breaks-now" if any(one.severity for one in found) else None,
        "do_not_restart": "Do not restart an API server: why." if any(one.severity for one in found) else "",
        "known_findings": sum(one.baseline for one in found),
    }
    came_from = source(
        **{
            "kube_system_uid": f"uid of {path.stem}" if uid == "" else uid,
            "file_modified_at": "2026-01-02T00:00:00Z",
        }
        | (origin or {})
    )
    with path.open("wb") as stream:
        reporter = SCAN_FORMS[path.suffix.removeprefix(".")](stream, RunOptions())
        begun = header(**({"source": came_from, "generated_at": MADE_AT} | (head or {})))
        reporter.begin(begun)
        for one in found:
            reporter.row(one)
        ending = conclusion(
            Summary(**(fields | summary)),
            source=came_from,
            complete=not reasons,
            incomplete_reasons=list(reasons),
        )
        reporter.end(scan_report(begun, ending))
    return path
