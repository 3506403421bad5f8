"""What values under one encryption key show for each other, in whatever order they come."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from etcdfix.examine.verdicts.examination import KeyName
from etcdfix.examine.verdicts.observation import Neighbours, OwnKey
from etcdfix.examine.verdicts.opened_spans import MOST_NEWEST, OpenedSpan, OpenedSpans, PlacedSpan

RULE = "secrets,configmaps"
TRANSFORMER = "aesgcm/v1/key1"
KEY = b"/registry/secrets/shop/web"


def key(rule: str = RULE, fingerprint: str = "fp:a") -> KeyName:
    return KeyName(rule, TRANSFORMER, fingerprint)


def span(spans: OpenedSpans, resource: str = "secrets", name: KeyName | None = None) -> OpenedSpan:
    name = name or key()
    place = spans.place(name.rule, resource)
    return place.setdefault((name.transformer, name.key), OpenedSpan((name.key,)))


def opened(*revisions: int, resource: str = "secrets", name: KeyName | None = None) -> OpenedSpans:
    spans = OpenedSpans()
    if revisions:
        span(spans, resource, name).reach(revisions)
    return spans


def failing(spans: OpenedSpans, *revisions: int) -> OpenedSpans:
    for revision in revisions:
        span(spans).note_failing(revision, b"%s-%d" % (KEY, revision))
    return spans


def around(spans: OpenedSpans, revision: int, *names: KeyName) -> Neighbours:
    span(spans).note_failing(revision, KEY)
    return spans.around(names or (key(),), revision, KEY)


@pytest.mark.parametrize("order", [(12, 21), (21, 12), (12, 21, 12)])
def test_an_earlier_revision_of_a_value_is_no_other_value(order: Sequence[int]) -> None:
    spans = opened(10, 15, 20)
    for revision in order:
        span(spans).note_failing(revision, KEY)
    assert spans.around((key(),), 21, KEY) is Neighbours.NEWEST
    # Of another etcd key it is one.
    span(spans).note_failing(12, KEY + b"-other")
    assert spans.around((key(),), 21, KEY) is Neighbours.NONE


def test_what_is_left_after_one_is_forgotten_is_still_in_order() -> None:
    rest = range(6, MOST_NEWEST + 3)
    one = failing(OpenedSpans(), 1, 5, 2, *rest)
    span(one).forget(KEY + b"-1")
    failing(one, 100, 4)
    (reach,) = one.take()
    assert [revision for revision, _ in reach.span.failing] == [4, 5, *rest, 100]


@pytest.mark.parametrize(
    ("revisions", "mod_revision", "neighbours"),
    [
        ((), 15, Neighbours.NONE),
        ((10, 20), 15, Neighbours.SAME_KEY),
        ((10, 20), 11, Neighbours.SAME_KEY),
        ((10, 20), 19, Neighbours.SAME_KEY),
        # Only before it, or only after it: then the key may have been replaced in place.
        ((10, 20), 9, Neighbours.NONE),
        ((10, 20), 21, Neighbours.NONE),
        # In one transaction with it is neither before nor after.
        ((10, 20), 10, Neighbours.NONE),
        ((10, 20), 20, Neighbours.NONE),
        # Three before it, and it is the newest.
        ((10, 15, 20), 21, Neighbours.NEWEST),
        ((10, 15, 20), 20, Neighbours.NONE),
        ((10, 15, 20), 9, Neighbours.NONE),
    ],
)
@pytest.mark.parametrize("resource", ["secrets", "configmaps"])
def test_around(revisions: Sequence[int], mod_revision: int, neighbours: Neighbours, resource: str) -> None:
    assert around(opened(*revisions, resource=resource), mod_revision) is neighbours


def test_the_newest_has_to_be_the_only_one_that_fails() -> None:
    assert around(failing(opened(10, 11, 12), 5), 15) is Neighbours.NONE
    # Another one at the same revision is another one.
    assert around(failing(opened(10, 11, 12), 15), 15) is Neighbours.NONE


@pytest.mark.parametrize(
    ("opens", "fails", "two"),
    [
        ((10, 12, 14, 16), (11, 13, 15), True),
        ((10, 12, 14), (9, 11, 13), True),
        # One that fails alone, or two, may be damaged.
        ((10, 12, 14, 16), (11, 13), False),
        # A key that had other bytes for a time: one run.
        ((10, 20, 21), (11, 12, 13, 14), False),
        # It was so once; since then all that is written opens.
        ((10, 12, 14, 16, *range(20, 20 + MOST_NEWEST)), (11, 13, 15), False),
        (tuple(range(10, 90, 2)), tuple(range(11, 91, 2)), True),
    ],
)
def test_openings_and_failures_in_turns_up_to_the_newest(
    opens: tuple[int, ...], fails: tuple[int, ...], two: bool
) -> None:
    for seed in range(3):
        chance = random.Random(seed)
        spans = OpenedSpans()
        for revision in chance.sample(opens, len(opens)):
            span(spans, chance.choice(["secrets", "configmaps"])).reach((revision,))
        failing(spans, *chance.sample(fails, len(fails)))
        found = spans.around([key()], fails[0], b"%s-%d" % (KEY, fails[0]))
        assert (found is Neighbours.TWO_WRITERS) is two


def test_what_others_show_of_an_etcd_key() -> None:
    assert opened().own_key(key(), 50) is OwnKey.NONE
    assert opened(10, 11, name=key("*.*")).own_key(key(), 50) is OwnKey.NONE
    assert opened(10, 90).own_key(key(), 50) is OwnKey.ANOTHER_OPENS
    assert opened(60, 70, 90).own_key(key(), 50) is OwnKey.ANOTHER_OPENS
    assert opened(50, 70, 90).own_key(key(), 50) is OwnKey.ANOTHER_OPENS
    assert opened(49, 70, 90).own_key(key(), 50) is OwnKey.OTHERS_OPEN
    # Several may have been written at once.
    assert opened(10, 10, 10).own_key(key(), 50) is OwnKey.OTHERS_OPEN
    assert around(opened(10, 10, 10), 50) is Neighbours.NEWEST
    spans = opened(10)
    span(spans, "configmaps").reach((10, 12))
    assert spans.own_key(key(), 50) is OwnKey.OTHERS_OPEN


def test_what_speaks_against_an_etcd_key() -> None:
    for resource in ("secrets", "configmaps"):
        spans = opened(10, 11, 12)
        span(spans, resource).elsewhere = True
        assert spans.own_key(key(), 50) is OwnKey.ANOTHER_OPENS
        spans = opened(10, 11, 12)
        span(spans, resource).first_unfitting = 9
        assert spans.own_key(key(), 50) is OwnKey.ANOTHER_OPENS
        span(spans, resource).first_unfitting = 11
        assert spans.own_key(key(), 50) is OwnKey.OTHERS_OPEN
        span(spans, resource).reach((13,), unbound=True)
        assert spans.own_key(key(), 50) is OwnKey.NONE


def test_many_come_to_the_same_in_any_order_and_in_parts() -> None:
    revisions = list(range(1, 300))
    taken = []
    for seed in range(4):
        chance = random.Random(seed)
        whole, parts = OpenedSpans(), OpenedSpans()
        for revision in chance.sample(revisions, len(revisions)):
            for spans in (whole, parts):
                span(spans).reach((revision,))
                failing(spans, revision, revision)
            if not revision % 50:
                span(whole).elsewhere = span(parts).elsewhere = True
                span(whole).first_unfitting = span(parts).first_unfitting = 50
                span(parts).unbound = span(whole).unbound = True
                parts.add(parts.take())
        taken.append((whole.take(), parts.take()))
        assert whole.take() == []
    assert all(one == taken[0] for one in taken)
    ((reach,), (other,)) = taken[0]
    assert reach == other
    newest = list(range(300 - MOST_NEWEST, 300))
    failed = [(one, KEY + b"-%d" % one) for one in newest]
    all_seen = OpenedSpan(("fp:a",), 1, 299, newest, failed, elsewhere=True, unbound=True, first_unfitting=50)
    assert reach == PlacedSpan(RULE, "secrets", TRANSFORMER, "fp:a", all_seen)
