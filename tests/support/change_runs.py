"""Commands that change something, run as a person would, on a registry of one's own within a shared etcd."""

from __future__ import annotations

import base64
import os
import pty
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from etcdfix.cli.root import run
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.examine.one import Examiner
from etcdfix.model.model import StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.audit.record import Record
from etcdfix.remediation.audit.verify import read_records
from etcdfix.remediation.backup.file import Backup, read_backup
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.places import RecordPaths
from etcdfix.sources.base import Source
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.live import LiveSource
from etcdfix.testing.servers import EtcdServer
from tests.support.audit_logs import own_directory
from tests.support.decoders import shared_decoder
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    KUBE_SYSTEM_UID,
    aescbc,
    configuration_yaml,
    namespace_object,
    provider,
    secret,
)

ACKNOWLEDGED = "--ignore-store-read-error-with-cluster-breaking-potential"
PLAINTEXT = b"never-to-be-shown"
"""Stands in every Secret of these tests, encrypted or not."""

BROKEN = b"k8s:enc:aescbc:v1:key1:short"
"""Proven damaged, whatever the key."""


class Ran(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


_FOLD = re.compile(r"(?<!to go on:)(?<=\S)\n {2,}(?!(?:etcdfix|etcdctl|kubectl|next:|[0-9]+  ) ?)(?=\S)")


def unfolded(text: str) -> str:
    """Return text as it would be on lines of any length, with two spaces between columns; not JSON and YAML."""
    if text.startswith(("{", "apiVersion: ")):
        return text
    return re.sub(r"(?<=\S) {2,}", "  ", _FOLD.sub(" ", text))


def follow_up(text: str, what: str) -> str:
    """Return the command that is printed below these words."""
    (command,) = re.findall(rf"^(?:Next: |\d+\. ){what}\n +(.*)$", text, re.MULTILINE)
    return str(command)


class Registry:
    """A storage prefix that is a cluster for itself, places of its own, and the commands that use them.

    It begins with a kube-system, and where it is furnished with three Secrets in namespace shop: ``good-0`` and
    ``good-1``, which aescbc key1 opens, and ``broken``, which is cut short and older than they are.

    Attributes:
        endpoints: Where commands reach it; a proxy may stand before it.
    """

    def __init__(
        self,
        etcd: EtcdServer,
        prefix: bytes,
        folder: Path,
        capfd: pytest.CaptureFixture[str],
        *,
        furnished: bool = True,
    ) -> None:
        self.etcd = etcd
        self.endpoints = etcd.endpoint
        self.settle(prefix, folder, capfd)
        self.put("kube-system", namespace_object("kube-system"), resource="namespaces")
        if furnished:
            self.put("shop/broken", BROKEN)
            # Written after it, so that the newest Secret shows which key the API servers have.
            self.etcd.put_all(
                (self.key(f"shop/{name}"), aescbc(secret(name))) for name in ("good-0", "good-1")
            )

    def settle(self, prefix: bytes, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """Make the places; nothing is written to the store."""
        self.prefix = prefix.decode().rstrip("/")
        self.folder = folder
        self.config = folder / "config.yaml"
        self.configure(provider("aescbc", key1=KEY_1), IDENTITY)
        self.backups = own_directory(folder / "backups")
        self.log = own_directory(folder / "log") / "audit.jsonl"
        self._capfd = capfd

    @property
    def where(self) -> list[str]:
        """The options that name the store."""
        return ["--endpoints", self.endpoints]

    @contextmanager
    def source(self) -> Iterator[Source]:
        """Open the store for reading, as it stands now."""
        with LiveSource(EtcdConnection(endpoints=(self.etcd.endpoint,))) as source:
            yield source

    def configure(self, *providers: dict[str, Any], resources: tuple[str, ...] = ("secrets",)) -> None:
        """Write the EncryptionConfiguration anew."""
        self.config.write_bytes(configuration_yaml(*providers, resources=resources))

    def key(self, name: str, resource: str = "secrets") -> bytes:
        return f"{self.prefix}/{resource}/{name}".encode()

    def put(self, name: str, value: bytes, resource: str = "secrets") -> bytes:
        """Store a value; return its key."""
        key = self.key(name, resource)
        self.etcd.put(key, value)
        return key

    def lose_kube_system(self) -> None:
        """Delete the Namespace that names the cluster; another one can be read."""
        self.put("shop", namespace_object("shop", "u-4"), resource="namespaces")
        self.etcd.delete(self.key("kube-system", "namespaces"))

    def stored(self, key: bytes) -> bytes | None:
        """Return what etcd holds, None for nothing."""
        with self.source() as source:
            found = source.get(key)
        return None if found is None else found.value

    def stored_value(self, key: bytes) -> StoredValue:
        with self.source() as source:
            found = source.get(key)
        assert found is not None
        return found

    def mod_revision(self, key: bytes) -> int:
        return self.stored_value(key).mod_revision

    def lease(self, key: bytes) -> int:
        return self.stored_value(key).lease

    def grant(self, key: bytes, value: bytes) -> str:
        """Store a value with a lease, which outlives all tests: its end is a write; return the lease, hex."""
        granted = self.etcd.etcdctl("lease", "grant", "86400").decode()
        lease = re.findall("lease ([0-9a-f]+) granted", granted)[0]
        self.etcd.etcdctl("put", f"--lease={lease}", os.fsdecode(key), input=value)
        return str(lease)

    def common(
        self, *, places: bool = True, configured: bool = True, reason: str | None = "its key is lost"
    ) -> list[str]:
        """Return the options that every command of a test has."""
        found = [*self.where, "--etcd-prefix", self.prefix]
        if configured:
            found += ["--encryption-config", str(self.config)]
        if reason is not None:
            found += ["--reason", reason]
        if places:
            found += ["--backup-dir", str(self.backups), "--audit-log", str(self.log)]
        return found

    def run(self, *arguments: str) -> Ran:
        """Run etcdfix with these arguments and no others."""
        self._capfd.readouterr()
        code = run(list(arguments))
        captured = self._capfd.readouterr()
        return Ran(code, unfolded(captured.out), unfolded(captured.err))

    def delete(self, key: bytes, *arguments: str, yes: bool = True, **common: Any) -> Ran:
        given = [ACKNOWLEDGED, *(["--yes"] if yes else []), *arguments]
        return self.run("delete", *named(key), *given, *self.common(**common))

    def paste(self, command: str) -> Ran:
        """Run a command as it is printed, a change with records here and without a question."""
        program, *words = shlex.split(command)
        assert program == "etcdfix"
        if words[0] in {"fix", "undo", "delete"}:
            words += ["--backup-dir", str(self.backups), "--audit-log", str(self.log), "--yes"]
        return self.run(*words)

    def put_back(self, key: bytes, source: str = "", *arguments: str, yes: bool = True, **common: Any) -> Ran:
        """Put a copy back: the one of ``--from``, or the best for ""."""
        given = [*(["--from", source] if source else []), *(["--yes"] if yes else []), *arguments]
        return self.run("fix", *named(key), *given, *self.common(**common))

    def undo(self, backup: object, *arguments: str, yes: bool = True, **common: Any) -> Ran:
        """Undo the change that made a backup."""
        return self.run("undo", str(backup), *(["--yes"] if yes else []), *arguments, *self.common(**common))

    def records(self) -> list[Record]:
        """Return the records of the log."""
        return list(read_records(self.log))

    def kept(self, directory: Path | None = None) -> list[Backup]:
        """Return the backups, oldest first."""
        found = [read_backup(path) for path in (directory or self.backups).glob("*.json")]
        return sorted(found, key=lambda backup: backup.intent.sequence)

    def deleted(self, name: str = "shop/broken", *arguments: str) -> Backup:
        """Delete a broken Secret, and return its backup."""
        before = len(self.kept())
        ran = self.delete(self.key(name), *arguments)
        assert ran.code == 0, ran.err
        found = self.kept()
        assert len(found) == before + 1
        return found[-1]

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Assert that the block leaves etcd and the backups as they were, and no open intent behind."""
        revision, kept = self.etcd.revision(), sorted(self.backups.glob("*"))
        yield
        assert self.etcd.revision() == revision
        assert sorted(self.backups.glob("*")) == kept

    def refused(self, ran: Ran, *words: str, hint: str = "") -> None:
        """Assert that a command was refused by safety rules, one of them in these words and with this next step."""
        assert ran.code == 4, ran
        lines = ran.err.splitlines()
        said = [
            line for line in lines if line.startswith("etcdfix: ") and all(word in line for word in words)
        ]
        assert said, (words, lines)
        after = [lines[lines.index(line) + 1 :][:1] for line in said]
        hints = ["".join(one) if "".join(one).startswith("  next: ") else "" for one in after]
        assert any(hint in one and bool(hint) == bool(one) for one in hints), (hint, lines)
        assert ran.out == ""

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Connect, for tests that call the library."""
        configuration = parse_configuration(self.config.read_bytes(), path="config.yaml")
        transformers = Transformers.from_configuration(configuration, no_plugin)
        with LiveSource(EtcdConnection(endpoints=(self.endpoints,))) as source:
            yield Cluster(source, Examiner(StorageLayout(self.prefix), transformers, shared_decoder(None)))

    @property
    def places(self) -> RecordPaths:
        return RecordPaths((self.backups,), self.log)


def named(key: bytes) -> list[str]:
    text = key.decode("utf-8", "replace")
    if text.isprintable() and text.encode() == key:
        return [text]
    return [f"base64:{base64.b64encode(key).decode()}"]


def candidate_config(folder: Path, *providers: dict[str, Any]) -> Path:
    """Write an EncryptionConfiguration that opens what was written under key2."""
    path = folder / "candidate.yaml"
    path.write_bytes(configuration_yaml(*(providers or (provider("aescbc", key2=KEY_2),))))
    return path


@contextmanager
def typing(monkeypatch: pytest.MonkeyPatch, *lines: str) -> Iterator[None]:
    """Let standard input be a terminal at which these lines are typed."""
    master, slave = pty.openpty()
    try:
        os.write(master, "".join(f"{line}\n" for line in lines).encode())
        with os.fdopen(slave, "r", encoding="utf-8") as terminal:
            monkeypatch.setattr("sys.stdin", terminal)
            yield
    finally:
        os.close(master)


def holds(data: bytes, secrets: Iterable[bytes] = (PLAINTEXT,)) -> bool:
    """Say whether any of the secrets stands in a file, as it is or in base64 of any alignment."""
    texts = [data, *(base64.b64decode(word) for word in _base64_words(data))]
    return any(hidden in text for text in texts for hidden in secrets)


def _base64_words(data: bytes) -> Iterator[bytes]:
    for match in re.finditer(rb"[A-Za-z0-9+/]{16,}={0,2}", data):
        word = match.group().rstrip(b"=")
        for skip in range(4):
            part = word[skip:]
            part = part[: len(part) - (len(part) % 4 == 1)]
            yield part + b"=" * (-len(part) % 4)


UID = KUBE_SYSTEM_UID
