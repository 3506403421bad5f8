"""May a value ever be deleted? What its verdict alone says, for whoever plans a deletion and for whoever makes it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etcdfix.examine.verdicts.catalogue import CATALOGUE, CURABLE_BY_CONFIGURATION
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.contents import MAY_BE_WHOLE
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.model.model import GroupResource, Outcome, RepairKind
from etcdfix.model.providers import IDENTITY
from etcdfix.model.rules import Rule

FAILED: Final = frozenset({Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE})
"""Proven not to open, or to be no object."""

KMS_DOUBTS: Final = frozenset(
    {Cause.KMS_UNREACHABLE, Cause.KMS_DENIED, Cause.KMS_KEY_UNKNOWN, Cause.KMS_UNPROVEN}
)
"""Undetermined because of a KMS: only a person can say that its key is gone for ever."""

LOST_KEY: Final = frozenset(
    {
        Cause.WRONG_KEY,
        Cause.AUTHENTICATION_FAILED,
        Cause.KEY_NAME_MISSING,
        Cause.PROVIDER_MISSING,
        Cause.RESOURCE_NOT_CONFIGURED,
    }
)
"""A key is missing or has other bytes: curable, until somebody declares it lost for ever."""


class Deletability(StrEnum):
    """How a value stands towards its deletion."""

    NOT_BROKEN = "not-broken"
    """Readable, inconsistent, or no object: nothing for a deletion behind the API server's back."""
    UNPROVEN = "unproven"
    """Undetermined, and nothing that a person could declare would change that."""
    CURABLE = "curable"
    """The configuration can cure it, and nothing that a person declares lifts that."""
    DECLARABLE = "declarable"
    """Only once its key is declared lost."""
    MOVED = "moved"
    """It belongs to another etcd key: only where that one holds it."""
    NEVER = "never"
    """Broken, but its cause is never a reason to delete."""
    DELETABLE = "deletable"
    """The value is wrong; what else has to be accepted, :func:`risks_of` says."""


def deletability_of(found: Examination) -> Deletability:
    """Return how a value stands towards its deletion, by its own verdict."""
    verdict = found.verdict
    if verdict.outcome not in FAILED and verdict.outcome is not Outcome.UNDETERMINED:
        return Deletability.NOT_BROKEN
    assert verdict.cause is not None  # every failure has one
    standing = deletability_of_cause(verdict.cause)
    declarable = standing is Deletability.DECLARABLE and key_may_be_lost(found)
    if verdict.outcome is Outcome.UNDETERMINED:
        return Deletability.DECLARABLE if declarable else Deletability.UNPROVEN
    if standing is Deletability.DECLARABLE:
        return Deletability.DECLARABLE if declarable else Deletability.CURABLE
    if standing is Deletability.DELETABLE or standing is Deletability.NEVER:
        return Deletability.NEVER if verdict.damage is Damage.NONE else Deletability.DELETABLE
    return standing


def deletability_of_cause(cause: Cause) -> Deletability:
    """Return how values with a cause stand towards their deletion, as far as the cause alone tells.

    Of one that is not always a failure, that holds for its failures.
    """
    outcomes = set(CATALOGUE[cause].outcomes)
    if cause in KMS_DOUBTS | LOST_KEY:
        return Deletability.DECLARABLE
    if cause in CURABLE_BY_CONFIGURATION:
        return Deletability.CURABLE
    if cause is Cause.VALUE_MOVED:
        return Deletability.MOVED
    if not outcomes & FAILED:
        return Deletability.UNPROVEN if Outcome.UNDETERMINED in outcomes else Deletability.NOT_BROKEN
    return Deletability.NEVER if cause in MAY_BE_WHOLE | {Cause.ALLOCATOR_DAMAGED} else Deletability.DELETABLE


def risks_of(found: Examination) -> tuple[Rule, ...]:
    """Return what has to be accepted before a value may go, whatever others say.

    What can be had back whole from its own bytes, or holds a whole object, is the only copy of that; what may be,
    because not every data key was tried, counts as that. What is never deleted asks for no such word.
    """
    verdict = found.verdict
    only_copy = is_repairable(found) or verdict.holds_whole or found.keys_untried
    gone = only_copy and deletability_of(found) is not Deletability.NEVER
    risks = [Rule.ONLY_COPY] if gone else []
    if verdict.damage.is_unproven:
        risks.append(Rule.UNPROVEN_DAMAGE)
    if verdict.maybe_newer:
        risks.append(Rule.NEWER_THAN_KNOWN)
    return tuple(risks)


_WHOLE_BELOW: Final = frozenset({RepairKind.TEXT_MODE, RepairKind.PREFIX, RepairKind.NAME})
"""What lies below these is as it was written: a whole object comes out, though no tag proves it."""


def is_repairable(found: Examination) -> bool:
    """Say whether a tag proves a repair of a value, or a fixed undo makes it read."""
    return found.repair is not None and (found.repair.proven or found.repair.kind in _WHOLE_BELOW)


def rests_on_others(verdict: Verdict) -> bool:
    """Say whether a value is called damaged only for what other values do."""
    return verdict.damage.is_unproven and not verdict.shown_by_itself


def key_may_be_lost(found: Examination) -> bool:
    """Say whether there is a key whose loss could be declared.

    An unencrypted value has none, an envelope that nobody knows has none that could be named, and a key of the
    configuration that wrote the value is not lost, wherever it stands. Nor may one be that could not be asked, or
    that two API servers seem to write with, each with other bytes.
    """
    verdict = found.verdict
    return found.transformer not in {IDENTITY, ""} and not (
        verdict.fitting_key or verdict.key_proven or verdict.not_asked or verdict.two_writers
    )


_PROTECTED: Final = frozenset(
    {
        ("", "namespaces"),
        ("", "nodes"),
        ("", "persistentvolumes"),
        ("", "persistentvolumeclaims"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "apiservices"),
        ("flowcontrol.apiserver.k8s.io", "flowschemas"),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    }
)
_PROTECTED_GROUPS: Final = frozenset({"rbac.authorization.k8s.io"})


def protected_reason(resource: GroupResource, namespace: str) -> str:
    """Say why everybody needs this object, whatever else is known of it; "" where that is not so."""
    if resource in _PROTECTED or resource.group in _PROTECTED_GROUPS:
        return f"{resource} are what the cluster depends on"
    if namespace == "kube-system":
        return "everything in kube-system may be part of the control plane"
    return ""
