"""Counting: summaries by resource, cause and transformer, and the capped Status of each resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from etcdfix.model import GroupResource, Outcome, key_id_digest
from etcdfix.report.counts import (
    COUNTED,
    CauseSummary,
    Counts,
    KMSKeySummary,
    ResourceSummary,
    SeveritySummary,
    TransformerSummary,
)
from etcdfix.report.model import Status, StatusCause, StatusDetails, Summary
from etcdfix.storagekey import ResourcePrefix, display
from etcdfix.verdicts.deletability import FAILED, IDENTITY
from etcdfix.verdicts.examination import Examination, KeyName, PlainCount
from etcdfix.verdicts.key_loss import KeyCounter, KeyDoubt, doubt_about_likely
from etcdfix.verdicts.severity import Stake, by_rank, headline, restart_warning, stake_of

CAP = 100
"""KEP-3926: so many unreadable objects are shown; the next entry says that there are more."""

MAX_NAMES = 1_000
"""So many resources and transformers are counted by name; in damaged or hostile data every key can bring a new
one, and the rest is counted under :data:`OTHERS`."""

OTHERS = "(others)"

_TRUNCATED = StatusCause(reason="FieldValueTooMany", message="too many errors, the list is truncated")


class _Listed(msgspec.Struct):
    """Causes collected for one resource, at most the cap, and whether there were more."""

    prefix: str
    causes: list[StatusCause]
    more: bool = False


class Tally:
    """Counts examinations as they pass. Memory depends on resources, causes and keys in use, not on keys.

    ``list_prefix`` gives the etcd prefix that a LIST of a directory reads, as display text; ``past``: a snapshot or a
    past revision is read.
    """

    def __init__(
        self,
        *,
        max_causes: int,
        list_prefix: Callable[[ResourcePrefix], str],
        past: bool = False,
    ) -> None:
        self._past = past
        self._max_causes = max_causes
        self._list_prefix = list_prefix
        self.not_objects = 0
        self.known_findings = 0
        self._resources: dict[tuple[str, str], ResourceSummary] = {}
        self._kms_keys: dict[tuple[str, str], KMSKeySummary] = {}
        self._transformers: dict[tuple[str, str, str], TransformerSummary] = {}
        self._failing = KeyCounter()
        self._likely: dict[tuple[str, str, str], set[tuple[KeyName, bool]]] = {}
        self._causes: dict[tuple[str, str], CauseSummary] = {}
        self._stakes: dict[Stake, int] = {}
        self._listed: dict[GroupResource, _Listed] = {}
        self._last_directory: ResourcePrefix | None = None
        self._entries: dict[tuple[str, str, tuple[str, ...]], list[TransformerSummary]] = {}
        self._last_resource = ResourceSummary(group="", resource="")

    def add(self, found: Examination) -> None:
        """Count one examination."""
        verdict = found.verdict
        outcome = verdict.outcome
        if outcome is Outcome.NOT_AN_OBJECT:
            self.not_objects += 1
            return
        resource = self._resource_of(found.directory)
        resource.keys += 1
        if found.transformer:
            self._count_transformer(found)
            if found.kms_key_id:
                self._count_kms_key(found)
        resource.stale += found.stale and outcome is Outcome.READABLE
        if outcome is Outcome.READABLE:
            resource.readable += 1
            if verdict.cause is None:
                return
        else:
            field = COUNTED[outcome]
            setattr(resource, field, getattr(resource, field) + 1)
            self._count_stake(stake_of(found))
        self._count_cause(found)

    def add_more(
        self,
        found: Examination,
        times: int,
        *,
        first_mod_revision: int,
        last_mod_revision: int,
        first_key: bytes,
    ) -> None:
        """Count so many further values that do not open and came to the same as one that was counted."""
        if not times:
            return
        resource = self._resource_of(found.directory)
        resource.keys += times
        field = COUNTED[found.verdict.outcome]
        setattr(resource, field, getattr(resource, field) + times)
        for revision, one in ((first_mod_revision, 1), (last_mod_revision, times - 1)):
            newest = msgspec.structs.replace(
                found, stored=msgspec.structs.replace(found.stored, key=first_key, mod_revision=revision)
            )
            self._count_transformer(newest, one)
            if found.kms_key_id:
                self._count_kms_key(newest, one)
        self._count_stake(stake_of(found), times)
        self._count_cause(newest, times)

    def add_plain(self, counts: Iterable[PlainCount]) -> None:
        """Count values that are plain."""
        for plain in counts:
            resource = self._resource_of(plain.directory)
            resource.keys += plain.count
            resource.readable += plain.count
            entries: list[TransformerSummary | KMSKeySummary] = []
            for entry in self._entries_of(plain, plain.first):
                entries.append(entry)
                entry.stale += plain.count * plain.stale
            if plain.kms_key_id:
                key = self._kms_key_of(plain.transformer, plain.kms_key_id, plain.first)
                entries.append(key)
                key.opened += plain.count
            for counted in entries:
                counted.keys += plain.count
                _reach(counted, plain.first)
                _reach(counted, plain.last)
            resource.stale += plain.count * plain.stale

    @property
    def failed(self) -> int:
        """How many values that were counted cannot be read."""
        return sum(one.decrypt_failures + one.decode_failures for one in self._resources.values())

    def _resource_of(self, directory: ResourcePrefix) -> ResourceSummary:
        if directory is not self._last_directory:
            self._last_directory = directory
            self._last_resource = self._resource(directory.group, directory.resource)
        return self._last_resource

    def _resource(self, group: str, resource: str) -> ResourceSummary:
        place = (group, resource)
        if place not in self._resources and len(self._resources) >= MAX_NAMES:
            place = ("", OTHERS)
        return self._resources.setdefault(place, ResourceSummary(group=place[0], resource=place[1]))

    def _count_stake(self, stake: Stake | None, times: int = 1) -> None:
        if stake is None:
            return
        if stake not in self._stakes and len(self._stakes) >= MAX_NAMES:
            stake = msgspec.structs.replace(stake, resource=GroupResource("", OTHERS))
        self._stakes[stake] = self._stakes.get(stake, 0) + times

    def _count_transformer(self, found: Examination, times: int = 1) -> None:
        keys = (found.rule, found.transformer, found.key_fingerprints)
        entries = self._entries.get(keys)
        if entries is None:
            entries = self._entries_of(found, found.stored.mod_revision)
            if len(self._entries) < MAX_NAMES:
                self._entries[keys] = entries
        outcome, revision = found.verdict.outcome, found.stored.mod_revision
        for entry in entries:
            entry.keys += times
            entry.stale += times * found.stale
            if outcome in FAILED:
                if found.verdict.damage.is_unproven:
                    self._note_likely(entry, found)
                entry.failures += times
                entry.damaged += times * found.verdict.is_damage
                entry.likely_damaged += times * found.verdict.damage.is_unproven
            elif outcome is Outcome.UNDETERMINED:
                entry.undetermined += times
            if not entry.first_mod_revision <= revision <= entry.last_mod_revision:
                _reach(entry, revision)
        if outcome is not Outcome.READABLE:
            self._failing.add(found, times)

    def _note_likely(self, entry: TransformerSummary, found: Examination) -> None:
        """Keep under which keys damage is likely only: what else fails there decides in the end what it rests on."""
        place = (",".join(entry.resources), entry.transformer, entry.key_fingerprint or "")
        likely = self._likely.setdefault(place, set())
        if len(likely) < MAX_NAMES:
            likely.update((name, found.verdict.key_proven) for name in found.encryption_keys)

    def _likely_doubts(self, place: tuple[str, str, str]) -> list[str]:
        doubts = {
            doubt_about_likely(self._failing.of(name), key_proven=proven)
            for name, proven in self._likely.get(place, ())
        }
        return sorted(doubt.value for doubt in doubts - {KeyDoubt.NONE})

    def _entries_of(self, seen: Examination | PlainCount, revision: int) -> list[TransformerSummary]:
        # An unencrypted value has no key that could be lost.
        rule = seen.rule if seen.transformer != IDENTITY else ""
        return [
            self._entry((rule, seen.transformer, fingerprint), revision)
            for fingerprint in seen.key_fingerprints or ("",)
        ]

    def _entry(self, place: tuple[str, str, str], revision: int) -> TransformerSummary:
        if place not in self._transformers and len(self._transformers) >= MAX_NAMES:
            place = ("", OTHERS, "")
        entry = self._transformers.get(place)
        if entry is None:
            rule, transformer, fingerprint = place
            entry = self._transformers[place] = TransformerSummary(
                transformer,
                rule.split(",") if rule else [],
                fingerprint or None,
                keys=0,
                failures=0,
                damaged=0,
                undetermined=0,
                stale=0,
                first_mod_revision=revision,
                last_mod_revision=revision,
            )
        return entry

    def _count_kms_key(self, found: Examination, times: int = 1) -> None:
        revision = found.stored.mod_revision
        entry = self._kms_key_of(found.transformer, found.kms_key_id, revision)
        entry.keys += times
        entry.opened += times * found.opened
        _reach(entry, revision)

    def _kms_key_of(self, transformer: str, kms_key_id: str, revision: int) -> KMSKeySummary:
        place = (transformer, kms_key_id)
        if place not in self._kms_keys and len(self._kms_keys) >= MAX_NAMES:
            place = (OTHERS, "")
        entry = self._kms_keys.get(place)
        if entry is None:
            entry = self._kms_keys[place] = KMSKeySummary(
                place[0],
                key_id_digest(place[1]) or None,
                keys=0,
                opened=0,
                first_mod_revision=revision,
                last_mod_revision=revision,
            )
        return entry

    def kms_keys(self) -> list[KMSKeySummary]:
        """Return the KMS key ids in use, most frequent first."""
        return sorted(self._kms_keys.values(), key=lambda k: (-k.keys, k.transformer, k.key_id_sha256 or ""))

    def _count_cause(self, found: Examination, times: int = 1) -> None:
        cause = found.verdict.cause
        if cause is not None:
            place = (cause.value, found.verdict.outcome.value)
            entry = self._causes.get(place)
            if entry is None:
                self._causes[place] = CauseSummary(*place, times, display(found.stored.key))
            else:
                entry.count += times
                entry.example = min(entry.example, display(found.stored.key))

    def lists_more(self, directory: ResourcePrefix) -> bool:
        """Say whether the Status of a resource has room; where it has not, it will say that there are more."""
        listed = self._listed.get(directory.group_resource)
        if listed is None or len(listed.causes) < self._max_causes:
            return True
        listed.more = True
        return False

    def list_cause(self, directory: ResourcePrefix, shown: StatusCause) -> None:
        """Add what the API server's LIST would show to the Status of its resource; in the order of the etcd keys."""
        listed = self._listed.get(directory.group_resource)
        if listed is None:
            listed = self._listed[directory.group_resource] = _Listed(self._list_prefix(directory), [])
        if len(listed.causes) < self._max_causes:
            listed.causes.append(shown)
        else:
            listed.more = True

    def statuses(self) -> list[Status]:
        """Return one Status per resource that has objects which the API server itself calls corrupt."""
        result = []
        for resource, listed in self._listed.items():
            causes = [*listed.causes, _TRUNCATED] if listed.more else listed.causes
            result.append(
                Status(
                    kind="Status",
                    api_version="v1",
                    metadata={},
                    status="Failure",
                    message=f"failed to read one or more {resource} from the storage",
                    reason="StorageReadError",
                    details=StatusDetails(
                        name=listed.prefix, group=resource.group, kind=resource.resource, causes=causes
                    ),
                    code=500,
                )
            )
        return result

    def summary(self) -> Summary:
        """Return all counts; resources by name, causes and transformers most frequent first."""
        total = Summary(not_objects=self.not_objects, known_findings=self.known_findings)
        for resource in self._resources.values():
            for field in Counts.__struct_fields__:
                setattr(total, field, getattr(total, field) + getattr(resource, field))
        total.keys += self.not_objects
        total.by_resource = [self._resources[place] for place in sorted(self._resources)]
        total.by_cause = sorted(self._causes.values(), key=lambda c: (-c.count, c.cause, c.outcome))
        for place, entry in self._transformers.items():
            entry.likely_doubts = self._likely_doubts(place)
        total.by_transformer = sorted(
            self._transformers.values(),
            key=lambda t: (-t.keys, t.transformer, t.resources, t.key_fingerprint or ""),
        )
        self._add_stakes(total)
        return total

    def _add_stakes(self, total: Summary) -> None:
        """Say how bad it is, the worst first."""
        stakes = by_rank(self._stakes)
        total.severity = stakes[0].severity.value if stakes else None
        undetermined = [c.cause for c in total.by_cause if c.outcome == Outcome.UNDETERMINED]
        total.at_stake = headline(stakes, undetermined, past=self._past)
        total.do_not_restart = restart_warning(stakes, undetermined, past=self._past)
        total.by_severity = [
            SeveritySummary(
                stake.severity.value, *stake.resource, self._stakes[stake], stake.now, stake.at_restart
            )
            for stake in stakes
        ]


def _reach(entry: TransformerSummary | KMSKeySummary, revision: int) -> None:
    """Let the revisions of an entry reach as far as one more."""
    if revision < entry.first_mod_revision:
        entry.first_mod_revision = revision
    elif revision > entry.last_mod_revision:
        entry.last_mod_revision = revision
