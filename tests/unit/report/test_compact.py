"""What findings of a lost key have in common: told apart, counted, named, and never more than a bounded number."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import msgspec
import pytest

from etcdfix.examine.verdicts import kinds
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import LOST_KEY
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Evidence, ReadableRevision
from etcdfix.remediation.offers import ways_at_hand
from etcdfix.report import compact
from etcdfix.report.compact import CompactFinding, CompactFindings
from etcdfix.report.finding import finding_from
from etcdfix.report.key_loss import places_of
from etcdfix.report.model import FindingEvidence
from etcdfix.text.commands import RunOptions
from tests.support.examinations import examination

AGAIN = RunOptions(source=("--endpoints", "etcd.example:2379"))


def failing(name: str = "web", **fields: Any) -> Examination:
    fields.setdefault("rule", "secrets")
    fields.setdefault("evidence", (Evidence("decrypt", "failed", "no such key"),))
    return examination(f"/registry/secrets/shop/{name}", **fields)


def kept(many: CompactFindings, found: Examination, **own: Any) -> CompactFinding:
    one = many.compact(found, **own)
    assert one is not None
    # As it is put aside.
    return msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=CompactFinding)


@pytest.mark.parametrize("cause", sorted(LOST_KEY))
@pytest.mark.parametrize(
    "readable", [None, ReadableRevision(9, 8, same_object=True)], ids=["none", "readable"]
)
def test_what_is_kept_gives_the_same_finding_and_the_same_ways_out(
    cause: Cause, readable: ReadableRevision | None
) -> None:
    many = CompactFindings()
    many.compact(failing("another", cause=cause, mod_revision=3))
    found = failing(cause=cause, lease=0x7F, mod_revision=12)
    one = kept(many, found, readable=readable)
    again = many.examination(one)
    assert many.counted[0].more == 1
    assert again.stored.value == b""
    assert ways_at_hand(again, AGAIN, one.readable) == ways_at_hand(found, AGAIN, readable)
    assert places_of(again) == places_of(found)
    assert many.finding(one) == finding_from(found, ())


def test_evidence_of_its_own_stays_with_the_value() -> None:
    many = CompactFindings()
    own = (Evidence("earlier-revision", "readable", "mod_revision 8"),)
    one, other = kept(many, failing("a"), own=own), kept(many, failing("b"))
    assert one.kind == other.kind
    assert many.finding(one).evidence[1:] == [
        FindingEvidence("earlier-revision", "readable", "mod_revision 8")
    ]
    assert [e.check for e in many.finding(other).evidence] == ["decrypt"]
    assert [e.check for e in many.examination(one).verdict.evidence] == ["decrypt", "earlier-revision"]


def test_kinds_are_told_apart_and_counted() -> None:
    many = CompactFindings()
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
    assert many.kinds_of([place]) == {0: place, 1: place, 3: place}
    assert many.kinds_of(()) == {}


@pytest.mark.parametrize("moment", range(1, 60))
def test_after_a_signal_every_value_that_is_kept_is_counted_once(moment: int) -> None:
    """The first of a kind is counted by whoever asked, and all others with their kind."""
    left = moment

    def signal(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal left
        if event in {"call", "c_return"} and frame.f_code.co_filename in {compact.__file__, kinds.__file__}:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    many, firsts, in_report = CompactFindings(), 0, 0
    for name in ("a", "b", "c"):
        known = len(many)
        sys.setprofile(signal)
        try:
            in_report += many.compact(failing(name)) is not None
        except KeyboardInterrupt:
            continue
        finally:
            sys.setprofile(None)
        firsts += len(many) > known
    assert firsts + sum(kind.more for kind in many.counted) == in_report
