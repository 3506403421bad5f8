"""Everything that is found out before anything is changed; a dry run and a deletion walk the same steps.

Each check either adds to what is known or refuses with a rule of :mod:`~etcdfix.remediation.rules`. Nothing here
writes: the client's channel takes read methods only.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from etcdfix.deferred import Deferrable, Watch, unwatched
from etcdfix.errors import RefusedByRule
from etcdfix.impact.assess import Assessment, assess
from etcdfix.impact.builder import IndexBuilder
from etcdfix.impact.floor import floor_reason
from etcdfix.impact.grades import Risk
from etcdfix.model import Outcome, StoredValue
from etcdfix.pipeline import Examiner
from etcdfix.remediation.api_servers import APIAccess, ServerAnswers, ask_servers
from etcdfix.remediation.backup_file import digest
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.members import (
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
from etcdfix.remediation.pattern import Pattern, find_pattern
from etcdfix.remediation.rules import CLUSTER_BREAKING, Rule, refuse
from etcdfix.remediation.since import Since
from etcdfix.reports.plan_needs import declaration
from etcdfix.reports.safetext import key_arguments, quote_command
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import display
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.standing import FAILED, Standing, key_may_be_lost, standing_of

_INSTEAD: dict[Outcome, tuple[Rule, str, str]] = {
    Outcome.READABLE: (
        Rule.READABLE, "the object is readable", "delete it through the API: kubectl delete",
    ),
    Outcome.INCONSISTENT: (
        Rule.INCONSISTENT, "the API server accepts the object", "heal or delete it through the API: etcdfix get KEY",
    ),
    Outcome.NOT_AN_OBJECT: (
        Rule.NOT_AN_OBJECT, "the key holds no object of the API", "leave it: it is bookkeeping, or not Kubernetes'",
    ),
    Outcome.UNDETERMINED: (
        Rule.UNDETERMINED, "nothing is proven against the value", "find out more: etcdfix scan KEY -o yaml",
    ),
}  # fmt: skip


class Acceptances(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator expects and accepts, as given by flags.

    Attributes:
        expect_mod_revision: None for any.
        expect_value_sha256: ``sha256:<hex>`` of the stored bytes, "" for any.
        unchecked_members: Names or ids of members that need not be asked.
        unknown_cluster: Go on where no uid names the cluster.
        risk: ``cluster-breaking``, or "".
        key_lost: ``TRANSFORMER[/KEY-ID]`` that was declared lost for ever, or "".
        no_api_server: Go on where no API server could be asked.
    """

    expect_mod_revision: int | None = None
    expect_value_sha256: str = ""
    unchecked_members: tuple[str, ...] = ()
    unknown_cluster: bool = False
    risk: str = ""
    key_lost: str = ""
    no_api_server: bool = False

    def as_flags(self) -> tuple[str, ...]:
        """Return the flags that lift a refusal, for the record."""
        flags = [f"--accept-unchecked-member {name}" for name in self.unchecked_members]
        if self.unknown_cluster:
            flags.append("--accept-unknown-cluster")
        if self.risk:
            flags.append(f"--accept-risk {self.risk}")
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
        plugins: The KMS plugins behind it, None where none is asked.
        configured: An EncryptionConfiguration was given.
        config_sha256: ``sha256:<hex>`` of it, "" where a plan need not be held against it.
    """

    source: LiveSource
    examiner: Examiner
    plugins: Deferrable | None = None
    configured: bool = True
    config_sha256: str = ""

    def examine(self, stored: StoredValue) -> Examination:
        """Examine one value, waiting for its plugin."""
        if self.plugins is not None:
            self.plugins.deferring = False
        return self.examiner.examine(stored)


class Planned(msgspec.Struct, frozen=True):
    """What a plan has found out already, while it holds.

    Attributes:
        pattern: What was counted; its target is None, since nothing was examined again.
        revision: At which that was.
        risk: Grade of the deletion.
        breaking: The worst reason for it.
        effects: What the deletion sets off, as lines.
        dependents: How many objects it owned.
        broken: Keys of all values that the plan found broken.
    """

    pattern: Pattern
    revision: int
    risk: Risk
    breaking: str
    effects: tuple[str, ...]
    dependents: int = 0
    broken: frozenset[bytes] = frozenset()


Proof = Callable[["Cluster", Examination, str], Planned | str]
"""From a cluster, an examination and the cluster's uid to what a plan says of the value, or why it says nothing."""


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a key that may be changed.

    Attributes:
        reading: The linearizable read on which everything rests.
        found: The verdict, after all others under the same transformer were seen.
        pattern: What those came to.
        cluster_uid: uid of namespace kube-system, "" where unknown (and accepted).
        lease: Of the key, None for none.
        servers: What the API servers said.
        floor: Why deleting the object may break the cluster, "" where nothing says so.
        assessment: What a deletion sets off; None where nothing is known of the key, or a plan says it.
        planned: What a plan says; None where none was used.
        warnings: What a person should read before going on.
        declared_lost: The declaration was needed, and fits.
    """

    reading: KeyReading
    found: Examination
    pattern: Pattern
    cluster_uid: str
    lease: LeaseState | None
    servers: ServerAnswers
    floor: str
    assessment: Assessment | None
    planned: Planned | None
    warnings: tuple[str, ...]
    declared_lost: bool

    @property
    def stored(self) -> StoredValue:
        """The record that was examined."""
        return self.found.stored


def check_deletion(
    cluster: Cluster,
    key: bytes,
    accepted: Acceptances,
    *,
    api: APIAccess | None = None,
    proof: Proof | None = None,
    watch: Watch = unwatched,
    step: Step = no_step,
) -> Preflight:
    """Find out whether a value may be deleted, or refuse.

    Args:
        cluster: Where.
        key: Complete etcd key.
        accepted: Expectations and acceptances.
        api: Which API servers to ask; None for none.
        proof: Asks a plan for its counts, so that they need not be made again; None without a plan.
        watch: Counts the values of the pattern check for a display.
        step: Told the name of each check before it is made.

    Raises:
        RefusedByRule: A rule says no.
        AuthorizationRefused: The API server does not clearly say yes.
        SourceError: etcd could not be asked.
        ConfigurationError: The kubeconfig cannot be used.
    """
    require_api(api, accepted)
    step("check: configuration")
    if not cluster.configured:
        raise refuse(
            Rule.NO_CONFIGURATION,
            "no encryption configuration was given, so nothing can be proven",
            hint="--encryption-config FILE; for a cluster without encryption, one whose only provider is identity",
        )
    step("check: read the key")
    reading = read_key(cluster.source.client, key)
    stored = require_there(cluster, key, reading.stored)
    step("check: expectations")
    check_expectations(stored, accepted)
    step("check: examine")
    found = cluster.examine(stored)
    if standing_of(found) in {Standing.NOT_BROKEN, Standing.UNPROVEN}:
        raise _not_deletable(found)
    step("check: members")
    warnings = check_members(cluster, key, reading, accepted)
    step("check: alarms")
    warnings += check_alarms(cluster)
    step("check: cluster")
    uid = check_cluster(cluster, accepted)
    step("check: pattern")
    planned = _plan_for(cluster, found, uid, reading.revision, proof)
    if isinstance(planned, Planned):
        pattern, assessment = planned.pattern, None
        warnings.append(
            "counts and risk are those of the plan; of the rest, only what was written since was examined"
        )
    else:
        if proof is not None:
            warnings.append(f"the plan is not used: {planned}")
        pattern, assessment = _look_around(cluster, found, watch)
        assert pattern.target is not None  # else it would have been refused
        found = pattern.target
    if found.verdict.cause is Cause.KMS_UNREACHABLE and cluster.plugins is None:
        raise refuse(
            Rule.UNDETERMINED,
            f"{display(key)} is under KMS, and no plugin was asked: nothing is known of it",
            hint="leave --no-kms (ETCDFIX_NO_KMS) out; --kms-endpoint NAME=unix:///PATH says where the plugin listens",
        )
    declared = _check_verdict(found, pattern, accepted)
    step("check: API servers")
    servers = check_api_servers(found, uid, api, accepted)
    step("check: floor")
    floor = floor_reason(found.directory.group_resource, found.namespace) or _breaking(assessment, planned)
    if floor and accepted.risk != CLUSTER_BREAKING:
        raise refuse(
            Rule.FLOOR,
            f"{floor}; deleting this key may break the cluster",
            hint=f"if that is understood: --accept-risk {CLUSTER_BREAKING}",
        )
    step("check: lease")
    lease = read_lease(cluster.source.client, stored.lease) if stored.lease else None
    return Preflight(
        reading=reading,
        found=found,
        pattern=pattern,
        cluster_uid=uid,
        lease=lease,
        servers=servers,
        floor=floor,
        assessment=assessment,
        planned=planned if isinstance(planned, Planned) else None,
        warnings=tuple(warnings),
        declared_lost=declared,
    )


def _plan_for(
    cluster: Cluster, found: Examination, uid: str, revision: int, proof: Proof | None
) -> Planned | str:
    """Return what a plan says of a value, while nothing written since says otherwise; or why it is not used."""
    if proof is None:
        return "there is none"
    if found.verdict.outcome not in FAILED:
        return "the verdict on this value needs what the KMS plugin does for others"
    planned = proof(cluster, found, uid)
    if isinstance(planned, str):
        return planned
    if planned.dependents:
        # What becomes of them rests on their other owners, which may be gone by now: by the same plan, even.
        return "what it owns is looked at anew"
    look = Since(
        cluster.source, cluster.examiner, cluster.plugins, planned.revision, revision, planned.broken
    )
    return look.changed(found, planned.pattern) or planned


def _look_around(cluster: Cluster, found: Examination, watch: Watch) -> tuple[Pattern, Assessment | None]:
    """See in one pass what the other values under the same transformer do, and what depends on this one."""
    key = found.stored.key
    builder = IndexBuilder(cluster.examiner, cluster.source)
    pattern = find_pattern(cluster.source, cluster.examiner, found, cluster.plugins, watch, see=builder.add)
    index = builder.finish(cluster.source.problems)
    if pattern.target is None:
        raise refuse(
            Rule.MOVED, f"{display(key)} was changed while it was being examined", hint="examine it again"
        )
    if cluster.plugins is not None:
        cluster.plugins.deferring = False  # its history is looked at now, and each revision may wait
    return pattern, assess(index, cluster.source, cluster.examiner, key)


def _breaking(assessment: Assessment | None, planned: Planned | str) -> str:
    """Return the reason for which a deletion was found to be cluster-breaking, "" where it was not."""
    if isinstance(planned, Planned):
        return planned.breaking if planned.risk is Risk.CLUSTER_BREAKING else ""
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


def _not_deletable(found: Examination) -> RefusedByRule:
    rule, why, hint = _INSTEAD[found.verdict.outcome]
    key = found.stored.key
    command = hint.replace("KEY", quote_command(key_arguments(key)))
    return refuse(rule, f"{display(key)}: {why} ({found.verdict.message})", hint=command)


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
        if cluster.examine(other).verdict.outcome is Outcome.READABLE:
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


def check_cluster(cluster: Cluster, accepted: Acceptances) -> str:
    """Return the uid of namespace kube-system, "" where it is unknown and that was accepted.

    Raises:
        RefusedByRule: It is unknown.
    """
    uid = cluster.examiner.kube_system_uid(cluster.source)
    if uid is None and not accepted.unknown_cluster:
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            "the namespace kube-system is not readable here, so it is not certain which cluster this is",
            hint="mend that namespace first, or --accept-unknown-cluster",
        )
    return uid or ""


def _check_verdict(found: Examination, pattern: Pattern, accepted: Acceptances) -> bool:
    """Refuse what is not proven, or proven to be the configuration's fault; say whether the declaration was needed."""
    verdict = found.verdict
    lost = _declaration_fits(found, pattern, accepted)
    standing = standing_of(found)
    if verdict.outcome not in FAILED:
        if standing is not Standing.DECLARABLE or not lost:
            raise _not_deletable(found)
        return True
    key = display(found.stored.key)
    lift = f"only if that key is gone for ever: {declaration(found.transformer, found.kms_key_id_sha256)}"
    may_be_lost = key_may_be_lost(found)
    if standing is Standing.CURABLE or (standing is Standing.DECLARABLE and not lost):
        raise refuse(
            Rule.CURABLE_BY_CONFIGURATION,
            f"{key}: the configuration alone can cure this ({verdict.cause}: {verdict.message})",
            hint=f"mend the configuration; {lift}" if may_be_lost else "mend the configuration",
        )
    if standing is Standing.DECLARABLE:
        return True
    if standing is Standing.NEVER:
        raise refuse(
            Rule.NEVER_DELETABLE,
            f"{key}: {verdict.cause} is never a reason to delete ({verdict.message})",
            hint="see the remedies: "
            + quote_command(["etcdfix", "scan", *key_arguments(found.stored.key), "-o", "yaml"]),
        )
    if pattern.all.is_pattern:
        if not (lost and may_be_lost):
            tally = pattern.all
            raise refuse(
                Rule.PATTERN,
                f"under {pattern.transformer} {tally.failed + tally.undetermined} values do not open and "
                f"{tally.opened} do: that is the key or the configuration, not this object",
                hint=f"find the key; {lift}" if may_be_lost else "find out what damaged so many of them",
            )
        return True
    return False


