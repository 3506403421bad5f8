"""Everything that is found out before anything is changed; a dry run and a deletion walk the same steps.

Each check either adds to what is known or refuses with a rule of :mod:`~etcdfix.remediation.rules`. Nothing here
writes: the client's channel takes read methods only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from etcdfix.apiserver.authorization import can_i
from etcdfix.apiserver.servers import Answer, APIAccess, ServerAnswers, ask_servers
from etcdfix.errors import SourceUnreachable
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, no_progress
from etcdfix.graph.assess import assess
from etcdfix.graph.builder import IndexBuilder
from etcdfix.graph.grades import protected_reason
from etcdfix.graph.model import Assessment, Risk
from etcdfix.model import Outcome, StoredValue
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.cluster_identity import ClusterIdentity
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.grounds import Grounds, RecordedAnswer
from etcdfix.remediation.identify import identify
from etcdfix.remediation.landmarks import Landmark
from etcdfix.remediation.preflight.alike import Alike, look_at_all
from etcdfix.remediation.preflight.expectation import Expectation
from etcdfix.remediation.preflight.members import (
    Agreement,
    AlarmKind,
    KeyReading,
    LeaseState,
    judge_copies,
    read_alarms,
    read_key,
    read_lease,
    survey_members,
)
from etcdfix.remediation.preflight.noencryption import Contradiction, encrypted, looks_enveloped
from etcdfix.remediation.preflight.proof import check_proof, not_deletable
from etcdfix.remediation.preflight.release import check_release
from etcdfix.remediation.rules import Rule, refuse
from etcdfix.sources.connection import EtcdConnection, transport_warnings
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import display
from etcdfix.text.safetext import quote_command
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.damage import PEEK_CHECKS
from etcdfix.verdicts.deletability import AcceptRisk, Deletability, deletability_of
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_loss import KeyCounts

MAIN_ETCD: Final = "main etcd"
"""How warnings name the etcd that holds namespace kube-system, where it is another one."""


class Acceptances(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator expects and accepts, as given by flags.

    Attributes:
        expect_mod_revision: None for any.
        expect_value_sha256: ``sha256:<hex>`` of the stored bytes, "" for any.
        unchecked_members: Names or ids of members that need not be asked.
        unknown_cluster: Go on where no uid names the cluster.
        unknown_release: Go on where no Node bears out the release that was named.
        risks: What ``--accept-risk`` names; each lifts its own rule.
        key_lost: ``TRANSFORMER[/KEY-ID]`` that was declared lost for ever, or "".
        no_api_server: Go on where no API server could be asked.
    """

    expect_mod_revision: int | None = None
    expect_value_sha256: str = ""
    unchecked_members: tuple[str, ...] = ()
    unknown_cluster: bool = False
    unknown_release: bool = False
    risks: tuple[AcceptRisk, ...] = ()
    key_lost: str = ""
    no_api_server: bool = False

    def as_flags(self) -> tuple[str, ...]:
        """Return the flags that lift a refusal, for the record."""
        flags = [f"--accept-unchecked-member {name}" for name in self.unchecked_members]
        if self.unknown_cluster:
            flags.append("--accept-unknown-cluster")
        if self.unknown_release:
            flags.append("--accept-unknown-release")
        flags += [f"--accept-risk {risk}" for risk in self.risks]
        if self.key_lost:
            flags.append(f"--declare-key-lost {self.key_lost}")
        if self.no_api_server:
            flags.append("--accept-no-api-server")
        return tuple(flags)


class Cluster(msgspec.Struct, frozen=True):
    """A live etcd and how its values are read.

    Attributes:
        source: Reads keys, and holds the connection.
        examiner: Says what each value is; it knows the custom resources.
        configured: An EncryptionConfiguration was given.
        no_encryption: Instead, the operator says that this cluster encrypts nothing at rest.
        config_sha256: ``sha256:<hex>`` of it, "" where none was given.
        release_source: Where the release comes from that the examiner assumes, "" for none.
        main: How to reach the main etcd, where one was named; it holds namespace kube-system.
        main_named: It was named on purpose, so that it must be of the same cluster.
    """

    source: LiveSource
    examiner: Examiner
    configured: bool = True
    config_sha256: str = ""
    release_source: str = ""
    no_encryption: bool = False
    main: EtcdConnection | None = None
    main_named: bool = False


