"""The library's deletion: its order, its records, what it asks."""

from __future__ import annotations

import pytest

from etcdfix.errors import RefusedByRule
from etcdfix.operations.change.delete import DeleteRequest, run_delete
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.preflight.cluster import Acceptances
from tests.support.change_runs import Agreeing, Registry
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, aesgcm, provider, secret

pytestmark = pytest.mark.etcd


def _run(
    registry: Registry, confirmer: Agreeing, seen: list[str], key: bytes, **request: object
) -> ChangeOutcome:
    with registry.cluster() as cluster:
        return run_delete(
            cluster,
            DeleteRequest(key=key, reason="r", record_paths=registry.places, **request),  # type: ignore[arg-type]
            confirmer,
            preview=lambda _found: seen.append("PREVIEW"),
            step=seen.append,
        )


def test_dry_run_walks_the_same_road_up_to_the_question(registry: Registry) -> None:
    key = registry.key("shop/broken")
    roads: dict[bool, list[str]] = {}
    for dry_run in (True, False):
        seen: list[str] = []
        confirmer = Agreeing()
        _run(registry, confirmer, seen, key, dry_run=dry_run)
        assert confirmer.asked == ([] if dry_run else [key])
        roads[dry_run] = seen
    until = roads[False].index("confirm")
    assert roads[True][:until] == roads[False][:until]
    assert roads[False][until - 2 : until] == ["preview", "PREVIEW"]
    assert not [name for name in roads[True] if name.startswith("transaction")]


def test_lost_key_is_asked_for_before_the_key(registry: Registry) -> None:
    key = registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    accepted = Acceptances(key_lost="aescbc/v1/key2", words=("no-api-server",))
    confirmer = Agreeing(yes=False)
    with registry.untouched(), pytest.raises(RefusedByRule, match="the lost key was not typed back"):
        _run(registry, confirmer, [], key, accepted=accepted)
    assert confirmer.asked == ["aescbc/v1/key2"]
    confirmer = Agreeing()
    _run(registry, confirmer, [], key, accepted=accepted)
    assert confirmer.asked == ["aescbc/v1/key2", key]


def test_home_of_a_moved_value_that_changes_before_the_transaction(registry: Registry) -> None:
    """It was a second copy when that was checked; now it may be the only one."""
    registry.configure(provider("aesgcm", key1=KEY_1), IDENTITY)
    home, copy = registry.key("shop/home"), registry.key("shop/copy")
    value = aesgcm(secret("home"), home.decode())
    registry.etcd.put_all([(home, value), (copy, value)])

    class Changing(Agreeing):
        def confirm_key(self, key: bytes) -> bool:
            registry.etcd.delete(home)
            return super().confirm_key(key)

    with pytest.raises(RefusedByRule) as caught:
        _run(registry, Changing(), [], copy)
    assert caught.value.rule == "other-cluster"  # a mark that is gone: that much is not told apart
    assert registry.stored(copy) == value
