"""Which places are looked into; and what is read of many keys in one pass tells the same as each key's own history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from etcdfix.commands.copying.kept_values import KeptValues
from etcdfix.copies.backups import BackupRow, Backups
from etcdfix.copies.finder import TO_LOOK_IN, Finder, LookedInto, parse_named
from etcdfix.copies.model import Copy, Freshness, Life, LogProof, Place, Sameness, Wanted, Way
from etcdfix.copies.rank import alike, judged, ranked
from etcdfix.copies.revisions import life_of
from etcdfix.copies.search import Places, copies_of, looked_into, open_finders, problems_of
from etcdfix.copies.snapshots import history_of
from etcdfix.examine.all import no_progress
from etcdfix.examine.one import Examiner, Reading
from etcdfix.model.errors import ConfigurationError, SourceError
from etcdfix.model.model import ClusterIdentity, Confidence, GroupResource, KnownBy, Outcome, StoredValue
from etcdfix.model.rules import Rule
from etcdfix.model.scope import InRanges, KeyRange
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.offers import offers
from etcdfix.report.copies import Grade
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.text.commands import RunOptions
from tests.support.etcd_history import LiveHistory, RememberedEtcd
from tests.support.memory_source import LiveMemory
from tests.support.objects import KUBE_SYSTEM_UID, config_map

KEY = b"/registry/configmaps/shop/settings"
EXAMINER = Examiner.of(Reading(layout=StorageLayout()))
WHOLE, CUT = config_map("settings"), config_map("settings")[:-9]


def source_of(*values: bytes | None) -> LiveHistory:
    etcd = RememberedEtcd()
    for value in values:
        etcd.delete(KEY) if value is None else etcd.put(KEY, value)
        etcd.put(KEY + b"-other", WHOLE)
    return LiveHistory(etcd)


def wanted_of(source: Source, kept: KeptValues | None = None) -> Wanted:
    stored = source.get(KEY)
    life = life_of(source, EXAMINER, KEY, stored, kept=kept)
    return Wanted.of(EXAMINER.examine(stored), life) if stored else Wanted.gone(KEY, EXAMINER.layout, life)


def finders_of(source: Source, places: Places) -> list[Finder]:
    with open_finders(
        source, EXAMINER, places, uid=KUBE_SYSTEM_UID, identity=ClusterIdentity.by_uid(KUBE_SYSTEM_UID)
    ) as finders:
        return finders


@pytest.mark.parametrize(
    "values",
    [
        (WHOLE, CUT), (WHOLE, WHOLE, None), (WHOLE, None, CUT), (WHOLE, None, WHOLE, CUT), (CUT, CUT, None),
        (CUT, WHOLE),
    ],
)  # fmt: skip
def test_one_pass_tells_what_the_history_of_the_key_tells(values: tuple[bytes | None, ...]) -> None:
    source = source_of(*values)
    kept = KeptValues(source, InRanges([KeyRange(b"/registry/")]))
    kept.read(no_progress, values=True)
    deleted: list[bytes] = []
    assert [
        *kept.noting_deleted(source.current(b"/registry/"), lambda: True, lambda key, _: deleted.append(key))
    ]
    assert deleted == ([KEY] if values[-1] is None else [])
    asked, fed = wanted_of(source), wanted_of(source, kept)
    assert fed == asked
    for own, read in zip(
        *(copies_of(asked, finders_of(source, Places(kept=one))) for one in (None, kept)), strict=True
    ):
        assert msgspec.structs.replace(read, kept_at=own.kept_at) == own
        # Where it was deleted after that, one pass does not tell when; there it is read at its own revision.
        assert read.mod_revision <= read.kept_at <= own.kept_at


def test_behind_what_could_not_be_read_there_may_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks what came last at a key must not take the last that was seen for it."""
    source = source_of(WHOLE, None, WHOLE, None)
    every = [*source.superseded()]

    def breaks_off() -> Iterator[StoredValue]:
        yield every[0]
        raise SourceError("the connection was lost")

    monkeypatch.setattr(source, "superseded", breaks_off)
    kept = KeptValues(source, InRanges([KeyRange(b"/registry/")]))
    with pytest.raises(SourceError):
        kept.read(no_progress, values=True)
    assert [*kept.noting_deleted(source.current(b"/registry/"), lambda: True, lambda *_: None)]
    with pytest.raises(SourceError, match="the connection was lost"):
        list(kept.history(KEY))


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("bit",), ["the value put right"]),
        (("revision:7",), ["earlier revisions"]),
        (("snapshot:/nowhere",), ["older snapshots"]),
        (("log:/nowhere",), ["write-ahead logs"]),
    ],
)
def test_what_is_named_alone_is_all_that_is_asked(words: tuple[str, ...], names: list[str]) -> None:
    named = tuple(map(parse_named, words))
    finders = finders_of(source_of(WHOLE, CUT), Places(named=named, only=True))
    assert [finder.name for finder in finders] == names
    finders = finders_of(source_of(WHOLE, CUT), Places(named=named))
    assert {"earlier revisions", "the value put right", *names} == {finder.name for finder in finders}


