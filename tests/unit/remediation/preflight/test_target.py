"""How a member's copy that reads is saved before anybody replaces that member; what is not asked of kine; who says how
API servers encrypt today."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from etcdfix.errors import RefusedByRule
from etcdfix.examine import Examiner, Reading
from etcdfix.remediation.preflight.cluster import Acceptances, Cluster
from etcdfix.remediation.preflight.members import MemberCopy
from etcdfix.remediation.preflight.target import (
    _good_copy,
    check_writable,
    read_target,
    require_write_key,
)
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.kine import KineSource
from etcdfix.storagekey import StorageLayout
from tests.support.kine import KineWriter
from tests.support.memory_source import stored
from tests.support.objects import KUBE_SYSTEM_UID, json_object, namespace_object

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
    copy = MemberCopy(member_id=2, name="two", stored=good, endpoint="https://two:2")
    survey: Any = SimpleNamespace(copies=[copy], reading=SimpleNamespace(stored=stored(KEY, b"broken")))
    assert _good_copy(cluster, survey, readable_is_fine=False).endswith(
        "save what it holds: etcdctl --endpoints https://two:2 --cacert ca --cert c --key k --user root "
        "snapshot save good.db"
    )


def test_kine_has_no_members_and_no_alarms(tmp_path: Path) -> None:
    """Whoever may not answer is told to have been named in vain; which cluster it is counts as ever."""
    writer = KineWriter(tmp_path / "state.db")
    writer.put(b"/registry/namespaces/kube-system", namespace_object("kube-system"))
    writer.put(KEY.encode(), b"k8s:enc:aescbc:v1:lost:")
    steps: list[str] = []
    with KineSource(writer.path) as source:
        cluster = Cluster(source, Examiner.of(Reading(layout=StorageLayout(), configuration=None)))
        assert (cluster.where, cluster.warnings) == ((str(writer.path),), ())
        target = read_target(cluster, KEY.encode(), Acceptances(), steps.append)
        accepted = Acceptances(words=("unchecked-member=two", "unchecked-member=one"))
        identity, warnings = check_writable(cluster, target, accepted, (), steps.append)
    writer.close()
    assert identity.uid == KUBE_SYSTEM_UID
    assert [warning.split()[1] for warning in warnings] == ["unchecked-member=one", "unchecked-member=two"]
    assert steps[-2:] == ["check: cluster", "check: release"]
    assert not {"check: members", "check: alarms"} & set(steps)


def test_nothing_is_sealed_without_a_configuration() -> None:
    """That nothing is encrypted at rest, as --no-encryption says, names no write key either."""
    cluster: Any = SimpleNamespace(configured=False, no_encryption=True)
    with pytest.raises(RefusedByRule) as refused:
        require_write_key(cluster)
    assert refused.value.message == "no encryption configuration was given, so today's write key is unknown"
    cluster.configured = True
    require_write_key(cluster)
