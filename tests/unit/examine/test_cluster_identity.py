"""Which cluster is meant: what two identities have to do with each other, and how one is said."""

from __future__ import annotations

import pytest

from etcdfix.model.model import ClusterIdentity


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ClusterIdentity.by_uid("a"), ClusterIdentity.by_uid("a"), True),
        (ClusterIdentity.by_uid("a"), ClusterIdentity.by_uid("b"), False),
        (ClusterIdentity.by_uid("a"), ClusterIdentity(), None),
        (ClusterIdentity(created=4, cluster_id="1"), ClusterIdentity(created=4, cluster_id="1"), True),
        (ClusterIdentity(created=4, cluster_id="1"), ClusterIdentity(created=5, cluster_id="1"), False),
        (ClusterIdentity(created=4, cluster_id="1"), ClusterIdentity(created=4, cluster_id="2"), False),
        (ClusterIdentity(created=4, cluster_id="1"), ClusterIdentity(created=4), None),
        (ClusterIdentity(created=4, cluster_id="1"), ClusterIdentity(cluster_id="1"), None),
        (
            ClusterIdentity(uid="a", created=4, cluster_id="1"),
            ClusterIdentity(created=4, cluster_id="1"),
            True,
        ),
        (
            ClusterIdentity(uid="a", created=4, cluster_id="1"),
            ClusterIdentity(uid="b", created=4, cluster_id="1"),
            False,
        ),
    ],
)
def test_one_cluster_or_two(one: ClusterIdentity, other: ClusterIdentity, *, same: bool | None) -> None:
    assert one.is_same(other) is same
    assert other.is_same(one) is same
