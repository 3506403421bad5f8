"""What etcdfix saved: of which cluster it is, and whether the audit log knows it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from etcdfix.copies.backups import BackupRow, Backups
from etcdfix.copies.finder import LookedInto
from etcdfix.copies.model import Life, Place, Sameness, Wanted
from etcdfix.copies.rank import ranked
from etcdfix.examine import Examiner, Reading
from etcdfix.model import ClusterIdentity, KnownBy, StoredValue
from etcdfix.remediation.offers import offers
from etcdfix.report.shown_copy import Grade
from etcdfix.rules import Rule
from etcdfix.storagekey import StorageLayout
from etcdfix.text.commands import RunOptions
from tests.support.objects import config_map

KEY = b"/registry/configmaps/shop/settings"
EXAMINER = Examiner.of(Reading(layout=StorageLayout()))
WHOLE = config_map("settings")
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
    value: bytes = WHOLE,
    cluster: ClusterIdentity = HERE,
    doubt: str = "",
    created: int = 4,
    revision: int = 0,
) -> BackupRow:
    stored = StoredValue(KEY, value, 5, created, 2, 0)
    return BackupRow(path=Path("b/1.json"), stored=stored, cluster=cluster, doubt=doubt, revision=revision)


WANTED = Wanted.of(
    EXAMINER.examine(StoredValue(KEY, WHOLE[:-9], 9, 4, 6, 0)),
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
    rows = Rows(row(WHOLE + b"\0", doubt="it may have been edited"), row())
    listed, edited = ranked(Backups(rows, EXAMINER, HERE).find(WANTED), WANTED)
    assert (listed.doubt, edited.doubt) == ("", "it may have been edited")


def test_neither_the_present_value_nor_that_of_another_key_is_a_copy() -> None:
    assert not [*Backups(Rows(row(WHOLE[:-9])), EXAMINER, HERE).find(WANTED)]
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
