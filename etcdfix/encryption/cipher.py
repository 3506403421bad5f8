"""The seam for a local cipher: opens values as an API server does, or looks at them without checking tag or padding.

What comes out unchecked is authenticated by nothing. It is for recognising noise, and for finding what was damaged; no
object is ever made from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from etcdfix.model.model import Attempt

TOO_SHORT_ERROR = "the stored data was shorter than the required size"


class Flip(NamedTuple):
    """One bit of a body, turned.

    Attributes:
        part: ``ciphertext``, ``tag``, ``nonce``, ``info``.
        byte: Counted from the beginning of that part, from 0.
        bit: 0 for the lowest.
        start: Where that part begins in the body.
    """

    part: str
    byte: int
    bit: int
    start: int = 0

    @property
    def words(self) -> str:
        """Where it is, for people."""
        return f"bit {self.bit} of byte {self.byte} of the {self.part}"

    def turned(self, body: bytes) -> bytes:
        """Return the body with this bit turned back."""
        return turned(body, self.start + self.byte, self.bit)


class Cipher(Protocol):
    """One cipher with one key; ``body`` is what follows the name in a value."""

    @property
    def authenticated(self) -> bool:
        """Whether what opens is proven to be what was written."""
        ...

    @property
    def bound(self) -> bool:
        """Whether the etcd key is associated data."""
        ...

    def read(self, body: bytes, etcd_key: bytes) -> bytes | Attempt:
        """Return the plaintext, tag and padding checked as an API server checks them, or why there is none."""
        ...

    def seal(self, plaintext: bytes, etcd_key: bytes) -> bytes:
        """Return a body as an API server would write it, with a nonce from the system's random source."""
        ...

    def start(self, body: bytes) -> bytes:
        """Return the first bytes of what would be decrypted, a tag at the end of the body included."""
        ...

    def plaintext(self, body: bytes) -> bytes:
        """Return all of it, without the tag."""
        ...

    def other_nonces(self, body: bytes) -> Iterator[tuple[Flip, bytes]]:
        """Yield, for each bit of the nonce, what the plaintext would start with if it were turned."""
        ...

    def flips(self, body: bytes, etcd_key: bytes) -> Iterator[Flip]:
        """Yield what explains the tag: a bit of the tag or of the ciphertext. It has to be confirmed by opening."""
        ...


def turned(data: bytes, byte: int, bit: int) -> bytes:
    """Return data with one bit of one byte turned."""
    return data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]


def single_bit(wrong: bytes) -> tuple[int, int] | None:
    """Return byte and bit where exactly one bit is set, else None."""
    value = int.from_bytes(wrong, "little")
    if value.bit_count() != 1:
        return None
    place = value.bit_length() - 1
    return place // 8, place % 8


def difference(one: bytes, other: bytes) -> bytes:
    """Return the XOR of two strings of one length."""
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))
