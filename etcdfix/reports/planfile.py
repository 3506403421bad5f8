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
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.inputfile import MAX_PLAN_BYTES, read_input
from etcdfix.inputs.ownfiles import PLAN_KIND
from etcdfix.reports.model import API_VERSION, READ_VERSIONS
from etcdfix.reports.plan_model import DeletionPlan, LeftOut, PlanEntry
from etcdfix.reports.rows import Rows

T = TypeVar("T")

_NAMES_BEFORE: Final = {
    "problems": "incomplete_reasons", "recreators": "recreated_by", "floor": "protected",
}  # fmt: skip
_ROWS: Final = ("left_out", "entries")
_AGAIN: Final = "make a new one: etcdfix plan --from-report REPORT -o json --output-file FILE"


def sealed(plan: DeletionPlan) -> DeletionPlan:
    """Return the plan with the digest of its own content."""
    return msgspec.structs.replace(plan, content_sha256=_digest(_fields(plan)))


def _fields(plan: DeletionPlan) -> Iterator[tuple[str, Any]]:
    return ((field.encode_name, getattr(plan, field.name)) for field in msgspec.structs.fields(DeletionPlan))


def _digest(fields: Iterable[tuple[str, Any]]) -> str:
    """Return the digest of a plan of any version: that of its JSON in one line, before it had a digest."""
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
    """Read a plan that was written with ``-o json``, by this version or by one before it.

    Its rows are read from the file's bytes each time they are asked for: there may be a hundred thousand.

    Raises:
        ConfigurationError: It cannot be read, it is somebody else's, others may write to it, it is no plan of a
            version that is read, or it was edited.
    """
    where = f"plan {path}"
    raw = _read(path, where)
    try:
        parts = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        document: dict[str, Any] = {
            name: _Raws(part) if name in _ROWS else msgspec.json.decode(part) for name, part in parts.items()
        }
        version, kind = document.get("apiVersion"), document.get("kind")
        if kind != PLAN_KIND or version not in READ_VERSIONS:
            raise ConfigurationError(
                f"{where} says {version} {kind}, expected {API_VERSION} {PLAN_KIND}", hint=_AGAIN
            )
        of_today = version == API_VERSION
        plan = _converted(document, of_today=of_today)
        digest = _digest(_stated(plan, document) if of_today else document.items())
        for row in chain[PlanEntry | LeftOut](plan.entries, plan.left_out):
            _check_key(row, where)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise ConfigurationError(f"{where} is not a plan of etcdfix: {exc}", hint=_AGAIN) from exc
    if plan.content_sha256 != digest:
        raise ConfigurationError(f"{where} is not what was written: its digest does not fit", hint=_AGAIN)
    if time_of(plan.generated_at) is None:
        raise ConfigurationError(f"{where}: generated_at {plan.generated_at!r} is no time", hint=_AGAIN)
    return plan


def _stated(plan: DeletionPlan, document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields that a plan states, in the order of today: it may be of a version that had fewer."""
    for name, value in _fields(plan):
        if name in _ROWS:
            yield name, Rows(len(value), partial(_stated_rows, value, document[name]))
        elif name in document:
            yield name, value


def _stated_rows(rows: Sequence[PlanEntry | LeftOut], document: Sequence[dict[str, Any]]) -> Iterator[Any]:
    for row, stated in zip(rows, document, strict=True):
        if len(stated) == len(row.__struct_fields__):
            yield row
        else:
            yield {name: value for name, value in msgspec.to_builtins(row).items() if name in stated}


class _Raws(Rows[Any]):
    """Rows as they stand in a file.

    Raises:
        msgspec.MsgspecError: It is no list.
    """

    def __init__(self, part: msgspec.Raw) -> None:
        raws = msgspec.json.decode(part, type=list[msgspec.Raw])
        super().__init__(len(raws), lambda: map(msgspec.json.decode, raws))


def _converted(document: dict[str, Any], *, of_today: bool) -> DeletionPlan:
    named = document if of_today else _renamed(document)
    plan = msgspec.convert({**named, **{name: [] for name in _ROWS if name in named}}, DeletionPlan)

    def rows(name: str, kind: type[T]) -> Rows[T]:
        raws = document[name]
        return Rows(
            len(raws),
            lambda: (msgspec.convert(raw if of_today else _renamed(raw), kind) for raw in raws),
        )

    return msgspec.structs.replace(
        plan, left_out=rows("left_out", LeftOut), entries=rows("entries", PlanEntry)
    )


def _renamed(part: Any) -> Any:
    """Return a part of a plan of v1alpha1 with the names of today; a reader refuses what does not fit."""
    if not isinstance(part, dict):
        return part
    return {_NAMES_BEFORE.get(name, name): value for name, value in part.items()}


def _check_key(entry: PlanEntry | LeftOut, where: str) -> None:
    try:
        plan_key(entry)
    except ValueError as exc:  # binascii.Error, or characters outside ASCII
        raise ConfigurationError(
            f"{where}: the key_base64 of {entry.key} is not base64", hint=_AGAIN
        ) from exc


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
