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
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from etcdfix.inputs.inputfile import (
    MAX_PLAN_BYTES,
    OtherFormError,
    Readable,
    mapped_input,
    require_json,
    spoiled,
)
from etcdfix.inputs.ownfiles import PLAN_KIND
from etcdfix.model.errors import ConfigurationError
from etcdfix.report.model import API_VERSION, other_version
from etcdfix.report.plan import DeletionPlan, LeftOut, PlanDecision, PlanEntry
from etcdfix.report.rows import Rows
from etcdfix.report.saved_report import DocumentKind

Row = PlanEntry | LeftOut | PlanDecision
R = TypeVar("R", bound=Row)

_AGAIN: Final = "make a new one: etcdfix plan --from-report REPORT -o json --output-file FILE"


def sealed(plan: DeletionPlan) -> DeletionPlan:
    """Return the plan with the digest of its own content."""
    return msgspec.structs.replace(plan, content_sha256=_digest(_fields(plan)))


def decided_digest(plan: DeletionPlan) -> str:
    """Return the digest of a plan with its decisions, for ``--expect-plan``."""
    digest = hashlib.sha256(plan.content_sha256.encode() + b"\n")
    for decision in plan.decisions:
        digest.update(msgspec.json.encode([decision.order, decision.decision]) + b"\n")
    return f"sha256:{digest.hexdigest()}"


def _fields(plan: DeletionPlan) -> Iterator[tuple[str, Any]]:
    return (
        (field.encode_name, getattr(plan, field.name))
        for field in msgspec.structs.fields(DeletionPlan)
        if field.name != "decisions"
    )


def _digest(fields: Iterable[tuple[str, Any]]) -> str:
    """Return the digest of a plan: that of its JSON in one line, before it had a digest."""
    digest = hashlib.sha256()
    before = b"{"
    for name, value in fields:
        digest.update(before + msgspec.json.encode(name) + b":")
        before = b","
        if isinstance(value, Sequence) and not isinstance(value, str):
            digest.update(b"[")
            for number, item in enumerate(value):
                digest.update((b"," if number else b"") + msgspec.json.encode(item))
            digest.update(b"]")
        else:
            digest.update(msgspec.json.encode("" if name == "content_sha256" else value))
    digest.update(b"}")
    return f"sha256:{digest.hexdigest()}"


def load_plan(path: Path) -> DeletionPlan:
    """Read a plan that was written with ``-o json``.

    It is read from a copy that nobody else has. All of it is looked at here; its rows are decoded from the copy again
    each time they are asked for: there may be a million. Raises ConfigurationError.
    """
    where = f"plan {path}"
    check = partial(_check_owner, where)
    try:
        with mapped_input(
            path, most_bytes=MAX_PLAN_BYTES, follow=False, standard_input=False, check=check
        ) as raw:
            plan = _read(raw, where)
            digest = _digest(_fields(plan))
    except OSError as exc:
        reason = "it is a symbolic link" if exc.errno == errno.ELOOP else exc.strerror
        raise ConfigurationError(f"{where}: {reason}", hint=_AGAIN) from exc
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        hint = exc.hint if isinstance(exc, OtherFormError) else _AGAIN
        raise ConfigurationError(f"{where} is not a plan of etcdfix: {spoiled(exc)}", hint=hint) from exc
    if plan.content_sha256 != digest:
        raise ConfigurationError(f"{where} is not what was written: its digest does not fit", hint=_AGAIN)
    if time_of(plan.generated_at) is None:
        raise ConfigurationError(f"{where}: generated_at {plan.generated_at!r} is no time", hint=_AGAIN)
    return plan


class _Document(msgspec.Struct):
    left_out: list[msgspec.Raw]
    entries: list[msgspec.Raw]
    decisions: list[msgspec.Raw]


def _read(raw: Readable, where: str) -> DeletionPlan:
    """Return a plan whose rows are still to be decoded, but for its decisions."""
    require_json(raw)
    found = msgspec.json.decode(raw, type=DocumentKind)
    if found.kind != PLAN_KIND:
        raise ConfigurationError(
            f"{where}: its kind is {found.kind or 'missing'}, expected {PLAN_KIND}", hint=_AGAIN
        )
    if found.api_version != API_VERSION:
        raise ConfigurationError(f"{where}: {other_version(found.api_version)}", hint=_AGAIN)
    rows = msgspec.json.decode(raw, type=_Document)
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    document = {
        name: [] if name in _Document.__struct_fields__ else msgspec.json.decode(value)
        for name, value in fields.items()
    }
    plan = msgspec.structs.replace(
        msgspec.convert(document, DeletionPlan),
        left_out=_FileRows(rows.left_out, LeftOut, where),
        entries=_FileRows(rows.entries, PlanEntry, where),
        decisions=_FileRows(rows.decisions, PlanDecision, where),
    )
    for _ in plan.decisions:  # no digest looks at them
        pass
    return plan


class _FileRows(Rows[R]):
    """Rows of a plan, decoded each time they are asked for.

    Reading them raises :class:`ConfigurationError` where the key of one is none, and a msgspec error where one is no
    row of its kind.
    """

    def __init__(self, rows: Sequence[msgspec.Raw], kind: type[R], where: str) -> None:
        decode = msgspec.json.Decoder(kind).decode

        def read() -> Iterator[R]:
            for raw in rows:
                row = decode(raw)
                _check_key(row, where)
                yield row

        super().__init__(len(rows), read)


def _check_key(entry: Row, where: str) -> None:
    try:
        plan_key(entry)
    except ValueError as exc:  # binascii.Error, or characters outside ASCII
        raise ConfigurationError(
            f"{where}: the key_base64 of {entry.key} is not base64", hint=_AGAIN
        ) from exc


def _check_owner(where: str, status: os.stat_result) -> None:
    if status.st_uid not in {os.geteuid(), 0}:
        raise ConfigurationError(f"{where} belongs to somebody else (uid {status.st_uid})", hint=_AGAIN)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"{where}: others may write to it (mode {status.st_mode & 0o777:04o})"
        raise ConfigurationError(why, hint="chmod go-w it, if you know that nobody did")


def plan_key(entry: Row) -> bytes:
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
