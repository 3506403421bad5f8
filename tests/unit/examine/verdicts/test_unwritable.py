"""What no API server can have written: bytes that names cannot hold, and what only looks odd."""

from __future__ import annotations

import pytest

from etcdfix.examine.verdicts.plaintext import unwritable
from etcdfix.model.model import Confidence, DecodedObject, GroupResource, GroupVersionKind, Inconsistency

SECRET = GroupVersionKind("", "v1", "Secret")
SECRETS = GroupResource("", "secrets")
ROLES = GroupResource("rbac.authorization.k8s.io", "clusterroles")
EVENTS = GroupResource("", "events")
ADDRESSES = GroupResource("networking.k8s.io", "ipaddresses")
DEPLOYMENTS = GroupResource("apps", "deployments")
WIDGETS = GroupResource("example.com", "widgets")
CERTAIN, LIKELY = Confidence.CERTAIN, Confidence.LIKELY


def found(
    name: bytes | None = b"web",
    namespace: bytes | None = b"shop",
    gvk: GroupVersionKind = SECRET,
    *causes: str,
) -> DecodedObject:
    wrong = tuple(Inconsistency(cause, "somewhere", "odd") for cause in causes)
    return DecodedObject(gvk, name, namespace, b"u-1", "protobuf", inconsistencies=wrong)


@pytest.mark.parametrize(
    ("name", "resource", "custom", "confidence"),
    [
        (b"web", SECRETS, False, None),
        (None, SECRETS, False, None),
        (b"web-0.example.com", SECRETS, False, None),
        (b"Web", SECRETS, False, CERTAIN),
        (b"w:b", SECRETS, False, CERTAIN),
        (b"w\nb", DEPLOYMENTS, False, CERTAIN),
        (b"W", WIDGETS, True, CERTAIN),
        (b"w\xc3\xa9b", SECRETS, False, CERTAIN),
        # Whose, nobody knows.
        (b"W", WIDGETS, False, None),
        # These may hold whatever a path may.
        (b"system:node-proxier", ROLES, False, None),
        ("rôle d'hôte".encode(), ROLES, False, None),
        (b"a\nb", ROLES, False, None),
        (b"a/b", ROLES, False, CERTAIN),
        (b"a%b", ROLES, False, CERTAIN),
        (b"r\xf4le", ROLES, False, CERTAIN),
        (b"2001:db8::1", ADDRESSES, False, None),
        (b"Web.17a", EVENTS, False, None),
    ],
)
def test_names(
    name: bytes | None, resource: GroupResource, custom: bool, confidence: Confidence | None
) -> None:
    assert unwritable(found(name), resource, custom=custom) is confidence


@pytest.mark.parametrize("resource", [SECRETS, ROLES])
def test_namespaces_are_labels_everywhere(resource: GroupResource) -> None:
    assert unwritable(found(namespace=None), resource, custom=False) is None
    for namespace in (b"Shop", b"sh.op", b"sh_op", b"sh\xffop"):
        assert unwritable(found(namespace=namespace), resource, custom=False) is CERTAIN


@pytest.mark.parametrize(
    ("causes", "confidence"),
    [
        (("raw-json-invalid",), CERTAIN), (("invalid-utf8", "raw-json-invalid"), CERTAIN),
        (("invalid-utf8",), LIKELY), (("int-or-string-invalid", "kind-missing"), None),
    ],
)  # fmt: skip
def test_contents(causes: tuple[str, ...], confidence: Confidence | None) -> None:
    odd = found(b"web", b"shop", SECRET, *causes)
    assert unwritable(odd, SECRETS, custom=False) is confidence
