"""The value: is it proven wrong, or may it be the configuration, the release, or the tool? No plan lifts these rules.

Counted live, always. ``--declare-key-lost`` speaks of one encryption key; each ``--accept`` of one rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from etcdfix.copies.model import Place
from etcdfix.examine.maybe_newer import NOT_THE_OBJECT, in_our_tables
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import (
    KMS_DOUBTS,
    Deletability,
    deletability_of,
    is_repairable,
    key_may_be_lost,
    risks_of,
)
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.examine.verdicts.key_loss import NOT_THE_KEY, KeyCounts, KeyDoubt, doubt_about, is_lifted
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import Outcome, RepairKind, RepairProof
from etcdfix.model.providers import IDENTITY, facts_of
from etcdfix.model.rules import Rule, refuse, unless_accepted
from etcdfix.model.storagekey import display
from etcdfix.report.advice.finding import repair_risks
from etcdfix.report.plan import DECLARE_KEY_LOST
from etcdfix.report.plan import declaration as declared_by
from etcdfix.text.commands import Command, RunOptions, explain, fix, get

if TYPE_CHECKING:
    from etcdfix.remediation.change import Change
    from etcdfix.remediation.present import Present

Refusals = Iterator[RefusedByRule]

AS_IT_IS: Final[dict[Outcome, tuple[Rule, str, str, Callable[[bytes], Command] | None]]] = {
    Outcome.READABLE: (
        Rule.READABLE, "the object is readable: nothing has to be put back, and nothing is deleted behind its back",
        "change or delete it through the API: kubectl edit, kubectl delete", None,
    ),
    Outcome.INCONSISTENT: (
        Rule.INCONSISTENT, "the API server accepts the object as it is",
        "mend or delete it through the API: kubectl edit, kubectl delete; look at it with ", get,
    ),
    Outcome.NOT_AN_OBJECT: (
        Rule.NOT_AN_OBJECT, "the key holds no object of the API",
        "etcdfix leaves it: it is bookkeeping, or not of Kubernetes", None,
    ),
    Outcome.UNDETERMINED: (
        Rule.UNDETERMINED, "nothing is proven against the value", "find out more: ", explain,
    ),
}  # fmt: skip
"""What stays as it is: the rule, why, and what to do instead."""


def unfit_to_go(found: Examination, run: RunOptions) -> RefusedByRule | None:
    """Return why a value may never go, whatever others are and whatever is declared; None where it may."""
    if deletability_of(found) not in {Deletability.NOT_BROKEN, Deletability.UNPROVEN}:
        return None
    return as_it_is(found, run)


def as_it_is(found: Examination, run: RunOptions, *, lift: tuple[str, ...] = ()) -> RefusedByRule:
    """Return the refusal of a value that is not broken, or about which nothing is proven."""
    rule, why, hint, command = AS_IT_IS[found.verdict.outcome]
    more = "" if rule is Rule.READABLE else f" ({found.verdict.message})"
    hint += command(found.stored.key).line(run) if command is not None else ""
    return refuse(rule, f"{display(found.stored.key)}: {why}{more}", hint=hint, lift=lift)


def readable(present: Present, _change: Change) -> Refusals:
    """No API server can read the value."""
    if present.absent or present.configuration not in {True, False}:  # without one nothing is proven
        return
    refusal = unfit_to_go(present.first, present.request.run)
    if refusal is not None:
        yield refusal


def undetermined(present: Present, change: Change) -> Refusals:
    """The value is proven unreadable, or its key is declared lost. A KMS plugin repeats its answer."""
    if not change.goes:
        return
    found, last = present.found, present.second_look
    if found.verdict.outcome is Outcome.UNDETERMINED:
        if found.verdict.cause is Cause.KMS_UNREACHABLE and present.cluster.examiner.plugins is None:
            why = f"{present.shown} is under KMS, and no plugin was asked: nothing is known of it"
            hint = "leave --no-kms out; --kms-endpoint NAME=unix:///PATH says where the plugin listens"
            yield refuse(Rule.UNDETERMINED, why, hint=hint)
        elif not is_declared(present, change):
            lift = _to_declare(found) if deletability_of(found) is Deletability.DECLARABLE else ()
            yield as_it_is(found, change.request.run, lift=lift)
    if last is None:
        return
    first, again = found.verdict, last.verdict
    same = (again.outcome, again.cause, again.damage) == (first.outcome, first.cause, first.damage)
    if not same or not set(risks_of(last)) <= set(risks_of(found)):
        text = f"{present.shown} was {_said(found)}, and is {_said(last)} once its KMS plugin is asked again"
        instead = "the plugin does not always give the same answer: look at it, and at the KMS behind it"
        yield refuse(Rule.UNDETERMINED, text, hint=instead)


def _said(found: Examination) -> str:
    words = [str(found.verdict.cause), f"damage {found.verdict.damage}", *risks_of(found)]
    return f"{found.verdict.outcome} ({', '.join(words)})"


def _to_declare(found: Examination) -> tuple[str, ...]:
    key = f"{found.transformer}/{found.kms_key_id_sha256}" if found.kms_key_id_sha256 else found.transformer
    return (DECLARE_KEY_LOST, key)


def declaration(present: Present, change: Change) -> Refusals:
    """The lost key is the value's key, and opens no value of about the same time."""
    if change.goes and change.accepted.key_lost:
        misfit = _misdeclared(present, change.accepted.key_lost)
        if misfit is not None:
            yield misfit


