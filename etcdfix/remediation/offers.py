"""May a copy be put back, and what has to be said first? Asked of the rules that need no live cluster.

The change asks these again, and everything that only the live cluster can answer: its members, its API servers, the
backup's place. So an offer that nothing refuses may still be refused when it is run, and one that is refused here
would be refused there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.copies.model import THE_VALUE, Copy, Freshness, Place, Sameness, Wanted, Way
from etcdfix.copies.rank import ranked
from etcdfix.copies.revisions import kept_copy, life_told
from etcdfix.copies.value import put_right
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import LOST_KEY, Deletability, deletability_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import Confidence, Outcome, ReadableRevision
from etcdfix.model.rules import MEANINGS, Rule, refuse
from etcdfix.model.storagekey import display
from etcdfix.remediation.checks.value import AS_IT_IS
from etcdfix.report.advice.finding import (
    NOT_LOOKED,
    NOT_TO_KINE,
    Surroundings,
    granted,
    repair_risks,
    revealed,
    ways_out,
)
from etcdfix.report.advice.ways import WayKind, other_copies, risks_to_accept
from etcdfix.report.copies import Grade, ShownCopy
from etcdfix.report.model import Remedy
from etcdfix.report.origin import same_fields
from etcdfix.text import commands
from etcdfix.text.commands import NO_COMMAND, Command, Part, RunOptions
from etcdfix.text.safetext import key_word

_MOST_OFFERED: Final = 3
"""So many copies are among the ways out; a table has all of them."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A copy, and what stands between it and its key.

    Attributes:
        declares: The encryption key that has to be declared lost; "" for none.
        command: The dry run that puts it back; none where a rule refuses.
        save: The command that saves it; none where it is a file already.
        granted: What the command takes for granted, a sentence; "" for nothing.
    """

    copy: Copy
    refusal: RefusedByRule | None = None
    needs: tuple[Rule, ...] = ()
    declares: str = ""
    command: Command = NO_COMMAND
    save: Command = NO_COMMAND
    granted: str = ""

    @property
    def saved_first(self) -> bool:
        """A person has to look at it before it goes over what stands there, which may be worth more.

        Not where its revisions show whose it is: then the person accepts that, and need not look.
        """
        shown = {Rule.UNKNOWN_UID} if self.copy.proof else set[Rule]()
        unsure = (_LOOKED_AT - shown).intersection(self.needs) and self.copy.place not in THE_VALUE
        return self.refusal is not None or bool(unsure and self.save)

    @property
    def grade(self) -> Grade:
        """What the copy is good for, whether it may be put back or not."""
        copy = self.copy
        if not copy.reads or copy.same_object is Sameness.OTHER:
            return Grade.UNUSABLE
        sure = copy.sure is Confidence.CERTAIN and copy.same_object is Sameness.SAME
        return Grade.GOOD if sure and not self.doubt else Grade.DOUBTFUL

    @property
    def doubt(self) -> str:
        """What speaks against the copy; "" for nothing."""
        guessed = Rule.UNPROVEN_REPAIR in self.needs
        return self.copy.doubt or ("no tag proves it" if guessed else "")

    @property
    def proven(self) -> bool:
        """No rule refuses it, and nothing is doubtful about it."""
        return self.refusal is None and self.grade is Grade.GOOD


def offers(
    copies: Iterable[Copy],
    wanted: Wanted,
    run: RunOptions,
    *,
    breaking: bool = False,
    rescued: str = "DIR",
    write_key_shown: bool = True,
) -> list[Offer]:
    """Return what may be put back, in the order of the copies.

    ``breaking``: a change may break the cluster; what its place alone says need not be told. ``rescued`` is where
    ``rescue`` saved to, or a word to fill in. ``write_key_shown``: API servers are known to hold today's write key.
    """
    found = []
    for copy in _taken_from_the_file(copies, run):
        offer = _offer(copy, wanted, run, breaking=breaking, rescued=rescued)
        if copy.way is Way.SEAL and copy.place is not Place.OBJECT and not write_key_shown and offer.command:
            offer = _offer(copy, wanted, run, Rule.UNDEPLOYED_WRITE_KEY, breaking=breaking, rescued=rescued)
        found.append(offer)
    return found


def at_hand(
    found: Examination,
    run: RunOptions,
    readable: ReadableRevision | None = None,
    held: Copy | None = None,
    *,
    breaking: bool = False,
    rescued: str = "DIR",
) -> list[Offer]:
    """Return what may be put back of that which a look at many values has found, the best first.

    ``readable`` is its newest earlier revision that reads, ``held`` what an API server held of it; else :func:`offers`.
    """
    made = [
        put_right(found, found.repair) if found.repair is not None else None,
        kept_copy(found, readable) if readable is not None else None,
        held,
    ]
    copies = [copy for copy in made if copy is not None]
    same = readable if readable is not None and readable.same_object else None
    uid, told_at = (same.uid, same.mod_revision) if same is not None else ("", 0)
    wanted = Wanted(
        key=found.stored.key,
        found=found,
        resource=found.directory.group_resource,
        life=life_told(found.stored, uid, told_at, "kine" if run.of_kine else "etcd"),
    )
    return offers(ranked(copies, wanted), wanted, run, breaking=breaking, rescued=rescued)


def ways_at_hand(
    found: Examination,
    run: RunOptions,
    readable: ReadableRevision | None = None,
    *,
    breaking: bool = False,
    beside: Surroundings = NOT_LOOKED,
) -> list[Remedy]:
    """Return every way out for a value in one order: its copies by :func:`at_hand`, the rest by the advice on it."""
    offered = [remedy_of(offer) for offer in at_hand(found, run, readable, breaking=breaking)]
    return ways_out(found, run, offers=offered, breaking=breaking, beside=beside)


def best_of(found: Sequence[Offer], accepted: Iterable[str] = ()) -> Offer | None:
    """Return the first offer that is proven and needs nothing beyond what is accepted; None for none."""
    given = set(accepted)
    return next(
        (one for one in found if one.proven and not one.declares and given.issuperset(one.needs)), None
    )


def ways_of(
    wanted: Wanted,
    found: Sequence[Offer],
    run: RunOptions,
    *,
    breaking: bool = False,
    beside: Surroundings = NOT_LOOKED,
) -> list[Remedy]:
    """Return every way out for an object in one order: its copies by their offers, the rest by advice on its value."""
    copied = [remedy_of(one) for one in found if one.grade is not Grade.UNUSABLE][:_MOST_OFFERED]
    if wanted.found is None:
        return [*copied, other_copies(key_word(wanted.key))]
    return ways_out(wanted.found, run, offers=copied, breaking=breaking, beside=beside)


def remedy_of(offer: Offer) -> Remedy:
    """Return an offer as a way out: put back, or saved where a rule refuses that or a person has to look first."""
    if offer.saved_first:
        return saved_of(offer)
    return Remedy(f"{_action(offer.copy)}: a dry run first", offer.command, _note(offer), WayKind.FIX)


def saved_of(offer: Offer) -> Remedy:
    """Return how a copy is kept, and why it is not put back where a rule refuses that."""
    copy, refusal = offer.copy, offer.refusal
    action = "Keep it: it can be put right" if copy.place is Place.BIT else f"Save {copy.where}"
    if refusal is not None:
        said = (_sentence(refusal.message), _note(offer))
    else:
        words = " ".join((f"fix --from {copy.source}", *(f"--accept {rule}" for rule in offer.needs)))
        said = (_note(msgspec.structs.replace(offer, needs=())), f"Then {words}.")
    return Remedy(action, offer.save, " ".join(filter(None, said)), WayKind.SAVE)


def shown_of(offer: Offer) -> ShownCopy:
    """Return an offer as reports show it."""
    copy, refusal = offer.copy, offer.refusal
    return ShownCopy(
        **same_fields(copy, ShownCopy)
        | {
            "grade": offer.grade,
            "mod_revision": copy.mod_revision or None,
            "confidence": copy.sure,
            "doubt": offer.doubt,
            "cause": copy.cause if not copy.reads else None,
            "reads": copy.reads,
            "refused": refusal.rule if refusal is not None else "",
            "why": refusal.message if refusal is not None else "",
            "needs": [rule.value for rule in offer.needs],
            "fix": offer.command,
            "save": offer.save,
        }
    )


_LOOKED_AT: Final = frozenset({Rule.ONLY_COPY, Rule.NEWER_THAN_KNOWN, Rule.UNKNOWN_UID, Rule.UNLISTED_SOURCE})
_COMPACTS: Final = "API servers compact old revisions away every 5 minutes."
_ACTIONS: Final = {
    Place.BIT: "Put the value right",
    Place.CANDIDATE: "Encrypt the value under today's key",
    Place.MEMORY: "Have the API server write it anew from its memory",
}


def _action(copy: Copy) -> str:
    live = "On the live etcd, put back" if _in_a_file(copy) else "Put back"
    return _ACTIONS.get(copy.place) or f"{live} {copy.where}"


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}." if clause else ""


def _note(offer: Offer) -> str:
    copy = offer.copy
    later = "Later writes of it are lost." if copy.freshness is Freshness.OLDER else ""
    if copy.later_writes:
        later = f"{copy.later_writes} later {'write is' if copy.later_writes == 1 else 'writes are'} lost."
    kept = copy.place is Place.REVISION and offer.refusal is None and not _in_a_file(copy)
    return " ".join(
        filter(
            None,
            (
                _sentence(copy.where) if copy.place is Place.BIT else "",
                _sentence(copy.doubt),
                _sentence(copy.proof),
                later,
                f"Only if {offer.declares} is gone for ever." if offer.declares else "",
                *(f"Accept {rule} if {MEANINGS[rule]}." for rule in offer.needs),
                _COMPACTS if kept else "",
                offer.granted,
            ),
        )
    )


def _offer(
    copy: Copy, wanted: Wanted, run: RunOptions, *more_needs: Rule, breaking: bool, rescued: str
) -> Offer:
    refusal, found = next(_refusals(copy, wanted, run), None), wanted.found
    if refusal is not None:
        return Offer(copy=copy, refusal=refusal, save=_save(copy, wanted, run))
    needs, declares = (*_needs(copy, wanted, breaking=breaking), *more_needs), ""
    more: tuple[str | Part, ...] = ()
    if copy.way is Way.PATCH:
        more = ("--rescued", rescued, Part.ASKING)
    else:
        goes = found is not None and copy.place not in THE_VALUE
        if goes and found is not None and deletability_of(found) is Deletability.DECLARABLE:
            declares, more = found.transformer, ("--declare-key-lost", found.transformer)
        only_possible = found is not None and found.verdict.damage is Damage.POSSIBLE
        if copy.place is Place.OBJECT or declares or only_possible:  # API servers have to say that they fail
            more = (*more, Part.ASKING)
    seals = copy.way is not Way.PUT
    return Offer(
        copy=copy,
        needs=needs,
        declares=declares,
        command=commands.fix(copy.key, copy.source, needs, more=more, seals=seals),
        save=_save(copy, wanted, run),
        granted="" if seals else granted(run).strip(),
    )


def _taken_from_the_file(copies: Iterable[Copy], run: RunOptions) -> Iterable[Copy]:
    """Name a snapshot that was read as the source of the newest earlier value that reads: ``--from`` takes that."""
    if not run.of_a_file or run.of_kine or run.revision:
        return copies
    copies = [*copies]
    kept = [copy for copy in copies if copy.place is Place.REVISION and copy.reads]
    newest = max(kept, key=lambda copy: copy.mod_revision, default=None)
    source = f"{Place.SNAPSHOT}:{run.file}"
    return [msgspec.structs.replace(copy, source=source) if copy is newest else copy for copy in copies]


def _in_a_file(copy: Copy) -> bool:
    return copy.source.startswith(f"{Place.SNAPSHOT}:")


def _refusals(copy: Copy, wanted: Wanted, run: RunOptions) -> Iterator[RefusedByRule]:
    """Yield why a copy cannot be put back, whatever is accepted; the present value must itself be deletable."""
    found = wanted.found
    if not copy.reads:
        why = copy.message or "whether it reads could not be told"
        rule, hint = Rule.NOT_READABLE, "give the --encryption-config that reads it"
        if copy.place is Place.OBJECT and copy.outcome is not None:
            rule = Rule.OBJECT_FILE
            hint = "give the file of this very object, as kubectl get -o json or etcdfix rescue saved it"
        elif copy.outcome in {Outcome.DECODE_FAILURE, Outcome.INCONSISTENT}:  # no other configuration helps
            hint = "name another copy: etcdfix explain lists them"
        yield refuse(rule, why, hint=hint)
    if copy.same_object is Sameness.OTHER:
        yield refuse(Rule.OTHER_OBJECT, copy.proof or "it is of another object of that name")
    if not copy.source:
        yield refuse(Rule.NOT_ONE_KEY, "no command can name this copy", hint="save it")
    if run.of_kine and copy.way is not Way.PATCH:
        yield refuse(Rule.KINE, NOT_TO_KINE.removesuffix("."))
    if copy.place is Place.REVISION and run.of_the_past and not _in_a_file(copy):
        hint = f"--from snapshot:{run.file}" if run.of_a_file else ""
        yield refuse(Rule.GONE, "a live etcd may have compacted it by now", hint=hint)
    if found is not None and copy.place is Place.KEY:
        yield refuse(
            Rule.PRESENT, f"{display(wanted.key)} exists, and may be newer than the other key's value"
        )
    if found is not None:
        yield from _what_stays(copy, found)
    if copy.way is Way.PATCH:
        yield from _not_from_memory(copy, found, run)


def _what_stays(copy: Copy, found: Examination) -> Iterator[RefusedByRule]:
    standing = deletability_of(found)
    if standing is Deletability.NOT_BROKEN:
        rule, why, hint, _ = AS_IT_IS[found.verdict.outcome]
        yield refuse(rule, why, hint=hint)
    elif copy.place is Place.CANDIDATE and found.verdict.outcome is not Outcome.DECRYPT_FAILURE:
        # A silent plugin may answer later.
        why = f"it is not proven that today's configuration cannot read the value: {found.verdict.message}"
        yield refuse(Rule.UNDETERMINED, why, hint="the plugin may answer later; see etcdfix scan")
    elif standing in _STAYS and copy.place not in THE_VALUE and copy.way is not Way.PATCH:
        rule, why = _STAYS[standing]
        yield refuse(rule, why)


_STAYS: Final = {
    Deletability.MOVED: (
        Rule.VALUE_MOVED,
        "the present value belongs to another etcd key: look at that first",
    ),
    Deletability.CURABLE: (
        Rule.CURABLE_BY_CONFIGURATION,
        "the configuration alone can cure the present value",
    ),
    Deletability.UNPROVEN: (Rule.UNDETERMINED, "nothing is proven against the present value"),
    Deletability.NEVER: (Rule.NEVER_DELETABLE, "its cause is no reason to write over the present value"),
}


def _not_from_memory(copy: Copy, found: Examination | None, run: RunOptions) -> Iterator[RefusedByRule]:
    """An API server writes anew only what it remembers of this very write, of an object whose key is lost."""
    why = copy.doubt
    if run.of_the_past and not run.of_kine:
        why = "what the live etcd holds now was not looked at"
    elif found is None or found.verdict.cause not in LOST_KEY:
        why = "its encryption key is not what is lost: save it at once"
    elif not why and copy.freshness is not Freshness.CURRENT:
        why = "the server remembers another write than the one that stands there"
    if why:
        yield refuse(Rule.NOT_FROM_MEMORY, why)


def _needs(copy: Copy, wanted: Wanted, *, breaking: bool) -> Iterator[Rule]:
    found, cluster = wanted.found, copy.cluster
    if copy.place is Place.BIT and found is not None and copy.repair is not None:
        yield from repair_risks(found, copy.repair, breaking=breaking)
    if copy.place in THE_VALUE or copy.way is Way.PATCH:
        return
    if found is not None:
        yield from risks_to_accept(found, breaking=breaking)
    elif copy.place is Place.OBJECT and wanted.protected:
        yield Rule.CLUSTER_BREAKING
    if not copy.listed:
        yield Rule.UNLISTED_SOURCE
    of_another = copy.place is Place.BACKUP and copy.history is Sameness.UNKNOWN
    if of_another and cluster is not None and cluster.is_known:
        yield Rule.OTHER_CLUSTER_ID
    if copy.same_object is Sameness.UNKNOWN:
        yield Rule.UNKNOWN_UID
    if cluster is not None and not cluster.is_known:
        yield Rule.UNKNOWN_CLUSTER


def _save(copy: Copy, wanted: Wanted, run: RunOptions) -> Command:
    words = (*revealed(wanted.resource), "-o", "json")
    match copy.place:
        case Place.BIT if run.of_kine:
            return commands.save_copy(run, "kept.db")
        case Place.MEMORY:
            return commands.rescue([str(wanted.resource)])
        case Place.REVISION:
            return commands.get(copy.key, *words, revision=copy.kept_at or copy.mod_revision)
        case Place.SNAPSHOT:
            return commands.get(copy.key, *words, file=copy.source.partition(":")[2], revision=copy.kept_at)
        case _:
            return NO_COMMAND
