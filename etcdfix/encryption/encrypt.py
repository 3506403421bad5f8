"""From plaintext to stored bytes, as the API server would write them today.

The one direction that a tool for reading needs in one place only: rewriting a value under the present key. What is
written is opened again by our own reader, with the same configuration, before anybody gets it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from etcdfix.encryption.providers import cipher_of
from etcdfix.encryption.transformer import ResourceTransformers
from etcdfix.model.model import Plaintext


class SealRefusal(StrEnum):
    """Why nothing was written."""

    KMS_WRITES = "kms-writes"
    """Today's write transformer is a KMS provider; writing with one is not supported."""
    NOT_READ_BACK = "not-read-back"
    """Our own reader does not get the plaintext back, or would call the value stale."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A value ready to be stored; the bytes are left out of the ``repr``: under identity they are plaintext.

    Attributes:
        transformer: What it was written with: ``aescbc/v1/key1``, ``identity``.
    """

    transformer: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NotSealed:
    """No value, and why."""

    transformer: str
    reason: SealRefusal


def to_storage(transformers: ResourceTransformers, plaintext: bytes, key: bytes) -> Sealed | NotSealed:
    """Turn plaintext into what the API server would store today, and open it again."""
    write_key = transformers.keys[0]
    if write_key.facts.under_kms:
        return NotSealed(write_key.transformer, SealRefusal.KMS_WRITES)
    body = plaintext
    if write_key.material is not None:
        body = cipher_of(write_key.provider, write_key.material.expose()).seal(plaintext, key)
    data = write_key.prefix + body
    found = transformers.read(data, key)
    if (
        isinstance(found, Plaintext)
        and (found.data, found.transformer) == (plaintext, write_key.transformer)
        and not found.stale
    ):
        return Sealed(write_key.transformer, data)
    return NotSealed(write_key.transformer, SealRefusal.NOT_READ_BACK)
