"""What a run of ``heal`` tells, and what it came to, as it is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.errors import EtcdfixError
from etcdfix.operations.change.batch import Account
from etcdfix.operations.change.heal import Healed, HealPreview
from etcdfix.operations.change.heal_look import Healable, LeftAlone
from etcdfix.operations.change.preview import (
    Fact,
    cluster_facts,
    now_fact,
    object_fact,
    preview_of,
    server_facts,
    warning_facts,
)
from etcdfix.operations.change.report import outcome_fields
from etcdfix.remediation.audit.record import Result, unicode_text
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.report.change import told
from etcdfix.report.document import Column, Document, Kind, Prose, Table
from etcdfix.report.heal import HealedObject, HealReport, LeftAloneKey
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_base64
from etcdfix.text.words import counted

_BRIEF: Final = 10


class HealAccount(Account[Healed], kw_only=True):
    """What a run of ``heal`` has told so far.

    Attributes:
        to_heal: How many are to be, without those that somebody else healed meanwhile; None where it did not come that
            far.
    """

    left_alone: list[LeftAlone] = msgspec.field(default_factory=list)
    to_heal: int | None = None


def heal_preview(cluster: Cluster, shown: HealPreview, *, dry_run: bool) -> Document:
    """Return what will be healed, by whom, and what was checked."""
    healable, first = shown.healable, shown.healable[0]
    one = len(healable) == 1 and not shown.left_alone

    def facts() -> Iterator[Fact]:
        if one:
            yield object_fact(first.found, f", {_uid(first)}")
            yield now_fact(first.found)
            yield "Stored", f"mod_revision {first.mod_revision}"
        yield from _holders(healable)
        yield from cluster_facts(cluster, first.identity)
        yield from server_facts(first.servers)
        yield "Rescued", str(shown.saved)
        for resource, number in shown.unread.items():
            yield (
                "",
                f"etcdfix cannot read {counted(number, 'value')} of {resource}; what API servers hold of them is saved",
            )
        yield from warning_facts([*shown.warnings, *(text for each in healable for text in each.warnings)])

    rows = [("heal", _uid(each), display(each.key)) for each in healable]
    rows += [("leave alone", each.why, display(each.key)) for each in shown.left_alone]
    columns = (Column("WHAT"), Column("WHY", folds=True), Column("ETCD KEY", kind=Kind.KEY))
    means = [
        "Each is one merge PATCH with uid and resourceVersion that sets an annotation. Nothing is deleted.",
        "The first object is the test: unless every API server reads it afterwards, the run stops.",
        "Do not restart an API server before everything is healed.",
    ]
    if dry_run:
        means.append(
            "An API server's own dry run (dryRun=All) fails for these objects, so whether admission lets the change "
            "through is known only when it is made."
        )
    left = f", {counted(len(shown.left_alone), 'key')} left alone" if shown.left_alone else ""
    return preview_of(
        f"To heal: {display(first.key)}" if one else f"To heal: {counted(len(healable), 'object')}{left}",
        facts(),
        Table(columns=columns, rows=[] if one else rows, noun="key", brief=_BRIEF),
        Prose(paragraphs=means),
    )


def _uid(one: Healable) -> str:
    return f"uid {one.uid} as {one.uid_from} says" if one.uid_from else f"uid {one.uid}"


def _holders(healable: Sequence[Healable]) -> Iterator[Fact]:
    ended = [each for each in healable if each.ended]
    held = Counter(each.holders[0].server.address for each in healable if not each.ended)
    for address, number in held.items():
        yield "Held by", f"{address}: {counted(number, 'object')} in its memory, as last written"
    if ended:
        may = dict.fromkeys(holder.server.address for each in ended for holder in each.holders)
        yield (
            "Held by",
            (
                f"no server gives {counted(len(ended), 'object')} from memory any more; asked are those that may hold "
                f"them all the same: {', '.join(may)}"
            ),
        )


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
