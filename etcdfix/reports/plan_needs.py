"""Which flags a deletion of a plan asks for beyond its command, which leaves them to be typed by a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etcdfix.reports.plan_model import PlanEntry, PlanGroup
from etcdfix.reports.safetext import quote_command

ACCEPT_RISK: Final = "--accept-risk cluster-breaking"
_BREAKING: Final = "cluster-breaking"


def declaration(transformer: str, kms_key_id_sha256: str) -> str:
    """Return the flag that declares a key lost, as a deletion under it takes it.

    Under KMS it names the key id too: other key ids of the same provider may well answer.
    """
    key = f"{transformer}/{kms_key_id_sha256}" if kms_key_id_sha256 else transformer
    return quote_command(["--declare-key-lost", key])


def meaning(flag: str) -> str:
    """Return what somebody says who types a flag."""
    if flag == ACCEPT_RISK:
        return "the cluster itself may stand on it, and you go on all the same"
    return "its key is gone for ever, and you are certain of that"


class Needs:
    """Knows what each entry needs.

    Args:
        groups: Of the plan.
    """

    def __init__(self, groups: Sequence[PlanGroup]) -> None:
        self._declared = {
            _kind(group)
            for group in groups
            if declaration(group.transformer, group.kms_key_id_sha256) in group.advice
        }

    def of(self, entry: PlanEntry) -> list[str]:
        """Return the flags, ready to paste behind the command; none where it works as it is."""
        flags = []
        if _kind(entry) in self._declared:
            flags.append(declaration(entry.transformer, entry.kms_key_id_sha256))
        if entry.floor or entry.risk == _BREAKING:
            flags.append(ACCEPT_RISK)
        return flags


def _kind(of: PlanEntry | PlanGroup) -> tuple[str, str, str, str]:
    return of.outcome, of.cause, of.transformer, of.kms_key_id_sha256
