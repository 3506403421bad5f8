"""The entry of one broken object: what it is, who uses it and makes it again, its best copy, and its deletion."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.commands.planning.gather import Broken
from etcdfix.commands.planning.groups import advice_on, needs_of
from etcdfix.commands.planning.steps import is_breaking, what_it_is
from etcdfix.copies.model import Copy, Freshness, Place, Sameness, Way
from etcdfix.examine import Examiner
from etcdfix.graph.assess import assess
from etcdfix.graph.contents import ContentReader
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import Action
from etcdfix.graph.recreation import Claim, who_recreates
from etcdfix.model import ReadableRevision
from etcdfix.readable_revision import ReadableRevisions
from etcdfix.remediation.offers import at_hand
from etcdfix.report.plan_entry import PlanEntry
from etcdfix.rescued import read_index
from etcdfix.rules import Rule, acceptance
from etcdfix.sources.base import Source
from etcdfix.text.commands import NO_COMMAND, Command, Part, delete
from etcdfix.text.safetext import quote_command
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.deletability import is_repairable
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.key_loss import KeyCounter, needed_for
from etcdfix.verdicts.protected import protected_reason

if TYPE_CHECKING:
    from etcdfix.commands.plan import PlanRequest

_MOST_REASONS: Final = 8


def held_of(directory: Path | None, uid: str | None) -> Callable[[Examination], Copy | None]:
    """Return what says what an API server held of a value when ``rescue`` saved it.

    Args:
        directory: To which it saved; None for nothing.
        uid: Of the cluster; None where it cannot be read.

    Raises:
        ConfigurationError: There is no such directory, or its index cannot be read.
    """
    index = read_index(directory).by_key() if directory is not None else {}

    def held(found: Examination) -> Copy | None:
        for saved in index.get(found.stored.key, ())[:1]:
            return Copy(
                key=saved.key,
                place=Place.MEMORY,
                where="memory of an API server",
                source=Place.MEMORY.value,
                way=Way.PATCH,
                mod_revision=int(saved.resource_version),
                uid=saved.uid,
                history=Sameness.SAME if uid and saved.cluster_uid == uid else Sameness.UNKNOWN,
                doubt="it was being deleted (deletionTimestamp)" if saved.deleting else "",
            )
        return None

    return held


class EntryWriter(msgspec.Struct, frozen=True):
    """Looks at one broken object after the other."""

    index: ImpactIndex
    source: Source
    examiner: Examiner
    reader: ContentReader
    claims: Mapping[tuple[str, str], Claim]
    keys: KeyCounter
    request: PlanRequest
    generations: Callable[[bytes], bool]
    readable: ReadableRevisions
    held: Callable[[Examination], Copy | None]
    naming_plan: str

    def draft(self, broken: Broken) -> PlanEntry:
        """Return the entry of one object, without its turn."""
        found = broken.found
        stored = found.stored
        index = self.index
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
        recreation = who_recreates(index, node, self.claims, assessment)
        users = len({user.object for user in assessment.users})
        cause = found.verdict.cause
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
            transformer=found.transformer,
            kms_key_id_sha256=found.kms_key_id_sha256,
            what=what_it_is(assessment, recreation),
            users=users,
            cascade=assessment.collection.counts[Action.CASCADE_DELETED],
            recreated_by=recreation.recreated_by.name,
            recreate_confidence=recreation.confidence.value if recreation.confidence is not None else None,
            comes_back=recreation.recreated_by.comes_back.value,
            recreate_basis=recreation.basis,
            recreate_how=recreation.recreated_by.how,
            protected=protected_reason(found.directory.group_resource, found.namespace),
            risk=assessment.risk.value,
            reasons=list(assessment.reasons[:_MOST_REASONS]),
            command=self._deletion(found),
            needs=needs_of(found, needed),
            refused=advice_on(found, doubts, needed, self.request.run) if needed.refused else "",
        )
        if is_breaking(entry):
            entry = msgspec.structs.replace(entry, needs=[*entry.needs, acceptance(Rule.CLUSTER_BREAKING)])
        readable = assessment.last_known.readable or self.readable.of(found).revision
        return self._with_copy(entry, found, readable)

    def _with_copy(
        self, entry: PlanEntry, found: Examination, readable: ReadableRevision | None
    ) -> PlanEntry:
        """Add the best copy: by itself nothing is put back of which a person has to look first."""
        if readable is not None and (readable.leased or not readable.same_object):
            readable = None
        if not is_repairable(found):
            found = msgspec.structs.replace(found, repair=None)
        run, held = self.request.run, self.held(found)
        rescued = str(self.request.rescued or "DIR")
        offered = at_hand(found, run, readable, held, breaking=is_breaking(entry), rescued=rescued)
        saved = next((one.save for one in offered if one.copy.place is Place.REVISION), NO_COMMAND)
        entry = msgspec.structs.replace(entry, save=saved.line(run))
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
        command = Command((*best.command.words, *more), writes=best.command.writes)
        return msgspec.structs.replace(
            entry, copy=best.copy.where, source=best.copy.source, fix=command.line(run), fix_needs=needs
        )

    def _deletion(self, found: Examination) -> str:
        command = delete(found.stored.key).line(self.request.run)
        if not command:
            return ""
        possible = found.verdict.damage is Damage.POSSIBLE
        asking = f" {quote_command(self.request.run.part(Part.ASKING))}" if possible else ""
        return f"{command} --expect-mod-revision {found.stored.mod_revision}{asking}{self.naming_plan}"
