"""The published shape of what a change came to (``etcdfix/v1alpha2``, kind ``ChangeReport``), field by field."""

from __future__ import annotations

import msgspec

from etcdfix.reports.model import API_VERSION, Tool


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a change was not made; nothing was changed.

    Attributes:
        code: Name of the error; the reference page of errors lists them.
        rule: Where a safety rule refused: which one; else null. The words and the next step may change, this does not.
        message: For people.
        next_step: The one next step to take, or "".
    """

    code: str
    rule: str | None
    message: str
    next_step: str


class FollowUp(msgspec.Struct, frozen=True):
    """A command for afterwards.

    Attributes:
        what: What it is for, as a person reads it: ``Undo``.
        command: To paste.
    """

    what: str
    command: str


class ChangeReport(msgspec.Struct, frozen=True, kw_only=True, rename={"api_version": "apiVersion"}):
    """What became of one deletion, restore or re-encryption.

    Attributes:
        command: ``delete``, ``restore`` or ``reencrypt``.
        key: Etcd key as it is shown; null where none was named as it has to be.
        key_base64: The key itself, where it is not plain text; else null.
        dry_run: Nothing was to be changed.
        result: ``deleted``, ``restored`` or ``reencrypted``; ``dry-run`` where that would go ahead; ``refused`` where a
            rule forbids it and ``failed`` where something else came in between: then nothing was changed, and
            ``refusal`` says why; ``not-applied``, ``unknown`` and ``anomaly`` are explained with the exit code 3.
        refusal: Null where there is a result.
        detail: One sentence.
        revision: etcd's revision after it; null where unknown, or where nothing was done.
        backups: Paths of the backups.
        value_sha256s: Digests of the values that these hold, each once: to be written down.
        audit_log: Path; null where no record was made.
        audit_log_head: For ``--expect-head``; null where the outcome could not be recorded.
        warnings: One sentence each.
        follow_ups: Commands for afterwards.
        exit_code: Of the command.
    """

    api_version: str = API_VERSION
    kind: str = "ChangeReport"
    tool: Tool
    generated_at: str
    command: str
    key: str | None
    key_base64: str | None
    dry_run: bool
    result: str
    refusal: Refusal | None = None
    detail: str = ""
    revision: int | None = None
    backups: list[str] = []
    value_sha256s: list[str] = []
    audit_log: str | None = None
    audit_log_head: str | None = None
    warnings: list[str] = []
    follow_ups: list[FollowUp] = []
    exit_code: int
