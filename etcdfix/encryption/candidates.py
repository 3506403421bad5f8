"""Which keys a value can be looked at with, and where in it what they would decrypt begins.

A name may hold colons, so where it ends is known only to the configuration that wrote the value. Each key of the
resource's own rule knows its own name; a key of another name takes the longest configured name that fits, or the first
colon, and every further colon to which the name may go on.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from etcdfix.encryption.cipher import Cipher
from etcdfix.encryption.config import ProviderType
from etcdfix.encryption.envelope import parse_envelope
from etcdfix.encryption.providers import cipher_of
from etcdfix.encryption.transformer import LocalKey, ResourceTransformers, Transformers

_LONGEST_NAME = 1024
_MOST_BODIES = 8
_BLOCK_SIZE = 16
_SECRETBOX_KEY_SIZE = 32
# Nonce, IV, tag, one block; under KMS with the shortest wrapped key and key id as well.
_SHORTEST = {
    ("aescbc", "v1"): 32,
    ("aesgcm", "v1"): 28,
    ("secretbox", "v1"): 40,
    ("kms", "v1"): 30,
    ("kms", "v2"): 36,
}


class Candidate:
    """One key and what it would decrypt.

    Attributes:
        cipher: With the key.
        body: What it would decrypt.
        named: It is a key of the resource's own rule, under the provider and name that the value gives.
        rule: Of the key.
        transformer: Of the key.
        key_fingerprint: Of the key, "" under KMS.
    """

    __slots__ = ("body", "cipher", "key_fingerprint", "named", "rule", "transformer")

    def __init__(
        self,
        cipher: Cipher,
        body: bytes,
        *,
        named: bool,
        rule: str,
        transformer: str,
        key_fingerprint: str,
    ) -> None:
        self.cipher = cipher
        self.body = body
        self.named = named
        self.rule = rule
        self.transformer = transformer
        self.key_fingerprint = key_fingerprint

    def over(self, body: bytes) -> Candidate:
        """Return the same key over another body."""
        return Candidate(
            self.cipher,
            body,
            named=self.named,
            rule=self.rule,
            transformer=self.transformer,
            key_fingerprint=self.key_fingerprint,
        )


class Place(msgspec.Struct, frozen=True):
    """What a value's envelope says of where its body begins.

    Attributes:
        provider: ``aescbc``, ``kms``…
        bodies: Offsets at which the body may begin, for a key of another name.
        too_short: Shorter than any value of this provider can be, counted from the first colon.
        name_may_go_on: Text without control characters and another colon follow the name.
    """

    provider: str
    bodies: tuple[int, ...]
    too_short: bool
    name_may_go_on: bool


def place_of(data: bytes, transformers: Transformers) -> Place | None:
    """Return where the body of a value may begin; None where no API server is known to write its envelope."""
    envelope = parse_envelope(data, transformers.names)
    if envelope is None or not envelope.known:
        return None
    start = len(f"k8s:enc:{envelope.provider}:{envelope.version}:")
    shortest = _SHORTEST[envelope.provider, envelope.version]
    first = data.index(b":", start) + 1
    # The end of a name that is not configured is a guess: any colon may be it.
    begin = at = envelope.body_offset if envelope.name in transformers.names else first
    bodies = [begin]
    while envelope.version != "v2":  # the name of a KMS v2 provider holds no colon
        end = data.find(b":", at, at + _LONGEST_NAME)
        if end < 0 or not _is_text(data[at:end]):
            break
        at = end + 1
        # Whole blocks further on the key of a shorter name comes into step again under CBC: none of those is left out.
        if len(bodies) < _MOST_BODIES or (at - begin) % _BLOCK_SIZE == 0:
            bodies.append(at)
        elif at - begin > _LONGEST_NAME:
            break
    too_short = len(data) - first < shortest
    return Place(envelope.provider, tuple(bodies), too_short, name_may_go_on=envelope.name_may_go_on)


def local_candidates(
    data: bytes, place: Place, own: ResourceTransformers, transformers: Transformers
) -> Iterator[Candidate]:
    """Yield every local key to look at a value with: first those that it names, then all others, once each."""
    if place.provider == ProviderType.KMS:
        return
    provider = ProviderType(place.provider)
    tried: set[tuple[str, int]] = set()
    named = [(own, key, len(key.prefix), True) for key in own.local_keys if data.startswith(key.prefix)]
    others = [
        (rule, key, body, False)
        for rule in (own, *transformers.rules)
        for key in rule.local_keys
        for body in place.bodies
    ]
    for rule, key, body, is_named in named + others:
        if (key.material.fingerprint, body) in tried or not _fits(key, provider):
            continue
        tried.add((key.material.fingerprint, body))
        yield Candidate(
            cipher_of(provider, key.material.expose()),
            data[body:],
            named=is_named,
            rule=rule.rule or "",
            transformer=key.transformer,
            key_fingerprint=key.material.fingerprint,
        )


def _fits(key: LocalKey, provider: ProviderType) -> bool:
    return provider is not ProviderType.SECRETBOX or key.material.size == _SECRETBOX_KEY_SIZE


def _is_text(data: bytes) -> bool:
    """Say whether bytes may be part of a name: a configuration takes any text, also such as does not print."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
