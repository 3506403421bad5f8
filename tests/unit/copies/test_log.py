"""What a write-ahead log gives: every write that may be a copy, how sure it is, and what the log proves of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.copies import bootstrap as module
from etcdfix.copies.bootstrap import BootstrapValues, bootstrap_values
from etcdfix.copies.finder import Finder, OtherHistory
from etcdfix.copies.log import MOST_WRITES, Log
from etcdfix.copies.model import Copy, Freshness, Life, LogProof, Sameness, Wanted
from etcdfix.copies.rank import ranked
from etcdfix.copies.revisions import Revisions
from etcdfix.encryption.bootstrap import EMPTY_TOKEN, BootstrapState, forms_of
from etcdfix.examine.one import Examiner, Reading
from etcdfix.model.errors import SourceError
from etcdfix.model.model import Confidence, KeptRevision, Outcome, Revision, StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.sources.base import Source
from etcdfix.sources.errors import NotALog, SourceDenied
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.sources.wal.model import Agreement, LoggedWrite, WriteKind
from tests.support.k3s_bootstrap import TOKEN, bootstrap, path
from tests.support.k3s_cluster import NEW, OLD
from tests.support.memory_source import LiveMemory, MemorySource, stored
from tests.support.objects import UID, config_map
from tests.support.wal_writer import ModelEtcd

KEY = b"/registry/configmaps/shop/settings"
LAYOUT = StorageLayout()
EXAMINER = Examiner.of(Reading(layout=LAYOUT))
WHOLE = config_map()
POSSIBLE, LIKELY, CERTAIN = Confidence.POSSIBLE, Confidence.LIKELY, Confidence.CERTAIN
GONE = Wanted.gone(KEY, LAYOUT)


def wanted(value: bytes) -> Wanted:
    return Wanted.of(EXAMINER.examine(StoredValue(KEY, value, 1000, 100, 9, 0)))


def story(last: bytes | None = WHOLE[:-5]) -> ModelEtcd:
    """Return a cluster that overwrote a value, or deleted it, and wrote on."""
    etcd = ModelEtcd()
    for value in (config_map("settings"), WHOLE, last):
        etcd.update(KEY, value)
    for number in range(6):
        etcd.update(f"/registry/leases/n/{number}".encode(), b"after")
    etcd.log.commit()
    return etcd


def found(etcd: ModelEtcd, folder: Path, what: Wanted = GONE) -> list[Copy]:
    with Log(etcd.log.write(folder / "wal"), etcd.store(), EXAMINER) as log:
        assert (log.history, log.problems) == (Sameness.SAME, [])
        return [*log.find(what)]


def test_every_write_but_the_one_that_stands_there(tmp_path: Path) -> None:
    etcd = story()
    copies = found(etcd, tmp_path, wanted(WHOLE[:-5]))
    assert [(one.mod_revision, one.sure, one.later_writes, one.outcome) for one in copies] == [
        (3, CERTAIN, 1, Outcome.READABLE),
        (2, CERTAIN, 2, Outcome.READABLE),
    ]
    assert copies[0].source == f"log:{tmp_path / 'wal'}#2"
    assert copies[0].log == LogProof(entry=2, create_revision=2)


def test_a_log_shows_the_life_of_what_was_deleted_and_etcd_what_came_after_it(tmp_path: Path) -> None:
    etcd = story(None)
    best, older = ranked(found(etcd, tmp_path), GONE)
    assert (best.same_object, best.freshness, best.later_writes) == (Sameness.SAME, Freshness.CURRENT, 0)
    assert (older.same_object, older.freshness, older.later_writes) == (Sameness.SAME, Freshness.OLDER, 1)


class Kept(LiveMemory):
    """An etcd that still keeps another life of the key, has compacted more than the log has, or hides both."""

    def __init__(self, later: int = 0, compacted: int | None = 0, *, denied: bool = False) -> None:
        etcd = story(None)
        super().__init__([held.stored(key) for key, held in etcd.keys.items()], etcd.revision)
        self._later, self._compacted, self._denied = later, compacted, denied

    def history(self, _key: bytes) -> Iterator[KeptRevision]:
        if self._denied:
            raise SourceDenied("no permission")
        if self._later:
            yield KeptRevision(Revision(self._later, 0), None)


@pytest.mark.parametrize(
    "source", [Kept(later=9), Kept(compacted=11), Kept(compacted=None), Kept(denied=True)]
)
def test_what_stood_there_since_is_not_known(tmp_path: Path, source: Kept) -> None:
    with Log(story(None).log.write(tmp_path / "wal"), source, EXAMINER) as log:
        proofs = [one.log for one in log.find(GONE)]
    assert [proof and (proof.deleted_at, proof.create_revision) for proof in proofs] == [(0, 2), (0, 2)]


def test_what_was_read_of_all_keys_is_not_asked_of_each(tmp_path: Path) -> None:
    source, asked = Kept(), 0

    def compacted() -> int:
        nonlocal asked
        asked += 1
        return 0

    source.compacted_revision = compacted  # type: ignore[method-assign]
    kept = [Kept(), Kept(later=9), Kept(denied=True)]
    for keeps, proven in zip(kept, (True, False, False), strict=True):
        with Log(story(None).log.write(tmp_path / "wal"), source, EXAMINER, kept=keeps) as log:
            for _ in range(2):
                assert {bool(one.log.deleted_at) for one in log.find(GONE) if one.log} == {proven}
            assert len(log.problems) == (1 if keeps is kept[2] else 0)
    assert asked == 2  # and not where nothing was told


def test_a_log_that_is_no_log_and_one_of_another_history_give_nothing(tmp_path: Path) -> None:
    with Log(tmp_path, MemorySource(), EXAMINER, entry=3) as none:
        assert ([*none.find(GONE)], none.looked[0].searched, none.why_not) == ([], False, "")
        assert none.problems == [none.looked[0].detail]
        with pytest.raises(NotALog):
            none.require()
    other = ModelEtcd()
    for number in range(8):
        other.update(f"/registry/leases/n/{number}".encode(), b"elsewhere")
    with Log(story().log.write(tmp_path / "wal"), other.store(), EXAMINER) as log:
        assert ([*log.find(GONE)], [*log.keys(b"")], [*log.deleted(b"")]) == ([], [], [])
        assert log.looked[0].history is Sameness.OTHER
        with pytest.raises(OtherHistory, match="nothing shows that this log is of the history"):
            log.require()


def test_what_a_clone_wrote_is_only_possible(tmp_path: Path) -> None:
    here = story()
    there = copy.deepcopy(here)
    there.update(KEY, config_map("of-the-clone"))
    here.update(b"/registry/leases/n/0", b"mine")
    for etcd in (here, there):
        etcd.log.commit()
    with Log(there.log.write(tmp_path / "wal"), here.store(), EXAMINER) as log:
        newest, *_ = log.find(GONE)
    assert (newest.sure, newest.mod_revision, bool(newest.doubt)) == (POSSIBLE, 0, True)


# --- which of them may be taken


def write(entry: int, value: bytes | None, confidence: Confidence = CERTAIN, **changes: Any) -> LoggedWrite:
    given: dict[str, Any] = {
        "key": KEY, "kind": WriteKind.PUT if value is not None else WriteKind.DELETE, "entry_index": entry,
        "operation": 0, "value": value, "lease": 0, "mod_revision": entry + 100,
        "create_revision": 100, "version": 1, "confidence": confidence,
        "doubt": "" if confidence is CERTAIN else "it may have been refused",
    }  # fmt: skip
    return LoggedWrite(**(given | changes))


class Played:
    """A history with these writes."""

    agreement = Agreement(same=True, newest=9, safe=9, sentence="3 keys agree")

    def __init__(self, *writes: LoggedWrite) -> None:
        self._writes = writes

    def writes(self, _key: bytes) -> Iterator[LoggedWrite]:
        yield from self._writes

    def agreed_until(self, _entry: int) -> int:
        return 1000


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give what looks into a log with these writes."""
    opened: list[Log] = []

    def look(*writes: LoggedWrite, entry: int = 0, what: Wanted = GONE) -> tuple[list[Copy], Log]:
        log = Log(story().log.write(tmp_path / "wal"), story().store(), EXAMINER, entry=entry)
        opened.append(log)
        log._played = Played(*writes)  # type: ignore[assignment]
        return [*log.find(what)], log

    yield look
    for log in opened:
        log.close()


