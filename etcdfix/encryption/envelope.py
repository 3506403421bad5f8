"""The ``k8s:enc:`` prefix of a stored value, parsed without any key.

Format:
    ``k8s:enc:<provider>:<version>:<key or KMS provider name>:<body>``, ASCII but for the name
    (kube-apiserver ``encryptionconfig/config.go``; the name is any string of the configuration file).
    A name may contain colons, so where it ends is known only to the configuration. Without one, the first colon
    ends it, but for a name that ends in a time: k3s and RKE2 name the keys that they rotate to
    ``aescbckey-2026-05-12T18:43:18+02:00`` (``k3s/pkg/secretsencrypt``, RFC 3339).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection

import msgspec

from etcdfix.model.providers import ENCRYPTED_PREFIX, ProviderFacts, facts_about

_HEADER = re.compile(rb"k8s:enc:([a-z0-9]{1,32}):(?:([a-z0-9]{1,32}):)?")
_TIME = re.compile(
    rb"[0-9]{4}-[01][0-9]-[0-3][0-9][Tt][0-2][0-9]:[0-5][0-9]:[0-6][0-9](?:\.[0-9]{1,9})?"
    rb"(?:[Zz]|[+-][0-2][0-9]:[0-5][0-9])(?=:)"
)
_TO_FIRST_COLON = len("2026-05-12T18")
_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]")
# A name ends somewhere near: past this, the colon found belongs to the ciphertext.
_LONGEST_NAME = 1024


class Envelope(msgspec.Struct, frozen=True):
    """What the prefix of a value says about how to open it.

    Attributes:
        provider: ``aescbc``, ``kms``…, or whatever stands there; "" where nothing readable does.
        version: ``v1``, ``v2``…; "" where the prefix breaks off before it.
        name: Key name or KMS provider name; "" where the prefix breaks off. Bytes that are not UTF-8 are
            surrogate escapes.
        body_offset: Byte at which the body begins, or the part of the prefix that cannot be read.
        name_may_go_on: Where the name ends is not certain: text without control characters and another colon follow.
    """

    provider: str
    version: str
    name: str
    body_offset: int
    name_may_go_on: bool = False

    @property
    def facts(self) -> ProviderFacts:
        """Return what is known of its provider and version."""
        return facts_about(self.provider, self.version)

    @property
    def known(self) -> bool:
        """Whether some API server writes such an envelope, and its name is whole."""
        return self.facts.provider is not None and bool(self.name)

    @property
    def transformer(self) -> str:
        """See :func:`transformer_name`."""
        return transformer_name(self.provider, self.version, self.name)


def parse_envelope(data: bytes, known_names: Collection[str] = ()) -> Envelope | None:
    """Read the envelope of a stored value.

    Of the known names the longest that fits wins over the first colon. Returns None for a value that is not encrypted;
    a damaged prefix gives an envelope with empty parts.
    """
    if not data.startswith(ENCRYPTED_PREFIX):
        return None
    header = _HEADER.match(data)
    if header is None:
        return Envelope("", "", "", len(ENCRYPTED_PREFIX))
    provider = header.group(1).decode()
    if header.group(2) is None:
        return Envelope(provider, "", "", header.end())
    version = header.group(2).decode()
    start = header.end()
    fitting = [
        name for name in (known.encode() for known in known_names) if data.startswith(name + b":", start)
    ]
    end = data.find(b":", start, start + _LONGEST_NAME + 1)
    if fitting:
        end = start + len(max(fitting, key=len))
    elif end - _TO_FIRST_COLON >= start:
        time = _TIME.match(data, end - _TO_FIRST_COLON)
        end = time.end() if time is not None else end
    if end <= start:
        return Envelope(provider, version, "", start)
    name = data[start:end].decode("utf-8", "surrogateescape")
    goes_on = facts_about(provider, version).name_may_hold_colons and _text_and_colon(data, end + 1)
    return Envelope(provider, version, name, end + 1, goes_on)


def _text_and_colon(data: bytes, start: int) -> bool:
    """Say whether text and a colon follow: a configuration takes names of any text, also such as does not print."""
    end = data.find(b":", start, start + _LONGEST_NAME)
    if end < start or _CONTROLS.search(data, start, end):
        return False
    try:
        data[start:end].decode()
    except UnicodeDecodeError:
        return False
    return True


@functools.lru_cache(maxsize=256)
def transformer_name(provider: str, version: str, name: str) -> str:
    """Return the name by which reports and flags call a transformer.

    ``aescbc/v1/key1``, ``kms/v2/prov``, ``identity``. In the last part ``/``, ``%``, everything invisible
    and every byte that is not UTF-8 is percent-encoded, so the whole can be split, pasted and printed.
    Missing parts are left away; ``unknown`` when there is none.
    """
    parts = [part for part in (provider, version, percent_encode(name)) if part]
    return "/".join(parts) or "unknown"


def percent_encode(name: str) -> str:
    """Return a key name with ``/``, ``%`` and what does not print replaced by ``%XX`` per byte."""
    if name.isprintable() and "/" not in name and "%" not in name:
        return name
    return "".join(
        character if character.isprintable() and character not in "/%" else _percent(character)
        for character in name
    )


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))
