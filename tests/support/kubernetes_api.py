"""An HTTPS server that answers as a kube-apiserver does, as far as changes ask it; with switches for trouble."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

from tests.support.certificates import CertificateAuthority

KUBE_SYSTEM = "/api/v1/namespaces/kube-system"
ACCESS_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SUBJECT_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"

TOKEN = "token-of-the-test-that-must-not-be-shown"
UID = "6a1e0f0e-0000-4000-8000-00000000c0de"


class Request(NamedTuple):
    """One request that arrived."""

    method: str
    path: str
    body: Any
    authorization: str | None
    accept: str | None = None
    size: int = 0  # of the body


class Answer(NamedTuple):
    """What goes back instead of the usual answer; ``body`` as it travels."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def status_answer(code: int, message: str = "no", *, name: str = "") -> Answer:
    """A Kubernetes Status; about an object, where it is named."""
    body: dict[str, Any] = {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code,
    }  # fmt: skip
    return Answer(code, json.dumps(body | ({"details": {"name": name}} if name else {})).encode())


def object_answer(**metadata: str) -> Answer:
    """The metadata of an object, as a server makes them of what it reads."""
    body = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return Answer(200, json.dumps(body).encode())


@dataclass
class KubernetesAPI:
    """One API server.

    Attributes:
        uid: Of its kube-system namespace.
        user: Who the holder of ``TOKEN`` is.
        denied: Verbs that the access review says no to.
        status: Merged into the status of every access review.
        reads: It reads whatever object it is asked for.
        holds: What it does not read, it fails to read; else it finds no such object.
        versions: Which each group has, preferred first; objects of other versions are not served.
        listed: Addresses and ports that service default/kubernetes lists; None where there is no such service.
        instead: Answers by path, which win over the usual ones.
        before: Answers by path that come first, one after the other; the last of them stays.
        stall: Paths that are never answered, until the server stops.
        drip: Paths that are answered one byte at a time, without end, until the server stops.
        hang_up: Paths at which the connection is closed without an answer.
        requests: Each request that arrived, in order.
    """

    authority: CertificateAuthority
    uid: str = UID
    user: str = "alice@example.org"
    denied: set[str] = field(default_factory=set)
    status: dict[str, Any] = field(default_factory=dict)
    reads: bool = False
    holds: bool = True
    versions: dict[str, list[str]] = field(default_factory=lambda: {"apps": ["v1"]})
    listed: list[tuple[str, int]] | None = field(default_factory=list)
    instead: dict[str, Answer] = field(default_factory=dict)
    before: dict[str, list[Answer]] = field(default_factory=dict)
    stall: set[str] = field(default_factory=set)
    drip: set[str] = field(default_factory=set)
    hang_up: set[str] = field(default_factory=set)
    requests: list[Request] = field(default_factory=list)
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1")

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        # Threads that stall end with the server; none is waited for.
        self._server.daemon_threads = True
        self._server.block_on_close = False
        files = self.authority.issue(f"api-{self._server.server_port}", hosts=self.hosts)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.cert, files.key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def asked(self, *paths: str) -> list[str]:
        """The paths of the requests that arrived, as far as they begin like these."""
        return [request.path for request in self.requests if request.path.startswith(paths)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def kubeconfig(self, folder: Path, *, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
        """Write a kubeconfig for this server; ``change`` may alter it first. JSON is YAML."""
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {"server": self.url, "certificate-authority": str(self.authority.cert)},
                }
            ],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
        }
        if change is not None:
            change(config)
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def answer(self, request: Request) -> Answer:
        """The answer to one request."""
        if request.path in self.instead:
            return self.instead[request.path]
        course = self.before.get(request.path)
        if course:
            return course.pop(0) if len(course) > 1 else course[0]
        if request.authorization != f"Bearer {TOKEN}":
            return status_answer(401, "Unauthorized")
        if (request.method, request.path) == ("GET", KUBE_SYSTEM):
            found: dict[str, Any] = {
                "kind": "Namespace",
                "apiVersion": "v1",
                "metadata": {"name": "kube-system", "uid": self.uid, "resourceVersion": "4"},
                "status": {"phase": "Active"},
            }
            return Answer(200, json.dumps(found).encode())
        if (request.method, request.path) == ("POST", SUBJECT_REVIEW):
            found = {**request.body, "metadata": {}, "status": {"userInfo": {"username": self.user}}}
            return Answer(201, json.dumps(found).encode())
        if (request.method, request.path) == ("POST", ACCESS_REVIEW):
            verb = request.body["spec"]["resourceAttributes"]["verb"]
            found = {
                **request.body,
                "metadata": {},
                "status": {"allowed": verb not in self.denied, **self.status},
            }
            return Answer(201, json.dumps(found).encode())
        if request.path == "/readyz":
            return Answer(200, b"ok")
        if request.method == "GET":
            return self._look(request.path)
        return status_answer(404, "the server could not find the requested resource")

    def _look(self, path: str) -> Answer:
        if path == ENDPOINTS:
            if self.listed is None:
                return status_answer(404, name="kubernetes")
            subsets = [
                {"addresses": [{"ip": ip}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}
                for ip, port in self.listed
            ]
            return Answer(200, json.dumps({"kind": "Endpoints", "subsets": subsets}).encode())
        root, *words = path.strip("/").split("/")
        group = "" if root == "api" else words.pop(0)
        versions = {"": ["v1"], **self.versions}.get(group, [])
        if not words and versions:
            known = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
            found = {"kind": "APIGroup", "name": group, "versions": known, "preferredVersion": known[0]}
            return Answer(200, json.dumps(found).encode())
        if not words or words[0] not in versions:
            return Answer(404, b"404 page not found\n")
        if len(words) == 2:
            return Answer(200, b'{"kind":"PartialObjectMetadataList","items":[]}' + b" " * 4096)
        name = unquote(words[-1])
        if self.reads:
            return object_answer(name=name, uid="u-1")
        return status_answer(500, "Internal error") if self.holds else status_answer(404, name=name)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        played = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._serve()

            def do_POST(self) -> None:
                self._serve()

            def _serve(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(
                    self.command,
                    self.path,
                    json.loads(raw) if raw else None,
                    self.headers.get("Authorization"),
                    self.headers.get("Accept"),
                    len(raw),
                )
                played.requests.append(request)
                if self.path in played.hang_up:
                    return
                if self.path in played.stall:
                    played._stopping.wait()
                    return
                answer = played.answer(request)
                self.send_response(answer.status)
                self.send_header("Content-Type", "application/json")
                for name, value in answer.headers:
                    self.send_header(name, value)
                if self.path in played.drip:
                    self.end_headers()
                    self._drip()
                    return
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def _drip(self) -> None:
                with contextlib.suppress(OSError):
                    while not played._stopping.wait(0.02):
                        self.wfile.write(b" ")

            def handle(self) -> None:
                # A client that hangs up, or does not trust us, is part of the play.
                with contextlib.suppress(OSError):
                    super().handle()

            def log_message(self, *_arguments: object) -> None:
                return

        return Handler
