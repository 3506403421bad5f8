"""Which source counts as an undo; the rest of a restore is tested by the command."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import msgspec
import pytest

from etcdfix.errors import AuditLogUnreadable, RefusedByRule, UnsafePlace
from etcdfix.operations.change.candidate import Candidate, RestoreRequest
from etcdfix.operations.change.restore import OwnWrite, RestorePreview, run_restore
from etcdfix.remediation import places as places_module
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Filesystem, Step, no_step
from etcdfix.remediation.places import RecordPaths
from etcdfix.remediation.preflight import target as preflight_module
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.remediation.preflight.members import CopyState, MemberSurvey, survey_members
from etcdfix.sources.etcd.client import EtcdClient
from tests.support.audit_logs import own_directory
from tests.support.change_runs import BROKEN, Agreeing, Registry
from tests.support.objects import IDENTITY, KEY_1, KEY_2, KUBE_SYSTEM_UID, aescbc, aesgcm, provider, secret

pytestmark = pytest.mark.etcd

UNKNOWN_UID = Acceptances(words=("unknown-uid",))


def _run(
    registry: Registry,
    candidate: Candidate,
    shown: list[RestorePreview],
    *,
    confirmer: Agreeing | None = None,
    step: Step = no_step,
    **request: object,
) -> ChangeOutcome:
    with registry.cluster() as cluster:
        return run_restore(
            cluster,
            RestoreRequest(candidate=candidate, reason="r", **({"record_paths": registry.places} | request)),  # type: ignore[arg-type]
            confirmer or Agreeing(),
            preview=shown.append,
            step=step,
        )


def test_backup_of_this_log_is_an_undo(registry: Registry) -> None:
    candidate = Candidate.of_backup(registry.deleted())
    assert candidate.stored.value == BROKEN
    assert candidate.cluster is not None
    assert candidate.cluster.uid == KUBE_SYSTEM_UID
    shown: list[RestorePreview] = []
    _run(registry, candidate, shown)
    assert (shown[0].source.intent is not None, shown[0].replaced, shown[0].lease) == (True, None, 0)
    assert shown[0].identity.uid == KUBE_SYSTEM_UID
    assert registry.stored(registry.key("shop/broken")) == BROKEN
    assert registry.events()[-2].annotations.detail == f"from {candidate.origin}, {digest(BROKEN)}"


@pytest.mark.parametrize(
    "change",
    [
        {"value_base64": BROKEN + b"!"},
        {"key_base64": b"/registry/secrets/shop/elsewhere"},
        {"mod_revision": 1},
    ],
)
def test_backup_that_says_something_else_than_its_intent_is_none(
    registry: Registry, change: dict[str, object]
) -> None:
    backup = registry.deleted()
    content = msgspec.structs.replace(backup.content, **change)
    forged = msgspec.structs.replace(backup, content=content, content_sha256="sha256:" + "0" * 64)
    with registry.untouched(), pytest.raises(RefusedByRule) as caught:
        _run(registry, Candidate.of_backup(forged), [])
    assert caught.value.rule == "unlisted-source"


def test_without_a_log_nothing_is_listed(registry: Registry) -> None:
    candidate = Candidate.of_backup(registry.deleted())
    for path in registry.log.parent.iterdir():
        path.unlink()
    with registry.untouched(), pytest.raises(RefusedByRule) as caught:
        _run(registry, candidate, [])
    assert caught.value.rule == "unlisted-source"
    with registry.untouched(), pytest.raises(RefusedByRule) as caught:
        _run(registry, candidate, [], accepted=Acceptances(words=("unlisted-source",)))
    assert caught.value.rule == "not-readable"
    assert "restores by itself with" in caught.value.hint


def test_log_that_cannot_be_looked_for(registry: Registry) -> None:
    candidate = Candidate.of_backup(registry.deleted())
    places = RecordPaths((registry.backups,), registry.folder / ("a" * 300))
    with (
        registry.untouched(),
        registry.cluster() as cluster,
        pytest.raises(AuditLogUnreadable, match="File name too long") as caught,
    ):
        run_restore(
            cluster,
            RestoreRequest(candidate=candidate, reason="r", record_paths=places),
            Agreeing(),
            preview=lambda _shown: None,
        )
    assert caught.value.exit_code == 5


def test_what_we_wrote_is_shown_as_such(registry: Registry) -> None:
    backup = registry.deleted()
    key = registry.put("shop/broken", b"k8s:enc:aescbc:v1:key1:other")
    there = registry.mod_revision(key)
    _run(
        registry,
        Candidate.of_backup(backup),
        [],
        replace_mod_revision=there,
        accepted=UNKNOWN_UID,
    )
    shown: list[RestorePreview] = []
    candidate = Candidate.of_backup(registry.kept()[-1])
    _run(registry, candidate, shown, replace_mod_revision=registry.mod_revision(key), dry_run=True)
    replaced = shown[0].replaced
    assert isinstance(replaced, OwnWrite)
    assert replaced.intent.link.sequence == 3
    assert (replaced.stored.value, replaced.declared_lost, replaced.lease) == (BROKEN, False, None)
    assert replaced.identity.uid == KUBE_SYSTEM_UID


@pytest.mark.parametrize("known", [True, False])
def test_what_is_replaced_is_kept_with_what_is_known_of_it(registry: Registry, known: bool) -> None:
    candidate = Candidate.of_backup(registry.deleted())
    key = registry.put("shop/broken", b"k8s:enc:aescbc:v1:key1:other")
    if not known:
        registry.lose_kube_system()
    confirmer = Agreeing()
    _run(
        registry,
        candidate,
        [],
        confirmer=confirmer,
        replace_mod_revision=registry.mod_revision(key),
        accepted=Acceptances(words=("unknown-cluster", "unknown-uid")),
    )
    assert confirmer.asked == [key]  # and no lost key: none was declared
    content = registry.kept()[-1].content
    assert content.cluster.kube_system_uid == (KUBE_SYSTEM_UID if known else None)
    assert content.cluster.endpoints == (registry.endpoints,)
    assert content.grounds is not None
    assert [(counts.opened, counts.failed) for counts in content.grounds.counts] == [(2, 1)]


def test_home_of_a_moved_value_goes_before_that_is_replaced(registry: Registry) -> None:
    """The replaced bytes may be the only copy then."""
    registry.configure(provider("aesgcm", key1=KEY_1), IDENTITY)
    home, key = registry.key("shop/home"), registry.key("shop/copy")
    registry.etcd.put(home, aesgcm(secret("home"), home.decode()))
    registry.etcd.put(key, aesgcm(secret("copy"), key.decode()))
    with registry.cluster() as cluster:
        stored = cluster.source.get(key)
    assert stored is not None
    registry.etcd.put(key, aesgcm(secret("home"), home.decode()))

    def lose_home(step: str) -> None:
        if step == "transaction: before send":
            registry.etcd.delete(home)

    with pytest.raises(RefusedByRule, match=r"shop/home is gone.*no transaction was sent"):
        _run(
            registry,
            Candidate(stored=stored, origin="elsewhere", cluster=None),
            [],
            step=lose_home,
            replace_mod_revision=registry.mod_revision(key),
            accepted=Acceptances(words=("unlisted-source",)),
        )
    assert registry.stored(key) == aesgcm(secret("home"), home.decode())


@pytest.mark.parametrize(
    ("leased", "without", "accepted"),
    [
        (True, True, '["--accept expired-lease"]'),
        (True, False, ""),
        (False, True, '["--accept expired-lease"]'),
    ],
)
def test_lease_that_is_left_out_is_recorded(
    registry: Registry, leased: bool, without: bool, accepted: str
) -> None:
    key = registry.put("shop/leased", BROKEN)
    if leased:
        registry.grant(key, BROKEN)
    candidate = Candidate.of_backup(registry.deleted("shop/leased"))
    accept = Acceptances(words=("expired-lease",) if without else ())
    _run(registry, candidate, [], accepted=accept)
    assert registry.events()[-2].annotations.accepted == accepted


@pytest.mark.parametrize("replaced", [True, False])
def test_default_directory_must_last_where_something_goes_there(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    candidate = Candidate.of_backup(registry.deleted())
    default = own_directory(registry.folder / "default")
    monkeypatch.setattr(places_module, "default_directory", lambda: default)
    volatile = {default}
    monkeypatch.setattr(
        places_module,
        "filesystem_kind",
        lambda path: Filesystem("tmpfs" if path in volatile else "ext4", "", "/"),
    )
    places = RecordPaths(audit_log=registry.log)
    key = registry.key("shop/broken")
    shown: list[RestorePreview] = []
    if not replaced:
        _run(registry, candidate, shown, record_paths=places)
        assert registry.stored(key) == BROKEN
        return
    registry.put("shop/broken", b"k8s:enc:aescbc:v1:key1:other")
    with registry.untouched(), pytest.raises(UnsafePlace, match="is on tmpfs"):
        _run(
            registry,
            candidate,
            shown,
            record_paths=places,
            replace_mod_revision=registry.mod_revision(key),
            accepted=UNKNOWN_UID,
        )
    assert shown == []


@pytest.mark.parametrize("begun_anew", [True, False])
def test_what_a_named_log_says_of_the_backup_today(registry: Registry, begun_anew: bool) -> None:
    candidate = Candidate.of_backup(registry.deleted())
    if begun_anew:
        for path in registry.log.parent.iterdir():
            path.unlink()
        registry.put("shop/second", BROKEN)
        registry.deleted("shop/second")
    first, registry.log = registry.log, own_directory(registry.folder / "anew") / "audit.jsonl"
    shown: list[RestorePreview] = []
    _run(
        registry,
        candidate,
        shown,
        accepted=Acceptances(words=("unlisted-source",)),
        value_sha256=digest(BROKEN),
    )
    says = "does not list it" if begun_anew else "lists it, but another one was named"
    assert shown[0].source.by_itself == f"its audit log {first} {says}"


def test_lost_key_of_what_is_replaced_is_asked_for(registry: Registry) -> None:
    candidate = Candidate.of_backup(registry.deleted())
    key = registry.put("shop/broken", aescbc(secret("broken"), KEY_2, "key2"))
    confirmer = Agreeing(yes=False)
    with registry.untouched(), pytest.raises(RefusedByRule, match="the lost key was not typed back"):
        _run(
            registry,
            candidate,
            [],
            confirmer=confirmer,
            replace_mod_revision=registry.mod_revision(key),
            accepted=Acceptances(key_lost="aescbc/v1/key2", words=("no-api-server", "unknown-uid")),
        )
    assert confirmer.asked == ["aescbc/v1/key2"]


def _other_copy(survey: MemberSurvey, **changes: object) -> MemberSurvey:
    second = dataclasses.replace(survey.copies[0], member_id=0xB0B, name="bob", **changes)  # type: ignore[arg-type]
    return dataclasses.replace(survey, copies=(*survey.copies, second))


def _differing(survey: MemberSurvey) -> MemberSurvey:
    stored = survey.reading.stored
    assert stored is not None
    other = msgspec.structs.replace(stored, value=b"other")
    return _other_copy(survey, stored=other, value_sha256="00")


def _unchecked(survey: MemberSurvey) -> MemberSurvey:
    made = _other_copy(survey, state=CopyState.UNCHECKED, stored=None, value_sha256="", reason="no address")
    third = dataclasses.replace(made.copies[0], name="dora", member_id=0xD0)
    return dataclasses.replace(made, copies=(*made.copies, third))


def _moved(survey: MemberSurvey) -> MemberSurvey:
    return dataclasses.replace(survey, reading=dataclasses.replace(survey.reading, stored=None))


@pytest.mark.parametrize(
    ("change", "rule"),
    [(_differing, "members-disagree"), (_unchecked, "unchecked-member"), (_moved, "moved")],
)
def test_members_are_asked_before_what_we_wrote_goes(
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[MemberSurvey], MemberSurvey],
    rule: str,
) -> None:
    backup = registry.deleted()
    key = registry.put("shop/broken", b"k8s:enc:aescbc:v1:key1:other")
    there = registry.mod_revision(key)
    _run(
        registry,
        Candidate.of_backup(backup),
        [],
        replace_mod_revision=there,
        accepted=UNKNOWN_UID,
    )
    candidate = Candidate.of_backup(registry.kept()[-1])

    def survey(client: EtcdClient, asked: bytes) -> MemberSurvey:
        return change(survey_members(client, asked))

    monkeypatch.setattr(preflight_module, "survey_members", survey)
    there = registry.mod_revision(key)
    with registry.untouched(), pytest.raises(RefusedByRule) as caught:
        _run(registry, candidate, [], replace_mod_revision=there)
    assert caught.value.rule == rule
    if change is _unchecked:
        shown: list[RestorePreview] = []
        accepted = Acceptances(words=("unchecked-member=bob",))
        _run(registry, candidate, shown, replace_mod_revision=there, accepted=accepted)
        assert shown[0].warnings == ("member bob (b0b) was not asked, as accepted",)


def test_bytes_are_in_no_repr(registry: Registry) -> None:
    candidate = Candidate.of_backup(registry.deleted())
    assert BROKEN.decode() not in repr(candidate)
    assert BROKEN.decode() not in repr(RestoreRequest(candidate=candidate, reason="r"))
