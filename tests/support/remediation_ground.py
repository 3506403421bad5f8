"""A ground to delete, restore and re-encrypt on: one storage prefix of a real etcd that is a cluster for itself.

It has a kube-system, objects that can be read, and values that cannot; each test puts its own target there. The same
module makes the changes, in the test's process and in others (``tests/faults/dying_delete.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from etcdfix.commands.delete import DeleteRequest, run_delete
from etcdfix.commands.fix import UndoRequest, run_fix, run_undo
from etcdfix.copies.finder import parse_named
from etcdfix.encryption.cipher import turned
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.examine.one import Examiner
from etcdfix.model.model import StoredValue
from etcdfix.model.rules import Rule
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.backup.file import Backup, read_backup
from etcdfix.remediation.choice import FixRequest
from etcdfix.remediation.cluster import Acceptances, Cluster
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.places import RecordPaths
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.live import LiveSource
from etcdfix.testing.servers import EtcdServer
from tests.support import objects
from tests.support.audit_logs import own_directory
from tests.support.decoders import shared_decoder
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, aesgcm, configuration, provider

REASON = "the key of this object is lost"


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a change needs to know; goes from process to process as JSON.

    Attributes:
        encryption: Names one of :data:`CONFIGURATIONS`.
        folder: Where the audit log is; backup directories stand beside it.
    """

    endpoints: tuple[str, ...]
    prefix: str
    encryption: str
    folder: str
    directories: tuple[str, ...] = ("one",)
    key_lost: str = ""
    unchecked: tuple[str, ...] = ()
    expected: int | None = None

    @property
    def log(self) -> Path:
        return Path(self.folder) / "audit.jsonl"

    @property
    def places(self) -> RecordPaths:
        """Where everything goes."""
        return RecordPaths(tuple(Path(self.folder) / name for name in self.directories), self.log)

    @property
    def accepted(self) -> Acceptances:
        unchecked = tuple(f"unchecked-member={name}" for name in self.unchecked)
        alone = (Rule.NO_API_SERVER, Rule.ENDS_CACHED_READS) if self.key_lost else ()
        return Acceptances(
            key_lost=self.key_lost, words=(*unchecked, *alone), expect_mod_revision=self.expected
        )

    def asked(self, *words: str, dry_run: bool) -> dict[str, Any]:
        """What every request on this ground has; more may be accepted."""
        accepted = self.accepted
        return {
            "reason": REASON,
            "accepted": msgspec.structs.replace(accepted, words=(*accepted.words, *words)),
            "record_paths": self.places,
            "dry_run": dry_run,
        }

    def key(self, name: str) -> bytes:
        return f"{self.prefix}/secrets/shop/{name}".encode()

    def at(self, folder: Path) -> Ground:
        own_directory(folder)
        for name in self.directories:
            own_directory(folder / name)
        return msgspec.structs.replace(self, folder=str(folder))

    def through(self, *endpoints: str) -> Ground:
        """The same, reached by other endpoints."""
        return msgspec.structs.replace(self, endpoints=endpoints)

    def backups(self) -> list[Backup]:
        """Every backup file, read and whole; one that is not whole raises."""
        return [
            read_backup(path)
            for directory in self.places.backup_directories
            for path in sorted(directory.glob("*.json"))
        ]

    def readable(self, name: str) -> bytes:
        """Return what an API server of this ground stores for a Secret."""
        return _PLAIN[self.encryption](self, name)

    def broken(self, name: str) -> bytes:
        """Return stored bytes of a Secret that nobody on this ground can read."""
        return _BROKEN[self.encryption](self, name)

    def furniture(self) -> dict[bytes, bytes]:
        """What stands on it besides the targets."""
        found = {f"{self.prefix}/namespaces/kube-system".encode(): objects.namespace_object("kube-system")}
        if self.encryption == "lost":
            found |= {self.key(name): self.broken(name) for name in ("other-0", "other-1")}
        else:
            found |= {self.key(name): self.readable(name) for name in ("other-0", "other-1", "other-2")}
        return found


CONFIGURATIONS: dict[str, EncryptionConfiguration] = {
    "plain": configuration(IDENTITY),
    "lost": configuration(provider("aesgcm", key1=KEY_1), IDENTITY),
    "rotated": configuration(provider("aescbc", key1=KEY_1), IDENTITY),
    "flipped": configuration(provider("aesgcm", key1=KEY_1), IDENTITY),
}
"""``plain``: no encryption; ``lost``: nothing opens under the only key; ``rotated``: the key before was dropped;
``flipped``: what is broken has one bit turned."""

CANDIDATE = configuration(provider("aescbc", old=KEY_2))
"""Opens what is broken on a ``rotated`` ground."""

