"""One change of one etcd key: what is done, the checks that it has to pass, and the one end of every change.

A deletion, a copy that is put back and an undo differ in their list of checks. Each check is one function, named as the
rule that it publishes; it yields why the rule says no, or what a person should read first. All are asked, the cheap
ones first, those that rest on a pass over everything last. Nothing is written before all of them are content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy as copy_of
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from etcdfix.copies.model import THE_VALUE, Copy, Place, Wanted, Way
from etcdfix.model.errors import EtcdfixError, RefusedByRule
from etcdfix.model.model import Repair, RepairKind, digest_of
from etcdfix.model.rules import Rule, refuse
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.checks import cached_reads, key, memory, sealing, servers, value
from etcdfix.remediation.checks import copy as copies
from etcdfix.remediation.checks.sealing import find_proof, seal_contents
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.commit import ChangeOutcome, commit
from etcdfix.remediation.datastore import Landmark
from etcdfix.remediation.facts import Facts, fact
from etcdfix.remediation.intent import write_of
from etcdfix.remediation.members import read_lease
from etcdfix.remediation.places import RecordPaths, place_warnings
from etcdfix.remediation.writer import probe_connection
from etcdfix.text.commands import Command, RunOptions, with_options

if TYPE_CHECKING:
    from pathlib import Path

    from etcdfix.apiserver.kubeconfig import APIAccess
    from etcdfix.encryption.encrypt import Sealed
    from etcdfix.examine.verdicts.examination import Examination
    from etcdfix.remediation.audit.log import AuditLog
    from etcdfix.remediation.checks.copy import Standing
    from etcdfix.remediation.checks.plan import Expectation
    from etcdfix.remediation.memory.held import HeldObject
    from etcdfix.remediation.memory.patch import PatchSender
    from etcdfix.remediation.present import Present


class Confirmer(Protocol):
    """The person before the change, or the script that stands for one."""

    def confirm_key(self, key: bytes) -> bool:
        """Show what is about to happen to the key, and say whether it was typed back (or ``--yes`` was given)."""
        ...

    def confirm_lost(self, declared: str) -> bool:
        """Say whether the declaration of a lost key was typed back; ``--yes`` never stands in at a terminal."""
        ...


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What every change needs."""

    reason: str
    accepted: Acceptances = msgspec.field(default_factory=Acceptances)
    record_paths: RecordPaths = msgspec.field(default_factory=RecordPaths)
    api: APIAccess | None = None
    etcd_user: str = ""
    dry_run: bool = False
    expected: Expectation | None = None
    plan_flags: tuple[str, ...] = ()
    log: AuditLog | None = None
    rescued: Path | None = None
    run: RunOptions = RunOptions()
    given: tuple[str, ...] = ()


class Chosen(NamedTuple):
    """A copy that is put back.

    Attributes:
        others: How many other copies there are; None where a person named this one.
        standing: What speaks for a backup; None for any other copy.
        other: The etcd key at which its bytes stand now; b"" for nowhere else.
    """

    copy: Copy
    wanted: Wanted
    others: int | None = None
    standing: Standing | None = None
    other: bytes = b""


