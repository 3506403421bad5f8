"""The entry of one broken object: what it is, who uses it and makes it again, its best copy, and its deletion."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.commands.planning.broken import Broken, BrokenObjects
from etcdfix.commands.planning.steps import kms_step
from etcdfix.copies.model import Copy, Freshness, Place, Sameness, Way
from etcdfix.copies.rescued import SavedObject
from etcdfix.examine.one import Examiner
from etcdfix.examine.readable_revision import ReadableRevisions
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import (
    Deletability,
    deletability_of,
    is_repairable,
    protected_reason,
)
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.key_loss import (
    BY_NUMBERS,
    NOT_THE_KEY,
    THE_KEY,
    KeyCounter,
    KeyDoubt,
    needed_for,
)
from etcdfix.examine.verdicts.severity import stake_of
from etcdfix.graph.assess import assess
from etcdfix.graph.contents import ContentReader
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import Action, Assessment
from etcdfix.graph.recreation import shown, who_recreates
from etcdfix.model.model import Outcome, ReadableRevision
from etcdfix.model.providers import IDENTITY
from etcdfix.model.rules import Rule, acceptance
from etcdfix.remediation.offers import at_hand
from etcdfix.report.plan import PlanEntry, declaration, is_breaking
from etcdfix.sources.base import Source
from etcdfix.text.commands import NO_COMMAND, Command, Part, RunOptions, delete
from etcdfix.text.safetext import quote_command

if TYPE_CHECKING:
    from etcdfix.commands.plan import PlanRequest

_MOST_REASONS: Final = 8
_NAMED_USERS: Final = 2


class Saved:
    """What ``rescue`` saved of the objects of a cluster."""

    def __init__(self, objects: Mapping[bytes, Sequence[SavedObject]], uid: str | None) -> None:
        self._objects, self._uid = objects, uid

    def has(self, found: Examination) -> bool:
        """Say whether the object of a value is saved as that holds it."""
        return any(
            int(saved.resource_version) == found.stored.mod_revision
            for saved in self._objects.get(found.stored.key, ())
        )

    def copy_of(self, found: Examination) -> Copy | None:
        """Return what an API server held of a value when it was saved."""
        for saved in self._objects.get(found.stored.key, ())[:1]:
            return Copy(
                key=saved.key,
                place=Place.MEMORY,
                where="memory of an API server",
                source=Place.MEMORY.value,
                way=Way.PATCH,
                mod_revision=int(saved.resource_version),
                uid=saved.uid,
                history=Sameness.SAME if self._uid and saved.cluster_uid == self._uid else Sameness.UNKNOWN,
                doubt="it was being deleted (deletionTimestamp)" if saved.deleting else "",
            )
        return None


class EntryWriter(msgspec.Struct, frozen=True):
    """Looks at one broken object after the other."""

    index: ImpactIndex
    source: Source
    examiner: Examiner
    reader: ContentReader
    keys: KeyCounter
    gathered: BrokenObjects
    request: PlanRequest
    generations: Callable[[bytes], bool]
    readable: ReadableRevisions
    saved: Saved
    naming_plan: str

    def draft(self, broken: Broken) -> PlanEntry:
        """Return the entry of one object, without its turn."""
        found, stored, index = broken.found, broken.found.stored, self.index
        node = index.find(stored.key)
        assert node is not None  # it was added
        assessment = assess(
            index,
            self.source,
            self.examiner,
            stored.key,
            reader=self.reader,
            generations=self.generations(stored.key),
            closed=stored if broken.closed else None,
        )
        assert assessment is not None  # same
        recreation = who_recreates(index, node, assessment)
        maker, cause, stake = recreation.recreated_by, found.verdict.cause, stake_of(found)
        doubts = self.keys.doubts_about(found)
        needed = needed_for(found, doubts)
        entry = PlanEntry(
            order=0,
            key=assessment.object.key,
            key_base64=assessment.object.key_base64,
            group=found.directory.group,
            resource=found.directory.resource,
            namespace=found.namespace,
            name=found.name,
            mod_revision=stored.mod_revision,
            value_sha256=broken.value_sha256,
            outcome=found.verdict.outcome.value,
            cause=cause.value if cause is not None else "",
            severity=stake.severity.value if stake is not None else "",
            transformer=found.transformer,
            kms_key_id_sha256=found.kms_key_id_sha256,
            what=what_it_is(assessment),
            users=len({user.object for user in assessment.users}),
            cascade=assessment.dependents.counts[Action.CASCADE_DELETED],
            recreated_by=maker.name,
            recreate_confidence=recreation.confidence.value if recreation.confidence is not None else None,
            comes_back=maker.comes_back.value,
            recreate_basis=recreation.basis,
            recreate_how=maker.how,
            protected=protected_reason(found.directory.group_resource, found.namespace),
            risk=assessment.risk.value,
            reasons=list(assessment.reasons[:_MOST_REASONS]),
            command=self._deletion(found),
            refused=advice_on(found, doubts, self.request.run) if needed.refused else "",
        )
        needs = [declaration(found.transformer, found.kms_key_id_sha256)] if needed.declaration else []
        needs += map(acceptance, needed.risks)
        if is_breaking(entry):
            needs.append(acceptance(Rule.CLUSTER_BREAKING))
        entry = msgspec.structs.replace(entry, needs=needs)
        readable = assessment.last_known.readable or self.readable.of(found).revision
        entry = self._with_copy(entry, found, readable)
        # What a deletion ends, and nothing that is put back.
        others = self.gathered.only_in_memory[found.directory.group_resource]
        if others > self.gathered.is_only_in_memory(found):
            needs = [*needs, acceptance(Rule.ENDS_CACHED_READS)]
        return msgspec.structs.replace(entry, needs=needs)

    def _with_copy(
        self, entry: PlanEntry, found: Examination, readable: ReadableRevision | None
    ) -> PlanEntry:
        """Add the best copy: by itself nothing is put back of which a person has to look first."""
        if readable is not None and (readable.leased or not readable.same_object):
            readable = None
        if not is_repairable(found):
            found = msgspec.structs.replace(found, repair=None)
        run, held = self.request.run, self.saved.copy_of(found)
        rescued = str(self.request.rescued or "DIR")
        offered = at_hand(found, run, readable, held, breaking=is_breaking(entry), rescued=rescued)
        save = next((one.save for one in offered if one.copy.place is Place.REVISION), NO_COMMAND).line(run)
        entry = msgspec.structs.replace(entry, save=save)
        best = next((one for one in offered if not one.saved_first), None)
        if best is None:
            return entry
        needs = [acceptance(rule) for rule in best.needs]
        if best.copy.freshness is not Freshness.CURRENT:  # what stands there goes, as with a deletion
            if entry.refused:
                return entry
            needs = [*dict.fromkeys([*entry.needs, *needs])]
        said = quote_command([word for word in best.command.words if isinstance(word, str)])
        more = [word for flag in needs if flag not in said for word in shlex.split(flag)]
        fix = Command((*best.command.words, *more), writes=best.command.writes).line(run)
        return msgspec.structs.replace(
            entry, copy=best.copy.where, source=best.copy.source, command=fix, fix_needs=needs
        )

    def _deletion(self, found: Examination) -> str:
        command = delete(found.stored.key).line(self.request.run)
        if not command:
            return ""
        possible = found.verdict.damage is Damage.POSSIBLE
        asking = f" {quote_command(self.request.run.part(Part.ASKING))}" if possible else ""
        return f"{command} --expect-mod-revision {found.stored.mod_revision}{asking}{self.naming_plan}"


def advice_on(found: Examination, doubts: frozenset[KeyDoubt], run: RunOptions) -> str:
    """Return what to find out before a value is deleted, given what others under its key came to; "" for nothing."""
    key = bool(doubts & THE_KEY)
    gone = "it"
    if needed_for(found, doubts).declaration:
        if found.verdict.outcome is Outcome.UNDETERMINED:
            text = kms_step(found.verdict.cause, run).action
            text, gone = f"nothing is proven: {text[0].lower()}{text[1:]}", "the key"
        elif deletability_of(found) is Deletability.DECLARABLE:
            text = "the configuration alone can cure this: find the key"
        elif KeyDoubt.IN_BETWEEN in doubts and not doubts & BY_NUMBERS:
            text = "the key may have had other bytes for a time: find them"
        else:
            text = "that is the key, not the objects: find it"
        flag = declaration(found.transformer, found.kms_key_id_sha256)
        return f"{text}; only if {gone} is gone for ever: {flag}"
    if key and found.transformer in {IDENTITY, ""}:
        return "many values do not open, and no key is to blame: find out what wrote them"
    if key:
        return "many values under its key do not open, and the key is there: find out why first"
    if doubts & NOT_THE_KEY:
        return "something happened to many values: find out what before anything is deleted"
    return ""


def what_it_is(assessment: Assessment) -> str:
    """Return what an object is and who uses it, in a clause that is safe for a terminal."""
    ref, kind = assessment.object, assessment.last_known.type if assessment.secret is not None else ""
    objects = sorted({user.object for user in assessment.users}, key=lambda r: (r.resource == "pods", r.key))
    users = ", ".join(f"{shown(user.resource)} {shown(user.name)}" for user in objects[:_NAMED_USERS])
    users = f", used by {users}" if users else ""
    if len(objects) > _NAMED_USERS:
        users += f" and {len(objects) - _NAMED_USERS} more"
    what = shown(ref.kind or ref.resource or "a value of no known resource")
    return f"{what}{f' ({shown(kind)})' if kind else ''}{users}"
