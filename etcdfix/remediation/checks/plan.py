"""What a reviewed plan expects of a key. It can refuse a deletion; there is nothing in it that could permit one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

import msgspec

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import ClusterIdentity, KnownBy, StoredValue, digest_of
from etcdfix.model.rules import Rule, acceptance, refuse
from etcdfix.model.storagekey import display
from etcdfix.remediation.cluster import Acceptances, Cluster
from etcdfix.remediation.same_etcd import older_state, other_etcd, other_id
from etcdfix.report.origin import same_fields
from etcdfix.report.plan import DECLARE_KEY_LOST, DeletionPlan, PlanEntry, meaning
from etcdfix.report.planfile import plan_key, time_of

MOST_AGE: Final = timedelta(minutes=15)
MOST_AGE_OF_A_RUN: Final = timedelta(hours=24)
"""A list of many objects takes longer to review; what counts of each is looked at live, whatever the age."""


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a plan that is held against what stands in etcd now."""

    kube_system_uid: str
    mod_revision: int
    value_sha256: str
    outcome: str
    cause: str
    transformer: str
    kms_key_id_sha256: str
    again: str

    def against(self, stored: StoredValue, cluster: ClusterIdentity) -> Iterator[RefusedByRule]:
        """Hold the record that was read against the plan: yield that it is of another cluster, or was written since."""
        # A plan that could not read the uid either is of an etcd with this cluster id: that was compared.
        nameless = not self.kube_system_uid and cluster.is_known and cluster.known_by is not KnownBy.VALUE
        if not nameless and (not cluster.uid or cluster.uid != self.kube_system_uid):
            theirs, ours = self.kube_system_uid or "unknown", cluster.uid or "unknown"
            yield refuse_plan(f"the plan is of the cluster {theirs}, this one is {ours}", self.again)
        value = digest_of(stored.value)
        if (stored.mod_revision, value) != (self.mod_revision, self.value_sha256):
            why = (
                f"{display(stored.key)} stands at mod_revision {stored.mod_revision} with {value}; the plan has "
                f"{self.mod_revision} with {self.value_sha256}"
            )
            yield refuse(Rule.EXPECTATION_DIFFERS, why, hint=f"scan again, and make a new plan: {self.again}")

    def against_verdict(self, found: Examination) -> Iterator[RefusedByRule]:
        """Hold the verdict against the plan: yield that it is another one."""
        verdict = found.verdict
        cause = verdict.cause.value if verdict.cause is not None else ""
        now = (verdict.outcome.value, cause, found.transformer, found.kms_key_id_sha256)
        then = (self.outcome, self.cause, self.transformer, self.kms_key_id_sha256)
        if now != then:
            key = display(found.stored.key)
            yield refuse_plan(
                f"{key}: the plan has it as {_shown(*then)}, and now it is {_shown(*now)}", self.again
            )


def refuse_plan(why: str, again: str) -> RefusedByRule:
    """Return the refusal to raise where a plan does not fit."""
    return refuse(Rule.PLAN, why, hint=f"make a new plan: {again}")


def _shown(outcome: str, cause: str, transformer: str, kms_key_id_sha256: str) -> str:
    key = f"{transformer or 'no known envelope'}" + (f"/{kms_key_id_sha256}" if kms_key_id_sha256 else "")
    return f"{outcome} ({cause}) under {key}"


def expectation_of(
    plan: DeletionPlan, key: bytes, cluster: Cluster, accepted: Acceptances, *, again: str, now: datetime
) -> Expectation:
    """Return what a plan expects of a key, where the plan fits at all; raises RefusedByRule."""
    check_fits(plan, cluster, accepted, again=again, now=now)
    left_out = next((left for left in plan.left_out if plan_key(left) == key), None)
    if left_out is not None:
        raise refuse_plan(f"the plan leaves {display(key)} out ({left_out.why}): {left_out.detail}", again)
    entries = list(islice((entry for entry in plan.entries if plan_key(entry) == key), 2))
    if not entries:
        raise refuse_plan(f"the plan does not list {display(key)}", again)
    if len(entries) > 1:
        raise refuse_plan(f"the plan lists {display(key)} more than once", again)
    (entry,) = entries
    for need in entry.needs:
        asked_live = need == acceptance(Rule.ENDS_CACHED_READS)
        if not asked_live and not _is_given(need, accepted.as_flags()):
            why = f"the plan says that the deletion of {display(key)} needs {need}"
            raise refuse(Rule.PLAN, why, hint=f"add it, if {meaning(need)}")
    return expectation_by(entry, plan.source.kube_system_uid or "", again)


def expectation_by(entry: PlanEntry, kube_system_uid: str, again: str) -> Expectation:
    """Return what an entry of a plan expects of its key."""
    same = same_fields(entry, Expectation)
    return Expectation(**same, kube_system_uid=kube_system_uid, again=again)


def check_fits(
    plan: DeletionPlan,
    cluster: Cluster,
    accepted: Acceptances,
    *,
    again: str,
    now: datetime,
    most_age: timedelta = MOST_AGE,
) -> None:
    """Refuse a plan that says nothing about this etcd as it is now; raises RefusedByRule."""
    why = _misfit(plan, cluster, now, most_age)
    if why:
        raise refuse_plan(why, again)
    # The uid of kube-system came along when the snapshot of one was restored into the other.
    here = cluster.source.describe()
    other = other_id(plan.source.cluster_id or "unknown", here.cluster_id or "unknown") or older_state(
        plan.source.revision, here.revision
    )
    if other and not plan.source.kube_system_uid:
        raise refuse_plan(f"the plan is of another etcd: {other}", again)
    if other and not accepted.accepts(Rule.OTHER_CLUSTER_ID):
        raise other_etcd("the plan", other, instead=f"make a new plan: {again}")


def _misfit(plan: DeletionPlan, cluster: Cluster, now: datetime, most_age: timedelta) -> str:
    made = time_of(plan.generated_at)
    assert made is not None  # load_plan has seen to it
    age = now - made
    if not plan.newest and not (cluster.is_kine and plan.source.type == "kine"):
        return "the plan was made from a snapshot or an old revision, which says nothing about now"
    if age < timedelta():
        return f"the plan is from the future ({plan.generated_at}): compare the clocks"
    if age > most_age:
        minutes, most = (int(span.total_seconds() // 60) for span in (age, most_age))
        return f"the plan is {minutes} minutes old; it holds for {most}"
    etcd_prefix = cluster.examiner.layout.prefix
    if plan.etcd_prefix.rstrip("/") != etcd_prefix.rstrip("/"):
        return f"the plan is of keys below {plan.etcd_prefix}, and here they are below {etcd_prefix}"
    planned = plan.encryption_config.sha256 if plan.encryption_config is not None else ""
    if planned != cluster.config_sha256:
        return "the plan was made with another encryption configuration"
    if (plan.kubernetes_version or "") != cluster.examiner.assumed_release:
        return "the plan was made with another --kubernetes-version"
    return ""


def _is_given(need: str, flags: Collection[str]) -> bool:
    """Say whether a flag was given; how a lost key is named in full, the deletion itself looks at."""
    option = need.partition(" ")[0]
    if option == DECLARE_KEY_LOST:
        return any(flag.startswith(f"{option} ") for flag in flags)
    return need in flags
