from __future__ import annotations

from typing import Any

import pytest

from etcdfix.examine import Examiner
from etcdfix.graph import recreation as module
from etcdfix.graph.contents import ContentReader
from etcdfix.graph.recreation import (
    NeighbourReader,
    Neighbours,
    Place,
    claimed_secrets,
)
from etcdfix.graph.recreation_rules import RULES
from etcdfix.sources.base import Source
from tests.support.lost_key import base, certificate, examiner_of

SECRETS_OF_SHOP = Place("secrets", "shop")


def seen(source: Source, examiner: Examiner, place: Place, *, many_readers: bool = False) -> Neighbours:
    """Look at everything, as if something at that place were broken; with a reader for each value, or with one."""
    reader, neighbours = NeighbourReader(ContentReader(examiner), {place}), Neighbours({place})
    for record in source.current(b""):
        found = examiner.examine(record)
        if many_readers:
            reader = NeighbourReader(ContentReader(examiner), {place})
        neighbours.absorb(found, reader.read(found))
    return neighbours


@pytest.mark.parametrize("many_readers", [False, True])
def test_claims_and_siblings_are_bounded(monkeypatch: pytest.MonkeyPatch, *, many_readers: bool) -> None:
    monkeypatch.setattr(module, "_MOST_CLAIMS", 2)
    monkeypatch.setattr(module, "_MOST_SIBLINGS", 3)
    cluster = base()
    for number in range(5):
        certificate(cluster, f"site-{number}", f"site-{number}-tls")
        cluster.secret(f"settings-{number}", annotations={"olm.managed": "true"})
    source = cluster.source()
    found = seen(source, examiner_of(cluster, source), SECRETS_OF_SHOP, many_readers=many_readers)
    assert [found.claim("shop", f"site-{n}-tls") is not None for n in range(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    ruler = found.ruler(SECRETS_OF_SHOP)
    assert ruler is not None
    assert ruler[1:] == (3, 3)


def claimed(resource: str, spec: Any, *, name: str = "own") -> list[tuple[str, str]]:
    (rule,) = (rule for rule in RULES.specs if rule.path.endswith(f"/{resource}"))
    return claimed_secrets(rule, "shop", name, {"spec": spec})


# ------------------------------------------------------------------------------------------ specs that name a Secret


@pytest.mark.parametrize(
    ("policy", "creates"),
    [
        (None, True),
        ("", True),
        ("Owner", True),
        ("Orphan", True),
        ("Merge", False),
        ("None", False),
        ("Something", False),
        (["Owner"], False),
    ],
)
def test_external_secrets_create_by_their_policy(policy: Any, creates: bool) -> None:
    spec = {"target": {"name": "target", "creationPolicy": policy}}
    assert claimed("externalsecrets", spec) == ([("shop", "target")] if creates else [])


def test_external_secrets_have_their_own_name_where_they_say_none() -> None:
    assert claimed("externalsecrets", {}) == [("shop", "own")]
    assert claimed("externalsecrets", {"target": {"creationPolicy": "Merge"}}) == []
    assert claimed("externalsecrets", {"target": {"manifest": {"kind": "ConfigMap"}}}) == []


def test_what_is_being_deleted_creates_nothing() -> None:
    (rule,) = (rule for rule in RULES.specs if rule.path.endswith("/certificates"))
    whole: dict[str, Any] = {"metadata": {"name": "own"}, "spec": {"secretName": "x"}}
    assert claimed_secrets(rule, "shop", "own", whole) == [("shop", "x")]
    whole["metadata"]["deletionTimestamp"] = "2026-03-01T10:00:00Z"
    assert claimed_secrets(rule, "shop", "own", whole) == []


@pytest.mark.parametrize(
    ("resource", "spec", "found"),
    [
        ("certificates", {"secretName": "x"}, [("shop", "x")]),
        ("certificates", {"secretName": 7}, []),
        ("certificates", ["secretName"], []),
        ("issuers", {"acme": {"privateKeySecretRef": {"name": "x"}}}, [("shop", "x")]),
        (
            "issuers",
            {"acme": {"privateKeySecretRef": {"name": "x"}, "disableAccountKeyGeneration": True}},
            [],
        ),
        (
            "sopssecrets",
            {"secretTemplates": [{"name": "x"}, {}, {"name": "y"}]},
            [("shop", "x"), ("shop", "y")],
        ),
        ("sopssecrets", {"secretTemplates": [{"name": "x"}], "suspend": True}, []),
        ("kafkausers", {"authentication": {"type": "scram-sha-512"}}, [("shop", "own")]),
        ("kafkausers", {"authentication": {"type": "tls-external"}}, []),
        ("kafkausers", {}, []),
    ],
)
def test_other_claims(resource: str, spec: Any, found: list[tuple[str, str]]) -> None:
    assert claimed(resource, spec) == found
