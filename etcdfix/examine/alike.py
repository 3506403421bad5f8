"""What a first look said of one value, said again of every other one that looks the same: a lost key has millions."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from etcdfix.encryption.envelope import Envelope
from etcdfix.encryption.repairs import is_never_near
from etcdfix.encryption.same_look import SameLook
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.looking import Looking
from etcdfix.examine.readers import ResourceReader
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.observation import Observation
from etcdfix.model.model import StoredValue, TransformFailure
from etcdfix.model.storagekey import StorageCodec

_MOST_ALIKE: Final = 8
"""So many kinds of one resource are told apart; hostile values can all be of their own."""
_MOST_RESOURCES: Final = 1_000


class _OneOfMany(NamedTuple):
    look: SameLook
    failure: TransformFailure
    seen: Observation
    found: Examination


class AlikeValues:
    """Remembers values that do not open, a few for each resource."""

    def __init__(self, transformers: Transformers | None, looking: Looking) -> None:
        self._transformers = transformers
        self._looking = looking
        self._known: dict[ResourceReader, list[_OneOfMany]] = {}

    def clear(self) -> None:
        """Forget all of them."""
        self._known.clear()

    def find(
        self, reader: ResourceReader, stored: StoredValue, failure: TransformFailure
    ) -> tuple[Observation, Examination] | None:
        """Return what was seen and said of a value that looks the same; None where this one has to be looked at."""
        for like, failed, seen, found in self._known.get(reader, ()):
            if failed is not failure and failed != failure:
                continue
            peek = like.of_another(stored.value, stored.key, self._looking.look_into(reader))
            if peek is not None:
                return seen if peek is seen.peek else msgspec.structs.replace(seen, peek=peek), found
        return None

    def remember(
        self, reader: ResourceReader, envelope: Envelope, seen: Observation, found: Examination
    ) -> None:
        """Keep what a first look said of a value, where it may be said of others with the same envelope."""
        own, failure, data = reader.transformers, seen.transform_failure, found.stored.value
        if own is None or self._transformers is None or failure is None:
            return
        if seen.peek is None or not reader.owner_known:
            return
        # What a name says beside its namespace, or a repair of the prefix, would be of that value alone.
        if reader.directory.codec is StorageCodec.NOT_AN_OBJECT or not is_never_near(
            data[: envelope.body_offset], own
        ):
            return
        if len(self._known) >= _MOST_RESOURCES:
            self._known.clear()
        known = self._known.setdefault(reader, [])
        if len(known) >= _MOST_ALIKE:
            return
        resource = reader.directory.group_resource
        structures = self._looking.structures(reader)
        body = envelope.body_offset
        look = SameLook.of(data, found.stored.key, body, resource, self._transformers, structures, seen.peek)
        if look is not None:
            stored = msgspec.structs.replace(found.stored, value=b"")
            known.append(_OneOfMany(look, failure, seen, msgspec.structs.replace(found, stored=stored)))