_PLAIN: dict[str, Callable[[Ground, str], bytes]] = {
    "plain": lambda _ground, name: objects.secret(name),
    "lost": lambda ground, name: aesgcm(objects.secret(name), ground.key(name).decode(), KEY_1),
    "rotated": lambda _ground, name: aescbc(objects.secret(name), KEY_1),
    "flipped": lambda ground, name: aesgcm(objects.secret(name), ground.key(name).decode(), KEY_1),
}
_BROKEN: dict[str, Callable[[Ground, str], bytes]] = {
    "plain": lambda _ground, name: objects.secret(name)[:-3],
    "lost": lambda ground, name: aesgcm(objects.secret(name), ground.key(name).decode(), KEY_2),
    "rotated": lambda _ground, name: aescbc(objects.secret(name), KEY_2, "old"),
    "flipped": lambda ground, name: turned(ground.readable(name), 90, 3),
}


def lay_ground(etcd: EtcdServer, prefix: bytes, encryption: str, **fields: Any) -> Ground:
    """Lay a ground below a prefix in etcd; it has no folder yet."""
    name = prefix.decode().rstrip("/")
    ground = Ground(endpoints=(etcd.endpoint,), prefix=name, encryption=encryption, folder="", **fields)
    etcd.put_all(ground.furniture().items())
    return ground


class Yes:
    """Says yes to everything."""

    def confirm_key(self, key: bytes) -> bool:
        return bool(key)

    def confirm_lost(self, declared: str) -> bool:
        return bool(declared)


def examiner(ground: Ground, encryption: EncryptionConfiguration) -> Examiner:
    """Return what examines values on a ground."""
    transformers = Transformers.from_configuration(encryption, no_plugin)
    return Examiner(StorageLayout(ground.prefix), transformers, shared_decoder(None))


@contextmanager
def reached(ground: Ground, *, command_timeout_seconds: float = 10.0) -> Iterator[Cluster]:
    connection = EtcdConnection(endpoints=ground.endpoints, command_timeout_seconds=command_timeout_seconds)
    with LiveSource(connection) as source:
        found = Cluster(source, examiner(ground, CONFIGURATIONS[ground.encryption]))
        found.examiner.learn_custom_resources(source)
        yield found


def delete(
    ground: Ground,
    key: bytes,
    step: Step = no_step,
    *,
    dry_run: bool = False,
    command_timeout_seconds: float = 10.0,
    words: tuple[str, ...] = (),
) -> ChangeOutcome:
    """Delete a key, with everything that belongs to it."""
    with reached(ground, command_timeout_seconds=command_timeout_seconds) as cluster:
        return run_delete(
            cluster,
            DeleteRequest(key=key, **ground.asked(*words, dry_run=dry_run)),
            Yes(),
            preview=lambda _change: None,
            step=step,
        )


def undo(
    ground: Ground,
    backup: Path,
    step: Step = no_step,
    *,
    dry_run: bool = False,
    command_timeout_seconds: float = 10.0,
) -> ChangeOutcome:
    """Put back what a backup holds."""
    with reached(ground, command_timeout_seconds=command_timeout_seconds) as cluster:
        return run_undo(
            cluster,
            UndoRequest(backup=read_backup(backup), **ground.asked(dry_run=dry_run)),
            Yes(),
            preview=lambda _change: None,
            step=step,
        )


def fix(
    ground: Ground,
    key: bytes,
    source: str,
    step: Step = no_step,
    *words: str,
    dry_run: bool = False,
    command_timeout_seconds: float = 10.0,
) -> ChangeOutcome:
    """Put the copy of a source back; ``candidate`` is that of the ground."""
    named = parse_named("candidate:old.yaml" if source == "candidate" else source)
    # It may be the newest of its resource, so no proof of the key is asked for.
    more = (Rule.UNDEPLOYED_WRITE_KEY,) if source == "candidate" else ()
    with reached(ground, command_timeout_seconds=command_timeout_seconds) as cluster:
        candidate = examiner(ground, CANDIDATE)
        candidate.share_crds_of(cluster.examiner)
        return run_fix(
            cluster,
            FixRequest(key=key, named=named, **ground.asked(*words, *more, dry_run=dry_run)),
            Yes(),
            preview=lambda _change: None,
            candidates={named.path: candidate} if source == "candidate" else {},
            step=step,
        )


def stands(cluster: Cluster, key: bytes) -> StoredValue | None:
    """Read a key, linearizable."""
    return cluster.now.read_key(key).stored


class Recorded:
    """Steps, in order; at each a hook may be called."""

    def __init__(self, hooks: dict[str, Callable[[], object]] | None = None) -> None:
        self.names: list[str] = []
        self._hooks = dict(hooks or {})

    def __call__(self, name: str) -> None:
        self.names.append(name)
        hook = self._hooks.pop(name, None)  # once: a name may come again
        if hook is not None:
            hook()

    def until(self, name: str) -> list[str]:
        """The steps up to the first of this name, included."""
        return self.names[: self.names.index(name) + 1]
