"""What tests of the doctor share."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from etcdfix.report.doctor import Check, CheckState
from etcdfix.sources.etcd.endpoints import MemberStatus
from tests.support.objects import json_object


def states(checks: Iterable[Check]) -> list[str]:
    """Return the state of each check; what is not ok says what to do."""
    found = list(checks)
    for check in found:
        assert check.what
        assert bool(check.next_step) is (check.state is not CheckState.OK), check
    return [check.state.value for check in found]


def member(endpoint: str = "one:2379", member_id: int = 1, **changes: object) -> MemberStatus:
    """Return what a healthy member says of itself."""
    fields: dict[str, object] = {
        "cluster_id": 0xC1, "version": "3.6.8", "revision": 9, "leader": 1, "is_learner": False,
        "db_size_bytes": 4096, "errors": (), "db_size_in_use_bytes": 4096, "db_size_quota_bytes": 0,
    }  # fmt: skip
    return MemberStatus(endpoint=endpoint, member_id=member_id, **(fields | changes))  # type: ignore[arg-type]


def lease(renewed: datetime | str | None, name: str = "node-1", namespace: str = "kube-node-lease") -> bytes:
    text = renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if isinstance(renewed, datetime) else renewed
    spec = {"holderIdentity": name} | ({"renewTime": text} if text is not None else {})
    return json_object("coordination.k8s.io/v1", "Lease", name, namespace, spec=spec)