def is_declared(present: Present, change: Change) -> bool:
    """Say whether the value's key is declared lost, and may be."""
    return bool(change.accepted.key_lost) and _misdeclared(present, change.accepted.key_lost) is None


def _misdeclared(present: Present, declared: str) -> RefusedByRule | None:
    found, alike = present.found, present.alike
    names = [found.transformer]
    if found.kms_key_id:
        digest_name = f"{found.transformer}/{found.kms_key_id_sha256}"
        plain_name = f"{found.transformer}/{found.kms_key_id}"
        # Where other key ids of this provider answer, or might, the declaration has to say which one is lost.
        names = [digest_name, *([plain_name] if declared == plain_name else [])]
        if not alike.transformer_opens and found.verdict.cause is not Cause.KMS_UNREACHABLE:
            names.append(found.transformer)
    if declared not in names or not key_may_be_lost(found):
        that = (
            f"a key of {present.shown} that could be lost"
            if declared in names
            else f"the key of {present.shown}"
        )
        hint = _not_lost(found) or f"it was written under {' or '.join(names)}"
        return refuse(Rule.DECLARATION, f"{DECLARE_KEY_LOST} {declared} does not name {that}", hint=hint)
    for tally in alike.counts.values():
        if doubt_about(tally, found.verdict) is KeyDoubt.IN_BETWEEN:
            continue  # what is declared is that the bytes are lost which the key had for a time
        # A key that opens what was written between another failure and this value was not lost when this was written.
        if tally.last_failing < tally.last_opened:
            last = (
                f"the last one is from mod_revision {tally.last_failing}"
                if tally.last_failing
                else "there is none"
            )
            why = (
                f"a value that was written before {present.shown}, after all that do not open ({last}), opens under "
                f"the same key (mod_revision {tally.last_opened})"
            )
            instead = "the key that wrote it was not lost then: look at this object alone"
            return refuse(Rule.DECLARATION, why, hint=instead)
    return None


