"""Which source counts as an undo; the rest of a restore is tested by the command."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import msgspec
import pytest

from etcdfix.errors import AuditLogUnreadable, RefusedByRule
from etcdfix.remediation import preflight as preflight_module
from etcdfix.remediation.cluster_identity import ClusterIdentity
from etcdfix.remediation.commit import Outcome, Places
from etcdfix.remediation.members import CopyState, MemberSurvey, survey_members
from etcdfix.remediation.preflight import Acceptances
from etcdfix.remediation.restore import Candidate, OwnWrite, RestorePreview, RestoreRequest, run_restore
from etcdfix.sources.etcd.client import EtcdClient
from tests.support.change_runs import BROKEN, Agreeing, Registry
from tests.support.objects import KUBE_SYSTEM_UID

pytestmark = pytest.mark.etcd


def _run(registry: Registry, candidate: Candidate, shown: list[RestorePreview], **request: object) -> Outcome:
    with registry.cluster() as cluster:
        return run_restore(
            cluster,
            RestoreRequest(candidate=candidate, reason="r", places=registry.places, **request),  # type: ignore[arg-type]
            Agreeing(),
            preview=shown.append,
        )


def test_backup_of_this_log_is_an_undo(registry: Registry) -> None:
    candidate = Candidate.of_backup(registry.deleted())
    assert candidate.stored.value == BROKEN
    assert candidate.cluster is not None
    assert candidate.cluster.uid == KUBE_SYSTEM_UID
    shown: list[RestorePreview] = []
    _run(registry, candidate, shown)
    assert (shown[0].listed, shown[0].replaced, shown[0].lease) == (True, None, 0)
    assert shown[0].identity.uid == KUBE_SYSTEM_UID
    assert registry.stored(registry.key("shop/broken")) == BROKEN


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
        _run(registry, candidate, [], unlisted_source=True)
    assert caught.value.rule == "not-readable"


def test_value_without_a_backup_is_never_listed(registry: Registry) -> None:
    stored = registry.deleted().content.stored
    candidate = Candidate(stored=stored, origin="revision 7", cluster=ClusterIdentity.by_uid(KUBE_SYSTEM_UID))
    with registry.untouched(), pytest.raises(RefusedByRule) as caught:
        _run(registry, candidate, [])
    assert caught.value.rule == "unlisted-source"


def test_log_that_cannot_be_looked_for(registry: Registry) -> None:
    candidate = Candidate.of_backup(registry.deleted())
    places = Places((registry.backups,), registry.folder / ("a" * 300))
    with (
        registry.untouched(),
        registry.cluster() as cluster,
        pytest.raises(AuditLogUnreadable, match="File name too long") as caught,
    ):
        run_restore(
            cluster,
            RestoreRequest(candidate=candidate, reason="r", places=places),
            Agreeing(),
            preview=lambda _shown: None,
        )
    assert caught.value.exit_code == 5


def test_what_we_wrote_is_shown_as_such(registry: Registry) -> None:
    backup = registry.deleted()
    key = registry.put("shop/broken", b"k8s:enc:aescbc:v1:key1:other")
    _run(registry, Candidate.of_backup(backup), [], replace_mod_revision=registry.mod_revision(key))
    shown: list[RestorePreview] = []
    candidate = Candidate.of_backup(registry.kept()[-1])
    _run(registry, candidate, shown, replace_mod_revision=registry.mod_revision(key), dry_run=True)
    replaced = shown[0].replaced
    assert isinstance(replaced, OwnWrite)
    assert replaced.intent.link.sequence == 3
    assert (replaced.stored.value, replaced.declared_lost, replaced.lease) == (BROKEN, False, None)
    assert replaced.identity.uid == KUBE_SYSTEM_UID


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
    [(_differing, "members-disagree"), (_unchecked, "member-unchecked"), (_moved, "moved")],
)
def test_members_are_asked_before_what_we_wrote_goes(
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[MemberSurvey], MemberSurvey],
    rule: str,
) -> None:
    backup = registry.deleted()
    key = registry.put("shop/broken", b"k8s:enc:aescbc:v1:key1:other")
    _run(registry, Candidate.of_backup(backup), [], replace_mod_revision=registry.mod_revision(key))
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
        accepted = Acceptances(unchecked_members=("bob",))
        _run(registry, candidate, shown, replace_mod_revision=there, accepted=accepted)
        assert shown[0].warnings == ("member bob (b0b) was not asked, as accepted",)


def test_bytes_are_in_no_repr(registry: Registry) -> None:
    candidate = Candidate.of_backup(registry.deleted())
    assert BROKEN.decode() not in repr(candidate)
    assert BROKEN.decode() not in repr(RestoreRequest(candidate=candidate, reason="r"))
