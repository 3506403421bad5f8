"""``--no-encryption``: the operator says that this cluster encrypts nothing at rest, and etcd may contradict it."""

from __future__ import annotations

from typing import Final

from etcdfix.errors import RefusedByRule
from etcdfix.model import StoredValue
from etcdfix.remediation.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.verdicts.plaintext import bits_off

_ENVELOPE: Final = b"k8s:enc:"

_MOST_WRONG_BITS: Final = 3
"""``k8s`` and a zero byte, as unencrypted values begin, differs from it in more."""


def looks_enveloped(value: bytes) -> bool:
    """Say whether a value begins like the envelope of an encryption provider, but for a few bits."""
    return bits_off(value, _ENVELOPE) <= _MOST_WRONG_BITS


class Contradiction:
    """Is shown values, and remembers the first that is encrypted."""

    def __init__(self) -> None:
        self._first: bytes | None = None

    def see(self, stored: StoredValue) -> None:
        """Look at one value."""
        if self._first is None and looks_enveloped(stored.value):
            self._first = stored.key

    def check(self) -> None:
        """Hold what was seen against what the operator says.

        Raises:
            RefusedByRule: Something is encrypted.
        """
        if self._first is not None:
            raise encrypted(self._first)


def encrypted(key: bytes) -> RefusedByRule:
    """Return the refusal to raise where the value of a key is encrypted."""
    return refuse(
        Rule.CONFIGURATION_WRONG,
        f"--no-encryption, and the value of {display(key)} is encrypted: there is encryption at rest",
        hint="--encryption-config FILE, as in the API servers' --encryption-provider-config; an undo needs neither",
    )
