"""What one record says, and of whom."""

from __future__ import annotations

import os
import pwd

import pytest

from etcdfix.model import ClusterIdentity, KnownBy
from etcdfix.remediation.audit.grounds import Grounds
from etcdfix.remediation.audit.record import Operator, in_unicode
from tests.support.audit_logs import entry


def test_operator_in_unicode() -> None:
    made = in_unicode(Operator(os_user="a\udce9", host="h", api_user="é"))
    assert made == Operator(os_user="a\\udce9", host="h", api_user="é")


def test_who_runs_this(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "grace")
    made = Operator.of_this_process(etcd_user="e", authorization="allowed", api_user="a")
    assert made.os_user == pwd.getpwuid(os.getuid()).pw_name
    assert (made.sudo_user, made.etcd_user, made.authorization, made.api_user) == (
        "grace",
        "e",
        "allowed",
        "a",
    )
    assert made.host

    def nobody(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert Operator.of_this_process().os_user == str(os.getuid())


def test_grounds_name_the_cluster_where_they_know_it() -> None:
    """By more than a uid; a record of before they did so is named by its uid."""
    known = ClusterIdentity(uid="u", known_by=KnownBy.BACKUP, created=7)
    assert entry(grounds=Grounds(cluster=known)).cluster is known
    assert entry(grounds=Grounds()).cluster == entry().cluster == ClusterIdentity.by_uid("d4c1")
