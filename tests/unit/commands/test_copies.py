"""Every copy that survives: found, examined, and never offered where it is of something else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.copies import CopiesRequest, find_copies
from etcdfix.copies.finder import Named
from etcdfix.copies.model import Place, Sameness, Way
from etcdfix.copies.search import Places
from etcdfix.examine.one import Examiner, Reading
from etcdfix.model.model import StoredValue
from etcdfix.model.rules import Rule
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.copies import CopiesReport, Grade, ObjectCopies, ObjectState
from etcdfix.sources.base import Source
from etcdfix.sources.kine import KineSource
from etcdfix.text.commands import RunOptions
from tests.support.etcd_history import KUBE_SYSTEM, LiveHistory, RememberedEtcd
from tests.support.fixtures import Patch
from tests.support.kine import KineWriter, Release
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    aesgcm,
    config_map,
    configuration,
    json_object,
    namespace_object,
    provider,
    secret,
)
from tests.support.rendering import rendered

CBC = configuration(provider("aescbc", key1=KEY_1), IDENTITY)
LIVE = RunOptions(source=("--endpoints", "10.0.0.1:2379"), reading=("--encryption-config", "c.yaml"))
KEY = b"/registry/secrets/shop/web"
WHOLE = aescbc(secret("web"))
CUT = WHOLE[:-5]
NOWHERE = Path("/nonexistent/etcdfix")


@pytest.fixture(autouse=True)
def _no_backups(monkeypatch: Patch) -> None:
    monkeypatch.setattr("etcdfix.remediation.places.default_directory", lambda: NOWHERE)


def web(uid: str, name: str = "web", **data: str) -> bytes:
    """Return a Secret as JSON with a uid of its own."""
    document = json.loads(json_object("v1", "Secret", name, data=data))
    document["metadata"]["uid"] = uid
    document["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return json.dumps(document).encode()


def etcd_with(*values: bytes | None, key: bytes = KEY) -> RememberedEtcd:
    """Return one with a ConfigMap besides, where a key held these values one after the other."""
    etcd = RememberedEtcd()
    etcd.put(b"/registry/configmaps/shop/settings", config_map())
    for value in values:
        etcd.delete(key) if value is None else etcd.put(key, value)
    return etcd


def look(
    source: Source | RememberedEtcd, *words: str, snapshots: Sequence[Path] = (), **changes: Any
) -> CopiesReport:
    if isinstance(source, RememberedEtcd):
        source = LiveHistory(source)
    candidates = changes.pop("candidates", None)
    request = CopiesRequest(
        layout=StorageLayout(),
        configuration=changes.pop("configuration", CBC),
        scope=ScopeRequest(words),
        run=changes.pop("again", LIVE),
        records=changes.pop("records", RecordPaths(audit_log=NOWHERE / "log")),
        places=Places(named=tuple(Named(place=Place.SNAPSHOT, what=str(path)) for path in snapshots)),
        **changes,
    )
    report = find_copies(source, request, candidates=candidates).report
    assert len(rendered(report).splitlines()) <= 24
    return report


def only(report: CopiesReport) -> ObjectCopies:
    (one,) = report.objects
    return one


def test_an_earlier_revision_of_an_unreadable_value() -> None:
    report = look(etcd_with(WHOLE, WHOLE, CUT))
    one = only(report)
    assert (one.state, one.best, one.cause) == (ObjectState.UNREADABLE, Grade.GOOD, "value-truncated")
    first, second = one.copies
    assert (first.mod_revision, first.later_writes, second.later_writes) == (5, 1, 2)
    assert first.fix.line(LIVE).startswith("etcdfix fix /registry/secrets/shop/web --from revision:5")
    assert "--dry-run" in first.fix.line(LIVE)
    assert (report.count, report.with_good_copy, report.without_copy) == (1, 1, 0)
    assert report.next == one.next
    assert one.next is not None
    assert one.next.command == first.fix


@pytest.mark.parametrize("words", [(), ("secrets",), (KEY.decode(),), ("/registry/secrets/shop",)])
def test_a_deleted_object_by_what_etcd_keeps_of_it(words: tuple[str, ...]) -> None:
    one = only(look(etcd_with(WHOLE, WHOLE, None), *words))
    assert (one.state, [copy.grade for copy in one.copies]) == (ObjectState.DELETED, [Grade.GOOD] * 2)
    assert one.copies[0].source == "revision:5"
    assert one.copies[0].same_object is Sameness.SAME


def test_of_two_deleted_objects_of_one_name_the_last_one_counts() -> None:
    one = only(look(etcd_with(web("u-1"), None, web("u-2"), None)))
    assert [(copy.mod_revision, copy.grade) for copy in one.copies] == [(6, Grade.GOOD), (4, Grade.UNUSABLE)]
    assert one.uid == "u-2"
    assert not one.copies[1].fix
    assert "u-1" in one.copies[1].why


def test_an_earlier_object_is_not_good_for_an_unreadable_one_of_another_uid() -> None:
    """The later generation never read: nothing tells its uid, so the earlier one is doubtful at most."""
    (copy,) = only(look(etcd_with(web("u-1"), None, aescbc(web("u-2"))[:-5]))).copies
    assert (copy.grade, copy.needs) == (Grade.DOUBTFUL, [Rule.UNKNOWN_UID.value])


def test_a_readable_value_is_told_where_it_is_named_alone() -> None:
    etcd = etcd_with(web("u-1", a="YQ=="), web("u-1", a="YWE="))
    assert look(etcd).count == 0
    one = only(look(etcd, KEY.decode()))
    assert (one.state, one.best) == (ObjectState.READABLE, Grade.GOOD)
    (copy,) = one.copies
    assert (copy.refused, bool(copy.fix)) == (Rule.READABLE.value, False)
    assert copy.save.line(LIVE).startswith("etcdfix get")


def test_a_candidate_opens_what_today_does_not() -> None:
    old = Reading(
        layout=StorageLayout(), configuration=configuration(provider("aescbc", key1=KEY_2), IDENTITY)
    )
    etcd = etcd_with(aescbc(secret("web"), KEY_2))
    (copy,) = only(look(etcd, candidates={Path("old.yaml"): Examiner.of(old)})).copies
    assert (copy.place, copy.way, copy.grade, copy.needs) == (Place.CANDIDATE, Way.SEAL, Grade.GOOD, [])
    assert "--from candidate:old.yaml" in copy.fix.line(LIVE)


def test_a_value_that_was_moved_is_found_where_it_stands() -> None:
    gcm = configuration(provider("aesgcm", key1=KEY_1), IDENTITY)
    etcd = etcd_with(aesgcm(web("u-1"), KEY.decode()), key=KEY + b"-copied")
    etcd.put(b"/registry/secrets/shop/beside", aesgcm(secret("beside"), "/registry/secrets/shop/beside"))
    etcd.put(KEY, b"k8s:enc:aesgcm:v1:key1:")
    etcd.delete(KEY)
    gone, moved = look(etcd, configuration=gcm).objects
    assert (gone.state, moved.cause) == (ObjectState.DELETED, "value-moved")
    copy, *_ = gone.copies
    assert (copy.place, copy.source) == (Place.KEY, f"key:{KEY.decode()}-copied")
    assert f"--from key:{KEY.decode()}-copied" in copy.fix.line(LIVE)
    assert copy.needs == [Rule.UNKNOWN_UID.value]


@pytest.mark.parametrize("value", [WHOLE, CUT], ids=["readable", "unreadable"])
@pytest.mark.parametrize("after", [0, 1])
def test_what_is_named_and_was_read_is_told_after_an_interruption(value: bytes, after: int) -> None:
    class Interrupted(LiveHistory):
        def current(self, prefix: bytes) -> Iterator[StoredValue]:
            if not prefix.startswith(KEY):
                yield from super().current(prefix)
                return
            yield from [self._records[KEY + b"/below"]][:after]
            raise KeyboardInterrupt

    etcd = etcd_with(value)
    etcd.put(KEY + b"/below", value)
    report = look(Interrupted(etcd), KEY.decode())
    one = next(one for one in report.objects if one.key == KEY.decode())
    assert one.state is (ObjectState.READABLE if value is WHOLE else ObjectState.UNREADABLE)
    assert report.at_stake.startswith("BREAKS NOW") is (value is CUT)
    assert report.incomplete_reasons == ["interrupted before the end"]
    assert len({one.key for one in report.objects}) == report.count


class TestOlderSnapshots:
    def test_one_of_the_same_history(self, tmp_path: Path) -> None:
        etcd = etcd_with(web("u-1"), WHOLE)
        old = etcd.save(tmp_path / "old.db")
        etcd.put(KEY, CUT)
        etcd.compact()
        newest, *_ = only(look(etcd, snapshots=(old,))).copies
        assert (newest.place, newest.grade, newest.mod_revision) == (Place.SNAPSHOT, Grade.DOUBTFUL, 5)
        assert (newest.later_writes, newest.same_object) == (1, Sameness.UNKNOWN)
        assert "of the same generation of the key" in newest.proof
        assert f"--from snapshot:{old}" in newest.fix.line(LIVE)
        assert newest.needs == [Rule.UNKNOWN_UID.value]

    def test_a_kept_revision_tells_the_uid(self, tmp_path: Path) -> None:
        etcd = etcd_with(web("u-1", a="YQ=="))
        old = etcd.save(tmp_path / "old.db")
        etcd.put(KEY, web("u-1"))
        etcd.put(KEY, CUT)
        assert {copy.grade for copy in only(look(etcd, snapshots=(old,))).copies} == {Grade.GOOD}

    def test_a_clone_that_went_its_own_way(self, tmp_path: Path) -> None:
        etcd = etcd_with(WHOLE)
        clone = etcd.clone()
        clone.put(KEY, aescbc(web("u-2")))
        clone.put(b"/registry/configmaps/shop/more", config_map("more"))
        other = clone.save(tmp_path / "clone.db")
        etcd.put(b"/registry/configmaps/shop/settings", config_map())
        etcd.put(b"/registry/configmaps/shop/settings", config_map())
        etcd.put(KEY, CUT)
        etcd.compact()
        report = look(etcd, snapshots=(other,))
        assert only(report).copies == []
        assert [place.history for place in report.places if place.path] == [Sameness.OTHER]
        assert report.without_copy == 1

    def test_other_bytes_elsewhere_at_one_revision_are_another_history(self, tmp_path: Path) -> None:
        etcd = etcd_with(WHOLE)
        clone = etcd.clone()
        clone.put(b"/registry/configmaps/shop/other", config_map("other"))
        other = clone.save(tmp_path / "clone.db")
        etcd.put(b"/registry/configmaps/shop/other", json_object("v1", "ConfigMap", "other"))
        etcd.put(KEY, CUT)
        report = look(etcd, snapshots=(other,))
        assert [place.history for place in report.places if place.path] == [Sameness.OTHER]
        assert any("other bytes at the same mod_revision" in place.detail for place in report.places)

    def test_one_that_is_no_snapshot(self, tmp_path: Path) -> None:
        text = tmp_path / "notes.txt"
        text.write_text("not a snapshot")
        report = look(etcd_with(WHOLE, CUT), snapshots=(text,))
        assert not report.complete
        assert [place.searched for place in report.places if place.path] == [False]
        assert only(report).best is Grade.GOOD
        assert "NOT LOOKED INTO" in rendered(report)

    def test_a_key_whose_name_lies(self, tmp_path: Path) -> None:
        etcd = etcd_with(aescbc(secret("mallory")))
        old = etcd.save(tmp_path / "old.db")
        etcd.put(KEY, CUT)
        etcd.compact()
        (copy,) = only(look(etcd, snapshots=(old,))).copies
        assert (copy.grade, copy.reads) == (Grade.UNUSABLE, False)
        assert "another object than the one that its etcd key names" in copy.why

    def test_a_copy_that_does_not_read_today_is_told(self) -> None:
        one = only(look(etcd_with(aescbc(secret("web"), KEY_2), CUT)))
        (copy,) = one.copies
        assert (copy.grade, copy.refused) == (Grade.UNUSABLE, Rule.NOT_READABLE.value)
        assert copy.why
        assert one.next is not None
        assert one.next.command.line(LIVE).startswith("etcdfix explain")


def test_values_without_a_configuration_are_counted_and_not_sought() -> None:
    report = look(etcd_with(WHOLE, WHOLE), configuration=None)
    assert report.count == 0
    assert not report.complete
    assert "1 value" in report.incomplete_reasons[0]


KINE = RunOptions(source=("--kine", "state.db"), reading=("--encryption-config", "c.yaml"))


@pytest.mark.parametrize("release", list(Release))
def test_rows_and_old_values(tmp_path: Path, release: Release) -> None:
    path = tmp_path / "state.db"
    kine = KineWriter(path, release)
    kine.put(KUBE_SYSTEM, namespace_object("kube-system"))
    kine.put(KEY, WHOLE)
    whole = kine.put(KEY, WHOLE)
    broken = kine.put(KEY, CUT)
    kept = tmp_path / "before.db"
    kine.close()
    kept.write_bytes(path.read_bytes())
    with KineSource(kept) as source:
        one = only(look(source, again=KINE))
    assert (one.state, one.mod_revision) == (ObjectState.UNREADABLE, broken)
    best = one.copies[0]
    assert (best.grade, best.mod_revision, best.refused) == (Grade.GOOD, whole, Rule.KINE.value)
    assert not best.fix
    assert best.save.line(KINE).startswith("etcdfix get --kine state.db --revision")

    kine = KineWriter(path, release)
    kine.compact(broken)
    kine.close()
    with KineSource(path) as source:
        (copy,) = only(look(source, again=KINE)).copies
    assert (copy.grade, copy.mod_revision) == (Grade.GOOD, whole)


def test_what_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    kine = KineWriter(path)
    kine.put(KUBE_SYSTEM, namespace_object("kube-system"))
    kine.put(KEY, WHOLE)
    kine.delete(KEY)
    kine.close()
    with KineSource(path) as source:
        one = only(look(source, again=KINE))
    assert (one.state, one.best) == (ObjectState.DELETED, Grade.GOOD)
