"""The published shapes of what changes came to, refusals too (``etcdfix/v1``: ``ChangeReport``, ``PlanRunReport``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from etcdfix.report.document import Document, Facts, Prose, Section, State, Status, Step, Steps
from etcdfix.report.model import PublishedReport
from etcdfix.text.commands import Command

_DONE: Final = {"delete": "deleted", "fix": "fixed", "undo": "undone"}
"""What each command does, and its result where all goes well."""
_WATCH: Final = (
    ("apiserver_storage_transformation_operations_total", "not OK: stops once everything can be read"),
    ("apiserver_storage_decode_errors_total", "stops once everything can be read"),
    ("apiserver_watch_cache_initializations_total", "rises once for the resource"),
    ("apiserver_storage_list_total", "rises for a moment, as does apiserver_terminated_watchers_total"),
    ("apiserver_resource_objects", "one less for the resource"),
)


Fact = tuple[str, str]


def preview_of(
    headline: str,
    *,
    facts: Sequence[Fact],
    stakes: Sequence[str] = (),
    sets_off: Sequence[Fact] = (),
    instead: Sequence[Step] = (),
    warnings: Sequence[str] = (),
    kept: Sequence[Fact] = (),
    more: Sequence[Section] = (),
) -> Document:
    """Return what a person reads before a change, whatever changes: at most about 30 lines at 100 columns.

    ``stakes`` are at most three lines; sentences of ``sets_off`` have no name; each warning is told once.
    """
    warned = [("Warning", warning) for warning in dict.fromkeys(warnings)]
    named = [fact for fact in sets_off if fact[0]]
    sentences = [text for name, text in sets_off if not name]
    sections: list[Section] = [Facts(facts=[*dict.fromkeys((*facts, *warned, *named, *kept))]), *more]
    sections += [Steps(title="Less destructive", steps=instead)] if instead else []
    sections += [Prose(paragraphs=sentences)] if sentences else []
    return Document(status=Status(State.WOULD_DO, headline), stakes=stakes, sections=sections)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a change was not made; nothing was changed.

    Attributes:
        code: Name of the error; the reference page of errors lists them.
        rule: Where a safety rule refused: the first one; else null. The words and the next step may change, this does
            not.
        rules: Every rule that refused.
        next_step: The one next step to take, or "".
        also: Why else it was not made, a sentence each.
        command: The whole command that no rule would refuse; "" where there is none.
    """

    code: str
    rule: str | None
    rules: list[str] = []
    message: str
    next_step: str
    also: list[str] = []
    command: str = ""


class FollowUp(msgspec.Struct, frozen=True):
    """A command for afterwards.

    Attributes:
        what: What it is for, as a person reads it: ``Undo``.
    """

    what: str
    command: Command


class RecordedReport(PublishedReport, frozen=True, kw_only=True):
    """What every report of a change says of its record.

    Attributes:
        refusal: Why it was not made, or why a run stopped; null where nothing was refused.
        audit_log: Path; null where no record was made.
        audit_log_head: For ``--expect-head``; null where the last outcome could not be recorded.
    """

    dry_run: bool
    refusal: Refusal | None = None
    audit_log: str | None = None
    audit_log_head: str | None = None
    follow_ups: list[FollowUp] = msgspec.field(default_factory=list)
    exit_code: int

    def recorded(
        self, headline: str, *, stakes: Sequence[str] = (), kept: Sequence[tuple[str, str]] = ()
    ) -> Document:
        """Return a document with a headline, the first follow-up as what is next, and where the record is."""
        record = [("Audit log", self.audit_log or ""), ("Head", self.audit_log_head or "")]
        sections: list[Section] = [Facts(facts=[*kept, *record])]
        # What puts the old value back is a way out of a mistake, not what to do next.
        steps = (one for one in self.follow_ups if self.dry_run or one.command.words[:2] != _UNDO)
        first = next(steps, None)
        following = Step(first.what, first.command) if first is not None else None
        others = [Step(one.what, one.command) for one in self.follow_ups if one is not first]
        sections.append(Steps(title="If you need it", steps=others))
        if following is None and self.refusal is not None and self.refusal.next_step:
            following = Step(self.refusal.next_step)
        state = State.WOULD_DO if self.dry_run else State.DONE
        if self.refusal is not None:
            state = State.REFUSED if self.exit_code == 4 else State.FAILED
        elif self.exit_code:
            state = State.UNKNOWN
        return Document(status=Status(state, headline), stakes=stakes, next=following, sections=sections)


_UNDO: Final = ("etcdfix", "undo")


