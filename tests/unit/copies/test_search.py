"""Which places are looked into; and what is read of many keys in one pass tells the same as each key's own history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from etcdfix.commands.copying.kept_values import KeptValues
from etcdfix.copies.finder import TO_LOOK_IN, Finder, LookedInto, parse_named
from etcdfix.copies.model import Copy, Place, Wanted
from etcdfix.copies.revisions import life_of
from etcdfix.copies.search import Places, copies_of, looked_into, open_finders, problems_of
from etcdfix.errors import ConfigurationError, SourceError
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import no_progress
from etcdfix.model import ClusterIdentity, StoredValue
from etcdfix.scope import InRanges, KeyRange
from etcdfix.sources.base import Source
from etcdfix.storagekey import StorageLayout
from tests.support.etcd_history import LiveHistory, RememberedEtcd
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
        (WHOLE, CUT),
        (WHOLE, WHOLE, None),
        (WHOLE, None, CUT),
        (WHOLE, None, WHOLE, CUT),
        (CUT, CUT, None),
        (CUT, WHOLE),
    ],
)
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
    class Failing:
        def __init__(self) -> None:
            self.name, self.looked = "the cellar", [LookedInto(place=Place.BACKUP, path="cellar")]
            self.problems: list[str] = []

        def find(self, _wanted: Wanted) -> Iterator[Copy]:
            raise SourceError("it is dark")

    source = source_of(WHOLE, CUT)
    named = parse_named(f"snapshot:{tmp_path / 'none.db'}", TO_LOOK_IN)
    finders = [Failing(), *finders_of(source, Places(named=(named,)))]
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
