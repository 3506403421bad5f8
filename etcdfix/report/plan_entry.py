"""One broken object of a plan, and what may be decided on it.

Beside it the flags that a change asks for; the command of a deletion leaves them to be typed by a person.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.copies.model import THE_VALUE, Place
from etcdfix.graph.model import Risk, RiskReason
from etcdfix.model import GroupResource, Outcome, ServerBehaviour
from etcdfix.rules import MEANINGS, Rule, acceptance
from etcdfix.text.safetext import quote_command
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.severity import Severity, Stake, is_conditional


class PlanEntry(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"source": "from"}
):
    """One broken object.

    Attributes:
        order: Its turn, from 1.
        key: Complete etcd key; ``key_base64`` is there when it is not plain text, and is authoritative then.
        outcome: Its outcome now, not that of the report.
        what: What it is, in a clause, as far as names and references tell.
        cascade: How many dependents the garbage collector deletes after it.
        recreate_confidence: Of that; null for ``by hand``.
        comes_back: ``by-itself``, ``after-a-step``, ``not-needed`` or ``no``.
        recreate_how: What has to be done, and what differs afterwards.
        source: ``from``: what ``etcdfix fix --from`` takes to put that back; "" where it cannot be.
        fix_needs: The flags without which that is refused.
        protected: Why the cluster may depend on it: then the deletion needs ``--accept cluster-breaking``.
        risk: The worst of ``reasons``.
        command: The dry run of its deletion.
        needs: Flags that this command lacks, and without which it is refused: a person has to type them.
        refused: Why it is refused today whatever flag is given; "" where it is not.
    """

    order: int
    key: str
    key_base64: str | None = None
    group: str
    resource: str
    namespace: str
    name: str
    mod_revision: int
    value_sha256: str
    outcome: str
    cause: str
    transformer: str
    kms_key_id_sha256: str
    what: str
    users: int
    cascade: int
    recreated_by: str
    recreate_confidence: str | None
    comes_back: str
    recreate_basis: str
    recreate_how: str
    protected: str
    risk: str
    reasons: list[RiskReason]
    needs: list[str] = []
    command: str
    refused: str = ""
    copy: str = ""
    source: str = ""
    fix: str = ""
    fix_needs: list[str] = []
    save: str = ""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finding of the report that is no part of the plan, and why.

    ``why`` is ``gone``, ``changed``, ``readable``, ``inconsistent``, ``undetermined``, ``curable-by-configuration``,
    ``value-moved`` or ``never-deletable``.
    """

    key: str
    key_base64: str | None = None
    why: str
    detail: str


class Decision(StrEnum):
    """What is to be done to the object of an entry."""

    FIX = "fix"
    DELETE = "delete"
    LEAVE = "leave"


class PlanDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done to the object of one entry: the part of a plan that people may edit.

    Attributes:
        decision: One of ``allowed``. The plan proposes the least destructive one; ``leave`` where it has to wait.
        allowed: What may be decided.
    """

    order: int
    key: str
    key_base64: str | None = None
    decision: str
    allowed: list[str]


def decision_on(entry: PlanEntry) -> PlanDecision:
    """Return what a plan proposes for an entry: the least destructive way, and nothing where it has to wait."""
    allowed = [Decision.FIX] if entry.source else []
    if not entry.refused:
        allowed.append(Decision.DELETE)
    # Of what only a person can put back, nothing is deleted unasked.
    waits = deletion_waits(entry) or (entry.save and not entry.source)
    proposed = allowed[0] if allowed and (loses_nothing(entry) or not waits) else Decision.LEAVE
    return PlanDecision(
        order=entry.order,
        key=entry.key,
        key_base64=entry.key_base64,
        decision=proposed.value,
        allowed=[each.value for each in (*allowed, Decision.LEAVE)],
    )


def loses_nothing(entry: PlanEntry) -> bool:
    """Say whether its copy is of the newest write: then an encryption key that turns up makes the fix no worse."""
    return entry.source in {*THE_VALUE, Place.MEMORY}


def entry_stake(entry: PlanEntry) -> Stake:
    """Return what is at stake with a broken object of a plan; of one that could not be judged it is not known."""
    empty = entry.cause in {Cause.EMPTY_VALUE, Cause.EMPTY_OBJECT}
    return Stake(
        Severity.ONE_OBJECT if empty else Severity.BREAKS_NOW,
        GroupResource(entry.group, entry.resource),
        ServerBehaviour.SERVES_EMPTY if empty else ServerBehaviour.CORRUPT,
        namespaced=bool(entry.namespace),
        conditional=is_conditional(entry.cause),
    )


def is_breaking(entry: PlanEntry) -> bool:
    """Say whether the cluster may depend on an object, so that its deletion needs ``--accept cluster-breaking``."""
    return bool(entry.protected) or entry.risk == Risk.CLUSTER_BREAKING


DECLARE_KEY_LOST: Final = "--declare-key-lost"


def declaration(transformer: str, kms_key_id_sha256: str) -> str:
    """Return the flag that declares a key lost, as a deletion under it takes it.

    Under KMS it names the key id too: other key ids of the same provider may well answer.
    """
    key = f"{transformer}/{kms_key_id_sha256}" if kms_key_id_sha256 else transformer
    return quote_command([DECLARE_KEY_LOST, key])


def deletion_waits(entry: PlanEntry) -> bool:
    """Say whether a deletion is not to be thought of yet: nothing is proven, it is refused, or a key may turn up."""
    declares = any(flag.startswith(f"{DECLARE_KEY_LOST} ") for flag in entry.needs)
    return declares or bool(entry.refused) or entry.outcome == Outcome.UNDETERMINED


_MEANINGS: Final = {acceptance(rule): words for rule, words in MEANINGS.items()}

_LOST: Final = (
    "its key is gone for ever, and you are certain of that; with --kubeconfig, so that an API server can contradict, "
    f"or {acceptance(Rule.NO_API_SERVER)}"
)


def meaning(flag: str) -> str:
    """Return what somebody says who types a flag."""
    return _MEANINGS.get(flag, _LOST)