def grounds_of(
    cluster: Cluster,
    found: Examination,
    servers: ServerAnswers,
    identity: ClusterIdentity,
    counts: Mapping[KeyName, KeyCounts] = MappingProxyType({}),
) -> Grounds:
    """Return what a change rests on, for the record.

    Args:
        cluster: Where, and how it was read.
        found: The value that is changed, or put back.
        servers: What the API servers said of it.
        identity: Which cluster it is.
        counts: Of the values under its encryption keys, where they were counted.
    """
    return Grounds(
        configuration_sha256=cluster.config_sha256 or None,
        no_encryption=cluster.no_encryption,
        rule=found.rule,
        transformer=found.transformer,
        key_fingerprints=found.key_fingerprints,
        kms_key_id_sha256=found.kms_key_id_sha256,
        counts=tuple(counts.values()),
        release=cluster.examiner.assumed_release,
        release_source=cluster.release_source,
        warnings=(
            *transport_warnings(cluster.source.client.connection),
            *(transport_warnings(cluster.main, name=MAIN_ETCD) if cluster.main is not None else ()),
        ),
        server_answers=tuple(
            RecordedAnswer(each.server, f"{each.answer}: {each.detail}" if each.detail else each.answer.value)
            for each in servers.answers
        ),
        cluster=identity,
        peek=peek_lines(found),
    )


