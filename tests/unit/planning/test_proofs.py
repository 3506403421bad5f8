from __future__ import annotations

from etcdfix.planning.proofs import Count, ProofKey, Proofs
from tests.support.lost_key import CONFIGURATION, base, examiner_of
from tests.support.memory_source import stored
from tests.support.objects import KEY_1, KEY_2, aescbc, secret


def counted(**values: bytes) -> Proofs:
    """Count Secrets of a namespace, by their names; mod_revisions count up from 1."""
    cluster = base()
    examiner = examiner_of(cluster, cluster.source(), CONFIGURATION)
    proofs = Proofs(b"/registry/", {"key1"}, ())
    for number, (name, value) in enumerate(values.items(), start=1):
        key = f"/registry/secrets/shop/{name}"
        proofs.add(examiner.examine(stored(key, value, mod_revision=number)))
    return proofs


def shown(count: Count) -> tuple[int, int, int, int]:
    return count.tally.opened, count.tally.failed, count.tally.undetermined, count.newest


def test_values_in_the_clear_have_their_own_count() -> None:
    proofs = counted(a=secret("a"), b=b"broken", c=aescbc(secret("c")), d=aescbc(b"", KEY_2, name="lost"))
    assert shown(proofs.count(ProofKey(b""))) == (1, 1, 0, 2)
    assert shown(proofs.count(ProofKey(b"k8s:enc:aescbc:v1:key1:"))) == (1, 0, 0, 0)
    assert shown(proofs.count(ProofKey(b"k8s:enc:aescbc:v1:lost:"))) == (0, 1, 0, 4)
    assert shown(proofs.count(ProofKey(b"k8s:enc:aescbc:v1:none:"))) == (0, 0, 0, 0)
    assert proofs.keys == 4


def test_a_marker_counts_all_that_start_with_it() -> None:
    proofs = counted(
        a=aescbc(secret("a"), KEY_1),
        b=aescbc(b"", KEY_2, name="lost"),
        c=b"k8s:enc:what",
        d=b"k8s:encore",
        e=b"broken",
    )
    assert shown(proofs.count(ProofKey(b"k8s:enc:"))) == (1, 2, 0, 3)
    assert proofs.count(ProofKey(b"")).tally.failed == 2


def test_what_is_no_object_is_looked_at_and_what_lies_elsewhere_is_not() -> None:
    cluster = base()
    examiner = examiner_of(cluster, cluster.source())
    proofs = Proofs(b"/registry/", (), ())
    proofs.add(examiner.examine(stored("/registry/masterleases/10.0.0.1", b"k8s\x00")))
    proofs.add(examiner.examine(stored("/elsewhere/secrets/shop/a", b"broken")))
    assert proofs.keys == 1
    assert shown(proofs.count(ProofKey(b""))) == (0, 0, 0, 0)


def test_the_newest_but_one_that_does_not_open() -> None:
    proofs = counted(a=b"broken", b=b"broken", c=secret("c"), d=b"broken")
    count = proofs.count(ProofKey(b""))
    assert (count.newest, count.second) == (4, 2)
    total = Count()
    for other in (count, counted(a=secret("a"), b=b"broken", c=b"broken").count(ProofKey(b""))):
        total.join(other)
    assert (total.newest, total.second) == (4, 3)
    total.join(count)
    assert (total.newest, total.second) == (4, 4)


def test_what_opened_before_a_revision() -> None:
    proofs = counted(
        a=aescbc(secret("a")),
        b=aescbc(b"", KEY_2),
        c=aescbc(secret("c")),
        d=aescbc(b"", KEY_2),
        e=aescbc(secret("e")),
    )
    key = ProofKey(b"k8s:enc:aescbc:v1:key1:")
    assert [proofs.opened_before(key, revision) for revision in range(1, 7)] == [0, 1, 1, 3, 3, 5]
    assert proofs.opened_before(ProofKey(b"k8s:enc:aescbc:v1:none:"), 9) == 0