def entries(copies: list[Copy]) -> list[int]:
    return [one.log.entry for one in copies if one.log is not None]


def test_what_etcd_refused_and_what_has_no_value_is_no_copy(look: Any) -> None:
    copies, _ = look(
        write(3, WHOLE), write(4, WHOLE), write(5, WHOLE[:-5]), write(6, None),
        write(7, WHOLE, refused=True, confidence=POSSIBLE),
        write(8, None, kind=WriteKind.PUT),
    )  # fmt: skip
    assert entries(copies) == [5, 4, 3]
    assert [one.later_writes for one in copies] == [1, 2, 3]
    assert [one.reads for one in copies] == [False, True, True]


def test_so_many_writes_are_looked_at_and_a_named_one_wherever_it_is(look: Any) -> None:
    many = [write(number, WHOLE) for number in range(1, MOST_WRITES + 3)]
    assert len(look(*many)[0]) == MOST_WRITES
    (one,), log = look(*many, entry=1)
    assert (one.log.entry, one.later_writes, log.why_not) == (1, MOST_WRITES + 1, "")


def test_what_is_only_possible_is_not_passed_over_for_an_older_one(look: Any) -> None:
    """Which of them is right, a person decides."""
    newer, older = look(write(3, WHOLE), write(4, WHOLE, POSSIBLE, mod_revision=None))[0]
    assert (newer.sure, newer.doubt) == (POSSIBLE, "it may have been refused")
    assert (older.sure, older.doubt.split(" ")[:2]) == (CERTAIN, ["entry", "4"])
    # One of another object, or that does not read, is no rival, and a named one has none.
    life = msgspec.structs.replace(GONE, life=Life(uid=UID.decode(), uid_from="etcd"))
    other = WHOLE.replace(UID, b"99999999-2222-3333-4444-555555555555")
    assert look(write(3, WHOLE), write(4, other, POSSIBLE), what=life)[0][1].doubt == ""
    assert look(write(3, WHOLE), write(4, WHOLE[:-5], POSSIBLE))[0][1].doubt == ""
    ((named,), _) = look(write(3, WHOLE), write(4, WHOLE, POSSIBLE), entry=3)
    assert (named.log.entry, named.doubt) == (3, "")


