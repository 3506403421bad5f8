from __future__ import annotations

import base64
import io
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etcdfix.apiserver import client as api_client
from etcdfix.apiserver import kubeconfig as kubeconfig_module
from etcdfix.apiserver.client import AuthorizationRefused, NoReply, Pace, RefusalReason, Reply, Server
from etcdfix.apiserver.kubeconfig import APIAccess, KubeconfigInvalid, KubernetesClientMissing, open_access
from etcdfix.model.errors import ConfigurationError, EtcdfixError
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.fixtures import Captured, Patch
from tests.support.kubernetes_api import KUBE_SYSTEM, TOKEN, Answer, KubernetesAPI, status_answer


@pytest.fixture
def api(authority: CertificateAuthority) -> Iterator[KubernetesAPI]:
    with KubernetesAPI(authority) as server:
        yield server


@contextmanager
def opened(
    kubeconfig: Path,
    *,
    context: str | None = None,
    tls_name: str = "",
) -> Iterator[Server]:
    access = open_access(APIAccess(kubeconfig, context))
    try:
        yield access.server(access.url, tls_name)
    finally:
        access.close()


def ask(kubeconfig: Path, **options: Any) -> bytes:
    with opened(kubeconfig, **options) as server:
        return server.require(server.send("GET", KUBE_SYSTEM), what="something")


def refused(kubeconfig: Path, **options: Any) -> AuthorizationRefused:
    with pytest.raises(AuthorizationRefused) as caught:
        ask(kubeconfig, **options)
    error = caught.value
    assert error.exit_code == 4
    hold_no_token(error)
    return error


def hold_no_token(error: BaseException | None) -> None:
    while error is not None:
        assert TOKEN not in f"{error!r} {error} {getattr(error, 'hint', '')} {error.args}"
        error = error.__cause__


def test_an_answer_longer_than_what_is_read(api: KubernetesAPI, tmp_path: Path) -> None:
    api.instead[KUBE_SYSTEM] = Answer(200, b"x" * 101)
    with opened(api.kubeconfig(tmp_path)) as server:
        assert server.send("GET", KUBE_SYSTEM, longest=101) == Reply(200, b"x" * 101)
        assert server.send("GET", KUBE_SYSTEM, longest=100) == Reply(200, None)


def test_nobody_asks_once_it_was_given_up(api: KubernetesAPI, tmp_path: Path) -> None:
    access = open_access(APIAccess(api.kubeconfig(tmp_path)))
    server = access.server(access.url)
    access.close()
    said = server.send("GET", KUBE_SYSTEM)
    assert isinstance(said, NoReply)
    assert said.reason is RefusalReason.TIMED_OUT
    assert api.requests == []


def test_an_answer_that_comes_byte_by_byte_has_an_end(
    api: KubernetesAPI, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(api_client, "REQUEST_SECONDS", 0.1)
    api.drip.add("/readyz")
    with opened(api.kubeconfig(tmp_path)) as server:
        assert server.send("GET", "/readyz") == NoReply(RefusalReason.TIMED_OUT, "no answer within 0.1 s")


BUSY = Answer(429, b"Too many requests, please try again later.\n", headers=(("Retry-After", "7"),))
GOOD = Answer(200, b"{}")


def unavailable(retry_after: str) -> Answer:
    return Answer(503, b"", headers=(("Retry-After", retry_after),))


@pytest.mark.parametrize(
    ("answers", "status", "pauses"),
    [
        (
            [Answer(503, b"", headers=(("Retry-After", after),)) for after in ("0", "31", "soon")] + [GOOD],
            200,
            [1, 31, 1],
        ),
        ([BUSY] * 6 + [GOOD], 429, [7] * 5),
        ([unavailable("45")] * 6 + [GOOD], 503, [45, 15]),
        ([status_answer(429), GOOD], 429, []),  # its memory is lost: to ask again helps nothing
    ],
)
def test_a_server_that_is_busy_is_asked_again(
    api: KubernetesAPI,
    tmp_path: Path,
    monkeypatch: Patch,
    answers: list[Answer],
    status: int,
    pauses: list[int],
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(api_client, "sleep", slept.append)
    api.before["/x"] = answers
    with opened(api.kubeconfig(tmp_path)) as server:
        reply = server.ask("/x")
        assert isinstance(reply, Reply)
        assert (reply.status, slept, server.requests) == (status, pauses, len(pauses) + 1)


def test_requests_pass_at_an_even_pace(monkeypatch: Patch) -> None:
    slept: list[float] = []
    now = [0.0]
    monkeypatch.setattr(api_client, "sleep", slept.append)
    monkeypatch.setattr(api_client, "monotonic", lambda: now[0])
    pace = Pace(4)
    for _ in range(3):
        pace.wait()
    assert slept == [0.25, 0.5]  # the clock of this test stands still
    now[0] = 10.0
    pace.wait()
    pace.wait()
    assert slept == [0.25, 0.5, 0.25]  # what was not used is not saved up


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


def test_a_token_that_no_header_takes(api: KubernetesAPI, tmp_path: Path) -> None:
    def odd_token(config: dict[str, Any]) -> None:
        config["users"][0]["user"]["token"] = f"{TOKEN}\r\nX-Other: 1"

    assert refused(api.kubeconfig(tmp_path, change=odd_token)).reason is RefusalReason.UNREACHABLE
    assert api.requests == []


def _plugin(script: str) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config["users"][0]["user"] = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable,
                "args": ["-c", script], "interactiveMode": "Never",
            }
        }  # fmt: skip

    return change


