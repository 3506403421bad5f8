"""What holds for a whole lost encryption key: gathered while values pass, said once when all were counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.key_loss import BY_NUMBERS
from etcdfix.examine.verdicts.severity import Rank, stake_of
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec
from etcdfix.report.advice.ways import first_way
from etcdfix.report.advice.whole import doubt_in, ways_of_lost_key
from etcdfix.report.model import LostKey, Remedy, TransformerSummary
from etcdfix.report.tally import MAX_NAMES, OTHERS
from etcdfix.text.commands import RunOptions

RuleKey = tuple[str, str, str]
"""Rule, transformer and fingerprint, as ``by_transformer`` counts."""

_MOST_WORDS = 10
_CATALOGUE: Final = list(Cause)


def keys_in_doubt(found: Examination) -> tuple[RuleKey, ...]:
    """Return the encryption keys whose loss may be why a value does not open; none where its damage is proven."""
    verdict = found.verdict
    if verdict.outcome not in FAILED or found.opened or verdict.damage is Damage.PROVEN or verdict.key_proven:
        return ()
    if found.transformer in {IDENTITY, ""}:
        return ()
    return tuple((found.rule, found.transformer, key) for key in found.key_fingerprints or ("",))


class Lost(NamedTuple):
    """A lost key, how bad the worst of its values is, and the first way out."""

    entry: LostKey
    rank: Rank
    first: Remedy | None


class _Members(msgspec.Struct):
    """What is known of the values that one encryption key may have lost; an earlier revision of ``kept`` reads."""

    rank: Rank
    causes: set[Cause] = set()
    resources: dict[ResourcePrefix, None] = {}
    kept: int = 0
    first_kept: Remedy | None = None
    two_writers: bool = False

    @property
    def scope(self) -> list[str]:
        """The scope of a scan that looks at all of them; everything where not each is a resource that it knows."""
        unknown = any(directory.codec is StorageCodec.UNKNOWN for directory in self.resources)
        words = [str(directory.group_resource) for directory in self.resources]
        return [] if unknown or len(words) > _MOST_WORDS else words


class KeyLosses:
    """Gathers the values that may belong to a lost encryption key. Memory depends on keys and resources in use."""

    def __init__(self, run: RunOptions) -> None:
        self._run = run
        self._members: dict[RuleKey, _Members] = {}

    def add(self, found: Examination, kept: Remedy | None = None) -> None:
        """Take one value, in the order of the etcd keys; ``kept`` saves a revision of it that still reads."""
        stake, cause = stake_of(found), found.verdict.cause
        if stake is None or cause is None:
            return
        for key in keys_in_doubt(found):
            members = self._members.get(key)
            if members is None:
                if len(self._members) >= MAX_NAMES:
                    continue
                members = self._members[key] = _Members(stake.rank)
            members.rank = min(members.rank, stake.rank)
            members.causes.add(cause)
            members.two_writers = members.two_writers or found.verdict.two_writers
            if len(members.resources) < MAX_NAMES:
                members.resources[found.directory] = None
            members.kept += kept is not None
            members.first_kept = members.first_kept or kept

    def lost(self, counted: Iterable[TransformerSummary]) -> dict[RuleKey, Lost]:
        """Return the keys that are lost by these counts."""
        lost = {}
        for entry in counted:
            key = (",".join(entry.resources), entry.transformer, entry.key_fingerprint or "")
            members = self._members.get(key)
            if members is None or entry.transformer == OTHERS or doubt_in(entry) not in BY_NUMBERS:
                continue
            ways = ways_of_lost_key(
                sorted(members.causes, key=_CATALOGUE.index),
                entry.transformer,
                members.scope,
                self._run,
                differing=members.two_writers,
                kept=(members.kept, members.first_kept) if members.first_kept is not None else None,
            )
            published = LostKey(
                transformer=entry.transformer,
                rule=key[0],
                resources=[str(directory.group_resource) for directory in members.resources],
                key_fingerprint=entry.key_fingerprint,
                failures=entry.failures,
                of=entry.keys,
                first_mod_revision=entry.first_mod_revision,
                last_mod_revision=entry.last_mod_revision,
                remedies=ways,
            )
            lost[key] = Lost(published, members.rank, first_way(ways))
        return lost
