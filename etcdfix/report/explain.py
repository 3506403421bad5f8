"""The published shape of all that is known of one etcd key (``etcdfix/v1``), and its document."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.copies.finder import LookedInto
from etcdfix.copies.model import Sameness
from etcdfix.model.model import Outcome
from etcdfix.report.copies import ShownCopy, copies_table
from etcdfix.report.document import (
    Cell,
    Column,
    Document,
    Facts,
    Prose,
    Section,
    State,
    Status,
    Steps,
    Table,
    ToWide,
    why_incomplete,
    wide_table,
)
from etcdfix.report.encryption import EncryptionKey
from etcdfix.report.impact import Impact
from etcdfix.report.model import Finding, Remedy, SourcedReport
from etcdfix.text.words import counted, fit


class KeptWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One write to the key. What has no value is null, 0 or "".

    Attributes:
        mod_revision: At which it took effect; null where the log does not tell.
        place: ``etcd``, or the entry of the log that has it.
        stands_until: Newest revision at which it could be read; null where nothing came after it.
        version: 0 where kine does not tell.
        outcome: Under today's configuration.
        doubt: Why it is not certain that it took effect so; "" where it is.
        changed: Fields that differ from the readable write before it, without their contents; null where they were not
            compared.
    """

    mod_revision: int | None
    place: str = "etcd"
    deletes: bool = False
    stands_until: int | None = None
    version: int = 0
    outcome: Outcome | None = None
    cause: str | None = None
    transformer: str = ""
    uid: str = ""
    value_sha256: str | None = None
    doubt: str = ""
    changed: list[str] | None = None

    @property
    def present(self) -> bool:
        """Whether it is what the key holds now, or at the revision that was read."""
        return not self.deletes and self.stands_until is None and self.place == "etcd"

    def row(self) -> tuple[Cell, ...]:
        """Return it as a row of the table."""
        cause = f" ({self.cause})" if self.cause else ""
        what = "deleted" if self.deletes else f"{self.outcome or 'put'}{cause}"
        changed = ", ".join(self.changed) or "nothing" if self.changed is not None else None
        until = "now" if self.present else self.stands_until
        where = f"{self.place}: {self.doubt}" if self.doubt else self.place
        revision = self.mod_revision or "unknown"
        return (revision, what, until, where, changed, self.transformer or None, self.value_sha256)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Every write of the key that etcd, or the file, still keeps, and what the log says besides.

    Attributes:
        compacted_revision: The oldest revision that can be read; 0 where nothing was compacted, null for unknown.
        count: How many revisions are kept, deletions counted.
        older_versions: How many earlier revisions of the oldest kept generation are gone.
        readable: How many of the kept revisions can be read.
        left_out: How many of the oldest revisions are not among ``writes``.
    """

    compacted_revision: int | None
    count: int
    deleted_at: int | None
    older_versions: int
    readable: int
    left_out: int
    writes: list[KeptWrite]

    def sections(self) -> Iterator[Section]:
        """Yield every write, and what is not among them."""
        rows = [one.row() for one in self.writes]
        yield Table(columns=_COLUMNS, rows=rows, noun="write", brief=12)
        yield Facts(
            facts=[
                ("kept", f"{self.count}, {self.readable} readable"),
                ("compacted up to", str(self.compacted_revision or "")),
                ("older versions gone", str(self.older_versions or "")),
                ("older, not shown", str(self.left_out or "")),
            ],
            wide=True,
        )


_COLUMNS: Final = (
    Column("REVISION"),
    Column("WHAT"),
    Column("UNTIL"),
    Column("FROM", folds=True),
    Column("CHANGED", folds=True),
    Column("UNDER", wide=True, folds=True),
    Column("DIGEST", wide=True),
)


_ODD: Final = 2
"""So many places that tell little are named on the first screen."""
_LONG: Final = 80


class Shows(StrEnum):
    """What stands on the first screen."""

    ALL = "all"
    HISTORY = "history"
    IMPACT = "impact"


class LayoutBase(StrEnum):
    """In which bytes an offset counts."""

    STORED = "stored"
    """As etcd holds them."""
    DECRYPTED = "decrypted"
    """What they decrypt to."""


class LayoutPart(msgspec.Struct, frozen=True):
    """A part of the value: where it lies, what it is, and what can be said of it; nothing that is secret."""

    where: LayoutBase
    offset: int
    length: int
    name: str
    detail: str


class AttemptResult(StrEnum):
    """What became of an encryption key of the rule."""

    OPENED = "opened"
    FAILED = "failed"
    NO_ANSWER = "no-answer"
    """Its KMS plugin was not asked, or did not answer."""
    NOT_TRIED = "not-tried"
    """The value does not name it."""


class KeyAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One encryption key of the rule that holds for the resource, in the order in which API servers try them.

    ``key_fingerprint`` is null for KMS and identity, ``detail`` the API server's words, or why it was not tried.
    """

    rule: str
    transformer: str
    key_fingerprint: str | None
    result: AttemptResult
    detail: str


