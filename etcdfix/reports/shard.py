"""What the report of one shard has beside its findings, and how ``report merge`` reads it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import msgspec

from etcdfix.model import Outcome
from etcdfix.reports.contradictions import MOST_COUNTED, MOST_REVISION
from etcdfix.reports.first_step import Urgent
from etcdfix.reports.key_loss import LossRest, Place
from etcdfix.reports.model import Ending, Finding, Header, Shard, Summary
from etcdfix.reports.next_steps import PLUGIN_REMEDIES, WELL
from etcdfix.reports.report_file import OF_ANOTHER, open_report
from etcdfix.reports.tally import TallyRest
from etcdfix.text.commands import RepeatedOptions
from etcdfix.verdicts.causes import Cause


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How far a scan came.

    Attributes:
        problems: Why not everything could be shown; empty where it could.
        ended: What ended it early, "" where nothing did.
        lost_midway: The source was lost before the last key.
        below_prefix: Whether any key at all lies below the storage prefix.
        nothing_named_exists: Keys, key prefixes or namespaces were named, and none of them exists.
        suggested_prefixes: Where Kubernetes' keys seem to be instead, when none lies below the prefix.
        elsewhere: Other known storage prefixes under which keys lie beside those, most of them first.
    """

    problems: list[str]
    ended: str
    lost_midway: bool
    below_prefix: bool
    nothing_named_exists: bool
    suggested_prefixes: list[str]
    elsewhere: list[str] = msgspec.field(default_factory=list)


class ShardPart(msgspec.Struct, frozen=True, kw_only=True):
    """What ``report merge`` needs of a shard beside its summary; at the end of the shard's report, under ``part``.

    Attributes:
        shard: Which one it is, again: the head of another one may stand before this.
        findings: How many the report has.
        tally: What was counted and does not stand in the summary.
        losses: Values that may belong to lost encryption keys, by key.
        urgent: Which finding to act upon first, by the keys whose loss may explain it.
        seen: How far the scan of the shard came; nothing was decided yet about ``nothing_named_exists``.
        named: Nothing was seen, and keys or key prefixes were named, or namespaces of which none exists.
        prefixes: Of each of its first keys that hold no object, where none of all keys lies below the storage prefix:
            the prefix under which it would make sense, "" for none.
        words: The scope, as words of a command.
        again: What a command must repeat.
    """

    shard: Shard
    findings: int
    tally: TallyRest
    losses: list[LossRest]
    urgent: list[tuple[tuple[Place, ...], Urgent]]
    seen: Seen
    named: bool
    prefixes: list[str]
    words: list[str]
    again: RepeatedOptions


class ShardEnd(Ending, frozen=True, kw_only=True):
    """What a shard's report ends with."""

    part: ShardPart | None = None


class ShardFile(msgspec.Struct, frozen=True):
    """The report of a shard, without its findings.

    Attributes:
        path: Of the file.
        sha256: Of the file.
        head: Its head.
        end: Its end.
        shard: Which one it is.
        part: What a merge needs.
    """

    path: Path
    sha256: str
    head: Header
    end: ShardEnd
    shard: Shard
    part: ShardPart

    def findings(self) -> Iterator[Finding]:
        """Yield its findings in the order of the file.

        Raises:
            OSError: The file cannot be read, or was changed since.
            msgspec.MsgspecError: A finding is none.
        """
        decode = msgspec.json.Decoder(Finding).decode
        with open_report(self.path) as report:
            if report.sha256 != self.sha256:
                raise OSError(errno.ESTALE, "it was changed while it was merged")
            for finding in report.findings():
                yield decode(finding)


def open_shard(path: Path) -> ShardFile:
    """Read a shard's report that was written with ``-o json`` or ``-o jsonl``; its findings are counted, and not kept.

    Raises:
        OSError: It cannot be read, or is too large.
        msgspec.MsgspecError: It is no report, or none of a shard.
    """
    with open_report(path) as report:
        head = report.head(Header)
        if head.scope.shard is None:
            raise msgspec.ValidationError("it is of a whole scan (for many clusters name --fleet)")
        findings = sum(1 for _ in report.findings())
        end = report.end(ShardEnd)
        if end.part is None:
            raise msgspec.ValidationError("it does not have what a merge needs of a shard")
        if end.part.shard != head.scope.shard:
            raise msgspec.ValidationError(OF_ANOTHER)
        if end.part.findings != findings:
            raise msgspec.ValidationError(f"it has {findings} findings, and says {end.part.findings}")
        check_words(end.summary)
        _check_numbers(msgspec.to_builtins(end))
        return ShardFile(path, report.sha256, head, end, head.scope.shard, end.part)


def check_words(summary: Summary) -> None:
    """Look at the words of closed catalogues, which say what to do next.

    Raises:
        msgspec.ValidationError: One is not known.
    """
    states = {*PLUGIN_REMEDIES, *WELL}
    plugins = summary.kms.plugins if summary.kms is not None else []
    words = [
        *(cause.cause for cause in summary.by_cause if cause.cause not in set(Cause)),
        *(cause.outcome for cause in summary.by_cause if cause.outcome not in set(Outcome)),
        *(plugin.state for plugin in plugins if plugin.state not in states),
    ]
    if words:
        raise msgspec.ValidationError(f"nobody knows its word {words[0]}")


def _check_numbers(value: object, name: str = "count") -> None:
    """Look at all numbers of an end: they are added up, and printed.

    Raises:
        msgspec.ValidationError: One counts nothing.
    """
    if isinstance(value, dict):
        for field, one in value.items():
            _check_numbers(one, str(field))
    elif isinstance(value, (list, tuple)):
        for one in value:
            _check_numbers(one, name)
    elif isinstance(value, int):
        most = MOST_REVISION if name.endswith("revision") else MOST_COUNTED
        if not 0 <= value <= most:
            raise msgspec.ValidationError(f"its {name} is {value}")