def curable_by_configuration(present: Present, change: Change) -> Refusals:
    """A change of the configuration cannot cure the value."""
    starts = present.starts if change.of(Place.BIT) else None
    if starts is not None and starts.failing and change.repairs({RepairKind.PREFIX, RepairKind.NAME}):
        text = (
            f"{present.shown} begins like {display(starts.failing)}, which does not open either: that is a key's "
            "name"
        )
        instead = "give the key that wrote them its name back in the configuration"
        yield refuse(Rule.CURABLE_BY_CONFIGURATION, text, hint=instead)
    if not change.goes:
        return
    found, run = present.found, change.request.run
    verdict, deletability = found.verdict, deletability_of(found)
    why = f"{present.shown}: the configuration alone can cure this ({verdict.cause}: {verdict.message})"
    if verdict.cause in KMS_DOUBTS:
        return
    if deletability is Deletability.CURABLE:
        there = f"; the key is there: {verdict.fitting_key}" if verdict.fitting_key else ""
        there = f"; {_not_lost(found)}" if verdict.two_writers else there
        hint = f"{_put_it_right(found, run)}fix the configuration{there}"
        yield refuse(Rule.CURABLE_BY_CONFIGURATION, why, hint=hint)
    elif deletability is Deletability.DECLARABLE and not is_declared(present, change):
        gone = declared_by(found.transformer, found.kms_key_id_sha256)
        hint = f"fix the configuration; only if that key is gone for ever: {gone}"
        yield refuse(Rule.CURABLE_BY_CONFIGURATION, why, hint=hint, lift=_to_declare(found))


def never_deletable(present: Present, change: Change) -> Refusals:
    """The value's cause allows a deletion."""
    if not change.goes:
        return
    found, run = present.found, change.request.run
    refusal = unfit_to_go(found, run)
    if refusal is not None:  # it was looked at again since the first check
        yield refusal
    elif deletability_of(found) is Deletability.NEVER:
        why = f"{present.shown}: {found.verdict.cause} is never a reason to delete ({found.verdict.message})"
        hint = f"{_put_it_right(found, run)}see every way out: {explain(present.key).line(run)}"
        yield refuse(Rule.NEVER_DELETABLE, why, hint=hint)


_LIFTABLE: Final = frozenset({Deletability.DELETABLE, Deletability.DECLARABLE, Deletability.MOVED})
"""Of what no flag lets go, none is offered."""
_BACK: Final = {
    RepairProof.TAG: ("can", "with a tag as proof"),
    RepairProof.DECODES: ("can", "and the whole object decodes"),
    RepairProof.NONE: ("may", "and an object of this etcd key decodes; nothing proves it"),
}


def only_copy(present: Present, change: Change) -> Refusals:
    """Another copy of this state exists, the value cannot be repaired, and holds no whole object."""
    if not change.goes or change.accepts(Rule.ONLY_COPY):
        return
    found, run = present.found, change.request.run
    deletability = deletability_of(found)
    if deletability not in _LIFTABLE:
        return
    if found.repair is not None and is_repairable(found):
        can, how = _BACK[found.repair.proof]
        why = f"{present.shown} {can} be had back whole: {found.repair.words}, {how}"
        yield unless_accepted(Rule.ONLY_COPY, why, hint=_put_it_right(found, run).removesuffix("; "))
    elif found.verdict.holds_whole:
        text = f"{present.shown}: a whole object may be in it ({found.verdict.message})"
        yield unless_accepted(Rule.ONLY_COPY, text, hint="etcdctl get KEY -w json saves it")
    elif found.keys_untried and deletability is not Deletability.DECLARABLE:
        told = (
            f"{present.shown}: more data keys of its KMS provider opened values than were tried on it "
            f"({found.verdict.message})"
        )
        yield unless_accepted(Rule.ONLY_COPY, told)
    if deletability is Deletability.MOVED and present.home.later:
        yield unless_accepted(
            Rule.ONLY_COPY,
            f"{display(found.verdict.belongs_to)}, the right key of {present.shown}, holds a later state "
            "of the same object: only this value has this state",
        )


def value_moved(present: Present, change: Change) -> Refusals:
    """The right etcd key of a moved value holds the object."""
    if not change.goes or deletability_of(present.found) is not Deletability.MOVED:
        return
    if present.home.mark is None:
        home = display(present.found.verdict.belongs_to)
        why = (
            f"{present.shown} holds a value of {home}, and that key does not hold the same object: these bytes may be "
            "the only copy"
        )
        hint = f"save it, and put the object back under {home}, before anything is deleted"
        yield refuse(Rule.VALUE_MOVED, why, hint=hint)


