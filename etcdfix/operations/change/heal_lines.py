"""What a run of ``heal`` shows before, and tells afterwards: as lines for a person, and as published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.errors import EtcdfixError
from etcdfix.operations.change.account import Account
from etcdfix.operations.change.heal import Healed, HealPreview
from etcdfix.operations.change.heal_look import Healable, LeftAlone
from etcdfix.operations.change.preview import api_lines, cluster_lines, warning_lines
from etcdfix.operations.change.report import outcome_fields
from etcdfix.remediation.audit.record import Result, unicode_text
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.report.heal_model import HealedObject, HealReport, LeftAloneKey
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_base64, safe_text
from etcdfix.text.words import counted

_MOST_SHOWN: Final = 20
_DRY_RUN: Final = (
    "An API server's own dry run (dryRun=All) reads etcd and fails for these objects: whether admission lets the "
    "change through is known only when it is made."
)


class HealAccount(Account[Healed], kw_only=True):
    """What a run of ``heal`` has told so far.

    Attributes:
        left_alone: Keys that are not healed.
        to_heal: How many are to be, without those that somebody else healed meanwhile; None where it did not come that
            far.
    """

    left_alone: list[LeftAlone] = msgspec.field(default_factory=list)
    to_heal: int | None = None


def heal_preview_lines(cluster: Cluster, shown: HealPreview, *, dry_run: bool) -> Iterator[str]:
    """Yield what will be healed, by whom, and what was checked."""
    healable = shown.healable
    if len(healable) == 1 and not shown.left_alone:
        yield from _one_lines(healable[0])
    else:
        yield from _many_lines(shown)
    first = healable[0]
    yield from cluster_lines(cluster, first.identity)
    yield from api_lines(first.servers)
    yield f"Rescued      {safe_text(str(shown.saved))}"
    for resource, number in shown.unread.items():
        what = f"{counted(number, 'value')} of {safe_text(resource)} cannot be read from etcd"
        yield f"             {what}; none is in an API server's memory alone"
    yield from warning_lines(
        dict.fromkeys([*shown.warnings, *(text for each in healable for text in each.warnings)])
    )
    yield ""
    yield "Each is one merge PATCH with uid and resourceVersion that sets an annotation; nothing is deleted."
    yield "The first is the test: unless every API server reads it afterwards, the run stops."
    yield "Do not restart an API server before everything is healed."
    if dry_run:
        yield _DRY_RUN


def _one_lines(one: Healable) -> Iterator[str]:
    found = one.found
    where = f" in namespace {found.namespace}" if found.namespace else ""
    yield f"Key          {safe_text(display(one.key))}"
    yield f"Object       {safe_text(f'{found.directory.group_resource} {found.name}{where}')}, uid {safe_text(one.uid)}"
    if one.uid_from:
        yield f"             the uid is as {safe_text(one.uid_from)} says"
    yield f"Now          {found.verdict.outcome}, {found.verdict.cause}: {safe_text(found.verdict.message)}"
    yield f"             mod_revision {one.mod_revision}"
    yield from _holder_lines([one])


def _holder_lines(healable: Sequence[Healable]) -> Iterator[str]:
    ended = [each for each in healable if each.ended]
    held: Counter[str] = Counter(each.holders[0].server.address for each in healable if not each.ended)
    one = len(healable) == 1
    for address, number in held.items():
        what = "in its memory" if one else f"{counted(number, 'object')} in its memory"
        yield f"Held by      {safe_text(address)}: {what}, as last written"
    if ended:
        what = "it" if one else f"{len(ended)} of them"
        yield f"Held by      no server gives {what} from memory any more; asked is who may hold it all the same:"
        for address in dict.fromkeys(holder.server.address for each in ended for holder in each.holders):
            yield f"             {safe_text(address)}"


def _many_lines(shown: HealPreview) -> Iterator[str]:
    healable = shown.healable
    yield f"To heal      {counted(len(healable), 'object')}"
    for each in healable[:_MOST_SHOWN]:
        says = f", uid {each.uid} as {each.uid_from} says" if each.uid_from else ""
        yield f"             {safe_text(display(each.key) + says)}"
    if len(healable) > _MOST_SHOWN:
        yield f"             and {len(healable) - _MOST_SHOWN} more"
    yield from _holder_lines(healable)
    if shown.left_alone:
        yield f"Left alone   {counted(len(shown.left_alone), 'key')}"
        for alone in shown.left_alone[:_MOST_SHOWN]:
            yield f"             {safe_text(display(alone.key))}: {safe_text(alone.why)}"
        if len(shown.left_alone) > _MOST_SHOWN:
            yield f"             and {len(shown.left_alone) - _MOST_SHOWN} more; -o json has all"


def healed_lines(healed: Healed) -> Iterator[str]:
    """Yield what became of one object."""
    outcome, key = healed.outcome, safe_text(display(healed.key))
    if outcome.result is None and healed.ended:
        yield f"DRY RUN: {key} would be tried: no server gives it from memory any more. Nothing was changed."
    elif outcome.result is None:
        yield f"DRY RUN: {key} would be healed. Nothing was changed."
    elif outcome.result is Result.HEALED:
        yield f"HEALED {key} at revision {outcome.revision}, by {safe_text(healed.server)}."
    else:
        yield f"{outcome.result.upper()}: {key}: {safe_text(outcome.detail)}"
    for warning in outcome.warnings:
        yield f"  Note: {safe_text(warning)}"
    for path in outcome.backups:
        yield f"  Backup of the unreadable bytes: {safe_text(path)}"
    if healed.saved_file:
        yield f"  The server's answer was kept: {safe_text(healed.saved_file)}"


def heal_ending_lines(account: HealAccount) -> Iterator[str]:
    """Yield what the whole run came to."""
    done = sum(1 for each in account.objects if each.outcome.result is Result.HEALED)
    if account.to_heal is not None and not account.dry_run:
        yield f"Healed {done} of {account.to_heal}."
        if done < account.to_heal:
            yield "What is healed stays healed. Run the same again to go on, once the reason is gone."
    yield from account.last_lines()


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