class Change(Facts):
    """One change of a key; without a choice of a copy it deletes, or an API server makes it.

    Args:
        request: What is asked for; its acceptances count here alone.
        patch: What an API server is asked for, for the record; "" for a change of our own.
        held: What API servers have of it; None for a change of our own.
        expected_digest: ``sha256:<hex>`` that the value of a backup must have; "" for any.
        made_of: It is made of what stands at the key, which must be there.
    """

    def __init__(
        self,
        verb: Verb,
        present: Present,
        request: ChangeRequest,
        *,
        choose: Callable[[Change], Chosen] | None = None,
        patch: str = "",
        held: HeldObject | None = None,
        expected_digest: str = "",
        made_of: bool = False,
    ) -> None:
        super().__init__(present.step)
        self.verb, self.present, self.request, self.accepted = verb, present, request, request.accepted
        self._choose, self.patch, self.held, self.expected_digest = choose, patch, held, expected_digest
        self.deletes, self.undoes = verb is Verb.DELETE, verb is Verb.UNDO
        self.takes_what_is_there = made_of or choose is None
        self.warnings: tuple[str, ...] = ()

    def accepting(self, words: Sequence[str]) -> Change:
        """Return the same change with more options that lift a rule; what is known of the key stays known."""
        accepted, given = self.accepted, iter(words)
        for option in given:
            word = next(given)
            if option == "--accept":
                accepted = msgspec.structs.replace(accepted, words=(*accepted.words, word))
            else:
                accepted = msgspec.structs.replace(accepted, key_lost=word)
        again = copy_of(self)
        again.known, again.accepted = {}, accepted
        return again

    def accepts(self, rule: Rule) -> bool:
        """Say whether a rule is accepted."""
        return self.accepted.accepts(rule)

    # -- the copy

    @fact("copies")
    def chosen(self) -> Chosen:
        """The copy that is put back."""
        assert self._choose is not None  # there is one
        return self._choose(self)

    @property
    def copy(self) -> Copy:
        """The same, without what is known of it."""
        return self.chosen.copy

    def of(self, place: Place) -> bool:
        """Say whether the copy is of a place."""
        return self._choose is not None and self.copy.place is place

    @property
    def is_of_the_value(self) -> bool:
        """What is put is made of the bytes that stand there."""
        return self._choose is not None and not self.undoes and self.copy.place in THE_VALUE

    @property
    def goes(self) -> bool:
        """What stands there goes, and has to be proven wrong: it is deleted, or a copy takes its place."""
        if self.deletes:
            return True
        if self.undoes or self._choose is None or self.present.absent:
            return False
        return self.copy.place not in THE_VALUE and self.copy.way is not Way.PATCH

    @property
    def repair(self) -> Repair | None:
        """What is put right in the value; None for any other change."""
        return self.copy.repair if self.of(Place.BIT) else None

    def repairs(self, kinds: set[RepairKind]) -> bool:
        """Say whether something of these kinds is put right."""
        return self.repair is not None and self.repair.kind in kinds

    @property
    def standing(self) -> Standing | None:
        """What speaks for a backup; None for any other copy."""
        return self.chosen.standing if self._choose is not None else None

    @property
    def by_itself(self) -> bool:
        """It is an undo for which no audit log speaks."""
        return self.undoes and self.standing is not None and self.standing.intent is None

    def comes_from_here(self) -> bool | None:
        """Say whether the copy comes from this cluster; None where that cannot be compared."""
        cluster = self.copy.cluster if self._choose is not None else None
        return True if cluster is None else self.present.identity.is_same(cluster)

    @fact("the other key")
    def other_mark(self) -> Landmark | None:
        """How the other etcd key stands whose bytes are put; None where they stand nowhere else."""
        other = self.chosen.other
        if not other:
            return None
        there = self.present.cluster.now.read_key(other).stored
        if there is None or digest_of(there.value) != self.copy.value_sha256:
            raise refuse(
                Rule.MOVED, f"{display(other)} was changed while it was being examined", hint="look again"
            )
        return Landmark(other, there.create_revision, there.mod_revision)

    @fact("seal")
    def _seal(self) -> tuple[Sealed, Examination] | None:
        if self._choose is None or self.copy.way is not Way.SEAL:
            return None
        return seal_contents(self.present, self.copy)

    @property
    def sealed(self) -> Sealed | None:
        """What the contents were encrypted to; None where its bytes are put as they are."""
        return self._seal[0] if self._seal is not None else None

    @fact()
    def examined(self) -> Examination:
        """What the copy is, under the key."""
        if self._seal is not None:
            return self._seal[1]
        assert self.copy.stored is not None  # its bytes are known
        return self.present.cluster.examiner.independent_copy().examine(self.copy.stored)

    @fact("write key")
    def proof(self) -> bytes:
        """The key of another object that API servers wrote as today's configuration writes; b"" for none."""
        present, cluster = self.present, self.present.cluster
        directory, paths = present.name.directory, present.request.record_paths
        return find_proof(cluster.source, cluster.examiner, directory, paths, present.identity)

    @property
    def value(self) -> bytes | None:
        """What is put; None where it is deleted, or an API server writes."""
        if self._choose is None:
            return None
        if self.sealed is not None:
            return self.sealed.data
        assert self.copy.stored is not None  # its bytes are known
        return self.copy.stored.value

    @property
    def wanted_lease(self) -> int:
        """The lease that a value from elsewhere had; 0 for none."""
        if self._choose is None or self.is_of_the_value:
            return 0
        stored = self.present.reading.stored
        if self.of(Place.OBJECT):
            return stored.lease if stored is not None else 0
        return self.copy.lease

    @fact("lease of the copy")
    def lease_alive(self) -> bool:
        """That lease is alive."""
        return read_lease(self.present.cluster.client, self.wanted_lease).alive

    @property
    def lease(self) -> int:
        """The lease to attach; 0 for none."""
        if self.is_of_the_value:
            return self.present.stored.lease
        return self.wanted_lease if self.wanted_lease and self.lease_alive else 0

    @property
    def rests_on(self) -> Landmark | None:
        """Another key that must stay as it is, as the home of a moved value; None for none."""
        mark = self.other_mark if self._choose is not None else None
        moved = self.goes and bool(self.present.found.verdict.belongs_to)
        return mark or (self.present.home.mark if moved else None)

    @property
    def detail(self) -> str:
        """What the record says of what is put."""
        if self._choose is None:
            return self.patch
        copy, now = self.copy, digest_of(self.value or b"")
        if copy.repair is not None:
            return f"{copy.repair.words} (proof: {copy.repair.proof}); now {now}"
        said = f" {copies.speaks_for(self.present, self)}" if self.by_itself else ""
        sealed = f", sealed with {self.sealed.transformer}" if self.sealed is not None else ""
        return f"from {copy.where}{said}{sealed}; now {now}"

    @property
    def needs_declaration(self) -> bool:
        """It goes only because its encryption key is declared lost."""
        return value.needs_declaration(self.present, self)


