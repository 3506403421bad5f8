"""What each copy is good for: one doubt is enough, and what contradicts is never offered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from etcdfix.copies.model import Sameness
from etcdfix.model import Confidence, Outcome
from etcdfix.operations.look.copies_assess import Assessor
from etcdfix.operations.look.copies_gather import FoundCopy, ObjectOfCopies, Sought, digest_of
from etcdfix.report.copies import CopyPlace, Grade, ObjectCopies, PlaceKind
from etcdfix.storagekey import StorageLayout
from etcdfix.text.commands import RunOptions
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from tests.support.examinations import examination
from tests.support.memory_source import stored

KEY = b"/registry/secrets/shop/web"
LIVE = RunOptions(
    source=("--endpoints", "e:1"), reading=("--encryption-config", "c"), servers=("--kubeconfig", "k")
)
REMEMBERED = {"mod_revision": 20, "outcome": None, "create_revision": 0, "version": 0, "value_sha256": ""}
PRESENT = stored(KEY, mod_revision=20, create_revision=10, version=5)


def present(cause: Cause = Cause.VALUE_TRUNCATED, uid: str = "u-1") -> Sought:
    found: Examination = examination(KEY.decode(), outcome=Outcome.DECRYPT_FAILURE, cause=cause)
    return Sought(
        key=KEY,
        found=msgspec.structs.replace(found, stored=PRESENT),
        value_sha256=digest_of(b"cut"),
        uid=uid,
    )


def copy(**changes: Any) -> FoundCopy:
    fields: dict[str, Any] = {
        "key": KEY, "place": 0, "mod_revision": 18, "create_revision": 10, "version": 4, "at": 19,
        "outcome": Outcome.READABLE, "uid": "u-1", "identity": Sameness.SAME, "value_sha256": digest_of(b"whole"),
    }  # fmt: skip
    return FoundCopy(**(fields | changes))


def assess(
    *copies: FoundCopy,
    kind: PlaceKind = PlaceKind.SNAPSHOT,
    history: Sameness = Sameness.SAME,
    sought: Sought | None = None,
    again: RunOptions = LIVE,
) -> ObjectCopies:
    place = CopyPlace(kind=kind, path="place", searched=True, history=history)
    assessor = Assessor([place], again, StorageLayout(), 30)
    return assessor.assess(ObjectOfCopies(sought or present(), iter(copies)))


def grade(one: ObjectCopies) -> Grade:
    (found,) = one.copies
    assert (found.grade is Grade.GOOD) == (found.why == "")
    if found.grade is Grade.UNUSABLE:
        assert not any((found.save, found.put_back))
    return found.grade


@pytest.mark.parametrize(
    ("changes", "settings", "expected"),
    [
        ({}, {}, Grade.GOOD),
        ({"certainty": Confidence.LIKELY}, {"kind": PlaceKind.LOG}, Grade.DOUBTFUL),
        ({"certainty": Confidence.POSSIBLE}, {"kind": PlaceKind.LOG}, Grade.DOUBTFUL),
        ({"identity": Sameness.UNKNOWN}, {}, Grade.DOUBTFUL),
        ({"identity": Sameness.OTHER}, {}, Grade.UNUSABLE),
        ({}, {"history": Sameness.UNKNOWN}, Grade.DOUBTFUL),
        ({}, {"history": Sameness.OTHER}, Grade.UNUSABLE),
        ({"uid": "u-2"}, {}, Grade.UNUSABLE),
        ({"uid": "u-2", "create_revision": 25}, {}, Grade.UNUSABLE),
        ({"outcome": Outcome.DECRYPT_FAILURE, "message": "no"}, {}, Grade.UNUSABLE),
        ({"outcome": None}, {"kind": PlaceKind.RESCUED}, Grade.UNUSABLE),
        ({"mod_revision": 21}, {}, Grade.DOUBTFUL),
        ({"mod_revision": 20, "version": 5}, {}, Grade.DOUBTFUL),
        ({"doubt": "it may have been edited"}, {"kind": PlaceKind.BACKUP}, Grade.DOUBTFUL),
        ({}, {"kind": PlaceKind.BACKUP}, Grade.GOOD),
        (REMEMBERED, {"kind": PlaceKind.API_SERVER}, Grade.GOOD),
        (REMEMBERED | {"doubt": "deleting"}, {"kind": PlaceKind.API_SERVER}, Grade.DOUBTFUL),
    ],
)  # fmt: skip
def test_one_doubt_is_enough(changes: dict[str, Any], settings: dict[str, Any], expected: Grade) -> None:
    assert grade(assess(copy(**changes), **settings)) is expected


def test_a_server_that_remembers_another_object_is_never_healed() -> None:
    remembered = copy(mod_revision=20, uid="u-2", outcome=None, create_revision=0)
    one = assess(remembered, kind=PlaceKind.API_SERVER, sought=present(Cause.WRONG_KEY))
    assert grade(one) is Grade.UNUSABLE


@pytest.mark.parametrize(
    ("cause", "mod_revision", "heals"),
    [
        (Cause.WRONG_KEY, 20, True),
        (Cause.WRONG_KEY, 18, False),
        (Cause.KMS_KEY_UNKNOWN, 20, True),
        (Cause.VALUE_TRUNCATED, 20, False),
    ],
)
def test_heal_is_for_what_is_as_new_as_a_value_of_a_lost_key(
    cause: Cause, mod_revision: int, heals: bool
) -> None:
    remembered = copy(mod_revision=mod_revision, outcome=None, create_revision=0, version=0, value_sha256="")
    (found,) = assess(remembered, kind=PlaceKind.API_SERVER, sought=present(cause)).copies
    assert found.put_back.line(LIVE).startswith("etcdfix heal") is heals
    assert found.save.line(LIVE) == f"etcdfix rescue {KEY.decode()} --kubeconfig k --save-dir DIR --reveal"
    past = msgspec.structs.replace(LIVE, source=("--snapshot", "s.db"))
    (found,) = assess(remembered, kind=PlaceKind.API_SERVER, sought=present(cause), again=past).copies
    assert not found.put_back


def test_two_uids_in_one_generation_tell_nothing() -> None:
    one = assess(
        copy(place=0, mod_revision=18, uid="u-1"),
        copy(place=0, mod_revision=17, version=3, uid="u-2"),
        sought=present(uid=""),
    )
    assert {found.grade for found in one.copies} == {Grade.DOUBTFUL}
    assert one.uid == ""


@pytest.mark.parametrize("kind", [PlaceKind.LOG, PlaceKind.BACKUP])
def test_what_restore_will_ask_for_is_told(kind: PlaceKind) -> None:
    again = copy(uid="u-1", create_revision=4, path="wal", entry=3)
    (found,) = assess(again, kind=kind, sought=present(uid="")).copies
    assert found.grade is Grade.DOUBTFUL
    assert "--accept unknown-uid" not in found.put_back.line(LIVE)  # a person says it, not we
    assert ("add --accept unknown-uid" in found.note) is (kind is PlaceKind.LOG)


def test_the_newest_good_one_comes_first_and_the_rest_is_counted() -> None:
    copies = [copy(mod_revision=18 - number, version=4) for number in range(8)]
    one = assess(*copies)
    assert [found.mod_revision for found in one.copies] == [18, 17, 16, 15, 14]
    assert one.left_out == 3


def test_what_reads_is_told_behind_many_that_do_not() -> None:
    broken = [copy(mod_revision=18 - number, outcome=Outcome.DECODE_FAILURE) for number in range(8)]
    one = assess(*broken, copy(mod_revision=9, version=1))
    assert one.copies[0].grade is Grade.GOOD
    assert one.left_out == 3


@pytest.mark.parametrize("cause", [Cause.KEY_RENAMED, Cause.WRONG_KEY])
def test_a_value_that_may_read_again_is_cured_first(cause: Cause) -> None:
    one = assess(copy(), sought=present(cause))
    assert one.next is not None
    assert one.next.command.line(LIVE).startswith("etcdfix explain")


def test_nothing_is_put_over_what_may_not_be_replaced() -> None:
    (found,) = assess(copy(newest=True), sought=present(Cause.KEY_RENAMED)).copies
    assert not found.put_back
    assert found.save
    (found,) = assess(copy(newest=True), sought=present(Cause.WRONG_KEY)).copies
    assert "declared lost" in found.note
    (found,) = assess(copy(newest=True)).copies
    assert "--replace-mod-revision 20" in found.put_back.line(LIVE)


def test_what_shows_the_object_where_restore_does_not_look_is_said() -> None:
    (found,) = assess(copy(newest=True, uid="u-1"), sought=present(uid="")).copies
    assert "--accept unknown-uid" in found.put_back.line(LIVE)
    (found,) = assess(copy(newest=True)).copies
    assert "--accept unknown-uid" not in found.put_back.line(LIVE)


def test_a_deleted_object_that_had_a_lease_is_saved_and_not_put_back() -> None:
    gone = Sought(key=KEY)
    (found,) = assess(copy(last=True, lease=7), kind=PlaceKind.REVISION, sought=gone).copies
    assert (found.grade, bool(found.put_back), bool(found.save)) == (Grade.GOOD, False, True)
    assert "lease" in found.note
    (found,) = assess(copy(last=True), kind=PlaceKind.REVISION, sought=gone).copies
    assert "--from-revision 19" in found.put_back.line(LIVE)
    assert "--replace-mod-revision" not in found.put_back.line(LIVE)


def test_of_a_file_or_an_older_revision_nothing_is_put_back() -> None:
    for source in (("--snapshot", "s.db"), (*LIVE.source, "--revision", "9")):
        past = msgspec.structs.replace(LIVE, source=source)
        (found,) = assess(copy(), kind=PlaceKind.REVISION, again=past).copies
        assert not found.put_back
        assert found.save


def test_what_is_taken_for_granted_is_said() -> None:
    bare = RunOptions(source=LIVE.source)
    (found,) = assess(copy(newest=True), again=bare).copies
    assert "--no-encryption" in found.put_back.line(bare)
    assert "--no-encryption holds only where nothing is encrypted at rest" in found.note
