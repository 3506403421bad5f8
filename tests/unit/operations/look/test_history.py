"""Every kept revision of a key: what each is, whose it is, what may be put back, and what is not told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from etcdfix.encryption.config import EncryptionConfiguration
from etcdfix.errors import SourceError
from etcdfix.model import KeptRevision, Outcome, Revision, StoredValue
from etcdfix.operations.look.history import HistoryRequest, KeyLook, look_into_history
from etcdfix.report.document import State, Table
from etcdfix.report.history import HistoryReport
from etcdfix.report.render import FORMS
from etcdfix.storagekey import StorageLayout
from etcdfix.text.commands import RunOptions
from tests.support.memory_source import MemorySource
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, configuration, provider, secret
from tests.support.rendering import rendered
from tests.unit.test_readable_revision import KEY, Remembering

CBC = configuration(provider("aescbc", key1=KEY_1), IDENTITY)
WHOLE = aescbc(secret("web"))
CUT = WHOLE[:-5]
LIVE = RunOptions(source=("--endpoints", "10.0.0.1:2379"), reading=("--encryption-config", "c.yaml"))
FILE = RunOptions(source=("--snapshot", "s.db"), reading=("--encryption-config", "c.yaml"))


def web(uid: str = "u-1", **data: str) -> bytes:
    """Return a Secret as JSON."""
    document = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": uid,
            "creationTimestamp": "2025-12-31T00:00:00Z",
        },
        "data": data,
    }
    return json.dumps(document).encode()


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
    assert (report.count, report.deletions, report.readable, report.unreadable) == (4, 1, 2, 1)
    assert "has 4 kept revisions, 2 readable" in report.document().status.headline
    (table, *_) = report.document().sections
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["4", "3", "2", "1"]


def test_earlier_versions_that_are_gone() -> None:
    report = history(WHOLE, WHOLE, WHOLE, CUT, compacted=3)
    assert report.older_versions == 2


def test_entries_of_a_secret_are_named_and_never_shown() -> None:
    newest, _ = history(web(old="c2VjcmV0LW9sZA=="), web(new="c2VjcmV0LW5ldw==")).revisions
    assert newest.changes is not None
    assert [(one.path, one.change.value) for one in newest.changes] == [
        ("data.new", "added"), ("data.old", "removed"),
    ]  # fmt: skip
    report = history(web(old="c2VjcmV0LW9sZA=="), web(new="c2VjcmV0LW5ldw=="))
    for form in FORMS:
        assert "c2VjcmV0" not in rendered(report, form)


def test_contents_that_damage_made_a_name_are_not_told() -> None:
    hostile = web(a="", **{"pass word\n": "eA=="})
    newest, _ = history(web(a=""), hostile).revisions
    assert newest.changes is not None
    assert "pass" not in "".join(one.path for one in newest.changes)
    assert newest.changes[0].path.endswith("bytes masked>]")


def test_what_cannot_be_compared_says_why() -> None:
    after, damaged, first = history(web(), web()[:40], web()).revisions
    assert first.not_compared == "it was created here"
    assert damaged.not_compared == after.not_compared == "one of the two cannot be read as a whole object"
    same, _ = history(WHOLE, WHOLE).revisions
    assert same.changes == []
    (kept,) = history(WHOLE, WHOLE, compacted=2).revisions
    assert kept.not_compared == "nothing older is kept"


def restores(report: HistoryReport) -> list[bool]:
    return [bool(one.restore) for one in report.revisions]


def test_what_may_be_put_back_over_a_broken_value() -> None:
    report = history(WHOLE, WHOLE, CUT)
    assert restores(report) == [False, True, True]
    assert "--from-revision 2 " in report.revisions[1].restore.line(LIVE)
    assert "--replace-mod-revision 3 " in report.revisions[1].restore.line(LIVE)
    assert report.next is not None
    assert report.next.command == report.revisions[1].restore


def test_a_value_whose_key_is_lost_is_not_replaced() -> None:
    report = history(WHOLE, aescbc(secret("web"), KEY_2))
    assert restores(report) == [False, False]
    assert "may not be replaced" in report.revisions[1].restore_note
    assert "--reveal" in report.revisions[1].save.line(LIVE)
    assert report.next is not None
    assert report.next.command.line(LIVE).startswith("etcdfix explain ")


def test_what_may_be_put_back_where_nothing_is() -> None:
    report = history(WHOLE, CUT, None)
    assert restores(report) == [False, False, True]
    assert "--replace-mod-revision" not in report.revisions[2].restore.line(LIVE)
    assert report.at_stake == ""


def test_what_is_taken_for_granted_is_said() -> None:
    (_, newest) = history(WHOLE, None).revisions
    assert newest.restore_note == ""
    for again in (RunOptions(source=LIVE.source), RunOptions(source=FILE.source)):
        values = (WHOLE, None) if again.source is LIVE.source else (WHOLE,)
        told = history(*values, again=again).revisions[-1]
        assert "--no-encryption" in told.restore.line(again)
        assert "--no-encryption holds only where nothing is encrypted at rest" in told.restore_note


def test_of_an_object_that_nothing_shows_to_be_the_same() -> None:
    report = history(web("u-1"), None, web("u-2")[:40])
    assert [one.same_object for one in report.revisions] == [True, None, None]
    assert restores(report) == [False, False, False]
    assert report.next is not None
    assert report.next.command.line(LIVE).startswith("etcdfix explain ")
    gone = history(web("u-1"), None, web("u-2")[:40], None)
    assert gone.next is not None
    assert gone.next.action.startswith("Save the newest revision that reads")
    assert "etcdfix get" in gone.next.command.line(LIVE)


def test_a_deletion_that_was_undone_goes_on_with_the_same_object() -> None:
    report = history(WHOLE, None, WHOLE, CUT)
    assert [one.same_object for one in report.revisions] == [True, True, None, True]


def test_in_a_file_only_the_newest_value_goes_back() -> None:
    report = history(WHOLE, web(), again=FILE)
    newest, older = report.revisions
    assert newest.restore.line(FILE).startswith(
        "etcdfix restore --from-snapshot s.db /registry/secrets/shop/web "
    )
    assert "--accept unlisted-source" in newest.restore.line(FILE)
    assert not older.restore
    assert older.save
    assert restores(history(WHOLE, again=RunOptions(source=(*FILE.source, "--salvage")))) == [False]
    assert restores(history(WHOLE, again=RunOptions(source=(*FILE.source, "--revision", "1")))) == [False]


def test_at_an_older_revision_of_an_etcd_nothing_goes_back() -> None:
    past = RunOptions(source=(*LIVE.source, "--revision", "9"))
    assert restores(history(WHOLE, web(), again=past)) == [False, False]


def test_a_value_with_a_lease_is_not_put_back() -> None:
    class Leased(Remembering):
        def history(self, key: bytes) -> Iterator[KeptRevision]:
            yield KeptRevision(Revision(1, 0), StoredValue(KEY, WHOLE, 1, 1, 1, 7))
            yield KeptRevision(Revision(2, 0), None)

    report = look(Leased(WHOLE, None)).report
    assert report is not None
    assert restores(report) == [False, False]
    assert report.revisions[1].lease == "7"
    assert "lease" in report.revisions[1].restore_note


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


def test_an_object_that_was_made_anew_is_another_one() -> None:
    report = history(web("u-1"), None, web("u-2", a="YQ=="), web("u-2")[:40])
    assert [one.same_object for one in report.revisions] == [True, True, None, False]
    assert restores(report) == [False, True, False, False]
    assert "of another object" in report.revisions[3].restore_note


def test_a_readable_value_is_not_replaced() -> None:
    report = history(web("u-1", a="YQ=="), web("u-1"))
    assert restores(report) == [False, False]
    assert "through the API" in report.revisions[1].restore_note
    assert report.next is None


def test_only_so_many_are_shown_and_all_are_counted() -> None:
    report = history(*[web("u-1", n=str(number)) for number in range(7)], most=2)
    assert (len(report.revisions), report.count, report.left_out) == (2, 7, 5)
