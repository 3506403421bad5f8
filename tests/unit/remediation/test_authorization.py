from __future__ import annotations

import base64
import io
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.errors import (
    AuthorizationRefused,
    ConfigurationError,
    EtcdfixError,
    KubeconfigInvalid,
    KubernetesClientMissing,
)
from etcdfix.remediation import authorization
from etcdfix.remediation.authorization import (
    UNKNOWN_USER,
    UNSAFE_DELETE_VERB,
    Authorization,
    RefusalReason,
    authorize,
)
from tests.support.certificates import CertificateAuthority
from tests.support.kubernetes_api import (
    ACCESS_REVIEW,
    KUBE_SYSTEM,
    SUBJECT_REVIEW,
    TOKEN,
    UID,
    Answer,
    KubernetesAPI,
    status_answer,
)

PATHS = (KUBE_SYSTEM, ACCESS_REVIEW)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def api(authority: CertificateAuthority) -> Iterator[KubernetesAPI]:
    with KubernetesAPI(authority) as server:
        yield server


def ask(kubeconfig: Path, **options: Any) -> Authorization:
    wanted = {
        "group": "apps",
        "resource": "deployments",
        "namespace": "shop",
        "name": "web",
        "kube_system_uid": UID,
    }
    return authorize(kubeconfig, **{**wanted, **options})


def refused(kubeconfig: Path, **options: Any) -> AuthorizationRefused:
    with pytest.raises(AuthorizationRefused) as caught:
        ask(kubeconfig, **options)
    error = caught.value
    assert error.exit_code == 4
    hold_no_token(error)
    return error


def hold_no_token(error: BaseException | None) -> None:
    """The token is in no text, hint, argument or chained exception of an error."""
    while error is not None:
        assert TOKEN not in f"{error!r} {error} {getattr(error, 'hint', '')} {error.args}"
        error = error.__cause__


def test_a_clear_yes(api: KubernetesAPI, tmp_path: Path) -> None:
    found = ask(api.kubeconfig(tmp_path))
    assert found == Authorization(user_name="alice@example.org", server=api.url, kube_system_uid=UID)
    assert found.verbs == ("unsafe-delete-ignore-read-errors", "delete")
    assert [(request.method, request.path) for request in api.requests] == [
        ("GET", KUBE_SYSTEM),
        ("POST", SUBJECT_REVIEW),
        ("POST", ACCESS_REVIEW),
        ("POST", ACCESS_REVIEW),
    ]
    assert [request.body["spec"] for request in api.requests[2:]] == [
        {
            "resourceAttributes": {
                "group": "apps",
                "resource": "deployments",
                "namespace": "shop",
                "name": "web",
                "verb": verb,
            }
        }
        for verb in (UNSAFE_DELETE_VERB, "delete")
    ]
    assert all("Impersonate" not in str(request) for request in api.requests)


def test_an_object_of_the_core_group_without_a_namespace(api: KubernetesAPI, tmp_path: Path) -> None:
    ask(api.kubeconfig(tmp_path), group="", resource="nodes", namespace="", name="n1")
    assert api.requests[-1].body["spec"] == {
        "resourceAttributes": {"resource": "nodes", "name": "n1", "verb": "delete"}
    }


