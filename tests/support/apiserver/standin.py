"""A stand-in as tests use it: its process behind an HTTPS server, every request written down."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etcdfix.model.model import GroupResource
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.apiserver.answers import Answer
from tests.support.apiserver.https import TOKEN, Listener
from tests.support.apiserver.kinds import Resource
from tests.support.apiserver.process import Behaviour, Configuration, Process, configuration_of
from tests.support.apiserver.requests import Request
from tests.support.apiserver.serving import Serving
from tests.support.apiserver.store import MemoryStore, Store
from tests.support.stopping import Stopping

# What a server's own certificate carries besides its addresses.
HOSTS = ("kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost", "10.0.0.1", "127.0.0.1")


class StandIn(Stopping):
    """One API server, running.

    Attributes:
        before: Called with each request before it is answered; it may change the server, etcd or the behaviour.
        process: The process that answers; another one after a restart.

    Args:
        store: Where its objects are: a dictionary unless given. Several servers may share one.
        configuration: Its EncryptionConfiguration: parsed, a file's bytes, or its JSON; None for none.
        furnished: Make the namespaces ``kube-system`` and ``default`` where the store has none.
    """

    def __init__(
        self,
        authority: CertificateAuthority,
        *,
        store: Store | None = None,
        configuration: Configuration = None,
        prefix: str = "/registry",
        given_up_after: float = 30.0,
        furnished: bool = True,
    ) -> None:
        self.authority = authority
        self.store: Store = MemoryStore() if store is None else store
        self.behaviour = Behaviour(given_up_after=given_up_after)
        self.requests: list[Request] = []
        self.before: list[Callable[[Request], None]] = []
        self._prefix = prefix
        self._configuration = configuration_of(configuration)
        self._dies_after: int | None = None
        self._dies_answering = True
        self.process = self._new_process()
        self._serving = Serving(self.process)
        self._listener = Listener(authority, self._take, hosts=HOSTS)
        for name in ("kube-system", "default") if furnished else ():
            if self.store.get(f"{prefix}/namespaces/{name}".encode()) is None:
                self.create("v1", "Namespace", name)
        self._keeping_up = threading.Thread(target=self._keep_up, daemon=True)
        self._keeping_up.start()

    # -- where it is

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def url(self) -> str:
        return self._listener.url

    @property
    def methods(self) -> set[str]:
        """The methods of the requests that arrived; a review of what oneself may do is none that changes anything."""
        reviews = "/selfsubject"
        return {r.method for r in self.requests if not (r.method == "POST" and reviews in r.path)}

    @property
    def uid(self) -> str:
        """The uid of its kube-system namespace."""
        key = f"{self._prefix}/namespaces/kube-system".encode()
        return str(self.process.caches[GroupResource("", "namespaces")].memory[key].value["metadata"]["uid"])

    def kubeconfig(
        self, folder: Path, *, token: str = TOKEN, change: Callable[[dict[str, Any]], None] | None = None
    ) -> Path:
        """Write a kubeconfig for this server; ``change`` may alter it first."""
        return self._listener.kubeconfig(folder, token, change)

    # -- what is done to it

    def reload(self, configuration: Configuration) -> None:
        """Replace its EncryptionConfiguration; what is in memory stays."""
        self._configuration = configuration_of(configuration)
        self.process.reload(self._configuration)

    def restart(self) -> None:
        """Start the process again: its memory is gone, and what cannot be read is not cached any more."""
        old = self.process
        self.process = self._new_process()
        self._serving = Serving(self.process)
        old.close()
        self._dies_after = None

    def lose_cache(self, name: str) -> None:
        """Give up the cache of a resource now: ``secrets``, ``widgets.example.com``."""
        self.process.lose_cache(name)

    def die_after(self, requests: int, *, answering: bool = True) -> None:
        """Die after so many more requests: connections close without an answer, new ones too, until a restart.

        Args:
            requests: How many are still carried out.
            answering: The last of them is answered; else it is carried out, and the answer never comes.
        """
        self._dies_after = requests
        self._dies_answering = answering

    def create(self, api_version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> bytes:
        """Make an object as a client would, without a request being counted; return its etcd key."""
        metadata: dict[str, Any] = {"name": name, **fields.pop("metadata", {})}
        if namespace:
            metadata["namespace"] = namespace
        resource = self._resource(api_version, kind)
        body = json.dumps({"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}).encode()
        group = f"apis/{api_version}" if resource.group else f"api/{api_version}"
        place = f"/namespaces/{namespace}" if namespace else ""
        request = Request("POST", f"/{group}{place}/{resource.name}", body, f"Bearer {self.behaviour.token}")
        overloaded, self.behaviour.overloaded = self.behaviour.overloaded, 0
        answer = self._serving.answer(request)
        self.behaviour.overloaded = overloaded
        assert answer.status == 201, answer.body
        return resource.key(self._prefix, namespace, name)

    def answer(self, request: Request) -> Answer:
        """Return what a request is answered, without its being counted."""
        return self._serving.answer(request)

    def wait(self) -> None:
        """Wait until everything that etcd has is known here."""
        self.process.catch_up(self.store.revision())

    def stop(self) -> None:
        self._listener.stop()
        self._keeping_up.join()
        self.process.close()

    # -- inside

    def _new_process(self) -> Process:
        return Process(self.store, self._configuration, self.behaviour, prefix=self._prefix)

    def _resource(self, api_version: str, kind: str) -> Resource:
        return next(
            r for r in self.process.resources.values() if (r.api_version, r.kind) == (api_version, kind)
        )

    def _keep_up(self) -> None:
        while not self._listener.stopping.wait(0.05):
            with contextlib.suppress(Exception):  # etcd may be gone already at the end of a test
                self.process.catch_up()

    def _take(self, request: Request) -> Answer | None:
        """Answer a request; None for a connection that closes without an answer."""
        self.requests.append(request)
        for call in self.before:
            call(request)
        if self._dies_after is not None:
            if self._dies_after <= 0:
                return None
            self._dies_after -= 1
        answer = self._serving.answer(request)
        if self._dies_after == 0 and not self._dies_answering:
            return None
        return answer
