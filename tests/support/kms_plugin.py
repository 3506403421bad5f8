"""A KMS plugin: a real gRPC server on a real unix socket, v1beta1 or v2, with a switch for everything that goes wrong.

Its messages are described here once more and not taken from ``etcdfix.wire.kms``, so that both sides agree on the
format and not on a mistake. KEKs and ciphertexts are those of the plugins that wrote ``fixtures/snapshots/alpha``.

As a program it serves until it is killed, which is what a crash looks like::

    python -m tests.support.kms_plugin --api v2 --socket /tmp/kms.sock --keys fixtures/snapshots/alpha/kms1.keys
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # by path as well as with -m
    sys.path.insert(0, str(ROOT))

from etcdfix.encryption.config_model import KMSProvider  # noqa: E402
from tests.support import encoders  # noqa: E402
from tests.support.stopping import Stopping  # noqa: E402

ANNOTATION = "version.kms.example.com"
_NONCE_SIZE = 12

_B, _S = encoders.BYTES, encoders.STRING
_V1_MESSAGES: Mapping[str, tuple[tuple[str, int], ...]] = {
    "VersionRequest": (("version", _S),),
    "VersionResponse": (("version", _S), ("runtime_name", _S), ("runtime_version", _S)),
    "DecryptRequest": (("version", _S), ("cipher", _B)),
    "DecryptResponse": (("plain", _B),),
    "EncryptRequest": (("version", _S), ("plain", _B)),
    "EncryptResponse": (("cipher", _B),),
}
_V2_MESSAGES: Mapping[str, tuple[tuple[str, int], ...]] = {
    "StatusRequest": (),
    "StatusResponse": (("version", _S), ("healthz", _S), ("key_id", _S)),
    "DecryptRequest": (("ciphertext", _B), ("uid", _S), ("key_id", _S), ("annotations", 0)),
    "DecryptResponse": (("plaintext", _B),),
    "EncryptRequest": (("plaintext", _B), ("uid", _S)),
    "EncryptResponse": (("ciphertext", _B), ("key_id", _S), ("annotations", 0)),
}


V1 = encoders.message_classes("v1beta1", _V1_MESSAGES)
V2 = encoders.message_classes("v2", _V2_MESSAGES)


class Refusal(NamedTuple):
    """A gRPC code and its text."""

    code: str
    details: str = ""


class Call(NamedTuple):
    """One call that arrived."""

    method: str
    request: Any
    authority: str


class Wrapped(NamedTuple):
    """What Encrypt returns; v1 has the cipher alone."""

    ciphertext: bytes
    key_id: str = ""
    annotations: Mapping[str, bytes] = {}


def load_keks(path: Path) -> dict[str, bytes]:
    """KEKs by id from lines of ``<id> <AES-256 key, hex>``, the newest last."""
    pairs = (line.split() for line in path.read_text().splitlines() if line.strip())
    return {name: bytes.fromhex(key) for name, key in pairs}


class KMSPlugin(Stopping):
    """One plugin. Every attribute may be changed while it runs.

    Attributes:
        keks: KEKs by id; remove one, and its values cannot be opened.
        write_key_id: The KEK that encrypts, and what Status tells.
        refusal: Answers every Decrypt, until set to None.
        health_refusal: Answers every Status or Version.
        script: Called with each Decrypt before it is answered; a :class:`Refusal`, or raw bytes of a response, go
            back instead of the answer.
        damage: Changes the plaintext before it goes back: wrong bytes, wrong length.
        gate: While it is cleared, Decrypt hangs.
        dies_after: The server stops when so many Decrypts were answered.
    """

    def __init__(
        self,
        api_version: str,
        socket_path: str | Path,
        keks: Mapping[str, bytes],
        *,
        write_key_id: str = "",
        start: bool = True,
    ) -> None:
        self.api_version = api_version
        self.socket_path = str(socket_path)
        self.keks = dict(keks)
        self.write_key_id = write_key_id or list(keks)[-1]
        self.version = "v1beta1" if api_version == "v1" else "v2"
        self.healthz = "ok"
        self.refusal: Refusal | None = None
        self.health_refusal: Refusal | None = None
        self.script: Callable[[Any], Refusal | bytes | None] = lambda _request: None
        self.damage: Callable[[bytes], bytes] = lambda plaintext: plaintext
        self.gate = threading.Event()
        self.gate.set()
        self.delay_seconds = 0.0
        self.dies_after: int | None = None
        self.calls: list[Call] = []
        self.peak = 0
        self._under_way = 0
        self._decrypted = 0
        self._changed = threading.Condition()
        self._server: Any = None
        self._threads: ThreadPoolExecutor | None = None
        if start:
            self.start()

    @property
    def endpoint(self) -> str:
        """As a configuration names it; ``socket_path`` may be ``@name``."""
        path = self.socket_path
        return f"unix:///{path}" if path.startswith("@") else f"unix://{path}"

    def provider(self, name: str = "prov", *, timeout_seconds: float = 5.0) -> KMSProvider:
        """The element of a configuration that leads here."""
        cache_size = 1000 if self.api_version == "v1" else None
        return KMSProvider(
            self.api_version, name, self.endpoint, self.socket_path, cache_size, timeout_seconds
        )

    def start(self) -> None:
        """Listen, or listen again."""
        import grpc  # not at the top: the package sets variables that grpc reads when it is imported

        self._threads = ThreadPoolExecutor(max_workers=64)
        self._server = grpc.server(self._threads, options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_handler(self, grpc),))
        path = self.socket_path
        target = f"unix-abstract:{quote(path[1:])}" if path.startswith("@") else f"unix:{quote(path)}"
        self._server.add_insecure_port(target)
        self._server.start()

    def stop(self) -> None:
        """Stop listening and drop all calls; more than once is fine."""
        self.gate.set()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
        with self._changed:
            self._under_way = 0

    def count(self, *methods: str) -> int:
        """How many calls of these methods arrived, or of all."""
        with self._changed:
            return sum(not methods or call.method in methods for call in self.calls)

    def wait_for(self, method: str, count: int) -> None:
        """Wait until so many calls of a method arrived."""

        def arrived() -> bool:
            return sum(call.method == method for call in self.calls) >= count

        with self._changed:
            assert self._changed.wait_for(arrived, 30), f"fewer than {count} calls of {method}"

    def wait_for_concurrency(self, count: int) -> None:
        """Wait until so many Decrypts are under way at once."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.peak >= count, 30), f"{self.peak} at once, not {count}"

    def encrypt(self, plaintext: bytes, key_id: str = "") -> Wrapped:
        """Wrap a DEK or DEK seed, as the RPC does; with an older KEK on request."""
        key_id = key_id or self.write_key_id
        nonce = secrets.token_bytes(_NONCE_SIZE)
        sealed = nonce + AESGCM(self.keks[key_id]).encrypt(nonce, plaintext, None)
        if self.api_version == "v1":
            return Wrapped(key_id.encode() + b":" + sealed)
        return Wrapped(sealed, key_id, {ANNOTATION: b"1"})

    def decrypt(self, request: Any) -> bytes | Refusal:
        """Open what :meth:`encrypt` made."""
        if self.api_version == "v1":
            name, _, sealed = request.cipher.partition(b":")
            kek = self.keks.get(name.decode(errors="replace"))
            missing = "key not found"
        else:
            sealed, kek = request.ciphertext, self.keks.get(request.key_id)
            missing = f"key {request.key_id} not found"
            if kek is not None and dict(request.annotations) != {ANNOTATION: b"1"}:
                return Refusal("INVALID_ARGUMENT", "annotations missing")
        if kek is None:
            return Refusal("NOT_FOUND", missing)
        try:
            return AESGCM(kek).decrypt(sealed[:_NONCE_SIZE], sealed[_NONCE_SIZE:], None)
        except (InvalidTag, ValueError):
            return Refusal("INVALID_ARGUMENT", "ciphertext rejected")

    def answer(self, method: str, request: Any, authority: str) -> bytes | Refusal:
        """The raw response to one call; for the server."""
        with self._changed:
            self.calls.append(Call(method, request, authority))
            self._changed.notify_all()
        match method:
            case "Status" | "Version":
                return self.health_refusal or self._health()
            case "Encrypt" if self.api_version == "v1":
                return _raw(V1["EncryptResponse"](cipher=self.encrypt(request.plain).ciphertext))
            case "Encrypt":
                return _raw(V2["EncryptResponse"](**self.encrypt(request.plaintext)._asdict()))
            case _:
                return self._decrypt_call(request)

    def _health(self) -> bytes:
        if self.api_version == "v1":
            return _raw(V1["VersionResponse"](version=self.version, runtime_name="test", runtime_version="1"))
        return _raw(
            V2["StatusResponse"](version=self.version, healthz=self.healthz, key_id=self.write_key_id)
        )

    def _decrypt_call(self, request: Any) -> bytes | Refusal:
        with self._changed:
            self._under_way += 1
            self.peak = max(self.peak, self._under_way)
            self._changed.notify_all()
        try:
            self.gate.wait()
            time.sleep(self.delay_seconds)
            found = self.script(request) or self.refusal or self.decrypt(request)
            if isinstance(found, Refusal):
                return found
            if found[:4] == RAW:
                return found[4:]
            plaintext = self.damage(found)
            name, field = (V1, "plain") if self.api_version == "v1" else (V2, "plaintext")
            return _raw(name["DecryptResponse"](**{field: plaintext}))
        finally:
            with self._changed:
                self._under_way -= 1
                self._decrypted += 1
                dying = self._decrypted == self.dies_after
            server = self._server
            if dying and server is not None:  # None where the test was quicker and has stopped it
                # From a thread of its own: this one belongs to the server.
                threading.Thread(target=lambda: server.stop(None), daemon=True).start()

    # Helpers for tests: stored values as an API server writes them through this plugin.

    def stored_v1(
        self,
        plaintext: bytes,
        etcd_key: bytes,
        *,
        name: str = "prov",
        wrapped: Wrapped | None = None,
        key_id: str = "",
    ) -> bytes:
        """A complete KMS v1 value, AES-GCM as servers write it since 1.25."""
        dek = secrets.token_bytes(32)
        wrapped = wrapped or self.encrypt(dek, key_id)
        data = encoders.aesgcm_body(plaintext, dek, secrets.token_bytes(12), etcd_key)
        return f"k8s:enc:kms:v1:{name}:".encode() + encoders.kms_v1_body(wrapped.ciphertext, data)

    def stored_v2(
        self,
        plaintext: bytes,
        etcd_key: bytes,
        *,
        name: str = "prov",
        source_type: int = 1,
        source: bytes | None = None,
        wrapped: Wrapped | None = None,
        key_id: str = "",
    ) -> bytes:
        """A complete KMS v2 value; pass ``source`` and ``wrapped`` for several values under one DEK seed."""
        source = source or secrets.token_bytes(32)
        wrapped = wrapped or self.encrypt(source, key_id)
        nonce = secrets.token_bytes(12)
        if source_type == 1:
            data = encoders.kms_v2_seeded_data(plaintext, source, secrets.token_bytes(32), nonce, etcd_key)
        else:
            data = encoders.aesgcm_body(plaintext, source, nonce, etcd_key)
        body = encoders.kms_v2_body(
            data,
            key_id=wrapped.key_id,
            dek_source=wrapped.ciphertext,
            annotations=wrapped.annotations,
            source_type=source_type,
        )
        return f"k8s:enc:kms:v2:{name}:".encode() + body


