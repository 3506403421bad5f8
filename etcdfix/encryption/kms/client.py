"""One KMS plugin on its unix socket: Status or Version, and Decrypt, one RPC for each question.

Plaintext gRPC, messages from :mod:`etcdfix.wire.kms`. Whatever goes wrong comes back as a value, sorted into what
the plugin refused and what could not be found out. Nothing is asked twice here; that is decided in
:mod:`~etcdfix.encryption.kms.session`.

Sources: ``k8s.io/apiserver/pkg/storage/value/encrypt/envelope/grpc_service.go`` (v1),
``…/envelope/kmsv2/grpc_service.go`` and the health check in ``…/server/options/encryptionconfig/config.go`` (v2).
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
import uuid
from typing import Any
from urllib.parse import quote_from_bytes

from google.protobuf.message import DecodeError

from etcdfix.encryption.config_model import KMSProvider
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.answers import (
    Answer,
    Health,
    PluginState,
    bounded,
)
from etcdfix.encryption.kms.envelopes import KEY_ID_MAX_SIZE, Failure, WrappedKey
from etcdfix.golang.goquote import go_quote
from etcdfix.model.interruptions import interruptions_held
from etcdfix.wire.descriptors import ReadMethod
from etcdfix.wire.kms import V1_DECRYPT, V1_VERSION, V2_DECRYPT, V2_STATUS, message

# gRPC reads these when it is imported. Its log lines would repeat on stderr what we say in our own words,
# and its fork handlers cost time in every child process.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc  # after the variables that it reads

MAX_ANSWER_BYTES = 1 << 20
MAX_METADATA_BYTES = 256 << 10
_V1_API = "v1beta1"
_V2_APIS = frozenset({"v2", "v2beta1"})
_WORD_MAX_SIZE = 128
# Go's names of the codes are ours in camel case, but for this one.
_GO_CODES = {"CANCELLED": "Canceled"}
_CLOSED = "the connection to the plugin was closed"
_NOT_PROTOBUF = "grpc: failed to unmarshal the received message"


class KMSClient:
    """A plugin's connection; made by the first call, kept until :meth:`close`."""

    def __init__(self, provider: KMSProvider, socket_path: str = "") -> None:
        """Prepare a connection; ``socket_path`` goes before the provider's own."""
        self._api_version = provider.api_version
        self._timeout_seconds = provider.timeout_seconds
        self._address = _address(socket_path or provider.socket_path)
        self._lock = threading.Lock()
        self._channel: Any = None
        self._closed = False
        self._calls: dict[str, Any] = {}

    def check(self) -> Health:
        """Look at the socket, then ask for Status (v2) or Version (v1), as the API server does before all else."""
        problem = _socket_problem(self._address, self._timeout_seconds)
        if problem is not None:
            return problem
        if self._api_version == "v1":
            answer = self._call(V1_VERSION, message(V1_VERSION.request)(version=_V1_API))
            return _failed_check(answer) if isinstance(answer, Failure) else _v1_health(answer)
        answer = self._call(V2_STATUS, message(V2_STATUS.request)())
        return _failed_check(answer) if isinstance(answer, Failure) else _v2_health(answer)

    def decrypt(self, wrapped: WrappedKey) -> Answer:
        """Ask for the DEK or DEK seed; for v1, :meth:`check` must have been ok before."""
        if self._api_version == "v1":
            request = message(V1_DECRYPT.request)(version=_V1_API, cipher=wrapped.ciphertext)
            answer = self._call(V1_DECRYPT, request)
            return answer if isinstance(answer, Failure) else KeyMaterial(answer.plain)
        request = message(V2_DECRYPT.request)(
            ciphertext=wrapped.ciphertext,
            uid=str(uuid.uuid4()),
            key_id=wrapped.key_id,
            annotations=dict(wrapped.annotations),
        )
        answer = self._call(V2_DECRYPT, request)
        return answer if isinstance(answer, Failure) else KeyMaterial(answer.plaintext)

    def close(self) -> None:
        """End the connection; calls under way come back as unanswered."""
        with self._lock:
            self._closed = True
            channel, self._channel = self._channel, None
        if channel is not None:
            with interruptions_held(only_first=True):  # gRPC takes locks that its threads need
                channel.close()

    def _call(self, method: ReadMethod, request: Any) -> Any:
        call = self._open(method)
        if call is None:
            return _failure("CANCELLED", _CLOSED)
        try:
            raw = call(request, timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            return _failure(error.code().name, error.details() or "")
        except ValueError:  # gRPC's word for a closed channel
            return _failure("CANCELLED", _CLOSED)
        try:
            return message(method.response).FromString(raw)
        except DecodeError:
            # Its text is dropped with it: the bytes may hold a key.
            return _failure("INTERNAL", _NOT_PROTOBUF)

    def _open(self, method: ReadMethod) -> Any:
        """Return what makes one call; None once closed. gRPC hears of a socket only when somebody listens there."""
        with self._lock:
            if self._closed:
                return None
            if self._channel is None:
                self._channel = grpc.insecure_channel(_target(self._address), _options(self._timeout_seconds))
            call = self._calls.get(method.path)
            if call is None:
                call = self._calls[method.path] = self._channel.unary_unary(
                    method.path,
                    request_serializer=message(method.request).SerializeToString,
                    # Bytes as they come: gRPC would log what it fails to parse.
                    response_deserializer=None,
                )
            return call


def go_status(code: str, details: str) -> str:
    """Return a status as Go prints it: ``rpc error: code = NotFound desc = key k1 not found``; bounded."""
    name = _GO_CODES.get(code) or code.title().replace("_", "")
    return f"rpc error: code = {name} desc = {bounded(details)}"


def _failure(code: str, details: str) -> Failure:
    return Failure(code, go_status(code, details))


def _failed_check(failure: Failure) -> Health:
    if failure.status == "UNIMPLEMENTED":
        return Health(PluginState.WRONG_VERSION, failure.message)
    if failure.status in {"PERMISSION_DENIED", "UNAUTHENTICATED"}:
        return Health(PluginState.DENIED, failure.message)
    return Health(PluginState.UNREACHABLE, failure.message)


def _v1_health(answer: Any) -> Health:
    if answer.version == _V1_API:
        return Health(PluginState.OK)
    found = bounded(answer.version, _WORD_MAX_SIZE)
    return Health(
        PluginState.WRONG_VERSION,
        f"KMS provider api version {found} is not supported, only {_V1_API} is supported now",
    )


def _v2_health(answer: Any) -> Health:
    size = len(answer.key_id.encode())
    key_id = answer.key_id if size <= KEY_ID_MAX_SIZE else ""
    if answer.version not in _V2_APIS:
        found = bounded(answer.version, _WORD_MAX_SIZE)
        return Health(PluginState.WRONG_VERSION, f"expected KMSv2 API version v2, got {found}")
    if answer.healthz != "ok":
        problem = f"got unexpected healthz status: {bounded(answer.healthz, _WORD_MAX_SIZE)}"
    elif not size:
        problem = "got invalid KMSv2 KeyID: keyID is empty"
    elif not key_id:
        problem = (
            f"got invalid KMSv2 KeyID: keyID is {size} bytes, which exceeds the max size of {KEY_ID_MAX_SIZE}"
        )
    else:
        return Health(PluginState.OK, "", key_id)
    return Health(PluginState.UNHEALTHY, problem, key_id)


def _address(socket_path: str) -> bytes:
    raw = os.fsencode(socket_path)
    return b"\0" + raw[1:] if raw.startswith(b"@") else raw


def _target(address: bytes) -> str:
    # gRPC reads a URL, so anything but plain characters goes escaped.
    if address.startswith(b"\0"):
        return f"unix-abstract:{quote_from_bytes(address[1:])}"
    return f"unix:{quote_from_bytes(address)}"


def _options(timeout_seconds: float) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
        # A status text beyond these would make a refusal look like a failure of gRPC.
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        # The API server's v2 client; its v1 client sends the path, which no plugin can have relied upon.
        ("grpc.default_authority", "localhost"),
        # Despite its name this is also the longest that one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", max(1, int(timeout_seconds * 1000))),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
        # We decide what is asked again.
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.use_local_subchannel_pool", 1),
    ]


