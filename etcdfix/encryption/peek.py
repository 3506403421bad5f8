"""What an encryption key would make of a value that does not open, and what has to be undone for it to open.

A key that does not open a value proves nothing: it may be the wrong one. Looking at the plaintext without its tag or
padding tells: under a wrong key it is noise. Where it starts like something that an API server writes, the key is
right. Whether the value is damaged is another question. The search for damage undoes one change after the other, the
cheap ones first, and confirms each by opening the value. Without a tag (AES-CBC) the start, the padding and an object
that decodes whole have to come together.

Plaintext never leaves this package: it is handed to the callback, and not kept. No KMS plugin is asked for a value
under the plugin's own name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from etcdfix.encryption.candidates import (
    Candidate,
    body_offsets_of,
    kms_candidates,
    local_candidates,
    parsed_v2,
    recalled,
)
from etcdfix.encryption.cipher import Cipher, Flip, turned
from etcdfix.encryption.kms.envelopes import DEKSourceType
from etcdfix.encryption.kms.transformer import INFO, DataKey, KMSReader, KMSv1Reader
from etcdfix.encryption.known_starts import (
    LEAST_ODDS_BITS,
    LEAST_VISIBLE,
    LookInto,
    RecognisedStart,
    Structures,
)
from etcdfix.encryption.providers.aesgcm import NONCE_SIZE
from etcdfix.encryption.transformer import ResourceTransformers, Transformers
from etcdfix.model.model import Attempt, GroupResource, Look, Peek, PeekState, Undone, UndoneDamage

_EQUAL_BYTES: Final = re.compile(rb"(.)\1{15}", re.DOTALL)
_CR_LF, _LF = b"\r\n", b"\n"
# Of what opened with its tag: no forger has better odds.
_TAG_BITS: Final = 100.0
_OF_PART: Final = {
    "ciphertext": Undone.CIPHERTEXT_BIT,
    "tag": Undone.TAG_BIT,
    "nonce": Undone.NONCE_BIT,
    INFO: Undone.INFO_BIT,
}

__all__ = ["LookInto", "Structures", "peek"]


class Shown(NamedTuple):
    """What a key shows of a value, where that is no noise.

    Attributes:
        candidate: The key, over the body as it is stored, or as it is once the damage is undone.
        undone: What turns noise into a value that opens; None where the start is recognised as it is stored.
        plaintext: Authenticated; b"" unless something was undone.
    """

    candidate: Candidate
    start: RecognisedStart
    undone: UndoneDamage | None = None
    plaintext: bytes = b""

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """What goes first: under CBC a name that goes on for whole blocks looks like blocks that are damaged."""
        return not self.start.behind, self.candidate.named, self.start.bits


def surest(tried: Iterable[tuple[Candidate, RecognisedStart | None]]) -> Shown | None:
    """Return the key of those that were tried that is right, and what it shows; None where all show noise."""
    shown = (Shown(candidate, start) for candidate, start in tried if start is not None)
    return max(shown, key=lambda one: one.rank, default=None)


def peek(
    transformers: Transformers,
    resource: GroupResource,
    data: bytes,
    etcd_key: bytes,
    structures: Structures,
    look: LookInto,
    *,
    other_keys: tuple[bytes, ...] = (),
    thorough: bool = False,
) -> Peek:
    """Look at a value without its tag and padding, with every key that could have written it.

    First come the keys that the value names in its resource's own rule, then every other key of the configuration.
    A KMS value has been read with ``transformers`` before. ``other_keys`` is its etcd key under other storage prefixes.
    A thorough look also finds out what was damaged.
    """
    place = body_offsets_of(data, transformers)
    if place is None:
        return Peek(PeekState.NOT_POSSIBLE)
    own = transformers.for_resource(resource)
    under_kms = place.facts.under_kms
    search = _Search(data, etcd_key, other_keys, structures, look)
    candidates = list(local_candidates(data, place, own, transformers))
    readers = [reader for reader in own.kms_readers if data.startswith(reader.prefix)]
    for reader in readers:
        candidates += kms_candidates(reader, own.rule or "", data, len(reader.prefix))
    not_asked = ""
    if thorough and under_kms:
        elsewhere, not_asked = _behind_other_plugins(data, place.bodies, own, transformers, readers)
        candidates += elsewhere
    shown = surest((candidate, search.recognise(candidate)) for candidate in candidates)
    if shown is None and thorough:
        named = [candidate for candidate in candidates if candidate.named]
        tries = (
            (search.undo_kms(reader, own.rule or "") for reader in readers)
            if under_kms
            else map(search.undo_noise, named)
        )
        shown = next(filter(None, tries), None)
    found = search.right_key(shown, thorough=thorough) if shown is not None else None
    if found is None or found.odds_bits < LEAST_ODDS_BITS:
        state = PeekState.NOISE if search.visible else PeekState.NOT_POSSIBLE
        found = Peek(state, candidates=search.tried, not_asked=not_asked)
    return msgspec.structs.replace(
        found, too_short=place.too_short, name_may_go_on=place.name_may_go_on, searched=thorough
    )


def _behind_other_plugins(
    data: bytes,
    bodies: tuple[int, ...],
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
            for body in bodies:
                if not reader.ask(data[body:]):
                    not_asked = not_asked or reader.transformer
                found += kms_candidates(reader, rule.rule or "", data, body, named=False)
    return found, not_asked


def _kms_version(data: bytes) -> bytes:
    return data.split(b":", 4)[3]


class _Search:
    """The tries on one value.

    Attributes:
        tried: Every key, bit and etcd key that could have fitted by chance.
        visible: Some key had enough bytes to see.
    """

    def __init__(
        self,
        data: bytes,
        etcd_key: bytes,
        other_keys: tuple[bytes, ...],
        structures: Structures,
        look: LookInto,
    ) -> None:
        self.tried = 0
        self.visible = False
        self._data = data
        self._etcd_key = etcd_key
        self._other_keys = other_keys
        self._structures = structures
        self._look = look
        text = data.replace(_CR_LF, _LF)
        self._text_mode = UndoneDamage(Undone.TEXT_MODE, "every CR LF was LF", value=text)

    def recognise(self, candidate: Candidate) -> RecognisedStart | None:
        """Return what a key would make of the value's start, None for noise."""
        self.tried += 1
        seen = candidate.cipher.start(candidate.body)
        self.visible = self.visible or len(seen) >= LEAST_VISIBLE
        if candidate.cipher.authenticated:
            return self._structures.recognise(seen)
        return self._structures.recognise_blocks(seen)

    def right_key(self, shown: Shown, *, thorough: bool) -> Peek:
        """Return what a look shows where one key shows no noise."""
        candidate, start, undone, plaintext = shown
        cipher, opens, equal_bytes = candidate.cipher, False, False
        if undone is not None:
            seen = self._look(plaintext)
        else:
            opens = not isinstance(cipher.read(candidate.body, self._etcd_key), Attempt)
            seen = self._look(cipher.plaintext(candidate.body))
            if not (opens and cipher.authenticated):
                undone = self._other_key(candidate, seen)
                if undone is None and thorough:
                    fixed = self._without_cr(candidate) or self._one_bit(candidate)
                    undone = fixed.undone if fixed is not None else None
            # Behind the nonce; there the start of the object was just seen.
            equal_bytes = (
                cipher.bound and not opens and _EQUAL_BYTES.search(candidate.body, NONCE_SIZE) is not None
            )
        return Peek(
            PeekState.RIGHT_KEY,
            rule=candidate.rule,
            transformer=candidate.transformer,
            key_fingerprint=candidate.key_fingerprint,
            named=candidate.named,
            opens=opens,
            bound=cipher.bound,
            authenticated=cipher.authenticated,
            encoding=start.encoding,
            wrong_bits=start.wrong_bits,
            odds_bits=math.floor(start.bits - math.log2(self.tried)),
            candidates=self.tried,
            look=seen,
            undone=undone,
            equal_bytes=equal_bytes,
        )

    def _other_key(self, candidate: Candidate, seen: Look) -> UndoneDamage | None:
        """Find under which other etcd key a value was written that shows a start under its key."""
        if candidate.cipher.bound:
            for what, keys in ((Undone.OTHER_PREFIX, self._other_keys), (Undone.OTHER_PATH, seen.belongs)):
                for key in dict.fromkeys(keys):
                    if key != self._etcd_key and self._opens(candidate, key) is not None:
                        return UndoneDamage(what, "the etcd key that it was written under", key)
        return None

    def undo_noise(self, candidate: Candidate) -> Shown | None:
        """Find what was done to a value that shows noise under a key of its name."""
        # A start that is recognised by its text may be noise for one bit of it.
        return self._without_cr(candidate) or self._other_nonce(candidate) or self._one_bit(candidate)

    def undo_kms(self, reader: KMSReader, rule: str) -> Shown | None:
        """Find what was done to a KMS value that shows noise, or whose data key the plugin did not give."""
        start, text = len(reader.prefix), self._text_mode.value
        for candidate in kms_candidates(reader, rule, self._data, start):
            found = self.undo_noise(candidate)
            if found is not None:
                return found
        found = self._other_source(reader, rule, self._data)
        if found is not None or text == self._data:
            return found
        # Without CR, lengths and wrapped key are read anew.
        for candidate in kms_candidates(reader, rule, text, start):
            found = self._confirmed(candidate, self._text_mode)
            if found is not None:
                return found
        found = self._other_source(reader, rule, text)
        return found._replace(undone=self._text_mode) if found is not None else None

    def _without_cr(self, candidate: Candidate) -> Shown | None:
        text = candidate.body.replace(_CR_LF, _LF)
        if text == candidate.body:
            return None
        return self._confirmed(candidate._replace(body=text), self._text_mode)

    def _one_bit(self, candidate: Candidate) -> Shown | None:
        """Try the bits that explain the tag: one pass over the blocks, so this comes last."""
        flips = candidate.cipher.flips(candidate.body, self._etcd_key)
        return next(filter(None, (self._turned(candidate, flip) for flip in flips)), None)

    def _other_nonce(self, candidate: Candidate) -> Shown | None:
        for flip, start in candidate.cipher.other_nonces(candidate.body):
            self.tried += 1
            if self._structures.recognise(start) is not None:
                found = self._turned(candidate, flip)
                if found is not None:
                    return found
        return None

    def _turned(self, candidate: Candidate, flip: Flip) -> Shown | None:
        there = candidate._replace(body=flip.turned(candidate.body))
        return self._confirmed(there, self._bit(flip, candidate.begin))

    def _bit(self, flip: Flip, begin: int) -> UndoneDamage:
        at = begin + flip.start + flip.byte
        value = turned(self._data, at, flip.bit) if begin else b""
        return UndoneDamage(_OF_PART[flip.part], flip.words, value=value)

    def _other_source(self, reader: KMSReader, rule: str, data: bytes) -> Shown | None:
        """Try the plugin's answer for the other use, with each bit of info turned, and the keys of other values."""
        if isinstance(reader, KMSv1Reader):
            return None
        encrypted, begin = parsed_v2(data, len(reader.prefix))
        own, sealed = recalled(reader, encrypted), encrypted.encrypted_data

        def under(keys: Iterable[tuple[DataKey, UndoneDamage]]) -> Iterator[Shown]:
            for key, undone in keys:
                there = key.unchecked(sealed)
                found = self._confirmed(_under(reader, rule, *there), undone) if there is not None else None
                if found is not None:
                    yield found

        uses: list[tuple[DataKey, UndoneDamage]] = []
        if own is not None:
            known = encrypted.encrypted_dek_source_type in set(DEKSourceType)
            for seeded in (True, False):
                if not (known and seeded == own.seeded):  # that is what the value says
                    what = "what the plugin gave is a seed" if seeded else "what the plugin gave is a key"
                    uses.append((own.used_as(seeded=seeded), UndoneDamage(Undone.SOURCE_TYPE, what)))
        found = next(under(uses), None)
        if found is not None:
            return found
        for flip, cipher, there in own.other_infos(sealed) if own is not None else ():
            self.tried += 1
            if self._structures.recognise(cipher.start(there)) is not None:
                found = self._confirmed(_under(reader, rule, cipher, there), self._bit(flip, begin))
                if found is not None:
                    return found
        neighbours = UndoneDamage(Undone.DATA_KEY, "the data key of another value of this provider")
        return next(under((key, neighbours) for key in reader.witnesses if key != own), None)

    def _confirmed(self, candidate: Candidate, undone: UndoneDamage) -> Shown | None:
        """Return a fixed value if it opens; without a tag it has to decode whole as well."""
        plaintext = self._opens(candidate, self._etcd_key)
        if plaintext is None:
            return None
        start = self.recognise(candidate)
        if not candidate.cipher.authenticated:
            if start is None or not self._look(plaintext).whole:
                return None
            return Shown(candidate, start, undone, plaintext)
        start = start or RecognisedStart("", 0.0, 0)
        sure = RecognisedStart(start.encoding, max(start.bits, _TAG_BITS), start.wrong_bits)
        return Shown(candidate, sure, undone, plaintext)

    def _opens(self, candidate: Candidate, etcd_key: bytes) -> bytes | None:
        self.tried += 1
        opened = candidate.cipher.read(candidate.body, etcd_key)
        return None if isinstance(opened, Attempt) else opened


def _under(reader: KMSReader, rule: str, cipher: Cipher, body: bytes) -> Candidate:
    return Candidate(cipher, body, named=True, rule=rule, transformer=reader.transformer)
