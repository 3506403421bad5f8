"""Values of which a look says the same as of another one, under the same encryption keys.

Of a lost key there may be millions, and as many of a key that has another name now. What
:mod:`etcdfix.encryption.peek` says of them depends on the envelope, as long as where it ends is certain, and on what
each key shows. So for all but the first it is enough to see that every key shows the same, and where one is right, that
it opens the value and the whole object of this very etcd key comes out.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from etcdfix.encryption.candidates import Candidate, body_offsets_of, local_candidates
from etcdfix.encryption.cipher import Cipher
from etcdfix.encryption.known_starts import NOISE_SIZE, START_SIZE_CBC, LookInto, RecognisedStart, Structures
from etcdfix.encryption.peek import surest
from etcdfix.encryption.transformer import Transformers
from etcdfix.model.model import Attempt, GroupResource, Look, Peek, PeekState

# No name goes on here: what comes before the next colon is no UTF-8.
_NO_NAME: Final = re.compile(
    rb"(?:[^:\x80-\xff]|[\xc2-\xdf][\x80-\xbf])*+(?:[\x80-\xc1\xf5-\xff]|[\xc2-\xdf][^\x80-\xbf]"
    rb"|[\xe0-\xef][^\x80-\xbf]|[\xe0-\xef][\x80-\xbf][^\x80-\xbf]|[\xf0-\xf4][^\x80-\xbf])"
)
_LEAST_BODY: Final = 64
"""Under every cipher so many bytes are no value that is too short, and show enough of a start."""
# Nonce, tag and one block of what is decrypted: under AES-GCM the tag comes last.
_QUICK_SIZES: Final = (28, _LEAST_BODY)
_MOST_SEEN: Final = 16 + START_SIZE_CBC


class _Tried(msgspec.Struct, frozen=True):
    """A key that was tried on the first value: where the body began, and what it showed; None for noise.

    The first bytes that tell noise, up to ``noise_until``, are quickly decrypted; 0 where all that is seen has to be.
    """

    cipher: Cipher
    begin: int
    start: RecognisedStart | None
    noise_until: int

    @classmethod
    def of(cls, candidate: Candidate, data: bytes, structures: Structures) -> _Tried:
        cipher, begin, body = candidate.cipher, len(data) - len(candidate.body), candidate.body
        start = _recognised(cipher, body, structures)
        until = 0
        if start is None and cipher.authenticated:
            enough = (size for size in _QUICK_SIZES if len(cipher.start(body[:size])) >= NOISE_SIZE)
            until = begin + next(enough)
        return cls(cipher, begin, start, until)

    def shows_the_same(self, data: bytes, structures: Structures) -> bool:
        cipher, begin, until = self.cipher, self.begin, self.noise_until
        if until and structures.is_noise(cipher.start(data[begin:until])):
            return True
        return _recognised(cipher, data[begin : begin + _MOST_SEEN], structures) == self.start


def _recognised(cipher: Cipher, body: bytes, structures: Structures) -> RecognisedStart | None:
    recognise = structures.recognise if cipher.authenticated else structures.recognise_blocks
    return recognise(cipher.start(body))


class SameLook:
    """Tells of values with one envelope whether a look at them says what it said of the first.

    Attributes:
        start: What they begin with, up to the colon behind the name.
    """

    def __init__(
        self, start: bytes, peek: Peek, tried: list[_Tried], right: _Tried | None, structures: Structures
    ) -> None:
        self.start = start
        self._peek = peek
        self._least = len(start) + _LEAST_BODY
        self._tried = tried
        self._right = right
        self._structures = structures

    @classmethod
    def of(
        cls,
        data: bytes,
        key: bytes,
        body: int,
        resource: GroupResource,
        transformers: Transformers,
        structures: Structures,
        peek: Peek,
    ) -> SameLook | None:
        """Return what tells it; None where more than the envelope and the keys decides.

        So it is under KMS, where the end of the envelope is in doubt, and where the right key does not open the value,
        or something else comes out than the object of its etcd key: what was damaged is to be found for each alone.
        """
        place = body_offsets_of(data, transformers) if _is_certain(data, body) else None
        if place is None or place.facts.under_kms:
            return None
        candidates = list(local_candidates(data, place, transformers.for_resource(resource), transformers))
        tried = [_Tried.of(candidate, data, structures) for candidate in candidates]
        right = None
        if peek.state is PeekState.RIGHT_KEY:
            if not peek.opens or not _is_at_home(peek.look, key):
                return None
            best = surest(zip(candidates, (one.start for one in tried), strict=True))
            assert best is not None  # the look has found it
            right = tried[candidates.index(best.candidate)]
        return cls(data[:body], peek, tried, right, structures)

    def of_another(self, data: bytes, key: bytes, look: LookInto) -> Peek | None:
        """Return what a look says of this value, where that is the same; None where it has to be looked at.

        Only the etcd key that the value belongs to may differ: it is the value's own.
        """
        if len(data) < self._least or not data.startswith(self.start):
            return None
        if _NO_NAME.match(data, len(self.start)) is None:
            return None
        for tried in self._tried:
            if not tried.shows_the_same(data, self._structures):
                return None
        if self._right is None:
            return self._peek
        opened = self._right.cipher.read(data[self._right.begin :], key)
        if isinstance(opened, Attempt):
            return None
        seen = look(opened)
        first = self._peek.look
        if first is None or not _is_at_home(seen, key) or seen != first._replace(belongs=seen.belongs):
            return None
        return msgspec.structs.replace(self._peek, look=seen)


def _is_at_home(look: Look | None, key: bytes) -> bool:
    return look is not None and look.whole and look.ends_as_written and look.belongs == (key,)


def _is_certain(data: bytes, body: int) -> bool:
    return len(data) >= body + _LEAST_BODY and _NO_NAME.match(data, body) is not None
