"""The few words that the text forms of these reports share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from etcdfix.report.base import Aligned, fit
from etcdfix.report.model import Header, ReportSource
from etcdfix.sources.base import of_several_etcds
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import transformer_words

_WIDEST = 72


def shown(value: object) -> str:
    """Return foreign text, safe and no longer than any honest name."""
    return safe_text(fit(str(value)))


def shown_transformer(transformer: str) -> str:
    """Return what a transformer is called, safe to print."""
    return shown(transformer_words(transformer))


def scan_introduction(header: Header, source: ReportSource) -> list[str]:
    """Return the lines that say what a scan looked at."""
    where = source.path if source.path is not None else ", ".join(source.endpoints or [])
    first = [
        f"etcdfix {header.tool.version}",
        f"{source.type} {safe_text(where)}",
        f"revision {source.revision}",
    ]
    if source.etcd_version:
        first.append(f"etcd {safe_text(source.etcd_version)}")
    lines = [" · ".join(first)]
    if source.sha256:
        lines.append(f"  {source.sha256}" + (f" ({safe_text(source.integrity)})" if source.integrity else ""))
    cluster = f"cluster {source.cluster_id} · " if source.cluster_id else ""
    uid = safe_text(source.kube_system_uid) if source.kube_system_uid else "unknown"
    lines.append(f"  {cluster}kube-system uid {uid}")
    if header.encryption_config:
        config = header.encryption_config
        lines.append(f"  encryption configuration {safe_text(config.path)} ({config.sha256})")
    else:
        lines.append("  without an encryption configuration")
    if not source.single_revision:
        steps = "; ".join(
            f"from {safe_text(s.from_key) or 'the start'} at {s.revision}" for s in source.segments
        )
        why = (
            "some resources have an etcd of their own"
            if of_several_etcds(source.segments)
            else "etcd compacted during the scan"
        )
        lines.append(f"  not one revision: {why} ({steps})")
    return lines


def steps(entries: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield numbered lines for steps of action, command and note; commands are quoted already."""
    for number, (action, command, note) in enumerate(entries, start=1):
        yield f"  {number}. {safe_text(action)}"
        if note:
            yield f"     {safe_text(note)}"
        if command:
            yield f"       {safe_text(command)}"


def aligned(rows: Sequence[tuple[str, ...]], indent: str = "  ") -> Iterator[str]:
    """Yield rows of cells in columns; a cell that is far too wide pushes its own row only."""
    if not rows:
        return
    widths = [
        max((len(row[i]) for row in rows if len(row[i]) <= _WIDEST), default=0) for i in range(len(rows[0]))
    ]
    for row in rows:
        text = indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield Aligned(text.rstrip(), row, indent)
