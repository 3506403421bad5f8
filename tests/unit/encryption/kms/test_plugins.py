"""Plugins on real sockets: one client, and all plugins of a run with their modes, outages, recovery and end."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcdfix.encryption.config_model import KMSProvider
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.answers import Answer, Health, PluginReport, PluginState
from etcdfix.encryption.kms.client import KMSClient
from etcdfix.encryption.kms.envelopes import NO_ANSWER, REFUSALS, Failure, KMSPending, WrappedKey
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.encryption.kms.session import MOST_ASKED_AHEAD, PluginSession
from tests.support.fixtures import Captured
from tests.support.kms_plugin import RAW, KMSPlugin, PluginProcess, Refusal, Wrapped, load_keks

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


def a_key(plugin: KMSPlugin, dek: bytes = DEK) -> WrappedKey:
    return wrapped_key(plugin, plugin.encrypt(dek))


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


@pytest.fixture
def open_plugins() -> Iterator[Callable[..., KMSPlugins]]:
    made = []

    def start(**options: object) -> KMSPlugins:
        plugins = KMSPlugins(**{"max_rate": 0, **options})  # type: ignore[arg-type]
        made.append(plugins)
        return plugins

    yield start
    for plugins in made:
        plugins.close()
    assert kms_threads() == []


Open = Callable[..., KMSPlugins]


def kms_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kms-")]


def ask(session: PluginSession, wrapped: WrappedKey) -> None:
    session._mode.deferring = True
    with contextlib.suppress(KMSPending):
        session.unwrap(wrapped)
    session._mode.deferring = False


def failure(session: PluginSession, wrapped: WrappedKey) -> Failure:
    answer = session.unwrap(wrapped)
    assert isinstance(answer, Failure)
    return answer


def report_of(plugins: KMSPlugins) -> PluginReport:
    (report,) = plugins.reports()
    return report


def test_grpc_is_not_loaded_before_the_first_question() -> None:
    program = (
        "import sys, etcdfix.encryption.kms.plugins as p; p.KMSPlugins(); assert 'grpc' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("state", ["no-socket", "wrong-version", "denied"])
def test_what_cannot_get_better_is_not_asked_again(
    state: str, plugin: KMSPlugin, open_plugins: Open, tmp_path: Path
) -> None:
    endpoints = {}
    if state == "no-socket":
        endpoints["prov"] = f"unix://{tmp_path}/none"
    elif state == "wrong-version":
        plugin.version = "v9"
    else:
        plugin.health_refusal = Refusal("PERMISSION_DENIED", "not you")
    plugins = open_plugins(endpoints=endpoints)
    session = plugins.plugin_for(plugin.provider())
    messages = set()
    # Being denied is an answer: nothing is known of the values, and it is no outage either.
    for number in range(20):
        failed = failure(session, a_key(plugin, bytes([number]) * 32))
        assert failed.refused is (state == "denied")
        messages.add(failed.message)
    plugins.deferring = True
    assert failure(session, a_key(plugin)).refused is (state == "denied")
    assert session.over
    assert plugins.over
    assert plugin.count("Decrypt") == 0
    assert plugin.count() == (0 if state == "no-socket" else 1)
    report = report_of(plugins)
    assert report.state == state
    assert messages == {report.message}
    assert not session.healthy


def test_a_plugin_that_is_killed_and_comes_back(tmp_path: Path, open_plugins: Open) -> None:
    with KMSPlugin("v2", tmp_path / "unused", KEKS, start=False) as writer:
        keys = [a_key(writer, number.to_bytes(2, "big") * 16) for number in range(100)]
    path = tmp_path / "kms.sock"
    provider = KMSProvider("v2", "prov", f"unix://{path}", str(path), None, 30.0)
    session = open_plugins(patience_seconds=60).plugin_for(provider)
    with PluginProcess("v2", path, KEYS) as process:
        assert session.unwrap(keys[0]) == bytes(32)
        process.kill()
    for key in keys[1:]:
        ask(session, key)
    with PluginProcess("v2", path, KEYS):
        assert [session.unwrap(key) for key in keys] == [n.to_bytes(2, "big") * 16 for n in range(100)]
    assert session.healthy


def test_closing_while_calls_are_under_way(plugin: KMSPlugin) -> None:
    plugins = KMSPlugins(max_rate=0)
    session = plugins.plugin_for(plugin.provider(timeout_seconds=60))
    known = a_key(plugin)
    session.unwrap(known)
    plugin.gate.clear()
    with plugins:
        for number in range(100):
            ask(session, a_key(plugin, bytes([number]) * 32))
        plugin.wait_for_concurrency(MOST_ASKED_AHEAD)
    assert kms_threads() == []
    for key in (known, a_key(plugin)):
        assert not failure(session, key).refused
    plugins.close()


def test_no_key_is_shown_anywhere(
    plugin: KMSPlugin, open_plugins: Open, caplog: pytest.LogCaptureFixture, capfd: Captured
) -> None:
    shown = io.StringIO()
    with caplog.at_level(logging.DEBUG):
        plugins = open_plugins()
        session = plugins.plugin_for(plugin.provider())
        assert session.unwrap(a_key(plugin)) == DEK
        plugin.refusal = Refusal("NOT_FOUND", "no")
        print(failure(session, a_key(plugin)), file=shown)
        print(session, vars(session), plugins, vars(plugins), plugins.reports(), file=shown)
    print(caplog.text, *capfd.readouterr(), file=shown)
    text = shown.getvalue()
    for form in (DEK.decode(), DEK.hex(), repr(DEK), repr(list(DEK)), DEK[:12].decode()):
        assert form not in text


def test_closing_forgets_the_keys(plugin: KMSPlugin) -> None:
    dek = uuid.uuid4().bytes * 2
    with KMSPlugins(max_rate=0) as plugins:
        session = plugins.plugin_for(plugin.provider())
        assert session.unwrap(a_key(plugin, dek)) == dek
        assert held(session, dek)
    assert not held(session, dek)


def held(session: PluginSession, dek: bytes) -> bool:
    seen: set[int] = set()
    waiting: list[object] = [session]
    for _ in range(8):
        found: list[object] = [
            thing
            for thing in gc.get_referents(*waiting)
            if not isinstance(thing, type) and id(thing) not in seen
        ]
        if any(isinstance(thing, bytes) and thing == dek for thing in found):
            return True
        seen |= {id(thing) for thing in found}
        waiting = found
        if not waiting or len(seen) > 100_000:
            break
    return False
