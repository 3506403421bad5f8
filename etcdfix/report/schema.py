"""JSON Schemas of what etcdfix writes, generated from the types that write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.severity import Severity
from etcdfix.model.model import Confidence, Outcome, ServerBehaviour
from etcdfix.report.cause import CauseList, CausePage
from etcdfix.report.change import ChangeReport, PlanRunReport
from etcdfix.report.compare import ComparisonReport
from etcdfix.report.configurations import EncryptionCheckReport, EncryptionMergeReport
from etcdfix.report.copies import CopiesReport
from etcdfix.report.diff import ReportDiff, ReportMerge
from etcdfix.report.doctor import DoctorReport
from etcdfix.report.encryption import EncryptionTryReport, EncryptionUsageReport, WhatIfReport
from etcdfix.report.explain import ExplainReport
from etcdfix.report.log import BackupList, BackupPruning, LogSettling, LogVerification
from etcdfix.report.model import API_VERSION, Finding
from etcdfix.report.namespace import NamespaceReport
from etcdfix.report.orphans import OrphansReport
from etcdfix.report.plan import DeletionPlan
from etcdfix.report.recover import EncryptionRecoverReport
from etcdfix.report.rescue import RescueReport
from etcdfix.report.scan import ScanReport
from etcdfix.text.commands import Command

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

REPORTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "report": ScanReport,
    "explain": ExplainReport,
    "copies": CopiesReport,
    "namespace": NamespaceReport,
    "orphans": OrphansReport,
    "plan": DeletionPlan,
    "plan-run": PlanRunReport,
    "change": ChangeReport,
    "doctor": DoctorReport,
    "encryption-usage": EncryptionUsageReport,
    "compare": ComparisonReport,
    "encryption-check": EncryptionCheckReport,
    "encryption-merge": EncryptionMergeReport,
    "encryption-recover": EncryptionRecoverReport,
    "encryption-try": EncryptionTryReport,
    "encryption-what-if": WhatIfReport,
    "rescue": RescueReport,
    "report-diff": ReportDiff,
    "report-merge": ReportMerge,
    "cause": CausePage,
    "cause-list": CauseList,
    "log-verification": LogVerification,
    "log-settling": LogSettling,
    "log-backups": BackupList,
    "log-pruning": BackupPruning,
}
"""Every published document, by the name that ``etcdfix schema`` has for it."""
KINDS: Final = {struct.__name__: struct for struct in REPORTS.values()}
"""Every published document, by its ``kind``."""


def document_schema(document: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of a document, whose kind is called as its type."""
    kind = document.__name__
    schema = schema_of(document, f"{kind} of {API_VERSION}")
    fields = schema["$defs"][kind]["properties"]
    if "kind" in fields:
        fields["apiVersion"], fields["kind"] = {"const": API_VERSION}, {"const": kind}
    finding = schema["$defs"].get("Finding", {}).get("properties")
    if finding is not None:
        # The types are plain text, so that a reader of a newer report does not fail on a new word.
        outcomes = [outcome.value for outcome in Outcome]
        if document in {ScanReport, Finding}:  # else its key may be any
            outcomes.remove(Outcome.NOT_AN_OBJECT)
        finding["outcome"] = {"enum": outcomes}
        finding["cause"] = {"enum": [*(cause.value for cause in Cause), None]}
        finding["confidence"] = {"enum": [confidence.value for confidence in Confidence]}
        finding["apiserver"] = {"enum": [behaviour.value for behaviour in ServerBehaviour]}
        finding["severity"] = {"enum": [*(severity.value for severity in Severity), None]}
        finding["value_sha256"] = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
    return schema


def schema_of(written: Any, title: str) -> dict[str, Any]:
    """Return the schema of a type that is written as JSON."""
    return {"$schema": DIALECT, "title": title, **msgspec.json.schema(written, schema_hook=_of_command)}


def _of_command(kind: type) -> dict[str, Any]:
    if kind is Command:
        return {"type": "string"}
    raise NotImplementedError(kind)


SCHEMAS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    **{name: partial(document_schema, struct) for name, struct in REPORTS.items()},
    "finding": partial(document_schema, Finding),
}
"""What makes each schema."""
