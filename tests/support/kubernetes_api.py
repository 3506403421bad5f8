"""An API server without a store: it reads any object or none, as a test says; with switches for every trouble.

For what servers make of objects that cannot be read, see the stand-in of ``tests/support/apiserver``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from etcdfix.testing.certificates import CertificateAuthority
from tests.support.apiserver.answers import Answer
from tests.support.apiserver.https import TOKEN, Listener
from tests.support.apiserver.requests import Request
from tests.support.stopping import Stopping

__all__ = [
    "ACCESS_REVIEW", "ENDPOINTS", "KUBE_SYSTEM", "SUBJECT_REVIEW", "TOKEN", "UID", "Answer", "KubernetesAPI", "Request",
    "object_answer", "read_error", "status_answer",
]  # fmt: skip

KUBE_SYSTEM = "/api/v1/namespaces/kube-system"
ACCESS_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SUBJECT_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"

UID = "6a1e0f0e-0000-4000-8000-00000000c0de"


def status_answer(code: int, message: str = "no", *, name: str = "") -> Answer:
    """A Kubernetes Status; about an object, where it is named."""
    body: dict[str, Any] = {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code,
    }  # fmt: skip
    return Answer(code, json.dumps(body | ({"details": {"name": name}} if name else {})).encode())


def read_error(cause: str = "", *, reason: str | None = "InternalError", code: int = 500) -> Answer:
    """The Status of a value that cannot be read: with the gate, or without it for a cause."""
    told = cause or (
        "StorageError: corrupt object, Code: 7, Key: /secrets/shop/web, ResourceVersion: 0, AdditionalErrorMsg: data "
        "from the storage is not transformable revision=0: no matching prefix found"
    )
    body = {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": f"Internal error occurred: {told}" if reason == "InternalError" else told,
    }  # fmt: skip
    return Answer(500, json.dumps(body).encode())


def object_answer(**metadata: str) -> Answer:
    """The metadata of an object, as a server makes them of what it reads."""
    body = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return Answer(200, json.dumps(body).encode())


@dataclass
class KubernetesAPI(Stopping):
    """One API server.

    Attributes:
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
        self._listener = Listener(self.authority, self._take, hosts=self.hosts)

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def url(self) -> str:
        return self._listener.url

    def asked(self, *paths: str) -> list[str]:
        """The paths of the requests that arrived, as far as they begin like these."""
        return [request.path for request in self.requests if request.path.startswith(paths)]

    def stop(self) -> None:
        self._listener.stop()

    def kubeconfig(self, folder: Path, *, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
        """Write a kubeconfig for this server; ``change`` may alter it first."""
        return self._listener.kubeconfig(folder, change=change)

    def answer(self, request: Request) -> Answer:
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
        return read_error() if self.holds else status_answer(404, name=name)

    def _take(self, request: Request) -> Answer | None:
        self.requests.append(request)
        if request.path in self.hang_up:
            return None
        if request.path in self.stall:
            self._listener.stopping.wait()
            return None
        answer = self.answer(request)
        return answer._replace(lines=itertools.cycle((b" ", b""))) if request.path in self.drip else answer
