"""Is the value proven wrong, or may it be the configuration, the release, or the tool? The rules that no plan can lift.

Counted live, always. ``--declare-key-lost`` speaks of one encryption key; each ``--accept`` of one rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from etcdfix.errors import RefusedByRule
from etcdfix.maybe_newer import NOT_THE_OBJECT, in_our_tables
from etcdfix.model import Outcome, RepairProof
from etcdfix.remediation.preflight.similar_values import Alike
from etcdfix.report.advice.change import repair_risks
from etcdfix.report.plan_entry import declaration
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.storagekey import display
from etcdfix.text.commands import Command, RunOptions, explain, fix, get
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.deletability import (
    FAILED,
    IDENTITY,
    Deletability,
    deletability_of,
    is_repairable,
    key_may_be_lost,
    risks_of,
)
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_loss import NOT_THE_KEY, KeyCounts, KeyDoubt, doubt_about, is_lifted

_ANY_RUN: Final = RunOptions()


def check_proof(
    found: Examination,
    alike: Alike,
    *,
    declared: str,
    risks: Collection[str],
    release_proven: bool,
    run: RunOptions = _ANY_RUN,
) -> bool:
    """Refuse what is not proven wrong; say whether the declaration of a lost key was needed.

    ``declared`` is the ``TRANSFORMER[/KEY-ID]`` that was declared lost; ``release_proven`` says that no API
    server is older than the release that was named.

    Raises:
        RefusedByRule: With what would convince us.
    """
    # Of what no flag lets go, none is offered.
    asks_for_copy = Rule.ONLY_COPY not in risks and deletability_of(found) in _LIFTABLE
    if asks_for_copy and is_repairable(found):
        raise _repairable(found, run)
    if asks_for_copy and found.verdict.holds_whole:
        raise refuse(
            Rule.ONLY_COPY,
            f"{display(found.stored.key)}: a whole object may be found in it, so it is not proven damaged "
            f"({found.verdict.message})",
            hint=f"get --raw saves it; {_accept(Rule.ONLY_COPY)}",
        )
    lost = _declaration_fits(found, alike, declared)
    _check_own_verdict(found, run, lost=lost)
    if deletability_of(found) is Deletability.DECLARABLE:
        return True
    _check_newer(found, alike, release_proven=release_proven)
    needed = _check_key(found, alike.counts, risks, lost=lost)
    for risk in risks_of(found):
        excused = risk is Rule.NEWER_THAN_KNOWN and release_proven and in_our_tables(found)
        if risk not in risks and not excused:
            why = _ONLY_POSSIBLE if found.verdict.damage is Damage.POSSIBLE else _WHY[risk]
            text = f"{display(found.stored.key)}: {why} ({found.verdict.message})"
            hint = _accept(risk)
            if risk is Rule.UNPROVEN_DAMAGE and not found.verdict.key_proven:
                hint = f"{_ASK_FIRST}; {hint}"
            raise refuse(risk, text, hint=hint)
    return needed


_LIFTABLE: Final = frozenset({Deletability.DELETABLE, Deletability.DECLARABLE, Deletability.MOVED})


def _repairable(found: Examination, run: RunOptions) -> RefusedByRule:
    assert found.repair is not None  # else it is not
    can, how = _BACK[found.repair.proof]
    return refuse(
        Rule.ONLY_COPY,
        f"{display(found.stored.key)} {can} be had back whole: {found.repair.words}, {how}",
        hint=f"{_put_it_right(found, run)}{_accept(Rule.ONLY_COPY)}",
    )


def _put_it_right(found: Examination, run: RunOptions) -> str:
    if found.repair is None or not is_repairable(found) or run.of_kine:
        return ""
    return f"put it right: {fix(found.stored.key, 'bit', repair_risks(found, found.repair)).line(run)}; "


_BACK: Final = {
    RepairProof.TAG: ("can", "with a tag as proof"),
    RepairProof.DECODES: ("can", "and the whole object decodes"),
    RepairProof.NONE: ("may", "and an object of this etcd key decodes; nothing proves it"),
}

_WHY: Final = {
    Rule.ONLY_COPY: "more data keys of its KMS provider opened values than could be tried on it, so that it may "
    "yet be had back whole",
    Rule.UNPROVEN_DAMAGE: "the damage is likely and not proven",
    Rule.NEWER_THAN_KNOWN: "the cluster may be newer than this etcdfix, or than the release that was named",
}


_ONLY_POSSIBLE: Final = (
    "the damage is possible and not proven: every API server has to say that it cannot read it"
)
_ASK_FIRST: Final = (
    "with --kubeconfig FILE, ask whether an API server has other bytes of that key and reads it"
)


def _accept(risk: Rule) -> str:
    return f"if that is understood: {acceptance(risk)}"


def not_deletable(found: Examination, run: RunOptions) -> RefusedByRule:
    """Return the refusal of a value that is not broken, or about which nothing is proven."""
    rule, why, hint, command = _INSTEAD[found.verdict.outcome]
    more = "" if rule is Rule.READABLE else f" ({found.verdict.message})"
    hint += command(found.stored.key).line(run) if command is not None else ""
    return refuse(rule, f"{display(found.stored.key)}: {why}{more}", hint=hint)


_INSTEAD: Final[dict[Outcome, tuple[Rule, str, str, Callable[[bytes], Command] | None]]] = {
    Outcome.READABLE: (
        Rule.READABLE, "the object is readable", "delete it through the API: kubectl delete", None,
    ),
    Outcome.INCONSISTENT: (
        Rule.INCONSISTENT, "the API server accepts the object", "mend or delete it through the API: ", get,
    ),
    Outcome.NOT_AN_OBJECT: (
        Rule.NOT_AN_OBJECT, "the key holds no object of the API", "leave it: it is bookkeeping, or not of Kubernetes",
        None,
    ),
    Outcome.UNDETERMINED: (
        Rule.UNDETERMINED, "nothing is proven against the value", "find out more: ", explain,
    ),
}  # fmt: skip


def _check_own_verdict(found: Examination, run: RunOptions, *, lost: bool) -> None:
    verdict = found.verdict
    key = display(found.stored.key)
    deletability = deletability_of(found)
    if verdict.outcome not in FAILED:
        if deletability is not Deletability.DECLARABLE or not lost:
            raise not_deletable(found, run)
        return
    cause = f"{verdict.cause}: {verdict.message}"
    match deletability:
        case Deletability.DECLARABLE if not lost:
            lift = f"only if that key is gone for ever: {declaration(found.transformer, found.kms_key_id_sha256)}"
            raise refuse(
                Rule.CURABLE_BY_CONFIGURATION,
                f"{key}: the configuration alone can cure this ({cause})",
                hint=f"fix the configuration; {lift}",
            )
        case Deletability.CURABLE:
            there = f"; the key is there: {verdict.fitting_key}" if verdict.fitting_key else ""
            if verdict.two_writers:
                there = f"; {_not_lost(found)}"
            raise refuse(
                Rule.CURABLE_BY_CONFIGURATION,
                f"{key}: the configuration alone can cure this ({cause})",
                hint=f"{_put_it_right(found, run)}fix the configuration{there}",
            )
        case Deletability.NEVER:
            raise refuse(
                Rule.NEVER_DELETABLE,
                f"{key}: {verdict.cause} is never a reason to delete ({verdict.message})",
                hint=f"{_put_it_right(found, run)}see every way out: {explain(found.stored.key).line(run)}",
            )


def _check_newer(found: Examination, alike: Alike, *, release_proven: bool) -> None:
    """Refuse what fails as a whole kind does that the tool, the release or the CRD does not know. No flag lifts it."""
    if not found.verdict.maybe_newer or (release_proven and in_our_tables(found)):
        return
    if alike.similar.points_at_us:
        raise refuse(
            Rule.FAILS_LIKE_OTHERS,
            f"{display(found.stored.key)}: {alike.similar}: that is {NOT_THE_OBJECT}",
            hint="use an etcdfix that knows the cluster's release; name the release with --kubernetes-version",
        )


def _check_key(
    found: Examination, counts: Mapping[KeyName, KeyCounts], risks: Collection[str], *, lost: bool
) -> bool:
    """Refuse where so much under the value's encryption key fails that it is the key; say whether a loss was needed."""
    needed = False
    for name, tally in counts.items():
        doubt = doubt_about(tally, found.verdict)
        accepted = Rule.MASS_DAMAGE in risks
        if is_lifted(doubt, lost=False, mass_damage_accepted=accepted):
            continue
        if is_lifted(doubt, lost=lost, mass_damage_accepted=accepted):
            needed = True
            continue
        rule = Rule.MASS_DAMAGE if doubt in NOT_THE_KEY else Rule.PATTERN
        text, hint = _pattern(found, tally, doubt)
        raise refuse(rule, f"under {_shown(name)} {text}", hint=hint)
    return needed