def fails_like_others(present: Present, change: Change) -> Refusals:
    """Not every value of the kind fails like this one."""
    starts = present.starts if change.of(Place.BIT) else None
    if starts is not None and starts.same_magic and change.repairs({RepairKind.MAGIC}):
        text = f"{present.shown} begins like {display(starts.same_magic)}: perhaps {NOT_THE_OBJECT}"
        yield refuse(Rule.FAILS_LIKE_OTHERS, text, hint="use an etcdfix that knows the cluster's release")
    if not _is_judged(present, change) or not _maybe_newer(present):
        return
    if present.alike.similar.points_at_us:
        why = f"{present.shown}: {present.alike.similar}: that is {NOT_THE_OBJECT}"
        hint = "use an etcdfix that knows the cluster's release; name the release with --kubernetes-version"
        yield refuse(Rule.FAILS_LIKE_OTHERS, why, hint=hint)


def _is_judged(present: Present, change: Change) -> bool:
    """Say whether the value goes because it is proven damaged, not because its key is lost."""
    return change.goes and deletability_of(present.found) in {Deletability.DELETABLE, Deletability.MOVED}


def _maybe_newer(present: Present) -> bool:
    newer = present.found.verdict.maybe_newer
    return newer and not (present.release_proven and in_our_tables(present.found))


def _doubts(present: Present, change: Change) -> Iterator[tuple[KeyName, KeyCounts, KeyDoubt]]:
    """Yield what the values under each encryption key of the value say against its deletion, whatever is accepted."""
    if _is_judged(present, change):
        for name, tally in present.alike.counts.items():
            yield name, tally, doubt_about(tally, present.found.verdict)


def pattern(present: Present, change: Change) -> Refusals:
    """Few values fail under the same encryption key."""
    for name, tally, doubt in _doubts(present, change):
        found, lost = present.found, is_declared(present, change)
        if doubt not in NOT_THE_KEY and not is_lifted(doubt, lost=lost, mass_damage_accepted=False):
            text, hint = _pattern(found, tally, doubt)
            lift = _to_declare(found) if key_may_be_lost(found) else ()
            yield refuse(Rule.PATTERN, f"under {_shown(name)} {text}", hint=hint, lift=lift)


def mass_damage(present: Present, change: Change) -> Refusals:
    """Damage does not affect many values at once."""
    for name, tally, doubt in _doubts(present, change):
        lost, accepted = is_declared(present, change), change.accepts(Rule.MASS_DAMAGE)
        if doubt in NOT_THE_KEY and not is_lifted(doubt, lost=lost, mass_damage_accepted=accepted):
            if doubt is KeyDoubt.MASS_DAMAGE:
                text = (
                    f"{tally.failed} values fail and {tally.opened} do not: something damages many values, and each of "
                    "them is proven damaged"
                )
            else:
                text = (
                    f"{tally.unfitting} values do not open although the key is right: perhaps written with other "
                    "associated data for a time"
                )
            hint = "find out what happened to them"
            yield unless_accepted(Rule.MASS_DAMAGE, f"under {_shown(name)} {text}", hint=hint)


def needs_declaration(present: Present, change: Change) -> bool:
    """Say whether the value goes only because its key is declared lost."""
    if not change.goes or not is_declared(present, change):
        return False
    if deletability_of(present.found) is Deletability.DECLARABLE:
        return True
    accepted = change.accepts(Rule.MASS_DAMAGE)
    doubts = [doubt for _name, _tally, doubt in _doubts(present, change)]
    return not all(is_lifted(doubt, lost=False, mass_damage_accepted=accepted) for doubt in doubts)


def _pattern(found: Examination, tally: KeyCounts, doubt: KeyDoubt) -> tuple[str, str]:
    gone = declared_by(found.transformer, found.kms_key_id_sha256)
    if doubt is KeyDoubt.IN_BETWEEN:
        text = (
            f"{tally.unexplained} values do not open, and nothing proves that they are damaged: the key "
            "may have had other bytes for a time"
        )
        kms = facts_of(found.transformer).under_kms and tally.undetermined
        asked = "see that its KMS plugin answers, and " if kms else ""
        if not key_may_be_lost(found):
            return text, _not_lost(found)
        return text, f"{asked}find the bytes that it had then; only if they are gone for ever: {gone}"
    said = f"{tally.failed} values fail and {tally.opened} do not"
    if found.verdict.key_proven:
        return f"{said}: that is what happened to all of them, not to this object alone", _SO_MANY
    if found.transformer in {IDENTITY, ""}:
        return f"{said}, and no encryption key is to blame", _SO_MANY
    text = f"{said}: that is the encryption key or the configuration, not this object"
    if not key_may_be_lost(found):
        return text, _not_lost(found) or _SO_MANY
    return text, f"find the encryption key; only if it is gone for ever: {gone}"