RAW = b"raw:"
"""In front of what a script returns: these bytes are the whole response."""


def _raw(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _handler(plugin: KMSPlugin, grpc: Any) -> Any:
    package, classes = ("v1beta1", V1) if plugin.api_version == "v1" else ("v2", V2)

    class Service(grpc.GenericRpcHandler):  # type: ignore[misc]  # gRPC comes without types: its classes are Any
        def service(self, handler_call_details: Any) -> Any:
            service, _, method = handler_call_details.method.strip("/").partition("/")
            if service != f"{package}.KeyManagementService" or f"{method}Request" not in classes:
                return None

            def serve(request: Any, context: Any) -> bytes:
                found = plugin.answer(method, request, _authority(context))
                if isinstance(found, Refusal):
                    context.abort(grpc.StatusCode[found.code], found.details)
                assert isinstance(found, bytes)
                return found

            return grpc.unary_unary_rpc_method_handler(
                serve, request_deserializer=classes[f"{method}Request"].FromString
            )

    return Service()


def _authority(context: Any) -> str:
    return bytes(context._rpc_event.call_details.host).decode()  # gRPC offers no other way to it


class PluginProcess:
    """The same plugin as a process of its own, to be killed."""

    def __init__(self, api_version: str, socket_path: str | Path, keys: Path) -> None:
        self.socket_path = str(socket_path)
        command = [sys.executable, __file__, "--api", api_version]
        self._process = subprocess.Popen(
            [*command, "--socket", self.socket_path, "--keys", str(keys)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL: the socket file stays behind; more than once is fine."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--api", choices=["v1", "v2"], required=True)
    parser.add_argument("--socket", required=True, help="a path, or @name")
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--write-key-id", default="")
    options = parser.parse_args()
    keks = load_keks(options.keys)
    with KMSPlugin(options.api, options.socket, keks, write_key_id=options.write_key_id):
        print("ready", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