@pytest.mark.parametrize("verb", [UNSAFE_DELETE_VERB, "delete"])
def test_one_no_is_a_no(api: KubernetesAPI, tmp_path: Path, verb: str) -> None:
    api.denied = {verb}
    error = refused(api.kubeconfig(tmp_path))
    assert error.reason is RefusalReason.DENIED
    assert str(error) == f"the API server denies the permission to {verb} deployments.apps shop/web"
    assert error.hint == f"kubectl auth can-i {verb} deployments.apps"


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ({"denied": True}, RefusalReason.DENIED, "denies"),
        ({"allowed": False, "reason": "not on sundays"}, RefusalReason.DENIED, ": not on sundays"),
        ({"evaluationError": "role gone"}, RefusalReason.EVALUATION_ERROR, "is in doubt about .*: role gone"),
        ({"evaluationError": "x" * 5000}, RefusalReason.EVALUATION_ERROR, ": x{300}…$"),
        ({"allowed": "true"}, RefusalReason.MALFORMED_ANSWER, "cannot|not one that can be understood"),
        ({"allowed": 1}, RefusalReason.MALFORMED_ANSWER, "not one that can be understood"),
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
    b'"name":"%s","verb":"unsafe-delete-ignore-read-errors"}},"status":{"allowed":true}}'
)
MALFORMED = (
    b"",
    b"{}",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"kind": "\xff"}',
    b"<html>login</html>",
    b'{"kind":"Status","status":"Success"}',
    b'{"kind":"Namespace","metadata":{"name":"default","uid":"%s"}}' % UID.encode(),
    b'{"kind":"Namespace","metadata":{"name":"kube-system","uid":""}}',
    b'{"kind":"Namespace","metadata":{"name":"kube-system"}}',
    b'{"kind":"SelfSubjectAccessReview","spec":{},"status":{"allowed":true}}',
    # A yes to another question, and a yes of another kind.
    REVIEW % (b"SelfSubjectAccessReview", b"other"),
    REVIEW % (b"X", b"web"),
    b"[" * 100_000,
    b'{"kind":"Namespace","metadata":{"name":"kube-system","uid":"' + b"x" * (1 << 20) + b'"}}',
)


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: body[:30].decode("latin-1"))
@pytest.mark.parametrize("path", PATHS)
def test_an_answer_that_is_none(api: KubernetesAPI, tmp_path: Path, path: str, body: bytes) -> None:
    api.instead[path] = Answer(200, body)
    assert refused(api.kubeconfig(tmp_path)).reason is RefusalReason.MALFORMED_ANSWER


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, RefusalReason.UNAUTHENTICATED),
        (403, RefusalReason.FORBIDDEN),
        (404, RefusalReason.SERVER_ERROR),
        (429, RefusalReason.SERVER_ERROR),
        (500, RefusalReason.SERVER_ERROR),
        (503, RefusalReason.SERVER_ERROR),
    ],
)
def test_a_status_that_is_no_yes(
    api: KubernetesAPI, tmp_path: Path, path: str, status: int, reason: RefusalReason
) -> None:
    api.instead[path] = Answer(status, status_answer(status).body, (("Retry-After", "1"),))
    error = refused(api.kubeconfig(tmp_path))
    assert error.reason is reason
    assert str(status) in str(error)
    # Asked once: nothing is retried.
    assert [request.path for request in api.requests].count(path) == 1


def test_a_redirect_is_not_followed(api: KubernetesAPI, tmp_path: Path) -> None:
    api.instead[KUBE_SYSTEM] = Answer(302, b"", (("Location", f"{api.url}{SUBJECT_REVIEW}"),))
    assert refused(api.kubeconfig(tmp_path)).reason is RefusalReason.SERVER_ERROR
    assert [request.path for request in api.requests] == [KUBE_SYSTEM]


@pytest.mark.parametrize("path", PATHS)
def test_a_connection_that_is_closed(api: KubernetesAPI, tmp_path: Path, path: str) -> None:
    api.hang_up = {path}
    error = refused(api.kubeconfig(tmp_path))
    assert error.reason is RefusalReason.UNREACHABLE
    assert [request.path for request in api.requests].count(path) == 1


@pytest.mark.parametrize("path", PATHS)
def test_a_server_that_does_not_answer(api: KubernetesAPI, tmp_path: Path, path: str) -> None:
    api.stall = {path}
    error = refused(api.kubeconfig(tmp_path), timeout_seconds=2)
    assert error.reason is RefusalReason.TIMED_OUT
    assert [request.path for request in api.requests].count(path) == 1


def test_a_server_that_sends_byte_by_byte(api: KubernetesAPI, tmp_path: Path) -> None:
    api.drip = {KUBE_SYSTEM}
    error = refused(api.kubeconfig(tmp_path), timeout_seconds=0.6)
    assert error.reason is RefusalReason.TIMED_OUT
    assert "was not there within 0.6 s" in str(error)


def test_another_cluster(api: KubernetesAPI, tmp_path: Path) -> None:
    api.uid = "another"
    error = refused(api.kubeconfig(tmp_path))
    assert error.reason is RefusalReason.OTHER_CLUSTER
    assert "another" in str(error)
    assert UID in str(error)
    assert [request.path for request in api.requests] == [KUBE_SYSTEM]


def test_an_unknown_uid_in_etcd_cannot_be_the_same(api: KubernetesAPI, tmp_path: Path) -> None:
    api.uid = ""
    error = refused(api.kubeconfig(tmp_path), kube_system_uid="")
    assert error.reason is RefusalReason.OTHER_CLUSTER
    assert api.requests == []


@pytest.mark.parametrize("empty", ["resource", "name"])
def test_nobody_asks_about_everything(api: KubernetesAPI, tmp_path: Path, empty: str) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        ask(api.kubeconfig(tmp_path), **{empty: ""})
    assert api.requests == []


