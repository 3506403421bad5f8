"""What to do where copies differ.

No member is ever named for replacement that holds a readable copy which another one lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from etcdfix.operations.look.comparing.differences import Differences
from etcdfix.reports.compare_model import Change, ComparedCopy
from etcdfix.reports.model import Remedy
from etcdfix.text.commands import GRANTED, RepeatedOptions
from etcdfix.text.safetext import key_arguments, quote_command
from etcdfix.text.words import counted

_RUNBOOK: Final = "docs/runbooks/members-disagree.md"


def member_advice(
    copies: Sequence[ComparedCopy], differences: Differences, again: RepeatedOptions
) -> list[Remedy]:
    """Return what to do where members differ; empty where no key does."""
    if not differences.changes:
        return []
    asked = [copy for copy in copies if copy.compared]
    advice = [
        Remedy(
            "Change nothing yet, and restart no member: a deletion could remove the last good copy.", "",
            "etcdfix refuses to change a key that differs on members",
        )
    ]  # fmt: skip
    holders = [copy for copy in asked if copy.only_readable_here]
    whole = [copy for copy in holders if not copy.unreadable_here]
    if whole:
        keep = whole[0]
        advice.append(
            Remedy(
                f"Save a snapshot of {keep.label}: it can read every key of those that differ which any "
                "member can.",
                _at(again, keep).save_snapshot("good.db"),
                "check it with etcdfix scan --snapshot good.db",
            )
        )
    elif holders:
        advice += [
            Remedy(
                f"Save a snapshot of {keep.label}: {counted(keep.only_readable_here, 'key')} can be read "
                "there and not on every other member.",
                _at(again, keep).save_snapshot(f"member-{keep.member_id}.db"),
                "no single member has all readable copies: keep the data directory of each before anything else",
            )
            for keep in holders
        ]
    elif Change.READABLE_ON_ALL in differences.changes:
        advice += [
            Remedy(
                f"Save a snapshot of {keep.label}.",
                _at(again, keep).save_snapshot(f"member-{keep.member_id}.db"),
                "every copy can be read, and which one is right does not show here: see what differs before you choose",
            )
            for keep in asked
        ]
    else:
        advice.append(
            Remedy(
                "No copy of these keys can be read here: find out why first.",
                again.scan(differences.first[Change.READABLE_ON_NONE]),
                ""
                if again.told_of_encryption
                else "name the encryption configuration: --encryption-config FILE",
            )
        )
    worse = [copy for copy in asked if copy.unreadable_here and not copy.only_readable_here]
    if whole and worse:
        names = ", ".join(copy.label for copy in worse)
        advice.append(
            Remedy(
                f"Then replace {names}, one at a time and never below a majority.", "",
                f"{_RUNBOOK} has the steps; {whole[0].label} stays",
            )
        )  # fmt: skip
    else:
        advice.append(Remedy("Then go on as the runbook says.", "", _RUNBOOK))
    return advice


def time_advice(differences: Differences, again: RepeatedOptions, earlier: str) -> list[Remedy]:
    """Return what to do about values that could be read and cannot be any more, or were changed behind etcd's back.

    Args:
        differences: What was found.
        again: Options of the later one.
        earlier: File of the earlier one.
    """
    advice = []
    lost = differences.first.get(Change.UNREADABLE_NOW)
    if lost is not None:
        of_file = msgspec.structs.replace(again, source=("--snapshot", earlier))
        advice = [
            Remedy(
                "Find out why: most often the encryption configuration changed, and nothing is lost.",
                again.scan(lost), "" if again.told_of_encryption else GRANTED.strip(),
            ),
            Remedy(
                "Keep the earlier snapshot: it holds what could be read.",
                of_file.get(lost), "shows the object as it was, Secrets masked",
            ),
        ]  # fmt: skip
    other = differences.first.get(Change.SAME_REVISION_OTHER_BYTES)
    if other is not None:
        advice.append(
            Remedy(
                "Bytes differ at one and the same revision: no write did that. A disk, a copy, or another history.",
                quote_command(
                    ["etcdfix", "compare", *again.now, *again.layout, *again.reading, *key_arguments(other)]
                )
                if not again.of_a_file
                else "",
                "compare the members of the live etcd"
                if not again.of_a_file
                else "compare with a third copy",
            )
        )
    return advice


def _at(again: RepeatedOptions, copy: ComparedCopy) -> RepeatedOptions:
    """Return the options with one member's address as the only endpoint."""
    words = list(again.now)
    if "--endpoints" in words:
        at = words.index("--endpoints")
        words[at : at + 2] = []
    return msgspec.structs.replace(again, source=("--endpoints", copy.endpoint, *words))