def test_nothing_of_a_log_that_was_not_compared_is_more_than_possible(look: Any) -> None:
    _, log = look()
    log.history, log.about = Sameness.UNKNOWN, "nothing that is stored was compared"
    log._played = Played(write(3, WHOLE))
    (one,) = log.find(GONE)
    assert (one.sure, one.doubt, one.log.create_revision) == (POSSIBLE, log.about, 0)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (9, "is no write of"),
        (4, "is a deletion: it holds no value"),
        (5, "is the end of a lease, which deleted the key: it holds no value"),
        (6, "is a write that keeps the value before it: it holds no value"),
        (7, "is refused by etcd: it holds no value"),
    ],
)
def test_an_entry_that_holds_no_value(look: Any, named: int, words: str) -> None:
    copies, log = look(
        write(3, WHOLE), write(4, None), write(5, None, kind=WriteKind.LEASE_REVOCATION),
        write(6, None, kind=WriteKind.PUT), write(7, WHOLE, LIKELY, refused=True),
        entry=named,
    )  # fmt: skip
    assert copies == []
    assert words in log.why_not


def test_a_lease_that_the_log_does_not_say_is_a_doubt(look: Any) -> None:
    assert "lease" in look(write(4, WHOLE, lease=None))[0][0].doubt
    assert look(write(4, WHOLE, lease=7))[0][0].doubt == ""


def test_the_last_of_one_entry(look: Any) -> None:
    """One transaction may write a key twice; what is stored then is the later one."""
    other = config_map("other")
    ((one,), _) = look(write(4, WHOLE), write(4, other, operation=1), entry=4)
    assert one.stored.value == other


@pytest.mark.parametrize(
    ("later", "deleted_at"),
    [
        ([write(6, None)], 106),
        ([write(6, b"damaged"), write(7, None)], 107),
        ([write(6, None, kind=WriteKind.LEASE_REVOCATION)], 106),
        ([], 0),  # the log ends before the deletion
        ([write(6, b"newer")], 0),
        ([write(6, None, LIKELY, mod_revision=106)], 0),
        ([write(6, b"perhaps", LIKELY), write(7, None)], 0),
        ([write(6, None), write(7, b"another life", create_revision=107), write(8, None)], 0),
        ([write(6, None), write(7, b"perhaps another life", POSSIBLE)], 0),
        ([write(6, b"another life", create_revision=106), write(7, None)], 0),
    ],
)
def test_the_end_of_the_last_life(look: Any, later: list[LoggedWrite], deleted_at: int) -> None:
    for sure, expected in ((CERTAIN, deleted_at), (LIKELY, 0)):
        copies, _ = look(write(4, b"before"), write(5, b"whole", sure), *later, entry=5)
        assert copies[0].log.deleted_at == expected
    # Where something stands at the key, no deletion proves anything.
    assert look(write(5, b"whole"), *later, entry=5, what=wanted(WHOLE))[0][0].log.deleted_at == 0


READER = Examiner.of(Reading(layout=StorageLayout()))
TOKENS = (*forms_of(TOKEN.encode()), *forms_of(b"former"), EMPTY_TOKEN)


