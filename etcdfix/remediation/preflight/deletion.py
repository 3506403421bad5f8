"""Everything that is found out before anything is changed; a dry run and a deletion walk the same steps.

Each check either adds to what is known or refuses with a rule of :mod:`~etcdfix.rules`. Nothing here
writes: the client's channel takes read methods only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec

from etcdfix.apiserver.servers import APIAccess, ServerAnswers
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, look_last, no_progress
from etcdfix.graph.assess import assess
from etcdfix.graph.model import Assessment, Risk
from etcdfix.model import ClusterIdentity, Outcome, ReadableRevision, Repair, StoredValue
from etcdfix.remediation.datastore import KeyReading, Landmark
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.preflight.api_servers import (
    check_api_servers,
    require_api,
    require_read_errors,
)
from etcdfix.remediation.preflight.cached_reads import Kin, RescuedCopies, check_cached_reads
from etcdfix.remediation.preflight.cluster import Acceptances, Cluster, check_cluster
from etcdfix.remediation.preflight.expectation import Expectation
from etcdfix.remediation.preflight.members import LeaseState, read_lease
from etcdfix.remediation.preflight.noencryption import encrypted, looks_enveloped
from etcdfix.remediation.preflight.proof import check_proof, not_deletable
from etcdfix.remediation.preflight.release import check_release
from etcdfix.remediation.preflight.similar_values import Alike
from etcdfix.remediation.preflight.surroundings import FRESH
from etcdfix.remediation.preflight.target import (
    check_alarms,
    check_expectations,
    check_members,
    moved_meanwhile,
    require_configuration,
    require_space,
    require_there,
)
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.storagekey import display
from etcdfix.text.commands import RunOptions
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.deletability import FAILED, Deletability, deletability_of, risks_of
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.protected import protected_reason

_ANY_RUN = RunOptions()


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a key that may be changed.

    Attributes:
        reading: The linearizable read on which everything rests.
        found: The verdict, after all others under the same transformer were seen.
        moved_to: The etcd key to which a moved value belongs and that holds the object too; None for all others.
        identity: Which cluster it is; unknown where that was accepted.
        protected: Why deleting the object may break the cluster, "" where nothing says so.
        assessment: What a deletion sets off; None where nothing is known of the key.
        warnings: What a person should read before going on.
        declared_lost: The declaration was needed, and fits.
        accepted: The flags that lift a refusal, whether they were needed or not.
        readable: An earlier revision of the value that still reads; None for none.
        candidate: The only repair of its bytes, where nothing proves it; it permits nothing and refuses nothing.
    """

    reading: KeyReading
    found: Examination
    alike: Alike
    moved_to: Landmark | None
    identity: ClusterIdentity
    lease: LeaseState | None
    servers: ServerAnswers
    protected: str
    assessment: Assessment | None
    warnings: tuple[str, ...]
    declared_lost: bool
    accepted: tuple[str, ...] = ()
    readable: ReadableRevision | None = None
    candidate: Repair | None = None

    @property
    def stored(self) -> StoredValue:
        """The record that was examined."""
        return self.found.stored