def _pattern(found: Examination, tally: KeyCounts, doubt: KeyDoubt) -> tuple[str, str]:
    said = f"{tally.failed} values fail and {tally.opened} do not"
    gone = declaration(found.transformer, found.kms_key_id_sha256)
    find_out = f"find out what happened to them; {_accept(Rule.MASS_DAMAGE)}"
    match doubt:
        case KeyDoubt.MASS_DAMAGE:
            return (
                f"{said}: something damages many values, and each of them is proven damaged",
                find_out,
            )
        case KeyDoubt.UNFITTING:
            text = (
                f"{tally.unfitting} values do not open although the key is right, and nothing proves that they are "
                "damaged: they may have been written with other associated data for a time"
            )
            return text, find_out
        case KeyDoubt.IN_BETWEEN:
            text = (
                f"{tally.unexplained} values do not open, and nothing proves that they are damaged: the key may have "
                "had other bytes for a time"
            )
            kms = found.transformer.startswith("kms/") and tally.undetermined
            asked = "see that its KMS plugin answers, and " if kms else ""
            if not key_may_be_lost(found):
                return text, _not_lost(found)
            return text, f"{asked}find the bytes that it had then; only if they are gone for ever: {gone}"
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
    if found.verdict.fitting_key:
        return f"it was written under {found.verdict.fitting_key}: fix the configuration"
    if found.verdict.two_writers:
        return "compare the files of all API servers: etcdfix encryption check FILE FILE"
    if found.verdict.not_asked:
        return f"the plugin of {found.verdict.not_asked} did not answer whether it opens it: start it, and try again"
    return (
        f"it was written under {found.transformer}, and that key is there" if found.verdict.key_proven else ""
    )


