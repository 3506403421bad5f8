"""What a record and a backup say of a change."""

from __future__ import annotations

import pytest

from etcdfix.apiserver.authorization import Authorization
from etcdfix.remediation import change
from etcdfix.remediation.preflight.members import LeaseState


def test_who_did_it() -> None:
    nobody = change.operator_for(None, "root")
    assert (nobody.authorization, nobody.api_user, nobody.etcd_user) == ("none", "", "root")
    allowed = Authorization(user_name="alice", server="https://api", kube_system_uid="u")
    asked = change.operator_for(allowed, "")
    assert (asked.authorization, asked.api_user) == ("allowed", "alice")
    assert asked.os_user == nobody.os_user != ""


@pytest.mark.parametrize(
    ("lease", "left"),
    [
        (None, None),
        (LeaseState(lease=7, alive=True, remaining_seconds=55), 55),
        (LeaseState(lease=7, alive=False, remaining_seconds=0), -1),
    ],
)
def test_what_is_left_of_a_lease(lease: LeaseState | None, left: int | None) -> None:
    assert change._lease_ttl(lease) == left
