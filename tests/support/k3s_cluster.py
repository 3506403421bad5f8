"""A datastore of k3s on a real etcd: bootstrap data, Nodes, and Secrets encrypted as its servers encrypt them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from etcdfix.cli.root import run
from etcdfix.testing.servers import EtcdServer
from tests.support.k3s_bootstrap import CA_KEY, PASSWORD, TOKEN, aescbc_config, bootstrap, path, stage_line
from tests.support.objects import UID, aescbc, namespace_object, secret

OLD_KEY, NEW_KEY = (hashlib.sha256(name).digest() for name in (b"old", b"new"))
OLD_NAME, NEW_NAME = "aescbckey", "aescbckey-2026-05-12T18:43:18+02:00"
OLD = aescbc_config((OLD_NAME, OLD_KEY))
NEW = aescbc_config((NEW_NAME, NEW_KEY))

NEVER_SHOWN = (
    TOKEN, PASSWORD, path().removeprefix("/bootstrap/"), path(TOKEN).removeprefix("/bootstrap/"),
    "PRIVATE-KEY-OF-THE-CA", "UFJJVkFURS1LRVk", "never-to-be-shown",
    *(base64.b64encode(key).decode()[:12] for key in (OLD_KEY, NEW_KEY)),
)  # fmt: skip
"""Tokens, what was made of them, contents of the bootstrap data, keys in base64, and data of a Secret."""


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


def node(name: str, line: bytes | None, annotation: str = "k3s.io/encryption-config-hash") -> bytes:
    """Return a Node as JSON, with what its server says of its configuration."""
    annotations = {annotation: line.decode()} if line is not None else {}
    metadata = {"name": name, "uid": UID.decode(), "annotations": annotations}
    return json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": metadata}).encode()


class K3s:
    """A datastore, and the command that recovers configurations from it."""

    def __init__(self, server: EtcdServer, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.server = server
        self.folder = folder
        self._capfd = capfd
        self._snapshots = 0
        self.token = self.token_file("token", TOKEN + "\n")
        self.server.put(b"/registry/namespaces/kube-system", namespace_object("kube-system"))

    def token_file(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text)
        file.chmod(0o600)
        return file

    def keep(self, config: bytes | None, token: str = PASSWORD, **settings: Any) -> int:
        """Write bootstrap data as a server does; return the revision."""
        return self.server.put(path(token).encode(), bootstrap(config, token, **settings))

    def secret(self, name: str, key: bytes, called: str) -> bytes:
        """Write a Secret under a key; return its etcd key."""
        etcd_key = f"/registry/secrets/shop/{name}".encode()
        self.server.put(etcd_key, aescbc(secret(name), key, called))
        return etcd_key

    def node(self, name: str, config: bytes | None, stage: str = "start", **settings: str) -> None:
        line = stage_line(config, stage) if config is not None else None
        self.server.put(f"/registry/minions/{name}".encode(), node(name, line, **settings))

    def snapshot(self) -> Path:
        self._snapshots += 1
        file = self.folder / f"snapshot-{self._snapshots}.db"
        self.server.etcdctl("snapshot", "save", file)
        return file

    def recover(self, *words: str | Path, live: bool = False, tokens: Sequence[Path] | None = None) -> Ran:
        """Run the command, on a snapshot unless told; whatever it says holds nothing that must not be said."""
        where = ["--endpoints", self.server.endpoint] if live else ["--snapshot", str(self.snapshot())]
        named = tokens if tokens is not None else [self.token]
        files = [word for file in named for word in ("--token-file", str(file))]
        return self._run("encryption", "recover", *where, *files, *map(str, words))

    def _run(self, *words: str) -> Ran:
        self._capfd.readouterr()
        code = run([*words])
        captured = self._capfd.readouterr()
        for hidden in NEVER_SHOWN:
            assert hidden not in captured.out + captured.err, hidden
        assert CA_KEY.decode() not in captured.out + captured.err
        return Ran(code, captured.out, captured.err)

    def report(self, *words: str | Path, **settings: Any) -> tuple[int, dict[str, Any]]:
        ran = self.recover(*words, "-o", "json", **settings)
        return ran.code, ran.report
