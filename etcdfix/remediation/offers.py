"""May a copy be put back, and what has to be said first? Asked of the rules that need no live cluster.

The change asks these again, and everything that only the live cluster can answer: its members, its API servers, the
backup's place. So an offer that nothing refuses may still be refused when it is run, and one that is refused here
would be refused there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from etcdfix.copies.model import THE_VALUE, Copy, Freshness, Place, Sameness, Wanted, Way
from etcdfix.model import Confidence, Outcome
from etcdfix.report.advice.change import NOT_TO_KINE, repair_risks, revealed
from etcdfix.report.advice.ways import WayKind, risks_to_accept
from etcdfix.report.model import Remedy
from etcdfix.report.shown_copy import ShownCopy
from etcdfix.rules import MEANINGS, Rule
from etcdfix.storagekey import display
from etcdfix.text import commands
from etcdfix.text.commands import NO_COMMAND, Command, Part, RunOptions
from etcdfix.text.safetext import key_word
from etcdfix.verdicts.deletability import KMS_DOUBTS, LOST_KEY, Deletability, deletability_of


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a copy cannot be put back: the rule, one sentence, and what would lift it ("" for nothing)."""

    rule: Rule
    why: str
    hint: str = ""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A copy, and what stands between it and its key.

    Attributes:
        refusal: None where no rule says no.
        needs: Rules that have to be accepted.
        declares: The encryption key that has to be declared lost; "" for none.
        command: The dry run that puts it back; none where a rule refuses.
        save: The command that saves it; none where it is a file already.
    """

    copy: Copy
    refusal: Refusal | None = None
    needs: tuple[Rule, ...] = ()
    declares: str = ""
    command: Command = NO_COMMAND
    save: Command = NO_COMMAND

    @property
    def proven(self) -> bool:
        """No rule refuses it, nothing has to be accepted of the copy itself, and nothing is doubtful about it."""
        copy = self.copy
        unsure = copy.doubt or copy.sure is not Confidence.CERTAIN or copy.same_object is not Sameness.SAME
        return self.refusal is None and not unsure


def offers(
    copies: Iterable[Copy], wanted: Wanted, run: RunOptions, *, breaking: bool = False, rescued: str = "DIR"
) -> list[Offer]:
    """Return what may be put back, in the order of the copies.

    Args:
        copies: Ranked.
        wanted: The object that they are of.
        run: What was read, and how.
        breaking: A change may break the cluster; what its place alone says need not be told.
        rescued: Directory to which ``rescue`` saved, or a word to fill in.
    """
    return [_offer(copy, wanted, run, breaking=breaking, rescued=rescued) for copy in copies]


def best_of(found: Sequence[Offer], accepted: Iterable[str] = ()) -> Offer | None:
    """Return the first offer that is proven and needs nothing beyond what is accepted; None for none."""
    given = set(accepted)
    return next(
        (one for one in found if one.proven and not one.declares and given.issuperset(one.needs)), None
    )


def remedy_of(offer: Offer) -> Remedy:
    """Return an offer as a way out: put back, or save where a rule refuses that."""
    copy, refusal = offer.copy, offer.refusal
    note = _note(offer)
    if refusal is not None:
        return Remedy(
            f"Save {copy.where}",
            offer.save,
            f"{refusal.why[0].upper()}{refusal.why[1:]}. {note}".strip(),
            WayKind.SAVE,
        )
    return Remedy(f"{_action(copy)}: a dry run first", offer.command, note, WayKind.PUT_BACK)


def shown_of(offer: Offer) -> ShownCopy:
    """Return an offer as reports show it."""
    copy, refusal = offer.copy, offer.refusal
    return ShownCopy(
        place=copy.place,
        where=copy.where,
        source=copy.source,
        way=copy.way,
        mod_revision=copy.mod_revision or None,
        confidence=copy.sure,
        doubt=copy.doubt,
        outcome=copy.outcome,
        cause=copy.cause if not copy.reads else None,
        uid=copy.uid,
        same_object=copy.same_object,
        freshness=copy.freshness,
        later_writes=copy.later_writes,
        proof=copy.proof,
        value_sha256=copy.value_sha256,
        proven=offer.proven,
        refused=refusal.rule.value if refusal is not None else "",
        why=refusal.why if refusal is not None else "",
        needs=[rule.value for rule in offer.needs],
        fix=offer.command,
        save=offer.save,
    )


_ACTIONS: Final = {
    Place.BIT: "Put the value right",
    Place.CANDIDATE: "Encrypt the value under today's key",
    Place.MEMORY: "Have the API server write it anew from its memory",
}


def _action(copy: Copy) -> str:
    told = _ACTIONS.get(copy.place)
    if told is None:
        return f"Put back {copy.where}"
    return f"{told} ({copy.where})" if copy.place is Place.BIT else told


def _note(offer: Offer) -> str:
    copy = offer.copy
    later = "Later writes of it are lost." if copy.freshness is Freshness.OLDER else ""
    if copy.later_writes:
        later = f"{copy.later_writes} later {'write is' if copy.later_writes == 1 else 'writes are'} lost."
    proof = f"{copy.proof[0].upper()}{copy.proof[1:]}." if copy.proof else ""
    doubt = f"{copy.doubt[0].upper()}{copy.doubt[1:]}." if copy.doubt else ""
    needs = "".join(f"Accept {rule} if {MEANINGS[rule]}. " for rule in offer.needs)
    return " ".join(filter(None, (doubt, proof, later, needs.strip())))


def _offer(copy: Copy, wanted: Wanted, run: RunOptions, *, breaking: bool, rescued: str) -> Offer:
    refusal = next(iter(filter(None, (check(copy, wanted, run) for check in _CHECKS))), None)
    if refusal is not None:
        return Offer(copy=copy, refusal=refusal, save=_save(copy, wanted, run))
    needs, declares = _needs(copy, wanted, breaking=breaking), _declares(copy, wanted)
    more: tuple[str | Part, ...] = ("--declare-key-lost", declares) if declares else ()
    if copy.way is Way.PATCH:
        more = ("--rescued", rescued, Part.ASKING)
    elif copy.place is Place.OBJECT or declares or Rule.UNPROVEN_DAMAGE in needs:
        more = (*more, Part.ASKING)
    command = commands.fix(copy.key, copy.source, needs, more=more, seals=copy.way is not Way.PUT)
    return Offer(copy=copy, needs=needs, declares=declares, command=command, save=_save(copy, wanted, run))


def _can_be_named(copy: Copy, _wanted: Wanted, _run: RunOptions) -> Refusal | None:
    if copy.source:
        return None
    return Refusal(rule=Rule.NOT_ONE_KEY, why="no command can name this copy", hint="save it")


def _reads(copy: Copy, _wanted: Wanted, _run: RunOptions) -> Refusal | None:
    """Only a readable value may be put back."""
    if copy.reads:
        return None
    why = copy.message or "whether it reads could not be told"
    return Refusal(rule=Rule.NOT_READABLE, why=why, hint="give the --encryption-config that reads it")


def _same_object(copy: Copy, _wanted: Wanted, _run: RunOptions) -> Refusal | None:
    """A copy of another object would come back over this one."""
    if copy.same_object is not Sameness.OTHER:
        return None
    return Refusal(rule=Rule.OTHER_OBJECT, why=copy.proof or "it is of another object of that name")


def _not_to_kine(copy: Copy, _wanted: Wanted, run: RunOptions) -> Refusal | None:
    """Etcdfix writes nothing to kine: an API server has to make the change."""
    if not run.of_kine or copy.way is Way.PATCH:
        return None
    return Refusal(rule=Rule.KINE, why=NOT_TO_KINE.removesuffix("."))


def _present_may_go(copy: Copy, wanted: Wanted, _run: RunOptions) -> Refusal | None:
    """What stands at the key must itself be deletable; what is made of it, it need not."""
    if wanted.found is None:
        return None
    verdict = wanted.found.verdict
    if verdict.outcome in {Outcome.READABLE, Outcome.INCONSISTENT}:
        rule = Rule.READABLE if verdict.outcome is Outcome.READABLE else Rule.INCONSISTENT
        return Refusal(
            rule=rule, why=f"what stands there is {verdict.outcome}: what differs is changed through the API",
            hint="kubectl edit, or kubectl replace",
        )  # fmt: skip
    if copy.place in THE_VALUE or copy.way is Way.PATCH:
        return None
    match deletability_of(wanted.found):
        case Deletability.DELETABLE | Deletability.DECLARABLE:
            return None
        case Deletability.MOVED:
            rule, why = (
                Rule.VALUE_MOVED,
                "the present value belongs to another etcd key: look at that one first",
            )
        case Deletability.CURABLE:
            rule, why = Rule.CURABLE_BY_CONFIGURATION, "the configuration alone can cure the present value"
        case Deletability.UNPROVEN:
            rule, why = Rule.UNDETERMINED, "nothing is proven against the present value"
        case _:
            rule, why = Rule.NEVER_DELETABLE, f"{verdict.cause} is no reason to write over the present value"
    return Refusal(rule=rule, why=why)


def _only_where_nothing_is(copy: Copy, wanted: Wanted, _run: RunOptions) -> Refusal | None:
    """The bytes of another etcd key go only where nothing is: what is there may be newer."""
    if copy.place is not Place.KEY or wanted.found is None:
        return None
    return Refusal(
        rule=Rule.PRESENT, why=f"{display(wanted.key)} exists, and may be newer than the other key's value"
    )


def _memory_is_current(copy: Copy, wanted: Wanted, run: RunOptions) -> Refusal | None:
    """An API server writes anew only what it remembers of this very write, of an object whose key is lost."""
    if copy.way is not Way.PATCH:
        return None
    if run.of_the_past and not run.of_kine:
        return Refusal(rule=Rule.NOT_HEALABLE, why="what the live etcd holds now was not looked at")
    cause = wanted.found.verdict.cause if wanted.found is not None else None
    if cause not in LOST_KEY | KMS_DOUBTS:
        return Refusal(rule=Rule.NOT_HEALABLE, why="its encryption key is not what is lost: save it at once")
    if copy.doubt:
        return Refusal(rule=Rule.NOT_HEALABLE, why=copy.doubt)
    if copy.freshness is not Freshness.CURRENT:
        return Refusal(
            rule=Rule.NOT_HEALABLE, why="the server remembers another write than the one that stands there"
        )
    return None


_CHECKS: Final = (
    _reads,
    _same_object,
    _can_be_named,
    _not_to_kine,
    _present_may_go,
    _only_where_nothing_is,
    _memory_is_current,
)


def _needs(copy: Copy, wanted: Wanted, *, breaking: bool) -> tuple[Rule, ...]:
    found = wanted.found
    if copy.place is Place.BIT and found is not None and copy.repair is not None:
        return tuple(repair_risks(found, copy.repair, breaking=breaking))
    if copy.place in THE_VALUE or copy.way is Way.PATCH:
        return ()
    needs = list(risks_to_accept(found, breaking=breaking)) if found is not None else []
    if found is None and copy.place is Place.OBJECT and wanted.protected:
        needs.append(Rule.CLUSTER_BREAKING)
    if copy.same_object is Sameness.UNKNOWN:
        needs.append(Rule.UNKNOWN_UID)
    return tuple(dict.fromkeys(needs))


def _declares(copy: Copy, wanted: Wanted) -> str:
    found = wanted.found
    if found is None or copy.place in THE_VALUE or copy.way is Way.PATCH:
        return ""
    return found.transformer if deletability_of(found) is Deletability.DECLARABLE else ""


def _save(copy: Copy, wanted: Wanted, run: RunOptions) -> Command:
    words = (*revealed(wanted.resource), "-o", "json")
    match copy.place:
        case Place.BIT if run.of_kine:
            return commands.save_copy(run, "kept.db")
        case Place.MEMORY:
            return commands.rescue([key_word(copy.key)])
        case Place.REVISION:
            return commands.get(copy.key, *words, revision=copy.mod_revision)
        case Place.SNAPSHOT:
            return commands.get(copy.key, *words, file=copy.source.partition(":")[2])
        case _:
            return NO_COMMAND
