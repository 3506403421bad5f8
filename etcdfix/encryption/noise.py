"""Values of which a look says the same as of another one: noise, under the same encryption keys.

Of a lost key there may be millions. What :mod:`etcdfix.encryption.peek` says of noise depends on the envelope alone, as
long as where it ends is certain; so for all but the first it is enough to see that they are noise.
"""

from __future__ import annotations

import re
from typing import Final

from etcdfix.encryption.candidates import Candidate, local_candidates, place_of
from etcdfix.encryption.config import ProviderType
from etcdfix.encryption.known_starts import START_SIZE_CBC, Structures
from etcdfix.encryption.transformer import ResourceTransformers, Transformers
from etcdfix.model import GroupResource

# No name goes on here: what comes before the next colon is no UTF-8.
_NO_NAME: Final = re.compile(
    rb"(?:[^:\x80-\xff]|[\xc2-\xdf][\x80-\xbf])*+(?:[\x80-\xc1\xf5-\xff]|[\xc2-\xdf][^\x80-\xbf]"
    rb"|[\xe0-\xef][^\x80-\xbf]|[\xe0-\xef][\x80-\xbf][^\x80-\xbf]|[\xf0-\xf4][^\x80-\xbf])"
)
_LEAST_BODY: Final = 64
"""Under every cipher so many bytes are no value that is too short, and show enough of a start."""
_MOST_SEEN: Final = 16 + START_SIZE_CBC


class SameNoise:
    """Tells of values with one envelope whether a look at them says what it said of the first.

    Attributes:
        start: What they begin with, up to the colon behind the name.

    Args:
        start: See above.
        candidates: The keys that were tried on the first.
        size: Of the first, in bytes.
        structures: Starts that API servers write.
    """

    def __init__(self, start: bytes, candidates: list[Candidate], size: int, structures: Structures) -> None:
        self.start = start
        self._structures = structures
        self._least = len(start) + _LEAST_BODY
        self._tried = [(candidate.cipher, size - len(candidate.body)) for candidate in candidates]

    @classmethod
    def of(
        cls,
        data: bytes,
        body: int,
        resource: GroupResource,
        transformers: Transformers,
        structures: Structures,
    ) -> SameNoise | None:
        """Return what tells it; None where not the envelope alone decides: under KMS, or where its end is in doubt.

        Args:
            data: The first value, which a look that was not thorough has found to be noise.
            body: Where its body begins.
            resource: Its own.
            transformers: Of the configuration.
            structures: As for the look.
        """
        place = place_of(data, transformers)
        if place is None or place.provider == ProviderType.KMS or not _is_certain(data, body):
            return None
        own: ResourceTransformers = transformers.for_resource(resource)
        candidates = list(local_candidates(data, place, own, transformers))
        return cls(data[:body], candidates, len(data), structures)

    def holds(self, data: bytes) -> bool:
        """Say whether a look at this value says the same: False also where that would take a longer look."""
        if len(data) < self._least or not data.startswith(self.start):
            return False
        if _NO_NAME.match(data, len(self.start)) is None:
            return False
        structures = self._structures
        for cipher, begin in self._tried:
            if cipher.authenticated:
                if not structures.is_noise(cipher.start(data[begin : begin + _LEAST_BODY])):
                    return False
            elif structures.recognise_blocks(cipher.start(data[begin : begin + _MOST_SEEN])) is not None:
                return False
        return True


def _is_certain(data: bytes, body: int) -> bool:
    return len(data) >= body + _LEAST_BODY and _NO_NAME.match(data, body) is not None
