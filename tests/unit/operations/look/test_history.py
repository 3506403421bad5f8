"""Every kept revision of a key: what each is, whose it is, what may be put back, and what is not told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from etcdfix.encryption.config import EncryptionConfiguration
from etcdfix.errors import SourceError
from etcdfix.model import KeptRevision, Outcome
from etcdfix.operations.look.history import HistoryRequest, KeyLook, look_into_history
from etcdfix.report.document import State, Table
from etcdfix.report.history import HistoryReport
from etcdfix.storagekey import StorageLayout
from etcdfix.text.commands import RunOptions
from tests.support.memory_source import MemorySource
from tests.support.objects import IDENTITY, KEY_1, aescbc, configuration, provider, secret
from tests.unit.test_readable_revision import KEY, Remembering

CBC = configuration(provider("aescbc", key1=KEY_1), IDENTITY)
WHOLE = aescbc(secret("web"))
CUT = WHOLE[:-5]
LIVE = RunOptions(source=("--endpoints", "10.0.0.1:2379"), reading=("--encryption-config", "c.yaml"))
FILE = RunOptions(source=("--snapshot", "s.db"), reading=("--encryption-config", "c.yaml"))


def look(source: MemorySource, again: RunOptions = LIVE, **changes: Any) -> KeyLook[HistoryReport]:
    config: EncryptionConfiguration = changes.pop("configuration", CBC)
    request = HistoryRequest(layout=StorageLayout(), configuration=config, key=KEY, run=again, **changes)
    return look_into_history(source, request)


def history(
    *steps: bytes | None, again: RunOptions = LIVE, compacted: int = 0, **changes: Any
) -> HistoryReport:
    report = look(Remembering(*steps, compacted=compacted), again, **changes).report
    assert report is not None
    return report


def test_values_and_deletions_the_newest_first() -> None:
    report = history(WHOLE, CUT, None, WHOLE)
    assert [one.event.value for one in report.revisions] == ["put", "delete", "put", "put"]
    assert [one.outcome for one in report.revisions] == [
        Outcome.READABLE, None, Outcome.DECRYPT_FAILURE, Outcome.READABLE,
    ]  # fmt: skip
    assert [one.stands_until for one in report.revisions] == [None, 3, 2, 1]
    assert (report.count, report.readable, report.unreadable) == (4, 2, 1)
    assert "has 4 kept revisions, 2 readable" in report.document().status.headline
    assert report.next is None
    broken = history(WHOLE, CUT).next
    assert broken is not None
    assert broken.command.line(LIVE).startswith("etcdfix copies ")
    (table, *_) = report.document().sections
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["4", "3", "2", "1"]


class Lost(Remembering):
    """A source that is lost midway."""

    failure: BaseException = SourceError("compacted meanwhile")

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        yield from self.kept[:1]
        raise self.failure

    def compacted_revision(self) -> int | None:
        raise SourceError("no answer")


def test_a_history_that_cannot_be_read_to_its_end() -> None:
    result = look(Lost(WHOLE, CUT))
    assert result.report is not None
    assert not result.report.complete
    assert "compacted meanwhile" in result.report.incomplete_reasons[0]
    assert result.report.compacted_revision is None
    assert result.report.document().status.state is State.INCOMPLETE


def test_only_so_many_are_shown_and_all_are_counted() -> None:
    report = history(*[WHOLE] * 7, most=2)
    assert (len(report.revisions), report.count, report.left_out) == (2, 7, 5)