Check = Callable[["Present", Change], Iterator[RefusedByRule | str]]
"""Yields why a rule says no, or what to warn of; named as its rule, with the reason in its docstring."""

_KEY: Final[tuple[Check, ...]] = (key.no_configuration, key.expectation_differs, value.readable, key.gone)
_CLUSTER: Final[tuple[Check, ...]] = (
    key.members_disagree, key.unchecked_member, key.corrupt_alarm, key.no_space, key.unknown_cluster,
    key.release, key.unknown_release,
)  # fmt: skip
_COPY: Final[tuple[Check, ...]] = (
    copies.other_cluster_id, copies.other_cluster, copies.expired_lease,
)  # fmt: skip
_VALUE: Final[tuple[Check, ...]] = (
    key.plan, value.only_copy, value.declaration, value.undetermined, value.curable_by_configuration,
    value.never_deletable, value.value_moved, value.fails_like_others, value.pattern, value.mass_damage,
    value.unproven_damage, value.newer_than_known, servers.configuration_wrong, servers.no_api_server,
)  # fmt: skip
DELETE: Final = (
    *_KEY, *_CLUSTER, *_VALUE, cached_reads.ends_cached_reads, value.cluster_breaking, sealing.undeployed_write_key,
)  # fmt: skip
PUT: Final = (
    *_KEY, *_CLUSTER, *_COPY, copies.other_object, copies.unknown_uid, copies.moved, *_VALUE, copies.unproven_repair,
    value.cluster_breaking, sealing.write_key, sealing.undeployed_write_key,
)  # fmt: skip
PATCH: Final[tuple[Check, ...]] = (
    *_KEY, memory.unknown_cluster, *_CLUSTER, key.plan, memory.configuration_wrong, memory.other_cluster,
    memory.write_key, memory.unchecked_server, memory.no_api_server, memory.not_from_memory,
    memory.other_object, memory.not_rescued, sealing.undeployed_write_key,
)  # fmt: skip
UNDO: Final = (
    key.gone, key.expectation_differs, copies.unlisted_source, copies.present, copies.not_an_object, *_COPY,
    *_CLUSTER, servers.configuration_wrong, servers.no_api_server, value.cluster_breaking,
)  # fmt: skip