def rotated() -> ModelEtcd:
    """Return a cluster that rotated its token, and then its encryption key."""
    etcd = ModelEtcd()
    for number in range(4):
        etcd.update(f"/registry/leases/n/{number}".encode(), b"before")
    etcd.put(path("former").encode(), bootstrap(OLD, "former"))
    etcd.put(path().encode(), bootstrap(OLD))
    etcd.delete(path("former").encode())
    etcd.put(path().encode(), bootstrap(NEW))
    for number in range(4):
        etcd.update(f"/registry/leases/n/{number}".encode(), b"after")
    etcd.log.commit()
    return etcd


def values_in(source: Source, *finders: Finder) -> BootstrapValues:
    return bootstrap_values(source, [Revisions(source, READER), *finders], TOKENS)


def found_beside(etcd: ModelEtcd, folder: Path) -> BootstrapValues:
    """Read what a database and the log beside it have."""
    directory = etcd.log.write(folder / "member" / "wal")
    (folder / "member" / "snap").mkdir()
    with (
        SnapshotSource(etcd.database(folder / "member" / "snap" / "db")) as source,
        Log(directory, source, READER) as log,
    ):
        return values_in(source, log)


def test_earlier_and_deleted_values_are_there_and_none_is_there_twice(tmp_path: Path) -> None:
    etcd = rotated()
    values = found_beside(etcd, tmp_path)
    assert values.problems == []
    assert {kept.opened.state for kept in values.values} == {BootstrapState.RECOVERED}
    assert [len(one.held) for one in values.configurations] == [1, 2]
    assert [kept.current for kept in values.values] == [False, False, True]
    truth = [
        revision for (_, key), (revision, value) in etcd.truth.items() if b"/bootstrap/" in key and value
    ]
    assert [kept.mod_revision for kept in values.values] == sorted(truth)


def test_a_write_that_etcd_refused_is_read_all_the_same(tmp_path: Path) -> None:
    etcd = rotated()
    etcd.alarm(on=True)
    newer = NEW.replace(b'"secrets"', b'"secrets","configmaps"')
    etcd.put(path().encode(), bootstrap(newer))
    etcd.alarm(on=False)
    for number in range(4):
        etcd.update(f"/registry/leases/n/{number}".encode(), b"again")
    etcd.log.commit()
    values = found_beside(etcd, tmp_path)
    assert len(values.configurations) == 3
    (kept,) = values.configurations[-1].held
    assert kept.opened.file is not None
    assert (kept.opened.file.expose(), kept.mod_revision, kept.current) == (newer, 0, False)


def test_what_a_clone_was_rotated_to_is_only_possible_and_comes_last(tmp_path: Path) -> None:
    here = rotated()
    there = copy.deepcopy(here)
    elsewhere = NEW.replace(b'"secrets"', b'"secrets","configmaps"')
    there.put(path().encode(), bootstrap(elsewhere))
    here.update(b"/registry/leases/n/0", b"mine")
    for etcd in (here, there):
        etcd.log.commit()
    source = here.store()
    with Log(there.log.write(tmp_path / "member" / "wal"), source, READER) as log:
        configurations = values_in(source, log).configurations
    assert [one.file.expose() for one in configurations] == [NEW, OLD, elsewhere]
    assert [one.surest.sure for one in configurations][::2] == [Confidence.CERTAIN, Confidence.POSSIBLE]
    assert (bool(configurations[-1].surest.doubt), configurations[-1].surest.current) == (True, False)


class FourEarlier(MemorySource):
    """Has four earlier values."""

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        for at in range(2, 6 if key == path().encode() else 2):
            yield KeptRevision(Revision(at, 0), stored(key, b"old", mod_revision=at))
        yield from super().history(key)


class NoHistory(MemorySource):
    """Gives no earlier value of a key."""

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        raise SourceError(f"the history of {key.decode()} is lost")


def test_what_stands_there_is_read_where_its_history_is_not_and_its_key_is_not_told() -> None:
    values = values_in(NoHistory({path(): bootstrap(OLD)}))
    assert [kept.opened.state for kept in values.values] == [BootstrapState.RECOVERED]
    assert values.problems == ["not every value of a bootstrap key could be read in earlier revisions"]


def test_the_search_for_keys_has_an_end_and_that_of_the_token_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_KEYS", 3)
    others = {f"/bootstrap/0{number}": b"other" for number in range(4)}
    values = values_in(MemorySource({**others, path("z"): b"", path(): bootstrap(OLD)}))
    assert values.problems == ["more than 3 keys lie under /bootstrap/: the rest was not looked at"]
    assert len(values.configurations) == 1


def test_the_search_for_values_has_an_end_and_the_newest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_VALUES", 2)
    values = values_in(FourEarlier({path(): bootstrap(OLD)}))
    assert values.problems == ["more than 2 values are in earlier revisions: not all were looked at"]
    assert [kept.current for kept in values.values] == [False, False, True]
    assert values.configurations[0].surest.current
