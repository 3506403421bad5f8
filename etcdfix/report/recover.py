"""The published shape of ``encryption recover`` (``etcdfix/v1``), and what a person sees of it.

No token, no place that one was made of, no key material and no contents of objects stand here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from etcdfix.report.configurations import MARKED, FileRecord, RuleKeys, not_recorded
from etcdfix.report.document import Column, Document, Kind, State, Step, Table
from etcdfix.report.encryption import FindingGroup, LookReport, Opened, group_tables
from etcdfix.report.model import ReportConfiguration
from etcdfix.text.commands import Part, encryption_merge, recover, scan
from etcdfix.text.words import counted


class BootstrapValues(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the bootstrap data that are alike. Their etcd key is never told: that is made of the token.

    Attributes:
        state: ``recovered``; ``not-enabled``: they open and hold no configuration; ``lock``: they are empty;
            ``damaged``: they belong to the token and do not open, or are no such values; ``other-token``: no token that
            was given opens them; ``not-understood``: they open, and are not what k3s and RKE2 write.
        reason: Why they are damaged, or were not understood; else "".
    """

    state: str
    reason: str
    number: int


class NodeConfiguration(msgspec.Struct, frozen=True):
    """What the annotation of one Node names.

    Attributes:
        stage: Stage of the rotation: ``start``, ``prepare``, ``rotate``, ``reencrypt_active``, ….
        sha256: Digest of the file; under ``reencrypt_request``, of its keys.
    """

    node: str
    stage: str
    sha256: str

    @property
    def names_a_file(self) -> bool:
        """Whether the digest is that of a file."""
        return self.stage != "reencrypt_request"


class RecoveredConfiguration(Opened, kw_only=True):
    """An EncryptionConfiguration that was recovered, and what it opens.

    Attributes:
        name: What it is called here: ``recovered-1`` is the newest; those that are only ``possible`` come last.
        sha256: Digest of the file as the server had it, which its Node names; not of the file that is written here.
        usable: API servers would take it. One that they refuse was never in use; nothing of it is told.
        current: A bootstrap key holds it now.
        confidence: How sure it is that this datastore held it: ``certain`` where etcd keeps it, or a log shows it that
            was replayed; else ``likely`` or ``possible``. What is not ``certain`` may be of a clone of this cluster, or
            etcd refused it; its encryption keys are right all the same where it opens something.
        doubt: Why it is not certain, a clause; "" where it is.
        first_mod_revision: Revision of the oldest value that holds it; null where that is not known.
        stage: In which stage of a rotation the server was, by its own words; "" where it says nothing of this file.
        nodes: The Nodes that say that their servers run with it.
    """

    name: str
    sha256: str
    usable: bool
    current: bool
    confidence: str
    doubt: str
    first_mod_revision: int | None
    last_mod_revision: int | None
    stage: str
    nodes: list[str]
    rules: list[RuleKeys]
    file: ReportConfiguration | None