class ChangeReport(RecordedReport, frozen=True, kw_only=True):
    """What became of one deletion, fix or undo.

    Attributes:
        command: ``delete``, ``fix`` or ``undo``.
        key: Etcd key as it is shown; null where none was named as it has to be.
        key_base64: The key itself, where it is not plain text; else null.
        result: ``deleted``, ``fixed``, ``undone``; ``dry-run`` where that would go ahead; ``refused`` where a
            rule forbids it and ``failed`` where something else came in between: then nothing was changed, and
            ``refusal`` says why; ``not-applied``, ``applied-or-gone``, ``unknown`` and ``anomaly`` are explained with
            the exit code 3.
        revision: etcd's revision after it; null where unknown, or where nothing was done.
        value_sha256s: Digests of the values that these hold, each once: to be written down.
        afterwards: After a deletion: what comes back by itself, and what stands in the way, one sentence each.
    """

    kind: str = "ChangeReport"
    command: str
    key: str | None
    key_base64: str | None
    result: str
    detail: str = ""
    revision: int | None = None
    backups: list[str] = msgspec.field(default_factory=list)
    value_sha256s: list[str] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    afterwards: list[str] = msgspec.field(default_factory=list)

    def document(self) -> Document:
        """Return the result, how to undo it, where its record is, and what to watch."""
        if self.refusal is not None:
            return self.recorded(f"{self.result.upper()}: {self.refusal.message}")
        kept = [("Backup", path) for path in self.backups]
        kept += [("Its value", digest) for digest in self.value_sha256s]
        found = self.recorded(told(self, self.command), stakes=self.warnings, kept=kept)
        if not self.afterwards:
            return found
        more = (Prose(paragraphs=self.afterwards), Facts(title="Watch on every API server", facts=_WATCH))
        return msgspec.structs.replace(found, sections=[*found.sections, *more])


def told(changed: RunObject | ChangeReport, command: str) -> str:
    """Return what became of one object in one line."""
    if changed.result == "dry-run":
        return f"DRY RUN: {changed.key} would be {_DONE[command]}. Nothing was changed."
    if changed.result in _DONE.values() and changed.revision is not None:
        return f"{changed.result.upper()} {changed.key} at revision {changed.revision}."
    return f"{changed.result.upper()}: {changed.key}: {changed.detail}"


class RunObject(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one object; all but its ``order`` in the plan and the ``decision`` is as in ChangeReport."""

    key: str
    key_base64: str | None
    result: str
    detail: str = ""
    revision: int | None = None
    backups: list[str] = []
    value_sha256s: list[str] = []
    warnings: list[str] = []
    order: int
    decision: str


class PlanRunReport(RecordedReport, frozen=True, kw_only=True):
    """What a run over a plan came to.

    Attributes:
        plan_sha256: Digest of its contents and decisions, for ``--expect-plan``; "" where it did not come that far.
        to_delete: How many objects this run was to delete.
        to_fix: How many it was to put back.
        protected: How many of all these are protected.
        done_before: How many earlier runs dealt with; null where it did not come that far, as with the next two.
        left_alone: To how many nothing is done, as the plan or ``--leave-out`` says.
        stopped_at: Etcd key at which the run stopped, as it is shown; null where it came to its end, or was ended after
            one key and before the next.
        stopped_at_base64: The key itself, where it is not plain text.
        leave_out: The option that leaves that key as it is; "" where it is done, or where the run did not stop.
    """

    kind: str = "PlanRunReport"
    plan: str
    plan_sha256: str = ""
    to_delete: int = 0
    to_fix: int = 0
    protected: int = 0
    objects: list[RunObject]
    done_before: int | None = None
    left_alone: int | None = None
    left: int | None = None
    stopped_at: str | None = None
    stopped_at_base64: str | None = None
    leave_out: str = ""

    def document(self) -> Document:
        """Return how many were dealt with, and where it stopped; each object was told when its turn came."""
        of = self.to_delete + self.to_fix
        left = of if self.left is None else self.left
        dealt = "Would deal" if self.dry_run else "Dealt"
        stakes = []
        if self.stopped_at is not None:
            stakes.append(f"Stopped at {self.stopped_at}.")
        if self.leave_out:
            stakes.append(f"To leave this key as it is, add {self.leave_out}")
        if left and self.objects and not self.dry_run:
            stakes.append(
                "What is done stays done, and stands in the audit log. The same command goes on from there."
            )
        return self.recorded(f"{dealt} with {of - left} of {of}; {left} left.", stakes=stakes)
