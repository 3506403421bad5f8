"""``-o junit`` of ``encryption what-if``: what a new configuration makes unreadable fails, before it is deployed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from etcdfix.report.encryption_model import ConfigurationChange, ValueChange, WhatIfReport
from etcdfix.report.formats.encryption import key_words
from etcdfix.report.formats.junit import Case, CaseState, JUnitDocument, whole_case
from etcdfix.report.formats.junit_scan import resource_name
from etcdfix.report.formats.text import shown_transformer
from etcdfix.report.head import head_lines
from etcdfix.text.words import counted

NAME: Final = "etcdfix encryption what-if"
WHOLE: Final = "everything was examined under both configurations"
NOTHING_LOST: Final = "no value becomes unreadable, or loses the key with which it can be repaired"

_STATES: Final = {
    ConfigurationChange.BECOMES_UNREADABLE: CaseState.FAILURE,
    ConfigurationChange.LOSES_ITS_WAY_BACK: CaseState.FAILURE,
    ConfigurationChange.UNDETERMINED: CaseState.ERROR,
    ConfigurationChange.STAYS_UNREADABLE: CaseState.SKIPPED,
}
"""All else passes."""


def write_junit(report: WhatIfReport, stream: BinaryIO) -> None:
    """Write the document."""
    document = JUnitDocument()
    for row in report.changes:
        document.add(resource_name(row.group, row.resource), _case(row))
    document.write(
        stream,
        name=NAME,
        at=report.generated_at,
        properties={
            "version": report.tool.version,
            "revision": str(report.source.revision),
            "kube_system_uid": report.source.kube_system_uid or "unknown",
            "encryption_config_sha256": getattr(report.encryption_config, "sha256", "none"),
            "new_config_sha256": getattr(report.new_config, "sha256", "none"),
            "complete": str(report.complete).lower(),
        },
        cases=[
            whole_case(WHOLE, report.incomplete_reasons, complete=report.complete),
            _nothing_lost(report),
        ],
        lines=[*report.warnings, *head_lines("", "", report.next)],
    )


def _case(row: ValueChange) -> Case:
    key = key_words(row.key_fingerprint or row.kms_key_id_sha256)
    under = " ".join(filter(None, (shown_transformer(row.transformer) or "(unknown)", key)))
    cause = f", {row.cause}" if row.cause else ""
    return Case(
        name=f"{under}: {row.change.value}{cause}",
        state=_STATES.get(row.change, CaseState.PASSED),
        type=row.cause or row.change.value,
        message=f"{counted(row.count, 'value')} under {under}: {row.change.value}{cause}",
        lines=[f"{counted(row.count, 'value')}, such as:", *row.examples],
    )


def _nothing_lost(report: WhatIfReport) -> Case:
    told = "; ".join(_counts(report))
    if not report.becomes_unreadable and not report.loses_its_way_back:
        return Case(name=NOTHING_LOST, lines=[told])
    return Case(name=NOTHING_LOST, state=CaseState.FAILURE, type="lost", message=told)


def _counts(report: WhatIfReport) -> Iterator[str]:
    yield f"{counted(report.values, 'value')} compared"
    for change in ConfigurationChange:
        number = getattr(report, change.value.replace("-", "_"))
        if number:
            yield f"{number} {change.value}"
