"""The client against a real gRPC server on a real socket, and against everything that is none."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.answers import Answer, Health, PluginState
from etcdfix.encryption.kms.client import KMSClient
from etcdfix.encryption.kms.envelopes import NO_ANSWER, REFUSALS, Failure, WrappedKey
from tests.support.fixtures import Captured
from tests.support.kms_plugin import RAW, KMSPlugin, Refusal, Wrapped, load_keks

KEYS = Path(__file__).parents[4] / "fixtures/snapshots/alpha/kms1.keys"
KEKS = load_keks(KEYS)
DEK = b"this is a DEK, 32 bytes of it..."
APIS = ("v1", "v2")

Client = Callable[..., KMSClient]


@pytest.fixture(params=APIS)
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin(request.param, tmp_path / "kms.sock", KEKS) as made:
        yield made


@pytest.fixture
def client_of() -> Iterator[Client]:
    made = []

    def connect(plugin: KMSPlugin, *, timeout_seconds: float = 30.0, path: str = "") -> KMSClient:
        client = KMSClient(plugin.provider(timeout_seconds=timeout_seconds), path)
        made.append(client)
        return client

    yield connect
    for client in made:
        client.close()


def wrapped_key(plugin: KMSPlugin, wrapped: Wrapped) -> WrappedKey:
    annotations = tuple(sorted(wrapped.annotations.items()))
    return WrappedKey(plugin.api_version, wrapped.ciphertext, 0, wrapped.key_id, annotations)


def a_key(plugin: KMSPlugin) -> WrappedKey:
    return wrapped_key(plugin, plugin.encrypt(DEK))


def dek(answer: Answer) -> bytes:
    assert isinstance(answer, KeyMaterial), answer
    return answer.expose()


def test_a_key_comes_back(plugin: KMSPlugin, client_of: Client) -> None:
    client = client_of(plugin)
    assert client.check() == Health(
        PluginState.OK, "", plugin.write_key_id if plugin.api_version == "v2" else ""
    )
    assert dek(client.decrypt(a_key(plugin))) == DEK
    assert {call.authority for call in plugin.calls} == {"localhost"}


def test_v2_sends_what_is_stored_and_a_fresh_uid(tmp_path: Path, client_of: Client) -> None:
    with KMSPlugin("v2", tmp_path / "kms.sock", KEKS) as plugin:
        wrapped = WrappedKey(
            "v2", b"\x00\xff", 1, "k\u00e9y", (("a.example.com", b"\xff"), ("b.example.com", b""))
        )
        client = client_of(plugin)
        for _ in range(2):
            client.decrypt(wrapped)
        first, second = (call.request for call in plugin.calls)
        assert (first.ciphertext, first.key_id) == (wrapped.ciphertext, wrapped.key_id)
        assert dict(first.annotations) == dict(wrapped.annotations)
        assert uuid.UUID(first.uid) != uuid.UUID(second.uid)


GO_SPELLING = {
    "ABORTED": "Aborted", "ALREADY_EXISTS": "AlreadyExists", "CANCELLED": "Canceled", "DATA_LOSS": "DataLoss",
    "DEADLINE_EXCEEDED": "DeadlineExceeded", "FAILED_PRECONDITION": "FailedPrecondition",
    "INTERNAL": "Internal", "INVALID_ARGUMENT": "InvalidArgument", "NOT_FOUND": "NotFound",
    "OUT_OF_RANGE": "OutOfRange", "PERMISSION_DENIED": "PermissionDenied",
    "RESOURCE_EXHAUSTED": "ResourceExhausted", "UNAUTHENTICATED": "Unauthenticated",
    "UNAVAILABLE": "Unavailable", "UNIMPLEMENTED": "Unimplemented", "UNKNOWN": "Unknown",
}  # fmt: skip


def test_codes(plugin: KMSPlugin, client_of: Client) -> None:
    client, key = client_of(plugin), a_key(plugin)
    for code, spelt in GO_SPELLING.items():
        plugin.refusal = Refusal(code, "text \x1b[31m")
        answer = client.decrypt(key)
        assert isinstance(answer, Failure)
        assert (answer.status, answer.refused) == (code, code in REFUSALS)
        assert answer.message == f"rpc error: code = {spelt} desc = text \x1b[31m"
        assert answer.refused or answer.silent == (code in NO_ANSWER)


def test_an_answer_that_is_no_protobuf(
    plugin: KMSPlugin, client_of: Client, caplog: pytest.LogCaptureFixture
) -> None:
    plugin.script = lambda _request: RAW + b"\x0a\x7f" + DEK
    with caplog.at_level(logging.DEBUG):
        answer = client_of(plugin).decrypt(a_key(plugin))
    assert answer == Failure(
        "INTERNAL", "rpc error: code = Internal desc = grpc: failed to unmarshal the received message"
    )
    assert not caplog.records


def test_closing_ends_a_call_under_way_and_all_later_ones(plugin: KMSPlugin, client_of: Client) -> None:
    plugin.gate.clear()
    client, wrapped, answers = client_of(plugin), a_key(plugin), []
    thread = threading.Thread(target=lambda: answers.append(client.decrypt(wrapped)))
    thread.start()
    plugin.wait_for("Decrypt", 1)
    client.close()
    thread.join(30)
    answers.append(client.decrypt(wrapped))
    assert [type(answer) for answer in answers] == [Failure, Failure]
    assert {answer.status for answer in answers if isinstance(answer, Failure)} == {"CANCELLED"}


@pytest.mark.parametrize("version", ["", "v" * 5000])
def test_wrong_versions(version: str, plugin: KMSPlugin, client_of: Client) -> None:
    plugin.version = version
    health = client_of(plugin).check()
    shown = version if len(version) < 100 else version[:128] + "..."
    expected = {
        "v1": f"KMS provider api version {shown} is not supported, only v1beta1 is supported now",
        "v2": f"expected KMSv2 API version v2, got {shown}",
    }
    assert health == Health(PluginState.WRONG_VERSION, expected[plugin.api_version])


@pytest.mark.parametrize(
    ("key_id", "problem"),
    [("", "keyID is empty"), ("k" * 1025, "keyID is 1025 bytes, which exceeds the max size of 1024")],
)
def test_a_write_key_id_that_no_server_would_take(
    key_id: str, problem: str, tmp_path: Path, client_of: Client
) -> None:
    with KMSPlugin("v2", tmp_path / "kms.sock", KEKS) as plugin:
        plugin.write_key_id = key_id
        assert client_of(plugin).check() == Health(
            PluginState.UNHEALTHY, f"got invalid KMSv2 KeyID: {problem}"
        )


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("PERMISSION_DENIED", PluginState.DENIED), ("UNAUTHENTICATED", PluginState.DENIED),
        ("UNIMPLEMENTED", PluginState.WRONG_VERSION), ("UNAVAILABLE", PluginState.UNREACHABLE),
        ("INTERNAL", PluginState.UNREACHABLE), ("NOT_FOUND", PluginState.UNREACHABLE),
    ],
)  # fmt: skip
def test_health_that_is_refused(code: str, state: PluginState, plugin: KMSPlugin, client_of: Client) -> None:
    plugin.health_refusal = Refusal(code, "because")
    assert client_of(plugin).check() == Health(state, f"rpc error: code = {GO_SPELLING[code]} desc = because")


def test_a_file_that_is_no_socket(plugin: KMSPlugin, client_of: Client, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    health = client_of(plugin, path=str(tmp_path / "file")).check()
    assert health == Health(PluginState.NO_SOCKET, f'"{tmp_path}/file" is not a socket')


@pytest.mark.parametrize(("path", "message"), [("/" + "p" * 200, "path too long"), ("/a\0b", "zero byte")])
def test_paths_that_cannot_be(
    path: str, message: str, plugin: KMSPlugin, client_of: Client, capfd: Captured
) -> None:
    health = client_of(plugin, path=path).check()
    assert health.state is PluginState.NO_SOCKET
    assert message in health.message
    assert capfd.readouterr() == ("", "")


def test_a_socket_that_nobody_listens_on(plugin: KMSPlugin, client_of: Client, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / "stale"))
    health = client_of(plugin, path=str(tmp_path / "stale")).check()
    assert (health.state, health.nobody_listens) == (PluginState.UNREACHABLE, True)
    assert "connection refused" in health.message


def test_a_socket_of_somebody_else(plugin: KMSPlugin, client_of: Client) -> None:
    Path(plugin.socket_path).chmod(0)
    client = client_of(plugin)
    user = os.geteuid()
    if user == 0:  # who may open everything
        os.seteuid(65534)
    try:
        health = client.check()
    finally:
        os.seteuid(user)
    assert health.state is PluginState.SOCKET_DENIED
    assert "permission denied" in health.message


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", ["per%63ent", "\u00fcml\u00e4ut with space", "a/b"])
def test_abstract_sockets(api: str, name: str, client_of: Client) -> None:
    with KMSPlugin(api, f"@etcdfix-{uuid.uuid4()}-{name}", KEKS) as plugin:
        client = client_of(plugin)
        assert client.check().state is PluginState.OK
        assert dek(client.decrypt(a_key(plugin))) == DEK
