"""The plugins of a run, against real plugins: answers, modes, outages, recovery, the end."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcdfix.encryption.config_model import KMSProvider
from etcdfix.encryption.kms.answers import PluginReport
from etcdfix.encryption.kms.envelopes import Failure, KMSPending, WrappedKey
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.encryption.kms.session import MOST_ASKED_AHEAD, PluginSession
from tests.support.fixtures import Captured
from tests.support.kms_plugin import KMSPlugin, PluginProcess, Refusal, load_keks

KEYS = Path(__file__).parents[4] / "fixtures/snapshots/alpha/kms1.keys"
KEKS = load_keks(KEYS)
DEK = b"this is a DEK, 32 bytes of it..."


@pytest.fixture(params=["v1", "v2"])
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin(request.param, tmp_path / "kms.sock", KEKS) as made:
        yield made


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


def a_key(plugin: KMSPlugin, dek: bytes = DEK, key_id: str = "") -> WrappedKey:
    wrapped = plugin.encrypt(dek, key_id)
    annotations = tuple(sorted(wrapped.annotations.items()))
    return WrappedKey(plugin.api_version, wrapped.ciphertext, 0, wrapped.key_id, annotations)


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