_SO_MANY: Final = "find out what happened to so many of them"


def _shown(name: KeyName) -> str:
    of = f" of {name.rule}" if name.rule else ""
    return f"{name.transformer or 'envelopes that nobody knows'}{of}"


def _not_lost(found: Examination) -> str:
    """Say why the key of a value is not lost; "" where nothing shows that."""
    verdict = found.verdict
    if verdict.fitting_key:
        return f"it was written under {verdict.fitting_key}: fix the configuration"
    if verdict.two_writers:
        return "compare the files of all API servers: etcdfix encryption check FILE FILE"
    if verdict.not_asked:
        return (
            f"the plugin of {verdict.not_asked} did not answer whether it opens it: start it, and try again"
        )
    return f"it was written under {found.transformer}, and that key is there" if verdict.key_proven else ""


def unproven_damage(present: Present, change: Change) -> Refusals:
    """The damage is proven."""
    if change.accepts(Rule.UNPROVEN_DAMAGE) or not _is_judged(present, change):
        return
    verdict = present.found.verdict
    if not verdict.damage.is_unproven:
        return
    why = "the damage is likely and not proven"
    if verdict.damage is Damage.POSSIBLE:
        why = "the damage is possible and not proven: every API server has to say that it cannot read it"
    ask_first = "with --kubeconfig FILE, ask whether an API server has other bytes of that key and reads it"
    hint = "" if verdict.key_proven else ask_first
    yield unless_accepted(Rule.UNPROVEN_DAMAGE, f"{present.shown}: {why} ({verdict.message})", hint=hint)


def newer_than_known(present: Present, change: Change) -> Refusals:
    """No newer API server can have written the value."""
    if change.accepts(Rule.NEWER_THAN_KNOWN):
        return
    if _is_judged(present, change) and _maybe_newer(present):
        text = (
            f"{present.shown}: the cluster may be newer than this etcdfix ({present.found.verdict.message})"
        )
        yield unless_accepted(Rule.NEWER_THAN_KNOWN, text)
    repair = change.repair
    if repair is not None and Rule.NEWER_THAN_KNOWN in repair_risks(present.found, repair):
        why = f"{present.shown}: {repair.words}; but a newer API server may have written the value as it is"
        hint = "find out whether one of the cluster is newer than this etcdfix knows"
        yield unless_accepted(Rule.NEWER_THAN_KNOWN, why, hint=hint)


def cluster_breaking(present: Present, change: Change) -> Refusals:
    """The cluster does not depend on the object: its kind, its namespace, its references."""
    if change.accepts(Rule.CLUSTER_BREAKING):
        return
    why, wanted = "", "" if change.deletes else change.chosen.wanted.protected
    if change.goes and present.protected:
        act = "deleting this key" if change.deletes else "putting another value over this key"
        why = f"{present.protected}; {act} may break the cluster"
    elif change.repair is not None and Rule.CLUSTER_BREAKING in repair_risks(present.found, change.repair):
        why = f"{present.protected}; wrong bytes in {present.shown} may break the cluster"
    elif wanted and present.absent and change.of(Place.OBJECT):
        why = f"{wanted}; a file that may have been edited would be put in place of it"
    elif wanted and change.by_itself:
        why = f"{wanted}; no audit log says that this value was there"
    if why:
        yield unless_accepted(Rule.CLUSTER_BREAKING, why)


def _put_it_right(found: Examination, run: RunOptions) -> str:
    if found.repair is None or not is_repairable(found) or run.of_kine:
        return ""
    return f"put it right: {fix(found.stored.key, 'bit', repair_risks(found, found.repair)).line(run)}; "