class Siblings(EncryptionKey, kw_only=True):
    """The values of the same resource under one encryption key that the value counts under, itself counted too.

    ``damaged`` of the failed are proven to be. ``doubt`` is what the numbers say: ``none``, or why it is probably the
    encryption key, not the value.
    """

    opened: int
    failed: int
    damaged: int
    undetermined: int
    doubt: str

    @property
    def told(self) -> str:
        """The counts in words, and what they say of the encryption key."""
        failed = f"{self.failed} failed, {self.damaged} of them damaged"
        counts = f"of the resource {self.opened} opened, {failed}, {self.undetermined} undetermined"
        return f"{counts}; {_DOUBTS.get(self.doubt, '')}".rstrip("; ")


class ExplainReport(SourcedReport, frozen=True, kw_only=True):
    """All that is known of one etcd key.

    Attributes:
        key_base64: The key itself, where it is not plain text; else null.
        at_stake: What is wrong means, in one line.
        finding: As a scan has it; null where nothing is stored. Its remedies are those of the report.
        impact: Null where not everything was looked at.
        history: Null where it was not asked for.
        deletion_withheld: Why no deletion is among its ways out, where the values beside it speak against it.
        layout: Parts of the stored value in order, then those of what it decrypts to.
        no_repair: Why its bytes cannot be put right, of a value that cannot be read.
        siblings: One for each encryption key that the value counts under.
    """

    kind: str = "ExplainReport"
    key: str
    key_base64: str | None
    shows: Shows = Shows.ALL
    exists: bool
    deleted_at: int | None = None
    kept: int = 0
    at_stake: str = ""
    do_not_restart: str = ""
    next: Remedy | None = None
    finding: Finding | None = None
    remedies: list[Remedy] = msgspec.field(default_factory=list)
    places: list[LookedInto] = msgspec.field(default_factory=list)
    copies: list[ShownCopy] = msgspec.field(default_factory=list)
    impact: Impact | None = None
    history: History | None = None
    deletion_withheld: str = ""
    layout: list[LayoutPart] = msgspec.field(default_factory=list)
    attempts: list[KeyAttempt] = msgspec.field(default_factory=list)
    no_repair: str = ""
    siblings: list[Siblings] = msgspec.field(default_factory=list)
    complete: bool = True
    incomplete_reasons: list[str] = msgspec.field(default_factory=list)

    def document(self) -> Document:
        """Return what is wrong with the key, what to do, its copies, and other ways out; the bytes are wide."""
        finding = self.finding
        told = finding is not None and (finding.outcome != "readable" or finding.cause)
        why = finding.message if finding is not None and told else ""
        return Document(
            status=Status(self._state(), self._headline()),
            about=self.about(),
            stakes=[text for text in (why or self._gone(), self.at_stake, self.do_not_restart) if text],
            next=self.next,
            sections=[
                *self._brief(),
                *(self._wide(finding) if finding is not None else ()),
                why_incomplete(self.incomplete_reasons),
            ],
        )

    def _gone(self) -> str:
        if self.finding is not None or not self.copies:
            return ""
        return "Somebody may have deleted it on purpose: put it back only if it should be there."

    @property
    def _healthy(self) -> bool:
        return self.finding is not None and self.finding.outcome in {"readable", "not-an-object"}

    def _state(self) -> State:
        if not self.complete:
            return State.INCOMPLETE
        return State.OK if self._healthy else State.FINDINGS

    def _headline(self) -> str:
        finding = self.finding
        if self.shows is Shows.IMPACT and self.impact is not None:
            return self.impact.headline
        if finding is None:
            at = f"was deleted at revision {self.deleted_at}" if self.deleted_at else "is not in etcd"
            return f"{self.key} {at}{'' if self.deleted_at else '; others mention it, or a copy is left'}"
        cause = f": {finding.cause} ({finding.confidence})" if finding.cause else ""
        if finding.outcome == "readable" and finding.evidence:
            cause = f", with {counted(len(finding.evidence), 'warning')}"
        return f"{self.key} {_STATES.get(finding.outcome, 'cannot be read')}{cause}"

    def _brief(self) -> Iterator[Section]:
        """Yield the sections of the first screen; of what was not asked for, only with ``-o wide``."""
        shows, finding = self.shows, self.finding
        if self.history is not None:
            yield from self.history.sections()
        if shows is Shows.IMPACT:
            nobody = Prose(paragraphs=["Nothing that can be read refers to it."])
            yield from self.impact.sections() if self.impact is not None else [nobody]
        copies = copies_table(self.copies, brief=3, wide=shows is not Shows.ALL or self._healthy)
        yield msgspec.structs.replace(copies, title="" if not copies.wide else copies.title)
        listed = {command for copy in self.copies for command in (copy.fix, copy.save) if command}
        others = [way for way in self.remedies if way != self.next and way.command not in listed]
        odd = [one for one in self.places if not one.searched or one.history is not Sameness.SAME]
        more_places = f"{len(odd) - _ODD}: -o json" if len(odd) > _ODD else ""
        yield Facts(
            facts=[
                *((one.place, fit(_why_odd(one), _LONG)) for one in odd[:_ODD]),
                ("other places", more_places),
            ]
        )
        at_hand = any(copy.fix for copy in self.copies)
        title = "Other ways out, the least destructive first"
        yield Steps(title=title, steps=others, brief=1, wide=at_hand or shows is not Shows.ALL)
        if shows is Shows.ALL:
            hand_on = "to hand the case on, without plaintext: -o html"
            more = ToWide(f"{counted(len(others), 'way')} out: -o wide; {hand_on}", hand_on)
            deletes = self.impact is not None and any(way.verb == "delete" for way in self.remedies)
            risk = self.impact.brief() if self.impact is not None and deletes else []
            yield Facts(
                facts=[
                    ("more", more if at_hand else ""),
                    *risk,
                    ("no deletion", self.deletion_withheld),
                ]
            )
        if finding is not None:
            rows = [(one.check, one.result, one.detail or None) for one in finding.evidence]
            columns = (Column("CHECKED"), Column("RESULT", folds=True), Column("DETAIL", folds=True))
            yield Table(columns=columns, rows=rows, noun="check", brief=3, wide=not self._healthy)

    def _wide(self, finding: Finding) -> Iterator[Section]:
        kind, lease = finding.group_version_kind, finding.lease
        kind_said = f"{kind.group}/{kind.version} {kind.kind}".lstrip("/") if kind else "not known"
        resource = f"{finding.resource}.{finding.group}".rstrip(".")
        revisions = f"mod {finding.mod_revision}, create {finding.create_revision}, version {finding.version}"
        server = ": ".join(filter(None, (_SERVERS.get(finding.apiserver, ""), finding.upstream_message)))
        identity = [
            ("API server", server),
            ("resource", resource),
            ("says it is", kind_said),
            ("written under", finding.transformer or "unknown"),
            ("revisions", revisions + (f", lease {lease}" if lease else "")),
            ("stored", f"{counted(finding.value_size, 'byte')}, {finding.value_sha256}"),
            ("KMS key id", finding.kms_key_id_sha256 or ""),
            ("kept", counted(self.kept, "revision")),
            ("what it means", f"etcdfix explain {finding.cause}" if finding.cause else ""),
            *((f"under {one.transformer}", one.told) for one in self.siblings),
        ]
        yield Facts(title="What it is", facts=identity, wide=True)
        for where, title in (
            (LayoutBase.STORED, "The stored value"),
            (LayoutBase.DECRYPTED, "What it decrypts to"),
        ):
            parts = [
                (one.offset, one.length, one.name, one.detail) for one in self.layout if one.where is where
            ]
            yield wide_table(title, ("OFFSET", "SIZE", "PART", "WHAT"), parts, "part")
        tried = [(o.transformer, o.key_fingerprint, o.result, o.detail, o.rule) for o in self.attempts]
        yield wide_table(
            "Encryption keys, in the order in which API servers try them", _ATTEMPTS, tried, "key"
        )
        if self.no_repair:
            yield Prose(paragraphs=[f"Its own bytes cannot be put right: {self.no_repair}."], wide=True)


def _why_odd(place: LookedInto) -> str:
    named = place.path in place.detail
    return place.detail if named else f"{place.path}: {place.detail}"


_STATES: Final = {
    "readable": "can be read",
    "not-an-object": "is no object of the API",
    "undetermined": "could not be judged",
    "inconsistent": "is inconsistent",
}
_SERVERS: Final = {
    "corrupt": "calls it corrupt",
    "serves": "serves it",
    "serves-empty": "serves an empty object in its place",
    "breaks-list": "serves it, and JSON answers that contain it fail",
}
_ATTEMPTS: Final = ("TRANSFORMER", "FINGERPRINT", "RESULT", "WHY", "RULE")
_DOUBTS: Final = {
    "none-opens": "none opens: look at the key or the configuration",
    "most-fail": "most fail: look at the key or the configuration",
    "in-between": "others fail too: the key may have had other bytes for a time",
    "unfitting": "others fail too: they may have been written under other etcd keys",
    "mass-damage": "each of them is proven damaged: something damages values",
}
