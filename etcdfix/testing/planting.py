"""Objects put into a test's etcd, and damage planted there."""

from __future__ import annotations

from dataclasses import dataclass, field

from etcdfix.model.storagekey import DEFAULT_PREFIX, StorageLayout, display, word_bytes
from etcdfix.testing.damage import Damage
from etcdfix.testing.failures import without_frames
from etcdfix.testing.sealing import Config, DoesNotFit, Seals
from etcdfix.testing.servers import EtcdServer


@dataclass(frozen=True, slots=True)
class Planted:
    """What was done; the values are left out of the ``repr``: they may be plaintext.

    Attributes:
        key: The etcd key that holds the damaged value now.
        damage: What was done.
        causes: Each of these findings says so; which one may depend on the values around it.
        before: What was there, to be put back with ``etcd.put(planted.key, planted.before)``; None where nothing was.
        after: What is there now.
    """

    key: bytes
    damage: Damage
    causes: frozenset[str]
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)


@without_frames
def store(
    etcd: EtcdServer,
    key: str | bytes,
    plaintext: bytes,
    *,
    config: Config = None,
    etcd_prefix: str = DEFAULT_PREFIX,
) -> bytes:
    """Put an object (:mod:`etcdfix.testing.objects`) as an API server would store it, and return the stored bytes.

    Raises:
        DoesNotFit: Today's values of this resource are written with KMS.
    """
    at = _writable(etcd, key)
    try:
        stored = Seals(config, at, StorageLayout(etcd_prefix)).seal(plaintext)
    except DoesNotFit as exc:
        raise DoesNotFit(f"{display(at)}: {exc}") from exc
    etcd.put(at, stored)
    return stored


@without_frames
def plant(
    etcd: EtcdServer,
    key: str | bytes,
    damage: Damage,
    *,
    config: Config = None,
    etcd_prefix: str = DEFAULT_PREFIX,
) -> Planted:
    """Damage a value that is in order, and return what was there.

    Nonces and what has to be random are new each time; all else is the same for the same value.

    Args:
        etcd: A server of this package; nothing else is written to.
        key: The complete etcd key; a value has to be there.
        damage: What to do.
        config: The EncryptionConfiguration that the value was written with, where it is encrypted.
        etcd_prefix: The storage prefix of the API servers.

    Raises:
        DoesNotFit: This damage cannot be done to this value, and why. Nothing was written.
    """
    at = _writable(etcd, key)
    before = etcd.get(at)
    if before is None:
        raise DoesNotFit(f"{display(at)}, {damage}: there is nothing to damage")
    try:
        after = damage.value.do(Seals(config, at, StorageLayout(etcd_prefix)), before)
    except DoesNotFit as exc:
        raise DoesNotFit(f"{display(at)}, {damage}: {exc}") from exc
    if damage is Damage.MOVED:
        at += b"-copy"
        before = etcd.get(at)
    etcd.put(at, after)
    return Planted(at, damage, damage.value.causes, before, after)


def _writable(etcd: EtcdServer, key: str | bytes) -> bytes:
    if not isinstance(etcd, EtcdServer):
        raise TypeError("only an etcd that etcdfix.testing started is written to: no address")
    return word_bytes(key) if isinstance(key, str) else key