def peek_lines(found: Examination) -> tuple[str, ...]:
    """Return what a look without tag or padding showed, one line for each check."""
    seen = (evidence for evidence in found.verdict.evidence if evidence.check in PEEK_CHECKS)
    return tuple(f"{e.check}: {e.result}; {e.detail}" if e.detail else f"{e.check}: {e.result}" for e in seen)


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
        floor: Why deleting the object may break the cluster, "" where nothing says so.
        assessment: What a deletion sets off; None where nothing is known of the key.
        warnings: What a person should read before going on.
        declared_lost: The declaration was needed, and fits.
        accepted: The flags that lift a refusal, whether they were needed or not.
    """

    reading: KeyReading
    found: Examination
    alike: Alike
    moved_to: Landmark | None
    identity: ClusterIdentity
    lease: LeaseState | None
    servers: ServerAnswers
    floor: str
    assessment: Assessment | None
    warnings: tuple[str, ...]
    declared_lost: bool
    accepted: tuple[str, ...] = ()

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
        found, alike, declared=accepted.key_lost, risks=accepted.risks, release_proven=release_proven
    )
    moved_to = check_moved(cluster, found, accepted) if deletability_of(found) is Deletability.MOVED else None
    if expected is not None:
        expected.check_verdict(found)
    step("check: API servers")
    servers = check_api_servers(found, identity, api, accepted)
    step("check: floor")
    floor = protected_reason(found.directory.group_resource, found.namespace) or _breaking(assessment)
    if floor and AcceptRisk.CLUSTER_BREAKING not in accepted.risks:
        raise refuse(
            Rule.FLOOR,
            f"{floor}; deleting this key may break the cluster",
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
        floor=floor,
        assessment=assessment,
        warnings=tuple(warnings),
        declared_lost=declared,
        accepted=accepted.as_flags(),
    )


def _look_around(cluster: Cluster, found: Examination, progress: Progress) -> tuple[Alike, Assessment | None]:
    """See in one pass what the other values under the same encryption key do, and what depends on this one."""
    key = found.stored.key
    builder = IndexBuilder(cluster.examiner, cluster.source)
    alike = look_at_all(cluster.source, cluster.examiner, found, progress, see=builder.add)
    check_no_encryption(cluster, found.stored)
    _require_everything(cluster)
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


def _require_everything(cluster: Cluster) -> None:
    """Refuse where not all could be read: what was not seen may be what speaks against a change."""
    if cluster.source.problems:
        raise SourceUnreachable(
            f"a change is decided by everything in etcd, and not all of it could be read: {cluster.source.problems[0]}",
            hint="nothing was changed; scan says what can be read",
        )


def check_no_encryption(cluster: Cluster, value: StoredValue) -> None:
    """Hold every value in this etcd, and one that is changed or put, against ``--no-encryption``, where that was given.

    Whatever the storage prefix: under another one lies another cluster, or the same one of before. Where the user may
    read no more than this prefix, the source says so.

    Raises:
        RefusedByRule: One of them is encrypted.
        SourceError: etcd could not be asked, or not all of it could be read.
    """
    if not cluster.no_encryption:
        return
    contradiction = Contradiction()
    contradiction.see(value)
    for stored in cluster.source.current(b""):
        contradiction.see(stored)
    contradiction.check()
    _require_everything(cluster)


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
            f"members do not hold the same for {display(key)}: {who}",
            hint="replace that member (etcdctl member remove, then add it empty) before anything is changed",
        )
    for other in () if readable_is_fine else survey.distinct_values():
        if cluster.examiner.examine(other).verdict.outcome is Outcome.READABLE:
            raise refuse(
                Rule.MEMBERS_DISAGREE,
                f"a member holds a readable copy of {display(key)}",
                hint="replace the member that does not, before anything is deleted",
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
                hint="replace the member whose data differs before anything is deleted",
            )
        consequence = "; a restore would fail until there is room" if alarm.kind is AlarmKind.NOSPACE else ""
        warnings.append(f"member {alarm.label} has raised the alarm {alarm.kind}{consequence}")
    return warnings


def check_cluster(
    cluster: Cluster, accepted: Acceptances, backup_directories: Sequence[Path] = ()
) -> ClusterIdentity:
    """Return which cluster this is; unknown where that was accepted.

    Raises:
        RefusedByRule: It is unknown, or no Namespace at all can be read under this prefix, or the main etcd that was
            named belongs to another cluster.
        SourceError: etcd, or the main etcd, could not be asked.
    """
    identity = find_cluster(cluster, backup_directories)
    if identity.is_known:
        return identity
    if not accepted.unknown_cluster:
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            "there is no namespace kube-system here, so it is not certain which cluster this is",
            hint="where its main etcd is another one: --main-endpoints LIST, or --manifest FILE; else "
            "--accept-unknown-cluster",
        )
    if not _has_namespace(cluster):
        # Anything may lie under a prefix of which nothing says that an API server stores there.
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            f"no Namespace can be read under {cluster.examiner.layout.prefix}: nothing shows that it is the storage "
            "prefix of a cluster, or that the configuration fits",
            hint="--etcd-prefix, and --encryption-config where namespaces are encrypted",
        )
    return identity


def find_cluster(cluster: Cluster, backup_directories: Sequence[Path] = ()) -> ClusterIdentity:
    """Return which cluster this is, by its own etcd or by the main one that was named.

    Raises:
        RefusedByRule: The main etcd that was named does not say, or belongs to another cluster.
        SourceError: etcd, or the main etcd, could not be asked.
    """
    identity = identify(cluster.source, cluster.examiner, backup_directories)
    if cluster.main is not None and (cluster.main_named or not identity.is_known):
        return _with_main(cluster, cluster.main, identity, backup_directories)
    return identity


def _with_main(
    cluster: Cluster, connection: EtcdConnection, here: ClusterIdentity, backup_directories: Sequence[Path]
) -> ClusterIdentity:
    """Ask the main etcd which cluster it is."""
    endpoints = ", ".join(connection.endpoints)
    with LiveSource(connection) as source:
        main = identify(source, cluster.examiner, backup_directories)
    if not main.is_known:
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            f"there is no namespace kube-system in the main etcd at {endpoints} either",
            hint="name the etcd of the API servers' --etcd-servers, and their --etcd-prefix",
        )
    if not here.is_known:
        return msgspec.structs.replace(main, main_endpoints=connection.endpoints)
    if not here.is_same(main):
        raise refuse(
            Rule.OTHER_CLUSTER,
            f"this etcd holds the cluster with {here.describe()}, the main etcd at {endpoints} the one with "
            f"{main.describe()}",
            hint="leave --main-endpoints out: this etcd has a namespace kube-system of its own",
        )
    return here


def _has_namespace(cluster: Cluster) -> bool:
    return any(
        cluster.examiner.examine(stored).verdict.outcome is Outcome.READABLE
        for stored in cluster.source.current(cluster.examiner.layout.prefix_bytes + b"namespaces/")
    )


def require_api(api: APIAccess | None, accepted: Acceptances) -> None:
    """Refuse a declaration where no API server can contradict it.

    Raises:
        RefusedByRule: None was named, and that is not accepted.
    """
    if accepted.key_lost and api is None and not accepted.no_api_server:
        raise refuse(
            Rule.NO_API_SERVER,
            "--declare-key-lost: no API server is asked whether it has the key and reads the object",
            hint="--kubeconfig FILE; only if there is none that could be asked: --accept-no-api-server",
        )


def check_api_servers(
    found: Examination,
    identity: ClusterIdentity,
    api: APIAccess | None,
    accepted: Acceptances,
    *,
    held: bool = True,
    readable_is_fine: bool = False,
) -> ServerAnswers:
    """Ask the API servers, if any were named, whether they read the object, and whether it may be deleted.

    Args:
        found: The object.
        identity: Which cluster etcd holds.
        api: Which servers.
        accepted: Says whether it matters that none answers.
        held: etcd holds the object.
        readable_is_fine: The change does not rest on the object being unreadable.

    Raises:
        RefusedByRule: One reads the object, or none answered.
        AuthorizationRefused: One does not clearly say yes.
        ConfigurationError: The kubeconfig cannot be used.
    """
    if api is None:
        return ServerAnswers()
    directory = found.directory
    servers = ask_servers(
        api.kubeconfig,
        api.context,
        api.servers,
        group=directory.group,
        version=directory.version,
        resource=directory.resource,
        namespace=found.namespace,
        name=found.name,
        cluster=identity,
        held=held,
        readable_is_fine=readable_is_fine,
    )
    if servers.authorization is None and not accepted.no_api_server:
        said = "; ".join(f"{asked.server}: {asked.detail}" for asked in servers.answers)
        may = can_i("get", directory.group, directory.resource, found.namespace, found.name)
        denied = any(asked.answer is Answer.DENIED for asked in servers.answers)
        granted = f"have the user allowed to get it ({may}), or " if denied else ""
        raise refuse(
            Rule.NO_API_SERVER,
            f"no API server could say whether it reads {display(found.stored.key)} ({said})",
            hint=f"{granted}name another one: --server URL; only if there is none that could be asked: "
            "--accept-no-api-server",
        )
    return servers
