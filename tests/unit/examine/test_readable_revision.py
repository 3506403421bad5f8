"""The newest earlier revision that reads: found, sure to be of the same object, or not claimed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.examine.one import Examiner
from etcdfix.examine.readable_revision import ReadableRevisions, kept_of_history, reads
from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeptRevision, Revision, StoredValue
from etcdfix.model.storagekey import StorageLayout
from tests.support.decoders import shared_decoder
from tests.support.memory_source import MemorySource
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, configuration, provider, secret

KEY = b"/registry/secrets/shop/web"
GOOD = aescbc(secret("web"), KEY_1)
DAMAGED, WORSE = GOOD[:-5], GOOD[:-7]
ENVELOPE = b"k8s:enc:aescbc:v1:key1:"
LOST = aescbc(secret("web"), KEY_2)


class Remembering(MemorySource):
    """Keeps one key with all its revisions as etcd does; counts what it is asked.

    Args:
        steps: A value for each revision of etcd from the first on; None for a tombstone, b"" for what another key did.
        compacted: What is older than this revision is gone, except for what stood then.
    """

    def __init__(self, *steps: bytes | None, compacted: int = 0) -> None:
        self.kept: list[KeptRevision] = []
        create = version = 0
        for main, value in enumerate(steps, start=1):
            if value == b"":
                continue
            if value is None:
                create = version = 0
                self.kept.append(KeptRevision(Revision(main, 0), None))
                continue
            create, version = create or main, version + 1
            self.kept.append(
                KeptRevision(Revision(main, 0), StoredValue(KEY, value, main, create, version, 0))
            )
        older = [kept for kept in self.kept if kept.revision.main <= compacted]
        if older:
            self.kept = [*([older[-1]] if older[-1].stored else []), *self.kept[len(older) :]]
        newest = self.kept[-1].stored
        super().__init__([newest] if newest is not None else [])
        self.asked = self.watched = 0

    @property
    def present(self) -> StoredValue:
        found = self.get(KEY)
        assert found is not None
        return found

    def before(self, key: bytes, revision: int) -> StoredValue | None:
        self.asked += 1
        older = [kept.stored for kept in self.kept if kept.revision.main < revision]
        return older[-1] if older else None

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        self.watched += 1
        yield from self.kept


def examiner() -> Examiner:
    transformers = Transformers.from_configuration(
        configuration(provider("aescbc", key1=KEY_1), IDENTITY), no_plugin
    )
    return Examiner(StorageLayout(), transformers, shared_decoder(None))


def sought(source: Remembering, **bounds: int | None) -> tuple[int, int, bool] | str | None:
    judge = examiner()
    found = ReadableRevisions(source, judge, **bounds).of(judge.examine(source.present))
    if found.revision is None:
        return found.not_sought or None
    assert not found.not_sought
    return found.revision.at, found.revision.mod_revision, found.revision.same_object


@pytest.mark.parametrize("bounds", [{}, {"most_questions": 1000, "most_histories": 10}])
@pytest.mark.parametrize(
    ("steps", "compacted", "expected"),
    [
        ([GOOD, DAMAGED], 0, (1, 1, True)),
        ([GOOD, b"", b"", DAMAGED, WORSE], 0, (3, 1, True)),
        ([GOOD, b"", b"", DAMAGED], 2, (3, 1, True)),  # its own revision is compacted; it stood later
        ([GOOD, GOOD, DAMAGED], 0, (2, 2, True)),
        ([GOOD, DAMAGED], 2, None),
        ([DAMAGED], 0, None),
        ([WORSE, DAMAGED], 0, None),
        ([LOST, DAMAGED], 0, None),
        # Deleted, and put back as it was.
        ([GOOD, DAMAGED, None, DAMAGED], 0, (1, 1, True)),
        ([GOOD, DAMAGED, None, DAMAGED, None, b"", DAMAGED], 0, (1, 1, True)),
        ([GOOD, DAMAGED, None, DAMAGED], 3, None),
        # Made again by somebody else, or from other bytes.
        ([GOOD, None, DAMAGED], 0, (1, 1, False)),
        ([GOOD, DAMAGED, None, WORSE], 0, (1, 1, False)),
        ([GOOD, DAMAGED, None, WORSE, None, WORSE], 0, (1, 1, False)),
        # Of two objects a fault can leave the same.
        *(
            ([GOOD, left, None, left], 0, (1, 1, False))
            for left in (
                b"\0",
                ENVELOPE,
                ENVELOPE + b"short",
                ENVELOPE + bytes(155),
                secret("web")[:40],
                bytes(300),
            )
        ),
        # The newest of them all, whatever came before.
        ([GOOD, DAMAGED, None, GOOD, DAMAGED, None, DAMAGED], 0, (4, 4, True)),
    ],
)
def test_what_is_found(
    steps: list[bytes | None],
    compacted: int,
    expected: tuple[int, int, bool] | None,
    bounds: dict[str, int | None],
) -> None:
    assert sought(Remembering(*steps, compacted=compacted), **bounds) == expected


def test_bounds_are_said() -> None:
    many = Remembering(GOOD, *[DAMAGED] * 5)
    assert "only the 3 revisions" in str(sought(many, most_questions=10))
    assert many.asked <= 4
    assert sought(many) == (1, 1, True)
    assert "too many other values" in str(sought(many, most_questions=0))
    again = Remembering(GOOD, DAMAGED, None, DAMAGED)
    assert "before the present generation" in str(sought(again, most_questions=10, most_histories=0))
    assert again.watched == 0


def test_bounds_hold_for_all_of_a_run() -> None:
    judge = examiner()
    source = Remembering(GOOD, DAMAGED, None, DAMAGED)
    found = judge.examine(source.present)
    revisions = ReadableRevisions(source, judge, most_questions=3, most_histories=2)
    outcomes = [revisions.of(found) for _ in range(4)]
    assert [bool(outcome.revision) for outcome in outcomes] == [True, True, False, False]
    assert [bool(outcome.not_sought) for outcome in outcomes] == [False, False, True, True]


def test_a_source_that_is_lost_claims_nothing() -> None:
    class Lost(Remembering):
        def before(self, key: bytes, revision: int) -> StoredValue | None:
            raise SourceError("the connection was lost")

    assert sought(Lost(GOOD, DAMAGED)) == "the earlier revisions could not be read: the connection was lost"


@pytest.mark.parametrize("steps", [(GOOD, DAMAGED), (GOOD, None, DAMAGED)])
def test_all_of_it_is_looked_up_aside(steps: tuple[bytes | None, ...]) -> None:
    """A report rests on the values at its revision, and not on what else was looked at."""

    class Pinned(Remembering):
        inside = False

        @contextmanager
        def aside(self) -> Iterator[None]:
            self.inside = True
            yield
            self.inside = False

        def before(self, key: bytes, revision: int) -> StoredValue | None:
            assert self.inside
            return super().before(key, revision)

        def history(self, key: bytes) -> Iterator[KeptRevision]:
            assert self.inside
            return super().history(key)

    source = Pinned(*steps)
    assert sought(source, most_questions=5, most_histories=5) is not None
    assert source.asked + source.watched
    assert not source.inside


def test_what_is_looked_at_speaks_for_nobody() -> None:
    """A revision that opens must not become the neighbour that makes damage of another value likely."""
    judge = examiner()
    source = Remembering(GOOD, DAMAGED)
    found = judge.examine(source.present)
    assert ReadableRevisions(source, judge).of(found).revision is not None
    assert not judge.readers.opened.opened(judge.examine(source.present).encryption_keys)
    judge.examine(StoredValue(KEY, GOOD, 9, 1, 2, 0))
    assert judge.readers.opened.opened(found.encryption_keys)


@pytest.mark.parametrize(
    ("steps", "mod_revision", "same_object"),
    [([GOOD, None], 1, True), ([GOOD, None, DAMAGED, None], 1, False), ([GOOD, DAMAGED, None], 1, True)],
)
def test_of_a_key_that_is_gone(steps: Iterable[bytes | None], mod_revision: int, same_object: bool) -> None:
    kept = kept_of_history(Remembering(*steps), examiner(), KEY, reads, newest=None)
    assert kept is not None
    assert (kept.examination.stored.mod_revision, kept.same_object) == (mod_revision, same_object)
