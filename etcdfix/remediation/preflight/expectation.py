"""What a reviewed plan expects of a key. It can refuse a deletion; there is nothing in it that could permit one."""

from __future__ import annotations

import msgspec

from etcdfix.errors import RefusedByRule
from etcdfix.model import StoredValue
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.cluster_identity import ClusterIdentity, KnownBy
from etcdfix.remediation.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.verdicts.examination import Examination


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a plan that is held against what stands in etcd now.

    Attributes:
        kube_system_uid: Of the plan's cluster, "" where it could not be read.
        mod_revision: Of the value.
        value_sha256: ``sha256:<hex>`` of the stored bytes.
        outcome: Of the verdict.
        cause: Of the verdict.
        transformer: Under which the value was written.
        kms_key_id_sha256: "" for none.
        again: The command that makes a new plan.
    """

    kube_system_uid: str
    mod_revision: int
    value_sha256: str
    outcome: str
    cause: str
    transformer: str
    kms_key_id_sha256: str
    again: str

    def check_stored(self, stored: StoredValue, cluster: ClusterIdentity) -> None:
        """Hold the record that was read against the plan.

        Raises:
            RefusedByRule: It is of another cluster, or was written since.
        """
        # A plan that could not read the uid either is of an etcd with this cluster id: that was compared.
        nameless = not self.kube_system_uid and cluster.is_known and cluster.known_by is not KnownBy.VALUE
        if not nameless and (not cluster.uid or cluster.uid != self.kube_system_uid):
            theirs, ours = self.kube_system_uid or "unknown", cluster.uid or "unknown"
            raise refuse_plan(f"the plan is of the cluster {theirs}, this one is {ours}", self.again)
        value = digest(stored.value)
        if (stored.mod_revision, value) != (self.mod_revision, self.value_sha256):
            raise refuse(
                Rule.EXPECTATION_DIFFERS,
                f"{display(stored.key)} stands at mod_revision {stored.mod_revision} with {value}; the plan has "
                f"{self.mod_revision} with {self.value_sha256}",
                hint=f"scan again, and make a new plan: {self.again}",
            )

    def check_verdict(self, found: Examination) -> None:
        """Hold the verdict against the plan.

        Raises:
            RefusedByRule: It is another one.
        """
        verdict = found.verdict
        cause = verdict.cause.value if verdict.cause is not None else ""
        now = (verdict.outcome.value, cause, found.transformer, found.kms_key_id_sha256)
        then = (self.outcome, self.cause, self.transformer, self.kms_key_id_sha256)
        if now != then:
            key = display(found.stored.key)
            raise refuse_plan(
                f"{key}: the plan has it as {_shown(*then)}, and now it is {_shown(*now)}", self.again
            )


def refuse_plan(why: str, again: str) -> RefusedByRule:
    """Return the refusal to raise where a plan does not fit.

    Args:
        why: One sentence.
        again: The command that makes a new plan.
    """
    return refuse(Rule.PLAN, why, hint=f"make a new plan: {again}")


def _shown(outcome: str, cause: str, transformer: str, kms_key_id_sha256: str) -> str:
    key = f"{transformer or 'no known envelope'}" + (f"/{kms_key_id_sha256}" if kms_key_id_sha256 else "")
    return f"{outcome} ({cause}) under {key}"
