"""What is known of one etcd key now: every fact that a change of it rests on, each found once.

Nothing here writes, and nothing here depends on what a person accepts: that is for the checks
(:mod:`etcdfix.remediation.checks`). A fact that cannot be had raises the refusal that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from etcdfix.apiserver.objects import APIObject
from etcdfix.apiserver.reading import ask_servers
from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.examine.all import Progress, look_last, no_progress
from etcdfix.examine.readable_revision import ReadableRevisions
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import FAILED, protected_reason
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.graph.assess import assess
from etcdfix.graph.model import Assessment, Risk
from etcdfix.model.errors import EtcdfixError
from etcdfix.model.model import ClusterIdentity, Outcome, ReadableRevision, Repair, StoredValue
from etcdfix.model.providers import facts_of
from etcdfix.model.rules import Rule, refuse
from etcdfix.model.storagekey import display
from etcdfix.remediation.checks.cached_reads import UnsavedKin
from etcdfix.remediation.checks.key import newest_kubelet
from etcdfix.remediation.checks.servers import foretold_of
from etcdfix.remediation.checks.value import unfit_to_go
from etcdfix.remediation.cluster import Cluster, encrypted, find_cluster, looks_enveloped
from etcdfix.remediation.datastore import KeyReading, Landmark
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.facts import Facts, fact, must_be_had
from etcdfix.remediation.members import (
    ActiveAlarm,
    LeaseState,
    MemberSurvey,
    read_alarms,
    read_lease,
    survey_members,
)
from etcdfix.remediation.surroundings import Around, SameKeyEvidence, SameStart, look_around
from etcdfix.sources.live import LiveSource
from etcdfix.text.commands import scan

if TYPE_CHECKING:
    from etcdfix.remediation.change import ChangeRequest


class Home(NamedTuple):
    """How the key stands to which a moved value belongs; no mark where it does not hold the object."""

    mark: Landmark | None = None
    later: bool = False


class Present(Facts):
    """What is known of a key now. The landmarks of its cluster are read before anything else.

    Args:
        request: Whom to ask, and where backups are; nothing that it accepts is looked at.
        alone: The value is judged by itself: no pass over everything is needed to change it.
        ours: What stands there, if anything does, is what we put.
    """

    def __init__(
        self,
        cluster: Cluster,
        key: bytes,
        request: ChangeRequest,
        *,
        alone: bool = False,
        ours: bool = False,
        progress: Progress = no_progress,
        step: Step = no_step,
    ) -> None:
        super().__init__(step)
        self.cluster, self.key, self.request = cluster, key, request
        self.alone, self.ours, self._progress = alone, ours, progress
        step("check: landmarks")
        self.landmarks = cluster.now.landmarks(cluster.examiner.layout, target=key)

    @property
    def shown(self) -> str:
        """The key, for people."""
        return display(self.key)

    @property
    def absent(self) -> bool:
        """Nothing stands there."""
        return self.reading.stored is None

    @property
    def may_read(self) -> bool:
        """What stands there is what we put, so that it may well be read."""
        return self.ours and not self.absent

    def moved(self) -> Exception:
        """Return the refusal of a key that somebody wrote while it was looked at."""
        return refuse(
            Rule.MOVED, f"{self.shown} was changed while it was being examined", hint="examine it again"
        )

    @fact()
    def configuration(self) -> bool:
        """Whether anything is encrypted, as somebody said."""
        if not self.cluster.configured and not self.cluster.no_encryption:
            why = "no encryption configuration was given, so nothing can be proven"
            hint = "--encryption-config FILE; where nothing is encrypted at rest: --no-encryption"
            raise refuse(Rule.NO_CONFIGURATION, why, hint=hint)
        return self.cluster.configured

    @fact("read the key")
    def reading(self) -> KeyReading:
        """The linearizable read on which everything rests."""
        return self.cluster.now.read_key(self.key)

    @fact()
    def stored(self) -> StoredValue:
        """The record that stands there."""
        if self.reading.stored is not None:
            return self.reading.stored
        start = self.key if self.key.endswith(b"/") else self.key + b"/"
        below = next(iter(self.cluster.source.current(start)), None)
        if below is not None:
            why = f"{self.shown} is no key but the beginning of others, such as {display(below.key)}"
            raise refuse(Rule.NOT_ONE_KEY, why, hint="name exactly one key, in full")
        raise refuse(
            Rule.GONE,
            f"{self.shown} does not exist",
            hint=f"see what is there: {scan().line(self.request.run)}",
        )

    @fact("examine")
    def first(self) -> Examination:
        """What stands there, by itself."""
        if self.cluster.no_encryption and looks_enveloped(self.stored.value):
            raise encrypted(self.key)
        return self.cluster.examiner.examine(self.stored)

    @fact()
    def name(self) -> Examination:
        """What the key alone says: resource, namespace and name."""
        return self.cluster.examiner.independent_copy().examine(StoredValue(self.key, b"", 0, 0, 0, 0))

    @fact("members")
    def survey(self) -> MemberSurvey:
        """What each voting member holds; nothing has moved since the key was read."""
        survey = survey_members(self.cluster.client, self.key)
        if survey.reading.stored != self.reading.stored:
            raise self.moved()
        return survey

    @fact("alarms")
    def alarms(self) -> tuple[ActiveAlarm, ...]:
        """The alarms of etcd."""
        return read_alarms(self.cluster.client)

    @fact("cluster")
    def identity(self) -> ClusterIdentity:
        """Which cluster it is; perhaps unknown."""
        return find_cluster(self.cluster, self.request.record_paths.directories)

    @fact("release")
    def newest_kubelet(self) -> int | None:
        """The minor release of the newest kubelet, where a release was named and a Node can be read."""
        cluster = self.cluster
        if not cluster.examiner.assumed_release:
            return None
        if cluster.main is None or not self.identity.main_endpoints:
            return newest_kubelet(cluster.source, cluster.examiner)
        # API servers keep Nodes in the main etcd: what looks like one in another etcd shows nothing.
        with LiveSource(cluster.main) as source:
            return newest_kubelet(source, cluster.examiner)

    @property
    def release_proven(self) -> bool:
        """The API servers are of the release that was named or newer, so that what it dropped they cannot read."""
        minor = self.cluster.examiner.assumed_release.partition(".")[2]
        return self.newest_kubelet is not None and minor == str(self.newest_kubelet)

    @fact()
    def starts(self) -> SameStart:
        """Other values that begin as this one does."""
        return SameStart(self.stored)

    @fact()
    def kin(self) -> UnsavedKin:
        """Others of its kind whose encryption key is lost, and that are not saved."""
        request = self.request
        return UnsavedKin(self.first, request.rescued, request.record_paths.log_path, self.identity)

    @fact("everything else")
    def around(self) -> Around:
        """What one pass over everything showed; none is made for a value that may never go."""
        must_be_had(self.configuration)
        self._require_unfit(self.first)
        starts, kin = self.starts, self.kin

        def see(other: Examination) -> None:
            starts.see(other)
            kin.see(other)

        around = look_around(self.cluster, self.first, self._progress, see=see)
        if around.alike.target is None:
            raise self.moved()
        self._require_unfit(around.alike.target)  # a plugin may have answered otherwise meanwhile
        return around

    def _require_unfit(self, found: Examination) -> None:
        refusal = unfit_to_go(found, self.request.run)
        if refusal is not None:
            raise refusal

    @property
    def alike(self) -> SameKeyEvidence:
        """The value among those like it."""
        return self.around.alike

    @property
    def found(self) -> Examination:
        """The verdict: after all others were seen, where it rests on them."""
        if self.alone:
            return self.first
        assert self.alike.target is not None  # else it would have been refused
        return self.alike.target

    @fact()
    def assessment(self) -> Assessment | None:
        """What a deletion sets off; None where nothing is known of the key."""
        graph, cluster = self.around.graph, self.cluster
        # Earlier revisions, which are looked at here, speak for no value that is stored now.
        apart = cluster.examiner.independent_copy()
        with apart.without_recording():
            return assess(graph, cluster.source, apart, self.key)

    @property
    def protected(self) -> str:
        """Why a change of the object may break the cluster; "" where nothing says so."""
        found = self.found
        by_place = protected_reason(found.directory.group_resource, found.namespace)
        if by_place or self.alone or self.assessment is None:
            return by_place
        breaks = self.assessment.risk is Risk.CLUSTER_BREAKING
        return self.assessment.reasons[0].text if breaks else ""

    @fact()
    def home(self) -> Home:
        """Where a moved value belongs, and whether it stands there."""
        found, examiner = self.found, self.cluster.examiner
        there = self.cluster.now.read_key(found.verdict.belongs_to).stored
        if there is None:
            return Home()
        same = examiner.examine(there)
        if same.verdict.outcome is not Outcome.READABLE:
            return Home()
        moved = examiner.examine(msgspec.structs.replace(found.stored, key=there.key))
        ours, mark = examiner.plaintext(moved), Landmark(there.key, there.create_revision, there.mod_revision)
        if ours is not None and ours == examiner.plaintext(same):
            return Home(mark)
        uid = moved.decoded.uid if moved.decoded is not None else None
        same_uid = bool(uid) and same.decoded is not None and same.decoded.uid == uid
        later = same_uid and there.mod_revision > found.stored.mod_revision
        return Home(mark, later=True) if later else Home()

    def take_servers(self, servers: ServerAnswers) -> None:
        """Take what API servers said, where somebody else has asked them."""
        self.known["servers"] = servers

    @fact("API servers")
    def servers(self) -> ServerAnswers:
        """Whether API servers read the object, and whether it may be deleted; nothing where none was named."""
        api, held = self.request.api, not self.absent
        if api is None:
            return ServerAnswers()
        found = self.found if held else self.name
        # Where nothing rests on the object being unreadable, it does not matter how a server fails.
        foretold = foretold_of(found) if held and not self.may_read else None
        directory = found.directory
        where = found.namespace, found.name
        if held and self.found.verdict.cause is Cause.NOT_AN_OBJECTS_KEY:
            where = (
                "",
                "/".join(where),
            )  # no request can name that; who may delete it may delete any of the resource
        thing = APIObject(directory.group, directory.version, directory.resource, *where)
        return ask_servers(
            api, thing, self.identity, held=held, readable_is_fine=self.may_read, foretold=foretold
        )

    @fact("the plugin again")
    def second_look(self) -> Examination | None:
        """What it is once its KMS plugin, whose answer makes it damaged, is asked again; None for any other value."""
        found = self.found
        by_plugin = facts_of(found.transformer).under_kms and found.verdict.outcome in FAILED
        return look_last(self.cluster.examiner, found.stored) if by_plugin else None

    @fact("lease")
    def lease(self) -> LeaseState | None:
        """The lease of what stands there; None for none."""
        stored = self.reading.stored
        return read_lease(self.cluster.client, stored.lease) if stored is not None and stored.lease else None

    @fact()
    def readable(self) -> ReadableRevision | None:
        """An earlier revision of the value that still reads; None for none."""
        return ReadableRevisions(self.cluster.source, self.cluster.examiner).of(self.found).revision

    @fact()
    def unproven_repair(self) -> Repair | None:
        """The only repair of a value that nothing proves; it is told to whoever decides, and decides nothing."""
        if self.found.repair is not None:
            return None
        try:
            return self.cluster.examiner.closer.search_repair(self.found).repair
        except EtcdfixError:
            return None
