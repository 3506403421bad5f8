"""Counting: summaries by resource, cause and transformer, what is at stake, and the capped Status of each resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.examine.verdicts.severity import Stake, headline, restart_warning, stake_of
from etcdfix.model.model import GroupResource, Outcome
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import ResourcePrefix, display
from etcdfix.report.model import (
    COUNTED,
    CauseSummary,
    Counts,
    ResourceSummary,
    Status,
    StatusCause,
    StatusDetails,
    Summary,
    TransformerSummary,
)
from etcdfix.text.safetext import safe_text

CAP = 100
"""KEP-3926: so many unreadable objects are shown; the next entry says that there are more."""

MAX_NAMES = 1_000
"""So many resources and transformers are counted by name; in damaged or hostile data every key can bring a new
one, and the rest is counted under :data:`OTHERS`."""

OTHERS = "(others)"

_TRUNCATED = StatusCause(reason="FieldValueTooMany", message="too many errors, the list is truncated")


class Stakes:
    """Gathers what is at stake with values that pass: there are few kinds of it, so its memory is small.

    Args:
        values: The first of them.
        past: They stand in a snapshot, or at a past revision.
    """

    def __init__(self, values: Iterable[Examination] = (), *, past: bool = False) -> None:
        self._past = past
        self._stakes: dict[Stake, None] = {}
        self._undetermined: dict[str, None] = {}
        for found in values:
            self.add(found)

    def add(self, found: Examination) -> None:
        """Take one value."""
        undetermined = found.verdict.outcome is Outcome.UNDETERMINED
        self.note(stake_of(found), found.verdict.cause if undetermined else None)

    def note(self, stake: Stake | None, undetermined: str | None) -> None:
        """Take what is at stake with one value, or why that is not known."""
        if stake is not None and len(self._stakes) < MAX_NAMES:
            self._stakes[stake] = None
        if undetermined is not None:
            self._undetermined[undetermined] = None

    @property
    def severity(self) -> str | None:
        """The worst severity; None for nothing that is proven wrong."""
        worst = min(self._stakes, key=lambda stake: stake.rank, default=None)
        return worst.severity.value if worst is not None else None

    @property
    def at_stake(self) -> str:
        """What is at stake, in one line; "" for nothing."""
        return headline([*self._stakes], [*self._undetermined], past=self._past)

    @property
    def do_not_restart(self) -> str:
        """Why no API server should be restarted; "" where nothing speaks against it."""
        return restart_warning([*self._stakes], [*self._undetermined], past=self._past)

    def lines(self) -> list[str]:
        """Return both, safe to print; empty for nothing."""
        return [safe_text(line) for line in (self.at_stake, self.do_not_restart) if line]


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
        self._max_causes = max_causes
        self._list_prefix = list_prefix
        self.not_objects = 0
        self.known_findings = 0
        self._resources: dict[tuple[str, str], ResourceSummary] = {}
        self._transformers: dict[tuple[str, str, str], TransformerSummary] = {}
        self._causes: dict[tuple[str, str], CauseSummary] = {}
        self._stakes = Stakes(past=past)
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
        resource.stale += found.stale and outcome is Outcome.READABLE
        if outcome is Outcome.READABLE:
            resource.readable += 1
            if verdict.cause is None:
                return
        else:
            field = COUNTED[outcome]
            setattr(resource, field, getattr(resource, field) + 1)
            self._stakes.add(found)
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
        self._count_cause(newest, times)

    def add_plain(self, counts: Iterable[PlainCount]) -> None:
        """Count values that are plain."""
        for plain in counts:
            resource = self._resource_of(plain.directory)
            resource.keys += plain.count
            resource.readable += plain.count
            for entry in self._entries_of(plain, plain.first):
                entry.keys += plain.count
                entry.stale += plain.count * plain.stale
                _reach(entry, plain.first)
                _reach(entry, plain.last)
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
                entry.failures += times
                entry.damaged += times * found.verdict.is_damage
            elif outcome is Outcome.UNDETERMINED:
                entry.undetermined += times
            if not entry.first_mod_revision <= revision <= entry.last_mod_revision:
                _reach(entry, revision)

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
        total.by_transformer = sorted(
            self._transformers.values(),
            key=lambda t: (-t.keys, t.transformer, t.resources, t.key_fingerprint or ""),
        )
        stakes = self._stakes
        total.severity, total.at_stake, total.do_not_restart = (
            stakes.severity, stakes.at_stake, stakes.do_not_restart,
        )  # fmt: skip
        return total


def _reach(entry: TransformerSummary, revision: int) -> None:
    """Let the revisions of an entry reach as far as one more."""
    if revision < entry.first_mod_revision:
        entry.first_mod_revision = revision
    elif revision > entry.last_mod_revision:
        entry.last_mod_revision = revision
