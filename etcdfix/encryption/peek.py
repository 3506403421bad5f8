"""What an encryption key would make of a value that does not open, and what would have to be undone for it to open.

A key that does not open a value proves nothing: it may be the wrong one. Looking at the plaintext without its tag or
padding tells: under a wrong key it is noise. Where it starts like something that an API server writes, the key is
right; whether the value is damaged is another question, and is answered only by finding the damage.

Plaintext never leaves this package: it is handed to the callback, and not kept. No KMS plugin is asked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from etcdfix.encryption.candidates import Candidate, Place, local_candidates, place_of
from etcdfix.encryption.known_starts import LEAST_ODDS_BITS, LookInto, RecognisedStart, Structures
from etcdfix.encryption.providers.aesgcm import NONCE_SIZE
from etcdfix.encryption.transformer import KMSReader, ResourceTransformers, Transformers
from etcdfix.encryption.undo import Fixed, Search, kms_candidates
from etcdfix.model.model import Attempt, Found, GroupResource, Look, Peek, PeekState

_EQUAL_BYTES: Final = re.compile(rb"(.)\1{15}", re.DOTALL)

__all__ = ["LookInto", "PeekRequest", "Structures", "peek"]


class PeekRequest(msgspec.Struct, frozen=True):
    """One value to look at.

    Attributes:
        other_keys: The same key under other storage prefixes, under which it may have been written.
        thorough: Also find out what was damaged.
    """

    data: bytes
    key: bytes
    other_keys: tuple[bytes, ...] = ()
    thorough: bool = False

    def __repr__(self) -> str:
        return f"PeekRequest({len(self.data)} bytes, thorough={self.thorough})"


class Shown(NamedTuple):
    """What a key shows of a value where that is no noise."""

    candidate: Candidate
    start: RecognisedStart

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """What goes first: under CBC a name that goes on for whole blocks looks like blocks that are damaged."""
        return not self.start.behind, self.candidate.named, self.start.bits


def peek(
    transformers: Transformers,
    resource: GroupResource,
    request: PeekRequest,
    structures: Structures,
    look: LookInto,
) -> Peek:
    """Look at a value without its tag and padding, with every key that could have written it.

    First come the keys that the value names in its resource's own rule, then every other key of the configuration.
    A KMS value has been read with ``transformers`` before.
    """
    place = place_of(request.data, transformers)
    if place is None:
        return Peek(PeekState.NOT_POSSIBLE)
    own = transformers.for_resource(resource)
    looking = _Looking(request, place, Search(request.key, request.other_keys, structures, look), look)
    readers = [reader for reader in own.kms_readers if request.data.startswith(reader.prefix)]
    candidates = list(local_candidates(request.data, place, own, transformers))
    for reader in readers:
        candidates += kms_candidates(reader, own.rule or "", request.data[len(reader.prefix) :])
    not_asked = ""
    if request.thorough and place.facts.under_kms:
        elsewhere, not_asked = _behind_other_plugins(request.data, place, own, transformers, readers)
        candidates += elsewhere
    search = looking.search
    best = surest((candidate, search.recognise(candidate)) for candidate in candidates)
    found = None
    if best is not None:
        found = looking.described(best)
    elif request.thorough and place.facts.under_kms:
        bodies = ((reader, request.data[len(reader.prefix) :]) for reader in readers)
        found = looking.fixed(search.undo_kms(reader, own.rule or "", body) for reader, body in bodies)
    elif request.thorough:
        found = looking.fixed(search.undo_noise(candidate) for candidate in candidates if candidate.named)
    if found is not None and found.odds_bits >= LEAST_ODDS_BITS:
        return found
    return Peek(
        PeekState.NOISE if search.visible else PeekState.NOT_POSSIBLE,
        candidates=search.tried,
        too_short=place.too_short,
        name_may_go_on=place.name_may_go_on,
        not_asked=not_asked,
    )


def surest(tried: Iterable[tuple[Candidate, RecognisedStart | None]]) -> Shown | None:
    """Return the key of those that were tried that is right, and what it shows; None where all show noise."""
    shown = (Shown(candidate, start) for candidate, start in tried if start is not None)
    return max(shown, key=lambda one: one.rank, default=None)


def _behind_other_plugins(
    data: bytes,
    place: Place,
    own: ResourceTransformers,
    transformers: Transformers,
    readers: list[KMSReader],
) -> tuple[list[Candidate], str]:
    """Return what the KMS providers that a value does not name give it, and the first that does not answer."""
    found: list[Candidate] = []
    not_asked = ""
    for rule in (own, *transformers.rules):
        for reader in rule.kms_readers:
            if any(map(reader.is_same, readers)) or _kms_version(reader.prefix) != _kms_version(data):
                continue
            for body in place.bodies:
                if not reader.opener.ask(data[body:]):
                    not_asked = not_asked or reader.transformer
                found += kms_candidates(reader, rule.rule or "", data[body:], named=False)
    return found, not_asked


def _kms_version(data: bytes) -> bytes:
    return data.split(b":", 4)[3]


class _Looking(NamedTuple):
    """What a look at one value goes by."""

    request: PeekRequest
    place: Place
    search: Search
    look: LookInto

    def described(self, best: Shown) -> Peek:
        candidate, search = best.candidate, self.search
        opened = candidate.cipher.read(candidate.body, self.request.key)
        opens = not isinstance(opened, Attempt)
        seen = self.look(candidate.cipher.plaintext(candidate.body))
        undone = None
        if not (opens and candidate.cipher.authenticated):
            find = search.undo if self.request.thorough else search.other_key
            undone = find(candidate, seen)
        found = self._right_key(candidate, best.start, seen, undone, opens=opens)
        # Behind the nonce; there the start of the object was just seen.
        overwritten = _EQUAL_BYTES.search(candidate.body, NONCE_SIZE) is not None
        if overwritten and candidate.cipher.bound and not opens:
            return msgspec.structs.replace(found, equal_bytes=True)
        return found

    def fixed(self, tries: Iterable[Fixed | None]) -> Peek | None:
        """Return what the first try that fits shows."""
        for fixed in filter(None, tries):
            seen = self.look(fixed.plaintext)
            return self._right_key(fixed.candidate, fixed.start, seen, fixed.found, opens=False)
        return None

    def _right_key(
        self, candidate: Candidate, start: RecognisedStart, seen: Look, undone: Found | None, *, opens: bool
    ) -> Peek:
        tried = self.search.tried
        return Peek(
            PeekState.RIGHT_KEY,
            rule=candidate.rule,
            transformer=candidate.transformer,
            key_fingerprint=candidate.key_fingerprint,
            named=candidate.named,
            opens=opens,
            bound=candidate.cipher.bound,
            authenticated=candidate.cipher.authenticated,
            encoding=start.encoding,
            wrong_bits=start.wrong_bits,
            odds_bits=math.floor(start.bits - math.log2(tried)),
            candidates=tried,
            look=seen,
            undone=undone,
            too_short=self.place.too_short,
            name_may_go_on=self.place.name_may_go_on,
        )
