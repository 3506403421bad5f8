"""What is known of a change while its checks run: each check adds to it, or refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.copies.model import Copy, Wanted, Way
from etcdfix.encryption.encrypt import Sealed
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import ClusterIdentity, StoredValue
from etcdfix.remediation.change import ChangeRequest, Rewritable
from etcdfix.remediation.datastore import KeyReading, Landmark, Landmarks
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.deletion import Preflight
from etcdfix.remediation.preflight.similar_values import Alike
from etcdfix.storagekey import display
from etcdfix.text.commands import RunOptions
from etcdfix.verdicts.examination import Examination


class Situation(msgspec.Struct, kw_only=True):
    """What is known of one change.

    Attributes:
        landmarks: Of the cluster, read before anything else was.
        reading: The linearizable read on which everything rests.
        copy: What is put back.
        examined: What the copy is, under the key; None where only an API server can tell.
        alike: What the other values came to; None where nobody looked at them.
        replaced: What makes room, and is backed up; None where nothing is there.
        other_key: Where the bytes of the copy stand now; b"" for nowhere else.
        rests_on: Another etcd key that must stay as it is; None for none.
        sealed: What the contents were encrypted to, where the way is that.
        proof: Key of another object that API servers wrote as this one is sealed; b"" where none was needed.
        lease: To attach, 0 for none.
        warnings: What a person should read before going on.
    """

    cluster: Cluster
    request: ChangeRequest
    run: RunOptions
    landmarks: Landmarks
    reading: KeyReading
    identity: ClusterIdentity
    wanted: Wanted
    copy: Copy
    examined: Examination | None = None
    alike: Alike | None = None
    replaced: Rewritable | Preflight | None = None
    other_key: bytes = b""
    rests_on: Landmark | None = None
    servers: ServerAnswers = msgspec.field(default_factory=ServerAnswers)
    sealed: Sealed | None = None
    proof: bytes = b""
    lease: int = 0
    warnings: list[str] = msgspec.field(default_factory=list)
    progress: Progress = no_progress
    step: Step = no_step

    @property
    def key(self) -> bytes:
        """The etcd key."""
        return self.wanted.key

    @property
    def shown(self) -> str:
        """The etcd key, for people."""
        return display(self.wanted.key)

    @property
    def present(self) -> StoredValue | None:
        """What stands there."""
        return self.reading.stored

    @property
    def found(self) -> Examination:
        """What the record says the change is about: what stands there, else the copy."""
        found = self.wanted.found or self.examined
        assert found is not None  # where nothing stands, a copy is put whose bytes are known
        return found

    @property
    def value(self) -> bytes | None:
        """What is put; None where an API server writes."""
        if self.sealed is not None:
            return self.sealed.data
        return self.copy.stored.value if self.copy.stored is not None and self.copy.way is Way.PUT else None


Check = Callable[[Situation], None]


def run_checks(checks: tuple[Check, ...], situation: Situation) -> None:
    """Ask each check in turn.

    Raises:
        RemediationRefused: One says no.
        SourceError: etcd could not be asked.
    """
    for check in checks:
        situation.step(f"check: {check.__name__.replace('_', ' ')}")
        check(situation)


UNSIGNED_LEASE: Final = 0xFFFFFFFFFFFFFFFF
"""Lease ids are shown without their sign, as etcdctl shows them."""
