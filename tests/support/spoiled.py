"""Reports as a command writes them, and the same with every text of a stranger replaced by one that means harm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from etcdfix.graph.model import Action
from etcdfix.reports.compare_model import ComparisonReport
from etcdfix.reports.copies_model import CopiesReport
from etcdfix.reports.formats.html_plan import write_plan
from etcdfix.reports.formats.of_graph import IMPACT_FORMATS, NAMESPACE_FORMATS
from etcdfix.reports.formats.of_lists import COMPARE_FORMATS, COPIES_FORMATS
from etcdfix.reports.impact_model import ImpactReport, NamespaceReport
from etcdfix.reports.plan_model import DeletionPlan
from tests.support.pages import HOSTILE, INVISIBLE

ALPHA = Path("fixtures/snapshots/alpha")
_WHERE = ["--snapshot", str(ALPHA / "snapshot.db.gz")]
_LOST = [*_WHERE, "--encryption-config", str(ALPHA / "config-lost.yaml"), "--no-kms"]
_FOREIGN = frozenset({
    "key", "key_base64", "namespace", "name", "path", "detail", "message", "text", "note", "action", "command",
    "commands", "what", "why", "label", "title", "advice", "rule", "recreate_how", "recreate_basis", "how", "report",
    "cluster", "uid", "node", "below", "api", "consequence", "finalizers", "incomplete_reasons", "warnings",
    "upstream_message", "way_out", "at_stake", "do_not_restart", "consequences", "notes", "kube_system_uid",
    "protected", "refused", "needs", "repair", "transformer", "limited_to", "put_back", "save", "owner",
    "terminating_since", "group", "resource", "resources", "value_sha256", "lease", "id", "reports", "report_sha256",
    "generated_at",
})  # fmt: skip
"""Names of fields that a stranger may have a say in, or a file that somebody changed."""
_CLOSED = frozenset({*Action, "unreadable", "pods", "rest", "namespace"})


def _plan(report: DeletionPlan, stream: BinaryIO, _rows: int) -> None:
    write_plan(stream, report)


WRITERS: Mapping[str, tuple[Any, Callable[[Any, BinaryIO, int], None]]] = {
    "impact": (ImpactReport, IMPACT_FORMATS["html"]),
    "namespace": (NamespaceReport, NAMESPACE_FORMATS["html"]),
    "plan": (DeletionPlan, _plan),
    "copies": (CopiesReport, COPIES_FORMATS["html"]),
    "compare": (ComparisonReport, COMPARE_FORMATS["html"]),
}


def command_of(page: str, folder: Path) -> list[str]:
    """Return the words of a command that has this page, without its ``-o``.

    Args:
        page: One of :data:`WRITERS`.
        folder: Where what it reads may be written.
    """
    scanned = folder / "alpha.json"
    if page == "plan" and not scanned.exists():
        _run("scan", *_LOST, "-o", "json", "--output-file", str(scanned))
    return {
        "impact": ["impact", *_LOST, "/registry/deployments/shop/dep-1"],
        "namespace": ["namespace", *_LOST, "shop"],
        "plan": ["plan", *_LOST, "--from-report", str(scanned)],
        "copies": ["copies", *_LOST, "--backup-dir", str(folder), "--audit-log", str(folder / "audit.jsonl")],
        "compare": ["compare", *_LOST, "--with-snapshot", "fixtures/snapshots/small/history.db.gz"],
    }[page]


def document_of(page: str, folder: Path) -> Any:
    """Return the report of a page as plain values."""
    return msgspec.json.decode(_run(*command_of(page, folder), "-o", "json"))


def _run(*words: str) -> bytes:
    ran = subprocess.run([sys.executable, "-m", "etcdfix", *words], capture_output=True, check=False)
    assert ran.returncode in {0, 1, 3}, ran.stderr
    return ran.stdout


def spoiled(value: Any, *, foreign: bool = False) -> Any:
    """Return a document with something hostile at the end of every text that a stranger may have a say in."""
    if isinstance(value, dict):
        return {name: spoiled(inner, foreign=name in _FOREIGN) for name, inner in value.items()}
    if isinstance(value, list):
        return [spoiled(inner, foreign=foreign) for inner in value]
    if not foreign or not isinstance(value, str) or not value or value in _CLOSED:
        return value
    return f"{value}{HOSTILE}{INVISIBLE}"


def write(page: str, document: Any, path: Path) -> Path:
    """Write the page of a document."""
    kind, writer = WRITERS[page]
    with path.open("wb") as stream:
        writer(msgspec.convert(document, kind), stream, 100)
    return path
