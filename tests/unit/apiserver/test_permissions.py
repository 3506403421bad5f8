from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.apiserver.client import AuthorizationRefused, RefusalReason
from etcdfix.apiserver.kubeconfig import APIAccess, open_access
from etcdfix.apiserver.objects import APIObject
from etcdfix.apiserver.permissions import (
    UNKNOWN_USER,
    UNSAFE_DELETE_VERB,
    VERBS,
    Authorization,
    authorize,
    authorize_all,
    check_cluster,
)
from etcdfix.model.model import ClusterIdentity, GroupResource
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.kubernetes_api import (
    ACCESS_REVIEW,
    KUBE_SYSTEM,
    SUBJECT_REVIEW,
    UID,
    Answer,
    KubernetesAPI,
    status_answer,
)

PATHS = (KUBE_SYSTEM, ACCESS_REVIEW)


@pytest.fixture
def api(authority: CertificateAuthority) -> Iterator[KubernetesAPI]:
    with KubernetesAPI(authority) as server:
        yield server


HERE = ClusterIdentity.by_uid(UID)


def ask(kubeconfig: Path, *, cluster: ClusterIdentity = HERE, **options: Any) -> Authorization:
    thing = APIObject("apps", "v1", "deployments", "shop", "web")
    access = open_access(APIAccess(kubeconfig))
    try:
        server = access.server(access.url)
        check_cluster(server, cluster)
        return authorize(server, msgspec.structs.replace(thing, **options), cluster=cluster)
    finally:
        access.close()


def refused(kubeconfig: Path, **options: Any) -> AuthorizationRefused:
    with pytest.raises(AuthorizationRefused) as caught:
        ask(kubeconfig, **options)
    assert caught.value.exit_code == 4
    return caught.value


def test_a_clear_yes(api: KubernetesAPI, tmp_path: Path) -> None:
    found = ask(api.kubeconfig(tmp_path))
    assert found == Authorization(user_name="alice@example.org", server=api.url, kube_system_uid=UID)
    assert found.verbs == ("unsafe-delete-ignore-read-errors", "delete")
    assert [(request.method, request.path) for request in api.requests] == [
        ("GET", KUBE_SYSTEM), ("POST", SUBJECT_REVIEW), ("POST", ACCESS_REVIEW), ("POST", ACCESS_REVIEW),
    ]  # fmt: skip
    assert [request.body["spec"] for request in api.requests[2:]] == [
        {
            "resourceAttributes": {
                "group": "apps", "resource": "deployments", "namespace": "shop", "name": "web", "verb": verb,
            }
        }
        for verb in (UNSAFE_DELETE_VERB, "delete")
    ]  # fmt: skip
    assert all("Impersonate" not in str(request) for request in api.requests)


@pytest.mark.parametrize("verb", [UNSAFE_DELETE_VERB, "delete"])
def test_one_no_is_a_no(api: KubernetesAPI, tmp_path: Path, verb: str) -> None:
    api.denied = {verb}
    error = refused(api.kubeconfig(tmp_path))
    assert error.reason is RefusalReason.DENIED
    assert str(error) == f"the API server denies the permission to {verb} deployments.apps shop/web"
    assert error.hint == f"kubectl --kubeconfig FILE auth can-i {verb} deployments.apps/web -n shop"


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ({"denied": True}, RefusalReason.DENIED, "denies"),
        ({"allowed": False, "reason": "not on sundays"}, RefusalReason.DENIED, ": not on sundays"),
        ({"evaluationError": "role gone"}, RefusalReason.EVALUATION_ERROR, "is in doubt about .*: role gone"),
        ({"allowed": "true"}, RefusalReason.MALFORMED_ANSWER, "cannot|not one that can be understood"),
        ({"allowed": None}, RefusalReason.MALFORMED_ANSWER, "not one that can be understood"),
    ],
)
def test_doubt_is_a_no(
    api: KubernetesAPI, tmp_path: Path, status: dict[str, Any], reason: RefusalReason, words: str
) -> None:
    api.status = status
    error = refused(api.kubeconfig(tmp_path))
    assert error.reason is reason
    with pytest.raises(AuthorizationRefused, match=words):
        raise error


