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

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.inputfile import MAX_PLAN_BYTES, Readable, mapped_input
from etcdfix.inputs.jsonparts import OtherFormError, Span, items, members, piece
from etcdfix.inputs.ownfiles import PLAN_KIND
from etcdfix.reports.model import API_VERSION, READ_VERSIONS
from etcdfix.reports.plan_model import NOT_SEALED, DeletionPlan, LeftOut, PlanDecision, PlanEntry
from etcdfix.reports.rows import Rows

Row = PlanEntry | LeftOut | PlanDecision
R = TypeVar("R", bound=Row)

_NAMES_BEFORE: Final = {
    "problems": "incomplete_reasons", "recreators": "recreated_by", "floor": "protected",
}  # fmt: skip
_ROWS: Final = (b"left_out", b"entries", b"decisions")
_AGAIN: Final = "make a new one: etcdfix plan --from-report REPORT -o json --output-file FILE"


def sealed(plan: DeletionPlan) -> DeletionPlan:
    """Return the plan with the digest of its own content."""
    return msgspec.structs.replace(plan, content_sha256=_digest(_fields(plan)))


def _fields(plan: DeletionPlan) -> Iterator[tuple[str, Any]]:
    return (
        (field.encode_name, getattr(plan, field.name))
        for field in msgspec.structs.fields(DeletionPlan)
        if field.name not in NOT_SEALED
    )


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

    It is read from a copy that nobody else has. All of it is looked at here; its rows are decoded from the copy again
    each time they are asked for: there may be a million.

    Raises:
        ConfigurationError: It cannot be read, it is somebody else's, others may write to it, it is no plan of a
            version that is read, or it was edited.
    """
    where = f"plan {path}"
    check = partial(_check_owner, where)
    try:
        with mapped_input(
            path, most_bytes=MAX_PLAN_BYTES, follow=False, standard_input=False, check=check
        ) as raw:
            plan, digest = _read(raw, where)
    except OSError as exc:
        reason = "it is a symbolic link" if exc.errno == errno.ELOOP else exc.strerror
        raise ConfigurationError(f"{where}: {reason}", hint=_AGAIN) from exc
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        hint = exc.hint if isinstance(exc, OtherFormError) else _AGAIN
        raise ConfigurationError(f"{where} is not a plan of etcdfix: {exc}", hint=hint) from exc
    if plan.content_sha256 != digest:
        raise ConfigurationError(f"{where} is not what was written: its digest does not fit", hint=_AGAIN)
    if time_of(plan.generated_at) is None:
        raise ConfigurationError(f"{where}: generated_at {plan.generated_at!r} is no time", hint=_AGAIN)
    return plan


def _read(raw: Readable, where: str) -> tuple[DeletionPlan, str]:
    """Return a plan, and the digest of what it states.

    Raises:
        ConfigurationError: It is of a version that is not read, or a key in it is none.
        msgspec.MsgspecError: It is no plan.
    """
    spans = members(raw)
    document = {
        name.decode(): [] if name in _ROWS else msgspec.json.decode(piece(raw, span))
        for name, span in spans.items()
    }
    version, kind = document.get("apiVersion"), document.get("kind")
    if kind != PLAN_KIND or version not in READ_VERSIONS:
        raise ConfigurationError(
            f"{where} says {version} {kind}, expected {API_VERSION} {PLAN_KIND}", hint=_AGAIN
        )
    of_today = version == API_VERSION
    plan = msgspec.convert(document if of_today else _renamed(document), DeletionPlan)
    left_out = _FileRows(raw, spans[b"left_out"], LeftOut, of_today=of_today)
    entries = _FileRows(raw, spans[b"entries"], PlanEntry, of_today=of_today)
    plan = msgspec.structs.replace(plan, left_out=left_out, entries=entries)
    if b"decisions" in spans:
        decisions = _FileRows(raw, spans[b"decisions"], PlanDecision, of_today=of_today)
        for _ in decisions.stated(where):  # each is looked at on the way
            pass
        plan = msgspec.structs.replace(plan, decisions=decisions)
    stated = {"left_out": left_out.stated(where), "entries": entries.stated(where)}
    # What it states, in the order of today: it may be of a release that had fewer fields. Before, as it stood.
    fields = _fields(plan) if of_today else document.items()
    sealed_fields = ((name, value) for name, value in fields if name in document and name not in NOT_SEALED)
    return plan, _digest((name, stated.get(name, value)) for name, value in sealed_fields)


class _FileRows(Rows[R]):
    """Rows of a plan, where they stand in its file.

    Raises:
        msgspec.MsgspecError: They are no list.
    """

    def __init__(self, raw: Readable, span: Span, kind: type[R], *, of_today: bool) -> None:
        super().__init__(sum(1 for _ in items(raw, span, "rows")), lambda: map(self._row, self._pieces()))
        self._raw = raw
        self._span = span
        self._kind = kind
        self._decode = msgspec.json.Decoder(kind).decode
        self._of_today = of_today

    def _pieces(self) -> Iterator[bytes]:
        return (piece(self._raw, span) for span in items(self._raw, self._span, "rows"))

    def _row(self, encoded: bytes) -> R:
        if self._of_today:
            return self._decode(encoded)
        row: R = msgspec.convert(_renamed(msgspec.json.decode(encoded)), self._kind)
        return row

    def stated(self, where: str) -> Rows[Any]:
        """Return what the digest is made of; each row is looked at on the way.

        Args:
            where: Which plan, for an error.

        Raises:
            ConfigurationError: The key of one is none.
            msgspec.MsgspecError: One is no row of its kind.
        """
        return Rows(len(self), partial(self._stated, where))

    def _stated(self, where: str) -> Iterator[Any]:
        encode = msgspec.json.Encoder().encode
        for encoded in self._pieces():
            row = self._row(encoded)
            _check_key(row, where)
            if self._of_today and encode(row) == encoded:
                yield msgspec.Raw(encoded)
                continue
            said = msgspec.json.decode(encoded)
            if not self._of_today:
                yield said
            elif len(said) == len(row.__struct_fields__):
                yield row
            else:
                yield {name: value for name, value in msgspec.to_builtins(row).items() if name in said}


def _renamed(part: Any) -> Any:
    """Return a part of a plan of v1alpha1 with the names of today; a reader refuses what does not fit."""
    if not isinstance(part, dict):
        return part
    return {_NAMES_BEFORE.get(name, name): value for name, value in part.items()}


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
        raise ConfigurationError(
            f"{where}: others may write to it (mode {status.st_mode & 0o777:04o})",
            hint="chmod go-w it, if you know that nobody did",
        )


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
