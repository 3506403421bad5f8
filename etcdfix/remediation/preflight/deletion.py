"""Everything that is found out before anything is changed; a dry run and a deletion walk the same steps.

Each check either adds to what is known or refuses with a rule of :mod:`~etcdfix.rules`. Nothing here
writes: the client's channel takes read methods only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from etcdfix.apiserver.servers import APIAccess, ServerAnswers
from etcdfix.examine_all import Progress, no_progress
from etcdfix.graph.assess import assess
from etcdfix.graph.builder import IndexBuilder
from etcdfix.graph.model import Assessment, Risk
from etcdfix.model import ClusterIdentity, Outcome, ReadableRevision, StoredValue
from etcdfix.readable_revision import ReadableRevisions
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.landmarks import Landmark
from etcdfix.remediation.preflight.api_servers import check_api_servers, require_api
from etcdfix.remediation.preflight.cluster import Acceptances, Cluster, check_cluster, require_everything
from etcdfix.remediation.preflight.expectation import Expectation
from etcdfix.remediation.preflight.members import (
    Agreement,
    AlarmKind,
    KeyReading,
    LeaseState,
    MemberSurvey,
    judge_copies,
    read_alarms,
    read_key,
    read_lease,
    survey_members,
)
from etcdfix.remediation.preflight.noencryption import check_no_encryption, encrypted, looks_enveloped
from etcdfix.remediation.preflight.proof import check_proof, not_deletable
from etcdfix.remediation.preflight.release import check_release
from etcdfix.remediation.preflight.similar_values import Alike, look_at_all
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.text.commands import RepeatedOptions
from etcdfix.text.safetext import quote_command
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.deletability import AcceptRisk, Deletability, deletability_of
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.protected import protected_reason

_ANYWHERE = RepeatedOptions()


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a key that may be changed.

    Attributes:
        reading: The linearizable read on which everything rests.
        found: The verdict, after all others under the same transformer were seen.
        alike: What those came to.
        moved_to: The etcd key to which a moved value belongs and that holds the object too; None for all others.
        identity: Which cluster it is; unknown where that was accepted.
        lease: Of the key, None for none.
        servers: What the API servers said.
        protected: Why deleting the object may break the cluster, "" where nothing says so.
        assessment: What a deletion sets off; None where nothing is known of the key.
        warnings: What a person should read before going on.
        declared_lost: The declaration was needed, and fits.
        accepted: The flags that lift a refusal, whether they were needed or not.
        readable: An earlier revision of the value that still reads; None for none.
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
    again: RepeatedOptions = _ANYWHERE,
    progress: Progress = no_progress,
    step: Step = no_step,
) -> Preflight:
    """Find out whether a value may be deleted, or refuse.

    Args:
        cluster: Where.
        key: Complete etcd key.
        accepted: Expectations and acceptances.
        backup_directories: Where backups lie, which may say which cluster this is.
        api: Which API servers to ask; None for none.
        expected: By a plan, which may add a refusal; None without one.
        act: What is to be done, as a refusal names it: a restore lets a value make room.
        again: Options that a command must repeat.
        progress: Counts the values of the pattern check for a display.
        step: Told the name of each check before it is made.

    Raises:
        RefusedByRule: A rule says no.
        AuthorizationRefused: The API server does not clearly say yes.
        SourceError: etcd could not be asked.
        ConfigurationError: The kubeconfig cannot be used.
    """
    require_api(api, accepted)
    step("check: configuration")
    if not cluster.configured and not cluster.no_encryption:
        raise refuse(
            Rule.NO_CONFIGURATION,
            "no encryption configuration was given, so nothing can be proven",
            hint="--encryption-config FILE; where nothing is encrypted at rest: --no-encryption",
        )
    step("check: read the key")
    reading = read_key(cluster.source.client, key)
    stored = require_there(cluster, key, reading.stored)
    step("check: expectations")
    check_expectations(stored, accepted)
    step("check: examine")
    if cluster.no_encryption and looks_enveloped(stored.value):
        raise encrypted(key)
    found = cluster.examiner.examine(stored)
    if deletability_of(found) in {Deletability.NOT_BROKEN, Deletability.UNPROVEN}:
        raise not_deletable(found)
    step("check: members")
    warnings = check_members(cluster, key, reading, accepted)
    step("check: alarms")
    warnings += check_alarms(cluster)
    step("check: cluster")
    identity = check_cluster(cluster, accepted, backup_directories)
    if expected is not None:
        step("check: plan")
        expected.check_stored(stored, identity)
    step("check: release")
    release_proven = check_release(cluster.source, cluster.examiner, accept_unknown=accepted.unknown_release)
    step("check: everything else")
    alike, assessment = _look_around(cluster, found, progress)
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
        risks=accepted.risks,
        release_proven=release_proven,
        again=again,
    )
    moved_to = check_moved(cluster, found, accepted) if deletability_of(found) is Deletability.MOVED else None
    if expected is not None:
        expected.check_verdict(found)
    step("check: API servers")
    servers = check_api_servers(found, identity, api, accepted)
    step("check: protected")
    protected = protected_reason(found.directory.group_resource, found.namespace) or _breaking(assessment)
    if protected and AcceptRisk.CLUSTER_BREAKING not in accepted.risks:
        raise refuse(
            Rule.PROTECTED,
            f"{protected}; {act} may break the cluster",
            hint=f"if that is understood: --accept-risk {AcceptRisk.CLUSTER_BREAKING}",
        )
    step("check: lease")
    lease = read_lease(cluster.source.client, stored.lease) if stored.lease else None
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
        readable=ReadableRevisions(cluster.source, cluster.examiner).of(found).revision,
    )


def _look_around(cluster: Cluster, found: Examination, progress: Progress) -> tuple[Alike, Assessment | None]:
    """See in one pass what the other values under the same encryption key do, and what depends on this one."""
    key = found.stored.key
    builder = IndexBuilder(cluster.examiner, cluster.source)
    alike = look_at_all(cluster.source, cluster.examiner, found, progress, see=builder.add)
    check_no_encryption(cluster, found.stored)
    require_everything(cluster)
    index = builder.finish()
    if alike.target is None:
        raise refuse(
            Rule.MOVED, f"{display(key)} was changed while it was being examined", hint="examine it again"
        )
    return alike, assess(index, cluster.source, cluster.examiner, key)


def check_moved(cluster: Cluster, found: Examination, accepted: Acceptances) -> Landmark:
    """Return the etcd key to which a moved value belongs, where that key holds the object too.

    Raises:
        RefusedByRule: It does not, or only in a later state and that was not accepted.
        SourceError: etcd could not be asked.
    """
    stored, home = found.stored, found.verdict.belongs_to
    name = f"{display(stored.key)} holds a value of {display(home)}"
    there = read_key(cluster.source.client, home).stored
    only_here = refuse(
        Rule.ONLY_COPY,
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
    if AcceptRisk.ONLY_COPY not in accepted.risks:
        raise refuse(
            Rule.RISK,
            f"{name}, and that key holds the same object in a later state: this state is only here",
            hint=f"if that is understood: --accept-risk {AcceptRisk.ONLY_COPY}",
        )
    return Landmark(home, there.create_revision, there.mod_revision)


def _breaking(assessment: Assessment | None) -> str:
    """Return the reason for which a deletion was found to be cluster-breaking, "" where it was not."""
    if assessment is None or assessment.risk is not Risk.CLUSTER_BREAKING:
        return ""
    return assessment.reasons[0].text


def require_there(cluster: Cluster, key: bytes, stored: StoredValue | None) -> StoredValue:
    """Return the record that was read.

    Raises:
        RefusedByRule: There is none; if only others begin like this key, that is said.
    """
    if stored is not None:
        return stored
    below = next(iter(cluster.source.current(key if key.endswith(b"/") else key + b"/")), None)
    if below is not None:
        raise refuse(
            Rule.NOT_ONE_KEY,
            f"{display(key)} is no key but the beginning of others, such as {display(below.key)}",
            hint="name exactly one key, in full",
        )
    raise refuse(Rule.GONE, f"{display(key)} does not exist", hint="see what is there: etcdfix scan")


def check_expectations(stored: StoredValue, accepted: Acceptances) -> None:
    """Hold a record against what the operator expects.

    Raises:
        RefusedByRule: It is another one.
    """
    expected = accepted.expect_mod_revision
    if expected is not None and stored.mod_revision != expected:
        raise refuse(
            Rule.EXPECTATION_DIFFERS,
            f"{display(stored.key)} stands at mod_revision {stored.mod_revision}, not at {expected}",
            hint="examine it again: somebody has written it since",
        )
    found = digest(stored.value)
    if accepted.expect_value_sha256 and accepted.expect_value_sha256 != found:
        raise refuse(
            Rule.EXPECTATION_DIFFERS,
            f"the value of {display(stored.key)} has {found}, not {accepted.expect_value_sha256}",
            hint="examine it again: it is another value",
        )


def _good_copy(cluster: Cluster, survey: MemberSurvey, *, readable_is_fine: bool) -> str:
    """Return how to save the copy that reads of a member that differs; "" where there is none.

    To replace that member, as one does with one that differs, would destroy a good copy.
    """
    for copy in () if readable_is_fine else survey.copies:
        if copy.stored is None or copy.stored == survey.reading.stored:
            continue
        if cluster.examiner.examine(copy.stored).verdict.outcome is Outcome.READABLE:
            there = ("--endpoints", copy.endpoint, *cluster.source.client.connection.access_options)
            save = RepeatedOptions(source=there).save_snapshot("good.db")
            return (
                f"{copy.label} at {copy.endpoint} holds a copy that reads: do not remove, wipe or restart that member; "
                f"save what it holds: {save}"
            )
    return ""


def check_members(
    cluster: Cluster,
    key: bytes,
    reading: KeyReading,
    accepted: Acceptances,
    *,
    readable_is_fine: bool = False,
) -> list[str]:
    """Ask every voting member for its copy of the key; return what to warn of.

    Args:
        cluster: To ask.
        key: Whose copies.
        reading: What was examined.
        accepted: Names the members that need not answer.
        readable_is_fine: The value is known to be readable; otherwise such a copy shows that deletion is no way out.

    Raises:
        RefusedByRule: They differ, one holds a readable copy, one could not be asked, or the key moved meanwhile.
    """
    survey = survey_members(cluster.source.client, key)
    if survey.reading.stored != reading.stored:
        raise refuse(
            Rule.MOVED, f"{display(key)} was changed while it was being examined", hint="examine it again"
        )
    judgement = judge_copies(survey, accepted=accepted.unchecked_members)
    if judgement.agreement is Agreement.DISAGREE:
        who = "; ".join(copy.describe() for copy in judgement.differing)
        raise refuse(
            Rule.MEMBERS_DISAGREE,
            f"etcd members hold different values for {display(key)}: {who}",
            hint=_good_copy(cluster, survey, readable_is_fine=readable_is_fine)
            or "replace that member (etcdctl member remove, then add it empty) before anything is changed",
        )
    for other in () if readable_is_fine else survey.distinct_values():
        if cluster.examiner.examine(other).verdict.outcome is Outcome.READABLE:
            raise refuse(
                Rule.MEMBERS_DISAGREE,
                f"a member holds a readable copy of {display(key)}",
                hint="replace the member that does not, before anything is changed",
            )
    if judgement.agreement is Agreement.UNCHECKED:
        who = "; ".join(copy.describe() for copy in judgement.unchecked)
        name = judgement.unchecked[0].name or f"{judgement.unchecked[0].member_id:x}"
        raise refuse(
            Rule.MEMBER_UNCHECKED,
            f"not every member could be asked: {who}",
            hint="start it, name its address in --endpoints, or "
            + quote_command(["--accept-unchecked-member", name]),
        )
    voters, read = len(survey.copies), len(survey.copies) - len(judgement.accepted)
    if 2 * read <= voters:
        raise refuse(
            Rule.MEMBER_UNCHECKED,
            f"only {read} of {voters} voting members could be asked: no majority, whatever is accepted",
            hint="start the others, or name their addresses in --endpoints",
        )
    warnings = [f"member {copy.label} was not asked, as accepted" for copy in judgement.accepted]
    unused = set(accepted.unchecked_members) - {
        name for copy in judgement.accepted for name in (copy.name, f"{copy.member_id:x}")
    }
    warnings += [
        f"--accept-unchecked-member {name} was not needed, or fits no member" for name in sorted(unused)
    ]
    return warnings


def check_alarms(cluster: Cluster) -> list[str]:
    """Look for etcd's alarms; return what to warn of.

    Raises:
        RefusedByRule: A member says that its data is corrupt.
    """
    warnings = []
    for alarm in read_alarms(cluster.source.client):
        if alarm.kind is AlarmKind.CORRUPT:
            raise refuse(
                Rule.CORRUPT_ALARM,
                f"member {alarm.label} has raised etcd's CORRUPT alarm",
                hint="replace the member whose data differs before anything is changed",
            )
        consequence = "; a restore would fail until there is room" if alarm.kind is AlarmKind.NOSPACE else ""
        warnings.append(f"member {alarm.label} has raised the alarm {alarm.kind}{consequence}")
    return warnings