@pytest.mark.parametrize(
    "script",
    [f"print('{TOKEN}')", f"import sys; sys.exit('{TOKEN}')", "print('{}')"],
    ids=["no JSON", "fails", "no credential"],
)
def test_a_plugin_that_fails_is_not_quoted(
    api: KubernetesAPI, tmp_path: Path, capsys: Captured, script: str
) -> None:
    handlers = list(logging.getLogger().handlers)
    error = refused(api.kubeconfig(tmp_path, change=_plugin(script)))
    assert error.reason is RefusalReason.UNAUTHENTICATED
    shown = capsys.readouterr()
    assert TOKEN not in shown.out + shown.err
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger().filters == []


def test_a_plugin_that_never_ends(api: KubernetesAPI, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(kubeconfig_module, "CREDENTIALS_SECONDS", 0.2)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    before = set(threading.enumerate())
    error = refused(api.kubeconfig(tmp_path, change=_plugin(f"open({str(fifo)!r}).read()")))
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
    api: KubernetesAPI, tmp_path: Path, monkeypatch: Patch, capsys: Captured
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
        with kubeconfig_module._silent_root_logger():
            logging.error("the output of a plugin")  # noqa: LOG015 - as the package does it
            logging.getLogger("another").error("another's words")
        logging.error("afterwards")  # noqa: LOG015
    finally:
        root.removeHandler(handler)
    assert stream.getvalue().splitlines() == ["another's words", "afterwards"]


def test_credentials_that_cannot_be_refreshed(api: KubernetesAPI, tmp_path: Path, monkeypatch: Patch) -> None:
    from kubernetes.client import Configuration

    def fail(_self: object) -> None:
        raise ValueError(TOKEN)

    monkeypatch.setattr(Configuration, "auth_settings", fail)
    error = refused(api.kubeconfig(tmp_path))
    assert error.reason is RefusalReason.CREDENTIALS
    assert str(error) == "the credentials that the kubeconfig names could not be obtained (ValueError)"
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
        b"a: [",
        b"token: \t" + TOKEN.encode(),
        b"\xff\xfe\x00",
        b"{current-context: here, contexts: [], clusters: [], users: []}",
        b"{current-context: here, contexts: {here: 1}, clusters: 7, users: x}",
        WHOLE % (b"certificate-authority-data: '%s'" % base64.b64encode(b"no certificate"), b"token: x"),
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


def test_without_the_package(api: KubernetesAPI, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setitem(sys.modules, "kubernetes.config", None)
    with pytest.raises(KubernetesClientMissing, match="is not installed") as caught:
        ask(api.kubeconfig(tmp_path))
    assert caught.value.exit_code == 2
    assert caught.value.hint == "pip install 'etcdfix[kubernetes]'"
    assert api.requests == []
