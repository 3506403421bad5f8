"""AES-GCM with a random 12-byte nonce, bound to the etcd key.

Format:
    Body: ``nonce(12) || ciphertext || tag(16)``; associated data is the complete etcd key
    (``k8s.io/apiserver/pkg/storage/value/encrypt/aes/aes.go``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB

from etcdfix.encryption.cipher import TOO_SHORT_ERROR, Flip, difference, single_bit
from etcdfix.encryption.known_starts import START_SIZE
from etcdfix.encryption.providers import ghash
from etcdfix.model import Attempt, FailureReason

NONCE_SIZE = 12
TAG_SIZE = 16
_BLOCK_SIZE = 16
# Counter 1 is the tag's.
_FIRST_COUNTER = 2
_COUNTER_SIZE = 4
_COUNTERS = tuple(
    (_FIRST_COUNTER + block).to_bytes(_COUNTER_SIZE) for block in range(START_SIZE // _BLOCK_SIZE)
)
# As many blocks as a start needs that is recognised by its text.
_TRIED_BLOCKS = 4
AUTHENTICATION_ERROR = "cipher: message authentication failed"
_FAILED = Attempt(FailureReason.AUTHENTICATION_FAILED, (AUTHENTICATION_ERROR,))


class AESGCMCipher:
    """Opens values under one key of 16, 24 or 32 bytes, or looks at them without their tag: AES in counter mode.

    Format:
        NIST SP 800-38D, section 7: with a nonce of 96 bits the first counter block is ``nonce || 1``, and that is the
        tag's.
    """

    authenticated = True
    bound = True

    def __init__(self, key: bytes) -> None:
        self._aes = AES(key)
        self._aead = AESGCM(key)

    def read(self, body: bytes, etcd_key: bytes) -> bytes | Attempt:
        """Return the plaintext of ``body``, or why there is none."""
        if len(body) < NONCE_SIZE:
            return Attempt(FailureReason.TOO_SHORT, (TOO_SHORT_ERROR,))
        try:
            return self._aead.decrypt(body[:NONCE_SIZE], body[NONCE_SIZE:], etcd_key)
        except InvalidTag:  # also for a body too short for its tag, as upstream
            return _FAILED

    def start(self, body: bytes) -> bytes:
        """Return the first bytes of what would be decrypted; in a value that was cut the last bytes are no tag."""
        nonce, seen = body[:NONCE_SIZE], body[NONCE_SIZE : NONCE_SIZE + START_SIZE]
        return difference(seen, self._stream([nonce], len(seen))[: len(seen)]) if seen else b""

    def plaintext(self, body: bytes) -> bytes:
        """Return all but what lies where a whole value has its tag."""
        return self._decrypted(body, max(len(body) - TAG_SIZE, 0))

    def other_nonces(self, body: bytes) -> Iterator[tuple[Flip, bytes]]:
        """Yield, for each bit of the nonce, what the plaintext would start with if it were turned."""
        nonce, seen = body[:NONCE_SIZE], body[NONCE_SIZE : NONCE_SIZE + _TRIED_BLOCKS * _BLOCK_SIZE]
        if len(nonce) < NONCE_SIZE:
            return
        flips = [Flip("nonce", byte, bit) for byte in range(NONCE_SIZE) for bit in range(8)]
        streams = self._stream([flip.turned(nonce) for flip in flips], len(seen))
        step = len(streams) // len(flips)
        for index, flip in enumerate(flips):
            yield flip, difference(seen, streams[index * step : index * step + len(seen)])

    def flips(self, body: bytes, etcd_key: bytes) -> Iterator[Flip]:
        """Yield the bit of the tag or of the ciphertext that explains the tag, if one does."""
        plaintext, tag = self.plaintext(body), body[-TAG_SIZE:]
        if len(body) < NONCE_SIZE + TAG_SIZE:
            return
        computed = self._aead.encrypt(body[:NONCE_SIZE], plaintext, etcd_key)[-TAG_SIZE:]
        wrong = difference(tag, computed)
        in_tag = single_bit(wrong)
        if in_tag is not None:
            yield Flip("tag", *in_tag, len(body) - TAG_SIZE)
        hash_key = self._encrypt_blocks(bytes(_BLOCK_SIZE))  # H is defined so
        for byte, bit in ghash.flipped_bits(hash_key, wrong, len(plaintext)):
            yield Flip("ciphertext", byte, bit, NONCE_SIZE)

    @cached_property
    def _encrypt_blocks(self) -> Callable[[bytes], bytes]:
        return Cipher(self._aes, ECB()).encryptor().update  # noqa: S305 - the blocks of counter mode

    def _stream(self, nonces: Iterable[bytes], size: int) -> bytes:
        """Return what plaintext is added to under each nonce, ``size`` bytes rounded up to whole blocks for each."""
        counters = _COUNTERS[: -(-size // _BLOCK_SIZE)]
        return self._encrypt_blocks(b"".join([nonce + counter for nonce in nonces for counter in counters]))

    def _decrypted(self, body: bytes, end: int) -> bytes:
        nonce = body[:NONCE_SIZE]
        if len(nonce) < NONCE_SIZE:
            return b""
        counter = nonce + _FIRST_COUNTER.to_bytes(_COUNTER_SIZE)
        return Cipher(self._aes, CTR(counter)).decryptor().update(body[NONCE_SIZE:end])
