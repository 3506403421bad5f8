"""The published shape of ``encryption recover`` (``etcdfix/v1``), field by field and in order.

No token, no place that one was made of, no key material and no contents of objects stand here.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from etcdfix.report.configurations import ConfiguredKey, FileRecord
from etcdfix.report.encryption_model import FindingGroup
from etcdfix.report.model import Remedy, ReportConfiguration, SourcedReport


class NamedByNodes(StrEnum):
    """Whether the Nodes say that their servers run with a configuration."""

    ALL = "all"
    SOME = "some"
    NONE = "none"
    """They name another one."""
    UNKNOWN = "unknown"
    """No Node that can be read names any."""


class BootstrapValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the bootstrap data.

    Attributes:
        key: ``/bootstrap/<withheld>``, always: the key itself is made of the token, and a fast test for a weak one.
        mod_revision: Its own; null where a write-ahead log does not tell.
        current: It is what its key holds now.
        log_index: Raft index of the entry of a write-ahead log that it comes from; null for one that etcd holds.
        confidence: How sure it is that its key held it, at its revision: ``certain``, ``likely``, ``possible``.
        state: ``recovered``; ``not-enabled``: it opens and holds no configuration; ``lock``: it is empty;
            ``damaged``: it belongs to the token and does not open, or is no such value; ``other-token``: no token that
            was given opens it; ``not-understood``: it opens, and is not what k3s and RKE2 write.
        reason: Why it is damaged, or was not understood; else "".
        token_form: The form of the token that opens it: ``password`` (as today's servers use it), ``as-given``
            or ``empty`` (as old ones did); null where none does.
        form: ``files`` or ``contents`` (old releases); null where it was not understood.
        configuration: The name here of the configuration that it holds; null for none.
    """

    key: str
    mod_revision: int | None
    current: bool
    log_index: int | None
    confidence: str
    state: str
    reason: str
    token_form: str | None
    form: str | None
    configuration: str | None


class NodeConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotation of one Node names.

    Attributes:
        node: Its name.
        stage: Of a rotation: ``start``, ``prepare``, ``rotate``, ``reencrypt_active``, ``reencrypt_finished``, ….
        sha256: Of the file; under ``reencrypt_request``, of its keys.
        configuration: The name here of the configuration that has this digest; null for none.
    """

    node: str
    stage: str
    sha256: str
    configuration: str | None


class RecoveredRule(msgspec.Struct, frozen=True):
    """What a configuration has for some resources, in the order in which it is tried; the first one writes."""

    resources: list[str]
    keys: list[ConfiguredKey]


class RecoveredConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """An EncryptionConfiguration that was recovered.

    Attributes:
        name: What it is called here: ``recovered-1`` is the newest; those that are only ``possible`` come last.
        sha256: Of the file as the server had it, which its Node names; not of the file that is written here.
        usable: API servers would take it. One that they refuse was never in use; nothing of it is told.
        current: A bootstrap key holds it now.
        confidence: How sure it is that this datastore held it: ``certain`` where etcd keeps it, or a log shows it that
            was replayed; else ``likely`` or ``possible``. What is not ``certain`` may be of a clone of this cluster, or
            etcd refused it; its encryption keys are right all the same where it opens something.
        doubt: Why it is not certain, a clause; "" where it is.
        first_mod_revision: Of the oldest value that holds it; null where that is not known.
        last_mod_revision: Of the newest.
        file_time: When the server's file was last changed, RFC 3339; "" where that is not said.
        stage: In which stage of a rotation the server was, by its own words; "" where it says nothing.
        stage_fits: The server's words are of this very file; null where it says nothing of one.
        named_by_nodes: Whether the Nodes say that their servers run with it: see :class:`NamedByNodes`.
        nodes: Which do.
        rules: What it has, key by key.
        opens: So many values open, decode, and fit their etcd key.
        right_key: So many more were written with a key of it, and do not open as they are.
        undetermined: Could not be told.
        opened: The first etcd keys that it opens, at most five.
        not_opened: The first that it does not, at most five.
        file: What was written; null where nothing was.
    """

    name: str
    sha256: str
    usable: bool
    current: bool
    confidence: str
    doubt: str
    first_mod_revision: int | None
    last_mod_revision: int | None
    file_time: str
    stage: str
    stage_fits: bool | None
    named_by_nodes: NamedByNodes
    nodes: list[str]
    rules: list[RecoveredRule]
    opens: int
    right_key: int
    undetermined: int
    opened: list[str]
    not_opened: list[str]
    file: ReportConfiguration | None


class EncryptionRecoverReport(SourcedReport, frozen=True, kw_only=True):
    """Which EncryptionConfigurations a datastore of k3s or RKE2 still holds, and what each of them opens.

    Attributes:
        token_files: Files whose tokens were tried; the empty token is tried besides.
        write_ahead_logs: That were looked at too.
        bootstrap_keys: How many keys lie under ``/bootstrap/`` now.
        values: Every value that is still kept under one.
        configurations: Each once, the newest first, those that are only ``possible`` last.
        nodes: What the annotations of the Nodes name.
        unread_nodes: How many Nodes could not be read.
        tried: So many values were tried: all that do not open today, without today's configuration all that are
            encrypted, within the scope; null where there was nothing to try them with, or the values could not be read.
        opened: So many are opened by at least one configuration.
        groups: Of these values, by encryption key, most first.
        notes: What to know about it, one sentence each.
        next: What to do first; null where there is nothing to do.
        audit_records: Of the files that were written.
        no_record: Why there is none, else "".
        complete: Everything was seen and decided.
        incomplete_reasons: Why not.
    """

    kind: str = "EncryptionRecoverReport"
    token_files: list[str]
    write_ahead_logs: list[str]
    bootstrap_keys: int
    values: list[BootstrapValue]
    configurations: list[RecoveredConfiguration]
    nodes: list[NodeConfiguration]
    unread_nodes: int
    tried: int | None
    opened: int
    groups: list[FindingGroup]
    notes: list[str]
    next: Remedy | None
    audit_records: list[FileRecord]
    no_record: str
    complete: bool
    incomplete_reasons: list[str]
