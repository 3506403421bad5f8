"""A plan as a file: sealed against accidents, loaded with care, and what it expects of a key.

Whoever owns the file can change it and seal it anew. So it may add a refusal to a deletion, and takes none away: all
that permits is looked at live.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.inputfile import MAX_PLAN_BYTES, read_input
from etcdfix.inputs.ownfiles import PLAN_KIND
from etcdfix.reports.model import API_VERSION, READ_VERSIONS
from etcdfix.reports.plan_model import DeletionPlan, LeftOut, PlanEntry

_NAMES_BEFORE: Final = {
    "problems": "incomplete_reasons", "recreators": "recreated_by", "floor": "protected",
}  # fmt: skip
_AGAIN: Final = "make a new one: etcdfix plan --from-report REPORT -o json --output-file FILE"


def sealed(plan: DeletionPlan) -> DeletionPlan:
    """Return the plan with the digest of its own content."""
    return msgspec.structs.replace(plan, content_sha256=_digest(msgspec.to_builtins(plan)))


def _digest(document: dict[str, Any]) -> str:
    """Return the digest of a plan of any version: that of its JSON in one line, before it had a digest."""
    return f"sha256:{hashlib.sha256(msgspec.json.encode({**document, 'content_sha256': ''})).hexdigest()}"


def load_plan(path: Path) -> DeletionPlan:
    """Read a plan that was written with ``-o json``, by this version or by one before it.

    Raises:
        ConfigurationError: It cannot be read, it is somebody else's, others may write to it, it is no plan of a
            version that is read, or it was edited.
    """
    where = f"plan {path}"
    raw = _read(path, where)
    try:
        document = msgspec.json.decode(raw, type=dict[str, Any])
        version, kind = document.get("apiVersion"), document.get("kind")
        if kind != PLAN_KIND or version not in READ_VERSIONS:
            raise ConfigurationError(
                f"{where} says {version} {kind}, expected {API_VERSION} {PLAN_KIND}", hint=_AGAIN
            )
        of_today = version == API_VERSION
        plan = msgspec.convert(document if of_today else _renamed(document), DeletionPlan)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise ConfigurationError(f"{where} is not a plan of etcdfix: {exc}", hint=_AGAIN) from exc
    if plan.content_sha256 != _digest(msgspec.to_builtins(plan) if of_today else document):
        raise ConfigurationError(f"{where} is not what was written: its digest does not fit", hint=_AGAIN)
    if time_of(plan.generated_at) is None:
        raise ConfigurationError(f"{where}: generated_at {plan.generated_at!r} is no time", hint=_AGAIN)
    listed: list[PlanEntry | LeftOut] = [*plan.entries, *plan.left_out]
    for entry in listed:
        try:
            plan_key(entry)
        except ValueError as exc:  # binascii.Error, or characters outside ASCII
            raise ConfigurationError(
                f"{where}: the key_base64 of {entry.key} is not base64", hint=_AGAIN
            ) from exc
    return plan


def _renamed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a plan of v1alpha1 with the names of today; a shape that does not fit is left for the reader to refuse."""
    plan = {_NAMES_BEFORE.get(name, name): part for name, part in document.items()}
    if isinstance(plan.get("entries"), list):
        plan["entries"] = [
            {_NAMES_BEFORE.get(name, name): part for name, part in entry.items()}
            if isinstance(entry, dict)
            else entry
            for entry in plan["entries"]
        ]
    return plan


def _read(path: Path, where: str) -> bytes:
    def check(status: os.stat_result) -> None:
        if status.st_uid not in {os.geteuid(), 0}:
            raise ConfigurationError(f"{where} belongs to somebody else (uid {status.st_uid})", hint=_AGAIN)
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigurationError(
                f"{where}: others may write to it (mode {status.st_mode & 0o777:04o})",
                hint="chmod go-w it, if you know that nobody did",
            )

    try:
        return read_input(path, most_bytes=MAX_PLAN_BYTES, follow=False, check=check)
    except OSError as exc:
        reason = "it is a symbolic link" if exc.errno == errno.ELOOP else exc.strerror
        raise ConfigurationError(f"{where}: {reason}", hint=_AGAIN) from exc


def plan_key(entry: PlanEntry | LeftOut) -> bytes:
    """Return the etcd key of an entry."""
    return (
        base64.b64decode(entry.key_base64, validate=True)
        if entry.key_base64 is not None
        else entry.key.encode()
    )


def time_of(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
