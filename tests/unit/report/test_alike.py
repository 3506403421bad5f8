"""What findings of a lost key have in common: told apart, counted, named, and never more than a bounded number."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import msgspec
import pytest

from etcdfix.model import Evidence, ReadableRevision, Repair, RepairKind, RepairProof
from etcdfix.report import alike
from etcdfix.report.advice.finding import ways_out
from etcdfix.report.alike import Alike, OneOfMany
from etcdfix.report.finding import finding_from
from etcdfix.report.key_loss import places_of
from etcdfix.report.model import FindingEvidence
from etcdfix.text.commands import RunOptions
from etcdfix.verdicts import kinds
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.deletability import LOST_KEY
from etcdfix.verdicts.examination import Examination
from tests.support.examinations import SECRET_BYTES, examination

AGAIN = RunOptions(source=("--endpoints", "etcd.example:2379"))


def failing(name: str = "web", **fields: Any) -> Examination:
    fields.setdefault("rule", "secrets")
    fields.setdefault("evidence", (Evidence("decrypt", "failed", "no such key"),))
    return examination(f"/registry/secrets/shop/{name}", **fields)


def kept(many: Alike, found: Examination, **own: Any) -> OneOfMany:
    one = many.one(found, **own)
    assert one is not None
    # As it is put aside.
    return msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=OneOfMany)


@pytest.mark.parametrize("cause", sorted(LOST_KEY))
@pytest.mark.parametrize(
    "readable", [None, ReadableRevision(9, 8, same_object=True)], ids=["none", "readable"]
)
def test_what_is_kept_gives_the_same_finding_and_the_same_ways_out(
    cause: Cause, readable: ReadableRevision | None
) -> None:
    many = Alike()
    many.one(failing("another", cause=cause, mod_revision=3))
    found = failing(cause=cause, lease=0x7F, mod_revision=12)
    one = kept(many, found, readable=readable)
    again = many.examination(one)
    assert many.counted[0].more == 1
    assert again.stored.value == b""
    assert ways_out(again, AGAIN, readable=one.readable) == ways_out(found, AGAIN, readable=readable)
    assert places_of(again) == places_of(found)
    finding, shared = many.published(one)
    whole = finding_from(found, ())
    assert (finding.message, finding.evidence, finding.shared) == ("", [], shared.id)
    assert (shared.message, shared.evidence, shared.cause) == (whole.message, whole.evidence, cause)
    for field in set(whole.__struct_fields__) - {"message", "evidence", "shared"}:
        assert (getattr(finding, field) or None) == (getattr(whole, field) or None), field


def test_evidence_of_its_own_stays_with_the_value() -> None:
    many = Alike()
    own = (Evidence("earlier-revision", "readable", "mod_revision 8"),)
    one, other = kept(many, failing("a"), own=own), kept(many, failing("b"))
    assert one.kind == other.kind
    assert many.published(one)[0].evidence == [
        FindingEvidence("earlier-revision", "readable", "mod_revision 8")
    ]
    assert many.published(other)[0].evidence == []
    assert [e.check for e in many.examination(one).verdict.evidence] == ["decrypt", "earlier-revision"]


def test_kinds_are_told_apart_and_counted() -> None:
    many = Alike()
    places = [
        kept(many, found).kind
        for found in (
            failing("m", mod_revision=5),
            failing("z", mod_revision=9),
            failing("a", mod_revision=2),
            failing("b", message="something else"),
            failing("c", transformer="aescbc/v1/key3"),
            examination("/registry/configmaps/shop/x", rule="secrets"),
        )
    ]
    assert places == [0, 0, 0, 1, 2, 3]
    first = many.counted[0]
    assert (first.more, first.first_mod_revision, first.last_mod_revision) == (2, 2, 9)
    assert (first.first_key, first.found.stored.value) == (b"/registry/secrets/shop/a", b"")
    (place,) = places_of(failing())
    assert many.kinds_of([place]) == {0, 1, 3}
    assert [words.message for words in many.shared(place)].count("something else") == 1
    assert many.kinds_of(()) == frozenset()


@pytest.mark.parametrize("moment", range(1, 60))
def test_after_a_signal_every_value_that_is_kept_is_counted_once(moment: int) -> None:
    """The first of a kind is counted by whoever asked, and all others with their kind."""
    left = moment

    def signal(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal left
        if event in {"call", "c_return"} and frame.f_code.co_filename in {alike.__file__, kinds.__file__}:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    many, firsts, in_report = Alike(), 0, 0
    for name in ("a", "b", "c"):
        known = len(many)
        sys.setprofile(signal)
        try:
            in_report += many.one(failing(name)) is not None
        except KeyboardInterrupt:
            continue
        finally:
            sys.setprofile(None)
        firsts += len(many) > known
    assert firsts + sum(kind.more for kind in many.counted) == in_report


def test_the_words_of_two_resources_stand_once_and_have_the_same_id_in_every_report() -> None:
    many, other = Alike(), Alike()
    place = places_of(failing())[0]
    evidence = (Evidence("decrypt", "failed", "no such key"),)
    for found in (failing(), examination("/registry/configmaps/a/b", rule="secrets", evidence=evidence)):
        kept(many, found)
        kept(other, found)
    assert len(many) == 2
    assert len(many.shared(place)) == 1
    assert many.shared(place) == other.shared(place)


def test_two_texts_never_share_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "_ID_DIGITS", 1)
    many = Alike()
    for number in range(40):
        kept(many, failing(message=f"message {number}"))
    words = many.shared(places_of(failing())[0])
    assert len({one.id for one in words}) == len({one.message for one in words}) == 40


def test_the_number_of_kinds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "MOST_KINDS", 2)
    many = Alike()
    assert [many.one(failing(message=str(n))) is not None for n in (0, 1, 2, 0)] == [True, True, False, True]


def test_a_value_that_can_be_repaired_is_kept_whole() -> None:
    repair = Repair(RepairKind.BIT, "bit 1 of byte 2 is turned back", RepairProof.TAG)
    assert Alike().one(msgspec.structs.replace(failing(), repair=repair)) is None


def test_the_size_and_digest_are_those_of_the_value() -> None:
    many = Alike()
    finding, _ = many.published(kept(many, failing()))
    whole = finding_from(failing(), ())
    assert finding.value_size == len(SECRET_BYTES)
    assert finding.value_sha256 == whole.value_sha256
