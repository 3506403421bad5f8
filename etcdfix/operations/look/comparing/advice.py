"""What to do where copies differ.

A member is named for replacement only where its copies are damaged and nothing else: one that missed a write or a
deletion looks the same as one that alone has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from etcdfix.operations.look.comparing.differences import Differences
from etcdfix.report.compare_model import Change, ComparedCopy
from etcdfix.report.model import Remedy
from etcdfix.text.commands import GRANTED, NO_COMMAND, Command, RepeatedOptions
from etcdfix.text.safetext import key_word, quote_command
from etcdfix.text.words import counted

_RUNBOOK: Final = "docs/runbooks/members-disagree.md"


def member_advice(
    copies: Sequence[ComparedCopy], differences: Differences, again: RepeatedOptions, *, whole: bool
) -> list[Remedy]:
    """Return what to do where members differ; empty where no key does.

    Args:
        copies: The members, those that did not answer too.
        differences: What was found.
        again: Options of this comparison.
        whole: Every key of every member was compared.
    """
    if not differences.changes:
        return []
    advice = [
        Remedy(
            "Change nothing yet, and restart no member: a deletion could remove the last good copy.", NO_COMMAND,
            "etcdfix refuses to change a key that differs on members",
        )
    ]  # fmt: skip
    damaged = [copy for copy in copies if copy.unreadable_here]
    keep = next((copy for copy in copies if copy.compared and not copy.unreadable_here), None)
    if whole and differences.only_damage and keep is not None and len(damaged) * 2 < len(copies):
        names = ", ".join(copy.label for copy in damaged)
        return [
            *advice,
            Remedy(
                f"Save a snapshot of {keep.label}: it can read every key that differs.",
                Command(text=_at(again, keep).save_snapshot("good.db")),
                "check it with etcdfix scan --snapshot good.db",
            ),
            Remedy(
                f"Then replace {names}, one at a time and never below a majority.", NO_COMMAND,
                f"{_RUNBOOK} has the steps; {keep.label} stays",
            ),
        ]  # fmt: skip
    advice += [
        Remedy(
            f"Save a snapshot of {copy.label}{_why_keep(copy)}.",
            Command(text=_at(again, copy).save_snapshot(f"member-{copy.member_id}.db")),
            "keep one of each member: which one to replace does not show here, the newest write may be on any",
        )
        for copy in copies
        if copy.compared
    ]
    if Change.READABLE_ON_NONE in differences.changes:
        advice.append(
            Remedy(
                "Some keys can be read on no member: find out why.",
                Command(text=again.scan(differences.first[Change.READABLE_ON_NONE])),
                ""
                if again.told_of_encryption
                else "name the encryption configuration: --encryption-config FILE",
            )
        )
    advice.append(
        Remedy(
            "Then go on as the runbook says."
            if whole
            else "Then compare again, every key on every member, and go on as the runbook says.", NO_COMMAND,
            f"{_RUNBOOK}: look at the mod_revision of each copy before a member is replaced",
        )
    )  # fmt: skip
    return advice


def _why_keep(copy: ComparedCopy) -> str:
    if not copy.only_readable_here:
        return ""
    return f": {counted(copy.only_readable_here, 'key')} can be read there and not on every other member"


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
                Command(text=again.scan(lost)), "" if again.told_of_encryption else GRANTED.strip(),
            ),
            Remedy(
                "Keep the earlier snapshot: it holds what could be read.",
                Command(text=of_file.get(lost)), "shows the object as it was, Secrets masked",
            ),
        ]  # fmt: skip
    other = differences.first.get(Change.SAME_REVISION_OTHER_BYTES)
    if other is not None:
        advice.append(
            Remedy(
                "Bytes differ at one and the same revision: no write did that. A disk, a copy, or another history.",
                Command(
                    text=quote_command(
                        ["etcdfix", "compare", *again.now, *again.layout, *again.reading, key_word(other)]
                    )
                    if not again.of_a_file
                    else ""
                ),
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
