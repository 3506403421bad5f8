"""What was done to a value, found by undoing it: it opens again, with its tag.

Each try is confirmed by really opening the value, so what is found is proven, and nothing is found by chance. CBC has
no tag: there the start, the padding and an object that decodes whole have to come together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from etcdfix.encryption.candidates import Candidate
from etcdfix.encryption.cipher import Cipher, Flip
from etcdfix.encryption.kms.envelopes import (
    DEKSourceType,
    EncryptedObject,
    KMSEnvelopeInvalid,
    parse_encrypted_object,
    split_encrypted_object,
)
from etcdfix.encryption.kms.transformer import INFO, DataKey, KMSv1Transformer, KMSv2Transformer
from etcdfix.encryption.known_starts import LEAST_VISIBLE, LookInto, RecognisedStart, Structures
from etcdfix.encryption.providers.aescbc import AESCBCCipher
from etcdfix.encryption.providers.aesgcm import AESGCMCipher
from etcdfix.encryption.transformer import KMSReader
from etcdfix.model.model import Attempt, Found, Look, Undone

_CR_LF, _LF = b"\r\n", b"\n"
# Of what opened with its tag: no forger has better odds.
_TAG_BITS = 100.0
_TEXT_MODE = Found(Undone.TEXT_MODE, "every CR LF was LF")

_OF_PART = {
    "ciphertext": Undone.CIPHERTEXT_BIT,
    "tag": Undone.TAG_BIT,
    "nonce": Undone.NONCE_BIT,
    INFO: Undone.INFO_BIT,
}


class Fixed:
    """A value that showed noise, and opens.

    Attributes:
        candidate: The key, over the fixed body.
        start: What its plaintext starts like.
        plaintext: Authenticated.
    """

    __slots__ = ("candidate", "found", "plaintext", "start")

    def __init__(self, candidate: Candidate, found: Found, start: RecognisedStart, plaintext: bytes) -> None:
        self.candidate = candidate
        self.found = found
        self.start = start
        self.plaintext = plaintext


class Search:
    """The tries on one value.

    Attributes:
        tried: How many there were: every key, bit and etcd key that could have fitted by chance.
        visible: Some key had enough bytes to see.
    """

    def __init__(
        self, etcd_key: bytes, other_keys: Iterable[bytes], structures: Structures, look: LookInto
    ) -> None:
        self.tried = 0
        self.visible = False
        self._etcd_key = etcd_key
        self._other_keys = tuple(other_keys)
        self._structures = structures
        self._look = look

    def recognise(self, candidate: Candidate) -> RecognisedStart | None:
        """Return what a key would make of the value's start, None for noise."""
        self.tried += 1
        seen = candidate.cipher.start(candidate.body)
        self.visible = self.visible or len(seen) >= LEAST_VISIBLE
        if candidate.cipher.authenticated:
            return self._structures.recognise(seen)
        return self._structures.recognise_blocks(seen)

    def undo(self, candidate: Candidate, seen: Look) -> Found | None:
        """Find what was done to a value that shows a start under its key."""
        elsewhere = self.other_key(candidate, seen)
        if elsewhere is not None:
            return elsewhere
        fixed = self._without_cr(candidate) or self._one_bit(candidate)
        return fixed.found if fixed is not None else None

    def other_key(self, candidate: Candidate, seen: Look) -> Found | None:
        """Find under which other etcd key a value was written that shows a start under its key."""
        if candidate.cipher.bound:
            for what, keys in ((Undone.OTHER_PREFIX, self._other_keys), (Undone.OTHER_PATH, seen.belongs)):
                for key in dict.fromkeys(keys):
                    if key != self._etcd_key and self._opens(candidate, key) is not None:
                        return Found(what, "the etcd key that it was written under", key)
        return None

    def undo_noise(self, candidate: Candidate) -> Fixed | None:
        """Find what was done to a value that shows noise under a key of its name."""
        # A start that is recognised by its text may be noise for one bit of it.
        return self._without_cr(candidate) or self._other_nonce(candidate) or self._one_bit(candidate)

    def undo_kms(self, reader: KMSReader, rule: str, body: bytes) -> Fixed | None:
        """Find what was done to a KMS value that shows noise, or whose data key the plugin did not give."""
        candidates = list(kms_candidates(reader, rule, body))
        for candidate in candidates:
            fixed = self.undo_noise(candidate)
            if fixed is not None:
                return fixed
        fixed = self._other_source(reader, rule, body)
        text = body.replace(_CR_LF, _LF)
        if fixed is not None or text == body:
            return fixed
        # Without CR, lengths and wrapped key are read anew.
        for candidate in kms_candidates(reader, rule, text):
            fixed = self._confirmed(candidate, _TEXT_MODE)
            if fixed is not None:
                return fixed
        fixed = self._other_source(reader, rule, text)
        return Fixed(fixed.candidate, _TEXT_MODE, fixed.start, fixed.plaintext) if fixed is not None else None

    def _without_cr(self, candidate: Candidate) -> Fixed | None:
        text = candidate.body.replace(_CR_LF, _LF)
        if text == candidate.body:
            return None
        return self._confirmed(candidate._replace(body=text), _TEXT_MODE)

    def _one_bit(self, candidate: Candidate) -> Fixed | None:
        """Try the bits that explain the tag: one pass over the blocks, so this comes last."""
        flips = candidate.cipher.flips(candidate.body, self._etcd_key)
        return next(filter(None, (self._turned(candidate, flip) for flip in flips)), None)

    def _turned(self, candidate: Candidate, flip: Flip) -> Fixed | None:
        there = candidate._replace(body=flip.turned(candidate.body))
        return self._confirmed(there, Found(_OF_PART[flip.part], flip.words))

    def _other_nonce(self, candidate: Candidate) -> Fixed | None:
        for flip, start in candidate.cipher.other_nonces(candidate.body):
            self.tried += 1
            if self._structures.recognise(start) is not None:
                fixed = self._turned(candidate, flip)
                if fixed is not None:
                    return fixed
        return None

    def _other_source(self, reader: KMSReader, rule: str, body: bytes) -> Fixed | None:
        """Try the plugin's answer for the other use, with each bit of info turned, and the keys of other values."""
        opener = reader.opener
        if isinstance(opener, KMSv1Transformer):
            return None
        encrypted = parsed(body)
        own = recalled(opener, encrypted)
        data = encrypted.encrypted_data
        under: list[tuple[DataKey, Found]] = []
        if own is not None:
            known = encrypted.encrypted_dek_source_type in set(DEKSourceType)
            for seeded in (True, False):
                if not (known and seeded == own.seeded):  # that is what the value says
                    what = "what the plugin gave is a seed" if seeded else "what the plugin gave is a key"
                    under.append((own.used_as(seeded=seeded), Found(Undone.SOURCE_TYPE, what)))
        for key, found in under:
            fixed = self._under(reader, rule, key, data, found)
            if fixed is not None:
                return fixed
        for flip, cipher, there in own.other_infos(data) if own is not None else ():
            self.tried += 1
            if self._structures.recognise(cipher.start(there)) is not None:
                candidate = Candidate(cipher, there, named=True, rule=rule, transformer=reader.transformer)
                fixed = self._confirmed(candidate, Found(Undone.INFO_BIT, flip.words))
                if fixed is not None:
                    return fixed
        found = Found(Undone.DATA_KEY, "the data key of another value of this provider")
        others = (self._under(reader, rule, key, data, found) for key in opener.witnesses if key != own)
        return next(filter(None, others), None)

    def _under(self, reader: KMSReader, rule: str, key: DataKey, data: bytes, found: Found) -> Fixed | None:
        there = key.unchecked(data)
        if there is None:
            return None
        return self._confirmed(
            Candidate(*there, named=True, rule=rule, transformer=reader.transformer), found
        )

    def _confirmed(self, candidate: Candidate, found: Found) -> Fixed | None:
        """Return a fixed value if it opens; without a tag it has to decode whole as well."""
        plaintext = self._opens(candidate, self._etcd_key)
        if plaintext is None:
            return None
        start = self.recognise(candidate)
        if not candidate.cipher.authenticated:
            if start is None or not self._look(plaintext).whole:
                return None
            return Fixed(candidate, found, start, plaintext)
        encoding, bits, wrong, _ = start if start is not None else RecognisedStart("", 0.0, 0)
        return Fixed(candidate, found, RecognisedStart(encoding, max(bits, _TAG_BITS), wrong), plaintext)

    def _opens(self, candidate: Candidate, etcd_key: bytes) -> bytes | None:
        self.tried += 1
        opened = candidate.cipher.read(candidate.body, etcd_key)
        return None if isinstance(opened, Attempt) else opened