class EncryptionRecoverReport(LookReport, frozen=True, kw_only=True):
    """Which EncryptionConfigurations a datastore of k3s or RKE2 still holds, and what each of them opens.

    Attributes:
        looked_in: What was looked into besides the datastore, as ``--in`` names it.
        values: What is still kept under these, and under those that were deleted.
        configurations: Each once, the newest first, those that are only ``possible`` last.
        tried: So many values were tried: all that do not open today, without today's configuration all that are
            encrypted, within the scope; null where there was nothing to try them with, or the values could not be read.
        opened: So many are opened by at least one configuration.
        groups: These values by encryption key, most first.
    """

    kind: str = "EncryptionRecoverReport"
    token_files: list[str]
    looked_in: list[str]
    bootstrap_keys: int
    values: list[BootstrapValues]
    configurations: list[RecoveredConfiguration]
    nodes: list[NodeConfiguration]
    unread_nodes: int
    tried: int | None
    opened: int
    groups: list[FindingGroup]
    notes: list[str] = msgspec.field(default_factory=list)
    audit_records: list[FileRecord]
    no_record: str

    def document(self) -> Document:
        """Return what was recovered and what it opens; where nothing was, what is there instead."""
        files = [(one.name, one.file) for one in self.configurations if one.file is not None]
        notes = [*([MARKED] if files else []), *not_recorded(self.no_record), *self.notes]
        usable = sum(one.usable for one in self.configurations)
        state = State.OK if usable and self.opened == self.tried else State.FINDINGS
        values = [
            (one.number, ": ".join(filter(None, (_STATES[one.state], one.reason)))) for one in self.values
        ]
        configurations = [*map(self._row, self.configurations)]
        sections = [
            Table(columns=_CONFIGURATION, rows=configurations, noun="configuration", brief=4),
            Table(
                columns=_FILE,
                rows=[(name, file.path, file.sha256) for name, file in files],
                noun="file",
                brief=4,
            ),
            *group_tables(self.groups, wide=True),
            Table(
                title="What the values under /bootstrap/ are",
                columns=_VALUE,
                rows=values,
                brief=8,
                wide=bool(usable),
            ),
        ]
        state = state if self.complete else State.INCOMPLETE
        return self.show(state, self._headline(usable), notes, sections)

    def what_to_know(self) -> Iterator[str]:
        """Yield what else to know of the recovery, one or two sentences each."""
        named = {node.sha256 for node in self.nodes if node.names_a_file}
        missing = sorted(named - {one.sha256 for one in self.configurations})
        if missing and self.configurations:
            yield f"The Nodes name a configuration that was not found ({', '.join(missing[:3])}). {_ELSEWHERE}"
        if not named and self.configurations:
            yield "No Node names the configuration of its server, so nothing shows which one is today's."
        if len(named) > 1:
            yield "The Nodes name different configurations: a rotation was under way, or not every server restarted."
        elif named and not missing:
            yield "All Nodes name one configuration. That is a hint and no proof: a Node writes its own annotation."
        for one in self.configurations:
            if one.current and one.stage not in {"start", "reencrypt_finished", ""}:
                yield f"{one.name} was kept in the middle of a rotation ({one.stage}). It may lack the newest key."
            if not one.usable:
                yield f"API servers refuse {one.name}, so no server ever ran with it."
            if one.doubt:
                yield (
                    f"It is only {one.confidence} that this datastore held {one.name}: {one.doubt}. Its keys wrote "
                    "what it opens. That does not show that servers run with it today."
                )
        left = (self.tried or 0) - self.opened
        if left and not missing:
            yield f"No configuration opens {counted(left, 'value')}. {_ELSEWHERE}"

    def next_step(self, merging: Step | None) -> Step | None:
        """Return the one thing to do next; ``merging`` is what else to do with the files that were written."""
        places = [word for place in self.looked_in for word in ("--in", place)]
        usable = any(one.usable for one in self.configurations)
        if usable and (self.opened or not self.tried):
            files = {one.name: one.file.path for one in self.configurations if one.file is not None}
            if not files:
                saving = recover(self.token_files, *places, "--save-dir", "DIR")
                return Step("Write them to files, with which you can read", saving)
            opening = [one for one in self.configurations if one.name in files and one.opens]
            if self.encryption_config is not None or not opening:
                return merging
            for one in opening:
                if one.opens == self.opened:
                    opens = f"it opens {one.opens} of {counted(self.tried or 0, 'value')}"
                    reading = ("--encryption-config", files[one.name], Part.RELEASE)
                    return Step(f"Read with {one.name}: {opens}", scan(reading=reading))
            merged = encryption_merge([files[one.name] for one in opening])
            return Step(
                "Merge the files that open something, in this order, and read with the new file", merged
            )
        states = {value.state for value in self.values}
        if "other-token" in states:
            return Step(
                "Name the token of that time too: server/token of another server, or the one before the token was "
                "rotated",
                recover([*self.token_files, "FILE"], *places),
            )
        if states and not usable:
            return Step("Look into an older snapshot: no value here holds a configuration")
        return Step(
            "Look for the file of --encryption-provider-config on every control-plane node and in backups. Only "
            "k3s and RKE2 keep it in the datastore too, kubeadm does not"
        )

    def _headline(self, usable: int) -> str:
        if not usable:
            values = counted(sum(one.number for one in self.values), "value")
            refused = counted(len(self.configurations), "refused configuration")
            there = f"{counted(self.bootstrap_keys, 'key')} under /bootstrap/, {values}, {refused}"
            return f"NOTHING RECOVERED: {there if self.values else 'no value is under /bootstrap/'}"
        what = "not known to open today" if self.encryption_config is not None else "that are encrypted"
        opened = f"opening {self.opened} of {counted(self.tried or 0, 'value')} {what}"
        if not self.tried:
            opened = "no value could be read" if self.tried is None else f"there are no values {what}"
        return f"RECOVERED {counted(usable, 'EncryptionConfiguration')}: {opened}"

    def _row(self, one: RecoveredConfiguration) -> tuple[str | int | None, ...]:
        opens = f"{one.opens} of {self.tried}" if self.tried is not None else "not tried"
        same = one.first_mod_revision == one.last_mod_revision
        return (
            one.name,
            opens if one.usable else "refused by API servers",
            f"{len(one.nodes)} of {sum(node.names_a_file for node in self.nodes)}",
            f"{one.confidence}{', current' if one.current else ''}",
            one.right_key,
            one.last_mod_revision if same else f"{one.first_mod_revision} to {one.last_mod_revision}",
            one.stage or None,
            one.undetermined,
            one.sha256,
        )


_ELSEWHERE: Final = (
    "During a key rotation the datastore lacks the new key for a while. The file of a server, the live datastore, a "
    "newer snapshot or a write-ahead log (--in log:DIR) may have it."
)
_CONFIGURATION: Final = (
    Column("CONFIGURATION"),
    Column("OPENS"),
    Column("NAMED BY NODES"),
    Column("HELD HERE"),
    Column("RIGHT KEY ONLY", kind=Kind.NUMBER),
    Column("MOD REVISIONS", wide=True),
    Column("STAGE", wide=True),
    Column("UNDETERMINED", kind=Kind.NUMBER, wide=True),
    Column("DIGEST", wide=True),
)
_FILE: Final = (Column("CONFIGURATION"), Column("WRITTEN TO", folds=True), Column("SHA256", wide=True))
_VALUE: Final = (Column("VALUES", kind=Kind.NUMBER), Column("WHAT THEY ARE", folds=True))
_STATES: Final = {
    "recovered": "a configuration",
    "other-token": "of another token",
    "damaged": "damaged",
    "not-understood": "what opens, and k3s and RKE2 do not write",
    "not-enabled": "without a configuration: encryption was not enabled",
    "lock": "an empty lock: a server was about to write",
}