def check_deletion(
    cluster: Cluster,
    key: bytes,
    accepted: Acceptances,
    *,
    backup_directories: Sequence[Path] = (),
    api: APIAccess | None = None,
    expected: Expectation | None = None,
    act: str = "deleting this key",
    copies: RescuedCopies | None = None,
    run: RunOptions = _ANY_RUN,
    progress: Progress = no_progress,
    step: Step = no_step,
) -> Preflight:
    """Find out whether a value may be deleted, or refuse.

    ``act`` names the change in a refusal: a fix lets a value make room. ``copies`` is None where nothing
    is deleted: only a deletion ends cached reads.

    Raises:
        RefusedByRule: A rule says no.
        AuthorizationRefused: The API server does not clearly say yes.
        SourceError: etcd could not be asked.
        ConfigurationError: The kubeconfig cannot be used.
    """
    require_api(api, accepted)
    step("check: configuration")
    require_configuration(cluster)
    step("check: read the key")
    reading = cluster.now.read_key(key)
    stored = require_there(cluster, key, reading.stored)
    step("check: expectations")
    check_expectations(stored, accepted)
    step("check: examine")
    if cluster.no_encryption and looks_enveloped(stored.value):
        raise encrypted(key)
    found = cluster.examiner.examine(stored)
    if deletability_of(found) in {Deletability.NOT_BROKEN, Deletability.UNPROVEN}:
        raise not_deletable(found, run)
    step("check: members")
    warnings = check_members(cluster, key, reading, accepted)
    step("check: alarms")
    warnings += check_alarms(cluster)
    require_space(cluster.client, to_delete=True)
    step("check: cluster")
    identity = check_cluster(cluster, accepted, backup_directories)
    if expected is not None:
        step("check: plan")
        expected.check_stored(stored, identity)
    step("check: release")
    release_proven = check_release(cluster.source, cluster.examiner, accepted)
    step("check: everything else")
    kin = Kin(found, copies, identity) if copies is not None else None
    alike, assessment = _look_around(cluster, reading, found, progress, kin)
    assert alike.target is not None  # else it would have been refused
    found = alike.target
    if found.verdict.cause is Cause.KMS_UNREACHABLE and cluster.examiner.plugins is None:
        raise refuse(
            Rule.UNDETERMINED,
            f"{display(key)} is under KMS, and no plugin was asked: nothing is known of it",
            hint="leave --no-kms out; --kms-endpoint NAME=unix:///PATH says where the plugin listens",
        )
    step("check: proof")
    declared = check_proof(
        found,
        alike,
        declared=accepted.key_lost,
        risks=accepted.words,
        release_proven=release_proven,
        run=run,
    )
    moved_to = check_moved(cluster, found, accepted) if deletability_of(found) is Deletability.MOVED else None
    if expected is not None:
        expected.check_verdict(found)
    step("check: API servers")
    servers = check_api_servers(found, identity, api, accepted)
    if found.verdict.damage is Damage.POSSIBLE:
        require_read_errors(found, api, servers)
    if declared:
        check_outage(found, servers, accepted)
    step("check: the plugin again")
    check_plugin_again(cluster.examiner, found)
    if kin is not None:
        step("check: cached reads")
        warnings += check_cached_reads(kin, api, servers, identity, accepted)
    step("check: protected")
    protected = protected_reason(found.directory.group_resource, found.namespace) or _breaking(assessment)
    if protected and not accepted.accepts(Rule.CLUSTER_BREAKING):
        raise refuse(
            Rule.CLUSTER_BREAKING,
            f"{protected}; {act} may break the cluster",
            hint=f"if that is understood: {acceptance(Rule.CLUSTER_BREAKING)}",
        )
    step("check: lease")
    lease = read_lease(cluster.client, stored.lease) if stored.lease else None
    return Preflight(
        reading=reading,
        found=found,
        alike=alike,
        moved_to=moved_to,
        identity=identity,
        lease=lease,
        servers=servers,
        protected=protected,
        assessment=assessment,
        warnings=tuple(warnings),
        declared_lost=declared,
        accepted=accepted.as_flags(),
    )


def check_outage(found: Examination, servers: ServerAnswers, accepted: Acceptances) -> None:
    """Refuse to let a script declare a key lost whose plugin is only silent, where no API server answers either.

    Raises:
        RefusedByRule: Nobody could contradict.
    """
    silent = found.verdict.cause is Cause.KMS_UNREACHABLE
    if not silent or servers.authorization is not None or accepted.at_terminal:
        return
    raise refuse(
        Rule.NO_API_SERVER,
        f"the KMS plugin of {display(found.stored.key)} does not answer, which is what an outage looks like, and no "
        "API server said whether it reads the object",
        hint="--kubeconfig FILE; only if there is no API server: declare the key lost at a terminal, and type it there",
    )


