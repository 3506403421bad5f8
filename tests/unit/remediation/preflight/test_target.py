"""How a member's copy that reads is saved before anybody replaces that member."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from etcdfix.examine import Examiner, Reading
from etcdfix.remediation.preflight.members import CopyState, MemberCopy
from etcdfix.remediation.preflight.target import _good_copy
from etcdfix.sources.connection import EtcdConnection
from etcdfix.storagekey import StorageLayout
from tests.support.memory_source import stored
from tests.support.objects import json_object

KEY = "/registry/configmaps/shop/a"


def test_the_command_connects_as_etcdfix_did_and_tells_no_password() -> None:
    connection = EtcdConnection(
        endpoints=("https://one:1", "https://two:2"),
        cacert="ca", cert="c", key="k", user="root", password="hunter2-of-the-test",
    )  # fmt: skip
    cluster: Any = SimpleNamespace(
        client=SimpleNamespace(connection=connection),
        examiner=Examiner.of(Reading(layout=StorageLayout(), configuration=None)),
    )
    good = stored(KEY, json_object("v1", "ConfigMap", "a", "shop"))
    copy = MemberCopy(member_id=2, name="two", state=CopyState.PRESENT, stored=good, endpoint="https://two:2")
    survey: Any = SimpleNamespace(copies=[copy], reading=SimpleNamespace(stored=stored(KEY, b"broken")))
    assert _good_copy(cluster, survey, readable_is_fine=False).endswith(
        "save what it holds: etcdctl --endpoints https://two:2 --cacert ca --cert c --key k --user root "
        "snapshot save good.db"
    )
