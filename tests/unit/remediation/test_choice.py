"""Which copy ``fix`` takes by itself, and when a person has to choose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from etcdfix.copies.model import Copy, Place, Sameness, Wanted
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import Confidence, GroupResource, Outcome
from etcdfix.model.rules import Rule
from etcdfix.remediation.choice import FixRequest, best_choice
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.offers import Offer
from tests.support.examinations import examination

KEY = b"/registry/secrets/shop/one"


def offer(**changes: Any) -> Offer:
    copy = Copy(
        key=KEY, place=Place.REVISION, where="revision 7", source="revision:7", mod_revision=7,
        outcome=Outcome.READABLE, same_object=Sameness.SAME, value_sha256="sha256:a",
    )  # fmt: skip
    return Offer(copy=msgspec.structs.replace(copy, **changes))


def choose(*found: Offer, accepted: tuple[str, ...] = ()) -> Offer:
    wanted = Wanted(key=KEY, found=examination(KEY), resource=GroupResource("", "secrets"))
    request = FixRequest(key=KEY, reason="r", accepted=Acceptances(words=accepted))
    change: Any = SimpleNamespace(accepted=request.accepted)
    return best_choice(change, request, wanted, found, ())


@pytest.mark.parametrize(
    ("found", "rule"),
    [
        ((), Rule.NOT_REPAIRABLE),
        ((offer(same_object=Sameness.UNKNOWN),), Rule.NOT_REPAIRABLE),
        ((offer(doubt="it may be of another history"),), Rule.NOT_REPAIRABLE),
        ((offer(sure=Confidence.POSSIBLE),), Rule.NOT_REPAIRABLE),
        ((offer(), offer(value_sha256="sha256:b")), Rule.SEVERAL_COPIES),
        ((offer(place=Place.SNAPSHOT),), Rule.UNLISTED_SOURCE),
        ((offer(place=Place.LOG),), Rule.UNLISTED_SOURCE),
        ((msgspec.structs.replace(offer(), needs=(Rule.CLUSTER_BREAKING,)),), Rule.CLUSTER_BREAKING),
    ],
)
def test_what_it_does_not_take_by_itself(found: tuple[Offer, ...], rule: Rule) -> None:
    with pytest.raises(RefusedByRule) as refused:
        choose(*found)
    assert refused.value.rule == rule


def test_what_it_takes() -> None:
    outside = offer(place=Place.SNAPSHOT)
    assert choose(offer(), offer()).copy.source == "revision:7"  # two places have the same bytes
    assert choose(outside, accepted=(Rule.UNLISTED_SOURCE,)) == outside
    assert choose(offer(mod_revision=9), offer(value_sha256="sha256:b")).copy.mod_revision == 9