def check_plugin_again(examiner: Examiner, found: Examination) -> None:
    """Ask a KMS plugin a second time whose answer makes a value damaged: one answer can be a wrong one.

    Raises:
        RefusedByRule: The value came to something else.
    """
    if not found.transformer.startswith("kms/") or found.verdict.outcome not in FAILED:
        return
    last, first = look_last(examiner, found.stored), found.verdict
    again = last.verdict
    same = (again.outcome, again.cause, again.damage) == (first.outcome, first.cause, first.damage)
    if same and set(risks_of(last)) <= set(risks_of(found)):
        return
    raise refuse(
        Rule.UNDETERMINED,
        f"{display(found.stored.key)} was {_said(found)}, and is {_said(last)} once its KMS plugin is asked a second "
        f"time: {again.message}",
        hint="the plugin does not always give the same answer: look at it, and at the KMS behind it",
    )


def _said(found: Examination) -> str:
    verdict = found.verdict
    words = [str(verdict.cause), f"damage {verdict.damage}", *risks_of(found)]
    return f"{verdict.outcome} ({', '.join(words)})"


def _look_around(
    cluster: Cluster, reading: KeyReading, found: Examination, progress: Progress, kin: Kin | None
) -> tuple[Alike, Assessment | None]:
    def see(other: Examination) -> None:
        if kin is not None:
            kin.see(other)

    key = found.stored.key
    around = (cluster.surroundings or FRESH).look(cluster, reading, found, progress, see=see, graph=True)
    if around.alike.target is None:
        raise moved_meanwhile(key)
    assert around.graph is not None  # it was asked for
    # Earlier revisions, which are looked at here, speak for no value that is stored now.
    apart = cluster.examiner.apart()
    with apart.plugins.aside() if apart.plugins is not None else nullcontext():
        return around.alike, assess(around.graph, cluster.source, apart, key)


def check_moved(cluster: Cluster, found: Examination, accepted: Acceptances) -> Landmark:
    """Return the etcd key to which a moved value belongs, where that key holds the object too.

    Raises:
        RefusedByRule: It does not, or only in a later state and that was not accepted.
        SourceError: etcd could not be asked.
    """
    stored, home = found.stored, found.verdict.belongs_to
    name = f"{display(stored.key)} holds a value of {display(home)}"
    there = cluster.now.read_key(home).stored
    only_here = refuse(
        Rule.VALUE_MOVED,
        f"{name}, and that key does not hold the same object: these bytes may be the only copy",
        hint=f"save them, and put the object back under {display(home)}, before anything is deleted",
    )
    if there is None:
        raise only_here
    same = cluster.examiner.examine(there)
    if same.verdict.outcome is not Outcome.READABLE:
        raise only_here
    ours = cluster.examiner.plaintext(cluster.examiner.examine(msgspec.structs.replace(stored, key=home)))
    theirs = cluster.examiner.plaintext(same)
    if ours is not None and ours == theirs:
        return Landmark(home, there.create_revision, there.mod_revision)
    moved = cluster.examiner.examine(msgspec.structs.replace(stored, key=home))
    uid = moved.decoded.uid if moved.decoded is not None else None
    same_uid = bool(uid) and same.decoded is not None and same.decoded.uid == uid
    if not same_uid or there.mod_revision <= stored.mod_revision:
        raise only_here
    if not accepted.accepts(Rule.ONLY_COPY):
        raise refuse(
            Rule.ONLY_COPY,
            f"{name}, and that key holds the same object in a later state: this state is only here",
            hint=f"if that is understood: {acceptance(Rule.ONLY_COPY)}",
        )
    return Landmark(home, there.create_revision, there.mod_revision)


def _breaking(assessment: Assessment | None) -> str:
    if assessment is None or assessment.risk is not Risk.CLUSTER_BREAKING:
        return ""
    return assessment.reasons[0].text