def kms_candidates(reader: KMSReader, rule: str, body: bytes, *, named: bool = True) -> Iterator[Candidate]:
    """Yield what a KMS value can be looked at with, given the data key from memory; v1 has two layouts."""
    found: list[tuple[Cipher, bytes]] = []
    if isinstance(reader.opener, KMSv1Transformer):
        recalled = reader.opener.recall(body)
        if recalled is not None:
            found = [(AESGCMCipher(recalled[0]), recalled[1]), (AESCBCCipher(recalled[0]), recalled[1])]
    else:
        encrypted = parsed(body)
        key = reader.opener.recall(encrypted)
        there = key.unchecked(encrypted.encrypted_data) if key is not None else None
        found = [there] if there is not None else []
    for cipher, data in found:
        yield Candidate(cipher, data, named, rule, reader.transformer)


def parsed(body: bytes) -> EncryptedObject:
    """Return a KMS v2 body taken apart; where it is malformed, what can be told of its data."""
    try:
        return parse_encrypted_object(body)
    except KMSEnvelopeInvalid:
        begin, end = split_encrypted_object(body, 0)
        return EncryptedObject(encrypted_data=body[begin:end])


def recalled(opener: KMSv2Transformer, encrypted: EncryptedObject) -> DataKey | None:
    """Return what the plugin gave for a value, whatever the value says of its use; used as the value says."""
    for kind in (encrypted.encrypted_dek_source_type, *DEKSourceType):
        key = opener.recall(msgspec.structs.replace(encrypted, encrypted_dek_source_type=kind))
        if key is not None:
            return key.used_as(seeded=encrypted.seeded)
    return None
