"""What a plan found out is held against what was written since, in a real etcd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.errors import RevisionCompacted
from etcdfix.remediation import since as since_module
from etcdfix.remediation.members import read_key
from etcdfix.remediation.pattern import Pattern, Tally
from etcdfix.remediation.since import Since
from tests.support.change_runs import BROKEN, Registry
from tests.support.etcd_server import EtcdServer
from tests.support.impact_objects import Cluster as Made
from tests.support.impact_objects import owner
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, provider, secret

pytestmark = pytest.mark.etcd
LOST = "values that opened were deleted since, or written under another key"
Happens = Callable[[Registry], None]


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Registry:
    return Registry(etcd, prefix, tmp_path, capfd)


def changed(
    registry: Registry,
    happens: Happens = lambda _registry: None,
    *,
    target: bytes = b"",
    opened: int = 2,
    failed: int = 1,
    ahead: int = 0,
    broken: tuple[bytes, ...] = (),
) -> str:
    """Count, let something happen, and ask whether the count still holds."""
    key = target or registry.key("shop/broken")
    tally = Tally(opened, failed, 0, 1, 1)
    since = registry.etcd.revision() + ahead
    happens(registry)
    with registry.cluster() as cluster:
        reading = read_key(cluster.source.client, key)
        assert reading.stored is not None
        found = cluster.examine(reading.stored)
        pattern = Pattern(found.transformer, "", tally, tally, 9, None)
        look = Since(cluster.source, cluster.examiner, None, since, reading.revision, broken)
        return look.changed(found, pattern)


def add(make: Callable[[Made], str], *, broken: bool = False) -> Happens:
    def happens(registry: Registry) -> None:
        made = Made(registry.prefix)
        key = make(made)
        if broken:
            made.break_(key)
        registry.etcd.put_all(made.pairs())

    return happens


def put(name: str, value: bytes) -> Happens:
    return lambda registry: registry.etcd.put(registry.key(name), value)


USED = {"volumes": [{"name": "v", "secret": {"secretName": "broken"}}]}


@pytest.mark.parametrize(
    "happens",
    [
        lambda _registry: None,
        put("shop/good-0", aescbc(secret("good-0"))),
        put("shop/another", aescbc(secret("another"))),
        add(lambda made: made.pod("web")),
        # What the value itself went through is seen by the comparison with the plan.
        put("shop/broken", BROKEN),
        lambda registry: registry.etcd.put(b"/elsewhere/key", b"x"),
        lambda registry: registry.etcd.put(f"{registry.prefix}/health".encode(), b"x"),
    ],
    ids=[
        "nothing", "written again", "a new one that opens", "a pod that uses nothing", "itself", "elsewhere",
        "bookkeeping",
    ],
)  # fmt: skip
def test_it_holds(registry: Registry, happens: Happens) -> None:
    assert changed(registry, happens) == ""


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (put("shop/more", BROKEN), "one of secrets under the same transformer was written since that does not open"),
        (put("shop/x", b"k8s:enc:aesgcm:v1:gone:x"), "one of secrets was written since that does not open"),
        (add(lambda made: made.pod("web"), broken=True), "one of pods was written since that does not open"),
        (add(lambda made: made.pod("web", spec=USED)), "an object that refers to it was written since"),
        (
            add(lambda made: made.pod("web", owners=(owner("Secret", "broken", api_version="v1"),))),
            "an object that it owns was written since",
        ),
        (
            add(lambda made: made.add("v1", "PersistentVolumeClaim", "data", "shop")),
            "one of persistentvolumeclaims was written since: a class may name the Secret for it",
        ),
        (
            lambda registry: [registry.etcd.delete(registry.key(f"shop/good-{n}")) for n in range(2)],
            LOST,
        ),
    ],
)  # fmt: skip
def test_what_speaks_against_it(registry: Registry, happens: Happens, words: str) -> None:
    assert changed(registry, happens) == words


def test_a_deletion_that_cannot_turn_the_count_does_not_matter(registry: Registry) -> None:
    def delete(_registry: Registry) -> None:
        registry.etcd.delete(registry.key("shop/good-0"))

    assert changed(registry, delete) == ""
    registry.put("shop/good-0", aescbc(secret("good-0")))
    # Twelve open and eleven do not: one that opens fewer, and it is a pattern.
    assert changed(registry, delete, opened=12, failed=11) == LOST


def test_what_was_deleted_and_made_again_is_there(registry: Registry) -> None:
    def again(_registry: Registry) -> None:
        for number in range(2):
            registry.etcd.delete(registry.key(f"shop/good-{number}"))
            registry.put(f"shop/good-{number}", aescbc(secret(f"good-{number}")))

    assert changed(registry, again) == ""


def test_what_is_written_under_another_key_opens_no_more_under_this_one(registry: Registry) -> None:
    registry.configure(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)

    def rewrite(_registry: Registry) -> None:
        for number in range(2):
            registry.put(f"shop/good-{number}", aescbc(secret(f"good-{number}"), KEY_2, name="key2"))

    assert changed(registry, rewrite) == LOST


def test_what_never_was_under_the_transformer_may_go(registry: Registry) -> None:
    """Events expire by the hundred."""
    made = Made(registry.prefix)
    keys = [made.add("v1", "Event", f"e-{number}", "shop") for number in range(5)]
    registry.etcd.put_all(made.pairs())

    def expire(_registry: Registry) -> None:
        for key in keys:
            registry.etcd.delete(key.encode())

    assert changed(registry, expire) == ""


def test_what_the_plan_found_broken_may_go(registry: Registry) -> None:
    """One deletion of a plan must not end it for the next."""
    other = registry.put("shop/other", BROKEN)

    def delete(_registry: Registry) -> None:
        registry.etcd.delete(other)

    assert changed(registry, delete, opened=1, failed=2) == LOST
    registry.put("shop/other", BROKEN)
    assert changed(registry, delete, opened=1, failed=2, broken=(other,)) == ""


def test_pods_may_come_and_go_where_classes_name_nothing_for_them(registry: Registry) -> None:
    key = registry.put("shop/broken", BROKEN, resource="configmaps")
    registry.configure(provider("aescbc", key1=KEY_1), IDENTITY, resources=("*.*",))
    claim = add(lambda made: made.add("v1", "PersistentVolumeClaim", "data", "shop"))
    assert changed(registry, claim, target=key) == ""


@pytest.mark.parametrize(
    ("resource", "name"),
    [("namespaces", "shop"), ("apiextensions.k8s.io/customresourcedefinitions", "things.example.com")],
)
def test_what_lies_in_it_is_counted_by_the_key_alone(registry: Registry, resource: str, name: str) -> None:
    registry.configure(provider("aescbc", key1=KEY_1), IDENTITY, resources=("*.*",))
    key = registry.put(name, BROKEN, resource=resource)
    assert changed(registry, target=key) == "what lies in it is counted anew"


def test_a_plan_from_the_future_of_this_etcd(registry: Registry) -> None:
    assert "it was made at revision" in changed(registry, ahead=1000)


def test_too_much(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def many(_registry: Registry) -> None:
        for number in range(3):
            registry.put(f"shop/more-{number}", aescbc(secret(f"more-{number}")))

    def twice(_registry: Registry) -> None:
        many(registry)
        many(registry)

    monkeypatch.setattr(since_module, "_MOST_KEYS", 2)
    assert changed(registry, many) == "too much was written since"
    monkeypatch.setattr(since_module, "_MOST_KEYS", 3)
    assert changed(registry, many) == ""
    # Only the newest value of each is kept.
    monkeypatch.setattr(since_module, "_MOST_BYTES", 3 * len(aescbc(secret("more-0"))))
    assert changed(registry, twice) == ""
    monkeypatch.setattr(since_module, "_MOST_BYTES", 100)
    assert changed(registry, many) == "too much was written since"


def test_what_cannot_be_looked_into(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etcdfix.impact.builder._MOST_EDGES_OF_AN_OBJECT", 1)
    spec = {"volumes": [{"name": f"v{n}", "secret": {"secretName": f"other-{n}"}} for n in range(3)]}
    words = "something was written since that cannot be looked into"
    assert changed(registry, add(lambda made: made.pod("web", spec=spec))) == words


def test_what_cannot_be_told(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_arguments: object, **_options: object) -> None:
        raise RevisionCompacted("revision 7 was compacted", revision=7)

    monkeypatch.setattr("etcdfix.sources.live.LiveSource.changes", lost)
    assert changed(registry) == "what was written since cannot be told: revision 7 was compacted"
