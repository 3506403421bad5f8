"""Is anything encrypted at rest? ``--no-encryption`` says that nothing is, and etcd may contradict it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from etcdfix.errors import RefusedByRule
from etcdfix.model import StoredValue
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.verdicts.plaintext import bits_off

if TYPE_CHECKING:
    from etcdfix.remediation.cluster import Cluster

_ENVELOPE: Final = b"k8s:enc:"

_MOST_WRONG_BITS: Final = 3
"""``k8s`` and a zero byte, as unencrypted values begin, differs from it in more."""


def looks_enveloped(value: bytes) -> bool:
    """Say whether a value begins like the envelope of an encryption provider, but for a few bits."""
    return bits_off(value, _ENVELOPE) <= _MOST_WRONG_BITS


def require_unencrypted(cluster: Cluster, value: StoredValue) -> None:
    """Hold every value in this etcd, and one that is changed or put, against ``--no-encryption``, where that was given.

    Whatever the storage prefix: under another one lies another cluster, or the same one of before. Where the user may
    read no more than this prefix, the source says so.

    Raises:
        RefusedByRule: One of them is encrypted.
        SourceError: etcd could not be asked, or not all of it could be read.
    """
    if not cluster.no_encryption:
        return
    for stored in chain([value], cluster.source.current(b"")):
        if looks_enveloped(stored.value):
            raise encrypted(stored.key)
    cluster.require_everything()


def encrypted(key: bytes) -> RefusedByRule:
    """Return the refusal to raise where the value of a key is encrypted."""
    return refuse(
        Rule.CONFIGURATION_WRONG,
        f"--no-encryption, and the value of {display(key)} is encrypted: there is encryption at rest",
        hint="--encryption-config FILE, as in the API servers' --encryption-provider-config; an undo needs neither",
    )
