"""One look at one key: what stands there, what lies beside it, its copies, and what was written to it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.commands.explaining.history import history_of
from etcdfix.commands.explaining.impact import impact_of
from etcdfix.commands.explaining.value import Beside, examine_alone, look_beside
from etcdfix.copies.bit import Bit
from etcdfix.copies.finder import LookedInto
from etcdfix.copies.log import Log
from etcdfix.copies.model import Copy, Life, Wanted
from etcdfix.copies.revisions import life_of
from etcdfix.copies.search import Places, copies_of, looked_into, open_finders, problems_of
from etcdfix.errors import EndedEarly, SourceError
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress
from etcdfix.examine_jobs import Jobs
from etcdfix.graph.cluster import ClusterIndex, index_cluster
from etcdfix.model import Outcome
from etcdfix.remediation.backup.rows import with_records
from etcdfix.remediation.identify import identify
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.explain import Shows
from etcdfix.report.history import History
from etcdfix.report.impact import Impact
from etcdfix.sources.base import Source
from etcdfix.verdicts.deletability import Deletability, deletability_of

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_PLAIN_ENOUGH: Final = frozenset({Outcome.READABLE, Outcome.NOT_AN_OBJECT})
"""Of these nothing beside them tells more."""


class ExplainRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is told of a complete etcd key.

    Attributes:
        places: Where else to look for copies.
        assess: Everything that may depend on the object is in this etcd, and may be looked at.
        shows: What stands on the first screen.
        policy: How the object would be deleted through the API; None as it is under way, else as kubectl does.
    """

    key: bytes
    places: Places = Places()
    records: RecordPaths = RecordPaths()
    assess: bool = True
    shows: Shows = Shows.ALL
    policy: str | None = None


class KeyLook:
    """One look at one key, step by step.

    Attributes:
        found: What stands there; None where nothing does.
        beside: What lies beside it.
        cluster: Everything, where it was looked at.
        wanted: The object of which copies are looked for.
        problems: Why not everything could be read.
        ended: What ended the look early; None where nothing did.
    """

    def __init__(
        self, source: Source, request: ExplainRequest, plugins: KMSPlugins | None, progress: Progress
    ) -> None:
        self._source, self._request, self._plugins, self._progress = source, request, plugins, progress
        self._stored = source.get(request.key)
        self.examiner = Examiner.of_cluster(source, request, plugins)
        self.uid = self.examiner.kube_system_uid(source)
        self.found = self.examiner.examine(self._stored) if self._stored is not None else None
        self.beside = Beside(self.examiner, self.found) if self.found is not None else None
        self.cluster: ClusterIndex | None = None
        self.impact: Impact | None = None
        self.wanted = self._wanted(Life())
        self.copies: list[Copy] = []
        self.places: list[LookedInto] = []
        self.history: History | None = None
        self.no_repair = ""
        self.problems: list[str] = []
        self.ended: EndedEarly | None = None

    def examine(self, jobs: Jobs) -> None:
        """Examine what lies beside the value; everything, where it could be deleted or its impact is asked for.

        Raises:
            SourceError: Its impact is asked for, and nothing could be read.
        """
        found, beside, request = self.found, self.beside, self._request
        may_go = found is not None and deletability_of(found) is Deletability.DELETABLE
        if request.shows is Shows.IMPACT:
            self._examine_everything(jobs)
        elif may_go and request.assess and request.shows is Shows.ALL:
            with suppress(SourceError):  # who may not read everything may read what lies beside it
                self._examine_everything(jobs)
        if found is None or beside is None or found.verdict.outcome in _PLAIN_ENOUGH:
            return
        if self.cluster is None:
            ending = look_beside(self._source, self.examiner, beside, found.stored, self._progress)
            self.ended, self.problems = ending
        if beside.found is None and self.ended is None:
            lost = self.problems or (self.cluster is not None and self.cluster.index.problems)
            self.problems += [] if lost else ["the key went while the others were read: those may be newer"]
            examine_alone(self.examiner, beside, found.stored)
        self.found = beside.found or found
        self.wanted = self._wanted(Life())

    def _examine_everything(self, jobs: Jobs) -> None:
        self.cluster = index_cluster(
            self._source,
            self._request,
            keep=self.beside.add if self.beside is not None else lambda _found: 0,
            plugins=self._plugins,
            progress=self._progress,
            jobs=jobs,
            examiner=self.examiner,
            targets=(self._request.key,),
        )
        self.ended = self.cluster.ended

    def go_on(self, candidates: Mapping[Path, Examiner] | None) -> None:
        """Find out what its loss would set off, look for its copies, and at what was written to it."""
        try:
            self.assess()
            if self.ended is None:  # who ended the look does not want to wait for more
                self._look_for_copies(candidates or {})
        except KeyboardInterrupt as exc:
            self.ended = EndedEarly.of(exc)
            self.problems.append(f"{self.ended.reason} before the end")
            if self.cluster is not None and self.impact is None:
                self.cluster = msgspec.structs.replace(self.cluster, ended=self.ended)
                self.assess()

    def assess(self) -> None:
        """Find out what its loss would set off, where everything was looked at."""
        if self.cluster is not None:
            self.impact = impact_of(self.cluster, self._request.key, self.found, policy=self._request.policy)
            self.problems += self.cluster.index.problems

    def _look_for_copies(self, candidates: Mapping[Path, Examiner]) -> None:
        source, request, examiner = self._source, self._request, self.examiner
        with source.aside(), self._plugins.aside() if self._plugins is not None else nullcontext():
            self.wanted = self._wanted(self._life())
            identity = identify(source, examiner.apart(), request.records.directories)
            named = msgspec.structs.replace(request.places, progress=self._progress)
            places = with_records(named, request.records, identity)
            with open_finders(
                source, examiner, places, uid=self.uid, identity=identity, candidates=candidates
            ) as finders:
                self.copies = copies_of(self.wanted, finders)
                self.no_repair = next((one.why_not for one in finders if isinstance(one, Bit)), "")
                logs, whole = [one for one in finders if isinstance(one, Log)], request.shows is Shows.HISTORY
                self.history = history_of(
                    source, examiner, request.key, logs, self.problems, self._progress, whole=whole
                )
                self.places = looked_into(finders)
                self.problems += problems_of(finders)

    def _wanted(self, life: Life) -> Wanted:
        if self.found is not None:
            return Wanted.of(self.found, life)
        return Wanted.gone(self._request.key, self._request.layout, life)

    def _life(self) -> Life:
        try:
            return life_of(self._source, self.examiner, self._request.key, self._stored)
        except SourceError as exc:
            self.problems.append(f"what is kept of the key could not be read: {exc.message}")
            return Life()
