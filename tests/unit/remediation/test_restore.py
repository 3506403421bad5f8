"""Which source counts as an undo; the rest of a restore is tested by the command."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from etcdfix.errors import RefusedByRule
from etcdfix.remediation.commit import Outcome
from etcdfix.remediation.restore import Candidate, RestorePreview, RestoreRequest, run_restore
from tests.support.change_runs import BROKEN, Agreeing, Registry
from tests.support.etcd_server import EtcdServer
from tests.support.objects import KUBE_SYSTEM_UID

pytestmark = pytest.mark.etcd


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Registry:
    return Registry(etcd, prefix, tmp_path, capfd)


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
    assert (candidate.stored.value, candidate.cluster_uid) == (BROKEN, KUBE_SYSTEM_UID)
    shown: list[RestorePreview] = []
    _run(registry, candidate, shown)
    assert (shown[0].listed, shown[0].replaced, shown[0].lease) == (True, None, 0)
    assert shown[0].cluster_uid == KUBE_SYSTEM_UID
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
    candidate = Candidate(stored=stored, origin="revision 7", cluster_uid=KUBE_SYSTEM_UID)
    with registry.untouched(), pytest.raises(RefusedByRule) as caught:
        _run(registry, candidate, [])
    assert caught.value.rule == "unlisted-source"