def _declaration_fits(found: Examination, alike: Alike, declared: str) -> bool:
    """Say whether ``--declare-key-lost`` speaks of this value's key; refuse one that speaks of another."""
    if not declared:
        return False
    key = display(found.stored.key)
    names = [found.transformer]
    if found.kms_key_id:
        digest_name = f"{found.transformer}/{found.kms_key_id_sha256}"
        plain_name = f"{found.transformer}/{found.kms_key_id}"
        # Where other key ids of this provider answer, or might, the declaration has to say which one is lost.
        names = [digest_name, *([plain_name] if declared == plain_name else [])]
        if not alike.transformer_opens and found.verdict.cause is not Cause.KMS_UNREACHABLE:
            names.append(found.transformer)
    if declared not in names or not key_may_be_lost(found):
        raise refuse(
            Rule.DECLARATION,
            f"--declare-key-lost {declared} does not name a key of {key} that could be lost"
            if declared in names
            else f"--declare-key-lost {declared} does not name the key of {key}",
            hint=_not_lost(found) or f"it was written under {' or '.join(names)}",
        )
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
            raise refuse(
                Rule.DECLARATION,
                f"a value that was written before {key}, and after all others that do not open ({last}), opens under "
                f"the same key (mod_revision {tally.last_opened})",
                hint="the key that wrote it was not lost then: look at this object alone",
            )
    return True