@pytest.mark.parametrize(
    "instead",
    [status_answer(404), status_answer(403), Answer(201, b"{}"), Answer(201, b"x")],
    ids=["not served", "forbidden", "empty", "no JSON"],
)
def test_a_name_that_is_not_told(api: KubernetesAPI, tmp_path: Path, instead: Answer) -> None:
    api.instead[SUBJECT_REVIEW] = instead
    assert ask(api.kubeconfig(tmp_path)).user_name == UNKNOWN_USER


@pytest.mark.parametrize(("told", "shown"), [("", UNKNOWN_USER), ("n" * 400, "n" * 300 + "…")])
def test_odd_names(api: KubernetesAPI, tmp_path: Path, told: str, shown: str) -> None:
    api.user = told
    assert ask(api.kubeconfig(tmp_path)).user_name == shown


def test_nobody_listens(authority: CertificateAuthority, tmp_path: Path) -> None:
    with KubernetesAPI(authority) as server:
        kubeconfig = server.kubeconfig(tmp_path)
    error = refused(kubeconfig)
    assert error.reason is RefusalReason.UNREACHABLE
    assert "no connection comes about" in str(error)


def test_a_proxy_that_is_not_there(
    api: KubernetesAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use_proxy(config: dict[str, Any]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            config["clusters"][0]["cluster"]["proxy-url"] = f"http://127.0.0.1:{probe.getsockname()[1]}"

    monkeypatch.setenv("NO_PROXY", "nothing")
    assert refused(api.kubeconfig(tmp_path, change=use_proxy)).reason is RefusalReason.UNREACHABLE
    assert api.requests == []


def test_a_certificate_of_somebody_else(api: KubernetesAPI, tmp_path: Path) -> None:
    other = CertificateAuthority(tmp_path / "other", name="somebody else")

    def trust_other(config: dict[str, Any]) -> None:
        config["clusters"][0]["cluster"]["certificate-authority"] = str(other.cert)

    assert refused(api.kubeconfig(tmp_path, change=trust_other)).reason is RefusalReason.TLS_FAILED
    assert api.requests == []


def test_a_certificate_for_another_host(authority: CertificateAuthority, tmp_path: Path) -> None:
    with KubernetesAPI(authority, hosts=("elsewhere.example",)) as server:
        assert refused(server.kubeconfig(tmp_path)).reason is RefusalReason.TLS_FAILED


def _plain(config: dict[str, Any]) -> None:
    cluster = config["clusters"][0]["cluster"]
    cluster["server"] = cluster["server"].replace("https://", "http://somebody:secret@")


def _unverified(config: dict[str, Any]) -> None:
    cluster = config["clusters"][0]["cluster"]
    del cluster["certificate-authority"]
    cluster["insecure-skip-tls-verify"] = True


@pytest.mark.parametrize("change", [_plain, _unverified])
def test_nothing_proves_who_answers(
    api: KubernetesAPI, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    error = refused(api.kubeconfig(tmp_path, change=change))
    assert error.reason is RefusalReason.TLS_FAILED
    assert "secret" not in str(error)
    assert "127.0.0.1" in str(error)
    assert api.requests == []


def test_a_user_whom_the_server_does_not_know(api: KubernetesAPI, tmp_path: Path) -> None:
    def wrong_token(config: dict[str, Any]) -> None:
        config["users"][0]["user"]["token"] = f"{TOKEN}-expired"

    error = refused(api.kubeconfig(tmp_path, change=wrong_token))
    assert error.reason is RefusalReason.UNAUTHENTICATED


def test_a_token_that_no_header_takes(api: KubernetesAPI, tmp_path: Path) -> None:
    def odd_token(config: dict[str, Any]) -> None:
        config["users"][0]["user"]["token"] = f"{TOKEN}\r\nX-Other: 1"

    assert refused(api.kubeconfig(tmp_path, change=odd_token)).reason is RefusalReason.UNREACHABLE
    assert api.requests == []


def _plugin(script: str) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config["users"][0]["user"] = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": ["-c", script],
                "interactiveMode": "Never",
            }
        }

    return change


def test_a_plugin_gives_the_token(api: KubernetesAPI, tmp_path: Path) -> None:
    script = (
        "import json; print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1',"
        f"'kind': 'ExecCredential', 'status': {{'token': '{TOKEN}'}}}}))"
    )
    assert ask(api.kubeconfig(tmp_path, change=_plugin(script))).user_name == "alice@example.org"


@pytest.mark.parametrize(
    "script",
    [f"print('{TOKEN}')", f"import sys; sys.exit('{TOKEN}')", "print('{}')"],
    ids=["no JSON", "fails", "no credential"],
)
def test_a_plugin_that_fails_is_not_quoted(
    api: KubernetesAPI, tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    handlers = list(logging.getLogger().handlers)
    error = refused(api.kubeconfig(tmp_path, change=_plugin(script)))
    assert error.reason is RefusalReason.UNAUTHENTICATED
    shown = capsys.readouterr()
    assert TOKEN not in shown.out + shown.err
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger().filters == []


def test_a_plugin_that_never_ends(api: KubernetesAPI, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    before = set(threading.enumerate())
    error = refused(
        api.kubeconfig(tmp_path, change=_plugin(f"open({str(fifo)!r}).read()")), timeout_seconds=0.5
    )
    assert error.reason is RefusalReason.TIMED_OUT
    # Let it go: what was refused for want of time asks nothing afterwards.
    abandoned = set(threading.enumerate()) - before
    assert abandoned
    fifo.open("w").close()
    for thread in abandoned:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert api.requests == []


def test_whatever_the_package_raises(
    api: KubernetesAPI,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from kubernetes import config

    class OddError(Exception):
        """Of some library that a plugin's helper uses."""

    def fail(**_options: object) -> None:
        raise OddError(TOKEN)

    monkeypatch.setattr(config, "new_client_from_config", fail)
    error = refused(api.kubeconfig(tmp_path))
    assert str(error) == "the API server could not be asked (OddError)"
    assert error.reason is RefusalReason.CREDENTIALS
    shown = capsys.readouterr()
    assert shown.out + shown.err == ""


def test_what_the_root_logger_says_meanwhile_is_dropped() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with authorization._silent_root_logger():
            logging.error("the output of a plugin")  # noqa: LOG015 - as the package does it
            logging.getLogger("another").error("another's words")
        logging.error("afterwards")  # noqa: LOG015
    finally:
        root.removeHandler(handler)
    assert stream.getvalue().splitlines() == ["another's words", "afterwards"]


def test_credentials_that_cannot_be_refreshed(
    api: KubernetesAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.client import Configuration

    def fail(_self: object) -> None:
        raise ValueError(TOKEN)

    monkeypatch.setattr(Configuration, "auth_settings", fail)
    error = refused(api.kubeconfig(tmp_path))
    assert error.reason is RefusalReason.CREDENTIALS
    assert api.requests == []


WHOLE = (
    b"{current-context: here, contexts: [{name: here, context: {cluster: c, user: u}}], "
    b"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', %s}}], users: [{name: u, user: {%s}}]}"
)


def no_kubeconfig(path: Path, **options: Any) -> KubeconfigInvalid:
    with pytest.raises(KubeconfigInvalid) as caught:
        ask(path, **options)
    assert caught.value.exit_code == 2
    assert isinstance(caught.value, ConfigurationError)
    hold_no_token(caught.value)
    return caught.value


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file or directory" in str(no_kubeconfig(tmp_path / "none"))
    assert "one file" in str(no_kubeconfig(tmp_path / "a:b"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"x",
        b"a: [",
        b"token: \t" + TOKEN.encode(),
        b"\xff\xfe\x00",
        b"{current-context: here}",
        b"{current-context: here, contexts: [], clusters: [], users: []}",
        b"{current-context: here, contexts: {here: 1}, clusters: 7, users: x}",
        WHOLE % (b"certificate-authority-data: '%s'" % base64.b64encode(b"no certificate"), b"token: x"),
        WHOLE % (b"certificate-authority: /nowhere", b"token: x"),
        WHOLE % (b"certificate-authority: ''", b"client-key-data: '%s'" % TOKEN.encode()),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)
    with pytest.raises(EtcdfixError) as caught:
        ask(path)
    assert isinstance(caught.value, KubeconfigInvalid | AuthorizationRefused)
    hold_no_token(caught.value)


def test_a_context_of_that_name(api: KubernetesAPI, tmp_path: Path) -> None:
    def rename(config: dict[str, Any]) -> None:
        config["current-context"] = "nowhere"

    kubeconfig = api.kubeconfig(tmp_path, change=rename)
    assert "its current context" in str(no_kubeconfig(kubeconfig))
    assert "context 'there'" in str(no_kubeconfig(kubeconfig, context="there"))
    assert ask(kubeconfig, context="here").server == api.url


def test_without_the_package(api: KubernetesAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setitem(sys.modules, "kubernetes.config", None)
    with pytest.raises(KubernetesClientMissing, match="is not installed") as caught:
        ask(api.kubeconfig(tmp_path))
    assert caught.value.exit_code == 2
    assert caught.value.hint == "pip install 'etcdfix[kubernetes]'"
    assert api.requests == []


def test_the_package_is_imported_only_when_it_is_needed() -> None:
    import subprocess

    code = (
        "import sys, etcdfix.remediation.authorization;"
        "print('kubernetes' in sys.modules, 'urllib3' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
