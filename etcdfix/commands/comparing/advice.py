"""What to do where copies differ.

A member is named for replacement only where its copies are damaged and nothing else: one that missed a write or a
deletion looks the same as one that alone has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etcdfix.commands.comparing.differences import Differences
from etcdfix.report.compare import Change, ComparedCopy
from etcdfix.report.model import Remedy
from etcdfix.text.commands import NO_COMMAND, Command, Part, scan
from etcdfix.text.safetext import key_word
from etcdfix.text.words import counted

_RUNBOOK: Final = "docs/runbooks/members-disagree.md"


def member_advice(copies: Sequence[ComparedCopy], differences: Differences, *, whole: bool) -> list[Remedy]:
    """Return what to do where members differ; empty where no key does."""
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
                _save(keep, "good.db"),
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
            _save(copy, f"member-{copy.member_id}.db"),
            "keep one of each member: which one to replace does not show here, the newest write may be on any",
        )
        for copy in copies
        if copy.compared
    ]
    if Change.READABLE_ON_NONE in differences.changes:
        advice.append(
            Remedy(
                "Some keys can be read on no member: find out why.",
                scan(key_word(differences.first[Change.READABLE_ON_NONE])),
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


def time_advice(differences: Differences, earlier: str, *, live: bool) -> list[Remedy]:
    """Return what to do about values that could be read and cannot be any more, or were changed behind etcd's back."""
    advice = []
    lost = differences.first.get(Change.UNREADABLE_NOW)
    if lost is not None:
        of_file = ("--snapshot", earlier, Part.LAYOUT, Part.READING)
        advice = [
            Remedy(
                "Find out why: most often the encryption configuration changed, and nothing is lost.",
                scan(key_word(lost)),
            ),
            Remedy(
                "Keep the earlier snapshot: it holds what could be read.",
                Command(("etcdfix", "get", *of_file, key_word(lost))), "shows the object as it was, Secrets masked",
            ),
        ]  # fmt: skip
    other = differences.first.get(Change.SAME_REVISION_OTHER_BYTES)
    if other is not None:
        advice.append(
            Remedy(
                "Bytes differ at one and the same revision: no write did that. A disk, a copy, or another history.",
                Command(("etcdfix", "compare", Part.NOW, Part.LAYOUT, Part.READING, key_word(other)))
                if live
                else NO_COMMAND,
                "compare the members of the live etcd" if live else "compare with a third copy",
            )
        )
    return advice


def _save(copy: ComparedCopy, file: str) -> Command:
    words = ("etcdctl", "--endpoints", copy.endpoint, Part.CREDENTIALS, "snapshot", "save", file)
    return Command(words, writes=True)