def test_a_place_that_cannot_be_read_is_told_and_hides_no_other(tmp_path: Path) -> None:
    class Failing(Finder):
        name = "the cellar"

        def find(self, _wanted: Wanted) -> Iterator[Copy]:
            raise SourceError("it is dark")

    source = source_of(WHOLE, CUT)
    named = parse_named(f"snapshot:{tmp_path / 'none.db'}", TO_LOOK_IN)
    finders = [
        Failing(LookedInto(place=Place.BACKUP, path="cellar")),
        *finders_of(source, Places(named=(named,))),
    ]
    copies = copies_of(wanted_of(source), finders)
    assert [copy.source for copy in copies] == ["revision:3"]
    dark, none = problems_of(finders)
    assert "it is dark" in dark
    assert "none.db" in none
    assert [place.place for place in looked_into(finders) if not place.searched] == [Place.SNAPSHOT]


@pytest.mark.parametrize(
    "word", ["bit", "memory", "revision:7", "cellar:FILE", "snapshot:", "log:DIR#x", "log:DIR#0"]
)
def test_what_names_no_place_to_look_in(word: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_named(word, TO_LOOK_IN)


WHOLE_BACKUP = config_map("settings")
HERE = ClusterIdentity(uid="u", known_by=KnownBy.VALUE, cluster_id="1")
CLONE = ClusterIdentity(uid="u", known_by=KnownBy.VALUE, cluster_id="2")


class Rows:
    def __init__(self, *rows: BackupRow) -> None:
        self._rows = rows
        self.looked = [LookedInto(place=Place.BACKUP, path="b")]
        self.problems: list[str] = []

    def of(self, key: bytes) -> Iterable[BackupRow]:
        return [row for row in self._rows if row.stored.key == key]


def row(
    value: bytes = WHOLE_BACKUP,
    cluster: ClusterIdentity = HERE,
    doubt: str = "",
    created: int = 4,
    revision: int = 0,
) -> BackupRow:
    stored = StoredValue(KEY, value, 5, created, 2, 0)
    return BackupRow(path=Path("b/1.json"), stored=stored, cluster=cluster, doubt=doubt, revision=revision)


WANTED = Wanted.of(
    EXAMINER.examine(StoredValue(KEY, WHOLE_BACKUP[:-9], 9, 4, 6, 0)),
    Life(create_revision=4, mod_revision=9, version=6),
)


@pytest.mark.parametrize(
    ("cluster", "history"),
    [
        (HERE, Sameness.SAME),
        (ClusterIdentity.by_uid("u"), Sameness.SAME),
        (CLONE, Sameness.UNKNOWN),
        (ClusterIdentity(), Sameness.UNKNOWN),
        (ClusterIdentity.by_uid("other"), Sameness.OTHER),
    ],
)
def test_of_which_cluster_it_is(cluster: ClusterIdentity, history: Sameness) -> None:
    (copy,) = ranked(Backups(Rows(row(cluster=cluster)), EXAMINER, HERE).find(WANTED), WANTED)
    assert (copy.history, copy.source, copy.cluster) == (history, "backup:b/1.json", cluster)
    assert (copy.same_object is Sameness.OTHER) == (history is Sameness.OTHER)
    assert bool(copy.doubt) == (history is Sameness.UNKNOWN)
    assert copy.later_writes == (4 if history is Sameness.SAME else None)


def test_one_that_may_have_been_edited_comes_after_one_that_the_log_lists() -> None:
    rows = Rows(row(WHOLE_BACKUP + b"\0", doubt="it may have been edited"), row())
    listed, edited = ranked(Backups(rows, EXAMINER, HERE).find(WANTED), WANTED)
    assert (listed.doubt, edited.doubt) == ("", "it may have been edited")


def test_neither_the_present_value_nor_that_of_another_key_is_a_copy() -> None:
    assert not [*Backups(Rows(row(WHOLE_BACKUP[:-9])), EXAMINER, HERE).find(WANTED)]
    other = Wanted.gone(b"/registry/configmaps/shop/other", EXAMINER.layout)
    assert not [*Backups(Rows(row()), EXAMINER, HERE).find(other)]


def test_a_backup_of_another_object_does_not_read() -> None:
    (copy,) = Backups(Rows(row(config_map("mallory"))), EXAMINER, HERE).find(WANTED)
    assert not copy.reads


def test_the_uid_of_the_object_is_that_of_a_backup_that_the_log_lists() -> None:
    (listed,) = ranked(Backups(Rows(row()), EXAMINER, HERE).find(WANTED), WANTED)
    assert (listed.same_object, listed.proof) == (
        Sameness.SAME, "it has the uid of the object at the key (backup b/1.json)",
    )  # fmt: skip
    for other in (row(doubt="it may have been edited"), row(created=3), row(cluster=CLONE)):
        (copy,) = ranked(Backups(Rows(other), EXAMINER, HERE).find(WANTED), WANTED)
        assert copy.same_object is Sameness.UNKNOWN


@pytest.mark.parametrize(("now", "doubtful"), [(900, False), (899, True), (0, False)])
def test_a_backup_of_an_etcd_that_went_further_is_doubtful(now: int, doubtful: bool) -> None:
    (copy,) = ranked(Backups(Rows(row(revision=900)), EXAMINER, HERE, now).find(WANTED), WANTED)
    assert ("had come to revision 900" in copy.doubt) is doubtful
    (offer,) = offers([copy], WANTED, RunOptions())
    assert (offer.grade is Grade.GOOD) is not doubtful
    assert (Rule.OTHER_CLUSTER_ID in offer.needs) is doubtful


_KEY = b"/registry/secrets/shop/db"
_LIFE = Life(create_revision=10, mod_revision=50, version=5, uid="u1", uid_from="mod_revision 40 in etcd")


def _wanted(life: Life = _LIFE) -> Wanted:
    return Wanted(key=_KEY, resource=GroupResource("", "secrets"), value_sha256="sha256:now", life=life)


def _copy(place: Place = Place.REVISION, **fields: object) -> Copy:
    how: dict[str, object] = {
        "where": "there",
        "source": "revision:1",
        "mod_revision": 40,
        "create_revision": 10,
        "version": 4,
        "outcome": Outcome.READABLE,
        "value_sha256": "sha256:then",
        **fields,
    }
    return Copy(key=_KEY, place=place, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("copy", "life", "same"),
    [
        (_copy(uid="u1", create_revision=3), _LIFE, Sameness.SAME),
        (_copy(uid="u2"), _LIFE, Sameness.OTHER),
        # Of a generation the uid is one, but only etcd's own history tells generations.
        (_copy(), Life(create_revision=10, mod_revision=50), Sameness.SAME),
        (_copy(create_revision=9), Life(create_revision=10, mod_revision=50), Sameness.UNKNOWN),
        # Where the object's uid is known, a value without one needs a person's word.
        (_copy(), _LIFE, Sameness.UNKNOWN),
        (_copy(Place.SNAPSHOT), Life(create_revision=10, mod_revision=50), Sameness.UNKNOWN),
        (_copy(Place.BACKUP, uid="u1"), Life(create_revision=10), Sameness.UNKNOWN),
        (_copy(Place.BIT, mod_revision=50), Life(mod_revision=50), Sameness.SAME),
        (_copy(Place.BIT, mod_revision=50, uid="u2"), _LIFE, Sameness.OTHER),
        (_copy(Place.MEMORY, mod_revision=50, create_revision=0), Life(mod_revision=50), Sameness.SAME),
        (_copy(Place.MEMORY, mod_revision=49, create_revision=0), Life(mod_revision=50), Sameness.UNKNOWN),
        (
            _copy(Place.LOG, log=LogProof(entry=7, create_revision=10)),
            Life(create_revision=10),
            Sameness.SAME,
        ),
        (_copy(Place.LOG, log=LogProof(entry=7)), Life(create_revision=10), Sameness.UNKNOWN),
        (_copy(Place.LOG, log=LogProof(entry=7, deleted_at=60)), Life(), Sameness.SAME),
        (_copy(Place.SNAPSHOT, uid="u1", history=Sameness.OTHER), _LIFE, Sameness.OTHER),
    ],
)
def test_whether_it_is_of_the_object_at_the_key(copy: Copy, life: Life, same: Sameness) -> None:
    assert judged(copy, _wanted(life)).same_object is same


@pytest.mark.parametrize(
    ("copy", "fresh", "later"),
    [
        (_copy(mod_revision=50, version=5), Freshness.CURRENT, 0),
        (_copy(), Freshness.OLDER, 1),
        (_copy(create_revision=3), Freshness.OLDER, None),
        (_copy(mod_revision=51), Freshness.UNKNOWN, None),
        (_copy(mod_revision=0), Freshness.UNKNOWN, None),
        (_copy(Place.SNAPSHOT, history=Sameness.UNKNOWN), Freshness.UNKNOWN, None),
    ],
)
def test_what_was_written_after_it(copy: Copy, fresh: Freshness, later: int | None) -> None:
    found = judged(copy, _wanted())
    assert (found.freshness, found.later_writes) == (fresh, later)


def test_the_order() -> None:
    """Each of these comes before the next."""
    best_first = [
        _copy(Place.BIT, mod_revision=50, uid="u1"),
        _copy(Place.MEMORY, mod_revision=50, uid="u1"),
        _copy(Place.LOG, uid="u1", sure=Confidence.LIKELY, mod_revision=45),
        _copy(uid="u1"),
        _copy(Place.SNAPSHOT, uid="u1"),
        _copy(uid="u1", mod_revision=39),
        _copy(Place.CANDIDATE, way=Way.SEAL, mod_revision=50, uid="u1"),
        _copy(uid="u1", doubt="something", mod_revision=45),
        _copy(Place.SNAPSHOT),
        _copy(uid="u2", mod_revision=49, create_revision=3),
        _copy(uid="u1", mod_revision=49, outcome=Outcome.DECODE_FAILURE),
    ]
    found = ranked(reversed(best_first), _wanted())
    assert [(one.place, one.mod_revision, one.uid) for one in found] == [
        (one.place, one.mod_revision, one.uid) for one in best_first
    ]


def test_two_that_differ_in_nothing_but_their_value() -> None:
    one, other = (
        _copy(Place.SNAPSHOT, value_sha256="sha256:a"),
        _copy(Place.SNAPSHOT, value_sha256="sha256:b"),
    )
    assert alike(one, other)
    assert not alike(one, one)
    assert not alike(one, _copy(Place.SNAPSHOT, value_sha256="sha256:b", mod_revision=41))


def test_bytes_that_changed_under_the_same_write_are_doubtful() -> None:
    assert "changed on disk" in judged(_copy(mod_revision=50), _wanted()).doubt
    assert "another history" in judged(_copy(Place.SNAPSHOT, mod_revision=51), _wanted()).doubt


class Salvaged(LiveMemory):
    """A snapshot of which pages are missing."""

    @property
    def problems(self) -> list[str]:
        return ["a page cannot be read"]


def stored(name: str, mod: int, create: int) -> StoredValue:
    return StoredValue(f"/registry/configmaps/shop/{name}".encode(), config_map(name), mod, create, 1, 0)


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        pytest.param((5, 5), (5, 5), Sameness.SAME, id="the same writes"),
        pytest.param((25, 5), (5, 5), Sameness.UNKNOWN, id="an older write than what stood there"),
        pytest.param((35, 20), (5, 5), Sameness.UNKNOWN, id="an older generation"),
        pytest.param((5, 5), (6, 5), Sameness.OTHER, id="a newer write than what stood there"),
    ],
)
def test_what_damage_excuses_is_no_agreement(
    here: tuple[int, int], there: tuple[int, int], expected: Sameness
) -> None:
    names = ("a", "b", "c", "d")
    now = LiveMemory([stored(name, *here) for name in names], 40)
    older = Salvaged([stored(name, *there) for name in names], 30)
    examiner = Examiner.of(Reading(layout=StorageLayout()))
    fit, _ = history_of(now, cast("SnapshotSource", older), examiner, uid=None, progress=no_progress)
    assert fit is expected