def _socket_problem(address: bytes, timeout_seconds: float) -> Health | None:
    """Say what is wrong with the socket, in the kernel's words: gRPC has one code for everything."""
    if b"\0" in address and not address.startswith(b"\0"):
        # The kernel would read up to there, and find another socket.
        return Health(PluginState.NO_SOCKET, "the path of the socket holds a zero byte")
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(timeout_seconds)
            probe.connect(address)
    except OSError as error:
        state = _socket_state(address, error)
        nobody = state is PluginState.UNREACHABLE and error.errno == errno.ECONNREFUSED
        return Health(state, bounded(_socket_message(address, error)), nobody_listens=nobody)
    return None


def _socket_state(address: bytes, error: OSError) -> PluginState:
    if error.errno in {errno.EACCES, errno.EPERM}:
        return PluginState.SOCKET_DENIED
    # A path that is too long comes without a number.
    if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EPROTOTYPE}:
        return PluginState.NO_SOCKET
    if error.errno == errno.ECONNREFUSED and not address.startswith(b"\0") and not _is_socket(address):
        return PluginState.NO_SOCKET
    return PluginState.NO_SOCKET if error.errno is None else PluginState.UNREACHABLE


def _socket_message(address: bytes, error: OSError) -> str:
    shown = go_quote(os.fsdecode(b"@" + address[1:] if address.startswith(b"\0") else address))
    if error.errno == errno.ECONNREFUSED and not address.startswith(b"\0") and not _is_socket(address):
        return f"{shown} is not a socket"
    return f"dial unix {shown}: {(error.strerror or str(error)).lower()}"


def _is_socket(path: bytes) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116 - bytes, which need not be text
    except OSError:
        return False
