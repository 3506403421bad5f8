from __future__ import annotations

import msgspec

from etcdfix.model import key_id_digest
from etcdfix.planning.proofs import Count, ProofKey, Proofs
from etcdfix.verdicts.examination import Examination
from tests.support.encoders import kms_v2_body
from tests.support.lost_key import CONFIGURATION, base, examiner_of
from tests.support.memory_source import stored
from tests.support.objects import IDENTITY, KEY_1, KEY_2, KMS_V2, aescbc, configuration, secret


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


def test_a_kms_key_id_has_a_count_of_its_own_where_it_is_asked_for() -> None:
    cluster = base()
    examiner = examiner_of(cluster, cluster.source(), configuration(KMS_V2, IDENTITY))

    def under(key_id: str, number: int, *, opens: bool) -> Examination:
        value = b"k8s:enc:kms:v2:prov:" + kms_v2_body(b"\x00" * 60, key_id=key_id)
        found = examiner.examine(stored(f"/registry/secrets/shop/{number}", value, mod_revision=number))
        assert found.kms_key_id == key_id
        if not opens:
            return found
        readable = examiner.examine(stored("/registry/secrets/shop/web", secret())).verdict
        return msgspec.structs.replace(found, verdict=readable, opened=True)

    asked = key_id_digest("kek-1")
    proofs = Proofs(b"/registry/", {"prov"}, {asked})
    for number, (key_id, opens) in enumerate(
        [("kek-1", False), ("kek-2", True), ("kek-1", True), ("kek-2", False), ("kek-1", False)], start=1
    ):
        proofs.add(under(key_id, number, opens=opens))
    marker = b"k8s:enc:kms:v2:prov:"
    everything, one = (proofs.count(ProofKey(marker, key_id)) for key_id in ("", asked))
    assert (everything.tally.opened, everything.tally.undetermined) == (2, 3)
    assert (one.tally.opened, one.tally.undetermined) == (1, 2)
    assert (everything.newest, everything.second) == (5, 4)
    assert (one.newest, one.second) == (5, 1)
    assert [proofs.opened_before(ProofKey(marker, key_id), 5) for key_id in ("", asked)] == [3, 3]
    assert [proofs.opened_before(ProofKey(marker, key_id), 3) for key_id in ("", asked)] == [2, 0]
    assert shown(proofs.count(ProofKey(marker, key_id_digest("kek-2")))) == (0, 0, 0, 0)


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