def _declaration_fits(found: Examination, pattern: Pattern, accepted: Acceptances) -> bool:
    """Say whether ``--declare-key-lost`` speaks of this value's key; refuse one that speaks of another."""
    declared = accepted.key_lost
    if not declared:
        return False
    names = [found.transformer]
    tally = pattern.all
    if found.kms_key_id:
        with_key_id = {
            f"{found.transformer}/{found.kms_key_id}",
            f"{found.transformer}/{found.kms_key_id_sha256}",
        }
        digest_name = f"{found.transformer}/{found.kms_key_id_sha256}"
        if declared in with_key_id:
            tally, names = pattern.same_key_id, [declared]
        elif tally.opened or found.verdict.cause is Cause.KMS_UNREACHABLE:
            # Other key ids of this provider may answer: the declaration has to say which one is lost.
            names = [digest_name]
        else:
            names.append(digest_name)
    if declared not in names:
        raise refuse(
            Rule.DECLARATION,
            f"--declare-key-lost {declared} does not name the key of {display(found.stored.key)}",
            hint=f"it was written under {' or '.join(names)}",
        )
    # A key that opens what was written between the last failure and this value was not lost when this was written.
    if 0 < tally.last_failing < tally.last_opened:
        raise refuse(
            Rule.DECLARATION,
            f"{display(found.stored.key)} is newer than the last other value that does not open (mod_revision "
            f"{tally.last_failing}), and one from in between opens (mod_revision {tally.last_opened})",
            hint="the key that wrote it was not lost then: look at this object alone",
        )
    return True


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
    uid: str,
    api: APIAccess | None,
    accepted: Acceptances,
    *,
    readable_is_fine: bool = False,
) -> ServerAnswers:
    """Ask the API servers, if any were named, whether they read the object, and whether it may be deleted.

    Args:
        found: The object.
        uid: Of namespace kube-system, as etcd holds it.
        api: Which servers.
        accepted: Says whether it matters that none answers.
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
        kube_system_uid=uid,
        readable_is_fine=readable_is_fine,
    )
    if servers.authorization is None and not accepted.no_api_server:
        said = "; ".join(f"{asked.server}: {asked.detail}" for asked in servers.answers)
        raise refuse(
            Rule.NO_API_SERVER,
            f"no API server could say whether it reads {display(found.stored.key)} ({said})",
            hint="name another one: --server URL; only if there is none that could be asked: --accept-no-api-server",
        )
    return servers
