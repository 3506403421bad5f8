"""What a run of ``heal`` tells, and what it came to, as it is published."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from etcdfix.errors import EtcdfixError
from etcdfix.operations.change.batch import Account
from etcdfix.operations.change.heal import Healed
from etcdfix.operations.change.heal_look import LeftAlone
from etcdfix.operations.change.report import outcome_fields
from etcdfix.remediation.audit.record import Result, unicode_text
from etcdfix.report.change import told
from etcdfix.report.heal import HealedObject, HealReport, LeftAloneKey
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_base64


class HealAccount(Account[Healed], kw_only=True):
    """What a run of ``heal`` has told so far.

    Attributes:
        left_alone: Keys that are not healed.
        to_heal: How many are to be, without those that somebody else healed meanwhile; None where it did not come that
            far.
    """

    left_alone: list[LeftAlone] = msgspec.field(default_factory=list)
    to_heal: int | None = None


def healed_lines(healed: Healed) -> Iterator[str]:
    """Yield what became of one object, as soon as it is known."""
    found = _object(healed)
    if healed.outcome.result is None and healed.ended:
        yield f"DRY RUN: {found.key} would be tried: no server gives it from memory any more. Nothing was changed."
    else:
        by = f", by {found.server}." if found.server else "."
        yield told(found, "heal").removesuffix(".") + by
    yield from (f"  Note: {warning}" for warning in found.warnings)
    yield from (f"  Backup of the unreadable bytes: {path}" for path in found.backups)
    if found.saved_file:
        yield f"  The server's answer was kept: {found.saved_file}"


def heal_report(account: HealAccount, error: EtcdfixError | None, exit_code: int) -> HealReport:
    """Return what a run came to, as it is published."""
    return HealReport(
        objects=[_object(each) for each in account.objects],
        left_alone=[
            LeftAloneKey(
                key=display(each.key),
                key_base64=key_base64(each.key),
                rule=each.rule.value,
                why=unicode_text(each.why),
                next_step=unicode_text(each.hint),
            )
            for each in account.left_alone
        ],
        to_heal=account.to_heal,
        **account.common_fields(error, exit_code),
    )


def _object(healed: Healed) -> HealedObject:
    outcome = healed.outcome
    return HealedObject(
        key=display(healed.key),
        key_base64=key_base64(healed.key),
        uid=unicode_text(healed.uid),
        uid_from=unicode_text(healed.uid_from),
        server=unicode_text(healed.server),
        changed_fields=[unicode_text(path) for path in healed.changed],
        saved_file=unicode_text(healed.saved_file),
        revision=outcome.revision if outcome.result is Result.HEALED else None,
        **outcome_fields(outcome),
    )
