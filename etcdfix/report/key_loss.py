"""What holds for a whole lost encryption key: gathered while values pass, said once when all were counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.key_loss import BY_NUMBERS
from etcdfix.examine.verdicts.severity import Stake
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, display
from etcdfix.report.advice.ways import first_way
from etcdfix.report.advice.whole import doubt_in, ways_of_lost_key
from etcdfix.report.model import LostKey, Remedy, TransformerSummary
from etcdfix.report.tally import MAX_NAMES, OTHERS
from etcdfix.text.commands import RunOptions

Place = tuple[str, str, str]
"""Rule, transformer and fingerprint, as ``by_transformer`` counts."""

_MOST_WORDS = 10


def places_of(found: Examination) -> tuple[Place, ...]:
    """Return the encryption keys whose loss may be why a value does not open; none where its damage is proven."""
    verdict = found.verdict
    if verdict.outcome not in FAILED or found.opened or verdict.damage is Damage.PROVEN or verdict.key_proven:
        return ()
    if found.transformer in {IDENTITY, ""}:
        return ()
    return tuple((found.rule, found.transformer, key) for key in found.key_fingerprints or ("",))


def _scope_of(directories: Iterable[ResourcePrefix]) -> list[str]:
    """Return the scope of a scan that looks at all of these; everything where not each is a resource that it knows."""
    words = [str(directory.group_resource) for directory in directories]
    unknown = any(directory.codec is StorageCodec.UNKNOWN for directory in directories)
    return [] if unknown or len(words) > _MOST_WORDS else words


class _Members(msgspec.Struct):
    """What is known of the values that one encryption key may have lost: an earlier revision of ``kept`` reads."""

    causes: set[Cause]
    resources: set[ResourcePrefix]
    worst: Stake
    kept: int = 0
    first_kept: Remedy | None = None
    first_key: str = ""
    two_writers: bool = False

    def keep(self, key: str, remedy: Remedy) -> None:
        """Count a value of which an earlier revision is kept; the first of them shows how it is put back."""
        if self.first_kept is None or key < self.first_key:
            self.first_kept, self.first_key = remedy, key
        self.kept += 1

    def in_order(self) -> tuple[list[Cause], list[ResourcePrefix]]:
        """Return causes and resources in an order of their own: that of the values may be another in every run."""
        catalogue = list(Cause)
        return sorted(self.causes, key=catalogue.index), sorted(self.resources, key=lambda d: d.path)


class Lost(NamedTuple):
    """A lost key, the worst that is at stake under it, and the first way out."""

    entry: LostKey
    worst: Stake
    first: Remedy | None


class KeyLosses:
    """Gathers the values that may belong to a lost encryption key. Memory depends on keys and resources in use."""

    def __init__(self, again: RunOptions) -> None:
        self._again = again
        self._members: dict[Place, _Members] = {}

    def add(
        self, found: Examination, places: Iterable[Place], stake: Stake, kept: Remedy | None = None
    ) -> None:
        """Take one value that may belong to each of these keys; ``kept`` puts back a revision that still reads."""
        cause = found.verdict.cause
        assert cause is not None  # every failure has one
        for place in places:
            members = self._members.get(place)
            if members is None:
                if len(self._members) >= MAX_NAMES:
                    continue
                members = self._members[place] = _Members(set(), set(), stake)
            members.causes.add(cause)
            members.two_writers = members.two_writers or found.verdict.two_writers
            if len(members.resources) < MAX_NAMES:
                members.resources.add(found.directory)
            if kept is not None:
                members.keep(display(found.stored.key), kept)
            members.worst = min(members.worst, stake, key=lambda one: one.rank)

    def lost(self, counted: Iterable[TransformerSummary]) -> dict[Place, Lost]:
        """Return the keys that are lost by these counts."""
        found = {}
        for entry in counted:
            place = (",".join(entry.resources), entry.transformer, entry.key_fingerprint or "")
            members = self._members.get(place)
            if members is None or entry.transformer == OTHERS:
                continue
            if doubt_in(entry) in BY_NUMBERS:
                causes, directories = members.in_order()
                kept = (members.kept, members.first_kept) if members.first_kept is not None else None
                ways = ways_of_lost_key(
                    causes,
                    entry.transformer,
                    _scope_of(directories),
                    self._again,
                    differing=members.two_writers,
                    kept=kept,
                )
                lost = LostKey(
                    transformer=entry.transformer,
                    rule=place[0],
                    resources=[str(directory.group_resource) for directory in directories],
                    key_fingerprint=entry.key_fingerprint,
                    failures=entry.failures,
                    of=entry.keys,
                    first_mod_revision=entry.first_mod_revision,
                    last_mod_revision=entry.last_mod_revision,
                    remedies=ways,
                )
                found[place] = Lost(lost, members.worst, first_way(ways))
        return found
