from __future__ import annotations

from typing import Any

import pytest

from etcdfix.graph.assess import LastKnown
from etcdfix.graph.contents import ContentReader
from etcdfix.graph.recreation.last_readable import LastSeen, SeenOwner, last_seen
from etcdfix.model import Confidence, StoredValue
from tests.support.impact_objects import owner
from tests.support.lost_key import KeptMemory, base, examiner_of
from tests.support.memory_source import stored

KEY = "/registry/secrets/shop/web"


def seen(revision: int, **secret: Any) -> LastSeen:
    """Look at an earlier revision of a Secret; it stood at mod_revision 6."""
    cluster = base()
    cluster.secret("web", **secret)
    source = KeptMemory(cluster.values, kept=[stored(KEY, cluster.values[KEY], mod_revision=6)])
    examiner = examiner_of(cluster, source)
    # At 8 the value of 6 still stands; at 6 itself it may be compacted.
    known = LastKnown("uid-web", Confidence.CERTAIN, "history", revision, readable_at=8 if revision else 0)
    return last_seen(source, examiner, ContentReader(examiner), KEY.encode(), known)


def test_type_and_owners_with_the_managing_one_first() -> None:
    owners = (owner("ConfigMap", "a", api_version="v1"), owner("Deployment", "b", controller=True))
    found = seen(6, type="kubernetes.io/tls", owners=owners)
    assert found == LastSeen(
        6,
        "kubernetes.io/tls",
        (
            SeenOwner("apps", "Deployment", "b", "uid-b", controller=True),
            SeenOwner("", "ConfigMap", "a", "uid-a", controller=False),
        ),
    )


def test_the_account_of_a_token() -> None:
    found = seen(6, annotations={"kubernetes.io/service-account.name": "robot"})
    assert found.token_of == "robot"


def test_one_revision_is_read_and_not_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    before = KeptMemory.before

    def counted(self: KeptMemory, key: bytes, revision: int) -> StoredValue | None:
        asked.append(revision)
        return before(self, key, revision)

    monkeypatch.setattr(KeptMemory, "before", counted)
    assert seen(6, type="kubernetes.io/tls").type == "kubernetes.io/tls"
    assert asked == [9]


@pytest.mark.parametrize("revision", [0, 5, 7])
def test_no_such_revision(revision: int) -> None:
    assert seen(revision) == LastSeen()
