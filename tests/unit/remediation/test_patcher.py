"""The one request that changes anything through the API; and that nothing else can send one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from etcdfix.apiserver.client import NoReply, Reply, Server
from etcdfix.apiserver.kubeconfig import APIAccess, open_access
from etcdfix.remediation import patcher
from etcdfix.remediation.patcher import FIXED_AT, patch_annotation
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.apiserver import Answer, StandIn
from tests.support.kubernetes_api import KubernetesAPI

PATH = "/api/v1/namespaces/shop/secrets/db"
PACKAGE = Path(__file__).parents[3] / "etcdfix"


def test_it_says_which_object_and_which_write_of_it(authority: CertificateAuthority, tmp_path: Path) -> None:
    at = "2026-11-23T10:00:00.000000Z"
    with StandIn(authority) as api:
        api.behaviour.instead[f"{PATH}?fieldManager=etcdfix"] = Answer(200, b"{}")
        access = open_access(APIAccess(api.kubeconfig(tmp_path)))
        reply = patch_annotation(access.server(api.url), PATH, uid="u-1", resource_version=41, at=at)
        access.close()
        (request,) = api.requests
    assert reply == Reply(200, b"{}")
    assert (request.method, request.path) == ("PATCH", f"{PATH}?fieldManager=etcdfix")
    assert request.content_type == "application/merge-patch+json"
    assert request.body == {
        "metadata": {"uid": "u-1", "resourceVersion": "41", "annotations": {FIXED_AT: at}}
    }


@pytest.mark.parametrize(("path", "uid", "revision"), [("", "u", 4), (PATH, "", 4), (PATH, "u", 0)])
def test_it_never_says_less(path: str, uid: str, revision: int) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        patch_annotation(None, path, uid=uid, resource_version=revision, at="now")  # type: ignore[arg-type] # never used


def test_who_was_never_reached_was_sent_nothing(authority: CertificateAuthority, tmp_path: Path) -> None:
    with KubernetesAPI(authority) as api:
        access = open_access(APIAccess(api.kubeconfig(tmp_path)))
        server: Server = access.server(api.url)
    reply = patch_annotation(server, PATH, uid="u", resource_version=4, at="now")
    assert isinstance(reply, NoReply)
    assert not reply.sent
    access.close()


@pytest.mark.parametrize(
    ("fails", "says"),
    [(False, "no answer within 0.05 s"), (True, "the connection failed (ZeroDivisionError)")],
)
def test_an_answer_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, fails: bool, says: str
) -> None:
    """Whatever happens to the request, it may have arrived."""

    release = threading.Event()

    class SlowPool:
        def request(self, *_arguments: object, **_request: object) -> None:
            if fails:
                raise ZeroDivisionError
            release.wait(10)

    monkeypatch.setattr(patcher, "ANSWER_SECONDS", 0.05)
    server = Server("https://slow", SlowPool(), {}, given_up=threading.Event())
    reply = patch_annotation(server, PATH, uid="u", resource_version=4, at="now")
    assert isinstance(reply, NoReply)
    release.set()
    assert (reply.sent, reply.text) == (True, says)


def test_asking_sends_no_change(authority: CertificateAuthority, tmp_path: Path) -> None:
    with KubernetesAPI(authority) as api:
        access = open_access(APIAccess(api.kubeconfig(tmp_path)))
        server = access.server(api.url)
        for method in ("PATCH", "PUT", "DELETE", "patch"):
            with pytest.raises(ValueError, match=method):
                server.send(method, PATH)
        access.close()
    assert api.requests == []


def test_only_this_module_sends_a_patch() -> None:
    text = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    for words, places in (
        ((".merge_patch(", "._exchange("), {"apiserver/client.py", "remediation/patcher.py"}),
        (('"PATCH"', '"PUT"'), {"apiserver/client.py"}),
    ):
        assert {name for name, content in text.items() if any(word in content for word in words)} == places