REVIEW = (
    b'{"kind":"%s","spec":{"resourceAttributes":{"group":"apps","resource":"deployments","namespace":"shop",'
    b'"name":"%s","verb":"%s"}},"status":{"allowed":true}}'
)
MALFORMED = (
    b"",
    b"{}",
    b'{"kind": "\xff"}',
    b"<html>login</html>",
    b'{"kind":"Namespace","metadata":{"name":"default","uid":"%s"}}' % UID.encode(),
    b'{"kind":"Namespace","metadata":{"name":"kube-system","uid":""}}',
    b'{"kind":"SelfSubjectAccessReview","spec":{},"status":{"allowed":true}}',
    # A yes to another question, and a yes of another kind.
    REVIEW % (b"SelfSubjectAccessReview", b"other", UNSAFE_DELETE_VERB.encode()),
    REVIEW % (b"X", b"web", UNSAFE_DELETE_VERB.encode()),
    b'{"kind":"X","metadata":{"name":"kube-system","uid":"%s"}}' % UID.encode(),
    b"[" * 100_000,
    b'{"kind":"Namespace","metadata":{"name":"kube-system","uid":"' + b"x" * (1 << 20) + b'"}}',
)


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: body[:30].decode("latin-1"))
@pytest.mark.parametrize("path", PATHS)
def test_an_answer_that_is_none(api: KubernetesAPI, tmp_path: Path, path: str, body: bytes) -> None:
    api.instead[path] = Answer(200, body)
    assert refused(api.kubeconfig(tmp_path)).reason is RefusalReason.MALFORMED_ANSWER


def test_a_yes_of_another_kind_to_each_question(api: KubernetesAPI, tmp_path: Path) -> None:
    api.before[ACCESS_REVIEW] = [Answer(200, REVIEW % (b"X", b"web", verb.encode())) for verb in VERBS]
    assert refused(api.kubeconfig(tmp_path)).reason is RefusalReason.MALFORMED_ANSWER


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, RefusalReason.UNAUTHENTICATED),
        (403, RefusalReason.FORBIDDEN),
        (429, RefusalReason.SERVER_ERROR),
        (500, RefusalReason.SERVER_ERROR),
    ],
)
def test_a_status_that_is_no_yes(
    api: KubernetesAPI, tmp_path: Path, path: str, status: int, reason: RefusalReason
) -> None:
    api.instead[path] = Answer(status, status_answer(status).body, headers=(("Retry-After", "1"),))
    error = refused(api.kubeconfig(tmp_path))
    assert error.reason is reason
    assert str(status) in str(error)
    assert ("in a moment" in error.hint) is (status in {429, 503})
    # Asked once: nothing is retried.
    assert [request.path for request in api.requests].count(path) == 1


def test_a_redirect_is_not_followed(api: KubernetesAPI, tmp_path: Path) -> None:
    api.instead[KUBE_SYSTEM] = Answer(302, headers=(("Location", f"{api.url}{SUBJECT_REVIEW}"),))
    assert refused(api.kubeconfig(tmp_path)).reason is RefusalReason.SERVER_ERROR
    assert [request.path for request in api.requests] == [KUBE_SYSTEM]


def test_another_cluster(api: KubernetesAPI, tmp_path: Path) -> None:
    api.uid = "another"
    error = refused(api.kubeconfig(tmp_path))
    assert error.reason is RefusalReason.OTHER_CLUSTER
    assert "another" in str(error)
    assert UID in str(error)
    assert [request.path for request in api.requests] == [KUBE_SYSTEM]


@pytest.mark.parametrize("empty", ["resource", "name"])
def test_nobody_asks_about_everything(api: KubernetesAPI, tmp_path: Path, empty: str) -> None:
    emptied: dict[str, Any] = {empty: ""}
    with pytest.raises(ValueError, match="must not be empty"):
        ask(api.kubeconfig(tmp_path), **emptied)
    assert [request.method for request in api.requests] == ["GET"]


@pytest.mark.parametrize(
    "instead",
    [status_answer(404), status_answer(403), Answer(201, b"{}"), Answer(201, b"x")],
    ids=["not served", "forbidden", "empty", "no JSON"],
)
def test_a_name_that_is_not_told(api: KubernetesAPI, tmp_path: Path, instead: Answer) -> None:
    api.instead[SUBJECT_REVIEW] = instead
    assert ask(api.kubeconfig(tmp_path)).user_name == UNKNOWN_USER


def test_every_object_of_a_resource_is_asked_for_without_a_name(api: KubernetesAPI, tmp_path: Path) -> None:
    access = open_access(APIAccess(api.kubeconfig(tmp_path)))
    try:
        server = access.server(access.url)
        assert authorize_all(server, GroupResource("", "secrets")) == api.user
        asked = [r.body["spec"]["resourceAttributes"] for r in api.requests if r.path == ACCESS_REVIEW]
        assert asked == [{"resource": "secrets", "verb": verb} for verb in VERBS]
        api.denied = {"delete"}
        with pytest.raises(
            AuthorizationRefused, match="denies the permission to delete every object of secrets"
        ) as no:
            authorize_all(server, GroupResource("", "secrets"))
        assert no.value.hint == "kubectl --kubeconfig FILE auth can-i delete secrets --all-namespaces"
    finally:
        access.close()