def ask(checks: Sequence[Check], present: Present, change: Change) -> list[str]:
    """Ask all checks; return what to warn of, each once; raises RefusedByRule or EtcdfixError."""
    refusals, warnings, unknown = _ask_all(checks, present, change)
    if not refusals:
        if unknown is not None:
            raise unknown
        return list(dict.fromkeys(warnings))
    words, pending, asked_first = list[str](), refusals, len(refusals)
    while pending and unknown is None and all(one.lift for one in pending):
        new = dict.fromkeys(one.lift for one in pending if one.lift[1] not in words)
        if not new:
            break
        words += [word for lift in new for word in lift]
        pending, _, unknown = _ask_all(checks, present, change.accepting(words))
        known = {(one.rule, one.message) for one in refusals}
        refusals += [one for one in pending if (one.rule, one.message) not in known]
    if pending and unknown is None:  # nothing lets it through: no word is offered, nor what is said of one
        refusals[asked_first:] = [one for one in refusals[asked_first:] if not one.lift]
        for one in refusals:
            one.hint = one.hint.removesuffix(one.offer)
    first, *also = refusals
    first.also = tuple(also)
    if pending or unknown is not None:
        first.lifted = (
            "No --accept lets it through." if unknown is None else f"Not all was asked: {unknown.message}."
        )
    else:
        given = change.request.given
        first.command = Command(with_options(given, words)).line(change.request.run)
        goes = "this command goes through:" if given else "it goes through with these words added:"
        first.lifted = f"If you accept all of this, {goes}"
    raise first


def _ask_all(
    checks: Sequence[Check], present: Present, change: Change
) -> tuple[list[RefusedByRule], list[str], EtcdfixError | None]:
    refusals: dict[tuple[str, str], RefusedByRule] = {}
    warnings: list[str] = []
    unknown = None
    for check in checks:
        try:
            for found in check(present, change):
                if isinstance(found, RefusedByRule):
                    refusals.setdefault((found.rule, found.message), found)
                else:
                    warnings.append(found)
        except RefusedByRule as refusal:  # a fact that cannot be had, perhaps refused before
            refusals.setdefault((refusal.rule, refusal.message), refusal)
        except EtcdfixError as exc:
            unknown = exc
            break
    return list(refusals.values()), warnings, unknown


def carry_out(
    checks: Sequence[Check],
    change: Change,
    confirmer: Confirmer,
    *,
    preview: Callable[[Change], None],
    sender: PatchSender | None = None,
) -> ChangeOutcome:
    """Ask the checks, show a change, and make it once it is confirmed; a dry run does all but that.

    A sender has an API server make it; without one it is a transaction of our own. ``preview`` finds what to warn of in
    the change.

    Raises:
        RemediationRefused: A rule says no, it was not confirmed, or something moved meanwhile; nothing was changed.
        AuditError: The record cannot be made durable; nothing was changed.
        TransactionNotSent: No endpoint could be reached; nothing was changed.
        TransactionRefused: etcd says no; nothing was changed.
        SourceError: etcd could not be asked; nothing was changed.
    """
    present, request, step = change.present, change.request, change.step
    asked = ask(checks, present, change)
    step("check: places")
    kept = place_warnings(request.record_paths, backup=not present.absent)
    change.warnings = tuple(dict.fromkeys((*asked, *kept)))
    write = write_of(change)
    step("preview")
    preview(change)
    cluster, paths, operator = present.cluster, request.record_paths, write.entry.operator
    if request.dry_run:
        if sender is None:
            step("preview only: probe connection")
            probe_connection(cluster.client)
        return commit(cluster.now, write, paths, operator=operator, by=None, log=request.log, step=step)
    step("confirm")
    if change.needs_declaration and not confirmer.confirm_lost(change.accepted.key_lost):
        raise refuse(Rule.NOT_CONFIRMED, "the lost key was not typed back; nothing was changed")
    if not confirmer.confirm_key(write.key):
        why = f"{display(write.key)} was not typed back; nothing was changed"
        hint = "type the key in full at a terminal, or give --yes in a script"
        raise refuse(Rule.NOT_CONFIRMED, why, hint=hint)
    by = sender or cluster.client
    return commit(cluster.now, write, paths, operator=operator, by=by, log=request.log, step=step)
