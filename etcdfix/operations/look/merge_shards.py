"""The reports of the shards of one file, made into the report of the whole: ``report merge``.

It is written by the code that writes the report of a whole scan, and is the same but for its times. What does not fit
together is named and left out, and the report is not complete then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError, why
from etcdfix.inputs.inputfile import NO_ROOM, SPOILED, STANDARD_INPUT, spoiled
from etcdfix.model import Outcome
from etcdfix.operations.look.concluding import conclude
from etcdfix.operations.look.gathering import FAILING, SAMPLE
from etcdfix.operations.look.scan import ScanResult
from etcdfix.operations.look.shards import span_in
from etcdfix.reports.alike import CommonWords, shortened
from etcdfix.reports.base import Reporter, fit
from etcdfix.reports.contradictions import OUT_OF_ORDER, SeenFindings, key_in, uncounted
from etcdfix.reports.finding import status_cause
from etcdfix.reports.first_step import FirstStep
from etcdfix.reports.key_loss import KeyLosses, Lost, Place
from etcdfix.reports.model import (
    Conclusion,
    Finding,
    Header,
    KMSPluginSummary,
    KMSSummary,
    LostKey,
    NewFindings,
    Scope,
    SharedWords,
    Summary,
)
from etcdfix.reports.next_steps import PLUGIN_REMEDIES, plugin_problems
from etcdfix.reports.origin import TOOL, shown_word
from etcdfix.reports.shard import Seen, ShardFile, open_shard
from etcdfix.reports.tally import Tally
from etcdfix.sources.problems import MAX_PROBLEMS
from etcdfix.storagekey import ResourcePrefix, display, most_frequent
from etcdfix.text.safetext import WITHHELD, key_base64, safe_text
from etcdfix.verdicts.kinds import MOST_KINDS

_SWITCHES: Final = ("--no-kms", "--no-encryption")
_MOST_NAMED: Final = 10
_MOST_SENTENCES: Final = 2 * MAX_PROBLEMS
_LONGEST_SENTENCE: Final = 2_000


def open_shards(paths: Sequence[Path]) -> tuple[list[ShardFile], list[str]]:
    """Return the shards that belong together, in the order of their keys; and what does not fit, and what lacks.

    Args:
        paths: The reports, in any order.

    Raises:
        ConfigurationError: None of the files is the report of a shard, or one of them is standard input.
        OSError: There is no room for a copy of one.
    """
    if STANDARD_INPUT in paths:
        raise ConfigurationError("- is standard input, and a shard is read twice", hint="save it in a file")
    problems: list[str] = []
    shards = _fitting(paths, problems)
    if not shards:
        raise ConfigurationError(
            f"no report of a shard is among the files: {problems[0]}",
            hint="for reports of many clusters name --fleet; a shard's report is made by etcdfix scan --snapshot FILE "
            "--shard 1/4 -o json --output-file shard-1.json, and so on to 4/4",
        )
    return shards, problems


def merge_shards(
    shards: Sequence[ShardFile], problems: Sequence[str], reporter: Reporter, *, max_causes: int
) -> ScanResult:
    """Hand the report of the whole to a reporter, made of the reports of its shards.

    Args:
        shards: As :func:`open_shards` returns them.
        problems: What does not fit, and what lacks.
        reporter: Where the whole goes.
        max_causes: Cap of each Status.
    """
    return _Merge(shards, [*problems], max_causes).run(reporter)


def _fitting(paths: Sequence[Path], problems: list[str]) -> list[ShardFile]:
    """Return the shards that belong together, in the order of their keys; name what does not fit, and what lacks."""
    taken: dict[int, ShardFile] = {}
    first: ShardFile | None = None
    for path in paths:
        shown = safe_text(shown_word(str(path)))
        try:
            shard = open_shard(path)
            span_in(shard.shard)
        except OSError as exc:
            if exc.errno in NO_ROOM:
                raise
            problems.append(f"{shown}: {why(exc)}; it is left out")
            continue
        except (*SPOILED, ValueError) as exc:
            problems.append(f"{shown} is no report of a shard: {_shown(spoiled(exc))}; it is left out")
            continue
        reason = _misfit(shard, first) or _taken(shard, taken)
        if reason:
            problems.append(f"{shown}: {reason}; it is left out")
            continue
        first = first or shard
        taken[shard.shard.index] = shard
    if first is None:
        return []
    problems += _lacking(taken, first.shard.of)
    return [taken[index] for index in sorted(taken)]


def _misfit(shard: ShardFile, first: ShardFile | None) -> str:
    """Return why a shard does not belong to the first one; "" where it does."""
    head, index, of = shard.head, shard.shard.index, shard.shard.of
    if head.tool != TOOL:
        return f"{_shown(head.tool.name)} {_shown(head.tool.version)} wrote it, and this is {TOOL.version}"
    span = span_in(shard.shard)
    if (
        not 1 <= index <= of
        or (index == 1 and span.start)
        or (span.end is not None and span.end < span.start)
    ):
        return f"shard {index} of {of} is none"
    if (index == of) != (shard.shard.to_key is None):
        return f"shard {index} of {of} does not end where it has to"
    if head.source.type != "snapshot" or head.source.sha256 is None:
        return "it does not say of which file it is"
    if first is None:
        return ""
    for what, value in _COMPARED.items():
        here, there = value(shard), value(first)
        if here != there:
            return (
                f"its {what} is {_shown(str(here or 'none'))}, and that of {safe_text(str(first.path))} is "
                f"{_shown(str(there or 'none'))}"
            )
    return ""


def _shown(text: str) -> str:
    """Return text of a report as it may stand in a sentence: anybody may have written it, of any length."""
    return safe_text(fit(text))


def _asked(shard: ShardFile) -> str:
    """Return what was asked for, but for the shard."""
    scope = shard.head.scope
    return f"{' '.join(scope.limits) or 'everything'} below {scope.etcd_prefix}"


_COMPARED: Final[dict[str, Callable[[ShardFile], object]]] = {
    "snapshot (sha256)": lambda shard: shard.head.source.sha256,
    "number of shards": lambda shard: shard.shard.of,
    "revision": lambda shard: shard.head.source.revision,
    "cluster (uid of kube-system)": lambda shard: shard.head.source.kube_system_uid,
    "cluster name": lambda shard: shard.head.source.cluster_name,
    "encryption configuration (sha256)": lambda shard: getattr(shard.head.encryption_config, "sha256", ""),
    "release (--kubernetes-version)": lambda shard: shard.head.scope.kubernetes_version,
    "scope": _asked,
    "baseline (sha256)": lambda shard: getattr(shard.head.baseline, "sha256", ""),
    "way of reading": lambda shard: " ".join(word for word in _SWITCHES if word in shard.part.again.reading),
}
"""What all shards must have in common, and how it is called."""


def _taken(shard: ShardFile, taken: dict[int, ShardFile]) -> str:
    """Return why a shard has no place among those that are there; "" where it has."""
    index, of = shard.shard.index, shard.shard.of
    if index in taken:
        return f"shard {index} of {of} is in {safe_text(str(taken[index].path))} already"
    span = span_in(shard.shard)
    before, after = taken.get(index - 1), taken.get(index + 1)
    if before is not None and span_in(before.shard).end != span.start:
        return f"its keys do not begin where those of {safe_text(str(before.path))} end"
    if after is not None and span_in(after.shard).start != span.end:
        return f"its keys do not end where those of {safe_text(str(after.path))} begin"
    return ""


def _lacking(taken: Collection[int], of: int) -> Iterator[str]:
    """Name each shard that is not there; where very many are not, the first of them."""
    absent = (index for index in range(1, of + 1) if index not in taken)
    for _, index in zip(range(_MOST_NAMED), absent, strict=False):
        yield f"shard {index} of {of} is not among the files"
    more = of - len(taken) - _MOST_NAMED
    if more > 0:
        yield f"{more} more shards of {of} are not among the files"


class _Merge:
    """Adds up what the shards say, and writes the whole."""

    def __init__(self, shards: Sequence[ShardFile], problems: list[str], max_causes: int) -> None:
        self._shards = shards
        self._problems = problems
        self._first = shards[0]
        self._again = self._first.part.again
        prefixes = {
            (group, resource): prefix
            for shard in shards
            for group, resource, prefix in shard.part.tally.listed
        }
        self._tally = Tally(
            past=True,
            max_causes=max_causes,
            list_prefix=lambda directory: prefixes.get((directory.group, directory.resource), ""),
        )
        self._losses = KeyLosses(self._again)
        self._first_step = FirstStep()
        self._words = CommonWords()
        self._shared: dict[Place, dict[str, SharedWords]] = {}
        self._new = dict.fromkeys(FAILING, 0)
        self._first_new: str | None = None

    def run(self, reporter: Reporter) -> ScanResult:
        """Write the whole, and return what it came to."""
        header = self._header()
        reporter.begin(header)
        for shard in self._shards:
            self._tally.absorb(shard.end.summary, shard.part.tally)
            self._losses.absorb(shard.part.losses)
            self._first_step.absorb(shard.part.urgent)
        summary = self._tally.summary()
        lost = self._losses.lost(summary.by_transformer)
        summary.kms = merged_kms(
            [shard.end.summary.kms for shard in self._shards if shard.end.summary.kms is not None],
            self._tally,
        )
        for shard in self._shards:
            summary.readable_revisions += shard.end.summary.readable_revisions
            summary.readable_revisions_not_sought += shard.end.summary.readable_revisions_not_sought
        self._publish(reporter, lost)
        if header.baseline is not None:
            new = sum(self._new.values()), self._new[Outcome.UNDETERMINED]
            summary.new = NewFindings(*new, self._first_new)
        summary.key_loss = [self._entry(place, key) for place, key in lost.items()]
        seen = self._seen(summary)
        scope = self._first.head.scope
        reasons = conclude(
            summary,
            self._first_step.way_out(summary, lost),
            seen,
            prefix=_storage_prefix(scope),
            words=self._first.part.words,
            again=self._again,
        )
        conclusion = Conclusion(
            source=self._first.end.source,
            statuses=self._tally.statuses(),
            summary=summary,
            complete=not reasons,
            incomplete_reasons=reasons,
            finished_at=max(shard.end.finished_at for shard in self._shards),
        )
        reporter.end(conclusion)
        return ScanResult(
            summary=summary,
            complete=not reasons,
            new=self._new,
            problems=seen.problems,
            prefix=_storage_prefix(scope),
            revision=self._again.revision,
            below_prefix=seen.below_prefix,
            nothing_named_exists=seen.nothing_named_exists,
            suggested_prefixes=seen.suggested_prefixes,
        )

    def _entry(self, place: Place, lost: Lost) -> LostKey:
        shared = self._shared.get(place, {})
        return msgspec.structs.replace(lost.entry, shared=[shared[name] for name in sorted(shared)])

    def _header(self) -> Header:
        head = self._first.head
        return msgspec.structs.replace(
            head,
            generated_at=min(shard.head.generated_at for shard in self._shards),
            scope=msgspec.structs.replace(head.scope, shard=None),
        )

    def _publish(self, reporter: Reporter, lost: Collection[Place]) -> None:
        """Hand on the findings as the whole has them, in the order of their keys."""
        for shard in self._shards:
            seen = _SeenFindings(shard)
            try:
                for finding in shard.findings():
                    seen.take(finding)
                    self._publish_one(finding, reporter, lost)
            except OSError as exc:
                self._problems.append(f"{_named(shard)}: {why(exc)}")
            except (*SPOILED, ValueError) as exc:
                self._problems.append(f"{_named(shard)}: {_shown(spoiled(exc))}")
            else:
                self._problems += [f"{_named(shard)}: {problem}" for problem in seen.problems()]

    def _publish_one(self, finding: Finding, reporter: Reporter, lost: Collection[Place]) -> None:
        status = status_cause(finding)
        if status is not None:
            self._tally.list_cause(ResourcePrefix("", finding.group, finding.resource, "", None), status)
        if not finding.baseline and finding.outcome in self._new:
            self._new[Outcome(finding.outcome)] += 1
            self._first_new = self._first_new or finding.key  # shards stand in the order of their keys
        maybe = finding.may_be_lost
        if maybe is None:
            reporter.finding(finding)
            return
        places = [(finding.rule or "", finding.transformer, key) for key in maybe.key_fingerprints]
        if len(self._words) >= MOST_KINDS or not any(place in lost for place in places):
            reporter.finding(msgspec.structs.replace(finding, may_be_lost=None))
            return
        short, shared = shortened(finding, self._words, maybe.own_evidence)
        for place in places:
            self._shared.setdefault(place, {})[shared.id] = shared
        reporter.finding_of_lost_key(short, shared)

    def _seen(self, summary: Summary) -> Seen:
        """Return how far the shards came together."""
        parts = [shard.part for shard in self._shards]
        below = any(part.seen.below_prefix for part in parts)
        own = list(chain.from_iterable(part.prefixes for part in parts))[:SAMPLE]
        problems = [*self._problems, *self._problems_of_shards()]
        return Seen(
            problems=problems,
            ended="",
            lost_midway=any(part.seen.lost_midway for part in parts),
            below_prefix=below,
            nothing_named_exists=not summary.keys and not problems and all(part.named for part in parts),
            suggested_prefixes=[]
            if below
            else most_frequent(own)
            if own
            else parts[0].seen.suggested_prefixes,
            elsewhere=list(dict.fromkeys(other for part in parts for other in part.seen.elsewhere)),
        )

    def _problems_of_shards(self) -> Iterator[str]:
        """Yield why the shards could not show everything: of the file once, of one shard with its number."""
        everywhere = Counter(sentence for shard in self._shards for sentence in _sentences(shard))
        yield from (sentence for sentence, number in everywhere.items() if number == len(self._shards))
        for shard in self._shards:
            seen = shard.part.seen
            for sentence in _sentences(shard):
                if everywhere[sentence] < len(self._shards):
                    yield f"{_named(shard)}: {sentence}"
            if seen.ended:
                yield f"{_named(shard)}: {fit(seen.ended)} before the end"
            summary = shard.end.summary
            told = seen.problems or seen.ended or not seen.below_prefix or summary.undetermined
            if shard.end.complete and not shard.end.incomplete_reasons:
                continue
            if not told and not plugin_problems(summary.kms):
                reasons = shard.end.incomplete_reasons[:_MOST_SENTENCES] or ["it does not say why"]
                yield from (f"{_named(shard)}: incomplete: {fit(one, _LONGEST_SENTENCE)}" for one in reasons)


def _sentences(shard: ShardFile) -> list[str]:
    """Return what a shard says of its source, each once; a scan has fewer and shorter sentences."""
    told = islice(dict.fromkeys(shard.part.seen.problems), _MOST_SENTENCES)
    return [fit(sentence, _LONGEST_SENTENCE) for sentence in told]


class _SeenFindings:
    """Holds the findings of a shard against what else it says, as they pass."""

    def __init__(self, shard: ShardFile) -> None:
        self._shard = shard
        self._span = span_in(shard.shard)
        self._seen = SeenFindings()
        self._causes: Counter[tuple[str, str]] = Counter()
        self._severities: Counter[str] = Counter()
        self._outside = ""

    def take(self, finding: Finding) -> None:
        """Look at one finding.

        Raises:
            ValueError: Its key is not as a report has keys.
        """
        key = key_in(finding.key, finding.key_base64)
        if (finding.key, finding.key_base64) != (display(key), key_base64(key)):
            raise ValueError(f"a finding does not name its key as reports do: {finding.key}")
        self._seen.take(finding)
        if finding.cause is not None and finding.outcome != Outcome.NOT_AN_OBJECT:
            self._causes[finding.cause, finding.outcome] += 1
        if finding.severity is not None:
            self._severities[finding.severity] += 1
        # Nobody can tell the place of what was withheld.
        if not self._outside and not finding.key.endswith(WITHHELD) and not self._span.holds(key):
            self._outside = finding.key

    def problems(self) -> Iterator[str]:
        """Yield what does not fit, once all were taken."""
        summary, part = self._shard.end.summary, self._shard.part
        if self._outside:
            yield f"{_shown(self._outside)} is not where it belongs"
        yield from self._seen.contradictions(summary, in_order=OUT_OF_ORDER not in part.seen.problems)
        yield from uncounted(summary)
        if self._causes != {(one.cause, one.outcome): one.count for one in summary.by_cause}:
            yield "the report contradicts itself: its findings have other causes than it counts"
        stakes: Counter[str] = Counter()
        for stake, count in part.tally.stakes:
            stakes[stake.severity] += count
        if self._severities != stakes:
            yield "the report contradicts itself: with its findings other things are at stake than it counts"


def _named(shard: ShardFile) -> str:
    return f"shard {shard.shard.index} of {shard.shard.of}"


def _storage_prefix(scope: Scope) -> str:
    return "/" if scope.etcd_prefix == "/" else f"{scope.etcd_prefix}/"


def merged_kms(parts: Sequence[KMSSummary], tally: Tally) -> KMSSummary | None:
    """Return what KMS plugins did in several runs together; None where there was nothing to do.

    Args:
        parts: Of each run that had any.
        tally: Of all runs.
    """
    keys = tally.kms_keys()
    plugins: dict[tuple[str, str], list[KMSPluginSummary]] = {}
    for part in parts:
        for plugin in part.plugins:
            plugins.setdefault((plugin.transformer, plugin.endpoint), []).append(plugin)
    if not keys and not plugins:
        return None
    return KMSSummary([_one_plugin(runs) for runs in plugins.values()], keys)


def _one_plugin(runs: Sequence[KMSPluginSummary]) -> KMSPluginSummary:
    """Return what one plugin did in several runs: its first trouble, and the sum of its calls."""
    troubled = (run for run in runs if run.state in PLUGIN_REMEDIES)
    shown = next(troubled, None) or next((run for run in runs if run.state == "ok"), runs[0])
    return msgspec.structs.replace(
        shown,
        calls=sum(run.calls for run in runs),
        unwrapped=sum(run.unwrapped for run in runs),
        refused=sum(run.refused for run in runs),
        failed=sum(run.failed for run in runs),
        write_key_id_sha256=next((run.write_key_id_sha256 for run in runs if run.write_key_id_sha256), None),
    )
