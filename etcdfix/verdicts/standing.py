"""May a value ever be deleted? What its verdict alone says, for whoever plans a deletion and for whoever makes it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etcdfix.model import Outcome
from etcdfix.verdicts.causes import CATALOGUE, Cause
from etcdfix.verdicts.examination import Examination

IDENTITY: Final = "identity"
"""The transformer of values in the clear, which have no key that could be lost."""

FAILED: Final = frozenset({Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE})
"""Proven not to open, or to be no object."""

KMS_DOUBTS: Final = frozenset(
    {Cause.KMS_UNREACHABLE, Cause.KMS_DENIED, Cause.KMS_KEY_UNKNOWN, Cause.KMS_UNPROVEN}
)
"""Undetermined because of a KMS: only a person can say that its key is gone for ever."""


class Standing(StrEnum):
    """How a value stands towards its deletion."""

    NOT_BROKEN = "not-broken"
    """Readable, inconsistent, or no object: nothing for a deletion behind the API server's back."""
    UNPROVEN = "unproven"
    """Undetermined, and nothing that a person could declare would change that."""
    CURABLE = "curable"
    """The configuration alone can cure it, and there is no key that could be declared lost."""
    DECLARABLE = "declarable"
    """Only once its key is declared lost."""
    NEVER = "never"
    """Broken, but its cause is never a reason to delete."""
    DELETABLE = "deletable"
    """Unless it is one of so many under its transformer that the key is at fault."""


def standing_of(found: Examination) -> Standing:
    """Return how a value stands towards its deletion, by its own verdict."""
    verdict = found.verdict
    if verdict.outcome is Outcome.UNDETERMINED:
        return Standing.DECLARABLE if verdict.cause in KMS_DOUBTS else Standing.UNPROVEN
    if verdict.outcome not in FAILED:
        return Standing.NOT_BROKEN
    assert verdict.cause is not None  # every failure has one
    if CATALOGUE[verdict.cause].curable_by_configuration:
        return Standing.DECLARABLE if key_may_be_lost(found) else Standing.CURABLE
    return Standing.DELETABLE if verdict.deletable else Standing.NEVER


def key_may_be_lost(found: Examination) -> bool:
    """Say whether there is a key whose loss could be declared.

    A value in the clear has none, and an envelope that nobody knows has none that could be named; a version that left
    its CRD has nothing to do with keys.
    """
    return found.transformer not in {IDENTITY, ""} and found.verdict.deletable
