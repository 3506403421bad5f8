"""JSON Schemas of what etcdfix writes, generated from the types that write it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from etcdfix.model import Confidence, Outcome, ServerBehaviour
from etcdfix.report.backup_model import BackupList, BackupPruning, BackupVerification
from etcdfix.report.cause_model import CauseList, CausePage
from etcdfix.report.compare_model import ComparisonReport
from etcdfix.report.configurations_model import (
    EncryptionDiffReport,
    EncryptionLintReport,
    EncryptionMergeReport,
)
from etcdfix.report.copies_model import CopiesReport
from etcdfix.report.diff_model import ReportDiff
from etcdfix.report.doctor import DoctorReport
from etcdfix.report.encryption_model import EncryptionTryReport, EncryptionUsageReport, WhatIfReport
from etcdfix.report.explain_model import ExplainReport
from etcdfix.report.heal_model import HealReport
from etcdfix.report.history_model import HistoryReport
from etcdfix.report.impact_model import ImpactReport, NamespaceReport, OrphansReport
from etcdfix.report.merge_model import ReportMerge
from etcdfix.report.model import API_VERSION, ChangeReport, Finding, ScanReport
from etcdfix.report.plan_model import DeletionPlan
from etcdfix.report.plan_run_model import PlanRunReport
from etcdfix.report.recover_model import EncryptionRecoverReport
from etcdfix.report.rescue_model import RescueReport
from etcdfix.text.commands import Command
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.severity import Severity

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    """Return the schema of the document that ``-o json`` writes."""
    return _with_catalogues(schema_of(ScanReport, f"ScanReport of {API_VERSION}"))


def finding_schema() -> dict[str, Any]:
    """Return the schema of one finding."""
    return _with_catalogues(schema_of(Finding, f"Finding of {API_VERSION}"))


def document_schema(document: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of another whole document, whose kind is called as its type."""
    kind = document.__name__
    schema = schema_of(document, f"{kind} of {API_VERSION}")
    fields = schema["$defs"][kind]["properties"]
    fields["apiVersion"], fields["kind"] = {"const": API_VERSION}, {"const": kind}
    if "Finding" not in schema["$defs"]:
        return schema
    _with_catalogues(schema)
    if document in {ExplainReport, ImpactReport}:  # its key may be any
        schema["$defs"]["Finding"]["properties"]["outcome"] = {"enum": [outcome.value for outcome in Outcome]}
    return schema


def schema_of(written: Any, title: str) -> dict[str, Any]:
    """Return the schema of a type that is written as JSON."""
    return {"$schema": DIALECT, "title": title, **msgspec.json.schema(written, schema_hook=_of_command)}


def _of_command(kind: type) -> dict[str, Any]:
    if kind is Command:
        return {"type": "string"}
    raise NotImplementedError(kind)


def _with_catalogues(schema: dict[str, Any]) -> dict[str, Any]:
    finding = schema["$defs"]["Finding"]["properties"]
    # Closed catalogues: the types are plain text so that a reader of a newer report does not fail on them.
    finding["outcome"] = {"enum": [o.value for o in Outcome if o is not Outcome.NOT_AN_OBJECT]}
    finding["cause"] = {"enum": [*(c.value for c in Cause), None]}
    finding["confidence"] = {"enum": [c.value for c in Confidence]}
    finding["apiserver"] = {"enum": [b.value for b in ServerBehaviour]}
    finding["severity"] = {"enum": [*(s.value for s in Severity), None]}
    for name in ("value_sha256",):
        finding[name] = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
    return schema


SCHEMAS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "report": report_schema,
    "finding": finding_schema,
    "explain": partial(document_schema, ExplainReport),
    "history": partial(document_schema, HistoryReport),
    "copies": partial(document_schema, CopiesReport),
    "impact": partial(document_schema, ImpactReport),
    "namespace": partial(document_schema, NamespaceReport),
    "orphans": partial(document_schema, OrphansReport),
    "plan": partial(document_schema, DeletionPlan),
    "plan-run": partial(document_schema, PlanRunReport),
    "change": partial(document_schema, ChangeReport),
    "heal": partial(document_schema, HealReport),
    "doctor": partial(document_schema, DoctorReport),
    "encryption-usage": partial(document_schema, EncryptionUsageReport),
    "compare": partial(document_schema, ComparisonReport),
    "encryption-lint": partial(document_schema, EncryptionLintReport),
    "encryption-diff": partial(document_schema, EncryptionDiffReport),
    "encryption-merge": partial(document_schema, EncryptionMergeReport),
    "encryption-recover": partial(document_schema, EncryptionRecoverReport),
    "encryption-try": partial(document_schema, EncryptionTryReport),
    "encryption-what-if": partial(document_schema, WhatIfReport),
    "rescue": partial(document_schema, RescueReport),
    "report-diff": partial(document_schema, ReportDiff),
    "report-merge": partial(document_schema, ReportMerge),
    "cause": partial(document_schema, CausePage),
    "cause-list": partial(document_schema, CauseList),
    "backup-list": partial(document_schema, BackupList),
    "backup-verification": partial(document_schema, BackupVerification),
    "backup-pruning": partial(document_schema, BackupPruning),
}
